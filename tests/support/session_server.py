"""An HTTP server with one session, which a test can end; it counts the requests of each session."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.stage import PATIENCE, STATEFUL
from tests.transports.http_peer import RawServer, Request, serving

Answer = Callable[[Request], bool]
"""Answers a request and returns True, or returns False: the server answers."""


def on(*words: bytes, act: Callable[[Request], object]) -> Answer:
    """Return an `Answer` that calls `act` for the requests whose body contains one of `words`."""

    def answer(one: Request) -> bool:
        if not any(word in one.body for word in words):
            return False
        act(one)
        return True

    return answer


def refuse(one: Request, code: int = -32602) -> None:
    """Answer a request with an error."""
    error = {"code": code, "message": "no"}
    one.connection.json({"jsonrpc": "2.0", "id": one.id, "error": error})


class SessionServer:
    """A server that has one session at a time; requests of other sessions get status 404.

    Attributes:
        url: Its address.
        seen: The number of requests by session and method; the methods include GET and DELETE.
        requests: Session, method and parameters of each request, in order.
        known: The id of the session.
        revision: The revision in the result of `initialize`.
        capabilities: The capabilities in that result.
        listens: True if a GET opens a stream, which stays open; False if it gets status 405.
        before: Called first for each request; may answer it.
    """

    def __init__(self) -> None:
        self.url = ""
        self.seen: Counter[tuple[str, str]] = Counter()
        self.requests: list[tuple[str, str, Any]] = []
        self.known = "session-0"
        self.revision = STATEFUL
        self.capabilities: dict[str, Any] = {
            "tools": {},
            "logging": {},
            "resources": {"subscribe": True},
        }
        self.listens = False
        self.before: Answer = lambda one: False
        # Guards the attributes, and notifies waiting threads of each request.
        self._changed = threading.Condition()

    def count(self, method: str) -> int:
        """Return the number of requests of a method, in all sessions."""
        with self._changed:
            return sum(times for (_, name), times in self.seen.items() if name == method)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true; it is evaluated again after each request."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE)

    def forget(self) -> None:
        """End the session without notice."""
        with self._changed:
            self.known = ""

    def answer(self, one: Request) -> None:
        """Record a request, and answer it."""
        session = one.headers.get("mcp-session-id", "")
        message = one.message if one.body else {}
        method = message.get("method", one.method)
        with self._changed:
            self.seen[session, method] += 1
            self.requests.append((session, method, message.get("params")))
            known = session == self.known
            self._changed.notify_all()
        if self.before(one):
            return
        if method == "initialize":
            self._begin(one)
        elif not known:
            one.connection.respond(404)
        elif method == "GET" and self.listens:
            one.connection.start_events()
        elif method in ("GET", "DELETE"):
            one.connection.respond(405)
        elif one.id is None:
            one.connection.respond(202)
        else:
            self.result(one, {"content": [{"type": "text", "text": session}], "tools": []})

    def _begin(self, one: Request) -> None:
        with self._changed:
            begun = sum(times for (_, name), times in self.seen.items() if name == "initialize")
            self.known = f"session-{begun}"
        result = {
            "protocolVersion": self.revision,
            "capabilities": self.capabilities,
            "serverInfo": {"name": self.known, "version": "1"},
        }
        self.result(one, result, {"Mcp-Session-Id": self.known})

    def result(self, one: Request, result: Any, headers: dict[str, str] | None = None) -> None:
        """Answer a request with a result."""
        one.connection.json({"jsonrpc": "2.0", "id": one.id, "result": result}, headers=headers)


class FirstStreamLost:
    """A `before` of a server that loses its first event stream, and keeps the next one open.

    Attributes:
        ended: Set by the test, to end the first stream and to allow the next one.
        stream: The request that opened the stream that stays open.
    """

    def __init__(self, status: int = 200) -> None:
        """Answer the first GET with `status`; 200 opens a stream that lasts until `ended`."""
        self.ended = threading.Event()
        self.stream: Request | None = None
        self._first: int | None = status

    def __call__(self, one: Request) -> bool:
        if one.method != "GET":
            return False
        status, self._first = self._first, None
        if status is not None and status != 200:
            one.connection.respond(status)
            return True
        if status is None:
            assert self.ended.wait(PATIENCE)
            self.stream = one
        one.connection.start_events()
        if status is not None:
            assert self.ended.wait(PATIENCE)
            one.connection.close()
        return True


@contextmanager
def session_server() -> Iterator[SessionServer]:
    """Run a `SessionServer` until the block ends."""
    server = SessionServer()
    raw: RawServer
    with serving(server.answer) as raw:
        server.url = raw.url
        yield server
