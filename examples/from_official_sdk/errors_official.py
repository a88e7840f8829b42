"""Handle errors, with the official SDK."""

from __future__ import annotations

import asyncio
import sys

from mcp import Client, MCPError, StdioServerParameters
from mcp.types import INVALID_PARAMS

SERVER = StdioServerParameters(
    command=sys.executable,
    args=["-m", "syncmcp.testing"],
)


async def main() -> None:
    async with Client(SERVER) as client:
        result = await client.call_tool("fail")
        if result.is_error:
            print("the tool failed")

        try:
            await client.call_tool("no_such_tool")
        except MCPError as error:
            assert error.code == INVALID_PARAMS
            print("the server refused")

    try:
        async with Client("http://127.0.0.1:9/mcp"):
            pass
    except Exception as group:  # `except*` since 3.11
        assert "ConnectError" in repr(group)
        print("cannot connect")


asyncio.run(main())
