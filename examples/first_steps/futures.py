"""Many calls at once from one thread: each `.future(...)` is a real `concurrent.futures.Future`."""

from __future__ import annotations

import sys
from concurrent.futures import FIRST_COMPLETED, Future, wait

import syncmcp
from syncmcp.types import CallToolResult


def main() -> None:
    """Take three naps at the same time."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        calls: dict[Future[CallToolResult], float] = {
            client.call_tool.future("sleep", {"seconds": nap}): nap for nap in (0.3, 0.1, 0.2)
        }

        # Whichever is ready first comes first.
        pending = set(calls)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for call in done:
                print(f"the nap of {calls[call]} s: {call.result().text}")

        # An error is raised by `result()`, and nowhere before.
        missing = client.call_tool.future("no such tool")
        print(f"the error: {type(missing.exception()).__name__}")


if __name__ == "__main__":
    main()
