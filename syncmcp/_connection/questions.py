"""One question of a server, from its arrival to its end; and the questions of a round together."""

from __future__ import annotations

import contextvars
import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.pool import seat_of_this_thread
from syncmcp._concurrency.timing import Deadline, TimerEntry, timer
from syncmcp._connection.answering import answer, check_offered, read_question, unanswered
from syncmcp._connection.options import join
from syncmcp._protocol.client_capabilities import ELICITATION
from syncmcp._protocol.jsonrpc import INTERNAL_ERROR
from syncmcp._protocol.steps import link_of
from syncmcp.errors import (
    Denied,
    InvalidQuestion,
    McpError,
    Refused,
    RequestCancelled,
    RequestTimeout,
    fresh,
)
from syncmcp.handlers import (
    CausingCall,
    HandlerContext,
    end_context,
    offer_of,
    provisional,
    set_provisional,
    set_visit,
)

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import PoolSlot
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.options import ResolvedOptions
    from syncmcp._protocol.revisions import Dialect
    from syncmcp._protocol.steps import AnswerInput, Until
    from syncmcp.handlers import Handlers, ProgressHandler
    from syncmcp.handlers.url_completion import UrlVisit


_log = logging.getLogger("syncmcp.handlers")

AnswerFunction: TypeAlias = Callable[[HandlerContext], dict[str, Any]]
"""Runs the handler of a question, on a pool thread, and returns the answer for the wire."""

Outcome: TypeAlias = dict[str, Any] | BaseException | None
"""The result of a question, an error instead of one, or nothing: it was withdrawn."""


# How long the request that needs a URL waits for the news that what it led to is done.
COMPLETION_SECONDS = 60.0


