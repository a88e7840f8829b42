"""HTTP+SSE: all server messages arrive on one event stream, which names the URL for POSTs.

A thread reads the stream. The thread that sends a message POSTs it; the response arrives on the
stream. Spec: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import requests

from syncmcp._concurrency.pool import SerialExecutor
from syncmcp._concurrency.timing import Deadline, TimerEntry, timer
from syncmcp._http.errors import WIRE_ERRORS
from syncmcp._http.exchange import AbortableExchange
from syncmcp._http.session import body_of, content_type, finish
from syncmcp.config import Http
from syncmcp.errors import ConnectFailed, ConnectionLost, McpError, ProtocolError, SessionLost
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._http_base import EVENTS, JSON, HttpSender
from syncmcp.transports._http_reply import EventStream
from syncmcp.transports.base import Outgoing, Receiver, reader_failed

__all__ = ["SseTransport"]

# If a response arrives on the stream while the POST of its request is open, the POST still blocks
# the caller. It is aborted after this many seconds.
_LATE_POST = 0.1

_SESSION_LOST = "the server no longer knows this session"

_PATH_HINT = "; is this the URL of its event stream? (often it is /sse)"


class SseTransport(HttpSender):
    """The transport to one server over HTTP+SSE. The connection ends with the event stream."""

    ordered = True

    def __init__(self, config: Http, max_in_flight: int = 256) -> None:
        """Prepare the transport, with connections for `max_in_flight` requests at once."""
        super().__init__(config, max_in_flight + 1)
        # Posts are sent one after the other: the server should receive the cancel notification of a
        # call before the error response to a question of that call.
        self._post_queue = SerialExecutor(self._post_pool)
        self._stream: _Stream | None = None
        self._post_url: str | None = None
        # The requests whose POST is open, each with the timer entry that will abort it, or `None`;
        # guarded by the lock.
        self._open_posts: dict[Outgoing, TimerEntry | None] = {}

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Open the stream and wait until the server has named the URL for messages.

        Raises:
            ConnectFailed: The server cannot be reached.
            ConnectionLost: The stream ended before the event `endpoint`.
            HttpError: The server has no such stream.
            ProtocolError: The stream begins with another event, or the URL must not be used.
            RequestTimeout: `deadline` passed first.
            UsageError: The URL or a setting cannot be used.
        """
        self._prepare(receiver)
        exchange = AbortableExchange(deadline)
        with self._lock:
            self._register(exchange)
            self._enforce_deadline(exchange)
        # On this thread: authentication may ask a person to sign in, which pauses the deadline of
        # the exchange on the current thread.
        try:
            self._run_exchange(exchange, partial(self._connect, exchange))
        except McpError as error:
            error.server = self.label
            raise
        exchange.deadline = Deadline(None)
        with self._lock:
            if self._closed:
                exchange.abort()
            self._open_exchanges.add(exchange)
        reader = threading.Thread(
            target=self._read, name=f"syncmcp-read[{self.label}]", daemon=True
        )
        try:
            reader.start()
        except RuntimeError as error:
            exchange.abort()
            raise ConnectFailed("cannot start a thread", server=self.label) from error

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Add `headers` to every request from now on."""
        self._endpoint.negotiated_headers = dict(headers)

    def post(self, out: Outgoing) -> None:
        """Send `out` on a thread of the pool, after the frames posted before it."""
        self._post_queue.push(partial(self._send_logged, out))

    def describe(self) -> str:
        if self._stream is not None and self._post_url is None:
            return "the event stream is open, but has named no URL for messages"
        return ""

    def close(self, deadline: Deadline) -> None:
        """Abort all exchanges and the stream, and close the connections, without blocking."""
        self._abort_exchanges()
        if hasattr(self, "_endpoint"):
            self._endpoint.close()

    # The stream

    def _connect(self, exchange: AbortableExchange) -> None:
        events = EventStream(self._config.max_body)
        response, headers = self._endpoint.open_events(exchange, events)
        try:
            if response.status_code != 200 or content_type(response) != EVENTS:
                body = self._endpoint.error_body(exchange, response)
                hint = _PATH_HINT if self._config.transport == "sse" else ""
                raise reply.error_for(response, headers, body, self._secrets, hint)
            self._stream = _Stream(exchange, response, events)
            self._post_url = reply.post_url(self._endpoint.url, self._stream.endpoint())
            self._secrets.add_url(self._post_url)  # it contains the id of the session
            self._secrets.add_headers(headers)  # again: the oldest secrets are forgotten first
            _remove_read_timeout(response)
        except BaseException:
            finish(exchange, response)
            raise

    def _read(self) -> None:
        """Pass messages to the receiver until the stream ends."""
        stream, receiver = self._stream, self._receiver
        assert stream is not None
        exchange = stream.exchange
        lost: McpError = ConnectionLost("the server ended its event stream")
        try:
            with exchange:
                for message in stream:
                    if message is None:
                        receiver.alive(None)
                    else:
                        receiver.receive(message)
                        self._abort_late_posts()
        except WIRE_ERRORS as error:
            lost = self._endpoint.explain(error, exchange)
        except Exception as error:  # unreported, all requests would wait for their timeouts
            lost = reader_failed(self.label, error)
        finally:
            finish(exchange, stream.response)
        if not self._closed:
            receiver.lost(lost)

    def _abort_late_posts(self) -> None:
        if not self._open_posts:
            return
        with self._lock:
            posted = [out for out, ending in self._open_posts.items() if ending is None]
        for out in filter(self._receiver.settled, posted):
            with self._lock:
                if out in self._open_posts:
                    ending = timer.after(_LATE_POST, partial(self.cancel, out))
                    self._open_posts[out] = ending

    # One message

    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
        if not out.ids:
            self._post(out, exchange)
            return
        with self._lock:
            self._open_posts[out] = None
        try:
            self._post(out, exchange)
        finally:
            with self._lock:
                ending = self._open_posts.pop(out)
            if ending is not None:
                ending.cancel()

    def _post(self, out: Outgoing, exchange: AbortableExchange) -> None:
        headers = self._endpoint.headers(out.headers, {"Content-Type": JSON})
        response = self._endpoint.fetch(exchange, "POST", headers, out.body, url=self._post_url)
        try:
            status = response.status_code
            if 200 <= status < 300:
                return
            if status == 404 and out.method != "initialize":
                self._receiver.lost(SessionLost(_SESSION_LOST))
                raise SessionLost(_SESSION_LOST)
            body = self._endpoint.error_body(exchange, response)
            raise reply.error_for(response, headers, body, self._secrets)
        finally:
            finish(exchange, response)


class _Stream:
    """The event stream of a server, from its first event on.

    Iterating yields messages as they arrive, and `None` for other activity, such as comments.
    """

    def __init__(
        self, exchange: AbortableExchange, response: requests.Response, events: EventStream
    ) -> None:
        self.exchange = exchange
        self.response = response
        self._events = events
        self._pieces = body_of(exchange, response)
        self._early: list[bytes] = []

    def endpoint(self) -> bytes:
        """Read up to the event `endpoint` and return its data.

        Raises:
            ConnectionLost: The stream ended before that event.
            ProtocolError: The stream begins with a message.
        """
        for piece in self._pieces:
            for message in self._events.feed(piece):
                if self._events.endpoint is None:
                    raise ProtocolError("the event stream does not begin with the event `endpoint`")
                self._early.append(message)
            if self._events.endpoint is not None:
                return self._events.endpoint
        raise ConnectionLost("the event stream ended before the event `endpoint`")

    def __iter__(self) -> Iterator[bytes | None]:
        yield from self._early
        self._early.clear()
        for piece in self._pieces:
            quiet = True
            for message in self._events.feed(piece):
                quiet = False
                yield message
            if quiet:
                yield None


def _remove_read_timeout(response: requests.Response) -> None:
    """Remove the socket's read timeout, which was for opening and would limit each pause.

    The client's own adapter sets none, because the timer aborts a late opening. The adapter of a
    user's `requests.Session` gets one: nothing else can abort it before the response.
    """
    raw: Any = response.raw
    if raw.closed:
        return
    # After `Connection: close`, http.client takes the socket from the connection, and only the
    # response has it. Neither urllib3 nor http.client has a public way to reach it there. A file
    # descriptor is not enough, because Python stores the timeout in the socket object.
    sock = raw.connection.sock or raw._fp.fp.raw._sock
    sock.settimeout(None)
