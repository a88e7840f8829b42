"""Questions of a server: one inbound request, the registry of open ones, and a round of input.

Before 2026-07-28 a server sends requests; in 2026-07-28 it asks in a result. Either way a question
is one `InboundRequest`; its `Reply` sends a response, or adds the answer to the round.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.pool import current
from syncmcp._concurrency.timing import Alarm, Deadline, Hold
from syncmcp._connection.answering import (
    NO_ANSWER,
    AnswerFunction,
    answered_by_library,
    check_offered,
    consents,
    elicitation_ids,
    is_link,
    known_handler,
    unanswered,
)
from syncmcp._connection.options import attach_trace_context
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
    end_context,
    provisional,
    set_visit,
)

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import PoolSlot
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.options import ResolvedOptions
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.jsonrpc import Id
    from syncmcp._protocol.steps import AnswerInput, RegisterCallback
    from syncmcp.handlers import Handlers, ProgressHandler
    from syncmcp.handlers.url_completion import UrlVisit


_log = logger("syncmcp.handlers")

Outcome: TypeAlias = dict[str, Any] | BaseException | None
"""The answer to a request, an error, or `None`: the request was cancelled."""

Reply: TypeAlias = "Callable[[InboundRequest, Outcome], object]"
"""Takes the outcome of a request; called once, on the thread that settles it; never blocks."""

_NOT_NEEDED = "the server needs no answer any more"


class InboundRequest:
    """One request of a server: waiting for a handler, running, or settled; settled once.

    The thread that settles it in the registry delivers its outcome. Its handler answers it, unless
    `cancel` or `expire` comes first. Only the registry changes its `state`.

    Args:
        id: The id that the server gave it; `None` in a round of input.
        cause: Our request that caused it, if it is known.
        context: The context variables that the handler sees; `None` for those of the client.
        elicitation_ids: The ids of a URL elicitation that the server may report as completed.
        resumes_call: Whether `cause` is sent again once the question is answered.
        hold: The hold of the deadline of `cause`, which begins with the handler; `reply` ends it.
        size: The memory of method, id and parameters, in bytes; 0 for a part of a result.
    """

    def __init__(
        self,
        registry: QuestionRegistry,
        method: str,
        params: Mapping[str, Any],
        answer: AnswerFunction,
        reply: Reply,
        *,
        id: Id | None = None,
        cause: CausingCall | None = None,
        context: contextvars.Context | None = None,
        progress: ProgressHandler | None = None,
        elicitation_ids: tuple[str, ...] = (),
        resumes_call: bool = False,
        hold: Hold | None = None,
        size: int = 0,
    ) -> None:
        self.method = method
        self.size = size
        self.hold = Hold(Deadline(None), None) if hold is None else hold
        # The key in the registry.
        self.key: object = object() if id is None else id
        self.elicitation_ids = elicitation_ids
        self.state: Literal["waiting", "running", "settled"] = "waiting"
        # The outcome of the handler, even if the request has another outcome.
        self.handled: Outcome = None
        self._registry = registry
        self._params = params
        self._answer = answer
        self._reply = reply
        self._cause = cause
        # A copy: callbacks of the call may be running in the original.
        self._context = (registry.services.context if context is None else context).copy()
        self._progress = progress
        self._resumes_call = resumes_call
        # Set once, when the handler is started.
        self._handler_context: HandlerContext | None = None
        self._slot: PoolSlot | None = None
        self._visit: UrlVisit | None = None

    @property
    def deadline(self) -> Deadline | None:
        """The time limit of the handler; `None` until the handler is started."""
        return None if self._handler_context is None else self._handler_context._deadline

    def start(self) -> None:
        """Run the handler on a pool thread, after the request was added to the registry."""
        services = self._registry.services
        try:
            services.handler_pool.submit(self._run)
        except RuntimeError as error:  # no thread can be started; the interpreter may be exiting
            _log.warning("[%s] cannot run %s: %s", services.label, self.method, error)
            self._settle(error)

    def cancel(self, reason: str | None, *, told: str | None = None) -> bool:
        """Cancel the request and its handler; return whether it was open. Never blocks.

        `reason` is for the handler's cancel token. `told` is the reason for the server, if it
        still waits for an answer; by default nothing is sent.
        """
        if not self._settle(None if told is None else unanswered(self.method, told)):
            return False
        self._stop_handler(reason)
        return True

    def _stop_handler(self, reason: str | None) -> None:
        if self._slot is not None:  # another handler may start, even if this one ignores its token
            self._slot.abandon()
        context = self._handler_context
        if context is not None:
            # Callbacks of the token are user code, which must not run on the thread that reads.
            self._registry.services.callback_pool.run(lambda: context.cancel.cancel(reason))

    def expire(self) -> None:
        """Settle the request, on a pool thread: its handler took too long."""
        context, services = self._handler_context, self._registry.services
        outcome = None if context is None else provisional(context)
        if isinstance(outcome, dict):
            self._settle(outcome)
        elif self._registry.settle(self):
            _log.warning(  # before other threads can see the end of the question
                "[%s] nobody answered %s within %g s (option human_timeout)",
                services.label,
                self.method,
                services.human_timeout,
            )
            self._deliver(unanswered(self.method, NO_ANSWER, outcome))
            self._stop_handler("nobody answered in time (option human_timeout)")

    def _handler_cancelled(self) -> None:
        """The program or a person cancelled the handler's token; the handler may ignore it."""
        self.cancel(None, told="the answer was stopped")

    def _run(self) -> None:
        """Run the handler, on a pool thread."""
        services = self._registry.services
        context = services.handler_context(
            self.method,
            call=self._cause,
            progress=self._progress,
            resumes_call=self._resumes_call,
        )
        if context is None:  # the program has dropped the client
            self._settle(None)
            return
        forget = call_when_cancelled(context.cancel, self._handler_cancelled)
        self._handler_context, self._slot = context, current.slot
        # First: another thread that settles the request ends the hold, before or after this.
        self.hold.begin()
        if self._registry.begin(self):
            self.handled = outcome = self._handle(context)
            self._registry.returned(self)
            self._settle(outcome)
        # These break reference cycles.
        self.handled = None
        forget()
        end_context(context)

    def _handle(self, context: HandlerContext) -> Outcome:
        """Run the handler and return its outcome."""
        services = self._registry.services
        if is_link(self.method, self._params):
            self._visit = services.visits.start(*self.elicitation_ids)
            set_visit(context, self._visit)
        try:
            self._context.run(attach_trace_context, self._params)
            return self._context.run(self._answer, context)
        except (Refused, Denied, InvalidQuestion) as error:
            return error
        except BaseException as error:  # also sys.exit() in a handler: the server needs an answer
            # Not reported after the end of the question, which may be why the handler failed.
            if self.state != "settled" and not context.cancel.cancelled:
                text = "[%s] the handler of %s failed"
                services.note(_log, logging.ERROR, text, self.method, exc_info=True)
                self.report_error(error)
            return error

    def report_error(self, error: BaseException) -> None:
        """Call `on_handler_error`, on the thread of the handler."""
        services, context = self._registry.services, self._handler_context
        tell = services.handlers.on_handler_error
        if tell is None or context is None:
            return
        try:
            self._context.run(tell, error, context)
        except BaseException:  # also sys.exit(): the server needs an answer
            services.note(_log, logging.ERROR, "[%s] on_handler_error failed", exc_info=True)

    def _settle(self, outcome: Outcome) -> bool:
        if not self._registry.settle(self):
            return False
        self._deliver(outcome)
        return True

    def _deliver(self, outcome: Outcome) -> None:
        if self._visit is not None and self._handler_context is not None and consents(outcome):
            self._visit.agree(self._handler_context.cancel)
        self._reply(self, outcome)


