"""A queue of change events, from which threads take them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, Latch
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.errors import McpError, fresh

BACKLOG = 1024
"""The most events in one queue. Equal events count once, so a server only reaches the limit if it
reports many different resources below subscribed ones."""

MAX_CHARACTERS = 4 * 1024 * 1024
"""The most characters of all URIs in one queue."""


class EventQueue:
    """Change events that no thread has taken yet: each list and each resource at most once.

    Several threads may wait; each event goes to one of them.

    Args:
        on_wake: Called when an event is added to the empty queue, and when the queue is closed, on
            the thread that adds or closes. It must not block.
        limit: The queue closes itself after this many events were taken; `None` for any number.
    """

    def __init__(
        self, on_wake: Callable[[], object] | None = None, *, limit: int | None = None
    ) -> None:
        self._on_wake = on_wake
        self._remaining = limit
        # Guards what follows. Reentrant, like all locks that a close may need; see `timing`.
        self._lock = threading.RLock()
        self._events: dict[tuple[str, str | None], ChangeEvent] = {}
        self._characters = 0
        # A latch for each waiting thread, set to wake it.
        self._waiters: list[Latch] = []
        self._error: McpError | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once the queue accepts no more events."""
        return self._closed

    @property
    def error(self) -> McpError | None:
        """The error that closed the queue; `None` while open, or if the program closed it."""
        return self._error

    def put(self, event: ChangeEvent) -> bool:
        """Queue an event, unless an equal one is queued or the queue is closed. Never blocks.

        Returns:
            `False` if the queue is full.
        """
        with self._lock:
            if self._closed:
                return True
            key = event.kind, event.uri
            first = not self._events
            if key in self._events:
                if not event.missed:  # replaces a possible change, at the same position
                    self._events[key] = event
                return True
            more = len(event.uri or "")
            if len(self._events) >= BACKLOG or self._characters + more > MAX_CHARACTERS:
                return False
            self._events[key] = event
            self._characters += more
        self._wake(notify=first)
        return True

    def close(self, error: McpError | None = None) -> None:
        """Accept no more events. Idempotent; never blocks.

        Args:
            error: Raised by `next` once the queued events are taken. Without an error the queued
                events are discarded.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._error = error
            if error is None:
                self.take_all()
        self._wake(notify=True)

    def _wake(self, *, notify: bool) -> None:
        with self._lock:
            waiters = list(self._waiters)
            self._waiters.clear()
        for waiter in waiters:
            waiter.set()
        if notify and self._on_wake is not None:
            self._on_wake()

    def take_all(self) -> list[ChangeEvent]:
        """Take all queued events, oldest first. Never blocks."""
        with self._lock:
            events = list(self._events.values())
            self._events.clear()
            self._characters = 0
            return events

    def _take(self) -> ChangeEvent:
        """Take the oldest event; called with the lock held."""
        event = self._events.pop(next(iter(self._events)))
        self._characters -= len(event.uri or "")
        if self._remaining is not None:
            self._remaining -= 1
            if self._remaining == 0:
                self.close()
        return event

    def next(self, seconds: float | None) -> ChangeEvent | None:
        """Wait at most `seconds` for the oldest event; `None` once the program closed the queue.

        Raises:
            TimeoutError: No event came in time.
            McpError: The error that closed the queue.
        """
        deadline = Deadline(seconds)
        while True:
            with self._lock:
                if self._events:
                    return self._take()
                if self._error is not None:
                    raise fresh(self._error)
                if self._closed:
                    return None
                if deadline.expired:
                    raise TimeoutError(f"nothing changed within {seconds:g} s")
                waiter = Latch()
                self._waiters.append(waiter)
            try:
                with lending_handler():
                    waiter.wait(deadline.remaining())
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
