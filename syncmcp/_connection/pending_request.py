"""Our requests while they are open: their state, their deadlines, the errors they end with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from syncmcp._concurrency.timing import Alarm, Deadline, Latch, monotonic
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.capabilities import server_error
from syncmcp._protocol.revisions import IDEMPOTENT_REQUESTS
from syncmcp._protocol.subscription import LISTEN, ChangeFilter
from syncmcp._protocol.tasks import RESULT
from syncmcp.errors import (
    ConnectionLost,
    LimitExceeded,
    McpError,
    OutcomeUnknown,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._base.secrets import Secrets
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.pool import CallbackQueue, DaemonPool
    from syncmcp._connection.questions import InboundRequest
    from syncmcp.errors import Delivery
    from syncmcp.transports.base import Outgoing


GivenUp: TypeAlias = RequestTimeout | RequestCancelled | LimitExceeded
"""The errors of requests that the client ends before the server has answered."""


class _RequestInterception(Protocol):
    """The interface of an `InterceptedRequest`, whose module this one must not import."""

    def run(self, exchange: Callable[[], Any]) -> Any: ...

    def before_send(self, params: dict[str, Any] | None) -> dict[str, Any] | None: ...

    def send_failed(self, error: BaseException) -> None: ...

    def settled(self) -> None: ...


class PendingRequest:
    """One of our requests, from its registration until it is settled."""

    def __init__(
        self,
        method: str,
        options: ResolvedOptions,
        deadline: Deadline,
        on_done: Callable[[PendingRequest], object] | None = None,
    ) -> None:
        self.id = -1
        self.method = method
        # The open questions that it caused, which end with it. The values: whether that is certain.
        self.questions: dict[InboundRequest, bool] = {}
        self.params: dict[str, Any] | None = None
        # Its interceptors, if there are any, and whether they changed the request or its result.
        self.interception: _RequestInterception | None = None
        self.altered = False
        self.options = options
        # A server sends nothing while `tasks/result` waits for its task.
        self.idle_timeout = None if method == RESULT else options.idle_timeout
        self.deadline = deadline
        self.out: Outgoing | None = None
        # False while it is queued behind `max_in_flight` others.
        self.may_send = False
        # Set, under the connection's lock, by the thread that took the call out of the table.
        self.taken = False
        self.outcome: Any = None
        # Whether its thread was woken, and `on_done` was called.
        self.released = False
        # When the server last sent something for this call.
        self.last_activity: float | None = None
        self.unsubscribe: Callable[[], None] | None = None
        self.callback_queue: CallbackQueue | None = None
        self.on_done = on_done
        # The pool to send it on, if sending blocks and no thread waits for the outcome.
        self.pool: DaemonPool | None = None
        self.waiter: threading.Lock | None = None
        if on_done is None:
            # A lock that is released once is the cheapest way to block a thread.
            self.waiter = threading.Lock()
            self.waiter.acquire()

    def delegate_send(self, send: Callable[[Outgoing], object]) -> bool:
        """Run `send`, which may block, on the waiting thread or the pool; `False` without both."""
        if self.waiter is not None:
            self.waiter.release()
        elif self.pool is not None and self.out is not None:
            self.pool.run(partial(send, self.out))
        else:
            return False
        return True

    def add_question(self, question: InboundRequest, *, certain: bool) -> None:
        """Add a question, which holds this deadline, until `resume`; called with the lock held.

        `certain` says whether the request certainly caused it.
        """
        if self.released:
            question.hold.end()
        else:
            self.questions[question] = certain

    def resume(self, question: InboundRequest) -> bool:
        """Remove a question, unless it was removed before; called with the lock held."""
        if self.questions.pop(question, None) is None:
            return False
        self.last_activity = monotonic()
        question.hold.end()
        return True

    def disown(self, error: McpError) -> None:
        """In a forked child: end a call of the parent, where it continues. No callback runs."""
        self.taken = self.released = True
        self.outcome = fresh(error, method=self.method, delivery="unknown")
        if self.waiter is not None and self.waiter.locked():
            self.waiter.release()

    def take_result(self) -> Any:
        """Return the result and drop it: a call that became a task is stored for long.

        An error is dropped, too: it and the caller's frames in its traceback would form a cycle.

        Raises:
            McpError: The error that the request ended with.
        """
        outcome, self.outcome = self.outcome, None
        if isinstance(outcome, BaseException):
            try:
                raise outcome
            finally:
                del outcome
        return outcome

    def _silent_since(self) -> float | None:
        """Return the time from which the idle timeout counts; `None` while it does not count.

        It counts from the last message, if there was one. While the server waits for an answer of
        the client, it counts from the end of the longest hold of the deadline.
        """
        if self.questions or self.deadline.held:
            return self.deadline.resumes_at
        return self.last_activity

    def next_check(self) -> float | None:
        """When to check next whether the call has expired; `None` if it has no limit."""
        when = self.deadline.at
        idle = self.idle_timeout
        if idle is not None:
            quiet = self.last_activity is None and not self.questions  # the usual case
            since = None if quiet else self._silent_since()
            silent = (monotonic() if since is None else since) + idle
            when = silent if when is None else min(when, silent)
        return when

    def overdue(self) -> RequestTimeout | None:
        """The error of an expired call; `None` if it has not expired."""
        if self.deadline.expired:
            seconds = self.deadline.seconds or 0.0
            return RequestTimeout(f"no response within {seconds:g} s", seconds=seconds)
        idle, since = self.idle_timeout, self._silent_since()
        if idle is not None and since is not None and monotonic() >= since + idle:
            return RequestTimeout(f"no message for {idle:g} s", kind="idle", seconds=idle)
        return None

    def facts(self, now: float) -> dict[str, Any]:
        """The state of the call as plain values; see `Dump`."""
        out, seen, left = self.out, self.last_activity, self.deadline.remaining()
        name = (self.params or {}).get("name")
        # Of a batch, only the common frame is marked.
        sent = out is not None and (out.batch or out).submitted
        return {
            "id": self.id,
            "method": self.method,
            "name": name if isinstance(name, str) else None,
            "age": None if out is None else round(now - out.created_at, 3),
            "state": "sent" if sent else "queued",
            "silent": None if seen is None else round(now - seen, 3),
            "left": None if left is None else round(left, 3),
            "clock": "paused" if self.deadline.held else "running",
            "cancelled": self.options.cancel is not None and self.options.cancel.cancelled,
        }


def error_of_response(
    message: jsonrpc.Error,
    request: PendingRequest | None,
    out: Outgoing | None,
    server: str,
    secrets: Secrets,
) -> ServerError:
    """Return the error of a response to `request`, which came on the HTTP stream of `out`."""
    text, code = secrets.quote(message.message), message.code
    error: ServerError
    if request is not None and (request.method, code) == ("resources/read", jsonrpc.INVALID_PARAMS):
        # Since 2026-07-28 a missing resource has this code.
        error = ResourceNotFound(text, code=code, data=message.data, server=server)
    else:
        error = server_error(code, text, message.data, server=server)
    if out is not None:
        error.status = out.status
    return error


def check_wanted(
    cancel: CancelToken | None,
    deadline: Deadline,
    method: str,
    delivery: Delivery,
    server: str | None = None,
) -> None:
    """Raise `RequestCancelled` or `RequestTimeout` if a call was cancelled or has expired."""
    facts: dict[str, Any] = {"method": method, "delivery": delivery, "server": server}
    if cancel is not None and cancel.cancelled:
        raise RequestCancelled("cancelled", reason=cancel.reason, **facts)
    if deadline.expired:
        raise RequestTimeout("no time is left", seconds=deadline.seconds, **facts)


def close_error_for(error: McpError, method: str, delivery: Delivery) -> McpError:
    """A copy, for one call, of the error that ended the connection or the session.

    `OutcomeUnknown` if the server may have run a request that is not idempotent.
    """
    error = fresh(error, method=method, delivery=delivery)
    lost = isinstance(error, ConnectionLost) and delivery == "unknown"
    if not lost or method in IDEMPOTENT_REQUESTS:
        return error
    unknown = OutcomeUnknown(*error.args, **error.__dict__)
    unknown.__cause__ = error.__cause__
    return unknown


class PendingListen(PendingRequest):
    """``subscriptions/listen`` (2026-07-28): a request that is open while its subscription lasts.

    Until then the server sends notifications of changes, tagged with the id of the request. For
    each, `on_notification` is called on the thread that reads.

    Attributes:
        granted: The changes that the server has accepted; `None` until then.
        answered: Set once the server has accepted the subscription, or the request has ended.
    """

    def __init__(
        self,
        on_notification: Callable[[PendingListen, str, dict[str, Any]], object],
        on_done: Callable[[PendingRequest], object],
    ) -> None:
        super().__init__(LISTEN, ResolvedOptions(None, None), Deadline(None), on_done)
        self.on_notification = on_notification
        self.granted: ChangeFilter | None = None
        self.answered = Latch()


class TimeoutWatcher:
    """Expires the calls of one connection, with one timer entry for all of them.

    Args:
        open_calls: Returns the calls without a response; called with the lock held.
        expire: Ends an open call; it must not block.
        release: Ends the wait for an answered call whose callbacks are still running.

    Attributes:
        finishing_calls: The answered calls for `release`; guarded by the lock of the connection.
    """

    def __init__(
        self,
        lock: threading.RLock,
        open_calls: Callable[[], list[PendingRequest]],
        expire: Callable[[PendingRequest, RequestTimeout], object],
        release: Callable[[PendingRequest], object],
    ) -> None:
        self._lock = lock
        self._open_calls = open_calls
        self._expire = expire
        self._release = release
        self.finishing_calls: set[PendingRequest] = set()
        self._stopped = False
        self._alarm = Alarm(lock, self._check)

    def watch(self, call: PendingRequest) -> None:
        """Expire an open call in time; call this again when its deadlines have changed."""
        when = call.next_check()
        if when is not None:
            with self._lock:
                if when < self._alarm.at and (not self._stopped or self.finishing_calls):
                    self._alarm.set(when)

    def finishing(self, call: PendingRequest) -> None:
        """Watch an answered call, too, until it is released."""
        with self._lock:
            self.finishing_calls.add(call)
        self.watch(call)

    def stop(self) -> None:
        """Stop watching for open calls: there will be no more. Called with the lock held."""
        self._stopped = True
        if not self.finishing_calls:
            self._alarm.cancel()

    def _check(self) -> None:
        """On the timer thread: expire calls whose time is up."""
        with self._lock:
            finishing = set(self.finishing_calls)
            calls = [*self._open_calls(), *finishing]
        for call in calls:
            if (error := call.overdue()) is None:
                self.watch(call)
            elif call in finishing:
                # Its callbacks take too long: the call returns without waiting for them.
                self._release(call)
            else:
                self._expire(call, error)
