"""What the HTTP transports do alike: the server's URL, and a POST for each frame out."""

from __future__ import annotations

import logging
import math
import threading
import zlib
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any

import urllib3.exceptions

from syncmcp._base.checks import check_headers
from syncmcp._base.text import redact
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline, TimerEntry, monotonic, timer
from syncmcp._http.errors import explain
from syncmcp._http.exchange import AbortableExchange, identity
from syncmcp._http.session import HttpSession, body_of, finish
from syncmcp.errors import ClosedError, HttpError, McpError, UsageError
from syncmcp.transports import _http_reply as reply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import requests
    from requests.structures import CaseInsensitiveDict

    from syncmcp._http.exchange import Identity
    from syncmcp.config import Http
    from syncmcp.errors import Delivery
    from syncmcp.transports._http_reply import EventStream
    from syncmcp.transports.base import Outgoing, Receiver

__all__ = ["EVENTS", "JSON", "Endpoint", "HttpSender"]


# The server's one URL: what every HTTP request to it has in common.


_log = logging.getLogger("syncmcp.http")

JSON = "application/json"
EVENTS = "text/event-stream"
_SESSION_ID = "Mcp-Session-Id"

# The user's headers never replace these: they belong to the protocol or to the framing.
_RESERVED = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip

_MAX_REDIRECTS = 5

# An error body longer than this, in bytes, is no JSON-RPC error worth reading.
_ERROR_BODY = 1024 * 1024


class Endpoint:
    """Sends HTTP requests with the headers of the protocol, the session and the user."""

    def __init__(self, config: Http, connections: int) -> None:
        """Prepare it; nothing is sent.

        Raises:
            ValueError: The URL or a setting cannot be used.
        """
        self._config = config
        self._http = HttpSession(config, connections)
        self.adopted: dict[str, str] = {}
        """The headers that everything after the handshake has."""
        self.session_id: str | None = None
        """The session that the server opened, if it did."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def given(self) -> Mapping[str, str]:
        """The headers that the user wants now; a function is asked.

        Raises:
            UsageError: The function failed, or headers cannot be sent.
        """
        given = self._config.headers
        if callable(given):
            try:
                given = given()
            except Exception as error:
                raise UsageError(f"the headers function failed: {type(error).__name__}") from error
            check_headers(given, "what the headers function returned")
        return given or {}

    def identity(self, given: Mapping[str, str], response: requests.Response) -> Identity:
        """As whom the request was sent that `response` answers.

        Args:
            given: What `given` returned for it.
            response: Perhaps not to the first attempt: `auth` may have sent it again.
        """
        if self._config.auth is None:
            return identity(given)
        return identity(given, response.request.headers.get("Authorization"))

    def headers(
        self,
        extra: Mapping[str, Any],
        given: Mapping[str, str] | None = None,
        *,
        adopted: bool = True,
    ) -> CaseInsensitiveDict[Any]:
        """The headers of one request.

        Args:
            extra: What this request has beside the others.
            given: What the user wants, if that is known already.
            adopted: Whether the handshake is over.

        Raises:
            UsageError: The user's function failed, or headers cannot be sent.
        """
        headers = self._http.headers.copy()
        if given is None:
            given = self.given()
        for name, value in given.items():
            key = name.lower()
            if key not in _RESERVED and not key.startswith("mcp-"):
                headers[name] = value
        check_headers(extra, "headers")
        for name, value in extra.items():
            if name.lower() not in _RESERVED:
                headers[name] = value
        if adopted:
            headers.update(self.adopted)
        if self.session_id is not None:
            headers[_SESSION_ID] = self.session_id
        headers["Accept-Encoding"] = "gzip"
        return headers

    def fetch(
        self,
        exchange: AbortableExchange,
        method: str,
        headers: CaseInsensitiveDict[Any],
        body: bytes | None = None,
        *,
        url: str | None = None,
    ) -> requests.Response:
        """Send a request, also to where the server redirects it, up to the response's headers.

        Args:
            exchange: What runs on this thread.
            method: The HTTP method.
            headers: What `headers` returned, and more.
            body: The request's body.
            url: Another address at the same origin.

        Raises:
            HttpError: It is redirected elsewhere, or again and again.
            Exception: Whatever befalls a connection; see `explain`.
        """
        url = url or self._http.url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._http.send(exchange, method, url, headers, body)
            try:
                target = reply.redirect(response, method, url)
            except BaseException:
                finish(exchange, response)
                raise
            if target is None:
                return response
            finish(exchange, response)
            url = target
        raise HttpError(f"the server redirected more than {_MAX_REDIRECTS} times")

    @property
    def url(self) -> str:
        """The address that requests go to."""
        return self._http.url

    def open_events(
        self, exchange: AbortableExchange, events: EventStream
    ) -> tuple[requests.Response, CaseInsensitiveDict[Any]]:
        """Ask for an event stream, from where `events` broke off; also returns what was sent."""
        headers = self.headers({})
        headers["Accept"] = EVENTS
        if events.last_id is not None:
            headers["Last-Event-ID"] = events.last_id.encode()
        return self.fetch(exchange, "GET", headers), headers

    def error_body(self, exchange: AbortableExchange, response: requests.Response) -> bytes:
        """What can be had of the body of a response that is an error."""
        body = b""
        try:
            for piece in body_of(exchange, response):
                body += piece
                if len(body) > _ERROR_BODY:
                    break
        except (urllib3.exceptions.HTTPError, OSError, EOFError, zlib.error, HttpError) as error:
            # The status says what happened; the body only adds to it.
            _log.debug("the body of an error response broke off: %s", type(error).__name__)
        return body


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
        self._running: set[AbortableExchange] = set()
        # The one appointment with the timer for all requests, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf
        self._closed = False
        self._posting = DaemonPool(f"syncmcp-post[{self.label}]", _POSTING_THREADS)

    @abstractmethod
    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
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
            exchange: AbortableExchange | None = out.state
            if exchange is None:  # `send` has not begun, and will find this
                exchange = out.state = AbortableExchange(out.deadline)
            elif out.lingers and self._may_linger(exchange):
                exchange.lingers, exchange.deadline = True, Deadline(out.lingers)
                self._watch(exchange)
                return "unknown"
            self._running.discard(exchange)
        return "unknown" if exchange.abort() else "not_sent"

    def _may_linger(self, exchange: AbortableExchange) -> bool:
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
            exchange.abort()
        self._posting.close()
        return True

    def _run(self, out: Outgoing) -> None:
        exchange = AbortableExchange(out.deadline)
        with self._lock:
            if out.state is not None:
                return  # withdrawn before it began
            self._begin(exchange)
            out.state = exchange
            if out.ids:
                self._watch(exchange)
        self._carry_out(exchange, partial(self._exchange, out, exchange))

    def _begin(self, exchange: AbortableExchange) -> None:
        """Note that `exchange` is about to run; called with the lock held."""
        if self._closed:
            raise ClosedError("the client is closed")
        self._running.add(exchange)

    def _carry_out(self, exchange: AbortableExchange, step: Callable[[], None]) -> None:
        """Run `step` in `exchange`, which ends with it.

        Raises:
            McpError: What went wrong, unless it was withdrawn.
        """
        try:
            with exchange:
                step()
        except Exception as error:
            if not exchange.aborted:
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

    def _watch(self, exchange: AbortableExchange) -> None:
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
            exchange.abort()
