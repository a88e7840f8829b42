"""The open questions of a server: one of them, all of a connection, all of one round of input."""

from __future__ import annotations

import contextvars
import logging
import math
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.pool import current_slot
from syncmcp._concurrency.timing import Deadline, TimerEntry, timer
from syncmcp._connection.answering import answer, check_offered, read_question, unanswered
from syncmcp._connection.options import attach_trace_context
from syncmcp._protocol.capabilities import ELICITATION
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
from syncmcp.handlers import offer_of
from syncmcp.handlers.context import (
    CausingCall,
    HandlerContext,
    call_when_stopped,
    end_context,
    provisional,
    set_provisional,
    set_visit,
)

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import PoolSlot
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.options import ResolvedOptions
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.steps import AnswerInput, RegisterCallback
    from syncmcp.handlers import Handlers, ProgressHandler
    from syncmcp.handlers.url_completion import UrlVisit


_log = logging.getLogger("syncmcp.handlers")

AnswerFunction: TypeAlias = Callable[[HandlerContext], dict[str, Any]]
"""Runs the handler of a question, on a pool thread, and returns the answer for the wire."""

Outcome: TypeAlias = dict[str, Any] | BaseException | None
"""The answer to a question, an error, or `None`: the question was cancelled."""


# How long, in seconds, a retry waits for ``notifications/elicitation/complete`` of its URL.
COMPLETION_SECONDS = 60.0


class OpenQuestion:
    """One open question: answered, refused, expired or cancelled; settled once.

    Args:
        registry: The open questions of the connection.
        method: The method of the question.
        answer: Runs the handler, on a pool thread.
        on_done: Called once with the question and its outcome, on the thread that settles it; must
            not block.
        cause: Our request that caused the question, if it is known.
        params: The parameters of the question, which may contain a trace context.
        context: The context variables that the handler sees.
        progress: Called with the handler's progress.
        elicitation_ids: The ids of a URL elicitation that the server may report as completed.
        resumes_call: Whether `cause` is retried once the question is answered.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        method: str,
        answer: AnswerFunction,
        on_done: Callable[[OpenQuestion, Outcome], object],
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
        self._answer = answer
        self._on_done = on_done
        self._cause = cause
        # A copy: callbacks of the call may be running in the original.
        self._context = (self._services.context if context is None else context).copy()
        self._params = params
        self._progress = progress
        self.elicitation_ids = elicitation_ids
        self._resumes_call = resumes_call
        # The visit to the URL of the question, once a handler was started.
        self._visit: UrlVisit | None = None
        # Guards what follows: any thread may settle the question.
        self._lock = threading.RLock()
        self._settled = False
        self._pool_slot: PoolSlot | None = None
        self._handler_context: HandlerContext | None = None

    @property
    def deadline(self) -> Deadline | None:
        """When the handler's time is up; `None` while no handler was started."""
        return None if self._handler_context is None else self._handler_context._deadline

    def start(self) -> None:
        """Have the handler run on a pool thread; the question was added to the registry."""
        if self._settled:  # before it was added: another question of its round had failed
            self._registry.discard(self)
            return
        try:
            self._services.handler_pool.submit(self._run)
        except RuntimeError as error:  # no thread can be started; the interpreter may be exiting
            _log.warning("[%s] cannot run %s: %s", self._services.label, self._method, error)
            self._settle(error)

    def cancel(self, reason: str | None) -> None:
        """Cancel the question and its handler; no answer is sent. Never blocks."""
        if self._settle(None):
            self._cancel_handler(reason)

    def refuse(self, reason: str) -> None:
        """Cancel the handler and refuse the question to the server. Never blocks."""
        if self._settle(unanswered(self._method)):
            self._cancel_handler(reason)

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
        call_when_stopped(context, self._handler_cancelled)
        with self._lock:
            if self._settled:
                return
            self._handler_context = context
            self._pool_slot = current_slot()
        self._registry.handler_started(self)
        if _is_link(self._method, self._params):
            self._visit = services.visits.start(*self.elicitation_ids)
            set_visit(context, self._visit)
        outcome: Outcome
        try:
            self._context.run(attach_trace_context, self._params)
            outcome = self._context.run(self._answer, context)
        except (Refused, Denied, InvalidQuestion) as error:
            outcome = error
        except BaseException as error:  # also sys.exit() in a handler: the server needs an answer
            outcome = error
            if not context.cancel.cancelled:
                _log.exception("[%s] the handler of %s failed", self._services.label, self._method)
                self.report_error(error)
        self._settle(outcome)
        end_context(context)

    def report_error(self, error: BaseException) -> None:
        """Call `on_handler_error`, on the thread of the handler."""
        tell, context = self._services.handlers.on_handler_error, self._handler_context
        if tell is None or context is None:
            return
        try:
            self._context.run(tell, error, context)
        except BaseException:  # also sys.exit(): the server needs an answer
            _log.exception("[%s] on_handler_error failed", self._services.label)

    def _handler_cancelled(self) -> None:
        """The program or a person cancelled the handler's token; the handler may ignore it."""
        if self._settle(unanswered(self._method, "the answer was stopped")):
            self._abandon_slot()

    def expire(self) -> None:
        """On a pool thread: settle the question, whose handler took too long."""
        answer = None if self._handler_context is None else provisional(self._handler_context)
        if answer is not None:
            self._settle(answer)
        elif self._settle(unanswered(self._method)):
            _log.warning(
                "[%s] nobody answered %s within %g s (option human_timeout)",
                self._services.label,
                self._method,
                self._services.human_timeout,
            )
            self._cancel_handler("nobody answered in time (option human_timeout)")

    def _abandon_slot(self) -> None:
        """Let another handler start, even if this one ignores its token."""
        with self._lock:
            slot = self._pool_slot
        if slot is not None:
            slot.abandon()

    def _cancel_handler(self, reason: str | None) -> None:
        self._abandon_slot()
        context = self._handler_context
        if context is not None:
            # Callbacks of the token are user code, which must not run on the thread that reads.
            self._services.callback_pool.run(lambda: context.cancel.cancel(reason))

    def _settle(self, outcome: Outcome) -> bool:
        with self._lock:
            if self._settled:
                return False
            self._settled = True
        self._registry.discard(self)
        if self._visit is not None and self._handler_context is not None and _agrees(outcome):
            self._visit.agree(self._handler_context.cancel)
        self._on_done(self, outcome)
        return True


