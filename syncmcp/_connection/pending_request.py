"""One request of the client's, what it is told at its end, and one that lasts."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Deadline, TimerEntry, monotonic, timer
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.capabilities import HARMLESS
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
    from syncmcp._connection.batching import BatchSender, BatchSlot
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.errors import Delivery as HowFar
    from syncmcp.transports.base import Outgoing


# The spec: "initialize" must not be part of a batch (2025-03-26, basic/lifecycle).
_ALONE = "initialize"

_NO_HEADERS: Mapping[str, str] = {}


class RequestInterception(Protocol):
    """The interceptors of one request, as the connection sees them."""

    def conduct(self, exchange: Callable[[], Any]) -> Any:
        """Run the exchange of the request, and show its outcome to the interceptors.

        Raises:
            McpError: The request failed, or an interceptor did.
        """
        ...

    def outgoing(self, params: dict[str, Any] | None) -> dict[str, Any] | None:
        """Show the request to the interceptors; return the parameters to send.

        Raises:
            McpError: The request must not be sent, or has ended meanwhile.
        """
        ...

    def failed(self, error: BaseException) -> None:
        """The request could not be sent."""
        ...

    def over(self) -> None:
        """The request is settled. Never blocks."""
        ...


class PendingRequest:
    """One request of ours, from its registration to its end."""

    __slots__ = (
        "asked",
        "batch_slot",
        "carrier",
        "deadline",
        "delivery",
        "done",
        "id",
        "idle",
        "method",
        "options",
        "out",
        "outcome",
        "params",
        "passage",
        "pool",
        "released",
        "seen",
        "slot",
        "turn",
        "unsubscribe",
    )

    def __init__(
        self,
        method: str,
        options: ResolvedOptions,
        deadline: Deadline,
        done: Callable[[PendingRequest], object] | None = None,
    ) -> None:
        self.id = -1
        self.method = method
        # The questions that it caused, where that is known; they end with it.
        self.asked: dict[OpenQuestion, DeadlineHold] = {}
        self.params: dict[str, Any] | None = None
        # Its way through the interceptors, if there are any.
        self.passage: RequestInterception | None = None
        # Its position in the batch that it was sent in, if any.
        self.batch_slot: BatchSlot | None = None
        self.options = options
        # Where a task's result is waited for, silence is what is to be expected.
        self.idle = None if method == RESULT else options.idle_timeout
        self.deadline = deadline
        self.out: Outgoing | None = None
        # Whether it may be sent; until then it stands in line.
        self.turn = False
        # Set, under the connection's lock, by whoever took the call.
        self.outcome: Any = None
        self.released = False
        # When the server last gave a sign of life for this call.
        self.seen: float | None = None
        self.unsubscribe: Callable[[], None] | None = None
        self.delivery: CallbackQueue | None = None
        self.done = done
        # Where it is sent if sending blocks and no thread of its own waits for it.
        self.pool: DaemonPool | None = None
        # Where it is sent if that may take longer than anybody waits for it.
        self.carrier: DaemonPool | None = None
        self.slot: threading.Lock | None = None
        if done is None:
            # A lock that is released once is the cheapest thing a thread can wait for.
            self.slot = threading.Lock()
            self.slot.acquire()

    def join_batch(self, sender: BatchSender, dialect: Dialect, *, ready: bool) -> bool:
        """Have a request that may share a frame sent in its batch; return whether it will be.

        Only the first request of an operation may; `ready` says whether it may be sent now.
        """
        options, out = self.options, self.out
        slot, options.batch_slot = options.batch_slot, None
        if slot is None:
            return False
        if ready and out is not None and dialect.batches and self.method != _ALONE:
            self.batch_slot = slot  # first: the frame may fail before `join` returns
            if slot.join(sender, out, options.headers or _NO_HEADERS):
                return True
            self.batch_slot = None
        slot.discard()
        return False

    def carry(self, send: Callable[[Outgoing], object]) -> None:
        """Have it sent by this thread, or by one that need not stop when this one does."""
        out = self.out
        assert out is not None
        if self.carrier is None:
            send(out)
        else:
            context = self.options.context.copy()
            self.carrier.run(lambda: context.run(send, out), at_once=True)

    def hand_over(self, send: Callable[[Outgoing], object]) -> bool:
        """Have it sent, which may block, by the thread that waits for it or by one of its pool.

        Returns `False` if it has neither.
        """
        if self.slot is not None:
            self.slot.release()
        elif self.pool is not None and self.out is not None:
            self.pool.run(partial(send, self.out))
        else:
            return False
        return True

    def next_look(self) -> float | None:
        """When to look next whether the call has run out of time."""
        when = self.deadline.at
        idle = self.idle
        if idle is not None and not self.deadline.held:
            # Before the first sign of life there is nothing to be idle from: look again later.
            silent = (self.seen if self.seen is not None else monotonic()) + idle
            when = silent if when is None else min(when, silent)
        return when

    def overdue(self) -> RequestTimeout | None:
        """The error of a call that has run out of time."""
        if self.deadline.expired:
            seconds = self.deadline.seconds or 0.0
            return RequestTimeout(f"no answer within {seconds:g} s", seconds=seconds)
        if self.deadline.held:  # somebody thinks: the server has reason to be silent
            return None
        idle = self.idle
        if idle is not None and self.seen is not None and monotonic() >= self.seen + idle:
            return RequestTimeout(f"nothing came for {idle:g} s", kind="idle", seconds=idle)
        return None

    def check_in_time(self, server: str) -> None:
        """Check, before anything is sent, that somebody still waits for it.

        Raises:
            RequestCancelled: It was withdrawn.
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
        """Where it stands, as plain values; see `Dump`."""
        out, seen, left = self.out, self.seen, self.deadline.remaining()
        name = (self.params or {}).get("name")
        # In a batch it is the frame of all of them that is handed over.
        sent = out is not None and (out.carrier or out).handed_over
        return {
            "id": self.id,
            "method": self.method,
            "name": name if isinstance(name, str) else None,
            "age": None if out is None else round(now - out.since, 3),
            "state": "sent" if sent else "waits for its turn",
            "silent": None if seen is None else round(now - seen, 3),
            "left": None if left is None else round(left, 3),
            "clock": "stands still" if self.deadline.held else "runs",
            "cancelled": self.options.cancel is not None and self.options.cancel.cancelled,
        }

    def result(self) -> Any:
        """The raw result, or the error raised; the call has ended."""
        outcome = self.outcome
        if self.out is not None:
            self.options.identity = self.out.identity
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def answer_in(message: jsonrpc.Result | jsonrpc.Error, out: Outgoing | None, server: str) -> Any:
    """What an answer says, which came on the stream of `out` if there is one: result or error."""
    if isinstance(message, jsonrpc.Result):
        return message.result
    error = ServerError.from_wire(
        message.code, redact(message.message), message.data, server=server
    )
    if out is not None:
        error.status = out.status
    return error


