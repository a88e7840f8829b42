"""Locks between threads and between processes, whose waits have a deadline.

`FairLock` excludes threads of this process, `FileLock` other processes, too, and `KeyLocks` has one
`FileLock` for each key. A file lock belongs to an open file, not to the existence of the file: the
system releases it when its holder ends, and a lock file that was left behind locks nothing.
Therefore lock files are never removed. Of the threads of a process that wait for a `FileLock`, only
one has a file open.
"""

from __future__ import annotations

import hashlib
import os
import stat
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from syncmcp._base import files
from syncmcp._base.files import check_owner, reason, unusable
from syncmcp.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syncmcp._concurrency.timing import Deadline

__all__ = ["FairLock", "FileLock", "KeyLocks", "Wait", "lock_timeout"]


Wait: TypeAlias = Callable[[threading.Event, "float | None"], bool]
"""Waits for an event, at most so many seconds; returns True if it was set."""


def lock_timeout(deadline: Deadline) -> RequestTimeout:
    """Return the error of a wait for a lock whose deadline passed."""
    return RequestTimeout(
        "the lock was held by another thread or process for too long",
        seconds=deadline.seconds,
        delivery="not_sent",
    )


class FairLock:
    """A lock between threads, granted in the order in which they began to wait."""

    def __init__(self) -> None:
        # Guards the queue: the holder, and behind it the waiting threads.
        self._lock = threading.RLock()
        self._queue: deque[threading.Event] = deque()
        _fair_locks.add(self)

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Acquire the lock for the length of a `with`.

        Raises:
            RequestTimeout: The deadline passed.
            ExchangeAborted: `wait` raised it.
        """
        granted = threading.Event()
        try:
            with self._lock:
                self._queue.append(granted)
                self._queue[0].set()
            if not wait(granted, deadline.remaining()):
                raise lock_timeout(deadline)
            yield
        finally:
            with self._lock:
                with suppress(ValueError):  # Ctrl-C before it was queued, or a fork
                    self._queue.remove(granted)
                if self._queue:
                    self._queue[0].set()


_fair_locks: weakref.WeakSet[FairLock] = weakref.WeakSet()


def _reset_fair_locks_in_child() -> None:
    # The holders and the waiting threads are in the parent process.
    for lock in list(_fair_locks):
        lock.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_fair_locks_in_child)


# Seconds between two attempts. The lock is polled, because a blocking wait for it has no timeout on
# any system.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """A lock between the threads of all processes that use the same file.

    Waiting processes poll the lock, so a process that releases it and acquires it again at once
    would win against them. A second lock file, the gate, prevents that: only the process that holds
    the gate may wait for the lock.

    Args:
        path: The lock file; the gate is next to it. Their directory has to exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gate = path.with_name(path.name + ".gate")
        self._fair_lock = FairLock()

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Acquire the lock for the length of a `with`.

        Raises:
            RequestTimeout: The deadline passed.
            ExchangeAborted: `wait` raised it.
            OSError: The file cannot be opened or locked.
        """
        with self._fair_lock.take(deadline, wait), ExitStack() as held:
            with _LockedFile(self._gate, deadline, wait):
                held.enter_context(_LockedFile(self._path, deadline, wait))
            yield


class _LockedFile:
    """A file that is open and locked for the length of a `with`."""

    def __init__(self, path: Path, deadline: Deadline, wait: Wait) -> None:
        self._path = path
        self._deadline = deadline
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        _locked_files.add(self)
        try:
            self._lock(self._descriptor)
        except BaseException:
            self.close()
            raise

    def _lock(self, descriptor: int) -> None:
        pause = _FIRST_PAUSE
        while not files.try_lock(descriptor):
            if self._deadline.expired:
                raise lock_timeout(self._deadline)
            left = self._deadline.remaining()
            self._wait(threading.Event(), pause if left is None else min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. That releases the lock unless a forked process has the file open, too."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_locked_files: weakref.WeakSet[_LockedFile] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The locks are the parent's. Without this they would stay locked until the child ends, too.
    for locked in list(_locked_files):
        locked.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


class KeyLocks:
    """A directory of lock files: one for each key, made when it is first needed.

    Args:
        directory: The directory. It has to belong to the user, and be closed to other users.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._locks: dict[str, FileLock] = {}

    @contextmanager
    def take(
        self, key: str | None, deadline: Deadline, wait: Wait = threading.Event.wait
    ) -> Iterator[None]:
        """Acquire the lock of `key` for the length of a `with`; `None` is a key of its own.

        Raises:
            RequestTimeout: The deadline passed.
            ExchangeAborted: `wait` raised it.
            AuthError: The lock file cannot be used.
        """
        name = "all" if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
        lock = self._locks.setdefault(name, FileLock(self._directory / f"{name}.lock"))
        with ExitStack() as held:
            try:
                self._make_directory()
                held.enter_context(lock.take(deadline, wait))
            except RequestTimeout:
                raise
            except OSError as error:
                raise unusable(
                    f"{self._directory} cannot be used for locks: {reason(error)}"
                ) from error
            yield

    def _make_directory(self) -> None:
        self._directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.mkdir(mode=0o700, exist_ok=True)
        check_owner(self._directory, self._directory.stat(), stat.S_ISDIR)
