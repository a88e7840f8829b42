"""Change events that nobody has looked at yet."""

from __future__ import annotations

import threading
from collections.abc import Callable

from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.errors import McpError, fresh

BACKLOG = 1024
"""How many events may wait. Equal ones count once, so only a server that tells of ever new
resources below a subscribed one gets there."""


class EventQueue:
    """What changed since somebody looked: each list, and each resource, once.

    Several threads may look; each event goes to one of them.

    Args:
        stirred: Told, on the thread that brings it, that there is an event where there was none,
            or that the end has come. It must not block.
        limit: How many events are taken out of it before it ends by itself; `None` for any number.
    """

    def __init__(
        self, stirred: Callable[[], object] | None = None, *, limit: int | None = None
    ) -> None:
        self._stirred = stirred
        self._left = limit
        # Guards what follows. Reentrant as all locks that a close may need; see `timing`.
        self._lock = threading.RLock()
        self._unread: dict[tuple[str, str | None], ChangeEvent] = {}
        # What those who wait are woken with.
        self._bells: list[threading.Lock] = []
        self._error: McpError | None = None
        self._ended = False

    @property
    def ended(self) -> bool:
        """Whether nothing will be put into it any more."""
        return self._ended

    @property
    def error(self) -> McpError | None:
        """Why it ended, if that was no wish of the program's."""
        return self._error

    def put(self, event: ChangeEvent) -> bool:
        """Keep an event unless it is there already. Never blocks.

        Returns:
            `False` if there is no room for it.
        """
        with self._lock:
            if self._ended:
                return True
            key = event.kind, event.uri
            first = not self._unread
            if key in self._unread:
                if not event.missed:  # it is certain now, and keeps its place
                    self._unread[key] = event
                return True
            if len(self._unread) >= BACKLOG:
                return False
            self._unread[key] = event
        self._ring(stirred=first)
        return True

    def end(self, error: McpError | None = None) -> None:
        """Put nothing into it any more; the first time counts. Never blocks.

        Args:
            error: Raised to whoever looks, after the events that are there. Without it, the
                program wants no more: they are thrown away.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
            if error is None:
                self._unread.clear()
        self._ring(stirred=True)

    def _ring(self, *, stirred: bool) -> None:
        with self._lock:
            bells = list(self._bells)
            self._bells.clear()
        for bell in bells:
            bell.release()
        if stirred and self._stirred is not None:
            self._stirred()

    def take_all(self) -> list[ChangeEvent]:
        """Every event that is there, oldest first. Never blocks."""
        with self._lock:
            events = list(self._unread.values())
            self._unread.clear()
            return events

    def _take(self) -> ChangeEvent:
        """Take the oldest event; called with the lock held."""
        event = self._unread.pop(next(iter(self._unread)))
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self.end()
        return event

    def next(self, seconds: float | None) -> ChangeEvent | None:
        """Wait, at most so many seconds, for the oldest event; `None` once the program wants none.

        Raises:
            TimeoutError: None came.
            McpError: It ended with this.
        """
        deadline = Deadline(seconds)
        while True:
            bell = threading.Lock()
            with self._lock:
                if self._unread:
                    return self._take()
                if self._error is not None:
                    raise fresh(self._error)
                if self._ended:
                    return None
                if deadline.expired:
                    raise TimeoutError(f"nothing changed within {seconds:g} s")
                bell.acquire()
                self._bells.append(bell)
            try:
                with lending_handler():
                    acquire(bell, deadline.remaining())
            finally:
                with self._lock:
                    if bell in self._bells:
                        self._bells.remove(bell)
