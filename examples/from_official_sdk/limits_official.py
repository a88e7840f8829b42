"""Set a timeout for a call, and cancel a call, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import REQUEST_TIMEOUT

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def main() -> None:
    async with Client(SERVER) as client:
        try:
            await client.call_tool(
                "sleep",
                {"seconds": 60},
                read_timeout_seconds=0.2,
            )
        except MCPError as error:
            assert error.code == REQUEST_TIMEOUT
            print("timed out")

        call = asyncio.create_task(
            client.call_tool("sleep", {"seconds": 60})
        )
        await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.wait([call])
        print("cancelled", call.cancelled())


asyncio.run(main())
