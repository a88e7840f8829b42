"""A call that hangs: what the client says of it, and figures of all calls at the end."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Literal

import syncmcp
from syncmcp.observe.metrics import Measured
from syncmcp.testing import Server, ToolContext


def library() -> Server:
    """A server with a tool that sometimes forgets to answer."""
    server = Server("library")

    @server.tool()
    def lookup(context: ToolContext, book: str) -> str:
        """Say where a book is."""
        if book == "Moby Dick":
            context.cancelled.wait()
        return f"{book} is on the shelf"

    return server


class Figures:
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
        """Nothing is repeated here."""


def main() -> None:
    """Ask for three books; have a look from another thread when an answer does not come."""
    figures = Figures()
    threading.current_thread().name = "main"
    with syncmcp.connect(library(), interceptors=[Measured(figures)]) as client:

        def look() -> None:
            dump = client.dump()
            for call in dump.facts["calls"]:
                print(f"hangs: {call['method']} {call['name']!r}, {call['state']}")
            print(dump)

        for book in ("Emma", "Moby Dick", "Ulysses"):
            alarm = threading.Timer(0.5, look)
            alarm.start()
            try:
                print(client.call_tool("lookup", {"book": book}, timeout=5).text)
            except syncmcp.RequestTimeout as error:
                print(error)
            finally:
                alarm.cancel()
                alarm.join()
    requests = {error: n for (method, error), n in figures.requests.items() if "call" in method}
    late = requests.get("RequestTimeout", 0)
    print(f"tools/call: {sum(requests.values())} requests, {late} of them RequestTimeout")
    print(", ".join(f"{count} bytes {direction}" for direction, count in figures.bytes.items()))


if __name__ == "__main__":
    main()
