"""A server of 2024-11-05 for `RawServer`: event streams, and a URL for messages."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import syncmcp
from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.transports.sse import SseTransport
from tests.transports.http_peer import WAIT, Connection, FakeReceiver, RawServer, Request, serving

ADDRESS = "/messages?session=5ecre7"
STARTED = {
    "protocolVersion": "2024-11-05",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old", "version": "1"},
}


class OldServer:
    """Answers `initialize` and tool calls; tests can change its attributes.

    Attributes:
        address: The URL for messages in the first event of a stream.
        prelude: Bytes before that event.
        status: Status and body of the response to the POST of a tool call.
        answers: Whether tool calls are answered on the stream.
        streams: The streams opened so far.
        closes: Whether streams have the header `Connection: close`.
        calls: The ids of the received tool calls.
        refuse_post: Status and body of the response to a POST to the stream's own URL.
    """

    def __init__(self) -> None:
        self.address: str | None = ADDRESS
        self.prelude = b""
        self.status: tuple[int, bytes] = (202, b"")
        self.answers = True
        self.closes = False
        self.streams: list[Connection] = []
        self.calls: list[Any] = []
        self.refuse_post: tuple[int, bytes] = (405, b"")
        self.server: RawServer
        self._changed = threading.Condition()  # also guards writes to streams

    def __call__(self, request: Request) -> None:
        if request.method == "GET":
            self.open_stream(request)
        elif request.path == "/mcp":
            request.connection.respond(*self.refuse_post)
        else:
            self.take(request)

    def open_stream(self, request: Request) -> None:
        connection = request.connection
        headers = {"Content-Type": "text/event-stream; charset=utf-8"}
        connection.start_events({**headers, "Connection": "close"} if self.closes else headers)
        with self._changed:
            self.streams.append(connection)
            if self.prelude:
                connection.chunk(self.prelude)
            if self.address is not None:
                connection.chunk(f"event: endpoint\r\ndata: {self.address}\r\n\r\n".encode())
            self._changed.notify_all()

    def take(self, request: Request) -> None:
        method = request.message.get("method")
        status, body = self.status if method == "tools/call" else (202, b"")
        request.connection.respond(status, body)
        with self._changed:
            self.calls += [request.id] * (method == "tools/call")
            self._changed.notify_all()
        if method == "initialize":
            self.tell({"id": request.id, "result": STARTED})
        elif method == "tools/call" and self.answers and status == 202:
            self.answer(request.id)

    def answer(self, id: Any, text: str = "done") -> None:
        self.tell({"id": id, "result": {"content": [{"type": "text", "text": text}]}})

    def tell(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message})
        self.write(f"event: message\ndata: {body}\n\n".encode())

    def write(self, data: bytes) -> None:
        with self._changed:
            self.streams[-1].chunk(data)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WAIT)

    def wait_for_calls(self, count: int) -> None:
        self.wait_for(lambda: len(self.calls) >= count)

    def requests(self, method: str) -> list[Request]:
        return [request for request in self.server.requests if request.method == method]

    def posted(self, method: str) -> list[Request]:
        """Return the messages of this method that were posted to the URL for messages."""
        return [
            request
            for request in self.requests("POST")
            if request.path != "/mcp" and request.message.get("method") == method
        ]


@contextmanager
def old_server(tls: ssl.SSLContext | None = None) -> Iterator[OldServer]:
    old = OldServer()
    with serving(old, tls) as old.server:
        yield old


def target(old: OldServer, **options: Any) -> Http:
    return Http(old.server.url, transport="sse", **options)


@contextmanager
def connected(old: OldServer, http: Http | None = None, **options: Any) -> Iterator[syncmcp.Client]:
    """Open a client that uses this transport only."""
    with syncmcp.connect(http or target(old), **options) as client:
        yield client


@contextmanager
def opened(old: OldServer, **options: Any) -> Iterator[tuple[SseTransport, FakeReceiver]]:
    """Open a transport without a client, with a receiver that records."""
    transport, receiver = SseTransport(target(old, **options)), FakeReceiver()
    transport.open(receiver, Deadline(WAIT))
    try:
        yield transport, receiver
    finally:
        transport.close(Deadline(WAIT))
