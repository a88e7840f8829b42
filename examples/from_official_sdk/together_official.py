"""Make several calls in parallel, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def main() -> None:
    async with Client(SERVER) as client:
        calls = [
            client.call_tool("weather", {"city": city})
            for city in ("Bergen", "Cairo", "Kyoto")
        ]
        for result in await asyncio.gather(*calls):
            print(result.structured_content)


asyncio.run(main())
