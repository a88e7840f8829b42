"""A scripted peer as a child process: the process, and its channel in the peer.

The peer plays the script. The process obeys the orders that the peer sends over a connection on
loopback, and confirms each order. It reports the lines that it reads from stdin.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import threading
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from syncmcp.testing.scripted import Channel, Inbox, ScriptEnded, encode

_STDIN, _STDOUT, _STDERR = 0, 1, 2

# In the peer


class ChildProcess(Channel):
    """A child process as the channel of a script."""

    place = "over stdio"

    def __init__(self, line: socket.socket, number: int, inbox: Inbox) -> None:
        super().__init__(inbox)
        self._line = line
        self._number = number
        self._confirmed: SimpleQueue[str] = SimpleQueue()
        self._disconnected = False

    def listen(self) -> None:
        """Record what the process reports, until it exits."""
        # A killed child may reset the connection; it has exited either way.
        with suppress(OSError), self._line.makefile("rb") as reports:
            for report in reports:
                ((kind, value),) = json.loads(report).items()
                if kind == "confirmed":
                    self._confirmed.put(value)
                elif kind == "event":
                    self.inbox.transcript.add_event(value)
                    if value == "disconnected":
                        self._disconnected = True
                        self.inbox.close()
                else:
                    self.inbox.receive(value.encode("latin-1"), self, self._number)
        self.inbox.close()
        self._confirmed.put("exited")
        self.inbox.transcript.add_event("exited")

    def end(self, code: int) -> None:
        """End the process after its script: at once if that failed, otherwise when stdin ends."""
        with suppress(ScriptEnded):
            if not code:
                self.inbox.wait(None)
        if code or self._disconnected:
            with suppress(ScriptEnded):
                self._order("exit", code)

    def write(self, data: bytes) -> None:
        self._order("write", data.decode("latin-1"))

    def cut(self, code: int, reset: bool) -> None:
        self._order("exit", code)

    def stderr(self, data: bytes) -> None:
        self._order("stderr", data.decode("latin-1"))

    def stop_reading(self) -> None:
        self._order("stop_reading")

    def start_reading(self) -> None:
        self._order("start_reading")

    def _order(self, kind: str, value: Any = None) -> None:
        """Send an order to the process, and wait until the process has confirmed it."""
        with suppress(OSError):  # The process has exited, which `listen` notices.
            self._line.sendall(encode([kind, value]) + b"\n")
        problem = self._confirmed.get()
        if problem == "exited":
            self._confirmed.put(problem)
            raise ScriptEnded
        if problem:
            raise OSError(problem)


# In the child process


def main(port: int) -> None:
    """Obey the orders of a `ScriptedPeer` that listens at `port` of loopback."""
    process = _Process(socket.create_connection(("127.0.0.1", port)))
    with suppress(OSError):  # The test may end before this process.
        process.obey()
    process.wait_for_eof()


class _Process:
    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._lock = threading.Lock()  # Held while a report is written.
        self._wake_reader, self._wake = os.pipe()
        self._reader: threading.Thread | None = None

    def obey(self) -> None:
        self._report("event", f"started: {os.getpid()}")
        for order in self._line.makefile("rb"):
            kind, value = json.loads(order)
            problem = ""
            try:
                getattr(self, kind)(value)
            except OSError as error:  # The client has closed its end.
                problem = str(error)
            self._report("confirmed", problem)

    def wait_for_eof(self) -> None:
        if self._reader is not None:
            self._reader.join()

    # Orders

    def write(self, data: str) -> None:
        view = memoryview(data.encode("latin-1"))
        while view:
            view = view[os.write(_STDOUT, view) :]

    def stderr(self, data: str) -> None:
        os.write(_STDERR, data.encode("latin-1"))

    def exit(self, code: int) -> None:
        os._exit(code)

    def start_reading(self, _: object) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def stop_reading(self, _: object) -> None:
        os.write(self._wake, b"x")
        if self._reader is not None:
            self._reader.join()

    def _read(self) -> None:
        pending = b""
        while True:
            ready, _, _ = select.select([_STDIN, self._wake_reader], [], [])
            if self._wake_reader in ready:
                return
            data = os.read(_STDIN, 65536)
            if not data:
                self._report("event", "disconnected")
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                self._report("line", line.decode("latin-1"))

    def _report(self, kind: str, value: str) -> None:
        with suppress(OSError), self._lock:  # The test may have ended.
            self._line.sendall(encode({kind: value}) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1].split(":")[0]))
