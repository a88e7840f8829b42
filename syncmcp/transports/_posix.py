"""Server processes on POSIX systems: pipes that do not block, a session of their own, signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

from syncmcp._concurrency.timing import gevent_patched
from syncmcp.transports._process import close_all, make_pipes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

# The first read of stdout after a pause asks for little: memory for the big size comes from the
# system each time, which costs a short call more than its pipe does.
_SMALL_CHUNK = 16 * 1024
_CHUNK = 256 * 1024
_PIPE_SIZE = 1024 * 1024

# After `end_output` or `end_errors`, what the pipe still holds is read in at most this many reads,
# because a process that escaped may go on writing for ever.
_LAST_READS = 16

# How often the exit of a server is looked for, in seconds, where the kernel cannot report it.
_EXIT_CHECK = 0.25


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> PosixProcess:
    """Start a server; see `syncmcp.transports._process.start`."""
    ours, theirs = make_pipes()
    try:
        os.set_blocking(ours[0], False)
        for descriptor in ours[:2]:
            _enlarge(descriptor)
        # A session of its own: Ctrl-C at the terminal does not reach the server, the terminal's
        # foreground group stays as it is, and one signal reaches the server's whole tree.
        popen = subprocess.Popen(
            argv,
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        close_all(ours)
        raise
    finally:
        close_all(theirs)
    return PosixProcess(popen, *ours)


def _enlarge(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl

        # Fewer switches for big frames. The system bounds what a user may have: no matter then.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


def _watch_exit(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends, where there is such a thing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None


# What closes a descriptor takes its number away first, and closes it with the next call: in between
# no interpreter looks for signals, so that none is lost to Ctrl-C, or closed twice.


class _Wake:
    """A pipe that is readable once it was set: it ends a `poll` in another thread."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        # Full means set many times over.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"!")

    def close(self) -> None:
        reader, self.reader = self.reader, -1
        if reader >= 0:
            os.close(reader)
        writer, self._writer = self._writer, -1
        if writer >= 0:
            os.close(writer)


