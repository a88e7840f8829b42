"""The handlers that answer the questions of all servers, in all revisions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncmcp import Elicitation
from syncmcp.types import CreateMessageResult, ElicitResult, TextContent
from tests.system.peers.setup_peers import HERE

if TYPE_CHECKING:
    from syncmcp import HandlerContext
    from syncmcp.types import (
        CreateMessageRequestParams,
        ElicitRequestFormParams,
        ElicitRequestURLParams,
    )

AGREEABLE = "https://example.com/agree?to=all"
FIELDS = {"name": "Ann", "color": "green"}
PLACES = (HERE / "files", HERE / "servers")


def repeat(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
    """Answer like a model that repeats the message."""
    return CreateMessageResult(
        role="assistant",
        content=TextContent(text=f"heard: {request.messages[-1].text}"),
        model="parrot",
    )


def fill_in(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Fill in the known fields; the library adds default values."""
    asked = request.requested_schema["properties"]
    return ElicitResult.accept({name: FIELDS[name] for name in FIELDS if name in asked})


def agree(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
    """Accept one URL, and decline all others."""
    return ElicitResult.accept() if request.url == AGREEABLE else ElicitResult.decline()


ANSWERS: dict[str, Any] = {
    "sampling": repeat,
    "elicitation": Elicitation(form=fill_in, url=agree),
    "roots": PLACES,
}
