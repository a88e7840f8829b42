"""Connect to a child process, a server at a URL, and an HTTP+SSE server, with syncmcp."""

from __future__ import annotations

import sys

import syncmcp

url, old_url = sys.argv[1:]

program = syncmcp.Stdio(
    sys.executable,
    "-m",
    "syncmcp.testing",
    env={"GREETING": "hello"},
)
with syncmcp.connect(program) as client:
    tools = client.list_tools()
    print(len(tools.tools))

with syncmcp.connect(url) as client:
    tools = client.list_tools()
    print(len(tools.tools))

target = syncmcp.Http(
    url, headers={"X-Tenant": "library"}
)
with syncmcp.connect(target) as client:
    tools = client.list_tools()
    print(len(tools.tools))

old = syncmcp.Http(old_url, transport="sse")
with syncmcp.connect(old) as client:
    tools = client.list_tools()
    print(len(tools.tools))
