"""Waits that need no thread: a clock, a token, news or the end of the client ends them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from syncmcp._threads import TimerEntry, timer

if TYPE_CHECKING:
    from syncmcp._protocol.steps import Pause
    from syncmcp._threads import Deadline
    from syncmcp.cancellation import CancelToken


class Nap:
    """One wait. Ends once, on whatever thread ends it; `done` must not block."""

    def __init__(self, naps: Naps, task: str | None, done: Callable[[], object]) -> None:
        self.task = task
        self._naps = naps
        self._done = done
        # Guards the end, and what is to be undone then.
        self._lock = threading.RLock()
        self._over = False
        self._entry: TimerEntry | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def begin(self, pause: Pause, deadline: Deadline, cancel: CancelToken | None) -> None:
        """Let the clock run."""
        entry = timer.at(deadline.sooner(pause.seconds).at or 0.0, self.end)
        unsubscribe = None if cancel is None else cancel._subscribe(self.end)
        with self._lock:
            self._entry, self._unsubscribe = entry, unsubscribe
            over = self._over
        if over:
            self._forget()

    def end(self) -> None:
        """End it, if it goes on. Never blocks."""
        with self._lock:
            if self._over:
                return
            self._over = True
        self._naps.remove(self)
        self._forget()
        self._done()

    def _forget(self) -> None:
        with self._lock:
            entry, unsubscribe = self._entry, self._unsubscribe
        if entry is not None:
            entry.cancel()
        if unsubscribe is not None:
            unsubscribe()


class Naps:
    """The waits of one client."""

    def __init__(self) -> None:
        # Guards the waits; held for changes only.
        self._lock = threading.RLock()
        self._naps: dict[Nap, None] = {}
        self._closed = False

    def begin(
        self,
        pause: Pause,
        deadline: Deadline,
        cancel: CancelToken | None,
        done: Callable[[], object],
    ) -> Nap:
        """Call `done` when `pause` is over, or what it is for is: never blocks.

        Args:
            pause: How long, and for which task.
            deadline: When the call must be over.
            cancel: Ends it, too.
            done: Called once, on the timer's or any other thread; must not block.
        """
        nap = Nap(self, pause.task, done)
        with self._lock:
            self._naps[nap] = None
            closed = self._closed
        nap.begin(pause, deadline, cancel)
        if closed:
            nap.end()
        return nap

    def remove(self, nap: Nap) -> None:
        """Forget a wait that is over."""
        with self._lock:
            self._naps.pop(nap, None)

    def news(self, task: str) -> None:
        """A task has changed: whoever waits to look at it looks now."""
        with self._lock:
            concerned = [nap for nap in self._naps if nap.task == task]
        for nap in concerned:
            nap.end()

    def close(self) -> None:
        """The client is closed: nobody waits any more."""
        with self._lock:
            self._closed = True
            naps = list(self._naps)
        for nap in naps:
            nap.end()