class PosixProcess:
    """One server process and its process group."""

    writes_block = False

    def __init__(
        self, popen: subprocess.Popen[bytes], stdin: int, stdout: int, stderr: int
    ) -> None:
        self._popen = popen
        self._stdin = stdin
        self._stdout = stdout
        self._stderr = stderr
        self._exit = _watch_exit(popen.pid)
        self._input_wake = _Wake()
        self._output_wake = _Wake()
        self._errors_wake = _Wake()
        # Guards the numbers of the pipes against being closed, and given to another file, between
        # the look at them and their use.
        self._guard = threading.RLock()
        self._output_chunk = _SMALL_CHUNK
        self._output_reads: int | None = None
        self._error_reads: int | None = None
        self._exit_told = False
        self._cleared = False
        # One system call for each read where a blocked read can be ended from outside, and where
        # it blocks a thread, not all greenlets.
        self._can_nudge = not gevent_patched("threading") and self._nudge(b"")

    # -- stdout

    def read_output(self) -> bytes:
        """See `Process`."""
        if self._can_nudge and self._output_reads is None:
            data = os.read(self._stdout, self._output_chunk)
            self._output_chunk = _CHUNK if len(data) >= _SMALL_CHUNK else _SMALL_CHUNK
            return data
        ready = _ready((self._stdout, self._output_wake.reader), None)
        if self._output_reads is not None:
            if self._output_reads == 0:
                return b""
            self._output_reads -= 1
        return os.read(self._stdout, _CHUNK) if self._stdout in ready else b""

    def end_output(self) -> None:
        """See `Process`."""
        if self._output_reads is None:
            self._output_reads = _LAST_READS
        self._output_wake.set()
        if self._can_nudge:
            self._nudge(b"\n")

    def _nudge(self, data: bytes) -> bool:
        """Write to the pipe that the reader waits on: a blank line, which it skips."""
        with self._guard:
            if self._stdout < 0:
                return True
            name, flags = f"/proc/self/fd/{self._stdout}", os.O_WRONLY | os.O_NONBLOCK
            pipes: list[int] = []
            try:
                # All in C, as in `write`.
                pipes.extend(map(os.open, (name,), (flags,)))
                # A full pipe needs no nudge: its reader is not waiting.
                with contextlib.suppress(BlockingIOError):
                    os.write(pipes[0], data)
            except OSError:  # not Linux, or no /proc
                return False
            finally:
                for pipe in pipes:
                    os.close(pipe)
            return True

    def close_output(self) -> None:
        """See `Process`."""
        with self._guard:
            pipe, self._stdout = self._stdout, -1
            if pipe >= 0:
                os.close(pipe)

    # -- stderr, and the end of the process

    def read_errors(self) -> bytes | None:
        """See `Process`."""
        while True:
            watched = [self._errors_wake.reader]
            if self._stderr >= 0:
                watched.append(self._stderr)
            if not self._exit_told and self._exit is not None:
                watched.append(self._exit)
            if self._exit_told and self._stderr < 0:
                return b""
            blind = not self._exit_told and self._exit is None
            ready = _ready(watched, _EXIT_CHECK if blind else None)
            if self._error_reads is not None:
                if self._error_reads == 0 or self._stderr not in ready:
                    return b""
                self._error_reads -= 1
            # Before stderr, which another process may go on filling.
            elif self._exit in ready or (blind and self.wait(0) is not None):
                self._exit_told = True
                return None
            if self._stderr in ready:
                data = os.read(self._stderr, _CHUNK)
                if data:
                    return data
                self.close_errors()

    def end_errors(self) -> None:
        """See `Process`."""
        if self._error_reads is None:
            self._error_reads = _LAST_READS
        self._errors_wake.set()

    def close_errors(self) -> None:
        """See `Process`."""
        pipe, self._stderr = self._stderr, -1
        if pipe >= 0:
            os.close(pipe)

    # -- stdin

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        """See `Process`."""
        with contextlib.suppress(BlockingIOError):
            # No interpreter looks for signals between the write and the record: it is all in C.
            taken.extend(map(os.write, (self._stdin,), (data,)))

    def wait_writable(self) -> bool:
        """See `Process`."""
        poll = select.poll()
        poll.register(self._stdin, select.POLLOUT)
        poll.register(self._input_wake.reader, select.POLLIN)
        return all(descriptor == self._stdin for descriptor, _ in poll.poll())

    def end_input(self) -> None:
        """See `Process`."""
        self._input_wake.set()

    def close_input(self) -> None:
        """See `Process`."""
        pipe, self._stdin = self._stdin, -1
        if pipe >= 0:
            os.close(pipe)

    # -- the process

    def wait(self, timeout: float | None) -> int | None:
        """See `Process`."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        if sys.platform == "linux" and self._exit is not None:
            _ready((self._exit,), timeout)
            try:
                # WNOWAIT leaves the entry in the process table: its number is the group's.
                status = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # this program has given the exit status to somebody else
                return self._popen.poll()
            if status is None:
                return None
            exited = status.si_code == os.CLD_EXITED
            return status.si_status if exited else -status.si_status
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def terminate(self) -> None:
        """See `Process`."""
        self._signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """See `Process`."""
        if self._cleared:
            return  # the number may be a stranger's by now
        self._signal_group(signal.SIGKILL)
        # Nothing survives SIGKILL, but a process in a system call of the kernel may need a while.
        if (code := self.wait(1.0)) is not None:
            # Not by `Popen.poll`: Ctrl-C in the midst of it would leave its lock taken for ever.
            if self._popen.returncode is None:
                with contextlib.suppress(ChildProcessError):  # it has been cleared already
                    os.waitpid(self._popen.pid, os.WNOHANG)
                self._popen.returncode = code
            self._cleared = True

    def _signal_group(self, number: signal.Signals) -> None:
        # PermissionError: what is left of the group belongs to another user, or, on macOS, is a
        # zombie.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._popen.pid, number)

    def release(self) -> None:
        """See `Process`."""
        with self._guard:
            watch, self._exit = self._exit, None
            if watch is not None:
                os.close(watch)
            for wake in (self._input_wake, self._output_wake, self._errors_wake):
                wake.close()

    def abandon(self) -> None:
        """See `Process`."""
        self._guard = threading.RLock()  # a thread of the parent may have held it
        self.close_input()
        self.close_output()
        self.close_errors()
        self.release()
        # It is the parent's child: keeps `Popen.__del__` from asking for it, and warning.
        self._popen.returncode = 0


def _ready(descriptors: Sequence[int], timeout: float | None) -> list[int]:
    """Those that can be read without waiting, after at most `timeout` seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
    return [descriptor for descriptor, _ in poll.poll(milliseconds)]
