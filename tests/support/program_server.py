"""A stdio server for the tests: tools that wait, die, and tell what the server has seen."""

from __future__ import annotations

import os
import signal
import sys

from syncmcp.testing import Server, ToolContext

server = Server("program server")


@server.tool()
def wait(context: ToolContext) -> str:
    """Report progress once, then wait to be cancelled."""
    context.report_progress(1)
    context.cancelled.wait()
    return "cancelled"


@server.tool()
def pid() -> int:
    """The process id of the server."""
    return os.getpid()


@server.tool()
def cancels() -> int:
    """How many cancels came in, once at least one has."""
    server.stats.wait_for(lambda stats: bool(stats.cancels))
    return len(server.stats.cancels)


@server.tool()
def ask(context: ToolContext) -> str:
    """Ask the client something before answering."""
    return str(context.request("acme/question"))


@server.tool()
def die(code: int = 3) -> str:
    """Leave some last words and end the process."""
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(code)


if __name__ == "__main__":
    print("ready to serve", file=sys.stderr, flush=True)
    server.run_stdio()
    print("goodbye", file=sys.stderr, flush=True)
