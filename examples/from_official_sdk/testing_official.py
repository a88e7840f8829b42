"""Test against a server in the same process, with the official SDK."""

from __future__ import annotations

import asyncio

from mcp import Client
from mcp.server.mcpserver import MCPServer

server = MCPServer("shop")


@server.tool()
def price(item: str) -> dict[str, int]:
    return {"price": 30 if item == "apple" else 45}


async def main() -> None:
    async with Client(server) as client:
        result = await client.call_tool(
            "price", {"item": "pear"}
        )
        print(result.structured_content)


asyncio.run(main())
