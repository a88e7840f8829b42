"""The MCP endpoints over HTTP, independent of any HTTP server.

An HTTP server passes headers and body to an endpoint and writes the `HttpReply` that it returns.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qs

from syncmcp.testing.listener import format_event
from syncmcp.testing.server import wire
from syncmcp.testing.server.dispatch import LISTEN
from syncmcp.testing.server.events import Event, EventBody, EventStream, HttpReply
from syncmcp.testing.server.features import Tool
from syncmcp.testing.server.http_listener import find_foreign_host
from syncmcp.testing.server.server import Server
from syncmcp.testing.server.session import Session
from syncmcp.testing.server.wire import Message, RpcError

SESSION = "mcp-session-id"
VERSION = "mcp-protocol-version"
JSON = "application/json"
EVENTS = "text/event-stream"

Gone = Callable[[], bool]

# The HTTP statuses of JSON-RPC errors in 2026-07-28; before, the status is 200.
_STATUSES = {
    wire.METHOD_NOT_FOUND: 404,
    wire.HEADER_MISMATCH: 400,
    wire.MISSING_CAPABILITY: 400,
    wire.UNSUPPORTED_VERSION: 400,
}


class _Refused(Exception):
    """A request gets this error as its response."""

    def __init__(self, status: int, text: str | RpcError, identifier: Any = None) -> None:
        super().__init__(status, text)
        error = RpcError(wire.INVALID_REQUEST, text) if isinstance(text, str) else text
        body = wire.encode(wire.error_reply(identifier, error))
        self.reply = HttpReply(status, {"content-type": JSON}, body)


class _Endpoint:
    """The base of both endpoints: sessions by id, and the checks of each request."""

    def __init__(
        self, server: Server, keep_alive: float | None, allowed_hosts: Iterable[str] | None
    ) -> None:
        self.server = server
        self._keep_alive = keep_alive
        self._allowed_hosts = (
            None
            if allowed_hosts is None
            else frozenset(wire.listed(allowed_hosts, "allowed_hosts"))
        )
        self._lock = threading.Lock()  # Guards `_sessions`.
        self._sessions: dict[str, _HttpSession] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.server!r}>"

    def _answer(
        self, headers: Mapping[str, str], handle: Callable[[dict[str, str]], HttpReply]
    ) -> HttpReply:
        """Respond to a request by `handle`, which gets the headers with names in lower case."""
        given = {name.lower(): value.strip(" \t") for name, value in headers.items()}
        foreign = None
        if self._allowed_hosts is not None:
            foreign = find_foreign_host(given, self._allowed_hosts)
        try:
            if foreign is not None:
                raise _Refused(403, foreign)
            return handle(given)
        except _Refused as refused:
            return refused.reply

    def _add_session(self, session: _HttpSession) -> None:
        with self._lock:
            self._sessions[session.id] = session

    def _end_session(self, session: _HttpSession) -> None:
        with self._lock:
            self._sessions.pop(session.id, None)
        session.close()

    def close(self) -> None:
        """End every session of this endpoint."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session in sessions:
            self._end_session(session)

    def _body(self, stream: EventStream, after: int | None, gone: Gone | None) -> EventBody:
        return EventBody(stream, after=after, gone=gone, keep_alive=self._keep_alive)

    def _events(self, body: EventBody) -> HttpReply:
        stats = self.server.stats
        stats._count(streams=1)
        body.at_close(lambda _: stats._count(streams=-1))
        return HttpReply(200, {"content-type": EVENTS, "cache-control": "no-cache"}, body)


