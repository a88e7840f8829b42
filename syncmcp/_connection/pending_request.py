"""Our requests while they are open: their state, their deadlines, the errors they end with."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Alarm, Deadline, Latch, monotonic
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.capabilities import IDEMPOTENT_REQUESTS
from syncmcp._protocol.subscription import LISTEN
from syncmcp._protocol.tasks import RESULT
from syncmcp.errors import (
    ConnectionLost,
    McpError,
    OutcomeUnknown,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import CallbackQueue, DaemonPool
    from syncmcp._connection.questions import InboundRequest
    from syncmcp.errors import Delivery
    from syncmcp.transports.base import Outgoing


class RequestInterception(Protocol):
    """The interceptors of one request, as its connection sees them."""

    def run(self, exchange: Callable[[], Any]) -> Any:
        """Run the exchange of the request, and show its outcome to the interceptors.

        Raises:
            McpError: The request failed, or an interceptor did.
        """
        ...

    def before_send(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """Show the request to the interceptors; return the parameters to send.

        Raises:
            McpError: The request must not be sent, or has ended meanwhile.
        """
        ...

    def send_failed(self, error: BaseException) -> None:
        """The request could not be sent."""
        ...

    def settled(self) -> None:
        """The request is settled. Never blocks."""
        ...


class PendingRequest:
    """One of our requests, from its registration until it is settled."""

    __slots__ = (
        "altered",
        "callback_queue",
        "deadline",
        "id",
        "idle_timeout",
        "interception",
        "last_activity",
        "may_send",
        "method",
        "on_done",
        "options",
        "out",
        "outcome",
        "params",
        "pool",
        "questions",
        "released",
        "taken",
        "unsubscribe",
        "waiter",
    )

    def __init__(
        self,
        method: str,
        options: ResolvedOptions,
        deadline: Deadline,
        on_done: Callable[[PendingRequest], object] | None = None,
    ) -> None:
        self.id = -1
        self.method = method
        # The open questions that hold its deadlines, and whether it certainly caused each of them.
        # They end with it.
        self.questions: dict[InboundRequest, bool] = {}
        self.params: dict[str, Any] | None = None
        # Its interceptors, if there are any, and whether they changed the request or its result.
        self.interception: RequestInterception | None = None
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
        # Whether its thread was woken, or `on_done` was called.
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
        """Have `send`, which may block, run by the waiting thread or on the call's pool.

        Returns `False` if the call has neither.
        """
        if self.waiter is not None:
            self.waiter.release()
        elif self.pool is not None and self.out is not None:
            self.pool.run(partial(send, self.out))
        else:
            return False
        return True

    def hold(self, question: InboundRequest, patience: float | None, *, certain: bool) -> None:
        """Stop the deadlines until `resume`; called with the connection's lock held.

        Args:
            question: The open question that the request caused.
            patience: How long, in seconds, they are held at most, for all questions of the request.
            certain: Whether the question certainly belongs to the request.
        """
        if not self.released:
            self.deadline.hold(patience)
            self.questions[question] = certain

    def resume(self, question: InboundRequest) -> bool:
        """End one `hold`, if it was not ended before; called with the connection's lock held."""
        if self.questions.pop(question, None) is None:
            return False
        self.last_activity = monotonic()
        self.deadline.release()
        return True

    def next_check(self) -> float | None:
        """When to check next whether the call has expired; `None` if it has no limit."""
        when = self.deadline.at
        idle = self.idle_timeout
        if idle is not None and not self.deadline.held:
            # The idle timeout counts from the first message for this call: check again later.
            silent = (self.last_activity if self.last_activity is not None else monotonic()) + idle
            when = silent if when is None else min(when, silent)
        return when

    def overdue(self) -> RequestTimeout | None:
        """The error of an expired call; `None` if it has not expired."""
        if self.deadline.expired:
            seconds = self.deadline.seconds or 0.0
            return RequestTimeout(f"no answer within {seconds:g} s", seconds=seconds)
        if self.deadline.held:  # the server waits for our answer to a question
            return None
        idle = self.idle_timeout
        if (
            idle is not None
            and self.last_activity is not None
            and monotonic() >= self.last_activity + idle
        ):
            return RequestTimeout(f"no message for {idle:g} s", kind="idle", seconds=idle)
        return None

    def check_sendable(self, server: str) -> None:
        """Check, before the request is sent, that it is neither cancelled nor expired.

        Raises:
            RequestCancelled: Its token is cancelled.
            RequestTimeout: Its deadline has passed.
        """
        cancel = self.options.cancel
        if cancel is not None and cancel.cancelled:
            raise RequestCancelled(
                "cancelled",
                reason=cancel.reason,
                server=server,
                method=self.method,
                delivery="not_sent",
            )
        if self.deadline.expired:
            raise RequestTimeout(
                "no time is left to send it",
                seconds=self.deadline.seconds,
                server=server,
                method=self.method,
                delivery="not_sent",
            )

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


