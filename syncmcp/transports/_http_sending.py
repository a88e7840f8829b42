"""What the HTTP transports do alike: each frame out is a POST, run by the thread that sends it."""

from __future__ import annotations

import logging
import math
import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._base.text import redact
from syncmcp._concurrency.pool import Workers
from syncmcp._concurrency.timing import Deadline, TimerEntry, monotonic, timer
from syncmcp._http.errors import explain
from syncmcp._http.exchange import Exchange
from syncmcp.errors import ClosedError, McpError, UsageError
from syncmcp.transports._http_endpoint import Endpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp.config import Http
    from syncmcp.errors import Delivery
    from syncmcp.transports.base import Outgoing, Receiver

__all__ = ["HttpSender"]

_log = logging.getLogger("syncmcp.http")

# A request's exchange that outlives its deadline by so many seconds is ended here. Before that its
# caller withdraws it, which also tells the server.
_OVERDUE = 0.25

_POSTING_THREADS = 4

MOST_LINGERING = 64
"""So many exchanges go on at most though nobody waits for them; each has a thread."""


class HttpSender(ABC):
    """Runs the exchange of each frame; it ends by itself, by its deadline, or when it is told to.

    Args:
        config: The URL and the user's settings.
        connections: How many connections are kept, at most.
    """

    blocking = True
    ordered = False

    def __init__(self, config: Http, connections: int) -> None:
        self.label = config.label
        self._config = config
        self._connections = connections
        self._endpoint: Endpoint
        self._receiver: Receiver
        # Guards the fields below, and those of the subclass. Held for a few assignments, never
        # during I/O.
        self._lock = threading.RLock()
        # Those of frames, and of streams that belong to none.
        self._running: set[Exchange] = set()
        # The one appointment with the timer for all requests, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf
        self._closed = False
        self._posting = Workers(f"syncmcp-post[{self.label}]", _POSTING_THREADS)

    @abstractmethod
    def _exchange(self, out: Outgoing, exchange: Exchange) -> None:
        """Send `out` and do what there is to do with the answer, on the exchange's thread."""

    def _prepare(self, receiver: Receiver) -> None:
        """Get ready to send; no server is contacted.

        Raises:
            UsageError: The URL or a setting cannot be used.
        """
        timer.start()
        self._receiver = receiver
        try:
            self._endpoint = Endpoint(self._config, self._connections)
        except ValueError as error:
            raise UsageError(f"{self.label} cannot be used: {redact(str(error))}") from None

    def send(self, out: Outgoing) -> None:
        """Run the exchange of `out` on this thread, to its end.

        A request's failure is told to `Receiver.failed`.

        Raises:
            McpError: A notification or response was not accepted: a `TransportError`, a
                `RequestTimeout` when the deadline passed, a `ClosedError`, or a `UsageError`
                for headers that cannot be sent.
        """
        try:
            self._run(out)
        except McpError as error:
            error.server = self.label
            error.method = out.method
            if not out.ids:
                raise
            self._receiver.failed(out, error)

    def post(self, out: Outgoing) -> None:
        """Send `out` from a thread of the pool; a failure is logged."""
        try:
            self._posting.submit(partial(self._attempt, out))
        except RuntimeError as error:  # no thread can be started while the interpreter ends
            _log.debug("%s was not sent: %s", out.method or "a response", error)

    def _attempt(self, out: Outgoing) -> None:
        try:
            self.send(out)
        except McpError as error:
            _log.debug("%s was not accepted: %s", out.method or "a response", error)

    def withdraw(self, out: Outgoing) -> Delivery:
        """End the exchange of `out` at once, in whatever phase it is; see `Transport.withdraw`.

        One that lingers goes on, if it has begun.
        """
        with self._lock:
            exchange: Exchange | None = out.state
            if exchange is None:  # `send` has not begun, and will find this
                exchange = out.state = Exchange(out.deadline)
            elif out.lingers and self._may_linger(exchange):
                exchange.lingers, exchange.deadline = True, Deadline(out.lingers)
                self._watch(exchange)
                return "unknown"
            self._running.discard(exchange)
        return "unknown" if exchange.end() else "not_sent"

    def _may_linger(self, exchange: Exchange) -> bool:
        """Whether a request has left, whose exchange can go on; called with the lock held."""
        if not exchange.sent or exchange.lingers or exchange not in self._running:
            return False
        return sum(each.lingers for each in self._running) < MOST_LINGERING

    def describe(self) -> str:
        """See `Transport`. What an HTTP server says, it says in its answers."""
        return ""

    def _end_exchanges(self) -> bool:
        """End everything that runs, and send no more. Returns `False` when closed before."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            if self._appointment is not None:
                self._appointment.cancel()
            running = list(self._running)
        for exchange in running:
            exchange.end()
        self._posting.close()
        return True

    def _run(self, out: Outgoing) -> None:
        exchange = Exchange(out.deadline)
        with self._lock:
            if out.state is not None:
                return  # withdrawn before it began
            self._begin(exchange)
            out.state = exchange
            if out.ids:
                self._watch(exchange)
        self._carry_out(exchange, partial(self._exchange, out, exchange))

    def _begin(self, exchange: Exchange) -> None:
        """Note that `exchange` is about to run; called with the lock held."""
        if self._closed:
            raise ClosedError("the client is closed")
        self._running.add(exchange)

    def _carry_out(self, exchange: Exchange, step: Callable[[], None]) -> None:
        """Run `step` in `exchange`, which ends with it.

        Raises:
            McpError: What went wrong, unless it was withdrawn.
        """
        try:
            with exchange:
                step()
        except Exception as error:
            if not exchange.cut:
                if isinstance(error, McpError):
                    raise
                found = explain(error, exchange)
                raise found from found.__cause__
            if exchange in self._running:  # else it was withdrawn, and nobody wants to know
                if not self._closed:
                    raise explain(TimeoutError("it was ended by the clock"), exchange) from None
                raise ClosedError(
                    "the client was closed", delivery="unknown" if exchange.sent else "not_sent"
                ) from None
        finally:
            with self._lock:
                self._running.discard(exchange)

    def _watch(self, exchange: Exchange) -> None:
        """Have `exchange` end with its deadline; called with the lock held.

        The socket's own timeout would take two waits for each of its operations, and beside a
        thread that computes each wait is a turn lost.
        """
        exchange.watched = True
        at = exchange.deadline.at
        if at is not None:
            self._look_at(at + _OVERDUE)

    def _look_at(self, when: float) -> None:
        if when < self._next_look and not self._closed:
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what should have ended."""
        with self._lock:
            self._next_look = math.inf
            watched = [exchange for exchange in self._running if exchange.watched]
            late = [exchange for exchange in watched if exchange.deadline.expired]
            ends = [
                at
                for exchange in watched
                if exchange not in late and (at := exchange.deadline.at) is not None
            ]
            if any(exchange.deadline.held for exchange in watched):
                # A person signs in, and nobody tells when the clock goes on.
                ends.append(monotonic())
            if ends:
                self._look_at(min(ends) + _OVERDUE)
        for exchange in late:
            exchange.end()
