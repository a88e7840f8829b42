"""A peer that plays scripts: in memory, over HTTP, and over stdio as a child process."""

from __future__ import annotations

import itertools
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, BinaryIO

from syncmcp.testing.listener import (
    HOST,
    Closing,
    Listener,
    format_event,
    format_head,
    read_request_head,
    reset_at_close,
)
from syncmcp.testing.script import Script
from syncmcp.testing.scripted import (
    Channel,
    ClientGone,
    Inbox,
    Incoming,
    Player,
    Received,
    ScriptEnded,
    ScriptError,
    Transcript,
    encode,
    open_gate,
    read_frame,
)
from syncmcp.testing.scripted.stdio import ChildProcess

_EVENTS = "text/event-stream"


class ScriptedPeer(Closing):
    """A peer of a client that plays scripts, made of the steps in `syncmcp.testing.script`.

    >>> from syncmcp.testing import ScriptedPeer, script
    >>> order = [script.expect("tools/call"), script.cut(code=3)]
    >>> peer = ScriptedPeer([*script.handshake(probe=True), *order])
    >>> with peer, syncmcp.connect(peer) as client:
    ...     print(repr(client.call_tool.future("order").exception()))
    OutcomeUnknown('the in-process server ended the session')

    A client connects to a peer by `connect` (in memory), `command` (a child process over stdio) or
    `url` (HTTP). Each is started at its first use. In memory and over stdio, the n-th connection
    plays the n-th script, and later connections play the last one. Over HTTP, the first script is
    played once for the whole endpoint. Requests that no step expects get the usual response:
    notifications 202, GET 405, DELETE 200. After the last step of a script, its connection stays
    open, and requests get no response: they time out.

    Close the peer, or use it in a `with` statement. An invalid step ends its script and the
    connection, with the event "failed: ..." in the transcript. Then `close` raises an error that
    says what is wrong.

    Args:
        scripts: The scripts, at least one.

    Attributes:
        transcript: The messages received and the events, with methods to wait for them.

    Raises:
        TypeError: A script contains something other than steps.
        ValueError: There is no script.
    """

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("pass at least one script")
        steps: list[Any] = [step for script in scripts for step in script]
        if not all(isinstance(step, Mapping) and "do" in step for step in steps):
            raise TypeError(
                "a script is a list of steps, made by syncmcp.testing.script; "
                "put * before what makes several, as in [*script.handshake(), ...]"
            )
        self.transcript = Transcript()
        self._scripts = scripts
        self._lock = threading.Lock()  # Guards all attributes below.
        self._token = secrets.token_hex(8)
        self._connections = 0
        self._played: list[tuple[Inbox, threading.Thread]] = []
        self._http: _HttpEndpoint | None = None
        self._control: Listener | None = None

    def __repr__(self) -> str:
        return f"<ScriptedPeer of {len(self._scripts)} scripts>"

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
            on_close: Called once, on the same thread, if the script cuts the connection.
        """
        inbox = Inbox(self.transcript)
        number, script = self._next_script()
        channel = _MemoryChannel(inbox, deliver, on_close)
        self.transcript.add_event("connected")
        self._start(script, inbox, channel)
        return ScriptedConnection(channel, number)

    @property
    def command(self) -> list[str]:
        """The command line of the peer as a stdio server, which may be run several times."""
        with self._lock:
            if self._control is None:
                self._control = Listener(self._accept_process)
        # The token makes each command unique: clients cache facts by command, and the system may
        # reuse the port for another peer.
        source = f"{self._control.port}:{self._token}"
        return [sys.executable, "-m", "syncmcp.testing.scripted.stdio", source]

    @property
    def url(self) -> str:
        """The URL of the peer as an HTTP server on loopback."""
        with self._lock:
            if self._http is not None:
                return self._http.url
            inbox = Inbox(self.transcript)
            self._http = _HttpEndpoint(self._scripts[0], inbox)
        self._start(self._scripts[0], inbox, None)
        return self._http.url

    @property
    def connections(self) -> int:
        """The number of TCP connections accepted over HTTP so far."""
        return 0 if self._http is None else self._http.listener.accepted

    @property
    def children(self) -> list[int]:
        """The process ids of the child processes so far."""
        prefix = "started: "
        events = self.transcript.events
        return [int(event[len(prefix) :]) for event in events if event.startswith(prefix)]

    def open(self, gate: str) -> None:
        """Open a gate: scripts pass `gate` steps of this name from now on.

        Raises:
            ValueError: No script has a gate of this name.
        """
        known = set(_named(self._scripts, "gate", "name"))
        if gate not in known:
            shown = ", ".join(map(repr, sorted(known))) or "none"
            raise ValueError(f"no script has the gate {gate!r}; the gates are: {shown}")
        open_gate(self.transcript, gate)

    def close(self) -> None:
        """End all connections and threads of the peer, but not its child processes.

        The program that started a child process must end it.

        Raises:
            ScriptError: A script had an invalid step; or a script waited for a message, and
                requests had come that no step before expected.
        """
        with self._lock:
            played, listeners = list(self._played), [self._control]
            if self._http is not None:
                listeners.append(self._http.listener)
        for inbox, _ in played:
            inbox.close()
        for listener in listeners:
            if listener is not None:
                listener.close()
        for _, thread in played:
            thread.join(5)
        for event in self.transcript.events:
            if event.startswith("failed: "):
                raise ScriptError(event)

    def _next_script(self) -> tuple[int, Script]:
        with self._lock:
            number = self._connections
            self._connections += 1
        return number, self._scripts[min(number, len(self._scripts) - 1)]

    def _accept_process(self, line: socket.socket, _: int) -> Callable[[], None]:
        inbox = Inbox(self.transcript)
        number, script = self._next_script()
        process = ChildProcess(line, number, inbox)
        self._start(script, inbox, process)
        return process.listen

    def _start(self, script: Script, inbox: Inbox, channel: Channel | None) -> None:
        process = channel if isinstance(channel, ChildProcess) else None

        def play() -> None:
            code = 0
            player = Player(script, inbox, channel)
            try:
                if process is not None and (not script or script[0]["do"] != "stop_reading"):
                    process.start_reading()
                player.play()
                inbox.finish()
            except ScriptEnded:
                pass
            except Exception as error:  # `close` raises it
                told = str(error) if isinstance(error, ScriptError) else repr(error)
                self.transcript.add_event(f"failed: {told}")
                code = 70
                if process is None:
                    player.cut()
            if process is not None:
                process.end(code)

        thread = threading.Thread(target=play, name="syncmcp-testing-script", daemon=True)
        with self._lock:
            self._played.append((inbox, thread))
        thread.start()


class ScriptedConnection:
    """A connection in memory to a `ScriptedPeer`, returned by `ScriptedPeer.connect`."""

    def __init__(self, channel: _MemoryChannel, number: int) -> None:
        self._channel = channel
        self._number = number

    def __repr__(self) -> str:
        return f"<ScriptedConnection {self._number}>"

    def receive(self, frame: bytes) -> None:
        """Process one frame of the client: JSON without a newline.

        The method never blocks.
        """
        self._channel.inbox.receive(frame, self._channel, self._number)

    def close(self) -> None:
        """End the connection from the client's side.

        The method is idempotent.
        """
        inbox = self._channel.inbox
        if inbox.close():
            inbox.transcript.add_event("disconnected")


class _MemoryChannel(Channel):
    def __init__(
        self, inbox: Inbox, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None
    ) -> None:
        super().__init__(inbox)
        self._deliver = deliver
        self._on_close = on_close
        self._line = b""

    def write(self, data: bytes) -> None:
        """Deliver the lines that `data` completes."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._deliver(line)

    def cut(self, **_: object) -> bytes:
        if self.inbox.close() and self._on_close is not None:
            self._on_close()
        raise ScriptEnded


