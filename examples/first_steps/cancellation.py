"""Four ways to end a call that takes too long. Each time, the client notifies the server."""

from __future__ import annotations

import sys
import threading

import syncmcp

LONG = {"seconds": 3600}


def main() -> None:
    """End the same call in each of the four ways."""
    server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
    with syncmcp.connect(server) as client:
        # A timeout.
        try:
            client.call_tool("sleep", LONG, timeout=0.1)
        except syncmcp.RequestTimeout as error:
            print(f"timeout: {error.message}")

        # Cancelling the future.
        call = client.call_tool.future("sleep", LONG)
        print(f"future: cancelled {call.cancel()}")

        # A token: it cancels any number of calls, with a reason that is sent to the server.
        token = syncmcp.CancelToken()
        threading.Timer(0.1, token.cancel, args=("the user closed the window",)).start()
        try:
            client.call_tool("sleep", LONG, cancel=token)
        except syncmcp.RequestCancelled as error:
            print(f"token: {error.reason}")

        # Any `threading.Event` of the program.
        stop = threading.Event()
        threading.Timer(0.1, stop.set).start()
        try:
            client.call_tool("sleep", LONG, cancel=stop)
        except syncmcp.RequestCancelled:
            print("event: cancelled")


if __name__ == "__main__":
    main()
