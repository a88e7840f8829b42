"""The pipes of a child process: frames to stdin, lines from stdout, and the end of stderr."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from syncmcp._base.secrets import Secrets
from syncmcp._base.text import logger
from syncmcp._concurrency.budget import Budget
from syncmcp._concurrency.timing import Alarm, monotonic
from syncmcp.config import Stderr
from syncmcp.errors import ClosedError, ConnectionLost, Delivery, LimitExceeded, McpError
from syncmcp.transports.base import Outgoing

if TYPE_CHECKING:
    from syncmcp.transports._process import Process


# If a server does not read, the queued frames of the program may take this multiple of the longest
# frame.
_BACKLOG_FRAMES = 4

# On systems where writes block, this many bytes are written at a time, to record the progress.
_BLOCKING_PIECE = 64 * 1024

STALL_SECONDS = 30.0
"""How many seconds a server may read nothing while answers to it are queued."""

LAST_ANSWERS_SECONDS = 1.0
"""How many seconds a server that has closed its stdin may still answer earlier requests."""

EXIT_STATUS_WAIT = 0.5
"""How long the error for a broken pipe waits for the exit status that explains it, in seconds.

A system under load closes the pipes of a killed process well before it reports the exit."""

# The values of `Outgoing.state` here. `None`: `send` was not called yet.
_QUEUED = "waiting"
_STARTED = "begun"
_CANCELLED = "withdrawn"


class WriterOwner(Protocol):
    """The methods of a transport that its `StdinWriter` calls."""

    label: str

    def start_thread(self, role: str, target: Callable[[], None]) -> threading.Thread:
        """Start a thread; raise `RuntimeError` when the interpreter is exiting."""
        ...

    def broken_pipe(self, delivery: Delivery, wait: float) -> ConnectionLost:
        """Make the error for a frame, after waiting up to `wait` seconds for an exit status."""
        ...

    def failed(self, out: Outgoing, error: McpError) -> None:
        """Report that a queued frame could not be written."""

    def stalled(self, seconds: float) -> None:
        """Report that the server reads nothing while answers are queued. On the timer thread."""

    def input_closed(self) -> None:
        """Report that the server closed its stdin some time ago. On the timer thread."""


class StdinWriter:
    """Writes whole frames in order, without blocking the senders.

    The sender's thread writes. When the pipe is full, a writer thread is started, and the rest and
    all later frames are queued for it. The queued requests and notifications of the program may
    take a small multiple of `max_frame`, the longest frame in bytes. For the answers and automatic
    notifications of the library, the sender has a `Budget` of its own (`Outgoing.backlog`).
    """

    def __init__(self, owner: WriterOwner, max_frame: int) -> None:
        self._owner = owner
        self._process: Process | None = None
        self.writer: threading.Thread | None = None
        # Guards all fields. Held only for operations that do not block: one write, or the start of
        # the writer thread; the reader thread never takes it. Reentrant, because a signal handler
        # or a finalizer may send or close while its own thread holds the lock.
        self._lock = threading.RLock()
        self._work = threading.Condition(self._lock)
        self._closing = False
        self._closed = False
        self._broken: OSError | None = None
        # Whether a thread uses the pipe. Other threads then queue their frames, and `close` leaves
        # closing the pipe to that thread.
        self._writing = False
        # The rest of a partly written frame, and that frame.
        self._remainder = memoryview(b"")
        self._started: Outgoing | None = None
        self._queue: deque[Outgoing] = deque()
        bound = f"{_BACKLOG_FRAMES} times max_frame"  # of the program's frames in the queue
        self._backlog = Budget(_BACKLOG_FRAMES * max_frame, None, bound)
        # When the writer thread last wrote something.
        self._progress_at = 0.0
        self._stall_alarm = Alarm(self._lock, self._check_progress)
        self._broken_alarm = Alarm(self._lock, owner.input_closed)

    def open(self, process: Process) -> None:
        """Write to the stdin of `process` from now on."""
        self._process = process

    def send(self, out: Outgoing) -> None:
        """See `StdioTransport.send`."""
        with self._lock:
            if out.state is _CANCELLED:
                return
            process = self._process
            if process is None or self._closing:
                raise self._not_open_error()
            if self._broken is not None:
                raise self._owner.broken_pipe("not_sent", 0) from self._broken
            if process.writes_block or self._writing or self._remainder or self._queue:
                self._enqueue(out)
            elif not self._write_now(process, out):
                return
            self._work.notify()
            if self.writer is not None:
                return
            try:
                self.writer = self._owner.start_thread("write", self._write_backlog)
            except RuntimeError as error:  # at interpreter exit no thread can be started any more
                raise self._owner.broken_pipe(self.cancel(out), 0) from error

    def _not_open_error(self) -> ClosedError:
        return ClosedError("the transport is not open", server=self._owner.label)

    def _write_now(self, process: Process, out: Outgoing) -> bool:
        """Write on this thread; return whether anything is left for the writer thread."""
        data = memoryview(out.body + b"\n")
        size = len(data)
        taken: list[int] = []
        self._writing = True
        try:
            if self._closing:  # a signal handler closed just before
                raise self._not_open_error()
            process.write(data, taken)
        except OSError as error:
            self._break(error)
            raise self._owner.broken_pipe("not_sent", 0) from error
        finally:
            # Ctrl-C may be raised right after the write, so the state is updated here.
            if taken:
                out.state = _STARTED
                if taken[0] < size:
                    self._started, self._remainder = out, data[taken[0] :]
            self._writing = False
            if self._closing:
                self._close_pipe(process)
        if not taken:
            self._enqueue(out)
        elif self._started is out:
            self._watch_progress(out)
        elif out.backlog is not None:
            out.leave()
        return bool(self._remainder or self._queue)  # a signal handler may have sent something

    def _break(self, error: OSError) -> None:
        """Record that the pipe is broken, and report it later. The caller holds the lock."""
        self._broken = error
        self._broken_alarm.set(monotonic() + LAST_ANSWERS_SECONDS)

    def _enqueue(self, out: Outgoing) -> None:
        if out.backlog is None:
            try:
                out.enter(self._backlog)
            except LimitExceeded as error:
                error.server = self._owner.label
                raise
        out.state = _QUEUED
        self._queue.append(out)
        self._watch_progress(out)

    def _is_owed(self, out: Outgoing) -> bool:
        """Return whether the library sends `out` by itself: no call's timeout ends its wait."""
        return out.backlog is not None and out.backlog is not self._backlog

    def _watch_progress(self, out: Outgoing) -> None:
        """Have the timer check whether the server reads, if the library sends `out` by itself."""
        if self._is_owed(out):
            self._stall_alarm.set(out.created_at + STALL_SECONDS)

    def _check_progress(self) -> None:
        """Report a server that reads nothing while answers are queued. On the timer thread."""
        with self._lock:
            waiting = [*self._queue] if self._started is None else [self._started, *self._queue]
            owed = [out.created_at for out in waiting if self._is_owed(out)]
            if self._closing or self._broken is not None or not owed:
                return
            due = max(self._progress_at, min(owed)) + STALL_SECONDS
            if monotonic() < due:
                self._stall_alarm.set(due)
                return
            self._broken = TimeoutError("the server does not read")
        self._owner.stalled(STALL_SECONDS)

    def cancel(self, out: Outgoing) -> Delivery:
        """Cancel a frame; complete it if it is partly written, or later frames would be garbled."""
        with self._lock:
            if out.state is _QUEUED:
                out.state = _CANCELLED
                self._queue.remove(out)
                out.leave()
            elif out.state is None:
                out.state = _CANCELLED
            return "not_sent" if out.state is _CANCELLED else "unknown"

    def close(self) -> None:
        """Close the pipe and end the writer thread. Queued frames are discarded. Idempotent."""
        with self._lock:
            self._closing = True
            self._stall_alarm.cancel()
            self._broken_alarm.cancel()
            self._work.notify_all()
            process = self._process
            if process is None:
                return
            process.end_input()
            if not self._writing:
                self._close_pipe(process)

    def _close_pipe(self, process: Process) -> None:
        """Close the server's stdin, once. The caller holds the lock."""
        if not self._closed:
            process.close_input()
            self._closed = True

    # -- the writer thread

    def _write_backlog(self) -> None:
        with self._lock:  # Ctrl-C may have come before `send` stored the thread
            if self.writer is None:
                self.writer = threading.current_thread()
            if self.writer is not threading.current_thread():
                return
        process = self._process
        while process is not None and self._claim_pipe():
            self._write_next(process)

    def _claim_pipe(self) -> bool:
        """Wait for frames and claim the pipe; `False` if the pipe is closed or broken."""
        with self._work:
            while not (self._closing or self._broken or self._remainder or self._queue):
                self._work.wait()
            self._writing = not (self._closing or self._broken)
            return self._writing

    def _write_next(self, process: Process) -> None:
        """Write as much as fits into the pipe, without the lock: this thread claimed the pipe."""
        taken: list[int] = []
        failure: OSError | None = None
        try:
            if process.wait_writable():
                piece = self._next_piece()
                process.write(piece[:_BLOCKING_PIECE] if process.writes_block else piece, taken)
        except OSError as error:
            failure = error
        with self._lock:
            self._writing = False
            if taken:
                self._progress_at = monotonic()
                self._remainder = self._remainder[sum(taken) :]
                if not self._remainder and self._started is not None:
                    self._started.leave()
                    self._started = None
            if self._closing:
                self._close_pipe(process)
                return
            if failure is None:
                return
            self._break(failure)
            unsent = [*self._queue]
            for out in unsent:
                self.cancel(out)
            if self._started is not None:
                self._started.leave()
        # The connection is lost a little later: a server may close its stdin, and still answer what
        # it has read. The reader thread reports the end of stdout.
        if self._started is not None:
            unsent.insert(0, self._started)
        wait = EXIT_STATUS_WAIT  # only for the first frame
        for out in unsent:
            if out.ids:
                delivery: Delivery = "unknown" if out is self._started else "not_sent"
                lost = self._owner.broken_pipe(delivery, wait)
                wait = 0.0
                lost.__cause__ = failure
                self._owner.failed(out, lost)

    def _next_piece(self) -> memoryview:
        with self._lock:
            if not self._remainder and self._queue:
                self._started = out = self._queue.popleft()
                out.state = _STARTED
                self._remainder = memoryview(out.body + b"\n")
            return self._remainder