class HttpEndpoint(_Endpoint):
    """The Streamable HTTP endpoint of a server, which any HTTP server may call, from any thread.

    Args:
        server: The server.
        response: The form of responses. "json" discards messages before the response, "sse" is an
            event stream, and "auto" is JSON, or an event stream if a message precedes the response.
        retry_ms: The reconnection time in milliseconds that is sent at the start of resumable event
            streams; `None` sends none.
        keep_alive: The seconds without an event after which a comment is sent on event streams;
            `None` for never.
        event_limit: The number of messages stored for replay in each event stream, and of the
            streams of a session that can be resumed.
        allowed_hosts: The host names accepted in `Host` and `Origin`; `None` accepts all.

    Raises:
        ValueError: `response` has another value.
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
        super().__init__(server, keep_alive, allowed_hosts)
        if response not in ("auto", "json", "sse"):
            raise ValueError(f"response must be one of auto, json, sse, not {response!r}")
        self._response = response
        self._retry_ms = retry_ms
        self._event_limit = event_limit
        self._streams = itertools.count(1)

    def handle_post(
        self, headers: Mapping[str, str], body: bytes, *, gone: Gone | None = None
    ) -> HttpReply:
        """Respond to a POST.

        The method waits for the result, unless the response is an event stream.

        Args:
            headers: The request's headers.
            body: The request's body.
            gone: Returns whether the client has closed the connection. It is called every 50 ms
                while waiting. Without `gone`, a closed connection is noticed only when writing
                fails.
        """
        return self._answer(headers, partial(self._post, body, gone))

    def handle_get(self, headers: Mapping[str, str], *, gone: Gone | None = None) -> HttpReply:
        """Respond to a GET with the session's own event stream.

        With `Last-Event-ID`, the response resumes an earlier stream.

        Args:
            headers: The request's headers.
            gone: See `handle_post`.
        """
        return self._answer(headers, partial(self._get, gone))

    def handle_delete(self, headers: Mapping[str, str]) -> HttpReply:
        """Respond to a DELETE: end the session, its calls and streams."""
        return self._answer(headers, self._delete)

    def close(self) -> None:
        """End every session of this endpoint, and the server's subscriptions and open rounds."""
        self.forget_sessions()
        self.server.listeners.end()
        self.server.rounds.close()
        self.server.end_idle_workers()

    def forget_sessions(self) -> None:
        """End every session, as a restart of the server would: their ids become unknown."""
        super().close()

    def _post(self, body: bytes, gone: Gone | None, headers: Mapping[str, str]) -> HttpReply:
        if not _is_json(headers):
            raise _Refused(415, f"Content-Type must be {JSON}")
        if not (_accepts(headers, JSON) and _accepts(headers, EVENTS)):
            raise _Refused(406, f"Accept must list {JSON} and {EVENTS}")
        try:
            message = wire.decode(body)
        except RpcError as error:
            raise _Refused(400, error) from None
        if (
            not isinstance(message, list)
            and wire.expects_answer(message)
            and not _is_request(message)
        ):
            raise _Refused(400, "Not a JSON-RPC 2.0 message", wire.id_of(message))
        if self._is_stateless(headers, message):
            return self._post_stateless(headers, message, gone)
        return self._post_stateful(headers, message, gone)

    def _get(self, gone: Gone | None, headers: Mapping[str, str]) -> HttpReply:
        if self._has_only_post(headers):
            return HttpReply(405, {"allow": "POST"})
        if not _accepts(headers, EVENTS):
            raise _Refused(406, f"Accept must list {EVENTS}")
        found = self._find_session(headers)
        stream, after = found.standalone, None
        last = headers.get("last-event-id")
        if last is not None:
            place = found.find(last)
            if place is None:
                raise _Refused(400, "Unknown Last-Event-ID")
            stream, after = place
        return self._resumable(found, self._body(stream, after, gone))

    def _delete(self, headers: Mapping[str, str]) -> HttpReply:
        if self._has_only_post(headers):
            return HttpReply(405, {"allow": "POST"})
        self._end_session(self._find_session(headers))
        return HttpReply(204)

    # 2026-07-28

    def _has_only_post(self, headers: Mapping[str, str]) -> bool:
        return not self.server.stateful or headers.get(VERSION) in wire.STATELESS

    def _is_stateless(self, headers: Mapping[str, str], message: Any) -> bool:
        if self.server.stateless and self._has_only_post(headers):
            return True
        is_stateless = self.server._is_stateless
        return isinstance(message, dict) and is_stateless(message, in_session=SESSION in headers)

    def _post_stateless(
        self, headers: Mapping[str, str], message: Any, gone: Gone | None
    ) -> HttpReply:
        server = self.server
        if not isinstance(message, dict) or "method" not in message:
            raise _Refused(400, "Send one request or notification", wire.id_of(message))
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
                raise server._unsupported(wanted)
            _check_headers(headers, message, server.features.tools)
            call = server._admit_stateless(message, outlet)
            if not server._has_handler(call):
                raise RpcError(wire.METHOD_NOT_FOUND, f"Method not found: {call.method}")
        except RpcError as error:
            server.stats._count(replies=1, errors=1)
            raise _Refused(_STATUSES.get(error.code, 400), error, identifier) from None

        def closed(whole: bool) -> None:
            # In 2026-07-28 a client cancels a request by closing its stream.
            if not whole and call.cancel("the client closed the stream"):
                server.stats._count(disconnects=1)

        body = self._body(stream, None, gone)
        body.at_close(closed)
        server._start(call)
        if call.method == LISTEN:
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
        if isinstance(message, list):
            try:
                wire.check_batch(message, found.session.revision, self.server.batches)
            except RpcError as error:
                raise _Refused(400, error) from None
        members = message if isinstance(message, list) else [message]
        stream = self._new_stream(self._event_limit)
        body = self._body(stream, None, gone)
        outlet = _PostOutlet(stream, {}, pausable=found.polling and self._response != "json")
        found.session.take(message, outlet, together=self._response == "json")
        if not any(wire.expects_answer(member) for member in members):
            return HttpReply(202)
        return self._reply(body, outlet, lambda body: self._resumable(found, body))

    def _initialize(self, message: Message, gone: Gone | None) -> HttpReply:
        found = _HttpSession(self.server, self._new_stream(self._event_limit), self._event_limit)
        stream = self._new_stream(self._event_limit)
        outlet = _PostOutlet(stream, {})
        body = self._body(stream, None, gone)
        found.session.take(message, outlet)
        if found.session.revision is None:
            found.session.close()
            outlet.status = 400
            return self._json_reply(body, outlet)
        self._add_session(found)
        reply = self._reply(body, outlet, lambda body: self._resumable(found, body))
        reply.headers["mcp-session-id"] = found.id
        return reply

    def _find_session(self, headers: Mapping[str, str], message: Any = None) -> _HttpSession:
        """Return the session that the headers name."""
        identifier = message.get("id") if isinstance(message, dict) else None
        session_id = headers.get(SESSION)
        if session_id is None:
            raise _Refused(400, "Mcp-Session-Id is missing; initialize first", identifier)
        with self._lock:
            found = self._sessions.get(session_id)
        if found is None:
            raise _Refused(404, "Session not found", identifier)
        version = headers.get(VERSION)
        if version is not None and version not in self.server.stateful:
            raise _Refused(400, f"Unsupported MCP-Protocol-Version: {version}", identifier)
        return found

    # Answers

    def _new_stream(self, limit: int = 0) -> EventStream:
        return EventStream(f"{next(self._streams)}", limit)

    def _reply(
        self, body: EventBody, outlet: _PostOutlet, as_events: Callable[[EventBody], HttpReply]
    ) -> HttpReply:
        """Respond with JSON or an event stream, as `response` demands."""
        if self._response == "sse":
            return as_events(body)
        if self._response == "auto":
            first = body.wait_first()
            if first is not None and not (isinstance(first, Event) and first.final):
                return as_events(body)
        return self._json_reply(body, outlet)

    def _json_reply(self, body: EventBody, outlet: _PostOutlet) -> HttpReply:
        answer = body.wait_final()
        if answer is None:
            # Cancelled: an event stream that ends without a response.
            return HttpReply(200, {"content-type": EVENTS})
        return HttpReply(outlet.status, {"content-type": JSON}, answer.data)

    def _resumable(self, found: _HttpSession, body: EventBody) -> HttpReply:
        """Respond with an event stream that can be resumed."""
        found.add(body.stream)
        body.enable_ids(priming=found.polling, retry_ms=self._retry_ms)
        return self._events(body)


