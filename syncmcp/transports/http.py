"""Streamable HTTP: each message is a POST of its own, answered by JSON or by an event stream.

A request's whole exchange runs on the thread that sends it. Spec: basic/transports,
"Streamable HTTP" (2025-03-26 and later).
"""

from __future__ import annotations

import logging
import math
import threading
from typing import TYPE_CHECKING, Any

from syncmcp._http import body_of, finish
from syncmcp._http_errors import explain
from syncmcp._http_exchange import Cut, Exchange
from syncmcp._redaction import redact
from syncmcp._threads import Deadline, TimerEntry, timer
from syncmcp._workers import Workers
from syncmcp.errors import (
    AuthError,
    ClosedError,
    ConnectionLost,
    HttpError,
    McpError,
    ProtocolError,
    SessionLost,
    UsageError,
)
from syncmcp.transports import _http_reply as reply
from syncmcp.transports._events import EventStream
from syncmcp.transports._http_endpoint import EVENTS, JSON, Endpoint
from syncmcp.transports._http_listening import Listener
from syncmcp.transports._reconnecting import Attempts

if TYPE_CHECKING:
    from collections.abc import Mapping

    import requests

    from syncmcp.config import Http
    from syncmcp.errors import Delivery
    from syncmcp.transports.base import Outgoing, Receiver

__all__ = ["HttpTransport"]

_log = logging.getLogger("syncmcp.http")

# Ending a session is a courtesy: it may delay `close` by this many seconds.
_DELETE_SECONDS = 0.5

# A request's exchange that outlives its deadline by so many seconds is ended here. Before that its
# caller withdraws it, which also tells the server.
_OVERDUE = 0.25

_POSTING_THREADS = 4
_STREAMS = 4


