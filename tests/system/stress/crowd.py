"""A server for stress tests: it answers out of order, and counts how often.

Run as `python -m tests.system.stress.crowd SEED [PORT]`: over stdio, or over HTTP on that port.
"""

from __future__ import annotations

import random
import sys
import threading

from syncmcp.testing import Server, ToolContext, serve_http

# Seconds that an answer waits at most for others.
_ALONE = 0.005


class _Shuffler:
    """Blocks calls until there are some, and releases them in a random order."""

    def __init__(self, seed: int, together: int) -> None:
        self._random = random.Random(seed)
        self._together = together
        # Guards the following attributes.
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
    """Return a server whose tool `shuffle` answers out of order."""
    server = Server("crowd")
    shuffler = _Shuffler(seed, together)

    @server.tool()
    def shuffle(context: ToolContext, nonce: str) -> str:
        """Return the nonce, once there are other calls, or after a short wait."""
        shuffler.pass_through(context)
        return nonce

    @server.tool()
    def hold(context: ToolContext, nonce: str) -> str:
        """Return the nonce after the call was cancelled."""
        context.cancelled.wait(60)
        return nonce

    @server.tool()
    def overtaken() -> int:
        """Return the number of answers that were overtaken by the answer to a later request."""
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
