"""A scripted peer as a child process: `python -m syncmcp.testing.scripted.stdio SCRIPT.json`.

The script is a JSON array of steps. `ScriptedPeer.command` has `tcp:PORT:TOKEN` in its place: the
process then receives the script over a control connection on loopback, to that port of the
`ScriptedPeer`, and reports over it what it receives.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from syncmcp.testing.script import Script, Step
from syncmcp.testing.scripted import (
    Inbox,
    Player,
    Received,
    ScriptEnded,
    ScriptError,
    Transcript,
    encode,
    read_frame,
)

_STDIN, _STDOUT, _STDERR = 0, 1, 2


def main(source: str) -> int:
    """Play the script from `source` and return the exit code."""
    inbox = Inbox()
    line = _ControlClient(int(source.split(":")[1])) if source.startswith("tcp:") else None
    script = json.loads(Path(source).read_text("utf-8")) if line is None else line.open(inbox)
    process = _Process(inbox, line)
    process.report({"event": f"started: {os.getpid()}"})
    if not script or script[0]["do"] != "stop_reading":
        process.start_reading()
    try:
        Player(script, inbox, process).play()
        process.report({"event": "finished"})
        process.wait(None)
    except ScriptEnded:
        pass  # stdin has ended: a server exits then.
    except ScriptError as error:
        process.report({"event": f"failed: {error}"})
        return 70
    process.outlive_eof()
    return 0


class _Process:
    """This process as the channel of a script."""

    def __init__(self, inbox: Inbox, line: _ControlClient | None) -> None:
        self._inbox = inbox
        self._line = line
        self._ignores_eof = False
        self._wake_reader, self._wake = os.pipe()
        self._reader: threading.Thread | None = None

    def report(self, value: Any) -> None:
        if self._line is not None:
            self._line.send(value)

    def frame(self, value: Any, final: bool) -> bytes:
        return encode(value) + b"\n"

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(_STDOUT, view) :]

    def wait(self, seconds: float | None) -> None:
        self._inbox.wait(seconds)

    def cut(self, step: Step) -> None:
        code: int = step["code"]
        if code < 0:
            if code == -signal.SIGTERM:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
            time.sleep(60)  # Until the signal arrives.
        os._exit(code)

    def play(self, step: Step) -> bytes:
        kind = step["do"]
        if kind == "stderr":
            os.write(_STDERR, step["data"].encode("latin-1"))
        elif kind == "ignore_eof":
            self._ignores_eof = True
        elif kind == "ignore_sigterm":
            self._ignore_sigterm()
        elif kind == "stop_reading":
            os.write(self._wake, b"x")
            if self._reader is not None:
                self._reader.join()
        elif kind == "spawn_grandchild":
            command = [sys.executable, "-c", f"import time; time.sleep({step['seconds']})"]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
            self.report({"event": f"grandchild: {child.pid}"})
        elif kind != "accept":
            raise ScriptError(f"{kind} has no meaning over stdio")
        return b""

    def start_reading(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def outlive_eof(self) -> None:
        """Wait for a signal, if the script has a step `ignore_eof`."""
        while self._ignores_eof:
            time.sleep(60)

    def _ignore_sigterm(self) -> None:
        # Reported by a thread: the main thread runs a signal handler only between bytecodes, and a
        # signal that arrives while a handler runs may be delayed until the next signal.
        heard, told = socket.socketpair()
        told.setblocking(False)
        signal.set_wakeup_fd(told.detach())
        signal.signal(signal.SIGTERM, lambda *_: None)

        def listen() -> None:
            while heard.recv(1):
                self.report({"event": "sigterm"})

        threading.Thread(target=listen, daemon=True).start()

    def _read(self) -> None:
        pending = b""
        while True:
            ready, _, _ = select.select([_STDIN, self._wake_reader], [], [])
            if self._wake_reader in ready:
                return
            data = os.read(_STDIN, 65536)
            if not data:
                self.report({"event": "disconnected"})
                if not self._ignores_eof:
                    self._inbox.close()
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                incoming = read_frame(line, self)
                self.report({"received": incoming.message, "method": incoming.method})
                self._inbox.put(incoming)


class _ControlClient:
    """The child process's end of the control connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._lock = threading.Lock()  # Keeps reports whole.

    def open(self, inbox: Inbox) -> list[Step]:
        """Return the script; from now on pass opened gates to `inbox`."""
        orders = self._socket.makefile("rb")
        first = json.loads(orders.readline())
        for gate in first["gates"]:
            inbox.open_gate(gate)

        def listen() -> None:
            # The test may end before this process.
            with suppress(OSError):
                for order in orders:
                    inbox.open_gate(json.loads(order)["gate"])

        threading.Thread(target=listen, daemon=True).start()
        script: list[Step] = first["script"]
        return script

    def send(self, value: Any) -> None:
        # The test may have ended.
        with suppress(OSError), self._lock:
            self._socket.sendall(encode(value) + b"\n")


class ControlServer:
    """The peer's end of the control connections to its child processes.

    It sends them scripts and opened gates, and records in the transcript what they report.

    Args:
        next_script: Returns the number and the script of a new child process.
        gates: Returns the gates opened so far.
        transcript: Where reports are recorded.
    """

    def __init__(
        self,
        next_script: Callable[[], tuple[int, Script]],
        gates: Callable[[], set[str]],
        transcript: Transcript,
    ) -> None:
        self._next_script = next_script
        self._gates = gates
        self._transcript = transcript
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        # The token makes each command unique: clients cache facts by command, and the system may
        # reuse the port for another peer.
        self.source = f"tcp:{self.port}:{secrets.token_hex(8)}"
        self._lock = threading.Lock()  # Guards `_lines` and `_closing`.
        self._lines: dict[socket.socket, threading.Thread] = {}
        self._closing = False
        self._thread = threading.Thread(
            target=self._accept, name="syncmcp-testing-control", daemon=True
        )
        self._thread.start()

    def open_gate(self, name: str) -> None:
        """Tell every child process that a gate is open."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            _send(line, {"gate": name})

    def close(self) -> None:
        """Stop listening and end all control connections."""
        with self._lock:
            self._closing = True
            lines = dict(self._lines)
        # This connection wakes the accepting thread, on every platform.
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
                number, script = self._next_script()
                thread = threading.Thread(
                    target=self._listen,
                    args=(line, number),
                    name="syncmcp-testing-control",
                    daemon=True,
                )
                self._lines[line] = thread
            _send(line, {"script": list(script), "gates": sorted(self._gates())})
            thread.start()

    def _listen(self, line: socket.socket, number: int) -> None:
        transcript = self._transcript
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
            pass  # A killed child may reset the connection; it has exited either way.
        with self._lock:
            self._lines.pop(line, None)
        transcript.add_event("exited")


def _send(line: socket.socket, value: Any) -> None:
    try:
        line.sendall(encode(value) + b"\n")
    except OSError:
        return  # The child has exited; `_listen` records it.


def _shut(line: socket.socket) -> None:
    try:
        line.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # The connection has ended.


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
