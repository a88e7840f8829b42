"""Questions to a person, and threads that wait for the answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar, cast

from syncmcp import CancelToken
from syncmcp.approval import Kind, Question, ToolCall
from syncmcp.handlers import HandlerContext
from syncmcp.handlers.context import ConnectedServer
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ListRootsRequestParams,
    ToolAnnotations,
)
from tests.support.parts import connected_server
from tests.support.stage import PATIENCE, elsewhere

T = TypeVar("T")

# A picture of one red dot.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"

BOOKS = {"name": "Books", "version": "1"}
"""How a server describes itself: its `serverInfo`."""

EVERY_KIND: dict[str, Any] = {
    "name": {"type": "string", "title": "Your name", "minLength": 2, "maxLength": 40},
    "mail": {"type": "string", "format": "email", "description": "For the receipt"},
    "site": {"type": "string", "format": "uri", "minLength": 1},
    "day": {"type": "string", "format": "date"},
    "moment": {"type": "string", "format": "date-time"},
    "about": {"type": "string", "maxLength": 500},
    "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "share": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.5},
    "news": {"type": "boolean", "default": True, "title": "Send me news"},
    "adult": {"type": "boolean"},
    "size": {"type": "string", "enum": ["s", "m", "l"], "default": "m"},
    "country": {
        "type": "string",
        "oneOf": [{"const": str(n), "title": f"Country {n}"} for n in range(9)],
    },
    "topics": {
        "type": "array",
        "items": {
            "anyOf": [{"const": "a", "title": "Algebra"}, {"const": "g", "title": "Geometry"}]
        },
        "minItems": 1,
    },
    "password": {"type": "string"},
}


def server(
    name: str = "library", *, trusted: bool = False, info: dict[str, Any] | None = BOOKS
) -> Any:
    """Return a stand-in for a connected server, with all that a user interface uses."""
    return connected_server(name, trusted=trusted, info=info)


def context(
    of: ConnectedServer | None = None,
    *,
    method: str = "elicitation/create",
    cancel: CancelToken | None = None,
    timeout: float | None = 300.0,
    **options: Any,
) -> HandlerContext:
    """Return the context of a handler, without a client: no interface uses the client."""
    nobody = cast("Any", None)
    return HandlerContext(nobody, of or server(), method, cancel=cancel, timeout=timeout, **options)


def form(
    fields: dict[str, Any] | None = None,
    required: tuple[str, ...] = (),
    message: str = "Please fill this in.",
) -> ElicitRequestFormParams:
    """Return the request for a form."""
    schema = {"type": "object", "properties": fields or {}, "required": list(required)}
    return ElicitRequestFormParams.from_wire({"message": message, "requestedSchema": schema})


def link(url: str = "https://pay.example.com/42?next=a", message: str = "Pay, please.") -> Any:
    """Return a request to open a link."""
    wire = {"mode": "url", "message": message, "url": url, "elicitationId": "e-1"}
    return ElicitRequestURLParams.from_wire(wire)


def sampling(*texts: str, content: Any = None, **wire: Any) -> CreateMessageRequestParams:
    """Return a sampling request: one message for each text, or one message with `content`."""
    contents = [{"type": "text", "text": text} for text in texts or ("Say something.",)]
    messages = [{"role": "user", "content": one} for one in ([content] if content else contents)]
    return CreateMessageRequestParams.from_wire({"messages": messages, "maxTokens": 500, **wire})


def written(text: str = "Something.", **wire: Any) -> CreateMessageResult:
    """Return the answer of a model."""
    content = {"type": "text", "text": text}
    return CreateMessageResult.from_wire(
        {"role": "assistant", "content": content, "model": "parrot-1", **wire}
    )


def question(
    kind: Kind,
    request: Any = None,
    *,
    answer: Any = None,
    of: ConnectedServer | None = None,
    within: HandlerContext | None = None,
) -> Question:
    """Return a question to review."""
    made: dict[Kind, Callable[[], Any]] = {
        "sampling": sampling,
        "form": form,
        "url": link,
        "roots": ListRootsRequestParams,
        "tool": lambda: ToolCall("delete_book", {"id": 7}, ToolAnnotations(destructive_hint=True)),
    }
    within = within or context(of)
    return Question(kind, within.server, request or made[kind](), within, answer)


class Asked(Generic[T]):
    """A question whose answer another thread waits for."""

    def __init__(self, ask: Callable[..., T], *about: Any) -> None:
        self._answer = elsewhere(partial(ask, *about))

    @property
    def open(self) -> bool:
        """Whether the question has no answer yet."""
        return not self._answer.done()

    def answer(self) -> T:
        """Wait for the answer."""
        return self._answer.result(PATIENCE)


def until(look: Callable[[], T]) -> T:
    """Call `look` repeatedly until its result is true, and return that."""
    end = time.monotonic() + PATIENCE
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
    return found