# A raw HTTP/1.1 server whose responses a script writes, byte for byte.


_USUAL = {"GET": 405, "DELETE": 200}
"""The status for requests that the script does not expect."""


class _HttpEndpoint:
    """Listens on loopback, and passes the requests that the script expects to `inbox`."""

    def __init__(self, script: Script, inbox: Inbox) -> None:
        self._expected = set(_named([script], "expect", "method"))
        self._inbox = inbox
        self.listener = Listener(self._accept)
        self.url = f"http://{HOST}:{self.listener.port}/mcp"

    def _accept(self, accepted: socket.socket, number: int) -> Callable[[], None]:
        transcript = self._inbox.transcript
        transcript.add_event("connected")
        connection = _HttpConnection(accepted)

        def serve() -> None:
            # A reset, or `cut`: the connection has ended.
            with suppress(OSError, ValueError), accepted.makefile("rb") as stream:
                while self._read(stream, connection, number):
                    pass
            if not connection.is_cut and not self.listener.closing:
                transcript.add_event("disconnected")
            connection.gone.set()

        return serve

    def _read(self, stream: BinaryIO, connection: _HttpConnection, number: int) -> bool:
        """Read one request; return whether there was one."""
        head = read_request_head(stream)
        if head is None:
            return False
        verb, headers = head.verb, head.headers
        body = stream.read(int(headers.get("content-length", "0")))
        message, method = read_frame(body) if body else (None, verb)
        self._inbox.transcript.add_received(
            Received(message, method, number, f"{verb} {head.target}", headers)
        )
        channel = _HttpChannel(self._inbox, connection)
        incoming = Incoming(message, method, channel)
        # Other requests get no response. In the inbox, they show what the script lacked.
        if method in self._expected or incoming.is_request:
            self._inbox.put(incoming)
        elif verb in _USUAL and not body:
            channel.answer_empty(_USUAL[verb])
        elif isinstance(message, dict) and "id" not in message:
            channel.answer_empty(202)
        return True


