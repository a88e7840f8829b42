"""The MCP endpoints over HTTP, independent of any HTTP server.

An HTTP server passes headers and body to an endpoint and writes the `HttpReply` that it returns.
"""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from syncmcp.testing.server import dispatch, wire
from syncmcp.testing.server.events import (
    Event,
    EventBody,
    EventStore,
    EventStream,
    HttpReply,
    format_event,
)
from syncmcp.testing.server.server import Server
from syncmcp.testing.server.session import Session
from syncmcp.testing.server.wire import (
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    STATELESS,
    Message,
    RpcError,
    since,
)

SESSION = "mcp-session-id"
JSON = "application/json"
EVENTS = "text/event-stream"

Gone = Callable[[], bool]

# The HTTP statuses of JSON-RPC errors in 2026-07-28; up to 2025-11-25 the status is 200.
_STATUSES = {
    METHOD_NOT_FOUND: 404,
    wire.HEADER_MISMATCH: 400,
    wire.MISSING_CAPABILITY: 400,
    wire.UNSUPPORTED_VERSION: 400,
}


class HttpEndpoint:
    """The Streamable HTTP endpoint of a server, to be called by any HTTP server, from any thread.

    Args:
        server: The server.
        response: How requests are answered: "json" (messages before the answer are discarded),
            "sse" (an event stream), or "auto" (JSON, or an event stream if a message precedes the
            answer).
        retry_ms: The reconnection time in milliseconds that is sent at the start of event streams
            which can be resumed; `None` sends none.
        keep_alive: Seconds without an event after which a comment is sent on event streams; `None`
            for never.
        event_limit: The number of messages stored for replay in each session.
        allowed_hosts: The host names accepted in `Host` and `Origin`; `None` accepts all.
    """

    def __init__(
        self,
        server: Server,
        *,
        response: Literal["auto", "json", "sse"] = "auto",
        retry_ms: int | None = None,
        keep_alive: float | None = 15.0,
        event_limit: int = 1000,
        allowed_hosts: Iterable[str] | None = None,
    ) -> None:
        self.server = server
        self._response = response
        self._retry_ms = retry_ms
        self._keep_alive = keep_alive
        self._event_limit = event_limit
        self._allowed_hosts = None if allowed_hosts is None else frozenset(allowed_hosts)
        self._lock = threading.Lock()  # Guards `_sessions`.
        self._sessions: dict[str, _HttpSession] = {}
        self._streams = itertools.count(1)

    def handle_post(
        self, headers: Mapping[str, str], body: bytes, *, gone: Gone | None = None
    ) -> HttpReply:
        """Answer a POST. Waits for the answer, unless the response is an event stream.

        Args:
            headers: The request's headers.
            body: The request's body.
            gone: Called every 50 ms while waiting; returns whether the client has closed the
                connection. Without it that is noticed only when writing fails.
        """
        headers = lower_names(headers)
        refused = refuse_host(headers, self._allowed_hosts) or _check_post(headers)
        if refused is not None:
            return refused
        try:
            message = wire.decode(body)
        except RpcError as error:
            return _error(400, None, error)
        if (
            not isinstance(message, list)
            and wire.expects_answer(message)
            and not _is_request(message)
        ):
            return _json(400, wire.refuse(message, "Not a JSON-RPC 2.0 message"))
        if self._is_stateless(headers, message):
            return self._post_stateless(headers, message, gone)
        return self._post_stateful(headers, message, gone)

    def handle_get(self, headers: Mapping[str, str], *, gone: Gone | None = None) -> HttpReply:
        """Answer a GET: the session's own event stream, or, with `Last-Event-ID`, a resumed one.

        Args:
            headers: The request's headers.
            gone: See `handle_post`.
        """
        headers = lower_names(headers)
        refused = refuse_host(headers, self._allowed_hosts) or self._refuse_stateless(headers)
        if refused is not None:
            return refused
        if not _accepts(headers, EVENTS):
            return _error(406, None, RpcError(INVALID_REQUEST, f"Accept must list {EVENTS}"))
        found = self._find_session(headers, None)
        if isinstance(found, HttpReply):
            return found
        stream, after = found.standalone, None
        last = headers.get("last-event-id")
        if last is not None:
            place = found.store.find(last)
            if place is None:
                return _error(400, None, RpcError(INVALID_REQUEST, "Unknown Last-Event-ID"))
            stream, after = place
        return self._resumable(found, self._body(stream, after, gone))

    def handle_delete(self, headers: Mapping[str, str]) -> HttpReply:
        """Answer a DELETE: end the session, its calls and streams."""
        headers = lower_names(headers)
        refused = refuse_host(headers, self._allowed_hosts) or self._refuse_stateless(headers)
        if refused is not None:
            return refused
        found = self._find_session(headers, None)
        if isinstance(found, HttpReply):
            return found
        self._end_session(found)
        return HttpReply(204)

    def close(self) -> None:
        """End every session of this endpoint, and the server's subscriptions and open rounds."""
        self.forget_sessions()
        self.server.listeners.end()
        self.server.rounds.close()
        self.server.workers.stop_idle()

    def forget_sessions(self) -> None:
        """End every session, as a restart of the server would: their ids become unknown."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            self._end_session(session)

    # 2026-07-28

    def _is_stateless(self, headers: Mapping[str, str], message: Any) -> bool:
        if not self.server.stateless:
            return False
        if not self.server.stateful or headers.get(dispatch.VERSION) in STATELESS:
            return True
        if not isinstance(message, dict):
            return False
        params = message.get("params")
        if wire.PROTOCOL_VERSION in wire.meta_of(params if isinstance(params, dict) else {}):
            return True
        return SESSION not in headers and message.get("method") in (
            "server/discover",
            dispatch.LISTEN,
        )

    def _post_stateless(
        self, headers: Mapping[str, str], message: Any, gone: Gone | None
    ) -> HttpReply:
        server = self.server
        if not isinstance(message, dict) or "method" not in message:
            return _json(400, wire.refuse(message, "Send one request or notification"))
        identifier = message.get("id")
        if identifier is None:
            with server.stats as stats:
                stats.notifications[str(message["method"])] += 1
            return HttpReply(202)
        with server.stats as stats:
            stats.requests[message["method"]] += 1
        stream = self._new_stream()
        outlet = _PostOutlet(stream, _STATUSES)
        try:
            if message["method"] == "initialize":
                wanted = wire.params_of(message).get("protocolVersion")
                raise server.dispatcher.unsupported(wanted)
            dispatch.check_headers(headers, message, server.features.tools)
            call = server.dispatcher.admit_stateless(message, outlet)
            if not server.dispatcher.has_handler(call):
                raise RpcError(METHOD_NOT_FOUND, f"Method not found: {call.method}")
        except RpcError as error:
            with server.stats as stats:
                stats.replies += 1
                stats.errors += 1
            return _error(_STATUSES.get(error.code, 400), identifier, error)

        def closed(whole: bool) -> None:
            # In 2026-07-28 the end of the stream is the cancellation.
            if not whole and call.cancel("the client closed the stream"):
                with server.stats as stats:
                    stats.disconnects += 1

        body = self._body(stream, None, gone)
        body.at_close(closed)
        server.dispatcher.start(call)
        if call.method == dispatch.LISTEN:
            return self._events(body)
        return self._reply(body, outlet, self._events)

    # The stateful revisions

    def _post_stateful(
        self, headers: Mapping[str, str], message: Any, gone: Gone | None
    ) -> HttpReply:
        starts = isinstance(message, dict) and message.get("method") == "initialize"
        if starts and SESSION not in headers:
            return self._initialize(message, gone)
        found = self._find_session(headers, message)
        if isinstance(found, HttpReply):
            return found
        if isinstance(message, list):
            try:
                wire.check_batch(message, found.session.revision, self.server.batches)
            except RpcError as error:
                return _error(400, None, error)
        members = message if isinstance(message, list) else [message]
        stream = self._new_stream()
        body = self._body(stream, None, gone)
        outlet = _PostOutlet(stream, {}, pausable=found.polling and self._response != "json")
        found.session.take(message, outlet, together=self._response == "json")
        if not any(wire.expects_answer(member) for member in members):
            return HttpReply(202)
        return self._reply(body, outlet, lambda body: self._resumable(found, body))

    def _initialize(self, message: Message, gone: Gone | None) -> HttpReply:
        found = _HttpSession(self.server, self._new_stream(), EventStore(self._event_limit))
        stream = self._new_stream()
        outlet = _PostOutlet(stream, {})
        body = self._body(stream, None, gone)
        found.session.take(message, outlet)
        if found.session.revision is None:
            found.session.close()
            outlet.status = 400
            return self._json_reply(body, outlet)
        with self._lock:
            self._sessions[found.id] = found
        reply = self._reply(body, outlet, lambda body: self._resumable(found, body))
        reply.headers["mcp-session-id"] = found.id
        return reply

    def _find_session(self, headers: Mapping[str, str], message: Any) -> _HttpSession | HttpReply:
        """Return the session that the headers name, or an error."""
        identifier = message.get("id") if isinstance(message, dict) else None
        session_id = headers.get(SESSION)
        if session_id is None:
            error = RpcError(INVALID_REQUEST, "Mcp-Session-Id is missing; initialize first")
            return _error(400, identifier, error)
        with self._lock:
            found = self._sessions.get(session_id)
        if found is None:
            return _error(404, identifier, RpcError(INVALID_REQUEST, "Session not found"))
        version = headers.get(dispatch.VERSION)
        if version is not None and version not in self.server.stateful:
            error = RpcError(INVALID_REQUEST, f"Unsupported MCP-Protocol-Version: {version}")
            return _error(400, identifier, error)
        return found

    def _end_session(self, session: _HttpSession) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        session.session.close()
        session.store.close()

    # Answers

    def _new_stream(self) -> EventStream:
        return EventStream(f"{next(self._streams)}")

    def _body(self, stream: EventStream, after: int | None, gone: Gone | None) -> EventBody:
        return EventBody(stream, after=after, gone=gone, keep_alive=self._keep_alive)

    def _reply(
        self, body: EventBody, outlet: _PostOutlet, as_events: Callable[[EventBody], HttpReply]
    ) -> HttpReply:
        """Answer as JSON or with an event stream, as `response` demands."""
        if self._response == "sse":
            return as_events(body)
        if self._response == "auto":
            first = body.wait_first()
            if first is not None and not (isinstance(first, Event) and first.final):
                return as_events(body)
        return self._json_reply(body, outlet)

    def _json_reply(self, body: EventBody, outlet: _PostOutlet) -> HttpReply:
        answer = body.wait_final()
        body.mark_read()
        if answer is None:
            # Cancelled: an event stream that ends without an answer.
            return HttpReply(200, {"content-type": EVENTS})
        return HttpReply(outlet.status, {"content-type": JSON}, answer.data)

    def _resumable(self, found: _HttpSession, body: EventBody) -> HttpReply:
        """Answer with an event stream that can be resumed."""
        found.store.add(body.stream)
        body.enable_ids(priming=found.polling, retry_ms=self._retry_ms)
        return self._events(body)

    def _events(self, body: EventBody) -> HttpReply:
        stats = self.server.stats
        with stats:
            stats.streams += 1

        def done(whole: bool) -> None:
            with stats:
                stats.streams -= 1

        body.at_close(done)
        return HttpReply(200, {"content-type": EVENTS, "cache-control": "no-cache"}, body)

    # Errors

    def _refuse_stateless(self, headers: Mapping[str, str]) -> HttpReply | None:
        """Return the error for a method that 2026-07-28 does not have; it has only POST."""
        if self.server.stateful and headers.get(dispatch.VERSION) not in STATELESS:
            return None
        return HttpReply(405, {"allow": "POST"})


class _HttpSession:
    """A session with its own event stream and the messages stored for replay."""

    def __init__(self, server: Server, standalone: EventStream, store: EventStore) -> None:
        self.id = secrets.token_urlsafe(32)
        self.standalone = standalone
        self.store = store
        store.add(standalone)
        self.session: Session = server.open_session(
            lambda message: standalone.append(wire.encode(message)), self.id
        )

    @property
    def polling(self) -> bool:
        """Whether streams begin with a priming event and may be closed early (2025-11-25)."""
        revision = self.session.revision
        return revision is not None and since(revision, "2025-11-25")


class _PostOutlet:
    """Sends the messages that belong to one POST to its event stream."""

    def __init__(
        self, stream: EventStream, statuses: Mapping[int, int], *, pausable: bool = False
    ) -> None:
        self.status = 200
        self._stream = stream
        self._statuses = statuses
        self._pausable = pausable

    def send(self, message: Message) -> None:
        self._stream.append(wire.encode(message))

    def finish(self, message: Message | list[Message] | None) -> None:
        if message is None:
            self._stream.finish()
            return
        if isinstance(message, dict) and "error" in message:
            self.status = self._statuses.get(message["error"]["code"], 200)
        self._stream.append(wire.encode(message), final=True)

    def interrupt(self, retry_ms: int | None) -> None:
        if self._pausable:
            self._stream.pause(retry_ms)


def refuse_host(headers: Mapping[str, str], allowed: Container[object] | None) -> HttpReply | None:
    """Refuse other hosts and origins (DNS rebinding): web pages must not reach a local server."""
    if allowed is None:
        return None
    host = urlsplit(f"//{headers.get('host', '')}").hostname
    origin = headers.get("origin")
    if host not in allowed:
        return _error(403, None, RpcError(INVALID_REQUEST, f"Host not allowed: {host}"))
    if origin is not None and urlsplit(origin).hostname not in allowed:
        return _error(403, None, RpcError(INVALID_REQUEST, f"Origin not allowed: {origin}"))
    return None


def lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers with their names in lower case."""
    return {name.lower(): value.strip(" \t") for name, value in headers.items()}


