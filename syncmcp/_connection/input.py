"""The questions of one round of input, answered all at once (spec: 2026-07-28, MRTR)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.timing import timer
from syncmcp._connection.answering import check_offered
from syncmcp._connection.questions import Asked, Desk, Outcome, elicitation_ids, known_question
from syncmcp._protocol.jsonrpc import INTERNAL_ERROR
from syncmcp._protocol.rounds import link_of
from syncmcp.errors import (
    Denied,
    InvalidQuestion,
    McpError,
    Refused,
    RequestCancelled,
    RequestTimeout,
    fresh,
)
from syncmcp.handlers import CausingCall

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline
    from syncmcp._connection.options import Options
    from syncmcp._protocol.revisions import Dialect
    from syncmcp._protocol.steps import Ask, Until
    from syncmcp.handlers import Handlers


class InputAnswers:
    """The answers to one round: all of them, or the first thing that went wrong.

    Args:
        ask: The questions.
        desk: Where they are answered.
        dialect: What they were asked in.
        options: The options of the call that they belong to.
        deadline: When that call must be over; whoever asks holds it.
        done: Called once, on whatever thread brings the last answer; must not block.

    Attributes:
        outcome: The answers by key, an error, or `None`: somebody would not go to a URL that had
            to be gone to, or nobody wants the answers any more and all else goes on.
    """

    def __init__(
        self,
        ask: Ask,
        desk: Desk,
        dialect: Dialect,
        options: Options,
        deadline: Deadline,
        done: Callable[[], object],
    ) -> None:
        self._ask = ask
        self._desk = desk
        self._dialect = dialect
        self._options = options
        self._deadline = deadline
        self._done = done
        # Guards what follows: answers come from many threads.
        self._lock = threading.RLock()
        self._answers: dict[str, dict[str, Any]] = {}
        self._asked: list[Asked] = []
        self._settled = False
        self._undone: list[Callable[[], None]] = []
        self.outcome: dict[str, dict[str, Any]] | McpError | None = None

    def start(self) -> None:
        """Ask everything. Never blocks.

        Raises:
            InvalidQuestion: One of the questions may not be asked; none was.
        """
        ask, dialect = self._ask, self._dialect
        handlers = self._desk.table.for_call(self._options.handlers)
        if ask.await_completion and not (dialect.stateful and dialect.within(handlers._offer).url):
            self._settle(None)
            return
        for method, _ in ask.questions.values():
            check_offered(method, handlers._offer, dialect)
        asked = [self._make(handlers, keys) for keys in self._alike()]
        if ask.until is not None:  # first: what is withdrawn already is shown to nobody
            self._watch(ask.until, self._withdraw)
        with self._lock:
            self._asked = asked
            settled = self._settled
        for each in asked:
            if settled or not self._desk.admit(each):  # cancelled, or closed, before it began
                each.withdraw("nobody wants an answer any more")
            else:
                each.start()
        cancel = self._options.cancel
        if cancel is not None:
            self._watch(
                cancel._subscribe,
                lambda: self.give_up(RequestCancelled("cancelled", reason=cancel.reason)),
            )
        at = self._deadline.at
        if at is not None:
            # What comes of it may write, and that is not for the timer's thread.
            self._watch(
                lambda end: timer.at(at, partial(self._desk.callbacks.run, end)).cancel,
                self._expire,
            )

    def _alike(self) -> list[list[str]]:
        """The keys of the questions, those together that have the same link and the same words."""
        alike: dict[object, list[str]] = {}
        for key, question in self._ask.questions.items():
            alike.setdefault(link_of(question) or key, []).append(key)
        return list(alike.values())

    def _make(self, handlers: Handlers, keys: list[str]) -> Asked:
        """One question to whoever answers; its answer is that to all of `keys`."""
        ask, dialect = self._ask, self._dialect
        method, params = ask.questions[keys[0]]
        ids: tuple[str, ...] = ()
        if dialect.stateful:
            ids = elicitation_ids(method, *(ask.questions[key].params for key in keys))
        return Asked(
            self._desk,
            method,
            known_question(
                method, params, handlers, dialect, await_completion=ask.await_completion
            ),
            partial(self._answered, keys),
            params=params,
            cause=CausingCall(ask.method, ask.params),
            context=self._options.context,
            elicitation_ids=ids,
            resumes_call=True,
        )

    def _watch(self, until: Until, end: Callable[[], None]) -> None:
        undo = until(end)
        with self._lock:
            self._undone.append(undo)
            settled = self._settled
        if settled:
            undo()

    def give_up(self, error: McpError) -> None:
        """End the round with `error`; its handlers are told to stop. Never blocks."""
        if self._settle(error):
            for asked in self._asked:
                asked.withdraw(str(getattr(error, "reason", None) or error.message))

    def _expire(self) -> None:
        """The clock of the call has stood still for as long as it may, and then run out."""
        seconds, patience = self._deadline.seconds or 0.0, self._desk.human_timeout or 0.0
        self.give_up(
            RequestTimeout(
                f"no result within {seconds:g} s, and {patience:g} s more for those who answer"
                " its questions (option human_timeout)",
                seconds=seconds,
                server=self._desk.label,
                method=self._ask.method,
            )
        )

    def _withdraw(self) -> None:
        if self._settle(None):
            for asked in self._asked:
                asked.withdraw("nobody wants an answer any more")

    def result(self) -> dict[str, dict[str, Any]] | None:
        """The answers, or the error raised; everything has been answered."""
        if isinstance(self.outcome, McpError):
            raise self.outcome
        return self.outcome

    def _answered(self, keys: list[str], _: Asked, outcome: Outcome) -> None:
        if outcome is None:
            error = self._desk.ended or RequestCancelled("the question was withdrawn")
            self.give_up(fresh(error, method=self._ask.method, delivery="unknown"))
        elif isinstance(outcome, BaseException):
            self.give_up(self._as_error(keys[0], outcome))
        elif self._ask.await_completion and outcome.get("action") != "accept":
            if self._settle(None):
                for asked in self._asked:
                    asked.withdraw("another one was declined")
        else:
            with self._lock:
                self._answers.update(dict.fromkeys(keys, outcome))
                complete = len(self._answers) == len(self._ask.questions)
            if complete:
                self._settle(self._answers)

    def _as_error(self, key: str, outcome: BaseException) -> McpError:
        from syncmcp.handlers.forms import InvalidAnswer

        method = self._ask.questions[key].method
        error: McpError
        if isinstance(outcome, (Refused, Denied, InvalidQuestion)) or (
            # One of another call, which the handler made, names that call's method.
            isinstance(outcome, InvalidAnswer) and outcome.method == method
        ):
            error = fresh(outcome, server=self._desk.label, method=self._ask.method)
        else:
            # Not as it is: what became of another request would be taken for this one's end.
            error = Refused(INTERNAL_ERROR, f"the handler of {method} failed: {outcome!r}")
            error.server, error.method = self._desk.label, self._ask.method
        error.__cause__ = outcome
        return error

    def _settle(self, outcome: dict[str, dict[str, Any]] | McpError | None) -> bool:
        with self._lock:
            if self._settled:
                return False
            self._settled = True
            self.outcome = outcome
            undone = list(self._undone)
        for undo in undone:
            undo()
        self._done()
        return True
