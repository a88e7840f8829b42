"""A tool called in five lines."""

from __future__ import annotations

import sys

import syncmcp

server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
with syncmcp.connect(server) as client:
    print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)