class _HttpSession:
    """A session with its own event stream, and the latest streams that can be resumed."""

    def __init__(self, server: Server, standalone: EventStream, limit: int = 0) -> None:
        self.id = secrets.token_urlsafe(32)
        self.standalone = standalone
        self._limit = limit
        self._lock = threading.Lock()  # Guards `_streams`.
        self._streams: dict[str, EventStream] = {}
        self.session: Session = server.open_session(
            lambda message: standalone.append(wire.encode(message)), self.id
        )

    def close(self) -> None:
        self.session.close()
        with self._lock:
            streams = [self.standalone, *self._streams.values()]
        for stream in streams:
            stream.finish()

    def add(self, stream: EventStream) -> None:
        """Make a stream resumable; beyond the limit, the oldest stream is no longer resumable."""
        with self._lock:
            self._streams[stream.name] = stream
            if len(self._streams) > self._limit:
                del self._streams[next(iter(self._streams))]

    def find(self, event_id: str) -> tuple[EventStream, int] | None:
        """Return the stream of an event id and the event's number there, or `None`."""
        name, _, number = event_id.rpartition("-")
        with self._lock:
            stream = {**self._streams, self.standalone.name: self.standalone}.get(name)
        return (stream, int(number)) if stream is not None and number.isdecimal() else None

    @property
    def polling(self) -> bool:
        """Whether streams begin with a priming event and may be closed early (2025-11-25)."""
        revision = self.session.revision
        return revision is not None and wire.since(revision, "2025-11-25")


class _PostOutlet(wire.Outlet):
    """Sends the messages that belong to one POST to its event stream."""

    def __init__(
        self, stream: EventStream, statuses: Mapping[int, int], *, pausable: bool = False
    ) -> None:
        super().__init__(lambda message: stream.append(wire.encode(message)))
        self.status = 200
        self._stream = stream
        self._statuses = statuses
        self._pausable = pausable

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


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").partition(";")[0].strip().lower() == JSON


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


# The request headers of 2026-07-28, which repeat parts of the body.


