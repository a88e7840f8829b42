"""Handlers for tests: objects that record the questions of servers, and answer them.

`Person()` answers sampling, forms and links at once; `Person(answer)` returns that answer. `Held`
blocks until its gate is set. `Obedient` blocks until the question is withdrawn. `Interface` has the
methods of a user interface. One object may be several handlers of a client:
``connect(server, sampling=person, elicitation=person)``.

`tests/ui/person.py` simulates a person at a terminal, and `tests/auth/authorization_server.py` one
who signs in.
"""

from __future__ import annotations

import threading
from typing import Any, NoReturn

import pytest

from syncmcp import HandlerContext
from syncmcp.types import (
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitResult,
    TextContent,
)
from tests.support.stage import PATIENCE


def reply(text: str = "hello") -> CreateMessageResult:
    """Return a result of sampling with this text."""
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="double")


def nobody(*_: Any) -> NoReturn:
    """Fail the test: a handler that must not be called."""
    pytest.fail("the handler was called")


class Person:
    """A handler that records the questions of servers, and answers them.

    Args:
        answer: The answer, or an exception to raise, or a function without arguments that returns
            one of them. By default, sampling gets the text "hello", a form the name "Ann", and a
            link is accepted.

    Attributes:
        requests: The first argument of each call: the request, or the context for roots.
        contexts: The contexts of the questions.
        gate: Releases `Held` once it is set.
        withdrawn: Set once a question is withdrawn.
        reasons: The reasons of the withdrawals that `Obedient` waited for.
    """

    def __init__(self, answer: Any = None) -> None:
        self.requests: list[Any] = []
        self.contexts: list[HandlerContext] = []
        self.gate = threading.Event()
        self.withdrawn = threading.Event()
        self.reasons: list[str | None] = []
        self._answer = answer
        self._asked = threading.Semaphore(0)
        self._left = threading.Semaphore(0)

    def __call__(self, *asked: Any) -> Any:
        """Answer a question; `asked` is the request and the context, or for roots the context."""
        context = asked[-1]
        self.requests.append(asked[0])
        self.contexts.append(context)
        context.cancel.on_cancel(self.withdrawn.set)
        self._asked.release()
        try:
            self.think(context)
            return self._make(asked[0])
        finally:
            self._left.release()

    def think(self, context: HandlerContext) -> None:
        """Run between the question and its answer; subclasses wait here."""

    def entered(self) -> HandlerContext:
        """Wait for the next call of the handler; return the context of the latest call."""
        assert self._asked.acquire(timeout=PATIENCE), "nobody asked"
        return self.contexts[-1]

    def left(self) -> None:
        """Wait for the next end of a call of the handler, with an answer or an exception."""
        assert self._left.acquire(timeout=PATIENCE), "nobody answered"

    def leave(self) -> None:
        """Set the gate, and wait for the end of one call."""
        self.gate.set()
        self.left()

    def _make(self, request: Any) -> Any:
        made = self._answer() if callable(self._answer) else self._answer
        if isinstance(made, BaseException):
            raise made
        if self._answer is not None:
            return made
        if isinstance(request, CreateMessageRequestParams):
            return reply()
        form = isinstance(request, ElicitRequestFormParams)
        return ElicitResult.accept({"name": "Ann"} if form else None)


class Held(Person):
    """Blocks before each answer until `gate` is set."""

    def think(self, context: HandlerContext) -> None:
        assert self.gate.wait(PATIENCE), "nobody opened the gate"


class Obedient(Person):
    """Blocks until the question is withdrawn, then answers, too late."""

    def think(self, context: HandlerContext) -> None:
        assert context.cancel.wait(PATIENCE), "nobody cancelled"
        self.reasons.append(context.cancel.reason)

    def obeyed(self) -> str | None:
        """Wait for an answer after a withdrawal; return the reason of the withdrawal."""
        self.left()
        return self.reasons[-1]


class Interface(Person):
    """A user interface that asks a person: one object for forms and for links."""

    asks_person = True
    form = url = Person.__call__
