"""A server on the official SDK 2.x: ``official stdio`` or ``official json|sse|old PORT``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import InputRequiredResult

from tests.system.peers.servers import tools
from tests.system.peers.servers.questions import Questions


def fail(reason: str) -> str:
    """Fails, always; another exception's text would stay inside this server."""
    raise ToolError(reason)


async def count(steps: int, context: Context) -> str:
    """Reports progress once for each step."""
    return await tools.count(steps, context.report_progress)


questions = Questions(same_stream=sys.argv[1] != "json")


async def ask_model(question: str, context: Context) -> str | InputRequiredResult:
    """Has the client's model answer."""
    return await questions.ask_model(context, question)


async def ask_form(context: Context) -> str | InputRequiredResult:
    """Has a person fill in a form."""
    return await questions.ask_form(context)


async def ask_url(url: str, context: Context) -> str | InputRequiredResult:
    """Sends a person to a URL."""
    return await questions.ask_url(context, url)


async def ask_roots(context: Context) -> str | InputRequiredResult:
    """Asks where it may work."""
    return await questions.ask_roots(context)


server = MCPServer("official", log_level="WARNING")
for tool in (tools.add, fail, count, tools.wait, tools.started, tools.cancelled):
    server.tool()(tool)
for question in (ask_model, ask_form, ask_url, ask_roots):
    server.tool()(question)

if sys.argv[1] == "stdio":
    server.run("stdio")
elif sys.argv[1] == "old":
    server.run("sse", port=int(sys.argv[2]))
else:
    server.run("streamable-http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json")
