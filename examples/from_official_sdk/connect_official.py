"""Connect to a child process, a server at a URL, and an HTTP+SSE server, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.streamable_http import (
    streamable_http_client,
)

url, old_url = sys.argv[1:]


async def main() -> None:
    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "syncmcp.testing"],
        env={"GREETING": "hello"},
    )
    async with Client(program) as client:
        tools = await client.list_tools()
        print(len(tools.tools))

    async with Client(url) as client:
        tools = await client.list_tools()
        print(len(tools.tools))

    async with httpx2.AsyncClient(
        headers={"X-Tenant": "library"}
    ) as http:
        transport = streamable_http_client(
            url, http_client=http
        )
        async with Client(transport) as client:
            tools = await client.list_tools()
            print(len(tools.tools))

    old = sse_client(old_url)
    async with Client(old, mode="legacy") as client:
        tools = await client.list_tools()
        print(len(tools.tools))


asyncio.run(main())
