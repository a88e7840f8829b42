"""Call a tool and read its result, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

SERVER = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
)

with syncmcp.connect(SERVER) as client:
    result = client.call_tool(
        "weather", {"city": "Cairo"}
    )
    print(result.structured_content)

    result = client.call_tool("greet", {"name": "Ada"})
    print(result.text)
