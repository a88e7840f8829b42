"""The common base of the HTTP transports: requests to the server's URL, one exchange per frame."""

from __future__ import annotations

import logging
import threading
import zlib
from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

import requests
import urllib3.exceptions

from syncmcp._base.checks import check_headers, program_failed
from syncmcp._base.text import logger
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Alarm, monotonic, reaper, timer
from syncmcp._http.errors import explain, release_frames
from syncmcp._http.exchange import AbortableExchange
from syncmcp._http.session import HttpSession, body_of, finish
from syncmcp._protocol.jsonrpc import values_within
from syncmcp.config import Http
from syncmcp.errors import ClosedError, Delivery, HttpError, McpError, UsageError
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._http_reply import EventStream
from syncmcp.transports.base import Outgoing, Receiver, Transport

__all__ = ["EVENTS", "JSON", "Endpoint", "HttpSender"]


_log = logger("syncmcp.http")

JSON = "application/json"
EVENTS = "text/event-stream"
_GZIP = ("Accept-Encoding", "gzip")

# Headers of the protocol and of HTTP framing, which the user's headers must not replace.
_RESERVED = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip

_MAX_REDIRECTS = 5

# An error body longer than this, in bytes, is not a JSON-RPC error.
_ERROR_BODY = 1024 * 1024


class Endpoint:
    """Sends HTTP requests to the server's URL, with the headers of protocol, session and user.

    Attributes:
        negotiated_headers: The headers that every request after the handshake has.
        session_id: The session that the server opened; `None` if there is none.
    """

    def __init__(self, config: Http, connections: int) -> None:
        """Prepare the connections; nothing is sent.

        Raises:
            ValueError: The URL or a setting cannot be used.
        """
        self._config = config
        self._http = HttpSession(config, connections)
        self.negotiated_headers: dict[str, str] = {}
        self.session_id: str | None = None

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _user_headers(self) -> Mapping[str, str]:
        user_headers = self._config.headers
        if callable(user_headers):
            try:
                user_headers = user_headers()
            except Exception as error:
                raise program_failed("the headers function", error) from error
            check_headers(user_headers, "what the headers function returned")
        return user_headers or {}

    def headers(
        self,
        extra: Mapping[str, str],
        own: Mapping[str, str | bytes],
        *,
        negotiated: bool = True,
    ) -> MutableMapping[str, Any]:
        """Return the headers of one request.

        `extra` comes from the dialect and the call, and `own` from the transport. `negotiated`
        includes the headers of the handshake.

        Raises:
            UsageError: The user's function failed, or headers cannot be sent.
        """
        fields = self._http.headers.copy()
        for name, value in self._user_headers().items():
            key = name.lower()
            if key not in _RESERVED and not key.startswith("mcp-"):
                fields[key] = name, value
        check_headers(extra, "headers")
        for name, value in extra.items():
            if (key := name.lower()) not in _RESERVED:
                fields[key] = name, value
        negotiated_headers = self.negotiated_headers if negotiated else {}
        for name, any_value in (*negotiated_headers.items(), *own.items(), _GZIP):
            fields[name.lower()] = name, any_value
        if self.session_id is not None:
            fields["mcp-session-id"] = "Mcp-Session-Id", self.session_id
        return self._http.merged(fields)

    def fetch(
        self,
        exchange: AbortableExchange,
        method: str,
        headers: MutableMapping[str, Any],
        body: bytes | None = None,
        *,
        url: str | None = None,
    ) -> requests.Response:
        """Send a request and follow redirects; return when the response's headers have arrived.

        `headers` is a result of `Endpoint.headers`; `url` is another address at the same origin.

        Raises:
            HttpError: A redirect must not be followed, or there were too many.
            Exception: Any error of the connection; see `explain`.
        """
        url = url or self._http.url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._http.send(exchange, method, url, headers, body)
            if not 300 <= response.status_code < 400:
                return response
            try:
                target = reply.redirect_target(response, method, url)
            except BaseException:
                finish(exchange, response)
                raise
            if target is None:
                return response
            finish(exchange, response)
            url = target
        raise HttpError(f"the server redirected more than {_MAX_REDIRECTS} times")

    def explain(self, error: Exception, exchange: AbortableExchange) -> McpError:
        """Return the library's error for `error`, from `exchange`, without the server's secrets."""
        found = explain(error, exchange, self._http.proxy)
        self._config.secrets.clean(found)
        return found

    @property
    def url(self) -> str:
        """The server's URL."""
        return self._http.url

    def open_events(
        self, exchange: AbortableExchange, events: EventStream
    ) -> tuple[requests.Response, Mapping[str, Any]]:
        """Open an event stream, after `events.last_id`; return response and request headers."""
        own: dict[str, str | bytes] = {"Accept": EVENTS}
        if events.last_id is not None:
            own["Last-Event-ID"] = events.last_id.encode()
        headers = self.headers({}, own)
        return self.fetch(exchange, "GET", headers), headers

    def error_body(self, exchange: AbortableExchange, response: requests.Response) -> bytes:
        """The body of an error response, as far as it can be read."""
        body = bytearray()  # pieces may be small, and joining bytes each time takes quadratic time
        try:
            for piece in body_of(exchange, response):
                body += piece
                if len(body) > _ERROR_BODY:
                    break
        except (urllib3.exceptions.HTTPError, OSError, EOFError, zlib.error, HttpError) as error:
            # The status is enough for an error message.
            _log.debug("the body of an error response broke off: %s", type(error).__name__)
        return bytes(body)


