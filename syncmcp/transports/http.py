"""Streamable HTTP: each message is a POST of its own, answered by JSON or by an event stream.

A request's whole exchange runs on the thread that sends it. Spec: basic/transports,
"Streamable HTTP" (2025-03-26 and later).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._http.errors import WIRE_ERRORS, explain
from syncmcp._http.exchange import AbortableExchange, ExchangeAborted
from syncmcp._http.session import body_of, finish
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
from syncmcp.transports._http_reply import EventStream, ReconnectPolicy
from syncmcp.transports.base import reader_failed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import requests

    from syncmcp.config import Http
    from syncmcp.transports.base import Outgoing, Receiver

__all__ = ["HttpTransport", "ServerStream"]


# The stream on which a server of the stateful era sends what belongs to no request.


_log = logging.getLogger("syncmcp.http")


class ServerStream:
    """Keeps the stream open, on a thread of its own."""

    def __init__(
        self,
        endpoint: Endpoint,
        receiver: Receiver,
        label: str,
        events: EventStream,
        session_lost: Callable[[], object],
    ) -> None:
        self._endpoint = endpoint
        self._receiver = receiver
        self._label = label
        self._events = events
        self._session_lost = session_lost
        self._listened = False
        self.answered = threading.Event()
        """Set once the server has said whether there is a stream, or nobody asks any more."""
        # Seconds that the server wants no other attempt.
        self._not_before = 0.0

    def run(self, exchange: AbortableExchange) -> None:
        """Receive what the server sends outside of requests, until `close`."""
        events = self._events
        attempts = ReconnectPolicy()
        try:
            with exchange:
                while self.once(exchange, events, attempts):
                    pause = attempts.next_pause(events.retry)
                    if pause is None:
                        level = logging.WARNING if self._listened else logging.DEBUG
                        _log.log(level, "%s: gave up listening", self._label)
                        break
                    exchange.sleep(max(pause, self._not_before))
            self._receiver.silent(heard=self._listened)
        except ExchangeAborted:
            return
        except Exception as error:
            self._receiver.lost(reader_failed(self._label, error))
        finally:
            self.answered.set()

    def once(
        self, exchange: AbortableExchange, events: EventStream, attempts: ReconnectPolicy
    ) -> bool:
        """Open the stream and read it to its end. Returns whether to open it again."""
        events.restart()
        self._not_before = 0.0
        try:
            response, _ = self._endpoint.open_events(exchange, events)
            try:
                status = response.status_code
                if status != 200 or reply.content_type(response) != EVENTS:
                    _log.debug("%s: no stream to listen to (HTTP %d)", self._label, status)
                    # From the start, some servers say 404 where they should say 405.
                    if status == 404 and self._listened and self._endpoint.session_id is not None:
                        self._session_lost()
                    self._not_before = reply.retry_after(response) or 0.0
                    if status == 429 or status >= 500:
                        self.answered.set()
                        return True
                    return False
                self.answered.set()
                self._listened = True
                for piece in body_of(exchange, response):
                    attempts.progress()
                    for data in events.feed(piece):
                        self._receiver.receive(data)
            finally:
                finish(exchange, response)
        except WIRE_ERRORS as error:
            if exchange.aborted:
                raise ExchangeAborted from None
            found = error if isinstance(error, McpError) else explain(error, exchange)
            _log.debug("%s: listening was interrupted: %s", self._label, found)
            return isinstance(found, (ConnectFailed, ConnectionLost))
        return True


# Ending a session is a courtesy: it may delay `close` by this many seconds.
_DELETE_SECONDS = 0.5

_STREAMS = 4

# They begin something of their own.
_WITHOUT_SESSION = frozenset(("initialize", "server/discover"))

# Statuses that say when, not what.
_NOT_NOW = (429, 503)


class HttpTransport(HttpSender):
    """The connection to one server over Streamable HTTP."""

    def __init__(self, config: Http, max_in_flight: int = 256, *, rejoin: bool = True) -> None:
        """Prepare it; nothing is opened yet.

        Args:
            config: The URL and the user's settings.
            max_in_flight: How many requests may run at once; that many connections are kept.
            rejoin: Whether to begin in the session that `config` names.
        """
        super().__init__(config, max_in_flight + _STREAMS)
        self._rejoin = rejoin
        self._listening: AbortableExchange | None = None
        self._listener: ServerStream | None = None
        self._events: EventStream | None = None
        self._stateful = False
        self._session_lost = False

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Get ready to send; no server is contacted.

        Raises:
            UsageError: The URL or a setting cannot be used.
        """
        del deadline  # nothing here waits
        self._prepare(receiver)
        if self._rejoin:
            self._endpoint.session_id = self._config.session_id

    @property
    def session_id(self) -> str | None:
        """The session that the server opened, or that another client was in before."""
        return self._endpoint.session_id

    @property
    def last_event_id(self) -> str | None:
        """The newest event on the stream that belongs to no request, if they have ids."""
        events = self._events
        return None if events is None else events.last_id

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Send `headers` with everything from now on; in the stateful era start to listen."""
        with self._lock:
            self._endpoint.adopted = dict(headers)
            self._stateful = stateful
            if not stateful:
                self._endpoint.session_id = None
            before, self._listening = self._listening, None
            if before is not None:
                self._running.discard(before)
            events = self._events = EventStream(self._config.max_body)
            if self._rejoin and self._endpoint.session_id == self._config.session_id:
                events.last_id = self._config.last_event_id
            if stateful and not self._closed:
                self._listening = AbortableExchange(Deadline(None))
                self._running.add(self._listening)
            listening = self._listening
        if before is not None:
            before.abort()
        if listening is not None:
            listener = self._listener = ServerStream(
                self._endpoint, self._receiver, self.label, events, self._end_session
            )
            threading.Thread(
                target=listener.run,
                args=(listening,),
                name=f"syncmcp-listen[{self.label}]",
                daemon=True,
            ).start()

    def wait_listening(self, deadline: Deadline) -> None:
        """See `Listening`."""
        if self._listener is not None:
            self._listener.answered.wait(deadline.remaining())

    def close(self, deadline: Deadline) -> None:
        """End every exchange and the session, close the connections.

        A server that does not answer delays this by half a second.
        """
        if not self._end_exchanges():
            return
        if not hasattr(self, "_endpoint"):
            return
        open_session = self._stateful and self._endpoint.session_id is not None
        if open_session and not (self._session_lost or self._config.keep_session):
            self._delete_session(deadline)
        self._endpoint.close()

    # One exchange

    def _exchange(self, out: Outgoing, exchange: AbortableExchange) -> None:
        initialize = out.method == "initialize"
        if out.method in _WITHOUT_SESSION:
            self._endpoint.session_id = None
        given = self._endpoint.given()
        headers = self._endpoint.headers(out.headers, given, adopted=not initialize)
        headers["Content-Type"] = JSON
        headers["Accept"] = f"{JSON}, {EVENTS}"
        response = self._endpoint.fetch(exchange, "POST", headers, out.body)
        try:
            out.identity = self._endpoint.identity(given, response)
            status = response.status_code
            if not out.ids:
                if not 200 <= status < 300:
                    body = self._endpoint.error_body(exchange, response)
                    raise self._refusal(response, headers, body)
            elif status == 200:
                if initialize:
                    self._endpoint.session_id = reply.session_id(response)
                self._read_answer(out, exchange, response, headers)
            elif 200 <= status < 300:
                raise ProtocolError(
                    f"the server answered the request with HTTP {status} and nothing else"
                )
            else:
                self._read_refusal(out, exchange, response, headers)
        finally:
            finish(exchange, response)

    def _read_answer(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        headers: Mapping[str, Any],
    ) -> None:
        kind = reply.content_type(response)
        if kind == JSON:
            body = b"".join(body_of(exchange, response, self._config.max_body))
            if not self._receiver.receive(body, out):
                raise ProtocolError("the server's response does not answer the request")
        elif kind == EVENTS:
            self._read_events(out, exchange, response)
        else:
            raise reply.wrong_type(response, headers, self._endpoint.error_body(exchange, response))

    def _read_refusal(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        headers: Mapping[str, Any],
    ) -> None:
        body = self._endpoint.error_body(exchange, response)
        error = self._refusal(response, headers, body)
        # Servers put "no session", "not authorized" and "not now" into JSON-RPC errors, too; what
        # such a status means is not up to the error's code.
        plain = isinstance(error, (AuthError, SessionLost)) or response.status_code in _NOT_NOW
        if plain or not reply.is_message(body):
            raise error
        out.status = response.status_code
        if not self._receiver.receive(body, out):
            raise error

    def _refusal(
        self, response: requests.Response, headers: Mapping[str, Any], body: bytes
    ) -> HttpError | SessionLost:
        """The error for a status that is no success; a session that is lost ends with it."""
        error = reply.refusal(response, headers, body)
        if isinstance(error, SessionLost):
            self._end_session()
        return error

    def _end_session(self) -> None:
        """The server no longer knows it: nothing new is sent in it, and nobody listens."""
        with self._lock:
            if not self._stateful:  # the session of another client, which we wanted to go on with
                self._endpoint.session_id = None
                return
            self._session_lost = True
            listening = self._listening
        if listening is not None:
            listening.abort()
        self._receiver.lost(SessionLost("the server no longer knows this session"))

    # Event streams

    def _read_events(
        self, out: Outgoing, exchange: AbortableExchange, response: requests.Response
    ) -> None:
        events = EventStream(self._config.max_body)
        attempts = ReconnectPolicy()
        lost: McpError = ConnectionLost("the event stream ended before the answer")
        try:
            if self._follow(out, exchange, response, events, attempts):
                return
            if events.empty:
                lost = ProtocolError("the server answered the request with an empty event stream")
        except Exception as error:
            lost = self._broken(error, exchange)
        # Resuming belongs to the stateful era, and so does `initialize`, whose answer opens it.
        while (self._stateful or out.method == "initialize") and events.last_id is not None:
            pause = attempts.next_pause(events.retry)
            if pause is None:
                break
            exchange.sleep(max(pause, getattr(lost, "retry_after", None) or 0.0))
            try:
                if self._resume(out, exchange, events, attempts):
                    return
            except Exception as error:
                lost = self._broken(error, exchange)
        raise lost

    def _resume(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        events: EventStream,
        attempts: ReconnectPolicy,
    ) -> bool:
        response, headers = self._endpoint.open_events(exchange, events)
        try:
            if response.status_code == 200 and reply.content_type(response) == EVENTS:
                self._receiver.alive(out)
                return self._follow(out, exchange, response, events, attempts)
            error = self._refusal(response, headers, self._endpoint.error_body(exchange, response))
            error.delivery = "unknown"  # of the request whose stream this is
            if response.status_code < 500 and response.status_code not in _NOT_NOW:
                attempts.stop()
            raise error
        finally:
            finish(exchange, response)

    def _follow(
        self,
        out: Outgoing,
        exchange: AbortableExchange,
        response: requests.Response,
        events: EventStream,
        attempts: ReconnectPolicy,
    ) -> bool:
        """Read a stream to its end or to the answer. Returns whether the answer came."""
        receiver = self._receiver
        events.restart()
        for piece in body_of(exchange, response):
            before, quiet = events.last_id, True
            for data in events.feed(piece):
                quiet = False
                if receiver.receive(data, out):
                    return True
            if quiet:
                receiver.alive(out)
            if not quiet or events.last_id != before:
                attempts.progress()
        return False

    def _broken(self, error: Exception, exchange: AbortableExchange) -> McpError:
        """What broke a stream, if it may be resumed after that; else raise."""
        if exchange.aborted:
            raise ExchangeAborted
        found = error if isinstance(error, McpError) else explain(error, exchange)
        if not isinstance(found, (ConnectionLost, HttpError)):
            raise found from found.__cause__
        return found

    def _delete_session(self, deadline: Deadline) -> None:
        exchange = AbortableExchange(deadline.sooner(_DELETE_SECONDS))
        # Reading the headers takes as many socket timeouts as the server sends pieces.
        ending = timer.after(_DELETE_SECONDS, exchange.abort)
        try:
            with exchange:
                headers = self._endpoint.headers({})
                finish(exchange, self._endpoint.fetch(exchange, "DELETE", headers))
        except Exception as error:
            found = (
                error
                if isinstance(error, (McpError, ExchangeAborted))
                else explain(error, exchange)
            )
            _log.debug("%s: the session was not ended: %s", self.label, found)
        finally:
            ending.cancel()
