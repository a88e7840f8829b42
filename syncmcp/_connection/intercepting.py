"""Runs the program's interceptors on messages: their threads, their order, their time limits.

A connection without interceptors uses none of this.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from syncmcp._base.checks import seconds as checked_seconds
from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.pool import CallbackQueue
from syncmcp._concurrency.timing import Deadline, Latch, acquire, monotonic
from syncmcp._connection.pending_request import check_wanted
from syncmcp._protocol.jsonrpc import size_of
from syncmcp.errors import (
    InterceptorFailed,
    McpError,
    ServerError,
)
from syncmcp.interceptors import Interceptor, Message, within

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.pool import DaemonPool
    from syncmcp._connection.answering import AnswerFunction
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.jsonrpc import Request
    from syncmcp.handlers import HandlerContext

_log = logger("syncmcp.interceptors")

_FIXED = ("server", "direction", "kind", "method", "id", "elapsed", "settled")


class InterceptorChain:
    """The interceptors of one connection, in the order in which they see outgoing messages."""

    def __init__(self, interceptors: Sequence[Interceptor], services: ClientServices) -> None:
        self._interceptors = interceptors
        self._label = services.label
        self._workers = services.callback_pool
        self._services = services
        # Messages that the library has already handled. If hooks are too slow, some are dropped.
        self._settled = CallbackQueue(
            self._workers,
            copy_context(),
            services.log,
            services.handlers.notification_budget,
            services.label,
        )

    def intercept(self, call: PendingRequest) -> InterceptedRequest:
        """Make the object that intercepts one request and its response."""
        running = call.options.context.get(within, ())
        return InterceptedRequest(
            call, _not_running(self._interceptors, running), self._label, self._workers
        )

    def outgoing_notification(
        self, method: str, params: dict[str, Any] | None, deadline: Deadline
    ) -> dict[str, Any] | None:
        """Run hooks on a notification from the program, on its thread; return the parameters."""
        wait = partial(_wait, deadline, None, method, "not_sent")
        message = Message(
            self._label, "outgoing", "notification", method, params=params or {}, _wait=wait
        )
        chain = _not_running(self._interceptors, within.get())
        return copy_context().run(_run_hooks, chain, "outgoing", message).params or None

    def incoming_notification(
        self, method: str, params: dict[str, Any], call: PendingRequest | None
    ) -> dict[str, Any] | None:
        """Run hooks on a server's notification, on a pool thread; `None` if it is dropped."""
        deadline = Deadline(None) if call is None else call.deadline
        cancel = None if call is None else call.options.cancel
        wait = partial(_wait, deadline, cancel, method, "unknown")
        message = Message(
            self._label, "incoming", "notification", method, params=params, _wait=wait
        )
        running = () if call is None else call.options.context.get(within, ())
        chain = _not_running(self._interceptors, running)
        try:
            shown = _run_hooks(chain[::-1], "incoming", message)
        except McpError as error:
            text = "[%s] %s was dropped: %s"
            self._services.note(_log, logging.WARNING, text, method, error)
            return None
        return shown.params

    def intercept_handler(
        self, request: Request, make: Callable[[dict[str, Any]], AnswerFunction]
    ) -> AnswerFunction:
        """Return an answer function that runs interceptors before and after the handler."""
        id, method, params = request

        def answer_intercepted(context: HandlerContext) -> dict[str, Any]:
            chain = _not_running(self._interceptors, within.get())
            wait = partial(_wait, context._deadline, context.cancel, method, "unknown")
            since = monotonic()
            answer = Message(self._label, "outgoing", "response", method, id, params, _wait=wait)
            try:
                question = replace(answer, direction="incoming", kind="request")
                question = _run_hooks(chain[::-1], "incoming", question)
                given = make(question.params)(context)
                answer = replace(answer, result=given, elapsed=monotonic() - since)
            except BaseException as error:  # treated like an error of the handler
                answer = replace(answer, error=error, elapsed=monotonic() - since)
            answer = _run_hooks(chain, "outgoing", answer)
            if answer.error is not None:
                raise answer.error
            result: dict[str, Any] = answer.result
            return result

        return answer_intercepted

    def show_settled(
        self,
        direction: Literal["outgoing", "incoming"],
        kind: Literal["request", "notification", "response"],
        method: str,
        params: dict[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Show, on a pool thread, a message that the library has already handled. Never blocks."""
        message = Message(
            self._label, direction, kind, method, params=params or {}, settled=True, **facts
        )
        chain = self._interceptors[:: 1 if direction == "outgoing" else -1]
        size = size_of(params or {}, method, facts.get("id"))
        self._settled.push(_show_settled, chain, message, self._services, size=size)


class InterceptedRequest:
    """Runs the interceptors of one of our requests.

    If no thread waits for its outcome, the `ended` hooks run on `workers`.
    """

    def __init__(
        self,
        call: PendingRequest,
        interceptors: Sequence[Interceptor],
        label: str,
        workers: DaemonPool,
    ) -> None:
        self._call = call
        self._interceptors = interceptors
        self._label = label
        self._workers = workers
        # A copy: callbacks of the call may be running in the original.
        self._context = call.options.context.copy()
        self._params: dict[str, Any] = {}
        self._sent_at = monotonic()
        self._elapsed: float | None = None
        # How many interceptors have seen the request.
        self._shown_to = 0

    def before_send(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """Run hooks on the request, on the thread that sends it; return its parameters.

        An `McpError` means that the request must not be sent, or has ended.
        """
        call = self._call
        self._params = params or {}
        message = self._message("outgoing", "request", _wait=self._wait_before_send)
        try:
            for interceptor in self._interceptors:
                if call.released:
                    break
                self._shown_to += 1
                message = self._context.run(_run_hook, interceptor, "outgoing", message)
        except Exception:
            if call.released and isinstance(call.outcome, McpError):
                raise call.outcome from None
            raise
        if message.params is not self._params:
            call.altered = True
        self._params = message.params
        self._sent_at = monotonic()
        return message.params or None

    def run(self, exchange: Callable[[], Any]) -> Any:
        """Run the exchange of the request, then hooks on its outcome."""
        try:
            result = self._incoming(exchange)
        except BaseException as error:
            self._show_end(error=error)
            raise
        self._show_end(result=result)
        return result

    def send_failed(self, error: BaseException) -> None:
        """Show the end of a request that could not be sent."""
        call = self._call
        if call.unsubscribe is not None:
            call.unsubscribe()
        if call.waiter is None and not call.released:  # otherwise `run` or `settled` does it
            self._show_end(error=error)

    def settled(self) -> None:
        """Run the `ended` hooks of a settled future on a pool thread. Never blocks."""
        call = self._call
        outcome = call.outcome
        if call.waiter is None:
            what = "error" if isinstance(outcome, BaseException) else "result"
            self._elapsed = monotonic() - self._sent_at
            self._workers.run(partial(self._show_end, **{what: outcome}))

    def _incoming(self, exchange: Callable[[], Any]) -> Any:
        call = self._call
        result, error = None, None
        try:
            result = exchange()
        except ServerError as refusal:
            if not call.released:
                raise  # raised by an interceptor
            error = refusal
        finally:
            self._elapsed = monotonic() - self._sent_at
        wait = partial(_wait, call.deadline, call.options.cancel, call.method, "unknown")
        message = self._message("incoming", "response", result=result, error=error, _wait=wait)
        seen = self._interceptors[: self._shown_to]
        message = self._context.run(_run_hooks, seen[::-1], "incoming", message)
        if message.error is not None:
            try:
                raise message.error
            finally:
                del error, message  # see `PendingRequest.take_result`
        if message.result is not result:
            call.altered = True
        return message.result

    def _show_end(self, **outcome: Any) -> None:
        answer = self._message("incoming", "response", settled=True, **outcome)
        for interceptor in self._interceptors[: self._shown_to][::-1]:
            try:
                self._context.run(_run_ended, interceptor, answer)
            except Exception:
                _log.exception("[%s] %s.ended failed", self._label, type(interceptor).__name__)
        # Breaks the reference cycle, so that settled calls are freed at once.
        self._call.interception = None

    def _message(
        self,
        direction: Literal["outgoing", "incoming"],
        kind: Literal["request", "response"],
        **facts: Any,
    ) -> Message:
        call = self._call
        return Message(
            self._label,
            direction,
            kind,
            call.method,
            call.id,
            self._params,
            elapsed=self._elapsed,
            **facts,
        )

    def _wait_before_send(self, seconds: float) -> None:
        """Wait before the request is sent; if the call ends first, raise its error."""
        call, waiter = self._call, self._call.waiter
        if waiter is None:
            _wait(call.deadline, call.options.cancel, call.method, "not_sent", seconds)
        elif acquire(waiter, checked_seconds(seconds, "seconds")):
            waiter.release()  # for `send_and_wait`, if the hook catches this error
            raise call.outcome


def _not_running(
    interceptors: Sequence[Interceptor], running: Sequence[Interceptor]
) -> Sequence[Interceptor]:
    """Leave out interceptors whose hook sent the message: they must not see their own messages."""
    if not running:
        return interceptors
    return [each for each in interceptors if not any(each is other for other in running)]


def _run_hooks(
    interceptors: Sequence[Interceptor], hook: Literal["outgoing", "incoming"], message: Message
) -> Message:
    for interceptor in interceptors:
        message = _run_hook(interceptor, hook, message)
    return message


def _run_hook(
    interceptor: Interceptor, hook: Literal["outgoing", "incoming"], message: Message
) -> Message:
    """Run one hook; raise only `McpError`.

    That is `InterceptorFailed` if the hook raises another exception or returns an invalid message.
    """
    mark = within.set((*within.get(), interceptor))
    try:
        changed = getattr(interceptor, hook)(message)
    except McpError as error:
        if error.server is None:
            error.server = message.server
        if error.method is None:
            error.method = message.method
        raise
    except Exception as error:
        raise _failed(interceptor, hook, message, f"raised {type(error).__name__}") from error
    finally:
        within.reset(mark)
    if changed is None or changed is message:
        return message
    wrong = _wrong(message, changed)
    if wrong:
        raise _failed(interceptor, hook, message, wrong)
    if message.kind == "response":
        return replace(message, result=changed.result, error=changed.error)
    return replace(message, params=changed.params)


def _wrong(message: Message, changed: object) -> str:
    """Describe the forbidden change that a hook made; empty if it made no such change."""
    if not isinstance(changed, Message):
        return f"returned {type(changed).__name__}, not a Message or None"
    for name in _FIXED:
        if getattr(changed, name) != getattr(message, name):
            return f"changed the {name} of a message"
    if message.kind != "response":
        if type(changed.params) is not dict:
            return f"replaced the params with a {type(changed.params).__name__}"
    elif changed.error is not None and changed.error is not message.error:
        return "replaced the error of a message: raise it instead"
    elif changed.error is None and type(changed.result) is not dict:
        return f"replaced the result with a {type(changed.result).__name__}"
    return ""


def _failed(interceptor: Interceptor, hook: str, message: Message, what: str) -> InterceptorFailed:
    name = type(interceptor).__name__
    return InterceptorFailed(
        f"{name}.{hook} {what}",
        interceptor=name,
        hook=hook,
        delivery="not_sent" if message.direction == "outgoing" else "unknown",
        server=message.server,
        method=message.method,
    )


def _run_ended(interceptor: Interceptor, answer: Message) -> None:
    mark = within.set((*within.get(), interceptor))
    try:
        interceptor.ended(answer)
    finally:
        within.reset(mark)


def _show_settled(
    interceptors: Sequence[Interceptor], message: Message, services: ClientServices
) -> None:
    """Run hooks whose result is ignored."""
    for interceptor in interceptors:
        try:
            _run_hook(interceptor, message.direction, message)
        except McpError:
            text = "[%s] an interceptor refused %s too late"
            services.note(_log, logging.ERROR, text, message.method, exc_info=True)


def _wait(
    deadline: Deadline,
    cancel: CancelToken | None,
    method: str,
    delivery: Literal["not_sent", "unknown"],
    seconds: float,
) -> None:
    """Wait `seconds`; if the call of the message ends first, raise the error of `check_wanted`."""
    woken = Latch()
    forget = None if cancel is None else call_when_cancelled(cancel, woken.set)
    try:
        woken.wait(deadline.sooner(checked_seconds(seconds, "seconds")).remaining())
    finally:
        if forget is not None:
            forget()
    check_wanted(cancel, deadline, method, delivery)
