"""HTTP+SSE: one event stream brings everything; messages are posted to an address that it names.

A thread reads the stream. A message is posted by the thread that sends it, and its answer comes on
the stream like everything else. Spec: 2024-11-05 basic/transports, "HTTP with SSE".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.pool import SerialExecutor
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._http.errors import WIRE_ERRORS, explain
from syncmcp._http.exchange import AbortableExchange
from syncmcp._http.session import body_of, finish
from syncmcp.errors import ConnectFailed, ConnectionLost, McpError, ProtocolError, SessionLost
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._http_base import EVENTS, JSON, HttpSender
from syncmcp.transports._http_reply import EventStream
from syncmcp.transports.base import reader_failed

if TYPE_CHECKING:
    import requests

    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp.config import Http
    from syncmcp.transports.base import Outgoing, Receiver

__all__ = ["SseTransport"]

# A request that is answered on the stream before its POST is: the POST may take so many seconds
# more, which most need no part of, and is then ended. Its caller waits for nothing else.
_LATE_POST = 0.1

_UNKNOWN = "the server no longer knows this session"


class SseTransport(HttpSender):
    """The connection to one server over HTTP+SSE. It lives as long as the stream."""

    ordered = True

    def __init__(self, config: Http, max_in_flight: int = 256) -> None:
        """Prepare it; nothing is opened yet.

        Args:
            config: The URL of the stream and the user's settings.
            max_in_flight: How many requests may run at once; that many connections are kept.
        """
        super().__init__(config, max_in_flight + 1)
        # A question may be refused because its call was cancelled, and the server should learn of
        # that first: nothing but the order shows what belongs together here.
        self._lane = SerialExecutor(self._posting)
        self._stream: _Stream | None = None
        self._address: str | None = None
        # The requests whose POST is not answered yet, and when it is ended, where that has been
        # decided; guarded by the lock.
        self._posted: dict[Outgoing, TimerEntry | None] = {}

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Open the stream and wait until the server has named the address for messages.

        Raises:
            ConnectFailed: The server cannot be reached.
            ConnectionLost: The stream ended before that.
            HttpError: The server has no such stream.
            ProtocolError: The stream begins with something else, or the address is no good.
            RequestTimeout: `deadline` passed first.
            UsageError: The URL or a setting cannot be used.
        """
        self._prepare(receiver)
        exchange = AbortableExchange(deadline)
        with self._lock:
            self._begin(exchange)
            self._watch(exchange)
        # On this thread: authentication may have a person log in, for which the clock stands still.
        try:
            self._carry_out(exchange, partial(self._connect, exchange))
        except McpError as error:
            error.server = self.label
            raise
        exchange.deadline = Deadline(None)
        with self._lock:
            if self._closed:
                exchange.abort()
            self._running.add(exchange)
        reader = threading.Thread(
            target=self._read, name=f"syncmcp-read[{self.label}]", daemon=True
        )
        try:
            reader.start()
        except RuntimeError as error:
            exchange.abort()
            raise ConnectFailed("cannot start a thread", server=self.label) from error

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Send `headers` with everything from now on."""
        self._endpoint.adopted = dict(headers)

    def post(self, out: Outgoing) -> None:
        """Send `out` from a thread of the pool, after what was posted before."""
        self._lane.push(partial(self._attempt, out))

    def describe(self) -> str:
        """See `Transport`."""
        if self._stream is not None and self._address is None:
            return "its event stream is open, but names no address for messages"
        return super().describe()

    def close(self, deadline: Deadline) -> None:
        """End every exchange and the stream, close the connections. Waits for nothing."""
        if self._end_exchanges() and hasattr(self, "_endpoint"):
            self._endpoint.close()

    # The stream

    def _connect(self, exchange: AbortableExchange) -> None:
        events = EventStream(self._config.max_body)
        response, headers = self._endpoint.open_events(exchange, events)
        try:
            if response.status_code != 200:
                body = self._endpoint.error_body(exchange, response)
                raise reply.refusal(response, headers, body)
            if reply.content_type(response) != EVENTS:
                body = self._endpoint.error_body(exchange, response)
                raise reply.wrong_type(response, headers, body)
            self._stream = _Stream(exchange, response, events)
            self._address = reply.posting_address(self._endpoint.url, self._stream.endpoint())
            _wait_for_ever(response)
        except BaseException:
            finish(exchange, response)
            raise

    def _read(self) -> None:
        """Receive what the server sends, until the stream ends."""
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
                        self._end_late_posts()
        except WIRE_ERRORS as error:
            lost = error if isinstance(error, McpError) else explain(error, exchange)
        except Exception as error:  # without its reader a connection would only time out
            lost = reader_failed(self.label, error)
        finally:
            finish(exchange, stream.response)
        if not self._closed:
            receiver.lost(lost)

    def _end_late_posts(self) -> None:
        if not self._posted:
            return
        with self._lock:
            posted = [out for out, ending in self._posted.items() if ending is None]
        for out in filter(self._receiver.settled, posted):
            with self._lock:
                if out in self._posted:
                    ending = timer.after(_LATE_POST, partial(self.withdraw, out))
                    self._posted[out] = ending

    # One message

    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
        if not out.ids:
            self._post(out, exchange)
            return
        out.lingers = 0.0  # its answer comes elsewhere, as long as the connection lives
        with self._lock:
            self._posted[out] = None
        try:
            self._post(out, exchange)
        finally:
            with self._lock:
                ending = self._posted.pop(out)
            if ending is not None:
                ending.cancel()

    def _post(self, out: Outgoing, exchange: AbortableExchange) -> None:
        headers = self._endpoint.headers(out.headers)
        headers["Content-Type"] = JSON
        response = self._endpoint.fetch(exchange, "POST", headers, out.body, url=self._address)
        try:
            status = response.status_code
            if 200 <= status < 300:
                return
            if status == 404 and out.method != "initialize":
                self._receiver.lost(SessionLost(_UNKNOWN))
                raise SessionLost(_UNKNOWN)
            body = self._endpoint.error_body(exchange, response)
            raise reply.refusal(response, headers, body)
        finally:
            finish(exchange, response)


class _Stream:
    """The stream of a server, from its first event on.

    Iterating yields messages as they come, and `None` for a sign of life that is none.
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
            ConnectionLost: The stream ended before it.
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


def _wait_for_ever(response: requests.Response) -> None:
    """Undo the socket's timeout, which was for the response and would count for each read."""
    raw: Any = response.raw
    if raw.closed:
        return
    # Where the server says that it closes afterwards, only the response has the socket any more.
    sock = raw.connection.sock or raw._fp.fp.raw._sock
    sock.settimeout(None)
