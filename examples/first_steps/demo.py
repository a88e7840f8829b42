"""A tour: start a server, list its tools, and call them one by one and in parallel.

``python examples/first_steps/demo.py``  starts the demo server of syncmcp;
``python examples/first_steps/demo.py -- python my_server.py``
    starts any other server over stdio.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future, as_completed

import syncmcp
from syncmcp.types import CallToolResult

BUNDLED = (sys.executable, "-m", "syncmcp.testing")


def main(command: list[str]) -> int:
    """Start the server, show the tour, close the client, and return the exit code."""
    print(f"starting {' '.join(command)}")
    try:
        with syncmcp.connect(syncmcp.Stdio(*command)) as client:
            tour(client)
    except syncmcp.McpError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    print("closed, and the server has ended")
    return 0


def tour(client: syncmcp.Client) -> None:
    """Print the name of the server, its tools, and results of two tools."""
    info = client.server.info
    name = f"{info.name} {info.version}" if info else "a server without a name"
    print(f"connected to {name}, speaking {client.server.revision}")

    tools = {tool.name: tool for tool in client.iter_tools()}
    print(f"\n{len(tools)} tools:")
    for tool in tools.values():
        print(f"  {tool.name:10} {tool.description or ''}")

    if "countdown" in tools:
        print("\na call that reports progress:")
        result = client.call_tool("countdown", {"steps": 3, "delay": 0.1}, on_progress=show)
        print(f"  countdown -> {result.raise_for_error().text}")

    if "add" in tools:
        print("\neight calls at once, as futures:")
        calls: dict[Future[CallToolResult], int] = {
            client.call_tool.future("add", {"a": n, "b": n}, timeout=30): n for n in range(8)
        }
        for call in as_completed(calls):
            number = calls[call]
            print(f"  {number} + {number} -> {call.result().raise_for_error().text}")


def show(progress: float, total: float | None, message: str | None) -> None:
    """Print one progress report."""
    print(f"  {progress:g} of {total or 0:g}: {message}")


def server_command(arguments: list[str]) -> list[str]:
    """Return the command that starts the server."""
    if not arguments:
        return list(BUNDLED)
    if arguments[0] != "--" or len(arguments) == 1:
        raise SystemExit(f"usage: {sys.argv[0]} [-- COMMAND [ARGUMENT ...]]")
    return arguments[1:]


if __name__ == "__main__":
    sys.exit(main(server_command(sys.argv[1:])))
