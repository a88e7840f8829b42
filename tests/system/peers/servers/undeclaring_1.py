"""A low-level server on the official SDK 1.x, which does not declare all that it handles.

``undeclaring_1 stdio|PORT``.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Mount

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pydantic import AnyUrl

server: Any = Server("undeclaring")
subscribed: dict[str, Any] = {}


async def list_resources() -> list[types.Resource]:
    """One resource."""
    return [types.Resource(uri="stock://fruit", name="fruit")]  # type: ignore[arg-type,unused-ignore]


async def subscribe(uri: AnyUrl) -> None:
    """Tells this session of a resource from now on."""
    subscribed[str(uri)] = server.request_context.session


async def unsubscribe(uri: AnyUrl) -> None:
    """Tells nobody of it any more."""
    del subscribed[str(uri)]


async def list_tools() -> list[types.Tool]:
    """One tool."""
    return [types.Tool.model_validate({"name": "stir", "inputSchema": {"type": "object"}})]


async def call_tool(name: str, arguments: dict[str, Any]) -> list[types.TextContent]:
    """Says what has changed, and to how many resources somebody is subscribed."""
    await server.request_context.session.send_tool_list_changed()
    for uri, session in subscribed.items():
        await session.send_resource_updated(uri)
    return [types.TextContent(type="text", text=f"{len(subscribed)} subscribed")]


async def complete(*_: Any) -> types.Completion:
    """The same for everything."""
    return types.Completion(values=["pear"])


server.list_resources()(list_resources)
server.subscribe_resource()(subscribe)
server.unsubscribe_resource()(unsubscribe)
server.list_tools()(list_tools)
server.call_tool()(call_tool)
server.completion()(complete)


async def over_stdio() -> None:
    """Serves the program that started it."""
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


def over_http(port: int) -> None:
    """Serves ``/mcp`` on the loopback address."""
    manager = StreamableHTTPSessionManager(server)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    app = Starlette(routes=[Mount("/mcp", manager.handle_request)], lifespan=lifespan)
    uvicorn.run(app, port=port, log_level="warning")


if sys.argv[1] == "stdio":
    anyio.run(over_stdio)
else:
    over_http(int(sys.argv[1]))
