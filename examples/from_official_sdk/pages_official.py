"""List all pages of tools, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing", "--page-size", "4"],
)


async def main() -> None:
    async with Client(SERVER) as client:
        page = await client.list_tools()
        tools = list(page.tools)
        while page.next_cursor is not None:
            page = await client.list_tools(
                cursor=page.next_cursor
            )
            tools += page.tools
        print(len(tools), tools[0].name)


asyncio.run(main())