def _agrees(outcome: Outcome) -> bool:
    return isinstance(outcome, dict) and outcome.get("action") == "accept"


def known_handler(
    method: str,
    params: dict[str, Any],
    handlers: Handlers,
    dialect: Dialect,
    *,
    await_completion: bool = False,
) -> AnswerFunction:
    """The answer function of a question that the specification defines.

    Args:
        method: The question's method.
        params: Its raw parameters, which are parsed on the thread of the handler.
        handlers: The handlers.
        dialect: The dialect that the question was asked in.
        await_completion: After consent to a URL, wait until the server reports its completion.
    """

    def answer_known(context: HandlerContext) -> dict[str, Any]:
        request = read_question(method, params, offer_of(handlers), dialect)
        result = answer(request, handlers, dialect, context)
        if await_completion and _agrees(result):
            # The notification may never come: then the request is retried anyway, and if the server
            # names the same URL again, the call fails.
            set_provisional(context, result)
            context.wait_completed(COMPLETION_SECONDS)
        return result

    return answer_known


def elicitation_ids(method: str, *questions: Mapping[str, Any]) -> tuple[str, ...]:
    """The ids by which a server may report that a URL elicitation is completed (2025-11-25).

    Args:
        method: The method of the questions.
        questions: The parameters of each question that asks for this visit.
    """
    stated = [params.get("elicitationId") for params in questions if _is_link(method, params)]
    return tuple(each for each in stated if type(each) is str)


def _is_link(method: str, params: Mapping[str, Any]) -> bool:
    return method == ELICITATION and params.get("mode") == "url"


