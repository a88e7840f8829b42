"""A raw HTTP server that follows a test's script, and a receiver that records."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from requests.adapters import HTTPAdapter

from syncmcp.auth import Deadline
from syncmcp.config import Http
from syncmcp.errors import McpError
from syncmcp.transports.base import Outgoing
from syncmcp.transports.http import HttpTransport
from tests.support.stage import elsewhere

WAIT = 30.0
"""The time limit for anything that should happen soon, in seconds."""


@dataclass
class Request:
    """A received HTTP request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: Connection

    @property
    def message(self) -> Any:
        return json.loads(self.body)

    @property
    def id(self) -> Any:
        return self.message.get("id")


class Connection:
    """A connection to the server, for a script to write any bytes to."""

    def __init__(self, sock: socket.socket, number: int) -> None:
        self.sock = sock
        self.number = number
        self.ended = threading.Event()
        self._buffer = b""

    def read_request(self) -> Request | None:
        """Return the next request, or `None` if the client has closed the connection."""
        while b"\r\n\r\n" not in self._buffer:
            if not self._more():
                return None
        head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        method, path, _ = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"{name} was sent twice"
            headers[name.lower()] = value.strip()
        length = int(headers.get("content-length", "0"))
        while len(self._buffer) < length:
            if not self._more():
                return None
        body, self._buffer = self._buffer[:length], self._buffer[length:]
        return Request(method, path, headers, body, self)

    def _more(self) -> bool:
        try:
            piece = self.sock.recv(65536)
        except OSError:
            piece = b""
        self._buffer += piece
        return bool(piece)

    def wait_for_end(self) -> bool:
        """Wait until the client ends the connection; return whether it did."""
        self.sock.settimeout(WAIT)
        try:
            while self.sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.sock.sendall(data)

    def respond(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)

    def json(
        self, message: Any, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        body = json.dumps(message).encode()
        self.respond(status, body, {"Content-Type": "application/json", **(headers or {})})

    def result(self, request: Request, **headers: str) -> None:
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        self.json({"jsonrpc": "2.0", "id": request.id, "result": {}}, headers=given)

    def stream(self, *parts: Any, end: bool = True) -> None:
        """Write an event stream: bytes as a chunk each, other values as messages."""
        self.start_events()
        for part in parts:
            self.chunk(part) if isinstance(part, bytes) else self.event(part)
        if end:
            self.end_events()

    def start_events(self, headers: Mapping[str, str] | None = None) -> None:
        given = {"Content-Type": "text/event-stream", **(headers or {})}
        lines = ["HTTP/1.1 200 OK", "Transfer-Encoding: chunked"]
        lines += [f"{name}: {value}" for name, value in given.items()]
        self.write("\r\n".join(lines).encode() + b"\r\n\r\n")

    def chunk(self, data: bytes) -> None:
        self.write(b"%x\r\n%b\r\n" % (len(data), data))

    def event(self, message: Any, id: str | None = None) -> None:
        text = f"id: {id}\n" if id is not None else ""
        self.chunk(f"event: message\n{text}data: {json.dumps(message)}\n\n".encode())

    def end_events(self) -> None:
        self.write(b"0\r\n\r\n")

    def hold(self) -> None:
        """Write nothing more, and wait until the client ends the connection."""
        assert self.wait_for_end()

    def shut_down(self) -> None:
        """Stop reads and writes of the connection's thread, which then closes the socket."""
        # `SSLSocket.shutdown` would remove the TLS state that the reading thread uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)

    def close(self) -> None:
        self.shut_down()
        self.sock.close()


Script = Callable[[Request], None]


class RawServer:
    """Listens on a loopback port; calls `script` for each request on the connection's thread."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None = None) -> None:
        self.script = script
        self.requests: list[Request] = []
        self._closing = False
        self.connections: list[Connection] = []
        self.failures: list[BaseException] = []
        self._tls = tls
        self._changed = threading.Condition()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}/mcp"
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, run: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=run, args=args, name="test-http-server", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        if self._tls is not None:
            try:
                sock = self._tls.wrap_socket(sock, server_side=True)
            except OSError:
                sock.close()
                return
        with self._changed:
            connection = Connection(sock, len(self.connections))
            self.connections.append(connection)
            self._changed.notify_all()
            if self._closing:
                connection.shut_down()
        try:
            while (request := connection.read_request()) is not None:
                with self._changed:
                    self.requests.append(request)
                self.script(request)
                if connection.sock.fileno() < 0:
                    break
        except BaseException as error:
            # Once the server closes, errors of its connections do not matter.
            if not (isinstance(error, OSError) and self._closing):
                self.failures.append(error)
        finally:
            connection.ended.set()
            connection.close()

    def connection(self, number: int) -> Connection:
        """Return a connection by its number; wait for it, since its thread may be slow."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.connections) > number, WAIT)
            return self.connections[number]

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._changed:
            self._closing = True
            for connection in self.connections:
                connection.shut_down()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive()
        assert not self.failures, self.failures


def settles(frame: bytes, out: Outgoing | None) -> bool:
    """Return whether a frame settles the request, by the rules of a connection."""
    try:
        message = json.loads(frame)
    except ValueError:
        return False
    messages = message if isinstance(message, list) else [message]
    return out is not None and any(
        one.get("id", out.id) in (out.id, None) and ("result" in one or "error" in one)
        for one in messages
    )


@dataclass
class FakeReceiver:
    """A receiver that records its calls, and returns the values of a connection."""

    frames: list[tuple[bytes, Outgoing | None]] = field(default_factory=list)
    failures: list[tuple[Outgoing, McpError]] = field(default_factory=list)
    signs: list[Outgoing | None] = field(default_factory=list)
    ends: list[McpError] = field(default_factory=list)
    is_silent: bool = False
    was_heard: bool = False
    misses: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        with self.changed:
            yield
            self.changed.notify_all()

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        with self.changing():
            self.frames.append((frame, out))
        return settles(frame, out)

    def alive(self, out: Outgoing | None) -> None:
        with self.changing():
            self.signs.append(out)

    def messages_missed(self) -> None:
        with self.changing():
            self.misses += 1

    def server_stream_ended(self, *, opened: bool) -> None:
        with self.changing():
            self.is_silent, self.was_heard = True, opened

    def settled(self, out: Outgoing) -> bool:
        with self.changed:
            return any(settles(frame, out) for frame, _ in self.frames)

    def failed(self, out: Outgoing, error: McpError) -> None:
        with self.changing():
            self.failures.append((out, error))

    def lost(self, error: McpError) -> None:
        with self.changing():
            self.ends.append(error)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT)

    @property
    def error(self) -> McpError:
        """Return the only failure."""
        [(_, error)] = self.failures
        return error

    @property
    def messages(self) -> list[Any]:
        return [json.loads(frame) for frame, _ in self.frames]


