"""A stdio server for programs under test. Its tools block, ask the client, or end the process."""

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
    """Wait for a cancellation; return the number of cancellations so far."""
    server.stats.wait_for(lambda stats: bool(stats.cancels))
    return len(server.stats.cancels)


@server.tool()
def ask(context: ToolContext) -> str:
    """Ask the client something before answering."""
    return str(context.request("acme/question"))


@server.tool()
def die(code: int = 3) -> str:
    """Write to stderr, then end the process with this exit code; if it is negative, by SIGKILL."""
    sys.stderr.write("the disk is full\n")
    sys.stderr.flush()
    if code < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(code)


if __name__ == "__main__":
    print("ready to serve", file=sys.stderr, flush=True)
    server.run_stdio()
    print("goodbye", file=sys.stderr, flush=True)
