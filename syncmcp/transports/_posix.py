"""Server processes on POSIX systems: non-blocking pipes, a session per server, signals."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from syncmcp._concurrency.timing import Deadline, gevent_patched
from syncmcp.transports import _watcher, _watching
from syncmcp.transports._process import close_all, make_pipes

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

# The first read of stdout after a pause asks for a small chunk: the system allocates memory for a
# big one each time, which takes longer than reading a short response.
_SMALL_CHUNK = 16 * 1024
_CHUNK = 256 * 1024
_PIPE_SIZE = 1024 * 1024

# After `end_output` or `end_errors`, buffered bytes are read in at most this many reads, because a
# process that left the group may continue to write.
_LAST_READS = 16

# How often to check for the exit of a server, in seconds, without a pidfd.
_EXIT_CHECK = 0.25


def start(argv: Sequence[str], env: Mapping[str, str], cwd: str | None) -> PosixProcess:
    """Start a server; see `syncmcp.transports.stdio.start`."""
    ours, theirs = make_pipes()
    mark = os.urandom(16).hex()
    wakes: list[_WakePipe] = []
    try:
        _watching.watch.add(mark)
        # Before the process is started: nothing would end it if there were no descriptors for them.
        wakes.extend(_WakePipe() for _ in range(3))
        os.set_blocking(ours[0], False)
        for descriptor in ours[:2]:
            _enlarge(descriptor)
        # A session of its own: Ctrl-C in the terminal does not reach the server, the foreground
        # process group stays the same, and one signal reaches the server's whole process tree.
        popen = subprocess.Popen(
            argv,
            stdin=theirs[0],
            stdout=theirs[1],
            stderr=theirs[2],
            env=_marked(env, mark),
            cwd=cwd,
            start_new_session=True,
        )
    except BaseException:
        _watching.watch.remove(mark)
        close_all(ours)
        for wake in wakes:
            wake.close()
        raise
    finally:
        close_all(theirs)
    _watching.watch.set_group(mark, popen.pid)
    return PosixProcess(popen, mark, ours, wakes)


def _marked(env: Mapping[str, str], mark: str) -> Mapping[str, str]:
    if sys.platform != "linux":  # nothing could read it
        return env
    outer = os.environ.get(_watcher.VARIABLE)
    return {**env, _watcher.VARIABLE: f"{outer}:{mark}" if outer else mark}


def _enlarge(pipe: int) -> None:
    if sys.platform == "linux":
        import fcntl

        # Fewer context switches for big frames. OSError: the user's pipe memory is used up.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_SIZE)


# To close a descriptor, its number is removed from the attribute first and closed in the next call:
# Python runs no signal handlers in between, so Ctrl-C can neither leak it nor close it twice.


class _WakePipe:
    """A pipe that becomes readable with `set`, and so ends a `poll` in another thread."""

    def __init__(self) -> None:
        self.reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def set(self) -> None:
        # A full pipe is readable already.
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
    """One server process, its process group, and the processes with its mark."""

    writes_block = False

    def __init__(
        self,
        popen: subprocess.Popen[bytes],
        mark: str,
        pipes: Sequence[int],
        wakes: Sequence[_WakePipe],
    ) -> None:
        self._popen = popen
        self._marks = {mark: 0}
        self._stdin, self._stdout, self._stderr = pipes
        self._exit = _watcher.open_pidfd(popen.pid)
        self._input_wake, self._output_wake, self._errors_wake = wakes
        # Guards the descriptors: without it, one could be closed and reused for another file
        # between its check and its use.
        self._lock = threading.RLock()
        self._output_chunk = _SMALL_CHUNK
        self._output_reads: int | None = None
        self._error_reads: int | None = None
        self._exit_reported = False
        self._tree_ended = False
        # What `hold_tree` has found.
        self._held: list[_watcher.Member] = []
        self._reaped = False
        # If a blocking read can be ended from another thread, no `poll` is needed before each read.
        # Under gevent a blocking read would block all greenlets.
        self._can_wake_reader = not gevent_patched("threading") and self._wake_reader(b"")

    # -- stdout

    def read_output(self) -> bytes:
        if self._can_wake_reader and self._output_reads is None:
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
        if self._output_reads is None:
            self._output_reads = _LAST_READS
        self._output_wake.set()
        if self._can_wake_reader:
            self._wake_reader(b"\n")

    def _wake_reader(self, data: bytes) -> bool:
        """End a blocking read of stdout by a blank line in that pipe, which the reader skips."""
        with self._lock:
            if self._stdout < 0:
                return True
            name, flags = f"/proc/self/fd/{self._stdout}", os.O_WRONLY | os.O_NONBLOCK
            pipes: list[int] = []
            try:
                # All in C, as in `write`.
                pipes.extend(map(os.open, (name,), (flags,)))
                # A full pipe needs no wake-up: its reader is not blocked.
                with contextlib.suppress(BlockingIOError):
                    os.write(pipes[0], data)
            except OSError:  # not Linux, or no /proc
                return False
            finally:
                for pipe in pipes:
                    os.close(pipe)
            return True

    def close_output(self) -> None:
        with self._lock:
            pipe, self._stdout = self._stdout, -1
            if pipe >= 0:
                os.close(pipe)

    # -- stderr, and the end of the process

    def read_errors(self) -> bytes | None:
        while True:
            watched = [self._errors_wake.reader]
            if self._stderr >= 0:
                watched.append(self._stderr)
            if not self._exit_reported and self._exit is not None:
                watched.append(self._exit)
            if self._exit_reported and self._stderr < 0:
                return b""
            blind = not self._exit_reported and self._exit is None
            ready = _ready(watched, _EXIT_CHECK if blind else None)
            if self._error_reads is not None:
                if self._error_reads == 0 or self._stderr not in ready:
                    return b""
                self._error_reads -= 1
            # Checked before stderr, which another process may keep filling.
            elif self._exit in ready or (blind and self.wait(0) is not None):
                self._exit_reported = True
                return None
            if self._stderr in ready:
                data = os.read(self._stderr, _CHUNK)
                if data:
                    return data
                self.close_errors()

    def end_errors(self) -> None:
        if self._error_reads is None:
            self._error_reads = _LAST_READS
        self._errors_wake.set()

    def close_errors(self) -> None:
        pipe, self._stderr = self._stderr, -1
        if pipe >= 0:
            os.close(pipe)

    # -- stdin

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        try:  # noqa: SIM105 - `suppress` is slower, and each frame passes here
            # In one C call: Python runs no signal handler between the write and the append.
            taken.extend(map(os.write, (self._stdin,), (data,)))
        except BlockingIOError:
            pass  # the pipe is full

    def wait_writable(self) -> bool:
        poll = select.poll()
        poll.register(self._stdin, select.POLLOUT)
        poll.register(self._input_wake.reader, select.POLLIN)
        return all(descriptor == self._stdin for descriptor, _ in poll.poll())

    def end_input(self) -> None:
        self._input_wake.set()

    def close_input(self) -> None:
        pipe, self._stdin = self._stdin, -1
        if pipe >= 0:
            os.close(pipe)

    # -- the process

    def wait(self, timeout: float | None) -> int | None:
        if self._popen.returncode is not None:
            return self._popen.returncode
        if sys.platform == "linux" and self._exit is not None:
            _ready((self._exit,), timeout)
            try:
                # WNOWAIT does not reap the process, whose id is that of the process group.
                status = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:  # the program has reaped it in another way
                return self._popen.poll()
            if status is None:
                return None
            exited = status.si_code == os.CLD_EXITED
            return status.si_status if exited else -status.si_status
        try:
            return self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None

    def hold_tree(self) -> None:
        """On Linux, with pidfds."""
        if self.wait(0) is None:  # once it has exited, its descendants have other parents
            _watcher.add_descendants(self._held, self._popen.pid)

    def tree_ended(self, timeout: float) -> bool:
        """Processes outside of the group are found on Linux only."""
        deadline = Deadline(timeout)
        while not self._tree_ended and (members := _watcher.find(self._marks)):
            exited = _watcher.wait(members, deadline.remaining() or 0.0)
            _watcher.close(members)
            if not exited:
                return False
        self._tree_ended = _watcher.wait(self._held, deadline.remaining() or 0.0)
        return self._tree_ended

    def terminate(self) -> None:
        # Held before the signal, at which the others may exit. Each gets one: for some programs a
        # second one means to give up at once.
        members = _watcher.find(self._marks)
        self._signal_group(signal.SIGTERM)
        for member in {member.pid: member for member in (*members, *self._held)}.values():
            if member.group() != self._popen.pid:
                member.signal(signal.SIGTERM)
        _watcher.close(members)

    def kill(self) -> None:
        if self._reaped:
            return  # the process id may have been reused
        if not self._tree_ended:
            self.hold_tree()
        self._signal_group(signal.SIGKILL)
        if not self._tree_ended:
            for member in self._held:
                member.signal(signal.SIGKILL)
            _watcher.kill(self._marks)
            _watcher.wait(self._held, 1.0)
        for mark in self._marks:
            _watching.watch.remove(mark)
        # A process in an uninterruptible system call exits only after that call.
        if (code := self.wait(1.0)) is not None:
            # Not by `Popen.poll`: Ctrl-C during it could leave its lock locked.
            if self._popen.returncode is None:
                with contextlib.suppress(ChildProcessError):  # already reaped
                    os.waitpid(self._popen.pid, os.WNOHANG)
                self._popen.returncode = code
            self._reaped = True

    def _signal_group(self, number: signal.Signals) -> None:
        # PermissionError: the rest of the group belongs to another user, or is a zombie (macOS).
        with contextlib.suppress(ProcessLookupError, PermissionError, ChildProcessError):
            if sys.platform == "linux":
                # Fails if the program has reaped the server: the id may be another group's by now.
                os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            os.killpg(self._popen.pid, number)

    def release(self) -> None:
        with self._lock:
            watch, self._exit = self._exit, None
            if watch is not None:
                os.close(watch)
            for wake in (self._input_wake, self._output_wake, self._errors_wake):
                wake.close()
            held, self._held = self._held, []
            _watcher.close(held)

    def discard_in_child(self) -> None:
        self._lock = threading.RLock()  # a thread of the parent may have held the lock
        self.close_input()
        self.close_output()
        self.close_errors()
        self.release()
        # The server is no child of this process: prevents a warning of `Popen.__del__`.
        self._popen.returncode = 0


def _ready(descriptors: Sequence[int], timeout: float | None) -> list[int]:
    """The readable descriptors, after waiting at most `timeout` seconds for one."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
    return [descriptor for descriptor, _ in poll.poll(milliseconds)]