class TruncatedLine(bytes):
    """The beginning of a line that was longer than the limit; the rest was discarded."""

    __slots__ = ()


class LineReader:
    """Splits chunks of bytes into lines, in linear time and limited memory.

    A line ends at the byte 0x0A only: JSON strings may contain the other line ends of
    `str.splitlines`. One carriage return before it is removed. Lines of more than `limit` bytes are
    truncated.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # One buffer: a list of small chunks would take many times their bytes.
        self._partial = bytearray()
        self._truncating = False

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the lines that they complete, without their line ends.

        A line over the limit is returned as a `TruncatedLine`, as soon as the limit is exceeded.
        """
        end = chunk.find(b"\n")
        if end < 0:
            return self._keep_partial(chunk)
        if end == len(chunk) - 1 and end <= self._limit and not (self._partial or self._truncating):
            # One whole line, as most chunks are.
            return [chunk[:-2] if chunk.endswith(b"\r\n") else chunk[:-1]]
        lines = [] if self._truncating else self._complete_first(chunk[:end])
        self._truncating = False
        if end + 1 < len(chunk):
            *whole, rest = chunk[end + 1 :].split(b"\n")
            lines += [self._finish_line(line) for line in whole]
            lines += self._keep_partial(rest)
        return lines

    def rest(self) -> bytes:
        """The bytes after the last line end, at the end of the stream."""
        return self._take_partial()

    def _complete_first(self, part: bytes) -> list[bytes]:
        if self._partial:
            self._partial += part
            part = self._take_partial()
        return [self._finish_line(part)]

    def _take_partial(self) -> bytes:
        part = bytes(self._partial)
        self._partial.clear()
        return part

    def _finish_line(self, line: bytes) -> bytes:
        if line.endswith(b"\r"):
            line = line[:-1]
        return line if len(line) <= self._limit else TruncatedLine(line[: self._limit])

    def _keep_partial(self, part: bytes) -> list[bytes]:
        if self._truncating or not part:
            return []
        self._partial += part
        # One byte more than the limit: it may be a carriage return, which does not count.
        if len(self._partial) <= self._limit + 1:
            return []
        self._truncating = True
        return [TruncatedLine(self._take_partial()[: self._limit])]


