"""The HTTP+SSE half (2024-11-05) as a plain object: one stream per session, messages are posted."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from urllib.parse import parse_qs

from syncmcp.testing.server import wire
from syncmcp.testing.server.events import EventBody, EventStore, EventStream, format_event
from syncmcp.testing.server.http import EVENTS, JSON, Gone, HttpReply, foreign, lower
from syncmcp.testing.server.server import Server
from syncmcp.testing.server.session import Session

_PARAMETER = "session"


class SseEndpoint:
    """A server's pair of addresses, to be called by any HTTP server, from any thread.

    Args:
        server: The server.
        messages: The address for messages that the stream names, relative to its own.
        keep_alive: Seconds of silence after which a comment is sent.
        allowed_hosts: Host names accepted in `Host` and `Origin`; `None` accepts all.
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
        """Answer a GET with a stream, which is a session of its own.

        Args:
            headers: The request's headers.
            gone: See `HttpEndpoint.handle_post`.
        """
        refused = foreign(lower(headers), self._allowed_hosts)
        if refused is not None:
            return refused
        if not self.server.stateful:
            return HttpReply(405)
        identifier = secrets.token_urlsafe(32)
        stream = EventStream(identifier)
        EventStore(0).add(stream)  # nothing is replayed
        body = EventBody(stream, after=None, gone=gone, keep_alive=self._keep_alive)
        address = f"{self._messages}?{_PARAMETER}={identifier}"
        body.begin(format_event(address.encode(), event="endpoint"))
        session = self.server.open_session(
            lambda message: stream.append(wire.encode(message)), identifier
        )
        with self._lock:
            self._sessions[identifier] = session, stream
        with self.server.stats as stats:
            stats.streams += 1
        body.at_close(self._end(identifier))
        return HttpReply(200, {"content-type": EVENTS, "cache-control": "no-cache"}, body)

    def handle_post(self, headers: Mapping[str, str], body: bytes, query: str) -> HttpReply:
        """Take a message; whatever comes of it goes to the stream.

        Args:
            headers: The request's headers.
            body: Its body.
            query: What stands behind the question mark of its address.
        """
        headers = lower(headers)
        refused = foreign(headers, self._allowed_hosts)
        if refused is not None:
            return refused
        if headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return HttpReply(415)
        with self._lock:
            found = self._sessions.get("".join(parse_qs(query).get(_PARAMETER, ())))
        if found is None:
            return HttpReply(404, {"content-type": "text/plain"}, b"Session not found")
        found[0].receive(body)
        return HttpReply(202, {"content-type": "text/plain"}, b"Accepted")

    def close(self) -> None:
        """End every session opened here."""
        with self._lock:
            sessions = list(self._sessions.values())
        for session, stream in sessions:
            session.close()
            stream.finish()

    def _end(self, identifier: str) -> Callable[[bool], None]:
        def end(whole: bool) -> None:
            with self._lock:
                session, _ = self._sessions.pop(identifier)
            with self.server.stats as stats:
                stats.streams -= 1
            session.close()

        return end
