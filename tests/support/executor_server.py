"""A stdio server for calls from many processes. Files record its orders, and release them."""

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
    """Append the id of the client's process to the file `book`; wait for the file `book`.go."""
    with Path(book).open("a", encoding="utf-8") as lines:
        lines.write(f"{os.getppid()}\n")
    while not (context.cancelled.wait(0.01) or Path(f"{book}.go").exists()):
        pass
    return "ordered"


@server.tool()
def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


if __name__ == "__main__":
    server.run_stdio()
