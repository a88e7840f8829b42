"""Diagnose a call that hangs with a dump of the client, and count all calls."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Literal

import syncmcp
from syncmcp.observe.metrics import Measured
from syncmcp.testing import Server, ToolContext


def library() -> Server:
    """A server with a tool that never answers for one of the books."""
    server = Server("library")

    @server.tool()
    def lookup(context: ToolContext, book: str) -> str:
        """Return the place of a book."""
        if book == "Moby Dick":
            context.cancelled.wait()
        return f"{book} is on the shelf"

    return server


class Counts:
    """Counts requests by method and error, and bytes by direction."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.requests: Counter[tuple[str, str | None]] = Counter()
        self.bytes: Counter[str] = Counter()

    def request(self, server: str, method: str, seconds: float, error: str | None) -> None:
        """Count a request."""
        with self.lock:
            self.requests[method, error] += 1

    def frame(self, server: str, direction: Literal["sent", "received"], size: int) -> None:
        """Count the bytes of a message."""
        with self.lock:
            self.bytes[direction] += size

    def repetition(self, server: str, method: str) -> None:
        """Ignore retries: this program has none."""


def main() -> None:
    """Look up three books; print a dump if an answer takes longer than half a second."""
    counts = Counts()
    threading.current_thread().name = "main"
    with syncmcp.connect(library(), interceptors=[Measured(counts)]) as client:

        def print_dump() -> None:
            dump = client.dump()
            for call in dump.facts["calls"]:
                print(f"hangs: {call['method']} {call['name']!r}, {call['state']}")
            print(dump)

        for book in ("Emma", "Moby Dick", "Ulysses"):
            timer = threading.Timer(0.5, print_dump)
            timer.start()
            try:
                print(client.call_tool("lookup", {"book": book}, timeout=5).text)
            except syncmcp.RequestTimeout as error:
                print(error)
            finally:
                timer.cancel()
                timer.join()
    errors = [error for method, error in counts.requests.elements() if method == "tools/call"]
    timeouts = errors.count("RequestTimeout")
    print(f"tools/call: {len(errors)} requests, {timeouts} of them RequestTimeout")
    print(", ".join(f"{count} bytes {direction}" for direction, count in counts.bytes.items()))


if __name__ == "__main__":
    main()