class QuestionRegistry:
    """All open inbound requests of one connection; expires those whose handlers take too long.

    Attributes:
        close_error: The error that ended the connection; `None` while it is open.
        waiting: How many requests wait for a free handler thread.
    """

    def __init__(self, services: ClientServices) -> None:
        self.services = services
        self.close_error: McpError | None = None
        self.waiting = 0
        self._budget = services.handlers.question_budget
        # Guards the table and the states of the requests; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._open: dict[object, InboundRequest] = {}
        self._alarm = Alarm(self._lock, self._expire_late)

    def __len__(self) -> int:
        """The number of open requests."""
        return len(self._open)

    def add(self, request: InboundRequest) -> bool:
        """Add a request until it is settled; `False` if it cannot be answered.

        That is so if the connection has ended, the id is in use, or the request was cancelled.
        """
        with self._lock:
            if self.close_error is not None or request.state == "settled":
                return False
            if self._open.setdefault(request.key, request) is not request:
                return False
            self.waiting += 1
            self._budget.take(request.size)
        if request.elicitation_ids:
            self.services.visits.register(*request.elicitation_ids)
        return True

    def fits(self, size: int) -> bool:
        """Whether a request of this size, in bytes, may be added to those that are open."""
        return self._budget.fits(size)

    def queue_facts(self) -> dict[str, int]:
        """The number of waiting requests, and the bytes of all that the client has; see `Dump`."""
        return {"questions": self.waiting, "question bytes": self._budget.used}

    def get(self, id: object) -> InboundRequest | None:
        """The open request with this id, as the server sent it."""
        # The types are compared because 1, 1.0 and True are one key of a dict.
        return self._open.get(id) if type(id) is int or type(id) is str else None

    def begin(self, request: InboundRequest) -> bool:
        """Start the time limit of a request whose handler starts; `False` if it is settled."""
        with self._lock:
            if request.state != "waiting":
                return False
            request.state = "running"
            self.waiting -= 1
            self._watch(request)
        return True

    def settle(self, request: InboundRequest) -> bool:
        """Remove a request; `True` for the first caller, which delivers the outcome."""
        with self._lock:
            state, request.state = request.state, "settled"
            if self._open.get(request.key) is request:
                del self._open[request.key]
                if state == "waiting":
                    self.waiting -= 1
                    self._budget.give(request.size)
        if state == "waiting":  # else cancelled questions would fill the queue of the pool
            self.services.handler_pool.withdraw(request._run)
        return state != "settled"

    def returned(self, request: InboundRequest) -> None:
        """Stop counting a request whose handler has returned, perhaps long after its end."""
        self._budget.give(request.size)

    def close(self, error: McpError) -> None:
        """The connection ended with `error`: cancel every open request."""
        with self._lock:
            self.close_error = error
            requests = list(self._open.values())
            self._alarm.cancel()
        for request in requests:
            request.cancel("the connection ended")
        self.services.visits.close("the connection ended")

    def facts(self) -> list[dict[str, Any]]:
        """The open requests as plain values; see `Dump`."""
        with self._lock:
            requests = list(self._open.values())
        found: list[dict[str, Any]] = []
        for each in requests:
            left = None if each.deadline is None else each.deadline.remaining()
            waits = each.state == "waiting"
            found.append(
                {
                    "method": each.method,
                    "state": "waits for a handler" if waits else "is with its handler",
                    "left": None if left is None else round(left, 3),
                }
            )
        return found

    def _watch(self, request: InboundRequest) -> None:
        deadline = request.deadline
        if deadline is not None and deadline.at is not None:
            self._alarm.set(deadline.at)

    def _expire_late(self) -> None:
        """On the timer thread: expire the requests whose time is up."""
        late: list[InboundRequest] = []
        with self._lock:
            for request in self._open.values():
                deadline = request.deadline
                if deadline is not None and deadline.expired:
                    late.append(request)
                else:
                    self._watch(request)
        for request in late:
            # The refusal is sent to the server, and the timer's thread must not write.
            self.services.callback_pool.run(request.expire)


