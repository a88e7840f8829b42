"""Open a server at a URL, call a tool and list all pages, with version 1 of the official SDK."""

from __future__ import annotations

import asyncio
import sys
from datetime import timedelta

from mcp import ClientSession, McpError
from mcp.client.streamable_http import (
    streamablehttp_client,
)

url = sys.argv[1]


async def main() -> None:
    async with (
        streamablehttp_client(url) as (read, write, _),
        ClientSession(
            read,
            write,
            read_timeout_seconds=timedelta(seconds=30),
        ) as session,
    ):
        await session.initialize()
        result = await session.call_tool(
            "weather", {"city": "Cairo"}
        )
        print(result.isError, result.structuredContent)

        page = await session.list_tools()
        tools = list(page.tools)
        while page.nextCursor:
            page = await session.list_tools(
                page.nextCursor
            )
            tools += page.tools
        print(len(tools), tools[0].inputSchema["type"])

        try:
            await session.read_resource("demo://none")
        except McpError as error:
            print(type(error.error.code).__name__)


asyncio.run(main())
