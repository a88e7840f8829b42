"""A server on the official SDK 2.x: ``official stdio`` or ``official json|sse PORT``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from tests.peers.servers import tools


def fail(reason: str) -> str:
    """Fails, always; another exception's text would stay inside this server."""
    raise ToolError(reason)


async def count(steps: int, context: Context) -> str:
    """Reports progress once for each step."""
    return await tools.count(steps, context.report_progress)


server = MCPServer("official", log_level="WARNING")
for tool in (tools.add, fail, count, tools.wait, tools.started, tools.cancelled):
    server.tool()(tool)

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json")
