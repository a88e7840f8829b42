"""Ends the servers of a program that dies without closing them, by a watcher process (POSIX).

There is one watcher per process, from the first server that it starts to the last one that ends.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading

from syncmcp.transports import _watcher

# Lets type checkers for Windows skip what follows.
assert sys.platform != "win32"

_log = logging.getLogger("syncmcp.stdio")

# All that an interpreter may need of the environment, which the watcher must not have otherwise:
# the mark in it would make the watcher one of the processes that are to end.
_LIBRARY_PATHS = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")


class _Watcher:
    """A running watcher process, and the pipe to it. `OSError` if it could not be started."""

    def __init__(self, interpreter: str) -> None:
        # This process keeps the read end, too: else a write to a watcher that was killed would end
        # a program that has restored the default action of SIGPIPE.
        reader, writer = os.pipe()
        self._pipe: tuple[int, ...] = (reader, writer)
        self._writer = writer
        try:
            os.set_blocking(writer, False)
            # In a session of its own, out of the reach of the terminal.
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
        # It is reaped here: Ctrl-C in `Popen.wait` could leave the lock of that locked.
        popen.returncode = 0

    def tell(self, mark: str, order: str) -> bool:
        """Pass an order on, without waiting; `False` if the watcher is dead, or does not read."""
        try:
            return self._runs() and os.write(self._writer, f"{mark} {order}\n".encode("ascii")) > 0
        except BlockingIOError:  # somebody has stopped it
            return False

    def _runs(self, options: int = os.WNOHANG) -> bool:
        try:
            return os.waitpid(self._pid, options)[0] == 0
        except ChildProcessError:  # reaped already
            return False

    def end(self) -> None:
        """Kill and reap it. May be repeated after Ctrl-C."""
        if self._runs():
            os.kill(self._pid, signal.SIGKILL)
            self._runs(0)
        self.close()

    def close(self) -> None:
        """Close the pipe."""
        pipe, self._pipe = self._pipe, ()
        list(map(os.close, pipe))  # all in C, where Ctrl-C cannot come in between


class Watch:
    """The running servers of this process, and their watcher. Used from any thread."""

    def __init__(self) -> None:
        # Not held while a watcher is started, which a file system may hold up. Reentrant: a signal
        # handler may close a client.
        self._lock = threading.RLock()
        self._servers: dict[str, int] = {}
        self._watcher: _Watcher | None = None
        self._starting = False
        self._refused = False

    def add(self, mark: str) -> None:
        """Have processes with this mark ended when this process dies.

        Called before the server is started, so that there is no moment without a watcher.
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
                if not self._servers:  # closed meanwhile
                    self._end_watcher()

    def set_group(self, mark: str, group: int) -> None:
        """Have the process group of the server ended, too."""
        with self._lock:
            self._servers[mark] = group
            self._tell(mark)

    def remove(self, mark: str) -> None:
        """The processes with this mark have ended. Without servers there is no watcher."""
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
        why: object = "no Python interpreter is known that could run it"
        if interpreter is not None:
            try:
                return _Watcher(interpreter)
            except OSError as error:
                why = error
        if not self._refused:
            self._refused = True
            _log.debug("servers may outlive this program if it is killed: no watcher: %s", why)
        return None

    def discard_in_child(self) -> None:
        """In a forked child: the servers and the watcher belong to the parent."""
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
