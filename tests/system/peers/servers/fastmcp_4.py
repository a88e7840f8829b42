"""A server on FastMCP 4: ``fastmcp_4 stdio`` or ``fastmcp_4 json|sse PORT``."""

from __future__ import annotations

import sys

from fastmcp import Context, FastMCP  # type: ignore[import-not-found]  # in its own environment
from mcp_types import InputRequiredResult

from tests.system.peers.servers import tools
from tests.system.peers.servers.questions import Questions


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


server = FastMCP("fastmcp")
for tool in (tools.add, tools.fail, count, tools.wait, tools.started, tools.cancelled):
    server.tool(tool)
for question in (ask_model, ask_form, ask_url, ask_roots):
    server.tool(question)

quiet = {"show_banner": False, "log_level": "WARNING"}
if sys.argv[1] == "stdio":
    server.run("stdio", **quiet)
else:
    server.run("http", port=int(sys.argv[2]), json_response=sys.argv[1] == "json", **quiet)
