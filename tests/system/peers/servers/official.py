"""A server on the official SDK 2.x: ``official stdio`` or ``official json|sse|old PORT``.

Besides the tools of all peers, it has resources, prompts, completions and notifications.
"""

from __future__ import annotations

import sys
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    ElicitRequestURLParams,
    PromptReference,
    ResourceTemplateReference,
)

from tests.system.peers.servers import tools
from tests.system.peers.servers.questions import context_tools

how, *port = sys.argv[1:]
server = MCPServer("official", log_level="WARNING")


def fail(reason: str) -> str:
    """Fail. The SDK would not send the text of any other exception."""
    raise ToolError(reason)


offered: list[Any] = [*tools.TOOLS, fail, *context_tools(Context, same_stream=how != "json")]
for tool in offered:
    server.tool()(tool)


# -- content


@server.resource("shop://{country}/{city}")
def shop(country: str, city: str) -> str:
    """A shop."""
    return f"The shop in {city}, {country}."


@server.resource("papers://{+path}")
def paper(path: str) -> bytes:
    """A paper."""
    return path.encode()


@server.resource("find://shops{?name,page}")
def find(name: str = "any", page: str = "1") -> str:
    """A search."""
    return f"{name} on page {page}"


@server.prompt()
def order(city: str, what: str = "bread") -> str:
    """An order."""
    return f"Order {what} in {city}."


CITIES = {"Norway": ["Bergen", "Bodø"], "Japan": ["Beppu", "Kyoto"]}


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator]
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    """Complete cities; if the context has a country, only its cities."""
    if argument.name != "city":
        return None
    settled = (context.arguments if context else None) or {}
    everywhere = [city for cities in CITIES.values() for city in cities]
    known = CITIES.get(settled.get("country", ""), everywhere)
    return Completion(values=[city for city in known if city.startswith(argument.value)])


# -- changes


@server.resource("stock://fruit")
def fruit() -> str:
    """Return the fruit in stock."""
    return "apple"


@server.tool()
async def stir(context: Context) -> str:
    """Notify the client that the tools and the fruit have changed."""
    await context.notify_tools_changed()
    await context.notify_resource_updated("stock://fruit")
    return "stirred"


# -- visits

done: set[str] = set()


@server.tool()
async def visit(url: str, elicitation_id: str, context: Context) -> str:
    """Ask for a visit to a URL; return the action of the answer."""
    return (await context.elicit_url("Please agree.", url, elicitation_id)).action


@server.tool()
async def locked(url: str, elicitation_id: str) -> str:
    """Fail with a request for a visit to a URL, until the visit is completed."""
    if elicitation_id in done:
        return "accept"
    link = ElicitRequestURLParams(message="Please agree.", url=url, elicitation_id=elicitation_id)
    raise UrlElicitationRequiredError([link])


@server.tool()
async def tell_of_visit(elicitation_id: str, context: Context) -> str:
    """Notify the client that a visit is completed."""
    done.add(elicitation_id)
    await context.session.send_elicit_complete(elicitation_id, context.request_id)
    return "told"


if how == "stdio":
    server.run("stdio")
elif how == "old":
    server.run("sse", port=int(port[0]))
else:
    server.run("streamable-http", port=int(port[0]), json_response=how == "json")
