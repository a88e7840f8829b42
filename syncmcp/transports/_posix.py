"""Server processes on POSIX systems: pipes, a session per server, signals, and the watcher."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from syncmcp._base.text import logger
from syncmcp._concurrency.timing import Deadline, gevent_patched
from syncmcp.transports import _watcher
from syncmcp.transports._process import close_all, make_pipes

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

_log = logger("syncmcp.stdio")

# The first read of stdout after a pause asks for a small chunk. For a big one the system allocates
# memory each time, which takes longer than reading a short response.
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
        watch.add(mark)
        # Before the process is started: if no descriptors were free for them, nothing would end it.
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
        watch.remove(mark)
        close_all(ours)
        for wake in wakes:
            wake.close()
        raise
    finally:
        close_all(theirs)
    watch.set_group(mark, popen.pid)
    return PosixProcess(popen, mark, ours, wakes)


def _marked(env: Mapping[str, str], mark: str) -> Mapping[str, str]:
    if sys.platform != "linux":  # no other process could read the mark
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
        # The descendants that `hold_tree` has found.
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
        """End a blocked read of stdout by a blank line, which is skipped; `False` if impossible."""
        with self._lock:
            if self._stdout < 0:
                return True
            name, flags = f"/proc/self/fd/{self._stdout}", os.O_WRONLY | os.O_NONBLOCK
            pipes: list[int] = []
            try:
                # In one C call, as in `write`.
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
            # Checked before stderr, to which another process may write without a pause.
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
            except ChildProcessError:  # other code of the program has reaped it
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
        """See `Process`. Does nothing without pidfds, which only Linux has."""
        if self.wait(0) is None:  # once it has exited, its descendants have other parents
            _watcher.add_descendants(self._held, self._popen.pid)

    def tree_ended(self, timeout: float) -> bool:
        """Outside of the process group, processes are found on Linux only."""
        deadline = Deadline(timeout)
        while not self._tree_ended and (members := _watcher.find(self._marks)):
            exited = _watcher.wait(members, deadline.remaining() or 0.0)
            _watcher.close(members)
            if not exited:
                return False
        self._tree_ended = _watcher.wait(self._held, deadline.remaining() or 0.0)
        return self._tree_ended

    def terminate(self) -> None:
        # Found before the first signal, after which processes may exit. Each gets one SIGTERM: at a
        # second one, some programs exit without cleaning up.
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
            watch.remove(mark)
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
        # The server is not a child of this process: prevents a warning of `Popen.__del__`.
        self._popen.returncode = 0


def _ready(descriptors: Sequence[int], timeout: float | None) -> list[int]:
    """The readable descriptors, after waiting at most `timeout` seconds for one."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    milliseconds = None if timeout is None else max(0, int(timeout * 1000 + 0.999))
    return [descriptor for descriptor, _ in poll.poll(milliseconds)]


# The watcher ends the servers of a program that dies without closing them. A process has one
# watcher while it has servers.

# The only environment variables that the watcher gets: an interpreter may need them. With a mark in
# its environment, the watcher would be ended like a server.
_LIBRARY_PATHS = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")


class _Watcher:
    """A running watcher process, and the pipe to it.

    Raises `OSError` if the process could not be started.
    """

    def __init__(self, interpreter: str) -> None:
        # This process leaves the read end open. Otherwise a write to a killed watcher would raise
        # SIGPIPE, and end a program that has restored its default action.
        reader, writer = os.pipe()
        self._pipe: tuple[int, ...] = (reader, writer)
        self._writer = writer
        try:
            os.set_blocking(writer, False)
            # In a session of its own, which gets no signals from the terminal.
            popen = subprocess.Popen(
                (interpreter, "-I", "-S", _watcher.__file__, str(os.getpid())),
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ},
                start_new_session=True,
            )
        except BaseException:
            self.close()
            raise
        self._pid = popen.pid
        # `_runs` reaps it: Ctrl-C in `Popen.wait` could leave the lock of `Popen` locked.
        popen.returncode = 0

    def tell(self, mark: str, order: str) -> bool:
        """Send an order, without blocking; `False` if the watcher is dead, or does not read."""
        try:
            return self._runs() and os.write(self._writer, f"{mark} {order}\n".encode("ascii")) > 0
        except BlockingIOError:  # the pipe is full, because the watcher was stopped
            return False

    def _runs(self, options: int = os.WNOHANG) -> bool:
        try:
            return os.waitpid(self._pid, options)[0] == 0
        except ChildProcessError:  # reaped already
            return False

    def end(self) -> None:
        """Kill and reap it.

        The call may be repeated after Ctrl-C.
        """
        if self._runs():
            os.kill(self._pid, signal.SIGKILL)
            self._runs(0)
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        pipe, self._pipe = self._pipe, ()
        list(map(os.close, pipe))  # in one C call, which Ctrl-C cannot interrupt


class Watch:
    """The running servers of this process, and their watcher.

    Methods may be called from any thread.
    """

    def __init__(self) -> None:
        # Not held while a watcher is started, because a file system may block that. Reentrant: a
        # signal handler may close a client.
        self._lock = threading.RLock()
        self._servers: dict[str, int] = {}
        self._watcher: _Watcher | None = None
        self._starting = False
        self._refused = False

    def add(self, mark: str) -> None:
        """Register a mark: the watcher ends the processes with it when this process dies.

        Call this before the server is started, so that no server runs without a watcher.
        """
        with self._lock:
            self._servers[mark] = 0
            if self._starting or self._tell(mark):
                return
            self._starting = True
            self._end_watcher()
        watcher = None
        try:
            watcher = self._start()
        finally:
            with self._lock:
                self._starting = False
                self._watcher = watcher
                for each in self._servers:
                    self._tell(each)
                if not self._servers:  # all were removed during the start
                    self._end_watcher()

    def set_group(self, mark: str, group: int) -> None:
        """Register the process group of the server: the watcher ends it, too."""
        with self._lock:
            self._servers[mark] = group
            self._tell(mark)

    def remove(self, mark: str) -> None:
        """Remove a mark, whose processes have ended. Without servers, end the watcher."""
        with self._lock:
            if self._servers.pop(mark, None) is not None:
                self._tell(mark)
            if not self._servers:
                self._end_watcher()

    def _tell(self, mark: str) -> bool:
        group = self._servers.get(mark, "")
        return self._watcher is not None and self._watcher.tell(mark, str(group))

    def _end_watcher(self) -> None:
        if self._watcher is not None:
            self._watcher.end()
            self._watcher = None

    def _start(self) -> _Watcher | None:
        interpreter = _interpreter()
        why: object = "found no Python interpreter to run the watcher"
        if interpreter is not None:
            try:
                return _Watcher(interpreter)
            except OSError as error:
                why = error
        if not self._refused:
            self._refused = True
            _log.debug("servers may outlive a killed program, because no watcher runs: %s", why)
        return None

    def discard_in_child(self) -> None:
        """Forget servers and watcher in a forked child: they belong to the parent."""
        if self._watcher is not None:
            self._watcher.close()
        self.__init__()  # type: ignore[misc]  # another thread may have held the lock


def _interpreter() -> str | None:
    """This Python; `None` if `sys.executable` may be a program that would start itself again."""
    name = os.path.basename(sys.executable or "").lower()
    frozen = getattr(sys, "frozen", False) or not os.path.isfile(_watcher.__file__)
    return sys.executable if name.startswith(("python", "pypy")) and not frozen else None


watch = Watch()
"""The servers of this process."""

os.register_at_fork(after_in_child=watch.discard_in_child)
