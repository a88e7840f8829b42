"""A server for crowds: it answers out of order, and says how often it did.

Run as `python -m tests.system.stress.crowd SEED [PORT]`: over stdio, or over HTTP on that port.
"""

from __future__ import annotations

import random
import sys
import threading

from syncmcp.testing import Server, ToolContext, serve_http

# Answers wait for company this long at most, in seconds.
_ALONE = 0.005


class _Shuffler:
    """Holds calls back until some are together, and lets them go in a random order."""

    def __init__(self, seed: int, together: int) -> None:
        self._random = random.Random(seed)
        self._together = together
        # Guards what follows.
        self._lock = threading.Lock()
        self._waiting: list[threading.Event] = []
        self._arrived = 0
        self._latest = 0
        self.overtaken = 0

    def pass_through(self, context: ToolContext) -> None:
        mine = threading.Event()
        with self._lock:
            self._arrived += 1
            number = self._arrived
            self._waiting.append(mine)
            if len(self._waiting) >= self._together:
                self._let_go()
        while not mine.wait(_ALONE) and not context.cancelled.is_set():
            with self._lock:
                self._let_go()
        with self._lock:
            self.overtaken += number < self._latest
            self._latest = max(self._latest, number)

    def _let_go(self) -> None:
        self._random.shuffle(self._waiting)
        for event in self._waiting:
            event.set()
        self._waiting.clear()


def shuffling_server(seed: int, together: int) -> Server:
    """A server whose tool `shuffle` answers out of order."""
    server = Server("crowd")
    shuffler = _Shuffler(seed, together)

    @server.tool()
    def shuffle(context: ToolContext, nonce: str) -> str:
        """Return the nonce when others are there."""
        shuffler.pass_through(context)
        return nonce

    @server.tool()
    def hold(context: ToolContext, nonce: str) -> str:
        """Return the nonce after the call was given up."""
        context.cancelled.wait(60)
        return nonce

    @server.tool()
    def overtaken() -> int:
        """How many answers went out after that of a later request."""
        return shuffler.overtaken

    @server.tool()
    def talk(context: ToolContext, nonce: str) -> str:
        """Report progress and log, twice each, and return the nonce."""
        for step in (1, 2):
            context.report_progress(step, 2, f"step {step} of {nonce}")
            context.log("warning", {"nonce": nonce, "step": step})
        return nonce

    return server


def main(seed: int, port: int | None) -> None:
    """Serve until stdin ends."""
    server = shuffling_server(seed, together=16)
    if port is None:
        server.run_stdio()
        return
    with serve_http(server, port=port) as http:
        print(http.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
