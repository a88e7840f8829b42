"""A stdio server for calls from many processes: it tells by files what it does, and for whom."""

from __future__ import annotations

import os
from pathlib import Path

from syncmcp.testing import Server, ToolContext

server = Server("executor server")


@server.tool()
def pid() -> int:
    """The process id of the server."""
    return os.getpid()


@server.tool()
def order(context: ToolContext, book: str) -> str:
    """Write the order, with the process that wants it, into `book`; wait for `book`.go."""
    with Path(book).open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getppid()}\n")
    while not (context.cancelled.wait(0.01) or Path(f"{book}.go").exists()):
        pass
    return "ordered"


@server.tool()
def fail() -> str:
    """Have no luck."""
    raise ValueError("no luck")


if __name__ == "__main__":
    server.run_stdio()
