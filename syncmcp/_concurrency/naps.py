"""Waits that need no thread: a clock, a token, news or the end of the client ends them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._concurrency.timing import TimerEntry, timer

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.timing import Deadline
    from syncmcp._protocol.steps import Pause


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
        # How many follow a task, and how many of them have news to come that found them awake.
        self._followers: Counter[str] = Counter()
        self._unheard: Counter[str] = Counter()
        self._closed = False

    def follow(self, task: str) -> Callable[[], object]:
        """From now on no news of this task is missed; return what ends that."""
        with self._lock:
            self._followers[task] += 1
        return partial(self._unfollow, task)

    def _unfollow(self, task: str) -> None:
        with self._lock:
            self._followers[task] -= 1
            if not self._followers[task]:
                del self._followers[task]
                self._unheard.pop(task, None)

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
            over = self._closed
            if pause.task is not None and self._unheard.get(pause.task, 0) > 0:
                self._unheard[pause.task] -= 1
                over = True
        nap.begin(pause, deadline, cancel)
        if over:
            nap.end()
        return nap

    def remove(self, nap: Nap) -> None:
        """Forget a wait that is over."""
        with self._lock:
            self._naps.pop(nap, None)

    def news(self, task: str) -> None:
        """A task has changed: whoever waits to look at it, or is about to, looks now."""
        with self._lock:
            concerned = [nap for nap in self._naps if nap.task == task]
            if task in self._followers:
                self._unheard[task] = self._followers[task] - len(concerned)
        for nap in concerned:
            nap.end()

    def close(self) -> None:
        """The client is closed: nobody waits any more."""
        with self._lock:
            self._closed = True
            naps = list(self._naps)
        for nap in naps:
            nap.end()
