"""Messages on their way through a program's interceptors; which thread runs what, and until when.

A connection without interceptors has none of this.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from syncmcp._base.checks import seconds as checked_seconds
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.pool import CallbackQueue
from syncmcp._concurrency.timing import Deadline, acquire, monotonic, timer
from syncmcp.errors import (
    InterceptorFailed,
    McpError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
)
from syncmcp.interceptors import Interceptor, Message, within

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.pool import DaemonPool
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import AnswerFunction, Outcome
    from syncmcp._protocol.jsonrpc import Request
    from syncmcp.handlers import HandlerContext

_log = logging.getLogger("syncmcp.interceptors")

_FIXED = ("server", "direction", "kind", "method", "id", "elapsed", "settled")


class InterceptorChain:
    """The interceptors of one connection.

    Args:
        interceptors: In the order in which they see what goes out.
        label: What messages call the server.
        workers: Where hooks run that no thread waits for.
    """

    def __init__(
        self, interceptors: Sequence[Interceptor], label: str, workers: DaemonPool
    ) -> None:
        self._interceptors = interceptors
        self._label = label
        self._workers = workers
        # What the library has acted on already; when hooks are too slow, some of it is dropped.
        self._settled = CallbackQueue(workers, copy_context())

    def passage(self, call: PendingRequest) -> InterceptedRequest:
        """The way of a request and of its answer."""
        busy = call.options.context.get(within, ())
        return InterceptedRequest(
            call, _others(self._interceptors, busy), self._label, self._workers
        )

    def notifying(
        self, method: str, params: dict[str, Any] | None, deadline: Deadline
    ) -> dict[str, Any] | None:
        """Show a notification of the program's, on its thread; return its parameters.

        Raises:
            McpError: It is not to be sent.
        """
        wait = partial(_sit_out, deadline, None, method, "not_sent")
        message = Message(
            self._label, "outgoing", "notification", method, params=params or {}, _wait=wait
        )
        others = _others(self._interceptors, within.get())
        return copy_context().run(_show, others, "outgoing", message).params or None

    def notified(
        self, method: str, params: dict[str, Any], call: PendingRequest | None
    ) -> dict[str, Any] | None:
        """Show a notification of the server's, on a pool thread; `None` if it is dropped."""
        deadline = Deadline(None) if call is None else call.deadline
        cancel = None if call is None else call.options.cancel
        wait = partial(_sit_out, deadline, cancel, method, "unknown")
        message = Message(
            self._label, "incoming", "notification", method, params=params, _wait=wait
        )
        busy = () if call is None else call.options.context.get(within, ())
        others = _others(self._interceptors, busy)
        try:
            shown = _show(others[::-1], "incoming", message)
        except McpError as error:
            _log.warning("[%s] %s was dropped: %s", self._label, method, error)
            return None
        return shown.params

    def answering(
        self, request: Request, make: Callable[[dict[str, Any]], AnswerFunction]
    ) -> InterceptedHandler:
        """What answers a question, with interceptors before and after it."""
        return InterceptedHandler(request, make, self._interceptors, self._label)

    def settled(
        self,
        direction: Literal["outgoing", "incoming"],
        kind: Literal["request", "notification", "response"],
        method: str,
        params: dict[str, Any] | None = None,
        **facts: Any,
    ) -> None:
        """Show what the library has acted on already, on a pool thread. Never blocks."""
        message = Message(
            self._label, direction, kind, method, params=params or {}, settled=True, **facts
        )
        others = self._interceptors[:: 1 if direction == "outgoing" else -1]
        self._settled.push(_show_settled, others, message)