_ids = iter(range(1, 1_000_000))


def request(
    method: str = "tools/call",
    *,
    seconds: float | None = WAIT,
    headers: Mapping[str, str] | None = None,
    params: Any = None,
) -> Outgoing:
    """Return a new outgoing request."""
    id = next(_ids)
    body = json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}})
    return Outgoing(body.encode(), method, id, (id,), headers or {}, Deadline(seconds))


def notification(method: str = "notifications/initialized", seconds: float = WAIT) -> Outgoing:
    body = json.dumps({"jsonrpc": "2.0", "method": method})
    return Outgoing(body.encode(), method, None, (), {}, Deadline(seconds))


def streamed(*parts: Any, then: Callable[[Connection], object] = Connection.end_events) -> Script:
    """Return a script that writes these parts as a stream, and then calls `then`."""

    def script(one: Request) -> None:
        one.connection.stream(*parts, end=False)
        then(one.connection)

    return script


def calling(calls: Script, others: Script) -> Script:
    """Return a script that passes tool calls to `calls`, and other messages to `others`."""
    return lambda one: (calls if b'"tools/call"' in one.body else others)(one)


class Held:
    """Calls `begin` for each request, and then waits until the client ends the connection."""

    def __init__(self, begin: Callable[[Connection], object] | None = None) -> None:
        self.came, self.gone = threading.Event(), threading.Event()
        self._begin = begin

    def __call__(self, one: Request) -> None:
        if self._begin is not None:
            self._begin(one.connection)
        self.came.set()
        one.connection.hold()
        self.gone.set()


def dripping(begin: bytes, more: bytes) -> Script:
    """Return a script that writes `more` again and again until the client ends the exchange."""

    def script(one: Request) -> None:
        one.connection.write(begin)
        one.connection.sock.settimeout(0.02)
        for _ in range(int(WAIT / 0.02)):
            one.connection.write(more)
            try:
                if not one.connection.sock.recv(1):
                    return
            except TimeoutError:
                continue
            except OSError:
                return
        raise AssertionError("the client did not end the exchange")

    return script


@contextlib.contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    server = RawServer(script, tls)
    try:
        yield server
    finally:
        server.close()


@contextlib.contextmanager
def opened(config: Http | str, **options: Any) -> Iterator[tuple[HttpTransport, FakeReceiver]]:
    transport = HttpTransport(Http(config) if isinstance(config, str) else config, **options)
    receiver = FakeReceiver()
    transport.open(receiver, Deadline(WAIT))
    try:
        yield transport, receiver
    finally:
        transport.close(Deadline(WAIT))


class ForeignAdapter(HTTPAdapter):
    """An adapter that makes the library use a session unchanged."""

    def close(self) -> None:
        # Otherwise the connections would stay open until a garbage collection.
        for key in self.poolmanager.pools.keys():  # noqa: SIM118 - a copy; it is no dict
            pool = self.poolmanager.pools.get(key)
            if pool is not None:
                pool.close()
        super().close()


class Noting(ForeignAdapter):
    """Notes the timeout of each request."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[Any] = []

    def send(self, *args: Any, **options: Any) -> Any:
        self.limits.append(options["timeout"])
        return super().send(*args, **options)


def start(transport: HttpTransport, revision: str = "2025-11-25") -> None:
    """Start a session with a listening stream."""
    transport.send(request("initialize"))
    transport.adopt({"MCP-Protocol-Version": revision}, stateful=True)


def withdraw(transport: HttpTransport, came: threading.Event, delivery: str = "unknown") -> None:
    """Send a request without a deadline, and cancel it once it `came`."""
    out = request(seconds=None)
    running = elsewhere(partial(transport.send, out))
    assert came.wait(WAIT)
    assert transport.cancel(out) == delivery
    running.result(WAIT)


def send_one(script: Script, config: Callable[[str], Http | str] = str) -> FakeReceiver:
    """Send one request to a server with this script; return the receiver."""
    with serving(script) as server, opened(config(server.url)) as (transport, receiver):
        transport.send(request())
    return receiver
