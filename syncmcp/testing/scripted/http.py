"""A raw HTTP/1.1 server whose answers are written by a script, byte for byte."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, BinaryIO

from syncmcp.testing.script import Script, Step
from syncmcp.testing.scripted.player import (
    Gone,
    Inbox,
    Incoming,
    Received,
    ScriptError,
    Transcript,
    encode,
    method_of,
)

_EVENTS = "text/event-stream"
_JSON = "application/json"


class HttpStage:
    """Listens on loopback; requests the script expects go to `inbox`.

    Attributes:
        url: The endpoint.
        accepted: TCP connections accepted so far.
    """

    def __init__(self, script: Script, inbox: Inbox, transcript: Transcript) -> None:
        self.accepted = 0
        self._expected = set(_expected(script))
        self._inbox = inbox
        self._transcript = transcript
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self._lock = threading.Lock()  # Guards the two below.
        self._open: dict[Connection, threading.Thread] = {}
        self._closing = False
        self._thread = threading.Thread(
            target=self._accept, name="syncmcp-testing-http", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening and cut every connection."""
        with self._lock:
            self._closing = True
            connections = dict(self._open)
        # A connection of our own wakes the accepting thread on every platform.
        socket.create_connection(("127.0.0.1", self._port)).close()
        self._thread.join(5)
        self._listener.close()
        for connection, thread in connections.items():
            connection.cut(reset=False)
            thread.join(5)

    def take(self, exchange: Exchange, message: Any, method: str) -> None:
        """Give a request to the script, or answer one it never speaks of."""
        if method in self._expected:
            self._inbox.put(Incoming(message, method, exchange))
        elif method == "GET":
            exchange.answer_empty(405)
        elif method == "DELETE":
            exchange.answer_empty(200)
        elif isinstance(message, dict) and "id" not in message:
            exchange.answer_empty(202)

    def _accept(self) -> None:
        for number in itertools.count():
            accepted, _ = self._listener.accept()
            with self._lock:
                if self._closing:
                    accepted.close()
                    return
                self.accepted += 1
                connection = Connection(accepted, number, self, self._transcript)
                thread = threading.Thread(
                    target=self._serve,
                    args=(connection,),
                    name="syncmcp-testing-connection",
                    daemon=True,
                )
                self._open[connection] = thread
            self._transcript.add_event("connected")
            thread.start()

    def _serve(self, connection: Connection) -> None:
        connection.serve()
        with self._lock:
            self._open.pop(connection, None)


class Connection:
    """One TCP connection: reads requests until the client hangs up."""

    def __init__(
        self, accepted: socket.socket, number: int, stage: HttpStage, transcript: Transcript
    ) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.gone = threading.Event()
        self._socket = accepted
        self._number = number
        self._stage = stage
        self._transcript = transcript
        self._cut = False

    def serve(self) -> None:
        """Read requests; note when the client ends the connection."""
        try:
            with self._socket.makefile("rb") as stream:
                while self._read(stream):
                    pass
        except (OSError, ValueError):
            pass  # A reset, or our own cut: the end of the connection either way.
        if not self._cut:
            self._transcript.add_event("disconnected")
        self.gone.set()
        self._socket.close()

    def write(self, data: bytes) -> None:
        """Write bytes. Raises `OSError` when the connection has ended."""
        self._socket.sendall(data)

    def cut(self, *, reset: bool) -> None:
        """End the connection, in order or by a reset."""
        self._cut = True
        try:
            if reset:
                self._socket.setsockopt(
                    socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
                )
                # Closed for good only when the reader lets go of it too.
                self._socket.shutdown(socket.SHUT_RD)
            else:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The client was quicker.

    def _read(self, stream: BinaryIO) -> bool:
        """Read one request; return whether there was one."""
        start = stream.readline()
        if not start:
            return False
        verb, path, _ = start.decode("latin-1").split(" ", 2)
        headers: dict[str, str] = {}
        while line := stream.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = stream.read(int(headers.get("content-length", "0")))
        message: Any = None
        method = verb
        if body:
            try:
                message = json.loads(body)
                method = method_of(message)
            except ValueError:
                message, method = body.decode("latin-1"), "invalid"
        self._transcript.add_received(
            Received(message, method, self._number, f"{verb} {path}", headers)
        )
        self._stage.take(Exchange(self), message, method)
        return True


