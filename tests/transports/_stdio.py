"""Shared code of the stdio tests: servers to start, and a receiver that records."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency import timing
from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.testing.leaks import library_threads
from syncmcp.transports.base import Outgoing
from syncmcp.transports.stdio import StdioTransport
from tests.support.parts import raising

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from syncmcp.errors import McpError

# In seconds; far above the duration of any wait that succeeds.
PATIENCE = 20.0

ROOT = Path(__file__).parents[2]

ECHO = """
import sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""

# It writes its process id, and ends only at SIGKILL.
STUBBORN = """
import os, signal
for number in (signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
os.write(1, b'{"pid":%d}\\n' % os.getpid())
while True:
    signal.pause()
"""


def python(code: str, *args: str, **options: Any) -> Stdio:
    """Return a server that runs `code`."""
    return Stdio(sys.executable, "-I", "-S", "-c", code, *args, **options)


def frame(body: bytes = b'{"id":1}', id: int | None = 1) -> Outgoing:
    ids = () if id is None else (id,)
    now = timing.monotonic()  # the clock that tests move
    return Outgoing(body, "test", id, ids, {}, Deadline(None), created_at=now)


class Notes:
    """A receiver that records; `on_receive` and `on_lost` run before each record."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.frames: list[bytes] = []
        self.failures: list[tuple[Outgoing, McpError]] = []
        self.losses: list[McpError] = []
        self.on_receive: Callable[[], None] = lambda: None
        self.on_lost: Callable[[], None] = lambda: None

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        self.on_receive()
        self._note(self.frames, frame)
        return False

    # For streams, which stdio does not have.
    alive = messages_missed = server_stream_ended = settled = raising(AssertionError)

    def failed(self, out: Outgoing, error: McpError) -> None:
        self._note(self.failures, (out, error))

    def lost(self, error: McpError) -> None:
        self.on_lost()
        self._note(self.losses, error)

    def _note(self, notes: list[Any], note: object) -> None:
        with self._changed:
            notes.append(note)
            self._changed.notify_all()

    def until(self, reached: Callable[[], object]) -> None:
        with self._changed:
            assert self._changed.wait_for(reached, PATIENCE), (self.frames[:3], self.losses)

    def wait_frames(self, count: int) -> list[bytes]:
        self.until(lambda: len(self.frames) >= count)
        return self.frames

    def wait_lost(self) -> McpError:
        self.until(lambda: self.losses)
        return self.losses[0]


@contextlib.contextmanager
def running(
    config: Stdio, notes: Notes | None = None, close: float | None = PATIENCE
) -> Iterator[tuple[StdioTransport, Notes]]:
    """Open a transport, and close it at the end."""
    notes = notes or Notes()
    transport = StdioTransport(config)
    transport.open(notes, Deadline(PATIENCE))
    try:
        yield transport, notes
    finally:
        transport.close(Deadline(close))


def pid_of(transport: StdioTransport) -> int:
    process: Any = transport._process
    pid: int = process._popen.pid
    return pid


def with_daemon(code: str, **options: Any) -> str:
    """Return the code of a server that ends with its input, and leaves a daemon that runs `code`.

    The daemon has a session of its own, and no pipe of the server, which writes the daemon's
    process id. With `env={}` the daemon has no mark, as if it had overwritten its environment.
    """
    named = {"start_new_session": True, "stdin": -3, "stdout": -3, "stderr": -3, **options}
    return (
        "import os, subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-I', '-S', '-c', {code!r}], **{named!r})\n"
        "os.write(1, b'{\"pid\":%d}\\n' % child.pid)\n"
        "sys.stdin.read()\n"
    )


def said(notes: Notes) -> int:
    """Return the process id in the first message."""
    pid: int = json.loads(notes.wait_frames(1)[0])["pid"]
    return pid


def watcher() -> int | None:
    """Return the id of the process that ends the servers of this one, if it runs."""
    from syncmcp.transports import _posix  # missing on Windows

    running = _posix.watch._watcher
    return None if running is None else running._pid


def kill(pid: int) -> None:
    """Kill a process with SIGKILL."""
    os.kill(pid, signal.SIGKILL)


def wait_gone(pid: int) -> bool:
    """Wait until any process has ended; return `False` if it still runs."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE * 1000))
    finally:
        os.close(descriptor)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def threads() -> list[threading.Thread]:
    return list(library_threads())


PROGRAM = """
import os, signal, subprocess, sys, threading, time
from syncmcp._concurrency import timing
from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.transports.stdio import StdioTransport
from tests.transports._stdio import (
    ECHO, Notes, frame, is_running, pid_of, python, running, wait_gone
)
notes = Notes()
transport = StdioTransport(python(ECHO))
transport.open(notes, Deadline(10))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program with an open transport in a session of its own."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", PROGRAM + code],
        check=False,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