def error_of_response(message: jsonrpc.Error, out: Outgoing | None, server: str) -> ServerError:
    """The error in a response; `out` is the request whose HTTP stream it came on."""
    error = ServerError.from_wire(
        message.code, redact(message.message), message.data, server=server
    )
    if out is not None:
        error.status = out.status
    return error


def close_error_for(error: McpError, method: str, delivery: Delivery) -> McpError:
    """A copy, for one call, of the error that ended the connection."""
    if isinstance(error, ConnectionLost):
        return connection_lost_for(error, method, delivery)
    return fresh(error, method=method, delivery=delivery)


def connection_lost_for(error: ConnectionLost, method: str, delivery: Delivery) -> ConnectionLost:
    """A copy, for one call, of the loss of a connection or session.

    `OutcomeUnknown` if the server may have run a request that is not idempotent.
    """
    error = fresh(error, method=method, delivery=delivery)
    if delivery == "unknown" and method not in IDEMPOTENT_REQUESTS:
        unknown = OutcomeUnknown(*error.args, **error.__dict__)
        unknown.__cause__ = error.__cause__
        return unknown
    return error


class PendingListen(PendingRequest):
    """``subscriptions/listen`` (2026-07-28): a request that is open while its subscription lasts.

    Until then the server sends notifications of changes, tagged with the id of the request.

    Args:
        on_notification: Called with the request, the method and the parameters of each
            notification, on the thread that reads.
        on_done: Called when the request has ended, as for every call.

    Attributes:
        acknowledged: Whether the server has accepted the subscription.
        answered: Set once the server has accepted the subscription, or the request has ended.
    """

    __slots__ = ("acknowledged", "answered", "on_notification")

    def __init__(
        self,
        on_notification: Callable[[PendingListen, str, dict[str, Any]], object],
        on_done: Callable[[PendingRequest], object],
    ) -> None:
        super().__init__(LISTEN, ResolvedOptions(None, None), Deadline(None), on_done)
        self.on_notification = on_notification
        self.acknowledged = False
        self.answered = Latch()


class TimeoutWatcher:
    """Expires the calls of one connection, with one timer entry for all of them.

    Args:
        lock: The connection's.
        open_calls: Returns the calls without a response; called with the lock held.
        expire: Ends an open call; it must not block.
        release: Ends the wait for an answered call whose callbacks are still running.

    Attributes:
        finishing_calls: Calls that have a response, but whose callbacks are still running; guarded
            by the lock.
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
        """Expire an open call in time; to be called again when its deadlines have changed."""
        when = call.next_check()
        if when is not None:
            with self._lock:
                if when < self._alarm.at:
                    self._schedule(when)

    def finishing(self, call: PendingRequest) -> None:
        """Watch an answered call, too, until it is released."""
        with self._lock:
            self.finishing_calls.add(call)
            if (when := call.next_check()) is not None:
                self._schedule(when)

    def stop(self) -> None:
        """There will be no more open calls; called with the lock held."""
        self._stopped = True
        if not self.finishing_calls:
            self._alarm.cancel()

    def _schedule(self, when: float) -> None:
        """Check at `when` at the latest; called with the lock held."""
        if not self._stopped or self.finishing_calls:
            self._alarm.set(when)

    def _check(self) -> None:
        """On the timer thread: expire calls whose time is up."""
        with self._lock:
            open_calls = self._open_calls()
            finishing = list(self.finishing_calls)
        for call in open_calls:
            error = call.overdue()
            if error is not None:
                self._expire(call, error)
        for call in finishing:
            if call.overdue() is not None:
                # Its callbacks take too long: the call returns without waiting for them.
                self._release(call)
        checks = [when for call in (*open_calls, *finishing) if (when := call.next_check())]
        # A call that ended meanwhile causes a check too many, but never one too few.
        with self._lock:
            if checks:
                self._schedule(max(min(checks), monotonic() + _MIN_INTERVAL))


# The least time, in seconds, between two checks.
_MIN_INTERVAL = 0.001