class HttpTransport:
    """The connection to one server over Streamable HTTP."""

    blocking = True

    def __init__(self, config: Http, max_in_flight: int = 256) -> None:
        """Prepare it; nothing is opened yet.

        Args:
            config: The URL and the user's settings.
            max_in_flight: How many requests may run at once; that many connections are kept.
        """
        self.label = config.label
        self._config = config
        self._max_in_flight = max_in_flight
        self._endpoint: Endpoint
        self._receiver: Receiver
        # Guards the fields below. Held for a few assignments, never during I/O.
        self._lock = threading.RLock()
        self._running: set[Exchange] = set()
        # The one appointment with the timer for all requests, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf
        self._listening: Exchange | None = None
        self._closed = False
        self._stateful = False
        self._posting = Workers(f"syncmcp-post[{self.label}]", _POSTING_THREADS)

    def open(self, receiver: Receiver, deadline: Deadline) -> None:
        """Get ready to send; no server is contacted.

        Raises:
            UsageError: The URL or a setting cannot be used.
        """
        del deadline  # nothing here waits
        timer.start()
        self._receiver = receiver
        try:
            self._endpoint = Endpoint(self._config, self._max_in_flight + _STREAMS)
        except ValueError as error:
            raise UsageError(f"{self.label} cannot be used: {redact(str(error))}") from None

    def adopt(self, headers: Mapping[str, str], *, stateful: bool) -> None:
        """Send `headers` with everything from now on; in the stateful era start to listen."""
        with self._lock:
            self._endpoint.adopted = dict(headers)
            self._stateful = stateful
            if not stateful:
                self._endpoint.session_id = None
            before, self._listening = self._listening, None
            if stateful and not self._closed:
                self._listening = Exchange(Deadline(None))
            listening = self._listening
        if before is not None:
            before.end()
        if listening is not None:
            listener = Listener(self._endpoint, self._receiver, self.label, self._config.max_body)
            threading.Thread(
                target=listener.run,
                args=(listening,),
                name=f"syncmcp-listen[{self.label}]",
                daemon=True,
            ).start()

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
            if out.id is None:
                raise
            self._receiver.failed(out, error)

    def post(self, out: Outgoing) -> None:
        """Send `out` from a thread of the pool; a failure is logged."""

        def job() -> None:
            try:
                self.send(out)
            except McpError as error:
                _log.debug("%s was not accepted: %s", out.method or "a response", error)

        try:
            self._posting.submit(job)
        except RuntimeError as error:  # no thread can be started while the interpreter ends
            _log.debug("%s was not sent: %s", out.method or "a response", error)

    def withdraw(self, out: Outgoing) -> Delivery:
        """End the exchange of `out` at once, in whatever phase it is; see `Transport.withdraw`."""
        with self._lock:
            exchange: Exchange | None = out.state
            if exchange is None:  # `send` has not begun, and will find this
                exchange = out.state = Exchange(out.deadline)
            self._running.discard(exchange)
        return "unknown" if exchange.end() else "not_sent"

    def describe(self) -> str:
        """See `Transport`. What an HTTP server says, it says in its answers."""
        return ""

    def close(self, deadline: Deadline) -> None:
        """End every exchange and the session, close the connections.

        A server that does not answer delays this by half a second.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._appointment is not None:
                self._appointment.cancel()
            running = list(self._running)
            if self._listening is not None:
                running.append(self._listening)
        for exchange in running:
            exchange.end()
        self._posting.close()
        if not hasattr(self, "_endpoint"):
            return
        if self._stateful and self._endpoint.session_id is not None:
            self._delete_session(deadline)
        self._endpoint.close()

    # One exchange

    def _run(self, out: Outgoing) -> None:
        exchange = Exchange(out.deadline)
        with self._lock:
            if out.state is not None:
                return  # withdrawn before it began
            if self._closed:
                raise ClosedError("the client is closed")
            out.state = exchange
            self._running.add(exchange)
            if out.id is not None:
                self._watch(exchange)
        try:
            with exchange:
                self._exchange(out, exchange)
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
            if ends:
                self._look_at(min(ends) + _OVERDUE)
        for exchange in late:
            exchange.end()

    def _exchange(self, out: Outgoing, exchange: Exchange) -> None:
        initialize = out.method == "initialize"
        if initialize:
            self._endpoint.session_id = None
        headers = self._endpoint.headers(out.headers, adopted=not initialize)
        headers["Content-Type"] = JSON
        headers["Accept"] = f"{JSON}, {EVENTS}"
        response = self._endpoint.fetch(exchange, "POST", headers, out.body)
        try:
            status = response.status_code
            if out.id is None:
                if not 200 <= status < 300:
                    body = self._endpoint.error_body(exchange, response)
                    raise reply.refusal(response, headers, body)
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
        exchange: Exchange,
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
        exchange: Exchange,
        response: requests.Response,
        headers: Mapping[str, Any],
    ) -> None:
        body = self._endpoint.error_body(exchange, response)
        error = reply.refusal(response, headers, body)
        # Servers put "no session" and "not authorized" into JSON-RPC errors, too; what such a
        # status means is not up to the error's code.
        if isinstance(error, (AuthError, SessionLost)) or not reply.is_message(body):
            raise error
        if not self._receiver.receive(body, out):
            raise error

    # Event streams

    def _read_events(self, out: Outgoing, exchange: Exchange, response: requests.Response) -> None:
        events = EventStream(self._config.max_body)
        attempts = Attempts()
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
            exchange.sleep(pause)
            try:
                if self._resume(out, exchange, events, attempts):
                    return
            except Exception as error:
                lost = self._broken(error, exchange)
        raise lost

    def _resume(
        self, out: Outgoing, exchange: Exchange, events: EventStream, attempts: Attempts
    ) -> bool:
        response, headers = self._endpoint.open_events(exchange, events)
        try:
            if response.status_code == 200 and reply.content_type(response) == EVENTS:
                self._receiver.alive(out)
                return self._follow(out, exchange, response, events, attempts)
            error = reply.refusal(response, headers, self._endpoint.error_body(exchange, response))
            error.delivery = "unknown"  # of the request whose stream this is
            if response.status_code < 500:
                attempts.stop()
            raise error
        finally:
            finish(exchange, response)

    def _follow(
        self,
        out: Outgoing,
        exchange: Exchange,
        response: requests.Response,
        events: EventStream,
        attempts: Attempts,
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

    def _broken(self, error: Exception, exchange: Exchange) -> McpError:
        """What broke a stream, if it may be resumed after that; else raise."""
        if exchange.cut:
            raise Cut
        found = error if isinstance(error, McpError) else explain(error, exchange)
        if not isinstance(found, (ConnectionLost, HttpError)):
            raise found from found.__cause__
        return found

    def _delete_session(self, deadline: Deadline) -> None:
        exchange = Exchange(deadline.sooner(_DELETE_SECONDS))
        # Reading the headers takes as many socket timeouts as the server sends pieces.
        ending = timer.after(_DELETE_SECONDS, exchange.end)
        try:
            with exchange:
                headers = self._endpoint.headers({})
                finish(exchange, self._endpoint.fetch(exchange, "DELETE", headers))
        except Exception as error:
            found = error if isinstance(error, (McpError, Cut)) else explain(error, exchange)
            _log.debug("%s: the session was not ended: %s", self.label, found)
        finally:
            ending.cancel()
