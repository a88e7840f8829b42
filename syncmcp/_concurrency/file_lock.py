"""A lock that processes share: the system releases it when its holder ends, however it ends.

What locks is an open file and not the file's existence, so none that was left behind is in the
way; therefore lock files are never removed. Waits have a deadline, can be cut, and hold one
descriptor at most per process.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from syncmcp._base import descriptor_lock
from syncmcp._concurrency.turns import Turns, Wait, too_late

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from syncmcp._concurrency.timing import Deadline

__all__ = ["FileLock"]

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
        self._turns = Turns()

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
        while not descriptor_lock.take(descriptor):
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
