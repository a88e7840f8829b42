"""A server that asks whatever a test wants, on every wire and in every era."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, NoReturn

import pytest

import syncmcp
from syncmcp import HandlerContext, Mode
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    TextContent,
)
from tests.support.scripts import NEW, REVISIONS
from tests.support.stage import Clock, tick

PATIENCE = 10.0

SAMPLING = "sampling/createMessage"
ELICITATION = "elicitation/create"
ROOTS = "roots/list"

every_revision = pytest.mark.parametrize("revision", REVISIONS)

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

DONE: dict[str, Any] = {"resultType": "complete", "content": [{"type": "text", "text": "done"}]}


def question(method: str, revision: str) -> dict[str, Any]:
    """Parameters that a server of this revision may send."""
    if method == ROOTS:
        return {}
    if method == SAMPLING:
        return PROMPT
    if revision == "2025-06-18":
        return {name: value for name, value in FORM.items() if name != "mode"}
    return FORM


def asking_server() -> Server:
    """A server with tools that ask, and one that does not."""
    server = Server("asking")

    @server.tool()
    def ask(context: ToolContext, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask what the client declared; say what came back."""
        try:
            return {"result": context.ask_all({"it": (method, params)}, timeout=PATIENCE)["it"]}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    @server.tool()
    def demand(context: ToolContext, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Ask whether the client declared it or not (stateful revisions)."""
        try:
            return {"result": context.request(method, params, timeout=PATIENCE)}
        except RpcError as error:
            return {"error": [error.code, error.message, error.data]}

    @server.tool()
    def capabilities(context: ToolContext) -> dict[str, Any]:
        """Say what the client declared."""
        return context.client_capabilities

    @server.tool()
    def can(context: ToolContext, features: list[str]) -> list[bool]:
        """Say which of these the client can do."""
        return [context.can(feature) for feature in features]

    @server.tool()
    def echo(text: str) -> str:
        """Say `text`."""
        return text

    return server


def asker(revision: Mode, **options: Any) -> syncmcp.Client:
    """An open client of a server that asks."""
    return syncmcp.connect(asking_server(), mode=revision, **options)


def said(client: syncmcp.Client, tool: str, arguments: Any = None, **options: Any) -> Any:
    """What a tool says, as JSON."""
    return json.loads(client.call_tool(tool, arguments, **options).raise_for_error().text)


def asked(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """What the server was answered: ``{"result": ...}`` or ``{"error": [code, text, data]}``."""
    return said(client, "ask", {"method": method, "params": params or {}}, **options)


def demanded(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """The same for something that the client may not have declared."""
    return said(client, "demand", {"method": method, "params": params or {}}, **options)


def fault(client: syncmcp.Client, method: str, params: Any = None, **options: Any) -> Any:
    """Code and text of the error in the place of an answer, in either era."""
    if client.server.revision != NEW:
        code, text, _ = demanded(client, method, params, **options)["error"]
        return code, text
    with pytest.raises((syncmcp.Refused, syncmcp.InvalidQuestion, syncmcp.Denied)) as caught:
        asked(client, method, params, **options)
    return getattr(caught.value, "code", None), caught.value.message


def through(client: syncmcp.Client, way: str, name: str = "x") -> Any:
    """Call a tool, blocking or by a future."""
    if way == "future":
        return client.call_tool.future(name).result(PATIENCE)
    return client.call_tool(name)


# -- handlers that never surprise ------------------------------------------------------------------


def reply(text: str = "hello") -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="double")


def model(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
    """A model that always says hello."""
    return reply()


def person(request: ElicitRequestFormParams, context: HandlerContext) -> ElicitResult:
    """A person who fills in the form."""
    return ElicitResult.accept({"name": "Ann"})


def visitor(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
    """A person who goes where they are sent."""
    return ElicitResult.accept()


def nobody(*_: Any) -> NoReturn:
    """A handler that must not be called."""
    pytest.fail("the handler was called")


class Held:
    """A handler that stops at a gate and keeps what it was given.

    Attributes:
        inside: Released each time it is entered.
        gate: Lets it go on.
        contexts: The contexts it was given.
    """

    def __init__(self, answer: Callable[[], Any] = reply) -> None:
        self.inside = threading.Semaphore(0)
        self.gate = threading.Event()
        self.contexts: list[HandlerContext] = []
        self.ended = threading.Semaphore(0)
        self._answer = answer

    def __call__(self, request: Any, context: HandlerContext) -> Any:
        self.contexts.append(context)
        self.inside.release()
        assert self.gate.wait(PATIENCE), "nobody opened the gate"
        self.ended.release()
        return self._answer()

    def entered(self) -> HandlerContext:
        """Wait until it was entered once more; the last context."""
        assert self.inside.acquire(timeout=PATIENCE)
        return self.contexts[-1]

    def leave(self) -> None:
        """Open the gate and wait until the handler has come back once."""
        self.gate.set()
        assert self.ended.acquire(timeout=PATIENCE)


class Obedient(Held):
    """A handler that waits until its token is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self.reasons: list[str | None] = []
        self.told = threading.Semaphore(0)

    def __call__(self, request: Any, context: HandlerContext) -> Any:
        self.contexts.append(context)
        self.inside.release()
        assert context.cancel.wait(PATIENCE), "nobody cancelled"
        self.reasons.append(context.cancel.reason)
        self.told.release()
        return reply("too late")

    def obeyed(self) -> str | None:
        """Wait until it was cancelled; the reason."""
        assert self.told.acquire(timeout=PATIENCE)
        return self.reasons[-1]


class Slow:
    """Somebody who takes their time, by a clock that nothing else moves; the last time too much.

    Args:
        monkeypatch: Puts the clock there.
        thoughts: How long each question takes, in seconds.

    Attributes:
        contexts: Those of the questions so far.
        left: Set once the last one was given up.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *thoughts: float) -> None:
        self.contexts: list[HandlerContext] = []
        self.left = threading.Event()
        self._thoughts = thoughts
        self._clock = Clock(
            monkeypatch,
            "syncmcp._concurrency.timing",
            "syncmcp._connection.pending_request",
            "syncmcp._connection.connection",
            "syncmcp.transports._http_base",
        )

    def think(self, context: HandlerContext) -> None:
        """Take the time of one question."""
        self.contexts.append(context)
        self._clock.advance(self._thoughts[len(self.contexts) - 1])
        tick()
        if len(self.contexts) == len(self._thoughts):
            assert context.cancel.wait(PATIENCE)
            self.left.set()
