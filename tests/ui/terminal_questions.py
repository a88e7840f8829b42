"""Questions of a server, to show on a terminal."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeAlias

from syncmcp.approval import Kind, Question
from syncmcp.handlers import HandlerContext
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
)
from tests.ui import asking

Asking: TypeAlias = Callable[..., Future[Any]]
"""Calls a method of a terminal on another thread: the name of the method, its arguments."""


def asked(*, info: dict[str, Any] | None = None, **options: Any) -> HandlerContext:
    options.setdefault("timeout", None)
    return asking.context(asking.server("notes", info=info), **options)


def form(
    fields: dict[str, Any] | None = None, required: tuple[str, ...] = (), message: str = "Please"
) -> ElicitRequestFormParams:
    """Return the request for a form, by default with one required field."""
    if fields is None:
        fields, required = {"name": {"type": "string"}}, ("name",)
    return asking.form(fields, required, message)


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
    return asking.written(text, model="tutor-1")


def question(
    kind: Kind, request: Any, answer: Any = None, context: HandlerContext | None = None
) -> Question:
    return asking.question(kind, request, answer=answer, within=context or asked())
