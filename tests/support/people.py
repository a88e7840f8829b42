"""Who is asked: one person, who stands in for every handler of a client.

`Person()` answers at once whatever is asked, and keeps the questions; `Person(answer)` answers
that. `Held` waits for its gate first, `Obedient` until the question is withdrawn; an
`Interface` has methods for forms and links. One person may be
several handlers of a client: ``connect(server, sampling=person, elicitation=person)``.

A person before a real terminal is in `tests/ui/person.py`; one who signs in is in
`tests/auth/authorization_server.py`.
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
    """What a model says."""
    return CreateMessageResult(role="assistant", content=TextContent(text=text), model="double")


def nobody(*_: Any) -> NoReturn:
    """A handler that must not be called."""
    pytest.fail("the handler was called")


class Person:
    """Answers what is asked.

    Args:
        answer: The answer, or an exception to raise, or a function without arguments that makes
            one of them. By itself a person says hello where a model is asked, fills in a form as
            Ann, and opens a link.

    Attributes:
        requests: What was asked.
        contexts: The contexts of the questions.
        gate: Lets a person go on who waits for it.
        withdrawn: Set once a question is withdrawn.
        reasons: Why questions were withdrawn from an obedient person.
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
        """Answer; `asked` is the request, if there is one, and the context."""
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
        """What comes between a question and its answer."""

    def entered(self) -> HandlerContext:
        """Wait until they are asked once more; the latest context."""
        assert self._asked.acquire(timeout=PATIENCE), "nobody asked"
        return self.contexts[-1]

    def left(self) -> None:
        """Wait until they have answered, or given up, once more."""
        assert self._left.acquire(timeout=PATIENCE), "nobody answered"

    def leave(self) -> None:
        """Open the gate, and wait for one answer."""
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
    """Waits for the gate before each answer."""

    def think(self, context: HandlerContext) -> None:
        assert self.gate.wait(PATIENCE), "nobody opened the gate"


class Obedient(Person):
    """Waits until the question is withdrawn, and answers too late."""

    def think(self, context: HandlerContext) -> None:
        assert context.cancel.wait(PATIENCE), "nobody cancelled"
        self.reasons.append(context.cancel.reason)

    def obeyed(self) -> str | None:
        """Wait until a question was withdrawn; the reason."""
        self.left()
        return self.reasons[-1]


class Interface(Person):
    """A user interface with a person before it: one object for forms and for links."""

    asks_person = True
    form = url = Person.__call__