def _check_post(headers: Mapping[str, str]) -> HttpReply | None:
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != JSON:
        return _error(415, None, RpcError(INVALID_REQUEST, f"Content-Type must be {JSON}"))
    if not (_accepts(headers, JSON) and _accepts(headers, EVENTS)):
        text = f"Accept must list {JSON} and {EVENTS}"
        return _error(406, None, RpcError(INVALID_REQUEST, text))
    return None


def _accepts(headers: Mapping[str, str], kind: str) -> bool:
    accepted = headers.get("accept", "").lower().split(",")
    kinds = {entry.partition(";")[0].strip() for entry in accepted}
    return not kinds.isdisjoint({kind, "*/*", kind.partition("/")[0] + "/*"})


def _is_request(message: Any) -> bool:
    return (
        isinstance(message, dict)
        and message.get("jsonrpc") == "2.0"
        and isinstance(message.get("method"), str)
        and wire.is_identifier(message.get("id"))
    )


def _error(status: int, identifier: Any, error: RpcError) -> HttpReply:
    return _json(status, wire.error_reply(identifier, error))


def _json(status: int, message: Message) -> HttpReply:
    return HttpReply(status, {"content-type": JSON}, wire.encode(message))


# HTTP+SSE (2024-11-05): one event stream for each session; the client posts its messages.


