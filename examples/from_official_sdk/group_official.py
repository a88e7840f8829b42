"""Use a group of servers as one client, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import (
    ClientSessionGroup,
    StdioServerParameters,
)
from mcp.types import Implementation


def demo(name: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "syncmcp.testing", "--name", name],
    )


def named(name: str, server: Implementation) -> str:
    return f"{server.name}.{name}"


async def main() -> None:
    async with ClientSessionGroup(
        component_name_hook=named
    ) as group:
        await group.connect_to_server(demo("fish"))
        await group.connect_to_server(demo("books"))
        print("fish.add" in group.tools)
        result = await group.call_tool(
            "books.weather", {"city": "Kyoto"}
        )
        print(result.structured_content)


asyncio.run(main())
