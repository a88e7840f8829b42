"""Frames on their way into the pipe of a server that may be slow to read, or not read at all."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol

from syncmcp.errors import ClosedError, LimitExceeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp.errors import ConnectionLost, Delivery, McpError
    from syncmcp.transports._process import Process
    from syncmcp.transports.base import Outgoing

# What may wait for a server that does not read, as a multiple of the longest frame.
_BACKLOG_FRAMES = 4

# How long, in seconds, the news of a broken pipe waits for the exit status that explains it.
_EXIT_WAIT = 0.05

# What `Outgoing.state` says here. `None`: not handed over yet.
_WAITING = "waiting"
_BEGUN = "begun"
_WITHDRAWN = "withdrawn"


class Owner(Protocol):
    """What an outbox asks of its transport."""

    label: str

    def start_thread(self, role: str, target: Callable[[], None]) -> threading.Thread:
        """Start a thread; `RuntimeError` when the interpreter is ending."""
        ...

    def broken_pipe(self, delivery: Delivery, wait: float) -> ConnectionLost:
        """Build the error for a frame, with an exit status that may be `wait` seconds away."""
        ...

    def failed(self, out: Outgoing, error: McpError) -> None:
        """Tell that a frame that waited could not be written."""
        ...


class Outbox:
    """Writes frames whole and in order, and never makes a sender wait.

    The sender writes by itself. What the pipe does not take at once goes, like every later frame,
    to a thread that is started then.

    Args:
        owner: The transport.
        max_frame: The longest frame, in bytes; a few times this may be waiting.
    """

    def __init__(self, owner: Owner, max_frame: int) -> None:
        self._owner = owner
        self._limit = _BACKLOG_FRAMES * max_frame
        self._process: Process | None = None
        self.writer: threading.Thread | None = None
        # Guards everything here. Held only for what cannot block: one write, or the start of the
        # writer thread; the reader never takes it. Reentrant, because a signal handler or a
        # finalizer may send or close while its own thread is in here.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._closing = False
        self._closed = False
        self._broken: OSError | None = None
        # Whether a thread is using the pipe: others queue, and `close` leaves the closing to it.
        self._writing = False
        # What is left of a frame that the pipe took a part of, and whose frame that is.
        self._rest = memoryview(b"")
        self._begun: Outgoing | None = None
        self._backlog: deque[Outgoing] = deque()
        self._backlog_size = 0

    def open(self, process: Process) -> None:
        """Write to the stdin of `process` from now on."""
        self._process = process

    def send(self, out: Outgoing) -> None:
        """See `StdioTransport.send`."""
        with self._lock:
            if out.state is _WITHDRAWN:
                return
            process = self._process
            if process is None or self._closing:
                raise self._not_open()
            if self._broken is not None:
                raise self._owner.broken_pipe("not_sent", 0) from self._broken
            if process.writes_block or self._writing or self._rest or self._backlog:
                self._enqueue(out)
            elif not self._write_now(process, out):
                return
            self._work.notify()
            if self.writer is not None:
                return
            try:
                self.writer = self._owner.start_thread("write", self._write_backlog)
            except RuntimeError as error:  # at interpreter exit no thread can be started any more
                raise self._owner.broken_pipe(self.withdraw(out), 0) from error

    def _not_open(self) -> ClosedError:
        return ClosedError("the transport is not open", server=self._owner.label)

    def _write_now(self, process: Process, out: Outgoing) -> bool:
        """Write on this thread; returns whether something is left to the writer thread."""
        data = memoryview(out.body + b"\n")
        size = len(data)
        taken: list[int] = []
        self._writing = True
        try:
            if self._closing:  # a signal handler closed just before
                raise self._not_open()
            process.write(data, taken)
        except OSError as error:
            self._broken = error
            raise self._owner.broken_pipe("not_sent", 0) from error
        finally:
            # Ctrl-C may have come right behind the write; it does not come before the next call.
            if taken:
                out.state = _BEGUN
                if taken[0] < size:
                    self._begun, self._rest = out, data[taken[0] :]
            self._writing = False
            if self._closing:
                self._close_pipe(process)
        if not taken:
            self._enqueue(out)
        return bool(self._rest or self._backlog)  # a signal handler may have sent something

    def _enqueue(self, out: Outgoing) -> None:
        size = len(out.body) + 1
        # A single frame may be of any size, so that the bound is on the server's slowness alone.
        if self._backlog and self._backlog_size + size > self._limit:
            raise LimitExceeded(
                f"the server does not read, and {self._backlog_size} bytes wait for it already "
                f"(the bound is {_BACKLOG_FRAMES} times max_frame)",
                server=self._owner.label,
                delivery="not_sent",
            )
        self._backlog_size += size
        out.state = _WAITING
        self._backlog.append(out)

    def withdraw(self, out: Outgoing) -> Delivery:
        """See `Transport`. A frame that was begun is completed: what follows must stay readable."""
        with self._lock:
            if out.state is _WAITING:
                self._backlog_size -= len(out.body) + 1
                out.state = _WITHDRAWN
                self._backlog.remove(out)
            elif out.state is None:
                out.state = _WITHDRAWN
            return "not_sent" if out.state is _WITHDRAWN else "unknown"

    def close(self) -> None:
        """Close the pipe, and let the writer thread end. What still waits is never written."""
        with self._lock:
            self._closing = True
            self._work.notify_all()
            process = self._process
            if process is None:
                return
            process.end_input()
            if not self._writing:
                self._close_pipe(process)

    def abandon(self) -> None:
        """In a forked child: a thread of the parent may have held the lock."""
        self._lock = threading.RLock()

    def _close_pipe(self, process: Process) -> None:
        """Close the server's stdin, once. The caller holds the lock."""
        if not self._closed:
            process.close_input()
            self._closed = True

    # -- the writer thread

    def _write_backlog(self) -> None:
        with self._lock:  # Ctrl-C may have cut it off from whoever started it
            if self.writer is None:
                self.writer = threading.current_thread()
            if self.writer is not threading.current_thread():
                return
        process = self._process
        while process is not None and self._claim_pipe():
            self._write_next(process)

    def _claim_pipe(self) -> bool:
        """Wait for work and take the pipe; `False` when there will be none."""
        with self._work:
            while not (self._closing or self._broken or self._rest or self._backlog):
                self._work.wait()
            self._writing = not (self._closing or self._broken)
            return self._writing

    def _write_next(self, process: Process) -> None:
        """Write what the pipe takes. Outside of the lock: with the pipe claimed, others queue."""
        taken: list[int] = []
        failure: OSError | None = None
        try:
            if process.wait_writable():
                process.write(self._next_piece(), taken)
        except OSError as error:
            failure = error
        with self._lock:
            self._writing = False
            self._rest = self._rest[sum(taken) :]
            if self._closing:
                self._close_pipe(process)
                return
            if failure is None:
                return
            self._broken = failure
            unsent = [*self._backlog]
            for out in unsent:
                self.withdraw(out)
        # The reader tells the end of everything, if it is the end: a server may close its stdin and
        # still answer what it has read.
        if self._begun is not None:
            self._tell(self._begun, "unknown", failure)
        for out in unsent:
            self._tell(out, "not_sent", failure)

    def _next_piece(self) -> memoryview:
        with self._lock:
            if not self._rest and self._backlog:
                self._begun = out = self._backlog.popleft()
                self._backlog_size -= len(out.body) + 1
                out.state = _BEGUN
                self._rest = memoryview(out.body + b"\n")
            return self._rest

    def _tell(self, out: Outgoing, delivery: Delivery, failure: OSError) -> None:
        if out.ids:
            error = self._owner.broken_pipe(delivery, _EXIT_WAIT)
            error.__cause__ = failure
            self._owner.failed(out, error)
