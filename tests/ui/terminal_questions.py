"""Questions of a server, made by hand, to be shown on a terminal."""

from __future__ import annotations

from typing import Any, Final, cast

from syncmcp._protocol.negotiate import Negotiated
from syncmcp._protocol.revisions import dialect_for
from syncmcp.approval import Kind, Question
from syncmcp.handlers import CausingCall, HandlerContext
from syncmcp.handlers.context import ConnectedServer
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
)

ONE: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}
"""A form with one field."""


def asked(
    *,
    timeout: float | None = None,
    info: dict[str, Any] | None = None,
    call: CausingCall | None = None,
    resumes_call: bool = False,
) -> HandlerContext:
    agreed = Negotiated(dialect_for("2025-11-25", None), {"serverInfo": info} if info else {})
    nobody = cast("Any", None)
    server = ConnectedServer(agreed, name="notes")
    return HandlerContext(
        nobody,
        server,
        "elicitation/create",
        timeout=timeout,
        call=call,
        resumes_call=resumes_call,
    )


def form(schema: dict[str, Any] = ONE, message: str = "Please") -> ElicitRequestFormParams:
    return ElicitRequestFormParams(message=message, requested_schema=schema)


def link(url: str = "https://example.com/sign?in=1") -> ElicitRequestURLParams:
    return ElicitRequestURLParams(message="Please sign in", url=url)


def completion(**fields: Any) -> CreateMessageRequestParams:
    result = {"type": "text", "text": "four"}
    messages = [
        {"role": "user", "content": {"type": "text", "text": "What is 2 + 2?"}},
        {
            "role": "assistant",
            "content": [
                {"type": "image", "data": "AAAA", "mimeType": "image/png"},
                {"type": "tool_use", "id": "1", "name": "add", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "toolUseId": "1", "content": [result]},
                {"type": "text", "text": "Explain it."},
            ],
        },
    ]
    return CreateMessageRequestParams.from_wire({"messages": messages, "maxTokens": 100, **fields})


def written(text: str = "It is four.") -> CreateMessageResult:
    content = {"type": "text", "text": text}
    return CreateMessageResult.from_wire(
        {"role": "assistant", "content": content, "model": "tutor-1"}
    )


def question(
    kind: Kind, request: Any, answer: Any = None, context: HandlerContext | None = None
) -> Question:
    context = context or asked()
    return Question(kind, context.server, request, context, answer)
