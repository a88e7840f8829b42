"""Print the progress of a call, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, StdioServerParameters

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def show(
    progress: float,
    total: float | None,
    message: str | None,
) -> None:
    print(f"{progress:g} of {total:g}: {message}")


async def main() -> None:
    async with Client(SERVER) as client:
        await client.call_tool(
            "countdown",
            {"steps": 2},
            progress_callback=show,
        )


asyncio.run(main())