_SESSION_PARAMETER = "session"


class SseEndpoint:
    """The two HTTP+SSE endpoints of a server, to be called by any HTTP server, from any thread.

    Args:
        server: The server.
        messages: The URL for messages that is sent on the stream, relative to the stream's URL.
        keep_alive: Seconds without an event after which a comment is sent; `None` for never.
        allowed_hosts: The host names accepted in `Host` and `Origin`; `None` accepts all.
    """

    def __init__(
        self,
        server: Server,
        *,
        messages: str = "/messages",
        keep_alive: float | None = 15.0,
        allowed_hosts: Iterable[str] | None = None,
    ) -> None:
        self.server = server
        self._messages = messages
        self._keep_alive = keep_alive
        self._allowed_hosts = None if allowed_hosts is None else frozenset(allowed_hosts)
        self._lock = threading.Lock()  # Guards `_sessions`.
        self._sessions: dict[str, tuple[Session, EventStream]] = {}

    def handle_get(self, headers: Mapping[str, str], *, gone: Gone | None = None) -> HttpReply:
        """Answer a GET: open a session, whose event stream is the response.

        Args:
            headers: The request's headers.
            gone: See `HttpEndpoint.handle_post`.
        """
        refused = refuse_host(lower_names(headers), self._allowed_hosts)
        if refused is not None:
            return refused
        if not self.server.stateful:
            return HttpReply(405)
        identifier = secrets.token_urlsafe(32)
        stream = EventStream(identifier)
        EventStore(0).add(stream)  # No message is stored for replay.
        body = EventBody(stream, after=None, gone=gone, keep_alive=self._keep_alive)
        address = f"{self._messages}?{_SESSION_PARAMETER}={identifier}"
        body.set_prelude(format_event(address.encode(), event="endpoint"))
        session = self.server.open_session(
            lambda message: stream.append(wire.encode(message)), identifier
        )
        with self._lock:
            self._sessions[identifier] = session, stream
        with self.server.stats as stats:
            stats.streams += 1
        body.at_close(self._end_session(identifier))
        return HttpReply(200, {"content-type": EVENTS, "cache-control": "no-cache"}, body)

    def handle_post(self, headers: Mapping[str, str], body: bytes, query: str) -> HttpReply:
        """Answer a POST: process a message; its answer is sent on the session's event stream.

        Args:
            headers: The request's headers.
            body: The request's body.
            query: The query string of the request's URL.
        """
        headers = lower_names(headers)
        refused = refuse_host(headers, self._allowed_hosts)
        if refused is not None:
            return refused
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return HttpReply(415)
        with self._lock:
            found = self._sessions.get("".join(parse_qs(query).get(_SESSION_PARAMETER, ())))
        if found is None:
            return HttpReply(404, {"content-type": "text/plain"}, b"Session not found")
        found[0].receive(body)
        return HttpReply(202, {"content-type": "text/plain"}, b"Accepted")

    def close(self) -> None:
        """End every session of this endpoint."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session, stream in sessions:
            session.close()
            stream.finish()

    def _end_session(self, identifier: str) -> Callable[[bool], None]:
        def end(whole: bool) -> None:
            with self._lock:
                session, _ = self._sessions.pop(identifier)
            with self.server.stats as stats:
                stats.streams -= 1
            session.close()

        return end
