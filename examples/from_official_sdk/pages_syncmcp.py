"""List all pages of tools, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

SERVER = syncmcp.Stdio(
    sys.executable,
    *("-m", "syncmcp.testing", "--page-size", "4"),
)

with syncmcp.connect(SERVER) as client:
    tools = client.list_tools().tools
    print(len(tools), tools[0].name)