def told(error: McpError, method: str, delivery: HowFar) -> McpError:
    """The connection's end as one call is told of it."""
    if isinstance(error, ConnectionLost):
        return lost(error, method, delivery)
    return fresh(error, method=method, delivery=delivery)


def lost(error: ConnectionLost, method: str, delivery: HowFar) -> ConnectionLost:
    """A lost connection, or a lost session, as one call is told of it."""
    error = fresh(error, method=method, delivery=delivery)
    if delivery == "unknown" and method not in HARMLESS:
        unknown = OutcomeUnknown(*error.args, **error.__dict__)
        unknown.__cause__ = error.__cause__
        return unknown
    return error


class DeadlineHold:
    """A question's hold on the call of ours that it belongs to: the call's clocks stand still.

    Args:
        call: The call.
        lock: Guards the hold: the question and the call may end at the same moment.
        resumed: Told of the call when its clocks go on.
        patience: How long, in seconds, they stand still at most, for all questions of the call.
        certain: Whether the question belongs to the call beyond doubt.
    """

    def __init__(
        self,
        call: PendingRequest,
        lock: AbstractContextManager[object],
        resumed: Callable[[PendingRequest], object],
        patience: float | None,
        *,
        certain: bool,
    ) -> None:
        self.certain = certain
        self._patience = patience
        self._call = call
        self._lock = lock
        self._resumed = resumed
        self._holds = False

    def hold(self, asked: OpenQuestion) -> None:
        """While somebody thinks about the question, the server is not late.

        For open calls; called with the lock held.
        """
        call = self._call
        if not call.released:
            self._holds = True
            call.deadline.hold(self._patience)
            call.asked[asked] = self

    def let_go(self, asked: OpenQuestion) -> None:
        """The question or the call is over; the first time counts."""
        with self._lock:
            held, self._holds = self._holds, False
        if held:
            call = self._call
            call.asked.pop(asked, None)
            call.seen = monotonic()
            call.deadline.release()
            self._resumed(call)


