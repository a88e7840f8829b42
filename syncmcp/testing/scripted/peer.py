"""A peer that plays scripts: in memory, over HTTP, and over stdio as a child process."""

from __future__ import annotations

import itertools
import json
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, BinaryIO

from typing_extensions import Self

from syncmcp.testing.script import Script, Step
from syncmcp.testing.scripted import (
    ClientGone,
    Inbox,
    Incoming,
    Player,
    Received,
    ScriptEnded,
    ScriptError,
    Transcript,
    encode,
    method_of,
    read_frame,
)
from syncmcp.testing.scripted.stdio import ControlServer

_EVENTS = "text/event-stream"
_JSON = "application/json"


class ScriptedPeer:
    """A peer of a client that plays scripts, made of the steps in `syncmcp.testing.script`.

    A client connects to a peer in one of three ways, each started at its first use: `connect` (in
    memory), `command` (a child process over stdio) and `url` (HTTP). In memory and over stdio the
    n-th connection plays the n-th script, and later connections play the last one. Over HTTP the
    first script is played once for the whole endpoint. Requests that it does not `expect` anywhere
    are answered as usual: notifications with 202, GET with 405, DELETE with 200.

    Close it, or use it in a `with` statement. An invalid step ends its script with the event
    "failed: ..." in the transcript, and `close` raises `ScriptError`.

    Args:
        scripts: The scripts, at least one.

    Attributes:
        transcript: The messages received and the events; has methods to wait for them.

    Raises:
        ValueError: There is no script.
    """

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("give at least one script")
        self.transcript = Transcript()
        self._scripts = scripts
        self._lock = threading.Lock()  # Guards all attributes below.
        self._connections = 0
        self._gates: set[str] = set()
        self._inboxes: list[Inbox] = []
        self._threads: list[threading.Thread] = []
        self._http: HttpListener | None = None
        self._control: ControlServer | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """The name that clients use for this target."""
        return "scripted peer"

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> ScriptedConnection:
        """Open a connection in memory, as `Server.connect` does.

        Args:
            deliver: Called with each frame, on the thread that plays the script, once its line is
                complete.
            on_close: Called once if the script cuts the connection, on that thread.
        """
        inbox = Inbox()
        number, script = self.next_script()
        connection = ScriptedConnection(self.transcript, inbox, number, deliver, on_close)
        self.transcript.add_event("connected")
        self._start(script, inbox, connection)
        return connection

    @property
    def command(self) -> list[str]:
        """The command line of the peer as a stdio server; may be run several times."""
        with self._lock:
            if self._control is None:
                self._control = ControlServer(self.next_script, self._open_gates, self.transcript)
            source = self._control.source
        return [sys.executable, "-m", "syncmcp.testing.scripted.stdio", source]

    @property
    def url(self) -> str:
        """The URL of the peer as an HTTP server on loopback."""
        with self._lock:
            stage = self._http
            if stage is not None:
                return stage.url
            inbox = Inbox()
            stage = self._http = HttpListener(self._scripts[0], inbox, self.transcript)
        self._start(self._scripts[0], inbox, None)
        return stage.url

    @property
    def connections(self) -> int:
        """The number of TCP connections accepted over HTTP so far."""
        return 0 if self._http is None else self._http.accepted

    @property
    def grandchildren(self) -> list[int]:
        """The process ids of the grandchildren started by `spawn_grandchild` so far."""
        return self._numbers("grandchild: ")

    @property
    def children(self) -> list[int]:
        """The process ids of the child processes so far."""
        return self._numbers("started: ")

    def open(self, gate: str) -> None:
        """Open a gate: scripts pass `gate` steps of this name from now on."""
        with self._lock:
            self._gates.add(gate)
            inboxes, control = list(self._inboxes), self._control
        for inbox in inboxes:
            inbox.open_gate(gate)
        if control is not None:
            control.open_gate(gate)

    def close(self) -> None:
        """End all connections and threads of the peer, but not its child processes.

        A child process is to be ended by whoever started it.

        Raises:
            ScriptError: A script had an invalid step.
        """
        with self._lock:
            self._closed = True
            inboxes, threads = list(self._inboxes), list(self._threads)
            http, control = self._http, self._control
        for inbox in inboxes:
            inbox.close()
        if http is not None:
            http.close()
        if control is not None:
            control.close()
        for thread in threads:
            thread.join(5)
        for event in self.transcript.events:
            if event.startswith("failed: "):
                raise ScriptError(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def next_script(self) -> tuple[int, Script]:
        """Return the number of a new connection and its script."""
        with self._lock:
            number = self._connections
            self._connections += 1
        return number, self._scripts[min(number, len(self._scripts) - 1)]

    @property
    def gates(self) -> set[str]:
        """The names of the gates opened so far."""
        with self._lock:
            return set(self._gates)

    def _open_gates(self) -> set[str]:
        return self.gates

    def _numbers(self, prefix: str) -> list[int]:
        events = self.transcript.events
        return [int(event[len(prefix) :]) for event in events if event.startswith(prefix)]

    def _start(self, script: Script, inbox: Inbox, channel: ScriptedConnection | None) -> None:
        def play() -> None:
            try:
                Player(script, inbox, channel).play()
            except ScriptEnded:
                return
            except ScriptError as error:
                self.transcript.add_event(f"failed: {error}")
                return
            self.transcript.add_event("finished")

        thread = threading.Thread(target=play, name="syncmcp-testing-script", daemon=True)
        with self._lock:
            for gate in self._gates:
                inbox.open_gate(gate)
            self._inboxes.append(inbox)
            self._threads.append(thread)
        thread.start()


class ScriptedConnection:
    """A connection in memory to a `ScriptedPeer`, returned by `ScriptedPeer.connect`."""

    def __init__(
        self,
        transcript: Transcript,
        inbox: Inbox,
        number: int,
        deliver: Callable[[bytes], None],
        on_close: Callable[[], None] | None,
    ) -> None:
        self._transcript = transcript
        self._inbox = inbox
        self._number = number
        self._deliver = deliver
        self._on_close = on_close
        self._line = b""
        self._lock = threading.Lock()  # Guards `_open`: either side may end it first.
        self._open = True

    def receive(self, frame: bytes) -> None:
        """Process one frame of the client: JSON without a newline. Never blocks."""
        incoming = read_frame(frame, self)
        self._transcript.add_received(Received(incoming.message, incoming.method, self._number))
        self._inbox.put(incoming)

    def close(self) -> None:
        """End the connection from the client's side. Idempotent."""
        if self._end():
            self._transcript.add_event("disconnected")

    def frame(self, value: Any, final: bool) -> bytes:
        """See `Channel`."""
        return encode(value) + b"\n"

    def write(self, data: bytes) -> None:
        """Deliver the lines that `data` completes; called by the script."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._deliver(line)

    def wait(self, seconds: float | None) -> None:
        """See `Channel`."""
        self._inbox.wait(seconds)

    def cut(self, step: Step) -> None:
        """End the connection from the server's side; called by the script."""
        if self._end() and self._on_close is not None:
            self._on_close()
        raise ScriptEnded

    def play(self, step: Step) -> bytes:
        """See `Channel`."""
        if step["do"] == "accept":
            return b""
        raise ScriptError(f"{step['do']} has no meaning in memory")

    def _end(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        self._inbox.close()
        return was_open


# A raw HTTP/1.1 server whose responses a script writes, byte for byte.


class HttpListener:
    """Listens on loopback, and passes the requests that the script expects to `inbox`.

    Attributes:
        url: The URL of the endpoint.
        accepted: The number of TCP connections accepted so far.
    """

    def __init__(self, script: Script, inbox: Inbox, transcript: Transcript) -> None:
        self.accepted = 0
        self._expected = set(_expected(script))
        self._inbox = inbox
        self._transcript = transcript
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}/mcp"
        self._lock = threading.Lock()  # Guards `_open`, `_closing` and `accepted`.
        self._open: dict[HttpConnection, threading.Thread] = {}
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
        # This connection wakes the accepting thread, on every platform.
        socket.create_connection(("127.0.0.1", self._port)).close()
        self._thread.join(5)
        self._listener.close()
        for connection, thread in connections.items():
            connection.cut(reset=False)
            thread.join(5)

    def dispatch(self, exchange: HttpChannel, message: Any, method: str) -> None:
        """Pass a request to the script, or answer it if the script never expects its method."""
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
                connection = HttpConnection(accepted, number, self, self._transcript)
                thread = threading.Thread(
                    target=self._serve,
                    args=(connection,),
                    name="syncmcp-testing-connection",
                    daemon=True,
                )
                self._open[connection] = thread
            self._transcript.add_event("connected")
            thread.start()

    def _serve(self, connection: HttpConnection) -> None:
        connection.serve()
        with self._lock:
            self._open.pop(connection, None)


class HttpConnection:
    """One TCP connection: reads requests until the client disconnects."""

    def __init__(
        self, accepted: socket.socket, number: int, stage: HttpListener, transcript: Transcript
    ) -> None:
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.gone = threading.Event()
        self._socket = accepted
        self._number = number
        self._stage = stage
        self._transcript = transcript
        self._cut = False

    def serve(self) -> None:
        """Read requests; record when the client ends the connection."""
        try:
            with self._socket.makefile("rb") as stream:
                while self._read(stream):
                    pass
        except (OSError, ValueError):
            pass  # A reset, or `cut`: the connection has ended.
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
                # The socket is closed, and the reset sent, when the reading thread ends.
                self._socket.shutdown(socket.SHUT_RD)
            else:
                self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The client has ended it.

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
        self._stage.dispatch(HttpChannel(self), message, method)
        return True


class HttpChannel:
    """The channel of a script for one HTTP request: it writes the response."""

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._begun = False
        self._chunked = False
        self._events = False

    def frame(self, value: Any, final: bool) -> bytes:
        """Return `value` as a JSON response, or as an event if an event stream has begun."""
        if not self._begun and final:
            self._begun = True
            return self._head(200, {"content-type": _JSON}, encode(value))
        opening = b""
        if not self._begun:
            opening = self._open(200, {"content-type": _EVENTS}, chunked=True)
        data = encode(value)
        piece = self._chunk(b"data: " + data + b"\n\n" if self._events else data)
        return opening + piece + (self._end() if final else b"")

    def write(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self._connection.write(data)

    def wait(self, seconds: float | None) -> None:
        """Wait; raises `ClientGone` as soon as the client has disconnected."""
        if self._connection.gone.wait(seconds):
            raise ClientGone

    def cut(self, step: Step) -> None:
        """Cut the TCP connection."""
        self._connection.cut(reset=step["reset"])

    def play(self, step: Step) -> bytes:
        """Return the bytes that a step of HTTP writes."""
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
            return opening + self._chunk(step["data"].encode("latin-1"))
        if kind == "event":
            return opening + self._chunk(_event(step))
        return opening + self._end()

    def answer_empty(self, status: int) -> None:
        """Answer with a status and no body."""
        try:
            self._connection.write(self._head(status, {}, b""))
        except OSError:
            return  # The client has disconnected; the reading thread records it.

    def _open(self, status: int, headers: dict[str, str], *, chunked: bool) -> bytes:
        self._begun = True
        named = {name.lower(): value for name, value in headers.items()}
        named.setdefault("content-type", _EVENTS)
        self._events = named["content-type"].startswith(_EVENTS)
        self._chunked = chunked
        if chunked:
            named.setdefault("transfer-encoding", "chunked")
        return _head_bytes(status, named)

    def _head(self, status: int, headers: dict[str, str], body: bytes) -> bytes:
        return _head_bytes(status, {**headers, "content-length": str(len(body))}) + body

    def _chunk(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _end(self) -> bytes:
        return b"0\r\n\r\n" if self._chunked else b""


def _head_bytes(status: int, headers: dict[str, str]) -> bytes:
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
