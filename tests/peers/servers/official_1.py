"""A server on the official SDK 1.x: ``official_1 stdio`` or ``official_1 json|sse PORT``."""

from __future__ import annotations

import sys

from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]  # gone from 2.x

from tests.peers.servers import tools

server = FastMCP("official", log_level="WARNING")


async def count(steps: int) -> str:
    """Reports progress once for each step."""
    return await tools.count(steps, server.get_context().report_progress)


for tool in (tools.add, tools.fail, count, tools.wait, tools.started, tools.cancelled):
    server.tool()(tool)

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.settings.port = int(sys.argv[2])
    server.settings.json_response = sys.argv[1] == "json"
    server.run("streamable-http")
