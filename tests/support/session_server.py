"""A server of sessions that a test forgets at will; it counts what each session was asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.stage import PATIENCE, STATEFUL
from tests.transports.http_peer import RawServer, Request, serving

Answer = Callable[[Request], bool]
"""Answers a request and returns `True`, or leaves it to the server."""


def on(*words: bytes, act: Callable[[Request], object]) -> Answer:
    """Do `act` to the requests that hold one of the words; leave the others to the server."""

    def answer(one: Request) -> bool:
        if not any(word in one.body for word in words):
            return False
        act(one)
        return True

    return answer


def refuse(one: Request, code: int = -32602) -> None:
    """Answer with an error."""
    error = {"code": code, "message": "no"}
    one.connection.json({"jsonrpc": "2.0", "id": one.id, "error": error})


class SessionServer:
    """Knows one session at a time, and none but that.

    Attributes:
        url: Its address.
        seen: What came, by session and method; a GET and a DELETE by those names.
        requests: The same, with their parameters, in order.
        known: The session that it knows.
        revision: What it answers to `initialize`.
        capabilities: What it says that it can do.
        listeners: Whether a GET is answered by a stream, which then stays open.
        before: Asked first what becomes of a request.
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
        # Guards all of it, and tells those who wait.
        self._changed = threading.Condition()

    def count(self, method: str) -> int:
        """How often a method was asked for, in all sessions."""
        with self._changed:
            return sum(times for (_, name), times in self.seen.items() if name == method)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds; it is looked at whenever something has come."""
        with self._changed:
            assert self._changed.wait_for(condition, PATIENCE)

    def forget(self) -> None:
        """Know no session."""
        with self._changed:
            self.known = ""

    def answer(self, one: Request) -> None:
        """The script."""
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
        """Answer with a result."""
        one.connection.json({"jsonrpc": "2.0", "id": one.id, "result": result}, headers=headers)


class FirstStreamLost:
    """The `before` of a server whose first event stream is lost, without ids, and whose next stays.

    Attributes:
        ended: Set by the test: the first stream ends, and the next one may begin.
        stream: The stream that stays.
    """

    def __init__(self, status: int = 200) -> None:
        """`status` answers the first GET; 200 stands for a stream that lasts until `ended`."""
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
    """A server that runs until the context ends."""
    server = SessionServer()
    raw: RawServer
    with serving(server.answer) as raw:
        server.url = raw.url
        yield server
