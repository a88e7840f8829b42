"""A server that asks the questions of a test, on every wire and in every revision."""

from __future__ import annotations

import json
import threading
from concurrent.futures import Future
from typing import Any

import pytest

import syncmcp
from syncmcp import Elicitation, HandlerContext, Mode
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
)
from tests.support.people import reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE, Clock, Wire, elsewhere, tick

SAMPLING = "sampling/createMessage"
ELICITATION = "elicitation/create"
ROOTS = "roots/list"

BOTH = pytest.mark.parametrize("revision", [OLD, NEW])
# Wires on which the call of a question is known, even with several calls in flight.
KNOWING = pytest.mark.parametrize(
    "wire", [Wire("http", OLD), Wire("memory", NEW), Wire("http", NEW)], ids=str
)
# The modules whose clocks measure calls and their questions.
CLOCKS = (
    "syncmcp._concurrency.timing",
    "syncmcp._connection.pending_request",
    "syncmcp._connection.connection",
    "syncmcp.transports._http_base",
)

PROMPT: dict[str, Any] = {
    "messages": [{"role": "user", "content": {"type": "text", "text": "hi"}}],
    "maxTokens": 10,
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "loud": {"type": "boolean", "default": True}},
    "required": ["name"],
}
FORM: dict[str, Any] = {"mode": "form", "message": "Who are you?", "requestedSchema": SCHEMA}
URL: dict[str, Any] = {"mode": "url", "message": "Look", "url": "https://example.org/a?b=c#d"}

RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}
DONE: dict[str, Any] = {"resultType": "complete", **RESULT}


def question(method: str, revision: str) -> dict[str, Any]:
    """Return parameters that are valid in this revision."""
    if method == ROOTS:
        return {}
    if method == SAMPLING:
        return PROMPT
    if revision == "2025-06-18":
        return {name: value for name, value in FORM.items() if name != "mode"}
    return FORM


def asking_server() -> Server:
    """Return a server with tools that ask questions, and tools that do not."""
    server = Server("asking")

    @server.tool()
    def ask(context: ToolContext, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask a question that the client declared; return its answer or the error."""
        try:
            return {"result": context.ask_all({"it": (method, params)}, timeout=PATIENCE)["it"]}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    @server.tool()
    def demand(context: ToolContext, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask a question even if the client did not declare it (stateful revisions)."""
        try:
            return {"result": context.request(method, params, timeout=PATIENCE)}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    @server.tool()
    def capabilities(context: ToolContext) -> dict[str, Any]:
        return context.client_capabilities

    @server.tool()
    def can(context: ToolContext, features: list[str]) -> list[bool]:
        return [context.can(feature) for feature in features]

    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


def asker(revision: Mode, **options: Any) -> syncmcp.Client:
    """Return an open client of an asking server."""
    return syncmcp.connect(asking_server(), mode=revision, **options)


def said(client: syncmcp.Client, tool: str, arguments: Any = None, **options: Any) -> Any:
    """Call a tool and return its text, parsed as JSON."""
    return json.loads(client.call_tool(tool, arguments, **options).raise_for_error().text)


def asked(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """Return what the server got: ``{"result": ...}`` or ``{"error": [code, text, data]}``."""
    return said(client, "ask", {"method": method, "params": params or {}}, **options)


def demanded(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """Return the same for a question that the client may not have declared."""
    return said(client, "demand", {"method": method, "params": params or {}}, **options)


def fault(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """Return code and text of the error that a question gets, in either era."""
    if client.server.revision != NEW:
        code, text, _ = demanded(client, method, params, **options)["error"]
        return code, text
    with pytest.raises((syncmcp.Refused, syncmcp.InvalidQuestion, syncmcp.Denied)) as caught:
        asked(client, method, params, **options)
    return getattr(caught.value, "code", None), caught.value.message


def through(client: syncmcp.Client, way: str, name: str = "x", *args: Any, **options: Any) -> Any:
    """Call a tool, blocking or by a future."""
    if way == "future":
        return client.call_tool.future(name, *args, **options).result(PATIENCE)
    return client.call_tool(name, *args, **options)


def saying(content: Any) -> CreateMessageResult:
    """Return a model's answer with this content."""
    answer = {"role": "assistant", "model": "double", "content": content}
    return CreateMessageResult.from_wire(answer)


def model(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
    """Return the answer of a model that always says hello."""
    return reply()


def person(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """Fill in the form, as a person would."""
    return ElicitResult.accept({"name": "Ann"})


def visitor(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
    """Agree to visit the link."""
    return ElicitResult.accept()


class Slow:
    """A handler that moves the clock for each question, and never answers the last one.

    Args:
        monkeypatch: Replaces the clock.
        thoughts: How long each question takes, in seconds.

    Attributes:
        contexts: The contexts of the questions so far.
        left: Set once the last question was cancelled.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *thoughts: float) -> None:
        self.contexts: list[HandlerContext] = []
        self.left = threading.Event()
        self._thoughts = thoughts
        self._clock = Clock(monkeypatch, *CLOCKS)

    def think(self, context: HandlerContext) -> None:
        """Move the clock for one question; wait for the cancellation of the last one."""
        self.contexts.append(context)
        self._clock.advance(self._thoughts[len(self.contexts) - 1])
        tick()
        if len(self.contexts) == len(self._thoughts):
            assert context.cancel.wait(PATIENCE)
            self.left.set()


# Links whose completion a server reports, and a person who agrees to all of them.

COMPLETE = "notifications/elicitation/complete"


def link(identifier: str = "e-1", url: str = URL["url"]) -> dict[str, Any]:
    return {**URL, "url": url, "elicitationId": identifier}


def complete(identifier: str = "e-1") -> Any:
    return s.notify(COMPLETE, {"elicitationId": identifier})


def ask(identifier: str = "e-1", *, request: int | str) -> Any:
    return s.request(ELICITATION, link(identifier), identifier=request)


# The client answers this request once it has read all earlier messages.
READ = (s.request("ping", identifier="read"), s.expect("response"))


class Agreeing:
    """A person who agrees at once; for each visit a thread waits until it is completed.

    Attributes:
        contexts: The contexts of the questions, in order.
        waits: The outcomes of the waits.
    """

    def __init__(self, timeout: float | None = None) -> None:
        self.contexts: list[HandlerContext] = []
        self._timeout = timeout
        self.waits: list[Future[bool]] = []
        self._asked = threading.Semaphore(0)

    def __call__(self, request: Any, context: HandlerContext) -> ElicitResult:
        self.contexts.append(context)
        self.waits.append(elsewhere(lambda: context.wait_completed(self._timeout)))
        self._asked.release()
        return ElicitResult.accept()

    @property
    def elicitation(self) -> Elicitation:
        return Elicitation(url=self)

    def asked(self) -> HandlerContext:
        assert self._asked.acquire(timeout=PATIENCE)
        return self.contexts[-1]

    def outcomes(self) -> list[bool]:
        return [wait.result(PATIENCE) for wait in self.waits]
