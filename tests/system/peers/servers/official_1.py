"""A server on the official SDK 1.x: ``official_1 stdio`` or ``official_1 json|sse|old PORT``."""

from __future__ import annotations

import sys

from mcp import types
from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]  # gone from 2.x

from tests.system.peers.servers import tools
from tests.system.peers.servers.tools import FORM, in_words

server = FastMCP("official", log_level="WARNING")


async def count(steps: int) -> str:
    """Report progress once for each step."""
    return await tools.count(steps, server.get_context().report_progress)


async def ask_model(question: str) -> str:
    """Ask the client's model; the question is not sent on the stream of the call."""
    message = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text=question)
    )
    session = server.get_context().session
    result = await session.create_message([message], max_tokens=100)
    return f"{result.model}: {result.content.text}"


async def ask_form() -> str:
    """Ask for a form."""
    result = await server.get_context().session.elicit("Who are you?", FORM)
    return f"{result.action}: {in_words(result.content or {})}"


async def ask_roots() -> str:
    """Ask for the roots."""
    result = await server.get_context().session.list_roots()
    return " ".join(str(root.uri) for root in result.roots)


for tool in (*tools.TOOLS, tools.fail, count, ask_model, ask_form, ask_roots):
    server.tool()(tool)

if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.settings.port = int(sys.argv[2])
    server.settings.json_response = sys.argv[1] == "json"
    server.run("sse" if sys.argv[1] == "old" else "streamable-http")
