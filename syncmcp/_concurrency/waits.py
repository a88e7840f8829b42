"""Waits that a notification of the server ends: for change events, and for a task to change.

`EventQueue` keeps change events until a thread takes them. `InterruptibleWait` is a pause between
two requests that occupies no thread: the timer, a notification about the task, a cancel token or
the end of the client ends it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, TimerEntry, acquire, timer
from syncmcp._protocol.subscription import ChangeEvent
from syncmcp.errors import McpError, fresh

if TYPE_CHECKING:
    from syncmcp._protocol.steps import Pause

BACKLOG = 1024
"""The most events in one queue. Equal events count once, so only a server that reports ever new
resources below a subscribed one reaches it."""


class EventQueue:
    """Change events that no thread has taken yet: each list and each resource at most once.

    Several threads may wait; each event goes to one of them.

    Args:
        on_wake: Called when an event comes into the empty queue, and when the queue is closed, on
            the thread that does either. It must not block.
        limit: The queue closes itself after this many events were taken; `None` for any number.
    """

    def __init__(
        self, on_wake: Callable[[], object] | None = None, *, limit: int | None = None
    ) -> None:
        self._on_wake = on_wake
        self._remaining = limit
        # Guards what follows. Reentrant as all locks that a close may need; see `timing`.
        self._lock = threading.RLock()
        self._events: dict[tuple[str, str | None], ChangeEvent] = {}
        # One lock for each waiting thread; releasing it wakes the thread.
        self._waiters: list[threading.Lock] = []
        self._error: McpError | None = None
        self._closed = False

    @property
    def closed(self) -> bool:
        """True once no event is accepted any more."""
        return self._closed

    @property
    def error(self) -> McpError | None:
        """The error that closed the queue; `None` while open, or if the program closed it."""
        return self._error

    def put(self, event: ChangeEvent) -> bool:
        """Queue an event unless an equal one is queued. Never blocks.

        Returns:
            `False` if the queue is full.
        """
        with self._lock:
            if self._closed:
                return True
            key = event.kind, event.uri
            first = not self._events
            if key in self._events:
                if not event.missed:  # replaces a change that was only assumed, in its place
                    self._events[key] = event
                return True
            if len(self._events) >= BACKLOG:
                return False
            self._events[key] = event
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
                self._events.clear()
        self._wake(notify=True)

    def _wake(self, *, notify: bool) -> None:
        with self._lock:
            waiters = list(self._waiters)
            self._waiters.clear()
        for waiter in waiters:
            waiter.release()
        if notify and self._on_wake is not None:
            self._on_wake()

    def take_all(self) -> list[ChangeEvent]:
        """Take all queued events, oldest first. Never blocks."""
        with self._lock:
            events = list(self._events.values())
            self._events.clear()
            return events

    def _take(self) -> ChangeEvent:
        """Take the oldest event; called with the lock held."""
        event = self._events.pop(next(iter(self._events)))
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
            waiter = threading.Lock()
            with self._lock:
                if self._events:
                    return self._take()
                if self._error is not None:
                    raise fresh(self._error)
                if self._closed:
                    return None
                if deadline.expired:
                    raise TimeoutError(f"nothing changed within {seconds:g} s")
                waiter.acquire()
                self._waiters.append(waiter)
            try:
                with lending_handler():
                    acquire(waiter, deadline.remaining())
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)


class InterruptibleWait:
    """One pause. `on_wake` is called once, on the thread that ends the pause; it must not block."""

    def __init__(
        self, waits: InterruptibleWaits, task: str | None, on_wake: Callable[[], object]
    ) -> None:
        self.task = task
        self._waits = waits
        self._on_wake = on_wake
        # Guards what follows.
        self._lock = threading.RLock()
        self._woken = False
        self._timer_entry: TimerEntry | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def begin(self, pause: Pause, deadline: Deadline, cancel: CancelToken | None) -> None:
        """Start the timer and listen to the cancel token."""
        entry = timer.at(deadline.sooner(pause.seconds).at or 0.0, self.wake)
        unsubscribe = None if cancel is None else call_when_cancelled(cancel, self.wake)
        with self._lock:
            self._timer_entry, self._unsubscribe = entry, unsubscribe
            woken = self._woken
        if woken:
            self._clean_up()

    def wake(self) -> None:
        """End the pause. Idempotent; never blocks."""
        with self._lock:
            if self._woken:
                return
            self._woken = True
        self._waits.remove(self)
        self._clean_up()
        self._on_wake()

    def _clean_up(self) -> None:
        with self._lock:
            entry, unsubscribe = self._timer_entry, self._unsubscribe
        if entry is not None:
            entry.cancel()
        if unsubscribe is not None:
            unsubscribe()


class InterruptibleWaits:
    """The pauses of one client."""

    def __init__(self) -> None:
        # Guards what follows; held for changes only.
        self._lock = threading.RLock()
        self._waits: dict[InterruptibleWait, None] = {}
        # For each task: how many calls follow it, and how many of those were not in a pause when
        # the last notification came, so that their next pause has to end at once.
        self._followers: Counter[str] = Counter()
        self._unseen: Counter[str] = Counter()
        self._closed = False

    def follow(self, task: str) -> Callable[[], object]:
        """Miss no notification about this task from now on; return a function that ends this."""
        with self._lock:
            self._followers[task] += 1
        return partial(self._unfollow, task)

    def _unfollow(self, task: str) -> None:
        with self._lock:
            self._followers[task] -= 1
            if not self._followers[task]:
                del self._followers[task]
                self._unseen.pop(task, None)

    def begin(
        self,
        pause: Pause,
        deadline: Deadline,
        cancel: CancelToken | None,
        on_wake: Callable[[], object],
    ) -> InterruptibleWait:
        """Call `on_wake` once the pause is over or was ended early. Never blocks.

        Args:
            pause: Its length, and the task whose notifications end it.
            deadline: The deadline of the call, which ends it, too.
            cancel: A token that ends it, too.
            on_wake: Called once, on the timer's or any other thread; must not block.
        """
        wait = InterruptibleWait(self, pause.task, on_wake)
        with self._lock:
            self._waits[wait] = None
            over = self._closed
            if pause.task is not None and self._unseen.get(pause.task, 0) > 0:
                self._unseen[pause.task] -= 1
                over = True
        wait.begin(pause, deadline, cancel)
        if over:
            wait.wake()
        return wait

    def remove(self, wait: InterruptibleWait) -> None:
        """Discard a wait that is over."""
        with self._lock:
            self._waits.pop(wait, None)

    def notify_task(self, task: str) -> None:
        """A task has changed: end the pauses of the calls that follow it, now or at their start."""
        with self._lock:
            concerned = [wait for wait in self._waits if wait.task == task]
            if task in self._followers:
                self._unseen[task] = self._followers[task] - len(concerned)
        for wait in concerned:
            wait.wake()

    def close(self) -> None:
        """The client is closed: end all pauses, also those that begin later."""
        with self._lock:
            self._closed = True
            waits = list(self._waits)
        for wait in waits:
            wait.wake()