class QuestionRegistry:
    """The open questions of one connection; expires those whose handlers take too long.

    Attributes:
        services: What the client gives to the connection.
        close_error: The error that ended the connection; `None` while it is open.
    """

    def __init__(self, services: ClientServices) -> None:
        self.services = services
        self.close_error: McpError | None = None
        # Guards what follows; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._open: set[OpenQuestion] = set()
        # Those of them whose handlers have not been started.
        self._queued: set[OpenQuestion] = set()
        # The one timer entry, and when it fires.
        self._timer_entry: TimerEntry | None = None
        self._next_check = math.inf

    @property
    def queued(self) -> int:
        """How many questions wait for a free handler thread."""
        return len(self._queued)

    def add(self, question: OpenQuestion) -> bool:
        """Add a question until it is settled; `False` if the connection has ended."""
        with self._lock:
            if self.close_error is not None:
                return False
            self._open.add(question)
            self._queued.add(question)
        self.services.visits.register(*question.elicitation_ids)
        return True

    def handler_started(self, question: OpenQuestion) -> None:
        """The handler of a question was started; its time is running."""
        with self._lock:
            self._queued.discard(question)
            if question in self._open:
                self._watch(question.deadline)

    def discard(self, question: OpenQuestion) -> None:
        """Remove a question that is settled."""
        with self._lock:
            self._open.discard(question)
            self._queued.discard(question)

    def close(self, error: McpError) -> None:
        """The connection ended with `error`: cancel every open question."""
        with self._lock:
            self.close_error = error
            open_questions = list(self._open)
            if self._timer_entry is not None:
                self._timer_entry.cancel()
        for question in open_questions:
            question.cancel("the connection ended")
        self.services.visits.close("the connection ended")

    def facts(self) -> list[dict[str, Any]]:
        """The open questions as plain values; see `Dump`."""
        with self._lock:
            questions = [(each, each in self._queued) for each in self._open]
        found: list[dict[str, Any]] = []
        for each, waits in questions:
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
        """Check at `deadline` or before; called with the lock held.

        All handlers have the same timeout, so that a later one needs no new timer entry.
        """
        when = None if deadline is None else deadline.at
        if when is not None and when < self._next_check:
            if self._timer_entry is not None:
                self._timer_entry.cancel()
            self._next_check = when
            self._timer_entry = timer.at(when, self._check)

    def _check(self) -> None:
        """On the timer thread: expire questions whose time is up."""
        late: list[OpenQuestion] = []
        with self._lock:
            self._next_check = math.inf
            for question in self._open:
                deadline = question.deadline
                if deadline is not None and deadline.expired:
                    late.append(question)
                else:
                    self._watch(deadline)
        for question in late:
            # The refusal is sent to the server, and the timer's thread must not write.
            self.services.callback_pool.run(question.expire)