class Exchange:
    """One request and its response, as the channel of a script."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begun = False
        self._chunked = False
        self._events = False

    def frame(self, value: Any, final: bool) -> bytes:
        """Return `value` as a JSON response, or as an event once there is a stream."""
        if not self._begun and final:
            self._begun = True
            return self._head(200, {"content-type": _JSON}, encode(value))
        opening = b""
        if not self._begun:
            opening = self._open(200, {"content-type": _EVENTS}, chunked=True)
        data = encode(value)
        piece = self._piece(b"data: " + data + b"\n\n" if self._events else data)
        return opening + piece + (self._end() if final else b"")

    def write(self, data: bytes) -> None:
        """Write bytes as they are."""
        self._connection.write(data)

    def wait(self, seconds: float | None) -> None:
        """Wait; raises `Gone` as soon as the client has hung up."""
        if self._connection.gone.wait(seconds):
            raise Gone

    def cut(self, step: Step) -> None:
        """Cut the TCP connection."""
        self._connection.cut(reset=step["reset"])

    def play(self, step: Step) -> bytes:
        """Return what a step writes that only HTTP has."""
        kind = step["do"]
        if kind == "accept":
            self._begun = True
            return self._head(step["status"], {}, b"")
        if kind == "head":
            return self._open(step["status"], step["headers"], chunked=step["chunked"])
        if kind not in ("chunk", "event", "end"):
            raise ScriptError(f"{kind} has no meaning over HTTP")
        opening = b""
        if not self._begun:
            opening = self._open(200, {}, chunked=True)
        if kind == "chunk":
            return opening + self._piece(step["data"].encode("latin-1"))
        if kind == "event":
            return opening + self._piece(_event(step))
        return opening + self._end()

    def answer_empty(self, status: int) -> None:
        """Answer with a status alone."""
        try:
            self._connection.write(self._head(status, {}, b""))
        except OSError:
            return  # The client has gone; its connection says so.

    def _open(self, status: int, headers: dict[str, str], *, chunked: bool) -> bytes:
        self._begun = True
        named = {name.lower(): value for name, value in headers.items()}
        named.setdefault("content-type", _EVENTS)
        self._events = named["content-type"].startswith(_EVENTS)
        self._chunked = chunked
        if chunked:
            named.setdefault("transfer-encoding", "chunked")
        return _lines(status, named)

    def _head(self, status: int, headers: dict[str, str], body: bytes) -> bytes:
        return _lines(status, {**headers, "content-length": str(len(body))}) + body

    def _piece(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _end(self) -> bytes:
        return b"0\r\n\r\n" if self._chunked else b""


def _lines(status: int, headers: dict[str, str]) -> bytes:
    known = {entry.value: entry.phrase for entry in HTTPStatus}
    lines = [f"HTTP/1.1 {status} {known.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _event(step: Step) -> bytes:
    lines: list[bytes] = []
    if step["kind"] is not None:
        lines.append(f"event: {step['kind']}".encode())
    if step["identifier"] is not None:
        lines.append(f"id: {step['identifier']}".encode())
    if step["retry"] is not None:
        lines.append(f"retry: {step['retry']}".encode())
    value = step["value"]
    if value is not None:
        data = value.encode() if isinstance(value, str) else encode(value)
        lines += [b"data: " + line for line in data.split(b"\n")]
    return b"\n".join(lines) + b"\n\n"


def _expected(script: Iterable[Step]) -> Iterable[str]:
    for step in script:
        if step["do"] == "expect":
            yield step["method"]
        elif step["do"] == "repeat":
            yield from _expected(step["steps"])
        elif step["do"] in ("drip", "part"):
            yield from _expected([step["step"]])
