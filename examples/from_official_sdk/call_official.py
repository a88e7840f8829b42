"""Call a tool and read its result, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.types import TextContent

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def main() -> None:
    async with Client(SERVER) as client:
        result = await client.call_tool(
            "weather", {"city": "Cairo"}
        )
        print(result.structured_content)

        result = await client.call_tool(
            "greet", {"name": "Ada"}
        )
        block = result.content[0]
        assert isinstance(block, TextContent)
        print(block.text)


asyncio.run(main())