class InterceptedRequest:
    """One request of ours on its way out, and what it came to on its way back.

    Args:
        call: The request.
        interceptors: Who sees it.
        label: What messages call the server.
        workers: Where the end is told of, if no thread waits for it.
    """

    __slots__ = (
        "_call",
        "_context",
        "_elapsed",
        "_hooking",
        "_interceptors",
        "_label",
        "_left",
        "_params",
        "_shown",
        "_workers",
    )

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
        # A copy: callbacks of the same call may be running in the original at this moment.
        self._context = call.options.context.copy()
        self._params: dict[str, Any] = {}
        self._left = monotonic()
        self._elapsed: float | None = None
        # How many of the interceptors have seen the request, and whether one is seeing it now.
        self._shown = 0
        self._hooking = False

    def outgoing(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """Show the request, on the thread that sends it; return its parameters.

        Raises:
            McpError: It is not to be sent, or somebody ended it meanwhile.
        """
        call = self._call
        self._params = params or {}
        message = self._message("outgoing", "request", _wait=self._hold_up)
        self._hooking = True
        try:
            for interceptor in self._interceptors:
                if call.released:
                    break
                self._shown += 1
                message = self._context.run(_hook, interceptor, "outgoing", message)
        except Exception:
            if call.released and isinstance(call.outcome, McpError):
                raise call.outcome from None
            raise
        finally:
            self._hooking = False
        if message.params is not self._params:
            call.options.altered = True
        self._params = message.params
        self._left = monotonic()
        return message.params or None

    def conduct(self, exchange: Callable[[], Any]) -> Any:
        """Run the exchange of the request, and show what came of it.

        Raises:
            McpError: Whatever came of it instead.
        """
        try:
            result = self._incoming(exchange)
        except BaseException as error:
            self._ended(error=error)
            raise
        self._ended(result=result)
        return result

    def failed(self, error: BaseException) -> None:
        """It was not sent."""
        call = self._call
        if call.unsubscribe is not None:
            call.unsubscribe()
        if call.slot is None and not call.released:  # otherwise `conduct` or `over` tell of it
            self._ended(error=error)

    def over(self) -> None:
        """The call is settled. Never blocks."""
        call = self._call
        abandon, outcome = call.options.abandon, call.outcome
        if call.slot is None:
            what = "error" if isinstance(outcome, BaseException) else "result"
            self._elapsed = monotonic() - self._left
            self._workers.run(partial(self._ended, **{what: outcome}))
        # If a hook has its thread, that is not where its end is heard of.
        elif self._hooking and abandon is not None and isinstance(outcome, BaseException):
            abandon(outcome)

    def _incoming(self, exchange: Callable[[], Any]) -> Any:
        call = self._call
        result, error = None, None
        try:
            result = exchange()
        except ServerError as refusal:
            if call.outcome is not refusal:
                raise  # an interceptor did
            error = refusal
        finally:
            self._elapsed = monotonic() - self._left
        wait = partial(_sit_out, call.deadline, call.options.cancel, call.method, "unknown")
        message = self._message("incoming", "response", result=result, error=error, _wait=wait)
        with self._bounded():
            seen = self._interceptors[: self._shown]
            message = self._context.run(_show, seen[::-1], "incoming", message)
        if message.error is not None:
            raise message.error
        if message.result is not result:
            call.options.altered = True
        return message.result

    def _ended(self, **outcome: Any) -> None:
        answer = self._message("incoming", "response", settled=True, **outcome)
        for interceptor in self._interceptors[: self._shown][::-1]:
            try:
                self._context.run(_tell, interceptor, answer)
            except Exception:
                _log.exception("[%s] %s.ended failed", self._label, type(interceptor).__name__)
        # It refers to us: what is over must not wait for the garbage collector.
        self._call.passage = None

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

    def _hold_up(self, seconds: float) -> None:
        """Wait before the request is sent; whoever ends the call meanwhile releases its slot."""
        call, slot = self._call, self._call.slot
        if slot is None:
            _sit_out(call.deadline, call.options.cancel, call.method, "not_sent", seconds)
        elif acquire(slot, checked_seconds(seconds, "seconds")):
            slot.release()  # for the one who waits for the answer
            raise call.outcome

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """While a hook has the answer, no clock ends the call; its future ends all the same."""
        options, deadline = self._call.options, self._call.deadline
        abandon, cancel = options.abandon, options.cancel
        if abandon is None:
            yield
            return
        facts = {"server": self._label, "method": self._call.method, "delivery": "unknown"}
        entry = None
        if deadline.at is not None:
            late = RequestTimeout(
                f"an interceptor had the answer for more than {deadline.seconds:g} s",
                seconds=deadline.seconds,
                **facts,
            )
            entry = timer.at(deadline.at, partial(abandon, late))
        forget = None
        if cancel is not None:
            forget = call_when_cancelled(cancel, partial(_abandon, abandon, cancel, facts))
        try:
            yield
        finally:
            if entry is not None:
                entry.cancel()
            if forget is not None:
                forget()


def _abandon(
    abandon: Callable[[BaseException], object], cancel: CancelToken, facts: dict[str, Any]
) -> None:
    abandon(RequestCancelled("cancelled", reason=cancel.reason, **facts))


class InterceptedHandler:
    """What answers one question of the server's: interceptors, a handler, interceptors."""

    def __init__(
        self,
        request: Request,
        make: Callable[[dict[str, Any]], AnswerFunction],
        interceptors: Sequence[Interceptor],
        label: str,
    ) -> None:
        self._request = request
        self._make = make
        self._interceptors = interceptors
        self._label = label
        self._outcome: Outcome = None

    def __call__(self, context: HandlerContext) -> dict[str, Any]:
        """On the thread of the handler.

        Raises:
            Exception: What the handler or an interceptor raised instead of an answer.
        """
        id, method, params = self._request
        others = _others(self._interceptors, within.get())

        def wait(seconds: float) -> None:
            _sit_out(context._deadline, context.cancel, method, "unknown", seconds)

        since = monotonic()
        answer = Message(self._label, "outgoing", "response", method, id, params, _wait=wait)
        try:
            question = replace(answer, direction="incoming", kind="request")
            question = _show(others[::-1], "incoming", question)
            given = self._make(question.params)(context)
            answer = replace(answer, result=given, elapsed=monotonic() - since)
        except Exception as error:
            answer = replace(answer, error=error, elapsed=monotonic() - since)
        try:
            answer = _show(others, "outgoing", answer)
            if answer.error is not None:
                raise answer.error
        except Exception as error:
            self._outcome = error
            raise
        result: dict[str, Any] = answer.result
        self._outcome = result
        return result

    def gave(self, outcome: Outcome) -> bool:
        """Whether this is its answer, and not what the library says in its place."""
        return self._outcome is outcome


def _others(
    interceptors: Sequence[Interceptor], busy: Sequence[Interceptor]
) -> Sequence[Interceptor]:
    """Those that are not in the middle of a hook: nobody sees what he does himself."""
    if not busy:
        return interceptors
    return [each for each in interceptors if not any(each is other for other in busy)]


def _show(
    interceptors: Sequence[Interceptor], hook: Literal["outgoing", "incoming"], message: Message
) -> Message:
    for interceptor in interceptors:
        message = _hook(interceptor, hook, message)
    return message


def _hook(
    interceptor: Interceptor, hook: Literal["outgoing", "incoming"], message: Message
) -> Message:
    """Run one hook.

    Raises:
        McpError: What it raised.
        InterceptorFailed: It raised something else, or did what it must not.
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
    """What a hook must not have done, if it has."""
    if not isinstance(changed, Message):
        return f"returned {type(changed).__name__}, and not a Message or None"
    for name in _FIXED:
        if getattr(changed, name) != getattr(message, name):
            return f"changed the {name} of a message"
    if message.kind != "response":
        if type(changed.params) is not dict:
            return f"made the params a {type(changed.params).__name__}"
    elif changed.error is not None and changed.error is not message.error:
        return "gave a message another error, which it should raise"
    elif changed.error is None and type(changed.result) is not dict:
        return f"made the result a {type(changed.result).__name__}"
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


def _tell(interceptor: Interceptor, answer: Message) -> None:
    mark = within.set((*within.get(), interceptor))
    try:
        interceptor.ended(answer)
    finally:
        within.reset(mark)


def _show_settled(interceptors: Sequence[Interceptor], message: Message) -> None:
    """Whatever hooks make of it is of no consequence."""
    for interceptor in interceptors:
        try:
            _hook(interceptor, message.direction, message)
        except McpError:
            _log.exception("[%s] cannot be refused any more: %s", message.server, message.method)


def _sit_out(
    deadline: Deadline,
    cancel: CancelToken | None,
    method: str,
    delivery: Literal["not_sent", "unknown"],
    seconds: float,
) -> None:
    """Wait, but no longer than somebody waits for the message.

    Raises:
        RequestCancelled: `cancel` was cancelled.
        RequestTimeout: `deadline` passed.
    """
    # A lock that is released once is the cheapest thing a thread can wait for.
    woken = threading.Lock()
    woken.acquire()
    forget = None if cancel is None else call_when_cancelled(cancel, woken.release)
    try:
        acquire(woken, deadline.sooner(checked_seconds(seconds, "seconds")).remaining())
    finally:
        if forget is not None:
            forget()
    if cancel is not None and cancel.cancelled:
        raise RequestCancelled("cancelled", reason=cancel.reason, method=method, delivery=delivery)
    if deadline.expired:
        raise RequestTimeout(
            "no time was left", seconds=deadline.seconds, method=method, delivery=delivery
        )
