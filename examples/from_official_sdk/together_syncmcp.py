"""Make several calls in parallel, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)

with syncmcp.connect(SERVER) as client:
    calls = [
        client.call_tool.future(
            "weather", {"city": city}
        )
        for city in ("Bergen", "Cairo", "Kyoto")
    ]
    for call in calls:
        print(call.result().structured_content)