class _HttpConnection:
    """A TCP connection: `gone` is set when it has ended, `is_cut` if the script has ended it."""

    def __init__(self, accepted: socket.socket) -> None:
        self.gone = threading.Event()
        self.is_cut = False
        self.socket = accepted

    def cut(self, *, reset: bool) -> None:
        """End the connection, in order or by a reset."""
        self.is_cut = True
        with suppress(OSError):  # The client has ended it.
            if reset:
                reset_at_close(self.socket)
            # After a reset the socket is closed, and the reset sent, when the reading thread ends.
            self.socket.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)


class _HttpChannel(Channel):
    """The channel of a script for one HTTP request: it writes the response."""

    place = "over HTTP"

    def __init__(self, inbox: Inbox, connection: _HttpConnection) -> None:
        super().__init__(inbox)
        self._connection = connection
        self._begun = False
        self._chunked = False
        self._events = False

    def write(self, data: bytes) -> None:
        self._connection.socket.sendall(data)

    def wait(self, seconds: float | None) -> None:
        if self._connection.gone.wait(seconds):
            raise ClientGone

    def answer_empty(self, status: int) -> None:
        with suppress(OSError):  # The client has disconnected; the reading thread records it.
            self.write(self.accept(status))

    # Steps

    def message(self, value: Any, final: bool) -> bytes:
        """Return `value` as a JSON response, or as an event if an event stream has begun."""
        data = encode(value)
        if not self._begun and final:
            return self._whole(200, {"content-type": "application/json"}, data)
        opening = self._opening()
        piece = self._piece(b"data: " + data + b"\n\n" if self._events else data)
        return opening + piece + (self.end() if final else b"")

    def cut(self, code: int, reset: bool) -> bytes:
        self.unended_status = None
        self._connection.cut(reset=reset)
        return b""

    def accept(self, status: int) -> bytes:
        return self._whole(status, {}, b"")

    def head(self, status: int, headers: dict[str, str], chunked: bool) -> bytes:
        self._begun = True
        named = {name.lower(): value for name, value in headers.items()}
        if status >= 400 and "content-length" not in named:
            self.unended_status = status
        named.setdefault("content-type", _EVENTS)
        self._events = named["content-type"].startswith(_EVENTS)
        self._chunked = chunked
        if chunked:
            named.setdefault("transfer-encoding", "chunked")
        return format_head(status, named)

    def chunk(self, data: bytes) -> bytes:
        return self._opening() + self._piece(data)

    def event(
        self, value: Any, identifier: str | None, retry: int | None, kind: str | None
    ) -> bytes:
        data = value.encode() if isinstance(value, str) else encode(value)
        return self.chunk(format_event(None if value is None else data, identifier, retry, kind))

    def end(self) -> bytes:
        self.unended_status = None
        return self._opening() + (b"0\r\n\r\n" if self._chunked else b"")

    def _opening(self) -> bytes:
        """Return the head of an event stream, unless the response has begun."""
        return b"" if self._begun else self.head(200, {}, chunked=True)

    def _whole(self, status: int, headers: dict[str, str], body: bytes) -> bytes:
        self._begun = True
        return format_head(status, {**headers, "content-length": str(len(body))}) + body

    def _piece(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data


def _named(scripts: Iterable[Script], kind: str, member: str) -> Iterator[str]:
    """Yield this member of all steps of a kind, nested ones too."""
    for step in itertools.chain.from_iterable(scripts):
        if step["do"] == kind:
            yield step[member]
        elif step["do"] == "repeat":
            yield from _named([step["steps"]], kind, member)
        elif step["do"] == "drip":
            yield from _named([[step["step"]]], kind, member)
