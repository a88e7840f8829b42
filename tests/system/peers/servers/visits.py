"""A server on the official SDK 2.x that says when a visit is done: ``visits stdio|PORT``."""

from __future__ import annotations

import sys

from mcp.server.mcpserver import Context, MCPServer
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp_types import ElicitRequestURLParams

server = MCPServer("visits", log_level="WARNING")
done: set[str] = set()


@server.tool()
async def ask(url: str, elicitation_id: str, context: Context) -> str:
    """Asks for a visit; says what came back."""
    return (await context.elicit_url("Please agree.", url, elicitation_id)).action


@server.tool()
async def locked(url: str, elicitation_id: str) -> str:
    """Fails for want of a visit, until it is done."""
    if elicitation_id in done:
        return "accept"
    link = ElicitRequestURLParams(message="Please agree.", url=url, elicitation_id=elicitation_id)
    raise UrlElicitationRequiredError([link])


@server.tool()
async def complete(elicitation_id: str, context: Context) -> str:
    """Says that a visit is done."""
    done.add(elicitation_id)
    await context.session.send_elicit_complete(elicitation_id, context.request_id)
    return "told"


if sys.argv[1] == "stdio":
    server.run("stdio")
else:
    server.run("streamable-http", port=int(sys.argv[1]))
