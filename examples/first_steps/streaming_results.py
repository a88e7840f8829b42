"""A call as a loop: progress and log messages while it runs, and the result as the last item."""

from __future__ import annotations

import sys

import syncmcp
from syncmcp import Progress
from syncmcp.types import CallToolResult


def main() -> None:
    """Iterate over a whole call, and leave the loop of a second call."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        for item in client.call_tool.stream("countdown", {"steps": 3, "delay": 0.05}):
            if isinstance(item, Progress):
                print(f"{item.progress:g} of {item.total:g}")
            elif isinstance(item, CallToolResult):
                print("the result:", item.text)
            else:
                print("the log:", item.data)

        for item in client.call_tool.stream("countdown", {"steps": 100, "delay": 0.05}):
            print("first item:", item)
            break  # leaving the loop cancels the call


if __name__ == "__main__":
    main()