# The timer aborts an exchange this many seconds after its deadline. Normally the caller cancels it
# earlier, which also notifies the server.
_OVERDUE = 0.25

_POSTING_THREADS = 4


class HttpSender(Transport):
    """Runs one HTTP exchange for each frame, until the exchange ends, expires or is cancelled."""

    blocking = True
    ordered = False

    def __init__(self, config: Http, connections: int) -> None:
        self.label = config.label
        self.max_values = values_within(config.max_body)
        self._config = config
        self._secrets = config.secrets
        self._connections = connections
        self._endpoint: Endpoint
        self._receiver: Receiver
        # Guards the fields below, and those of the subclass. Held for a few assignments, never
        # during I/O.
        self._lock = threading.RLock()
        # The open exchanges: of frames, and of the server's stream.
        self._open_exchanges: set[AbortableExchange] = set()
        self._alarm = Alarm(self._lock, self._abort_expired)
        self._closed = False
        self._limited_log = LimitedLog(self._secrets)
        self._post_pool = DaemonPool(f"syncmcp-post[{self.label}]", _POSTING_THREADS)

    @abstractmethod
    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
        """Send `out` and process the response, on the exchange's thread."""

    def _prepare(self, receiver: Receiver) -> None:
        """Prepare for sending, without I/O; `UsageError` for an invalid URL or setting."""
        timer.start()
        reaper.start()  # it ends the session at interpreter exit, when no thread can be started
        self._receiver = receiver
        try:
            self._endpoint = Endpoint(self._config, self._connections)
        except ValueError as error:
            raise UsageError(
                f"{self.label} cannot be used: {self._secrets.redact(str(error))}"
            ) from None

    def send(self, out: Outgoing) -> None:
        """Run the exchange of `out` on this thread until it ends.

        The failure of a request is reported to `Receiver.failed`.

        Raises:
            McpError: A notification or response was not accepted: a `TransportError`, a
                `RequestTimeout` when the deadline passed, a `ClosedError`, or a `UsageError`
                for headers that cannot be sent.
        """
        try:
            self._send_now(out)
        except McpError as error:
            error.server = self.label
            error.method = out.method
            if not out.ids:
                raise
            self._receiver.failed(out, error)

    def post(self, out: Outgoing) -> None:
        """Send `out` on a thread of the pool, and log a failure."""
        try:
            self._post_pool.submit(partial(self._send_logged, out))
        except RuntimeError as error:  # no thread can be started while the interpreter ends
            out.leave()
            _log.debug("%s was not sent: %s", out.method or "a response", error)

    def _send_logged(self, out: Outgoing) -> None:
        try:
            self.send(out)
        except McpError as error:
            text = "%s was not accepted: %s"
            self._limited_log.log(_log, logging.DEBUG, text, out.method or "a response", error)
        finally:
            out.leave()

    def cancel(self, out: Outgoing) -> Delivery:
        """Abort the exchange of `out`, in any phase; see `Transport.cancel`."""
        with self._lock:
            exchange: AbortableExchange | None = out.state
            if exchange is None:  # `send` has not started, and will find the aborted exchange
                exchange = out.state = AbortableExchange(out.deadline)
            self._open_exchanges.discard(exchange)
        return "unknown" if exchange.abort() else "not_sent"

    def _abort_exchanges(self) -> None:
        """Abort all exchanges and refuse new ones. May be repeated, for instance after Ctrl-C."""
        with self._lock:
            self._closed = True
            self._alarm.cancel()
            running = list(self._open_exchanges)
        for exchange in running:
            exchange.abort()
        self._post_pool.close()
        self._limited_log.flush()

    def _send_now(self, out: Outgoing) -> None:
        exchange = AbortableExchange(out.deadline)
        with self._lock:
            if out.state is not None:
                return  # cancelled before it started
            self._register(exchange)
            out.state = exchange
            self._enforce_deadline(exchange)
        self._run_exchange(exchange, partial(self._exchange, out, exchange))

    def _register(self, exchange: AbortableExchange) -> None:
        """Add `exchange` to the open ones; called with the lock held."""
        if self._closed:
            raise ClosedError("the client is closed")
        self._open_exchanges.add(exchange)

    def _run_exchange(self, exchange: AbortableExchange, step: Callable[[], None]) -> None:
        """Run `step` in `exchange`, and turn its errors into `McpError`.

        Raises:
            McpError: The exchange failed, and was not cancelled. The error shows no secrets.
        """
        try:
            with exchange:
                step()
        except Exception as error:
            release_frames(error)
            if not exchange.aborted:
                found = self._endpoint.explain(error, exchange)
                try:
                    raise found from found.__cause__
                finally:
                    del found  # avoids a reference cycle: its traceback refers to this frame
            if exchange in self._open_exchanges:  # else it was cancelled, and needs no error
                if not self._closed:
                    raise explain(TimeoutError("the timeout passed"), exchange) from None
                raise ClosedError(
                    "the client was closed", delivery="unknown" if exchange.sent else "not_sent"
                ) from None
        finally:
            with self._lock:
                self._open_exchanges.discard(exchange)

    def _enforce_deadline(self, exchange: AbortableExchange) -> None:
        """Have the timer abort `exchange` at its deadline; called with the lock held.

        So the socket needs no timeout. With one, it would poll before each operation, and release
        the GIL twice instead of once; each time, a busy thread may delay this one.
        """
        exchange.watched = True
        at = exchange.deadline.at
        if at is not None and not self._closed and at + _OVERDUE < self._alarm.at:
            self._alarm.set(at + _OVERDUE)

    def _abort_expired(self) -> None:
        """On the timer thread: abort the exchanges whose deadline has passed."""
        with self._lock:
            watched = [exchange for exchange in self._open_exchanges if exchange.watched]
            late = [exchange for exchange in watched if exchange.deadline.expired]
            ends = [
                at
                for exchange in watched
                if exchange not in late and (at := exchange.deadline.at) is not None
            ]
            if any(exchange.deadline.held for exchange in watched):
                # A person signs in. The end of the pause is not reported, so check periodically.
                ends.append(monotonic())
            if ends and not self._closed:
                self._alarm.set(min(ends) + _OVERDUE)
        for exchange in late:
            exchange.abort()