_log = logger("syncmcp.stderr")

_TAIL_BYTES = 4 * 1024
_TAIL_LINES = 20

# More is kept than shown, so that a secret at the edge of the tail can still be redacted.
_KEPT_BYTES = 4 * _TAIL_BYTES

_LONGEST_LINE = 64 * 1024


class StderrSink:
    """Receives one server's stderr; stores its end for errors, and passes lines to the user.

    Only the thread that reads stderr calls the methods, except `tail`. Secrets are redacted in
    `tail` and in the log. Other targets belong to the user, and a sign-in link there must stay
    usable.

    Raises `OSError` if the file that `target` names cannot be opened.
    """

    def __init__(self, target: Stderr, label: str, secrets: Secrets) -> None:
        self._label = label
        self._secrets = secrets
        self._lines = LineReader(_LONGEST_LINE)
        self._recent = bytearray()
        # Guards the recent bytes: other threads read the tail.
        self._lock = threading.RLock()
        self._close_file: Callable[[], None] | None = None
        self._deliver_line = self._choose(target)

    def _choose(self, target: Stderr) -> Callable[[str], None] | None:
        if target == "log":
            return self._to_log
        if target == "inherit":
            return _to_own_stderr
        if target == "devnull":
            return None
        if callable(target):
            return target
        file = Path(os.fspath(target)).open("a", encoding="utf-8", buffering=1)  # noqa: SIM115
        self._close_file = file.close

        def append(line: str) -> None:
            file.write(line + "\n")

        return append

    def _to_log(self, line: str, *, cut: bool = False) -> None:
        # At INFO: servers log to stderr, so a line does not mean an error.
        if _log.isEnabledFor(logging.INFO):
            _log.info("[%s] %s", self._label, self._secrets.redact(line, ends_cut=cut))

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes."""
        with self._lock:
            self._recent += chunk[-_KEPT_BYTES:]
            del self._recent[:-_KEPT_BYTES]
        for line in self._lines.feed(chunk):
            self._deliver(line)

    def close(self) -> None:
        """Deliver the bytes after the last line end, and close the file, if any."""
        rest = self._lines.rest()
        if rest:
            self._deliver(rest)
        if self._close_file is not None:
            with contextlib.suppress(OSError):  # on a full disk; `_deliver` has logged it
                self._close_file()

    def tail(self) -> str:
        """Return the last lines, secrets removed.

        It may be called from any thread.
        """
        with self._lock:
            kept = bytes(self._recent)
        text = kept.decode("utf-8", "replace")
        text = self._secrets.redact(text, starts_cut=len(kept) == _KEPT_BYTES)
        return "\n".join(text.splitlines()[-_TAIL_LINES:])[-_TAIL_BYTES:].strip()

    def _deliver(self, line: bytes) -> None:
        if self._deliver_line is None:
            return
        try:
            text = line.decode("utf-8", "replace")
            if self._deliver_line == self._to_log:
                self._to_log(text, cut=isinstance(line, TruncatedLine))
            else:
                self._deliver_line(text)
        except Exception:  # of the user's function or file: stderr must still be read
            self._deliver_line = None
            _log.exception("[%s] stderr lines cannot be passed on, and are dropped", self._label)


def _to_own_stderr(line: str) -> None:
    # Read each time: a notebook replaces `sys.stderr`, and without a console it is `None`.
    if sys.stderr is not None:
        sys.stderr.write(line + "\n")
