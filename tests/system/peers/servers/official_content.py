"""Resources, prompts and completion on the official SDK 2.x: ``official_content stdio|PORT``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import MCPServer
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

server = MCPServer("content", log_level="WARNING")


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
    """Completes cities, those of a country where one is settled."""
    if argument.name != "city":
        return None
    settled = (context.arguments if context else None) or {}
    everywhere = [city for cities in CITIES.values() for city in cities]
    known = CITIES.get(settled.get("country", ""), everywhere)
    return Completion(values=[city for city in known if city.startswith(argument.value)])


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[1]))
