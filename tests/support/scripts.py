"""Servers that say exactly what a test wants, frame by frame, as targets of a client.

`Scripted` is one; `opening` are the first steps of its script. ``talk(script, wire, **options)`` is
one with an open client.
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
        """What to give to the client."""
        return self if wire == "memory" else Stdio(*self.command, restart="never")

    def methods(self, count: int) -> list[str]:
        """What was received, once `count` messages were; a child's reports may lag behind."""
        self.transcript.wait_for(lambda seen: len(seen.received) >= count)
        return self.transcript.methods()

    def gone(self) -> bool:
        """Wait until the client has let go of a connection; it may have had to kill the child."""
        return self.transcript.wait_for(
            lambda seen: not {"disconnected", "exited"}.isdisjoint(seen.events)
        )

    def requests(self, method: str, count: int = 1) -> list[dict[str, Any]]:
        """The messages of this method, once `count` of them were received."""
        return [seen.message for seen in self.transcript.wait_received(method, count)]


def opening(revision: str = OLD) -> list[script.Step]:
    """The steps of a start that offers everything, for a client that names `revision`."""
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
    """A server that says this, and an open client of it; the server outlives the client.

    Args:
        steps: What the server says, from the first message.
        wire: How the client reaches it, "memory" or "stdio".
        mode: The revision of the client.
        on_request: Handlers of methods that the library does not know.
        options: Of the client.
    """
    with Scripted(steps) as peer:
        client = Client(peer.on(wire), mode=mode, **options)
        for method, handler in (on_request or {}).items():
            client.on_request(method, handler)
        with client:
            yield peer, client
