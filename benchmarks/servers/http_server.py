"""The server over Streamable HTTP: it prints its port and ends with stdin.

``/json/REVISION`` answers with a JSON body, ``/sse/REVISION`` with a stream of one event for each
frame. ``/count`` returns the number of connections so far. One event loop runs on one thread, so
that many calls can sleep at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from typing import Any

from benchmarks.servers.answers import STATELESS, Answer, Answers

_SESSION = b"bench-session"
_COUNT = "/count"


class HttpServer:
    """The state that all connections share."""

    def __init__(self) -> None:
        self._answers: dict[str, Answers] = {}
        self.connections = 0

    def answers(self, revision: str) -> Answers:
        """Return the answers for this revision."""
        return self._answers.setdefault(revision, Answers(revision))


class Connection(asyncio.Protocol):
    """One connection, open until the client closes it, with one request at a time."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = transport
        self._server.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (end := self._received.find(b"\r\n\r\n")) >= 0:
            head = bytes(self._received[:end])
            size = _content_length(head)
            if len(self._received) < end + 4 + size:
                return
            body = bytes(self._received[end + 4 : end + 4 + size])
            del self._received[: end + 4 + size]
            method, path, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            self._serve(method, path, body)

    def _serve(self, method: str, path: str, body: bytes) -> None:
        if path == _COUNT:
            self._send(_body(b"200 OK", str(self._server.connections).encode()))
        elif method != "POST":
            self._send(_body(b"405 Method Not Allowed", b""))
        else:
            self._post(path, json.loads(body))

    def _post(self, path: str, message: Any) -> None:
        _, wire, revision = path.split("/")
        answers = self._server.answers(revision)
        batch = isinstance(message, list)
        answer = answers.answer_all(message) if batch else answers.answer(message)
        if answer is None:
            self._send(_body(b"202 Accepted", b""))
            return
        stateful = revision != STATELESS
        session = not batch and message["method"] == "initialize" and stateful
        extra = b"Mcp-Session-Id: " + _SESSION + b"\r\n" if session else b""
        if wire == "sse" and not answer.refused:
            response = _events(answer, extra)
        else:
            status = b"404 Not Found" if answer.refused and not stateful else b"200 OK"
            response = _body(status, answer.frames[-1], extra)
        if answer.delay:
            asyncio.get_running_loop().call_later(answer.delay, self._send, response)
        else:
            self._send(response)

    def _send(self, response: bytes) -> None:
        if self._transport is not None:
            self._transport.write(response)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _body(status: bytes, body: bytes, extra: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n%b" % (
        status,
        extra,
        len(body),
        body,
    )


def _events(answer: Answer, extra: bytes) -> bytes:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
        b"%bTransfer-Encoding: chunked\r\n\r\n" % extra
    )
    events = [b"event: message\ndata: %b\n\n" % frame for frame in answer.frames]
    return b"".join([head, *(b"%x\r\n%b\r\n" % (len(e), e) for e in events), b"0\r\n\r\n"])


async def _main() -> None:
    loop = asyncio.get_running_loop()
    shared = HttpServer()
    server = await loop.create_server(lambda: Connection(shared), "127.0.0.1", 0, backlog=512)
    async with server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await loop.run_in_executor(None, os.read, 0, 1)


if __name__ == "__main__":
    asyncio.run(_main())
