"""Servers that send exactly the frames of a script.

`Scripted` is such a server, and `opening` returns the first steps of its script.
``talk(steps, wire, **options)`` starts one and opens a client of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest

from syncmcp import Client, Mode, Stdio
from syncmcp.testing import ScriptedPeer, script

WIRES = pytest.mark.parametrize("wire", ["memory", "stdio"])

OLD: Final = "2025-11-25"
NEW: Final = "2026-07-28"
STATEFUL: tuple[Mode, ...] = ("2024-11-05", "2025-03-26", "2025-06-18", OLD)
REVISIONS = (*STATEFUL, NEW)

EVERYTHING: dict[str, Any] = {
    "tools": {},
    "resources": {"subscribe": True},
    "prompts": {},
    "logging": {},
    "completions": {},
}


class Scripted(ScriptedPeer):
    """A scripted peer that a client connects to in memory or as a child process."""

    def on(self, wire: str) -> Scripted | Stdio:
        """Return the target for a client over `wire`: "memory" or "stdio"."""
        return self if wire == "memory" else Stdio(*self.command, restart="never")

    def methods(self, count: int) -> list[str]:
        """Wait until `count` messages were received; return the methods of all that were."""
        self.transcript.wait_for(lambda seen: len(seen.received) >= count)
        return self.transcript.methods()

    def gone(self) -> bool:
        """Wait until a connection is closed, or the child has exited; return False if neither."""
        return self.transcript.wait_for(
            lambda seen: not {"disconnected", "exited"}.isdisjoint(seen.events)
        )

    def requests(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """Wait until `count` messages of this method were received; return them."""
        return [seen.message for seen in self.transcript.wait_received(method, count)]


def opening(revision: str = OLD) -> list[script.Step]:
    """Return the steps of a handshake in `revision`, by a server with all capabilities."""
    return script.handshake(revision, capabilities=EVERYTHING)


@contextmanager
def talk(
    steps: Sequence[script.Step],
    wire: str = "memory",
    *,
    mode: Mode = OLD,
    on_request: Mapping[str, Any] | None = None,
    **options: Any,
) -> Iterator[tuple[Scripted, Client]]:
    """Run a scripted server and an open client of it; the client is closed first.

    Args:
        steps: The script of the server, from the first message.
        wire: The transport: "memory" or "stdio".
        mode: The revision of the client.
        on_request: Handlers of methods that are not in the protocol.
        options: Further arguments of `Client`.
    """
    with Scripted(steps) as peer:
        client = Client(peer.on(wire), mode=mode, **options)
        for method, handler in (on_request or {}).items():
            client.on_request(method, handler)
        with client:
            yield peer, client