def expect_retries(calls: Sequence[PendingRequest]) -> None:
    """These requests of one connection failed together: their retries may share a frame again.

    To be called before any of them is settled.
    """
    for call in calls:
        if (slot := call.batch_slot) is not None:
            slot.expect_retry()
            call.batch_slot, call.options.batch_slot = None, slot


# A request that lasts: ``subscriptions/listen`` (2026-07-28).


class PendingListen(PendingRequest):
    """It ends with the subscription; until then the server tells of changes, tagged with its id.

    Args:
        take: Given the method and the parameters of each notification, by the thread that reads.
        done: Told of the end, as for every call.
    """

    __slots__ = ("acknowledged", "answered", "take")

    def __init__(
        self,
        take: Callable[[PendingListen, str, dict[str, Any]], object],
        done: Callable[[PendingRequest], object],
    ) -> None:
        super().__init__(LISTEN, ResolvedOptions(None, None), Deadline(None), done)
        self.take = take
        self.acknowledged = False
        # Released once the server has agreed, or the request has ended.
        self.answered = threading.Lock()
        self.answered.acquire()


# The clocks of a connection's calls: one appointment with the timer for all of them.


class TimeoutWatcher:
    """Ends the calls of one connection that have run out of time.

    Args:
        lock: The connection's; see there.
        open_calls: Lists the calls that are not answered yet; called with the lock held.
        give_up: Ends such a call; it must not block.
        release: Lets the waiter of an answered call go, though its callbacks have not ended.
    """

    def __init__(
        self,
        lock: threading.RLock,
        open_calls: Callable[[], list[PendingRequest]],
        give_up: Callable[[PendingRequest, RequestTimeout], object],
        release: Callable[[PendingRequest], object],
    ) -> None:
        self._lock = lock
        self._open_calls = open_calls
        self._give_up = give_up
        self._release = release
        # Answered, but their callbacks have not come to an end.
        self._finishing: set[PendingRequest] = set()
        self._stopped = False
        # The one appointment with the timer, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf

    def watch(self, call: PendingRequest) -> None:
        """End an open call when it is out of time; also to be told when its limits have changed."""
        when = call.next_look()
        if when is not None:
            with self._lock:
                self._wake_at(when)

    def finishing(self, call: PendingRequest) -> None:
        """Watch an answered call, too, until `forget`."""
        with self._lock:
            self._finishing.add(call)
            if (when := call.next_look()) is not None:
                self._wake_at(when)

    def forget(self, call: PendingRequest) -> None:
        """The call is over; called with the lock held."""
        self._finishing.discard(call)

    def stop(self) -> None:
        """There will be no open calls any more; called with the lock held."""
        self._stopped = True
        if self._appointment is not None and not self._finishing:
            self._appointment.cancel()
            self._next_look = math.inf

    def _wake_at(self, when: float) -> None:
        """Look at `when` at the latest; called with the lock held.

        Most calls have the same limits, so that a later one needs no appointment of its own.
        """
        if when < self._next_look and (not self._stopped or self._finishing):
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what has run out of time."""
        with self._lock:
            self._next_look = math.inf
            open_calls = self._open_calls()
            finishing = list(self._finishing)
        for call in open_calls:
            error = call.overdue()
            if error is not None:
                self._give_up(call, error)
        for call in finishing:
            if call.overdue() is not None:
                # Its callbacks are late: the result goes out now.
                self._release(call)
        looks = [when for call in (*open_calls, *finishing) if (when := call.next_look())]
        # What is over by now makes for a look too many, and not for one too few.
        with self._lock:
            if looks:
                self._wake_at(max(min(looks), monotonic() + _BREATH))


# The least time, in seconds, between two looks at the clocks of the calls.
_BREATH = 0.001