class OpenQuestion:
    """One question under way: answered, refused, given up or withdrawn; settled once.

    Args:
        registry: Keeps it while it is open.
        method: Its method.
        answering: Runs the handler, on a pool thread.
        done: Told of it and its outcome once, on whatever thread settles it; must not block.
        cause: The request of ours behind it, if that is known.
        params: Its parameters, which may hold a trace context.
        context: The context variables that the handler sees.
        progress: Where the handler's reports of progress go.
        elicitation_ids: Of a URL, if the server may tell when it is done with; all that it has.
        resumes_call: Whether `cause` is sent again when this is answered.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        method: str,
        answering: AnswerFunction,
        done: Callable[[OpenQuestion, Outcome], object],
        *,
        params: Mapping[str, Any],
        cause: CausingCall | None = None,
        context: contextvars.Context | None = None,
        progress: ProgressHandler | None = None,
        elicitation_ids: tuple[str, ...] = (),
        resumes_call: bool = False,
    ) -> None:
        self._registry = registry
        self._services = registry.services
        self._method = method
        self._answering = answering
        self._done = done
        self._cause = cause
        # A copy: the callbacks of the call may be running in the original at this moment.
        self._context = (self._services.context if context is None else context).copy()
        self._params = params
        self._progress = progress
        self.elicitation_ids = elicitation_ids
        self._resumes_call = resumes_call
        # To the URL that the question is about, once a handler has it.
        self._visit: UrlVisit | None = None
        # Guards who settles it, and what is to be undone then.
        self._lock = threading.RLock()
        self._settled = False
        self._seat: PoolSlot | None = None
        self._handed: HandlerContext | None = None

    @property
    def deadline(self) -> Deadline | None:
        """When its handler is out of time; `None` while it has none."""
        return None if self._handed is None else self._handed._deadline

    def start(self) -> None:
        """Have it answered on a pool thread, as soon as there is one; it was admitted."""
        if self._settled:  # before it was admitted: another question of its round had failed
            self._registry.dismiss(self)
            return
        try:
            self._services.workers.submit(self._run)
        except RuntimeError as error:  # no thread is to be had; the interpreter may be ending
            _log.warning("[%s] nobody can answer %s: %s", self._services.label, self._method, error)
            self._settle(error)

    def withdraw(self, reason: str | None) -> None:
        """Nobody wants an answer any more; the handler's token says so. Never blocks."""
        if self._settle(None):
            self._stop(reason)

    def give_up(self, reason: str) -> None:
        """We do not want it answered any more: the server is refused. Never blocks."""
        if self._settle(unanswered(self._method)):
            self._stop(reason)

    def _run(self) -> None:
        services = self._services
        events, server = services.events(), services.server
        if events is None or server is None:
            self._settle(None)
            return
        context = events.handler_context(
            server,
            self._method,
            call=self._cause,
            timeout=services.human_timeout,
            progress=self._progress,
            resumes_call=self._resumes_call,
        )
        if context is None:
            self._settle(None)
            return
        context._stopped = self._stopped
        with self._lock:
            if self._settled:
                return
            self._handed = context
            self._seat = seat_of_this_thread()
        self._registry.began(self)
        if _is_link(self._method, self._params):
            self._visit = services.visits.begin(*self.elicitation_ids)
            set_visit(context, self._visit)
        outcome: Outcome
        try:
            self._context.run(join, self._params)
            outcome = self._context.run(self._answering, context)
        except (Refused, Denied, InvalidQuestion) as error:
            outcome = error
        except BaseException as error:  # sys.exit() in a handler too: the server waits
            outcome = error
            if not context.cancel.cancelled:
                _log.exception("[%s] the handler of %s failed", self._services.label, self._method)
                self.report(error)
        self._settle(outcome)
        end_context(context)

    def report(self, error: BaseException) -> None:
        """Tell the program what its handler did wrong. On the thread of the handler."""
        tell, context = self._services.handlers.on_handler_error, self._handed
        if tell is None or context is None:
            return
        try:
            self._context.run(tell, error, context)
        except BaseException:  # sys.exit() too: the server waits
            _log.exception("[%s] on_handler_error failed", self._services.label)

    def _stopped(self) -> None:
        """The program, or a person, cancelled the token; the handler may take no notice."""
        if self._settle(unanswered(self._method, "the answer was stopped")):
            self._leave()

    def _expire(self) -> None:
        """On a pool thread: the handler took too long, and is left to itself."""
        answer = None if self._handed is None else provisional(self._handed)
        if answer is not None:
            self._settle(answer)
        elif self._settle(unanswered(self._method)):
            _log.warning(
                "[%s] nobody answered %s within %g s (option human_timeout)",
                self._services.label,
                self._method,
                self._services.human_timeout,
            )
            self._stop("nobody answered in time (option human_timeout)")

    def _leave(self) -> None:
        """Whether the handler obeys its token or not, its place goes to another one."""
        with self._lock:
            seat = self._seat
        if seat is not None:
            seat.abandon()

    def _stop(self, reason: str | None) -> None:
        self._leave()
        handed = self._handed
        if handed is not None:
            # What hangs on the token is user code: it must not run on the thread that reads.
            self._services.callbacks.run(lambda: handed.cancel.cancel(reason))

    def _settle(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._settled:
                return False
            self._settled = True
        self._registry.dismiss(self)
        if self._visit is not None and self._handed is not None and _agrees(outcome):
            self._visit.agree(self._handed.cancel)
        self._done(self, outcome)
        return True


def _agrees(outcome: Outcome) -> bool:
    return isinstance(outcome, dict) and outcome.get("action") == "accept"


def known_question(
    method: str,
    params: dict[str, Any],
    handlers: Handlers,
    dialect: Dialect,
    *,
    await_completion: bool = False,
) -> AnswerFunction:
    """What answers a question that the library knows.

    Args:
        method: The question's method.
        params: Its parameters as they came; to read them may take a while.
        handlers: Who answers.
        dialect: What it was asked in.
        await_completion: After consent to a URL, wait until what it led to is done.
    """

    def answering(context: HandlerContext) -> dict[str, Any]:
        request = read_question(method, params, offer_of(handlers), dialect)
        result = answer(request, handlers, dialect, context)
        if await_completion and _agrees(result):
            # It may never come; the request that needs it is repeated all the same. A server that
            # names the same link again ends the call.
            set_provisional(context, result)
            context.wait_completed(COMPLETION_SECONDS)
        return result

    return answering


def elicitation_ids(method: str, *asked: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids by which a server may tell that what a URL led to is done (2025-11-25).

    Args:
        method: The method of the questions.
        asked: The parameters of each question that asks for this visit.
    """
    stated = [params.get("elicitationId") for params in asked if _is_link(method, params)]
    return tuple(each for each in stated if type(each) is str)


def _is_link(method: str, params: Mapping[str, Any]) -> bool:
    return method == ELICITATION and params.get("mode") == "url"


class QuestionRegistry:
    """The open questions of one connection; ends those whose handlers are out of time."""

    def __init__(self, services: ClientServices) -> None:
        self.services = services
        self.ended: McpError | None = None
        # Guards what follows; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._open: set[OpenQuestion] = set()
        # Of these, the ones that no handler has yet.
        self._waiting: set[OpenQuestion] = set()
        # The one appointment with the timer, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf

    @property
    def waiting(self) -> int:
        """How many questions wait for a handler to be free."""
        return len(self._waiting)

    def admit(self, asked: OpenQuestion) -> bool:
        """Keep a question until it is settled; `False` once the connection has ended."""
        with self._lock:
            if self.ended is not None:
                return False
            self._open.add(asked)
            self._waiting.add(asked)
        self.services.visits.asked(*asked.elicitation_ids)
        return True

    def began(self, asked: OpenQuestion) -> None:
        """A handler has a question now; its time is running."""
        with self._lock:
            self._waiting.discard(asked)
            if asked in self._open:
                self._watch(asked.deadline)

    def dismiss(self, asked: OpenQuestion) -> None:
        """Forget a question that is settled."""
        with self._lock:
            self._open.discard(asked)
            self._waiting.discard(asked)

    def close(self, error: McpError) -> None:
        """The connection has ended like this: withdraw every question that is open."""
        with self._lock:
            self.ended = error
            open_questions = list(self._open)
            if self._appointment is not None:
                self._appointment.cancel()
        for asked in open_questions:
            asked.withdraw("the connection ended")
        self.services.visits.close("the connection ended")

    def facts(self) -> list[dict[str, Any]]:
        """The questions that are open, as plain values; see `Dump`."""
        with self._lock:
            asked = [(each, each in self._waiting) for each in self._open]
        found: list[dict[str, Any]] = []
        for each, waits in asked:
            left = None if each.deadline is None else each.deadline.remaining()
            found.append(
                {
                    "method": each._method,
                    "state": "waits for a handler" if waits else "is with its handler",
                    "left": None if left is None else round(left, 3),
                }
            )
        return found

    def _watch(self, deadline: Deadline | None) -> None:
        """Look when it has passed, or before; called with the lock held.

        All handlers have the same time, so that a later one needs no appointment of its own.
        """
        when = None if deadline is None else deadline.at
        if when is not None and when < self._next_look:
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what has run out of time."""
        late: list[OpenQuestion] = []
        with self._lock:
            self._next_look = math.inf
            for asked in self._open:
                deadline = asked.deadline
                if deadline is not None and deadline.expired:
                    late.append(asked)
                else:
                    self._watch(deadline)
        for asked in late:
            # What comes of it may write, and that is not for the timer's thread.
            self.services.callbacks.run(asked._expire)


# The questions of one round of input, answered all at once (spec: 2026-07-28, MRTR).


class InputResponder:
    """The answers to one round: all of them, or the first thing that went wrong.

    Args:
        ask: The questions.
        registry: Keeps them while they are open.
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
        ask: AnswerInput,
        registry: QuestionRegistry,
        dialect: Dialect,
        options: ResolvedOptions,
        deadline: Deadline,
        done: Callable[[], object],
    ) -> None:
        self._ask = ask
        self._registry = registry
        self._services = registry.services
        self._dialect = dialect
        self._options = options
        self._deadline = deadline
        self._done = done
        # Guards what follows: answers come from many threads.
        self._lock = threading.RLock()
        self._answers: dict[str, dict[str, Any]] = {}
        self._asked: list[OpenQuestion] = []
        self._settled = False
        self._undone: list[Callable[[], None]] = []
        self.outcome: dict[str, dict[str, Any]] | McpError | None = None

    def start(self) -> None:
        """Ask everything. Never blocks.

        Raises:
            InvalidQuestion: One of the questions may not be asked; none was.
        """
        ask, dialect = self._ask, self._dialect
        handlers = self._services.handlers.for_call(self._options.handlers)
        if ask.await_completion and not (
            dialect.stateful and dialect.within(offer_of(handlers)).url
        ):
            self._settle(None)
            return
        for method, _ in ask.questions.values():
            check_offered(method, offer_of(handlers), dialect)
        asked = [self._make(handlers, keys) for keys in self._alike()]
        if ask.until is not None:  # first: what is withdrawn already is shown to nobody
            self._watch(ask.until, self._withdraw)
        with self._lock:
            self._asked = asked
            settled = self._settled
        for each in asked:
            if settled or not self._registry.admit(each):  # cancelled, or closed, before it began
                each.withdraw("nobody wants an answer any more")
            else:
                each.start()
        cancel = self._options.cancel
        if cancel is not None:
            self._watch(
                partial(call_when_cancelled, cancel),
                lambda: self.give_up(RequestCancelled("cancelled", reason=cancel.reason)),
            )
        at = self._deadline.at
        if at is not None:
            # What comes of it may write, and that is not for the timer's thread.
            self._watch(
                lambda end: timer.at(at, partial(self._services.callbacks.run, end)).cancel,
                self._expire,
            )

    def _alike(self) -> list[list[str]]:
        """The keys of the questions, those together that have the same link and the same words."""
        alike: dict[object, list[str]] = {}
        for key, question in self._ask.questions.items():
            alike.setdefault(link_of(question) or key, []).append(key)
        return list(alike.values())

    def _make(self, handlers: Handlers, keys: list[str]) -> OpenQuestion:
        """One question to whoever answers; its answer is that to all of `keys`."""
        ask, dialect = self._ask, self._dialect
        method, params = ask.questions[keys[0]]
        ids: tuple[str, ...] = ()
        if dialect.stateful:
            ids = elicitation_ids(method, *(ask.questions[key].params for key in keys))
        return OpenQuestion(
            self._registry,
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
        seconds, patience = self._deadline.seconds or 0.0, self._services.human_timeout or 0.0
        self.give_up(
            RequestTimeout(
                f"no result within {seconds:g} s, and {patience:g} s more for those who answer"
                " its questions (option human_timeout)",
                seconds=seconds,
                server=self._services.label,
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

    def _answered(self, keys: list[str], _: OpenQuestion, outcome: Outcome) -> None:
        if outcome is None:
            error = self._registry.ended or RequestCancelled("the question was withdrawn")
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
            error = fresh(outcome, server=self._services.label, method=self._ask.method)
        else:
            # Not as it is: what became of another request would be taken for this one's end.
            error = Refused(INTERNAL_ERROR, f"the handler of {method} failed: {outcome!r}")
            error.server, error.method = self._services.label, self._ask.method
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
