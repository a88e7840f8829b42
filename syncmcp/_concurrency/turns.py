"""Threads of one process wait for each other, first come, first served."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias

from syncmcp.errors import RequestTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from syncmcp._concurrency.timing import Deadline

__all__ = ["Turns", "Wait", "too_late"]

Wait: TypeAlias = Callable[[threading.Event, "float | None"], bool]
"""Waits for an event, at most so many seconds; returns whether it was set."""


def too_late(deadline: Deadline) -> RequestTimeout:
    """What a wait that took too long ends with."""
    return RequestTimeout(
        "others worked on the same login, and did not end in time",
        seconds=deadline.seconds,
        delivery="not_sent",
    )


class Turns:
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


_all: weakref.WeakSet[Turns] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # Whoever had a turn or waited for one is in the parent process.
    for turns in list(_all):
        turns.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
