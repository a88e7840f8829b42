"""Mutants of batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.contract.mutant import Mutant
from tests.contract.mutant_switches.change import always

if TYPE_CHECKING:
    from tests.contract.mutant_switches.change import Function

FRAME = "syncmcp._connection.batching"


def _cut_all(original: Function) -> Function:
    def withdraw(self: Any, out: Any) -> Any:
        return self.transport.cancel(out.batch or out)

    return withdraw


def _without_frames(original: Function) -> Function:
    def start(self: Any, deadline: Any, frames: Any = None) -> None:
        original(self, deadline)

    return start


MUTANTS = (
    Mutant(
        "batches-apart",
        "the calls of a batch go one by one in every revision",
        "syncmcp._client.background:FutureDrive.start",
        _without_frames,
        ("M-24",),
    ),
    Mutant(
        "handshake-among-others",
        "a handshake may stand in a frame with other requests",
        "syncmcp._connection.connection:ALONE",
        lambda original: "",
        ("RPC-13",),
    ),
    Mutant(
        "frame-unblamed",
        "an error that names no request reaches nobody where answers have no stream of their own",
        f"{FRAME}:BatchFrames.frame_of_error",
        always(None),
        ("M-24",),
    ),
    Mutant(
        "all-for-one",
        "withdrawing one call of a frame ends the exchange of all",
        "syncmcp._connection.connection:Connection._abort",
        _cut_all,
        ("M-24",),
    ),
)
