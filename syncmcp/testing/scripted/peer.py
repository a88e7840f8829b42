"""A peer that plays a script, frame by frame, in memory, over stdio or over HTTP."""

from __future__ import annotations

import json
import secrets
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from typing_extensions import Self

from syncmcp.testing.script import Script, Step
from syncmcp.testing.scripted.http import HttpStage
from syncmcp.testing.scripted.player import (
    Ended,
    Inbox,
    Player,
    Received,
    ScriptError,
    Transcript,
    encode,
    read_frame,
)


class ScriptedPeer:
    """Plays scripts made of the steps in `syncmcp.testing.script`.

    One peer offers three ways in, each started when it is first asked for: `connect` (in
    memory), `command` (a child process over stdio) and `url` (HTTP). In memory and over stdio
    the n-th connection plays the n-th script, and later ones the last. Over HTTP there is one
    script for the whole endpoint; what it does not `expect` anywhere is answered as usual:
    notifications 202, GET 405, DELETE 200.

    Close it, or use it in a `with` statement. A script that makes no sense shows as a
    "failed: ..." event, and `close` raises it.

    Args:
        scripts: The scripts; at least one.

    Attributes:
        transcript: What the peer saw; wait for things there.
    """

    def __init__(self, *scripts: Script) -> None:
        if not scripts:
            raise ValueError("give at least one script")
        self.transcript = Transcript()
        self._scripts = scripts
        self._lock = threading.Lock()  # Guards everything below.
        self._connections = 0
        self._gates: set[str] = set()
        self._inboxes: list[Inbox] = []
        self._threads: list[threading.Thread] = []
        self._http: HttpStage | None = None
        self._control: _Control | None = None
        self._closed = False

    @property
    def name(self) -> str:
        """What a client calls it."""
        return "scripted peer"

    def connect(
        self, deliver: Callable[[bytes], None], on_close: Callable[[], None] | None = None
    ) -> ScriptedConnection:
        """Open a connection in memory, of the same shape as `Server.connect`.

        Args:
            deliver: Called with each frame, on the thread that plays the script. A frame is
                delivered when its line is complete.
            on_close: Called once when the script cuts the connection.
        """
        inbox = Inbox()
        number, script = self.next_script()
        connection = ScriptedConnection(self.transcript, inbox, number, deliver, on_close)
        self.transcript.add_event("connected")
        self._start(script, inbox, connection)
        return connection

    @property
    def command(self) -> list[str]:
        """The command line of the peer as a stdio server; may be run many times."""
        with self._lock:
            if self._control is None:
                self._control = _Control(self)
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
            stage = self._http = HttpStage(self._scripts[0], inbox, self.transcript)
        self._start(self._scripts[0], inbox, None)
        return stage.url

    @property
    def connections(self) -> int:
        """How many TCP connections were accepted over HTTP so far."""
        return 0 if self._http is None else self._http.accepted

    @property
    def grandchildren(self) -> list[int]:
        """The process ids that `spawn_grandchild` steps have reported."""
        return self._numbers("grandchild: ")

    @property
    def children(self) -> list[int]:
        """The process ids of the child processes so far."""
        return self._numbers("started: ")

    def open(self, gate: str) -> None:
        """Let scripts pass `gate`, now and later."""
        with self._lock:
            self._gates.add(gate)
            inboxes, control = list(self._inboxes), self._control
        for inbox in inboxes:
            inbox.open_gate(gate)
        if control is not None:
            control.open_gate(gate)

    def close(self) -> None:
        """End all connections and threads of the peer. Child processes are their starter's.

        Raises:
            ScriptError: A script made no sense somewhere.
        """
        with self._lock:
            self._closed = True
            inboxes, threads = list(self._inboxes), list(self._threads)
            http, control = self._http, self._control
        for inbox in inboxes:
            inbox.end()
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
        """The gates opened so far."""
        with self._lock:
            return set(self._gates)

    def _numbers(self, prefix: str) -> list[int]:
        events = self.transcript.events
        return [int(event[len(prefix) :]) for event in events if event.startswith(prefix)]

    def _start(self, script: Script, inbox: Inbox, channel: ScriptedConnection | None) -> None:
        def play() -> None:
            try:
                Player(script, inbox, channel).play()
            except Ended:
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
    """One connection in memory: give it frames with `receive`, end it with `close`."""

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
        """Take one frame from the client; never blocks."""
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
        """Deliver the lines that `data` completes."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._deliver(line)

    def wait(self, seconds: float | None) -> None:
        """See `Channel`."""
        self._inbox.wait(seconds)

    def cut(self, step: Step) -> None:
        """End the connection from the server's side."""
        if self._end() and self._on_close is not None:
            self._on_close()
        raise Ended

    def play(self, step: Step) -> bytes:
        """See `Channel`."""
        if step["do"] == "accept":
            return b""
        raise ScriptError(f"{step['do']} has no meaning in memory")

    def _end(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        self._inbox.end()
        return was_open


class _Control:
    """The line to the child processes: scripts and gates go out, what they see comes in."""

    def __init__(self, peer: ScriptedPeer) -> None:
        self._peer = peer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # Another peer may be given this port later. Clients remember commands: no two are alike.
        self.source = f"tcp:{self.port}:{secrets.token_hex(8)}"
        self._lock = threading.Lock()  # Guards both below.
        self._lines: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._thread = threading.Thread(
            target=self._accept, name="syncmcp-testing-control", daemon=True
        )
        self._thread.start()

    def open_gate(self, name: str) -> None:
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            _send(line, {"gate": name})

    def close(self) -> None:
        with self._lock:
            self._closing = True
            lines = dict(self._lines)
        # A connection of our own wakes the accepting thread on every platform.
        socket.create_connection(("127.0.0.1", self.port)).close()
        self._thread.join(5)
        self._listener.close()
        for line, thread in lines.items():
            _shut(line)
            thread.join(5)

    def _accept(self) -> None:
        while True:
            line, _ = self._listener.accept()
            with self._lock:
                if self._closing:
                    line.close()
                    return
                number, script = self._peer.next_script()
                thread = threading.Thread(
                    target=self._listen,
                    args=(line, number),
                    name="syncmcp-testing-control",
                    daemon=True,
                )
                self._lines[line] = thread
            _send(line, {"script": list(script), "gates": sorted(self._peer.gates)})
            thread.start()

    def _listen(self, line: socket.socket, number: int) -> None:
        transcript = self._peer.transcript
        try:
            with line, line.makefile("rb") as reports:
                for report in reports:
                    said = json.loads(report)
                    if "event" in said:
                        transcript.add_event(said["event"])
                    else:
                        received = Received(said["received"], said["method"], number)
                        transcript.add_received(received)
        except ConnectionError:
            pass  # A killed child may reset the line; it has exited either way.
        with self._lock:
            self._lines.pop(line, None)
        transcript.add_event("exited")


def _send(line: socket.socket, value: Any) -> None:
    try:
        line.sendall(encode(value) + b"\n")
    except OSError:
        return  # The child has gone; its reader says so.


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # It has ended by itself.
