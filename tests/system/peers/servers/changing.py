"""A server on the official SDK 2.x that tells of changes: ``changing stdio|PORT``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer

server = MCPServer("changing", log_level="WARNING")


@server.resource("stock://fruit")
def fruit() -> str:
    """What there is."""
    return "apple"


@server.tool()
async def stir(context: Context) -> str:
    """Says that the tools have changed, and the fruit."""
    await context.notify_tools_changed()
    await context.notify_resource_updated("stock://fruit")
    return "stirred"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[1]))
