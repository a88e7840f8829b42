"""Set a timeout for a call, and cancel a call, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)

with syncmcp.connect(SERVER) as client:
    try:
        client.call_tool(
            "sleep",
            {"seconds": 60},
            timeout=0.2,
        )
    except syncmcp.RequestTimeout:
        print("timed out")

    call = client.call_tool.future(
        "sleep", {"seconds": 60}
    )
    call.cancel()
    print("cancelled", call.cancelled())