class InputResponder:
    """Answers all questions of one round of input at once (spec: 2026-07-28, MRTR).

    The deadline of the call is held while a handler of the program is busy. `on_done` is called
    once, on the thread that ends the round; it must not block.

    Attributes:
        outcome: The answers by key, the first error, or `None`: a visit to a URL was declined or
            is not possible, or the answers are no longer needed and the call continues.
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
        # Guards the attributes below: answers arrive on many threads.
        self._lock = threading.RLock()
        self._answers: dict[str, dict[str, Any]] = {}
        self._requests: list[InboundRequest] = []
        self._settled = False
        # Functions that unsubscribe from the events that may cancel the round.
        self._subscriptions: list[Callable[[], object]] = []
        self._alarm = Alarm(self._lock, self._check_deadline)
        self.outcome: dict[str, dict[str, Any]] | McpError | None = None

    def start(self) -> None:
        """Start all handlers. Never blocks.

        If a question was not offered (`InvalidQuestion`), or the call has too many
        (`LimitExceeded`), no handler was started.
        """
        ask, dialect, cancel = self._ask, self._dialect, self._options.cancel
        handlers = self._services.handlers.for_call(self._options.handlers)
        if ask.await_completion and not (
            dialect.stateful and dialect.supported_part(offer_of(handlers)).url
        ):
            self._end(None)
            return
        for method, _ in ask.questions.values():
            check_offered(method, offer_of(handlers), dialect)
        if not self._options.may_ask(len(ask.questions), self._services.max_questions_per_call):
            raise self._services.too_many_questions(ask.method)
        requests = [self._inbound_request(handlers, keys) for keys in self._grouped_keys()]
        if ask.withdraw_on is not None:  # first: no handler must see questions that are cancelled
            self._subscribe(ask.withdraw_on, partial(self._end, None))
        with self._lock:
            self._requests = requests
            settled = self._settled
        for each in requests:
            if not settled and self._registry.add(each):
                each.start()
            else:  # cancelled, or closed, before it began
                each.cancel(_NOT_NEEDED)
        if cancel is not None:
            self._subscribe(
                partial(call_when_cancelled, cancel),
                lambda: self.cancel(RequestCancelled("cancelled", reason=cancel.reason)),
            )
        self._watch_deadline()

    def _watch_deadline(self) -> None:
        """Set the alarm for the deadline; called again after each hold of the deadline."""
        with self._lock:
            if not self._settled and self._deadline.at is not None:
                self._alarm.set(self._deadline.at)

    def _check_deadline(self) -> None:
        """End the round if the deadline has passed. Runs on the timer thread."""
        if self._deadline.expired:
            # The call then continues and may write, which the timer thread must not do.
            self._services.callback_pool.run(self._expire)
        else:  # it was held since the alarm was set
            self._watch_deadline()

    def _grouped_keys(self) -> list[list[str]]:
        """Group the keys of the questions with the same URL and message; others stay single."""
        groups: dict[object, list[str]] = {}
        for key, question in self._ask.questions.items():
            groups.setdefault(link_of(question) or key, []).append(key)
        return list(groups.values())

    def _inbound_request(self, handlers: Handlers, keys: list[str]) -> InboundRequest:
        """Make one request for all `keys`, whose questions are the same."""
        ask, dialect = self._ask, self._dialect
        method, params = ask.questions[keys[0]]
        hold = None
        if not answered_by_library(method, handlers):
            hold = Hold(self._deadline, self._services.human_timeout)
        ids: tuple[str, ...] = ()
        if dialect.stateful:
            ids = elicitation_ids(method, *(ask.questions[key].params for key in keys))
        return InboundRequest(
            self._registry,
            method,
            params,
            known_handler(method, params, handlers, dialect, await_completion=ask.await_completion),
            partial(self._answered, keys),
            cause=CausingCall(ask.method, ask.params),
            context=self._options.context,
            elicitation_ids=ids,
            resumes_call=True,
            hold=hold,
        )

    def _subscribe(self, until: RegisterCallback, end: Callable[[], object]) -> None:
        unsubscribe = until(end)
        with self._lock:
            self._subscriptions.append(unsubscribe)
            settled = self._settled
        if settled:
            unsubscribe()

    def cancel(self, error: McpError) -> None:
        """End the round with `error`, and cancel its handlers. Never blocks."""
        self._end(error, str(getattr(error, "reason", None) or error.message))

    def _expire(self) -> None:
        """End the round: the deadline has passed, after the longest hold that is allowed."""
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

    def _answered(self, keys: list[str], request: InboundRequest, outcome: Outcome) -> None:
        request.hold.end()
        self._watch_deadline()
        if outcome is None:
            error = self._registry.close_error or RequestCancelled("the question was withdrawn")
            self.cancel(fresh(error, method=self._ask.method, delivery="unknown"))
        elif isinstance(outcome, BaseException):
            self.cancel(self._as_error(keys[0], outcome))
        elif self._ask.await_completion and not consents(outcome):
            self._end(None, "another question was declined")
        else:
            with self._lock:
                self._answers.update(dict.fromkeys(keys, outcome))
                complete = len(self._answers) == len(self._ask.questions)
            if complete:
                self._end(self._answers)

    def _as_error(self, key: str, outcome: BaseException) -> McpError:
        with delaying_forks():
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

    def _end(
        self, outcome: dict[str, dict[str, Any]] | McpError | None, reason: str = _NOT_NEEDED
    ) -> None:
        """Settle the round, and cancel with `reason` the requests that are still open."""
        with self._lock:
            if self._settled:
                return
            self._settled = True
            self.outcome = outcome
            subscriptions = list(self._subscriptions)
            self._alarm.cancel()
        for unsubscribe in subscriptions:
            unsubscribe()
        for request in self._requests:  # before the call continues, perhaps on this thread
            request.hold.end()
        self._on_done()
        for request in self._requests:
            request.cancel(reason)
