"""A lock between threads, granted in the order in which they began to wait."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import RequestTimeout

__all__ = ["FairLock", "Wait", "lock_timeout"]


Wait: TypeAlias = Callable[[threading.Event, "float | None"], bool]
"""Waits for an event, at most the given seconds; returns True if the event was set."""


def lock_timeout(deadline: Deadline) -> RequestTimeout:
    """Return the error of a wait for a lock whose deadline passed."""
    return RequestTimeout(
        "the lock was held by another thread or process for too long",
        seconds=deadline.seconds,
        delivery="not_sent",
    )


class FairLock:
    """A lock between threads, granted first come, first served. After a fork it is free."""

    def __init__(self) -> None:
        # Guards the queue: the holder, and after it the waiting threads.
        self._lock = threading.RLock()
        self._queue: deque[threading.Event] = deque()
        _fair_locks.add(self)

    @property
    def waiting(self) -> int:
        """The number of threads that wait for the lock; 0 if the lock is free."""
        return max(len(self._queue) - 1, 0)

    @contextmanager
    def take(self, deadline: Deadline, wait: Wait = threading.Event.wait) -> Iterator[None]:
        """Acquire the lock for the length of a `with`; an exception of `wait` ends the waiting.

        Raises:
            RequestTimeout: The deadline passed.
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
            self._leave(granted)

    @contextmanager
    def take_if_free(self) -> Iterator[bool]:
        """Acquire the lock for the length of a `with` if it is free; yield True if it was free."""
        granted = threading.Event()
        try:
            with self._lock:
                free = not self._queue
                if free:
                    self._queue.append(granted)
            yield free
        finally:
            self._leave(granted)

    def _leave(self, granted: threading.Event) -> None:
        with self._lock:
            with suppress(ValueError):  # never queued, or removed by a fork
                self._queue.remove(granted)
            if self._queue:
                self._queue[0].set()


_fair_locks: weakref.WeakSet[FairLock] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The holders and the waiting threads are in the parent process.
    for lock in list(_fair_locks):
        lock.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