class InputResponder:
    """Answers all questions of one round of input at once (spec: 2026-07-28, MRTR).

    Args:
        ask: The questions.
        registry: The open questions of the connection.
        dialect: The dialect that they were asked in.
        options: The options of the call that they belong to.
        deadline: The deadline of that call, which the driver holds meanwhile.
        on_done: Called once, on the thread that brings the last answer; must not block.

    Attributes:
        outcome: The answers by key, the first error, or `None`: a URL that had to be visited was
            declined, or the answers are not needed any more and the call goes on.
    """

    def __init__(
        self,
        ask: AnswerInput,
        registry: QuestionRegistry,
        dialect: Dialect,
        options: ResolvedOptions,
        deadline: Deadline,
        on_done: Callable[[], object],
    ) -> None:
        self._ask = ask
        self._registry = registry
        self._services = registry.services
        self._dialect = dialect
        self._options = options
        self._deadline = deadline
        self._on_done = on_done
        # Guards what follows: answers come from many threads.
        self._lock = threading.RLock()
        self._answers: dict[str, dict[str, Any]] = {}
        self._questions: list[OpenQuestion] = []
        self._settled = False
        # Functions that end the subscriptions to whatever may cancel or expire the round.
        self._subscriptions: list[Callable[[], object]] = []
        self.outcome: dict[str, dict[str, Any]] | McpError | None = None

    def start(self) -> None:
        """Start all handlers. Never blocks.

        Raises:
            InvalidQuestion: One of the questions was not offered; no handler was started.
        """
        ask, dialect = self._ask, self._dialect
        handlers = self._services.handlers.for_call(self._options.handlers)
        if ask.await_completion and not (
            dialect.stateful and dialect.supported_part(offer_of(handlers)).url
        ):
            self._settle(None)
            return
        for method, _ in ask.questions.values():
            check_offered(method, offer_of(handlers), dialect)
        questions = [self._open_question(handlers, keys) for keys in self._grouped_keys()]
        if ask.withdraw_on is not None:  # first: no handler must see questions that are cancelled
            self._subscribe(ask.withdraw_on, self._cancel_unwanted)
        with self._lock:
            self._questions = questions
            settled = self._settled
        for each in questions:
            if settled or not self._registry.add(each):  # cancelled, or closed, before it began
                each.cancel("the answer is not needed any more")
            else:
                each.start()
        cancel = self._options.cancel
        if cancel is not None:
            self._subscribe(
                partial(call_when_cancelled, cancel),
                lambda: self.cancel(RequestCancelled("cancelled", reason=cancel.reason)),
            )
        at = self._deadline.at
        if at is not None:
            # The call goes on and may write, which the timer's thread must not.
            self._subscribe(
                lambda end: timer.at(at, partial(self._services.callback_pool.run, end)).cancel,
                self._expire,
            )

    def _grouped_keys(self) -> list[list[str]]:
        """The keys of the questions, grouped by URL and message; others alone."""
        groups: dict[object, list[str]] = {}
        for key, question in self._ask.questions.items():
            groups.setdefault(link_of(question) or key, []).append(key)
        return list(groups.values())

    def _open_question(self, handlers: Handlers, keys: list[str]) -> OpenQuestion:
        """Make the one question that is asked for all of `keys`."""
        ask, dialect = self._ask, self._dialect
        method, params = ask.questions[keys[0]]
        ids: tuple[str, ...] = ()
        if dialect.stateful:
            ids = elicitation_ids(method, *(ask.questions[key].params for key in keys))
        return OpenQuestion(
            self._registry,
            method,
            known_handler(method, params, handlers, dialect, await_completion=ask.await_completion),
            partial(self._answered, keys),
            params=params,
            cause=CausingCall(ask.method, ask.params),
            context=self._options.context,
            elicitation_ids=ids,
            resumes_call=True,
        )

    def _subscribe(self, until: RegisterCallback, end: Callable[[], None]) -> None:
        unsubscribe = until(end)
        with self._lock:
            self._subscriptions.append(unsubscribe)
            settled = self._settled
        if settled:
            unsubscribe()

    def cancel(self, error: McpError) -> None:
        """End the round with `error`, and cancel its handlers. Never blocks."""
        if self._settle(error):
            for question in self._questions:
                question.cancel(str(getattr(error, "reason", None) or error.message))

    def _expire(self) -> None:
        """The deadline of the call was held for as long as it may be, and has passed."""
        seconds, patience = self._deadline.seconds or 0.0, self._services.human_timeout or 0.0
        self.cancel(
            RequestTimeout(
                f"no result within {seconds:g} s, plus {patience:g} s for the handlers that answer"
                " its questions (option human_timeout)",
                seconds=seconds,
                server=self._services.label,
                method=self._ask.method,
            )
        )

    def _cancel_unwanted(self) -> None:
        if self._settle(None):
            for question in self._questions:
                question.cancel("the answer is not needed any more")

    def result(self) -> dict[str, dict[str, Any]] | None:
        """Return the outcome of a round that is settled.

        Raises:
            McpError: The error that the round ended with.
        """
        if isinstance(self.outcome, McpError):
            raise self.outcome
        return self.outcome

    def _answered(self, keys: list[str], _: OpenQuestion, outcome: Outcome) -> None:
        if outcome is None:
            error = self._registry.close_error or RequestCancelled("the question was withdrawn")
            self.cancel(fresh(error, method=self._ask.method, delivery="unknown"))
        elif isinstance(outcome, BaseException):
            self.cancel(self._as_error(keys[0], outcome))
        elif self._ask.await_completion and outcome.get("action") != "accept":
            if self._settle(None):
                for question in self._questions:
                    question.cancel("another one was declined")
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
            # An error of another call, which the handler made, has that call's method.
            isinstance(outcome, InvalidAnswer) and outcome.method == method
        ):
            error = fresh(outcome, server=self._services.label, method=self._ask.method)
        else:
            # Wrapped: it may be the error of another request that the handler made.
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
            subscriptions = list(self._subscriptions)
        for unsubscribe in subscriptions:
            unsubscribe()
        self._on_done()
        return True
