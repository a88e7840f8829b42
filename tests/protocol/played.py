"""Runs the steps of a request without a connection, with given outcomes and answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.revisions import dialect_for
from syncmcp._protocol.steps import AnswerInput, Effect, Pause, Send, SendAndForget
from syncmcp._protocol.tasks import EXTENSION
from syncmcp.errors import McpError

NEWEST = "2026-07-28"

Answerer = Callable[[AnswerInput], Any]
"""Answers questions: returns the answers by key, `None`, or an error to be raised."""


class Played:
    """Steps whose requests get these outcomes, in this order: results, or errors to be raised.

    Attributes:
        effects: The effects that the steps requested, in order.
    """

    def __init__(
        self,
        steps: Any,
        *outcomes: Any,
        answer: Answerer,
        revision: str = NEWEST,
        tasks: bool = False,
    ) -> None:
        self.effects: list[Effect] = []
        self._steps = steps
        self._outcomes = list(outcomes)
        self._answer = answer
        self._dialect = dialect_for(revision, None, {EXTENSION: {}} if tasks else {})

    def run(self) -> Any:
        """Run the steps to their end; return the result."""
        effect = next(self._steps)
        while True:
            self.effects.append(effect)
            try:
                effect = self._go_on(effect)
            except StopIteration as stop:
                assert not self._outcomes, "not every outcome was asked for"
                return stop.value

    def _go_on(self, effect: Effect) -> Effect:
        outcome: Any = None
        if isinstance(effect, AnswerInput):
            outcome = self._answer(effect)
        elif isinstance(effect, Send):
            outcome = self._outcomes.pop(0)
            if not isinstance(outcome, McpError):
                outcome = Reply(outcome, self._dialect)
        if isinstance(outcome, McpError):
            return self._steps.throw(outcome)  # type: ignore[no-any-return]
        return self._steps.send(outcome)  # type: ignore[no-any-return]

    def fail(self, kind: type[McpError] = McpError) -> Any:
        """Run the steps to the error at their end; return it."""
        with pytest.raises(kind) as caught:
            self.run()
        assert not self._outcomes, "not every outcome was asked for"
        return caught.value

    @property
    def requests(self) -> list[tuple[str, Any]]:
        """Method and parameters of each request."""
        return [(one.method, one.params) for one in self.effects if isinstance(one, Send)]

    @property
    def sent(self) -> list[Any]:
        """The parameters of each request."""
        return [params for _, params in self.requests]

    @property
    def asked(self) -> list[AnswerInput]:
        return [effect for effect in self.effects if isinstance(effect, AnswerInput)]

    @property
    def questions(self) -> list[Any]:
        """The questions of each round, by key."""
        return [dict(ask.questions) for ask in self.asked]

    @property
    def pauses(self) -> list[float]:
        return [effect.seconds for effect in self.effects if isinstance(effect, Pause)]

    @property
    def posted(self) -> list[SendAndForget]:
        return [effect for effect in self.effects if isinstance(effect, SendAndForget)]
