"""Many calls at once from one thread: each `.future(...)` is a real `concurrent.futures.Future`."""

from __future__ import annotations

import sys
from concurrent.futures import FIRST_COMPLETED, Future, wait

import syncmcp
from syncmcp.types import CallToolResult


def main() -> None:
    """Run three calls of different lengths at the same time."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        calls: dict[Future[CallToolResult], float] = {
            client.call_tool.future("sleep", {"seconds": n}): n for n in (0.3, 0.1, 0.2)
        }

        # Print each result as soon as it arrives.
        pending = set(calls)
        while pending:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            for call in done:
                print(f"the call of {calls[call]} s: {call.result().text}")

        # A failed call raises its error in `result()`; `exception()` returns the error.
        missing = client.call_tool.future("no such tool")
        print(f"the error: {type(missing.exception()).__name__}")


if __name__ == "__main__":
    main()
