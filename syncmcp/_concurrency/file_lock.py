"""Locks that threads and processes share: the system releases them when their holder ends.

What locks is an open file and not the file's existence, so none that was left behind is in the
way; therefore lock files are never removed. Waits have a deadline, can be cut, and hold one
descriptor at most per process.
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

__all__ = ["FairLock", "FileLock", "KeyLocks", "Wait", "too_late"]


# Threads of one process wait for each other, first come, first served.


Wait: TypeAlias = Callable[[threading.Event, "float | None"], bool]
"""Waits for an event, at most so many seconds; returns whether it was set."""


def too_late(deadline: Deadline) -> RequestTimeout:
    """What a wait that took too long ends with."""
    return RequestTimeout(
        "others worked on the same login, and did not end in time",
        seconds=deadline.seconds,
        delivery="not_sent",
    )


class FairLock:
    """A lock whose waits have a deadline and can be cut, and that is handed on in order."""

    def __init__(self) -> None:
        # Guards the queue, whose first has the turn.
        self._lock = threading.RLock()
        self._queue: deque[threading.Event] = deque()
        _all.add(self)

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Wait for a turn; it lasts as long as the `with`.

        Raises:
            RequestTimeout: The deadline passed.
            Cut: `wait` was cut.
        """
        mine = threading.Event()
        try:
            with self._lock:
                self._queue.append(mine)
                self._queue[0].set()
            if not wait(mine, deadline.remaining()):
                raise too_late(deadline)
            yield
        finally:
            with self._lock:
                with suppress(ValueError):  # Ctrl-C came before it was in, or a fork
                    self._queue.remove(mine)
                if self._queue:
                    self._queue[0].set()


_all: weakref.WeakSet[FairLock] = weakref.WeakSet()


def _forget_turns_in_child() -> None:
    # Whoever had a turn or waited for one is in the parent process.
    for turns in list(_all):
        turns.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_turns_in_child)


# Seconds between two attempts; no system tells when a lock becomes free without blocking for it.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05

_FLAGS = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)


class FileLock:
    """Excludes threads of this process, and of others that use the same file.

    A process that releases it and wants it again at once would win against all that look only now
    and then. So there is a second file, the gate: who has passed it is next.

    Args:
        path: The lock file; the gate is next to it. Their directory has to exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gate = path.with_name(path.name + ".gate")
        self._turns = FairLock()

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Wait until nobody else has it; it lasts as long as the `with`.

        Raises:
            RequestTimeout: The deadline passed.
            Cut: `wait` was cut.
            OSError: The file cannot be opened or locked.
        """
        with self._turns.take(deadline, wait), ExitStack() as held:
            with _Locked(self._gate, deadline, wait):
                held.enter_context(_Locked(self._path, deadline, wait))
            yield


class _Locked:
    """One locked file, for the length of a `with`."""

    def __init__(self, path: Path, deadline: Deadline, wait: Wait) -> None:
        self._path = path
        self._deadline = deadline
        self._wait = wait
        self._descriptor: int | None = None

    def __enter__(self) -> None:
        self._descriptor = os.open(self._path, _FLAGS, 0o600)
        _open_ones.add(self)
        try:
            self._lock(self._descriptor)
        except BaseException:
            self.close()
            raise

    def _lock(self, descriptor: int) -> None:
        pause = _FIRST_PAUSE
        while not files.take(descriptor):
            if self._deadline.expired:
                raise too_late(self._deadline)
            left = self._deadline.remaining()
            self._wait(threading.Event(), pause if left is None else min(pause, left))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file, which releases the lock unless another process has it open, too."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


_open_ones: weakref.WeakSet[_Locked] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The lock is the parent's, and would stay locked after its end for as long as this lives.
    for locked in list(_open_ones):
        locked.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# One lock for each key of a store that processes share.


class KeyLocks:
    """A directory of lock files, one for each key, made when it is needed first.

    Args:
        directory: Where they are. It has to belong to the user alone.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[str, FileLock] = {}

    @contextmanager
    def take(
        self, key: str | None, deadline: Deadline, wait: Wait = threading.Event.wait
    ) -> Iterator[None]:
        """Lock `key`, or what `None` stands for, for the length of a `with`.

        Raises:
            RequestTimeout: Others had it until `deadline`.
            AuthError: The lock file cannot be used.
        """
        name = "all" if key is None else hashlib.sha256(key.encode()).hexdigest()[:32]
        lock = self._known.setdefault(name, FileLock(self._directory / f"{name}.lock"))
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
