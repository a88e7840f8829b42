"""An HTTP/1.1 server on loopback, for a function that responds to requests."""

from __future__ import annotations

import socket
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import BinaryIO, NamedTuple

from syncmcp._base.origin import split_url
from syncmcp.testing.listener import (
    HeadTooLong,
    Listener,
    RequestHead,
    format_head,
    read_request_head,
)
from syncmcp.testing.server.events import EventBody, HttpReply

_MAX_BODY_SIZE = 64 * 1024 * 1024


class HttpRequest(NamedTuple):
    """An HTTP request, with the names of its headers in lower case."""

    verb: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes = b""
    gone: Callable[[], bool] | None = None
    """A function that returns whether the client has closed the connection, without blocking."""


Answer = Callable[[HttpRequest], HttpReply]


def listen_http(answer: Answer, port: int = 0) -> Listener:
    """Return a listener that responds by `answer`, with a thread for each connection."""

    def serve(connection: socket.socket) -> None:
        # Tests have clients that disconnect during a request; that is not an error here.
        with suppress(OSError):
            try:
                _Connection(connection, answer).serve()
            finally:
                connection.shutdown(socket.SHUT_WR)

    return Listener(lambda connection, _: partial(serve, connection), port)


def find_foreign_host(headers: Mapping[str, str], allowed: Container[object]) -> str | None:
    """Return an error if host or origin is not allowed: web pages must not reach the server."""
    host = split_url(f"//{headers.get('host', '')}").hostname
    if host not in allowed:
        return f"Host not allowed: {host}"
    origin = headers.get("origin")
    if origin is not None and split_url(origin).hostname not in allowed:
        return f"Origin not allowed: {origin}"
    return None


class _Connection:
    """Responds to the requests of one connection, one after another."""

    def __init__(self, connection: socket.socket, answer: Answer) -> None:
        self._socket = connection
        self._answer = answer
        self._version = ""
        self._closing = False

    def serve(self) -> None:
        """Respond until either side ends the connection."""
        with self._socket.makefile("rb") as stream:
            while not self._closing:
                try:
                    head = read_request_head(stream)
                except HeadTooLong:
                    self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
                except ValueError:
                    self._refuse(HTTPStatus.BAD_REQUEST)
                else:
                    if head is None:
                        return
                    self._answer_one(head, stream)

    def _answer_one(self, head: RequestHead, stream: BinaryIO) -> None:
        wish = head.headers.get("connection", "").lower()
        self._version = head.version
        self._closing = wish != "keep-alive" if head.version == "HTTP/1.0" else wish == "close"
        if head.headers.get("expect", "").lower() == "100-continue":
            self._socket.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = b""
        if head.verb == "POST":
            length = head.headers.get("content-length", "")
            if not length.isdecimal():
                self._refuse(HTTPStatus.LENGTH_REQUIRED)
                return
            if int(length) > _MAX_BODY_SIZE:
                self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
                return
            body = stream.read(int(length))
        path, _, query = head.target.partition("?")
        self._write(
            self._answer(HttpRequest(head.verb, path, query, head.headers, body, self._gone))
        )

    def _refuse(self, status: HTTPStatus) -> None:
        # The rest of the request was not read, so the connection cannot be used again.
        self._closing = True
        self._write(HttpReply(status))

    def _gone(self) -> bool:
        try:
            self._socket.setblocking(False)
            try:
                return not self._socket.recv(1, socket.MSG_PEEK)
            finally:
                self._socket.setblocking(True)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _write(self, reply: HttpReply) -> None:
        body = reply.body
        if isinstance(body, EventBody):
            try:
                self._write_events(reply, body)
            finally:
                body.close()
            return
        length = {} if reply.status == HTTPStatus.NO_CONTENT else {"content-length": str(len(body))}
        # One write: a body in a second packet would wait for the delayed ACK of the first.
        self._socket.sendall(self._response_head(reply, length) + body)

    def _write_events(self, reply: HttpReply, body: EventBody) -> None:
        chunked = self._version == "HTTP/1.1"
        self._closing = self._closing or not chunked
        pending = self._response_head(reply, {"transfer-encoding": "chunked"} if chunked else {})
        if not body.ready:
            # Send the head now: there may be no event for a long time.
            self._socket.sendall(pending)
            pending = b""
        for chunk in body:
            end = b"\r\n0\r\n\r\n" if body.ended else b"\r\n"
            piece = b"%x\r\n%b%b" % (len(chunk), chunk, end) if chunked else chunk
            self._socket.sendall(pending + piece)
            pending = b""
            if body.ended:
                return
        self._socket.sendall(pending + (b"0\r\n\r\n" if chunked else b""))

    def _response_head(self, reply: HttpReply, more: Mapping[str, str]) -> bytes:
        last = {"connection": "close"} if self._closing else {}
        return format_head(reply.status, {**reply.headers, **more, **last})
