"""Streamable HTTP: each message is a separate POST; the response is JSON or an event stream.

The exchange of a request runs on the thread that sends it. Spec: basic/transports,
"Streamable HTTP" (2025-03-26 and later).
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests

from syncmcp._base.text import logger
from syncmcp._concurrency.timing import Deadline, Latch, monotonic, reaper
from syncmcp._http.errors import WIRE_ERRORS
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._http.session import body_of, content_type, finish
from syncmcp.config import Http
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    ProtocolError,
    SessionLost,
)
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._http_base import EVENTS, JSON, Endpoint, HttpSender
from syncmcp.transports._http_reply import EventStream
from syncmcp.transports.base import Outgoing, Receiver, reader_failed

__all__ = ["HttpTransport", "ReconnectPolicy", "ServerStream"]


_log = logger("syncmcp.http")

# After this many attempts in a row without any progress, the client stops reconnecting.
_MAX_FRUITLESS = 3

# Seconds to wait before an attempt. The default, if the server names no pause. The minimum for the
# stream of a call. The minimum for the listening stream, and from the second poll of a call on. The
# maximum, unless the server names a longer pause.
_DEFAULT_PAUSE = 1.0
_SHORTEST_PAUSE = 0.05
SHORTEST_LISTEN_PAUSE = 0.5
LONGEST_PAUSE = 30.0

LONGEST_NAMED_PAUSE = 3600.0
"""The longest pause that a server can ask for, in seconds."""

USEFUL_SECONDS = 5.0
"""A listening stream was useful if it was open for this long, even without a message."""


class ReconnectPolicy:
    """Decides when to reconnect a broken event stream, and when to give up.

    `shortest` is the shortest pause, in seconds, whatever the server names.
    """

    def __init__(self, shortest: float = _SHORTEST_PAUSE) -> None:
        self._shortest = shortest
        # Attempts in a row without any progress: their number is limited. Attempts in a row without
        # a useful stream: each one doubles the pause.
        self._fruitless = 0
        self._useless = 0
        self._polls = 0  # in a row

    def record_alive(self) -> None:
        """Record that bytes were received: reset the count of attempts without progress."""
        self._fruitless = 0

    def record_use(self) -> None:
        """Record that the stream was useful: the next pause is the shortest again."""
        self._fruitless = self._useless = self._polls = 0

    def record_poll(self) -> None:
        """Record that only new ids came: the client polls, soon once, then twice a second."""
        self._fruitless = self._useless = 0
        self._polls += 1

    def give_up(self) -> None:
        """Allow no further attempt."""
        self._fruitless = _MAX_FRUITLESS

    def next_pause(self, retry: float | None, retry_after: float | None = None) -> float | None:
        """Return the seconds to wait before the next attempt; `None` to stop reconnecting.

        The pause is at least what the server named (basic/transports, 2025-11-25: MUST), up to an
        hour: `retry` in the stream, or `retry_after` in a refusal, both in seconds.
        """
        if self._fruitless >= _MAX_FRUITLESS:
            return None
        named = _DEFAULT_PAUSE if retry is None else min(retry, LONGEST_NAMED_PAUSE)
        shortest = self._shortest if self._polls < 2 else SHORTEST_LISTEN_PAUSE
        base = pause = max(shortest, named)
        if self._useless or retry is None:
            pause = max(base, min(LONGEST_PAUSE, base * 2 ** min(self._useless, 32)))
            # Jitter: clients that lost the same server should not all reconnect at once.
            pause *= 1 + random.random() / 4  # noqa: S311 - no secret depends on it
        self._fruitless += 1
        self._useless += 1
        return max(pause, min(retry_after or 0.0, LONGEST_NAMED_PAUSE))


@dataclass(eq=False)
class ServerStream:
    """The listening stream: server messages outside of requests, read on a thread of its own.

    Only stateful revisions have this stream. When the stream ends, it is reopened; see
    `ReconnectPolicy`. It resumes after the `last_id` of `events`. Without an id, the receiver is
    notified that messages may be missing. `session_lost` is called when the server no longer knows
    the session. `answered` is set when the server has accepted or refused the stream, or when the
    thread has ended.
    """

    endpoint: Endpoint
    receiver: Receiver
    label: str
    events: EventStream
    session_lost: Callable[[], object]
    answered: threading.Event = field(default_factory=threading.Event, init=False)
    _opened: bool = field(default=False, init=False)
    # Whether the first attempt to open the stream is over.
    _again: bool = field(default=False, init=False)
    # Seconds, from the last response's Retry-After.
    _retry_after: float | None = field(default=None, init=False)

    def run(self, exchange: AbortableExchange) -> None:
        """Receive messages until the exchange is aborted, or no attempt to reconnect is left."""
        events = self.events
        reconnects = ReconnectPolicy(SHORTEST_LISTEN_PAUSE)
        try:
            with exchange:
                while self._open_and_read(exchange, events, reconnects):
                    pause = reconnects.next_pause(events.retry, self._retry_after)
                    if pause is None:
                        level = logging.WARNING if self._opened else logging.DEBUG
                        _log.log(level, "%s: the client stopped listening", self.label)
                        break
                    exchange.sleep(pause)
                    self._again = True
            self.receiver.server_stream_ended(opened=self._opened)
        except ExchangeAborted:
            return
        except Exception as error:
            self.receiver.lost(reader_failed(self.label, error))
        finally:
            self.answered.set()

    def _open_and_read(
        self, exchange: AbortableExchange, events: EventStream, reconnects: ReconnectPolicy
    ) -> bool:
        """Open the stream and read it to its end; return whether to reopen it."""
        events.reset()
        self._retry_after = None
        try:
            response, _ = self.endpoint.open_events(exchange, events)
            try:
                status = response.status_code
                if status != 200 or content_type(response) != EVENTS:
                    _log.debug(
                        "%s: the server has no stream to listen to (HTTP %d)", self.label, status
                    )
                    # Some servers answer the first attempt with 404 instead of 405.
                    if status == 404 and self._opened and self.endpoint.session_id is not None:
                        self.session_lost()
                    self._retry_after = reply.retry_after(response)
                    if status == 429 or status >= 500:
                        self.answered.set()
                        return True
                    return False
                if self._again and events.last_id is None:
                    # The server does not repeat what it sent while no stream was open.
                    self.receiver.messages_missed()
                self.answered.set()
                self._opened = True
                opened_at = monotonic()
                try:
                    for piece in body_of(exchange, response):
                        reconnects.record_alive()
                        for data in events.feed(piece):
                            reconnects.record_use()
                            self.receiver.receive(data)
                finally:
                    if monotonic() - opened_at >= USEFUL_SECONDS:
                        reconnects.record_use()
            finally:
                finish(exchange, response)
        except WIRE_ERRORS as error:
            if exchange.aborted:
                raise ExchangeAborted from None
            found = self.endpoint.explain(error, exchange)
            _log.debug("%s: listening was interrupted: %s", self.label, found)
            return isinstance(found, (ConnectFailed, ConnectionLost))
        return True


# The DELETE that ends a session is optional: it may delay `close` by this many seconds.
_DELETE_SECONDS = 0.5

# Connections kept for streams, in addition to those for requests.
_STREAMS = 4

# Requests that are sent without the session's id: they start a session, or need none.
_WITHOUT_SESSION = frozenset(("initialize", "server/discover"))

# The headers of each message.
_POSTED = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}

# Statuses that ask for a later attempt, whatever the body says.
_NOT_NOW = (429, 503)


class HttpTransport(HttpSender):
    """The transport to one server over Streamable HTTP."""

    def __init__(self, config: Http, max_in_flight: int = 256, *, rejoin: bool = True) -> None:
        """Prepare the transport, with connections for `max_in_flight` requests at once.

        With `rejoin`, start in the session that `config` names.
        """
        super().__init__(config, max_in_flight + _STREAMS)
        self._resume_session = rejoin
        self._stream_exchange: AbortableExchange | None = None
        self._server_stream: ServerStream | None = None
        self._events: EventStream | None = None
        self._stateful = False
        self._session_lost = False

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Prepare for sending, without contact with the server.

        Raises:
            UsageError: The URL or a setting cannot be used.
        """
        del deadline  # nothing here waits
        self._prepare(receiver)
        if self._resume_session:
            self._endpoint.session_id = self._config.session_id

    @property
    def session_id(self) -> str | None:
        """The session that the server opened, or the one that `config` names."""
        return self._endpoint.session_id

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event on the listening stream; `None` if its events have no ids."""
        events = self._events
        return None if events is None else events.last_id

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Add `headers` to every request from now on; if `stateful`, open the server's stream."""
        with self._lock:
            self._endpoint.negotiated_headers = dict(headers)
            self._stateful = stateful
            if not stateful:
                self._endpoint.session_id = None
            previous, self._stream_exchange = self._stream_exchange, None
            if previous is not None:
                self._open_exchanges.discard(previous)
            events = self._events = EventStream(self._config.max_body)
            if self._resume_session and self._endpoint.session_id == self._config.session_id:
                events.last_id = self._config.last_event_id
            if stateful and not self._closed:
                self._stream_exchange = AbortableExchange(Deadline(None))
                self._open_exchanges.add(self._stream_exchange)
            exchange = self._stream_exchange
        if previous is not None:
            previous.abort()
        if exchange is not None:
            stream = self._server_stream = ServerStream(
                self._endpoint, self._receiver, self.label, events, self._on_session_lost
            )
            threading.Thread(
                target=stream.run,
                args=(exchange,),
                name=f"syncmcp-listen[{self.label}]",
                daemon=True,
            ).start()

    def wait_listening(self, deadline: Deadline) -> None:
        if self._server_stream is not None:
            self._server_stream.answered.wait(deadline.remaining())

    def close(self, deadline: Deadline) -> None:
        """Abort all exchanges, end the session with DELETE, and close the connections.

        The DELETE delays the method by half a second at most.
        """
        self._abort_exchanges()
        if not hasattr(self, "_endpoint"):
            return
        open_session = self._stateful and self._endpoint.session_id is not None
        if open_session and not (self._session_lost or self._config.keep_session):
            self._session_lost = True  # a second close must not end it again
            self._delete_session(deadline)
        self._endpoint.close()

    # One exchange

    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
        initialize = out.method == "initialize"
        if out.method in _WITHOUT_SESSION:
            self._endpoint.session_id = None
        headers = self._endpoint.headers(out.headers, _POSTED, negotiated=not initialize)
        response = self._endpoint.fetch(exchange, "POST", headers, out.body)
        try:
            status = response.status_code
            if not out.ids:
                if not 200 <= status < 300:
                    body = self._endpoint.error_body(exchange, response)
                    raise self._error_for(response, headers, body)
            elif status == 200:
                if initialize:
                    self._start_session(reply.session_id(response), headers)
                self._read_success(out, exchange, response, headers)
            elif 200 <= status < 300:
                raise ProtocolError(
                    f"the server answered the request with HTTP {status} and nothing else"
                )
            else:
                self._read_error(out, exchange, response, headers)
        finally:
            finish(exchange, response)

    def _start_session(self, session_id: str | None, headers: Mapping[str, Any]) -> None:
        self._endpoint.session_id = session_id
        if session_id is not None:  # the rest of the response may repeat it
            self._secrets.add(session_id, "session_id")
            self._secrets.add_headers(headers)  # again: the oldest secrets are forgotten first

    def _read_success(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        headers: Mapping[str, Any],
    ) -> None:
        kind = content_type(response)
        if kind == JSON:
            body = bytearray()  # a list of small pieces would take many times their bytes
            for piece in body_of(exchange, response, self._config.max_body):
                body += piece
            if not self._receiver.receive(bytes(body), out):
                raise ProtocolError("the server's response does not answer the request")
        elif kind == EVENTS:
            self._read_events(out, exchange, response)
        else:
            raise self._error_for(response, headers, self._endpoint.error_body(exchange, response))

    def _read_error(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        headers: Mapping[str, Any],
    ) -> None:
        body = self._endpoint.error_body(exchange, response)
        error = self._error_for(response, headers, body)
        # Some servers also send JSON-RPC errors with the statuses for "no session", "not
        # authorized" and "not now". The status decides then, not the error's code.
        plain = isinstance(error, (AuthError, SessionLost)) or response.status_code in _NOT_NOW
        if plain or not reply.is_rpc_response(body):
            raise error
        out.status = response.status_code
        if not self._receiver.receive(body, out):
            raise error

    def _error_for(
        self, response: requests.Response, headers: Mapping[str, Any], body: bytes
    ) -> HttpError | SessionLost:
        """Return the error for an unexpected response; report a lost session as well."""
        error = reply.error_for(response, headers, body, self._secrets)
        if isinstance(error, SessionLost):
            self._on_session_lost()
        return error

    def _on_session_lost(self) -> None:
        """Close the listening stream, and report the lost session to the connection."""
        with self._lock:
            if not self._stateful:  # before the handshake: the session that `config` names
                self._endpoint.session_id = None
                return
            self._session_lost = True
            exchange = self._stream_exchange
        if exchange is not None:
            exchange.abort()
        self._receiver.lost(SessionLost("the server no longer knows this session"))

    # Event streams

    def _read_events(
        self, out: Outgoing, exchange: AbortableExchange, response: requests.Response
    ) -> None:
        events = EventStream(self._config.max_body)
        reconnects = ReconnectPolicy()
        lost: McpError
        try:
            if self._read_events_of(out, exchange, response, events, reconnects):
                return
            if events.empty:
                lost = ProtocolError("the server answered the request with an empty event stream")
            else:
                lost = ConnectionLost("the event stream ended before the response")
        except Exception as error:
            lost = self._resumable_error(error, exchange)
        # Only stateful revisions have resumption; `initialize` is sent before `adopt` is called.
        while (self._stateful or out.method == "initialize") and events.last_id is not None:
            pause = reconnects.next_pause(events.retry, getattr(lost, "retry_after", None))
            if pause is None:
                break
            exchange.sleep(pause)
            try:
                if self._resume(out, exchange, events, reconnects):
                    return
            except Exception as error:
                lost = self._resumable_error(error, exchange)
        raise lost

    def _resume(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        events: EventStream,
        reconnects: ReconnectPolicy,
    ) -> bool:
        response, headers = self._endpoint.open_events(exchange, events)
        try:
            if response.status_code == 200 and content_type(response) == EVENTS:
                self._receiver.alive(out)
                return self._read_events_of(out, exchange, response, events, reconnects)
            error = self._error_for(
                response, headers, self._endpoint.error_body(exchange, response)
            )
            error.delivery = "unknown"  # the request of this stream was sent before
            if response.status_code < 500 and response.status_code not in _NOT_NOW:
                reconnects.give_up()
            raise error
        finally:
            finish(exchange, response)

    def _read_events_of(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        events: EventStream,
        reconnects: ReconnectPolicy,
    ) -> bool:
        """Read a stream until it ends or `out` is settled; return whether `out` is settled."""
        receiver = self._receiver
        events.reset()
        for piece in body_of(exchange, response):
            previous, quiet = events.last_id, True
            for data in events.feed(piece):
                quiet = False
                if receiver.receive(data, out):
                    return True
            if quiet:
                receiver.alive(out)
            if not quiet:
                reconnects.record_use()
            elif events.last_id != previous:
                reconnects.record_poll()
        return False

    def _resumable_error(self, error: Exception, exchange: AbortableExchange) -> McpError:
        """Return the error that broke a stream, if the stream can be resumed; else raise it."""
        if exchange.aborted:
            raise ExchangeAborted
        found = self._endpoint.explain(error, exchange)
        if not isinstance(found, (ConnectionLost, HttpError)):
            raise found from found.__cause__
        return found

    def _delete_session(self, deadline: Deadline) -> None:
        limit = deadline.sooner(_DELETE_SECONDS)
        exchange, ended = AbortableExchange(limit), Latch()

        def delete() -> None:
            try:
                with exchange:
                    headers = self._endpoint.headers({}, {})
                    finish(exchange, self._endpoint.fetch(exchange, "DELETE", headers))
            except ExchangeAborted as error:
                _log.debug("%s: could not end the session: %s", self.label, error)
            except Exception as error:
                found = self._endpoint.explain(error, exchange)
                _log.debug("%s: could not end the session: %s", self.label, found)
            finally:
                ended.set()

        # On another thread, because the program's functions for headers or auth may take long.
        try:
            self._post_pool.submit(delete, at_once=True)
        except RuntimeError:  # at exit no thread can be started
            reaper.put(delete)
        try:
            ended.wait(limit.remaining())
        finally:
            exchange.abort()