_NAME_MEMBERS = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_START, _END = "=?base64?", "?="


def _check_headers(headers: Mapping[str, str], message: Message, tools: Mapping[str, Tool]) -> None:
    """Compare the headers (names in lower case) with the body; raise `RpcError` (-32020)."""
    params = message.get("params")
    params = params if isinstance(params, dict) else {}
    version = wire.meta_of(params).get(wire.PROTOCOL_VERSION)
    if isinstance(version, str):
        _require_equal("MCP-Protocol-Version", headers.get(VERSION), version)
    _require_equal("Mcp-Method", headers.get("mcp-method"), message.get("method"))
    member = _NAME_MEMBERS.get(str(message.get("method")))
    if member is not None and isinstance(params.get(member), str):
        _require_equal("Mcp-Name", _decode("Mcp-Name", headers.get("mcp-name")), params[member])
    if message.get("method") == "tools/call":
        tool = tools.get(str(params.get("name")))
        if tool is not None:
            _check_parameters(headers, tool.input_schema, params.get("arguments"))


def _check_parameters(headers: Mapping[str, str], schema: Message, arguments: Any) -> None:
    for header, path in _header_parameters(schema, ()):
        value = arguments
        for step in path:
            value = value.get(step) if isinstance(value, dict) else None
        name = f"Mcp-Param-{header}"
        given = _decode(name, headers.get(name.lower()))
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        text = value if value is None or isinstance(value, str) else json.dumps(value)
        _require_equal(name, given, text)


def _header_parameters(schema: Any, path: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    properties = schema.get("properties") if isinstance(schema, dict) else None
    for name, inner in (properties if isinstance(properties, dict) else {}).items():
        if isinstance(inner, dict) and isinstance(inner.get("x-mcp-header"), str):
            yield inner["x-mcp-header"], (*path, name)
        yield from _header_parameters(inner, (*path, name))


def _require_equal(name: str, given: str | None, expected: object) -> None:
    if given != expected:
        problem = "missing" if given is None else f"{given!r}, but the body says {expected!r}"
        raise RpcError(wire.HEADER_MISMATCH, f"{name} is {problem}")


def _decode(name: str, value: str | None) -> str | None:
    """Decode a header value that is marked as Base64; return other values unchanged."""
    if value is None or not (value.startswith(_START) and value.endswith(_END)):
        return value
    try:
        return base64.b64decode(value[len(_START) : -len(_END)], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise RpcError(wire.HEADER_MISMATCH, f"{name} is not valid Base64") from error


# HTTP+SSE (2024-11-05): one event stream for each session; the client posts its messages.


_SESSION_PARAMETER = "session"


class SseEndpoint(_Endpoint):
    """The two HTTP+SSE endpoints of a server, which any HTTP server may call, from any thread.

    Args:
        server: The server.
        messages: The URL for messages that is sent on the stream, relative to the stream's URL.
        keep_alive: The seconds without an event after which a comment is sent; `None` for never.
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
        super().__init__(server, keep_alive, allowed_hosts)
        self._messages = messages

    def handle_get(self, headers: Mapping[str, str], *, gone: Gone | None = None) -> HttpReply:
        """Respond to a GET: open a session, whose event stream is the response.

        Args:
            headers: The request's headers.
            gone: See `HttpEndpoint.handle_post`.
        """
        return self._answer(headers, lambda _: self._open(gone))

    def handle_post(self, headers: Mapping[str, str], body: bytes, query: str) -> HttpReply:
        """Respond to a POST: process a message.

        The JSON-RPC response is sent on the session's event stream.

        Args:
            headers: The request's headers.
            body: The request's body.
            query: The query string of the request's URL.
        """
        return self._answer(headers, partial(self._post, body, query))

    def _open(self, gone: Gone | None) -> HttpReply:
        if not self.server.stateful:
            return HttpReply(405)
        found = _HttpSession(self.server, EventStream("sse"))
        body = self._body(found.standalone, None, gone)
        address = f"{self._messages}?{_SESSION_PARAMETER}={found.id}"
        body.prelude = format_event(address.encode(), event="endpoint")
        self._add_session(found)
        reply = self._events(body)
        body.at_close(lambda _: self._end_session(found))
        return reply

    def _post(self, body: bytes, query: str, headers: Mapping[str, str]) -> HttpReply:
        if not _is_json(headers):
            return HttpReply(415)
        with self._lock:
            found = self._sessions.get("".join(parse_qs(query).get(_SESSION_PARAMETER, ())))
        if found is None:
            return HttpReply(404, {"content-type": "text/plain"}, b"Session not found")
        found.session.receive(body)
        return HttpReply(202, {"content-type": "text/plain"}, b"Accepted")
