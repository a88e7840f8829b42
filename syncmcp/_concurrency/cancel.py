"""Cancel tokens: one object to cancel with, to poll, to wait on; and pauses that they end."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._base.checks import refuse_coroutines
from syncmcp._concurrency.pool import DaemonPool, lending_handler
from syncmcp._concurrency.timing import TimerEntry, reaper, timer
from syncmcp.errors import RequestCancelled

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import Deadline
    from syncmcp._protocol.steps import Pause

__all__ = ["CancelToken"]


_log = logging.getLogger("syncmcp._concurrency.cancel")

# A plain Event cannot tell anybody that it was set, so it is looked at this often, in seconds.
_GLANCE = 0.02

# How many followers a token may collect before it looks which of them are still there.
_PRUNE_STEP = 16

# Runs the callbacks of tokens that a clock or an Event cancels: the timer thread must not block.
# Nobody closes it, and it is needed seldom: its threads end soon.
_pool = DaemonPool("syncmcp-cancel", limit=16, linger=0.1)


class CancelToken:
    """A request to stop, shared between who asks for it and who obeys.

    Give it to any number of calls as their `cancel` option: cancelling it ends all of them, and
    each server is told once. Thread-safe; a token is cancelled at most once and stays cancelled.

    Args:
        links: Tokens or plain events; when one of them is cancelled or set, so is this one.
    """

    def __init__(self, *links: CancelToken | threading.Event) -> None:
        self._event = threading.Event()
        # Guards the reason and the two registries. Never held while a callback runs.
        self._lock = threading.RLock()
        self._reason: str | None = None
        self._internal: dict[int, Callable[[], None]] = {}
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._keys = 0
        self._followers: list[weakref.ref[CancelToken]] = []
        self._prune_at = _PRUNE_STEP
        # Strongly: `CancelToken(CancelToken.after(5))` must hear of a token that nobody else holds.
        self._links = [as_token(link) for link in links]
        for link in self._links:
            self._follow(link)

    @classmethod
    def after(cls, seconds: float, reason: str | None = None) -> CancelToken:
        """A token that cancels itself after `seconds` seconds."""
        token = cls()
        reaper.start()
        # A token that nobody holds any more needs no clock. (A finalizer may only ask for that.)
        alive = weakref.ref(token, lambda _: reaper.put(entry.cancel))

        def expire() -> None:
            if (token := alive()) is not None:
                token._cancel(reason or f"{seconds:g} s have passed", on_clock=True)

        entry = timer.after(seconds, expire)
        return token

    def child(self) -> CancelToken:
        """A token that is cancelled with this one, or alone."""
        return CancelToken(self)

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel. Callbacks run on this thread before this returns.

        Args:
            reason: Travels to the servers concerned, and into `RequestCancelled.reason`.

        Returns:
            Whether this was the call that cancelled the token.
        """
        return self._cancel(reason, on_clock=False)

    @property
    def cancelled(self) -> bool:
        """Whether the token has been cancelled."""
        return self._event.is_set()

    @property
    def reason(self) -> str | None:
        """Why, if somebody said."""
        return self._reason

    def wait(self, timeout: float | None = None) -> bool:
        """Block until cancelled, at most `timeout` seconds; return whether it is cancelled."""
        with lending_handler():
            return self._event.wait(timeout)

    def raise_if_cancelled(self) -> None:
        """Raise `RequestCancelled` if the token has been cancelled."""
        if self.cancelled:
            raise RequestCancelled("cancelled", reason=self._reason, delivery="not_sent")

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the token is cancelled, or now if it is already.

        It runs on the thread that cancels; where that is a clock, on a thread of a pool. What it
        raises is logged.

        Returns:
            A function that takes the callback away again.

        Raises:
            UsageError: It is a coroutine function, or not callable.
        """
        refuse_coroutines(callback, "the callback of on_cancel")
        return self._register(self._callbacks, callback)

    def _register(
        self, registry: dict[int, Callable[[], None]], callback: Callable[[], None]
    ) -> Callable[[], None]:
        with self._lock:
            if not self._event.is_set():
                self._keys += 1
                key = self._keys
                registry[key] = callback
                self._watched()
                return lambda: self._unregister(registry, key)
        _run(callback)
        return lambda: None

    def _unregister(self, registry: dict[int, Callable[[], None]], key: int) -> None:
        with self._lock:
            registry.pop(key, None)

    def _watched(self) -> None:
        """Somebody wants to know (called with the lock held)."""

    def _follow(self, link: CancelToken) -> None:
        # The link may live for ever and have many followers: it must not keep them alive. (A
        # finalizer that unsubscribes would need a lock, and may run in a thread that holds it.)
        with link._lock:
            if not link._event.is_set():
                link._followers.append(weakref.ref(self))
                if len(link._followers) >= link._prune_at:
                    link._followers = [ref for ref in link._followers if ref() is not None]
                    link._prune_at = 2 * len(link._followers) + _PRUNE_STEP
                link._watched()
                return
        self._cancel(link.reason, on_clock=False)

    def _cancel(self, reason: str | None, *, on_clock: bool) -> bool:
        with self._lock:
            if self._event.is_set():
                return False
            self._reason = reason
            self._event.set()
            internal = list(self._internal.values())
            callbacks = list(self._callbacks.values())
            followers = self._followers
            self._internal.clear()
            self._callbacks.clear()
            self._followers = []
        for callback in internal:
            _run(callback)
        for follower in followers:
            if (token := follower()) is not None:
                token._cancel(reason, on_clock=on_clock)
        for callback in callbacks:
            if on_clock:
                _pool.submit(partial(_run, callback))
            else:
                _run(callback)
        return True

    def __repr__(self) -> str:
        return f"<CancelToken {'cancelled' if self.cancelled else 'open'}>"


class _EventToken(CancelToken):
    """A plain `threading.Event` as a token. Looked at only while somebody wants to know."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._watching = event
        self._glancing = False

    @property
    def cancelled(self) -> bool:
        """Whether the event is set."""
        return self._event.is_set() or self._watching.is_set()

    def _register(
        self, registry: dict[int, Callable[[], None]], callback: Callable[[], None]
    ) -> Callable[[], None]:
        if self._watching.is_set():
            self._cancel(None, on_clock=False)
        return super()._register(registry, callback)

    def _watched(self) -> None:
        if not self._glancing:
            self._glancing = True
            timer.after(_GLANCE, self._glance)

    def _glance(self) -> None:
        if self._watching.is_set():
            self._cancel(None, on_clock=True)
            return
        with self._lock:
            followed = any(follower() is not None for follower in self._followers)
            self._glancing = bool(self._internal or self._callbacks or followed)
            if self._glancing:
                timer.after(_GLANCE, self._glance)


def as_token(cancel: CancelToken | threading.Event) -> CancelToken:
    """Return `cancel` itself, or a token that follows the plain event."""
    return cancel if isinstance(cancel, CancelToken) else _EventToken(cancel)


def call_when_cancelled(token: CancelToken, callback: Callable[[], None]) -> Callable[[], None]:
    """Like `on_cancel`, for the library's own short callbacks: they may run on the timer thread."""
    return token._register(token._internal, callback)


def _run(callback: Callable[[], None]) -> None:
    try:
        callback()
    except Exception:  # the one who cancels must reach everybody
        _log.exception("a callback of a cancel token failed")


if hasattr(os, "register_at_fork"):
    # The threads of the pool stay in the parent, and what they were to do is the parent's.
    os.register_at_fork(after_in_child=lambda: _pool.__init__("syncmcp-cancel", limit=16))  # type: ignore[misc]


# Waits that need no thread: a clock, a token, news or the end of the client ends them.


class InterruptibleWait:
    """One wait. Ends once, on whatever thread ends it; `done` must not block."""

    def __init__(
        self, naps: InterruptibleWaits, task: str | None, done: Callable[[], object]
    ) -> None:
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
        unsubscribe = None if cancel is None else call_when_cancelled(cancel, self.end)
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


class InterruptibleWaits:
    """The waits of one client."""

    def __init__(self) -> None:
        # Guards the waits; held for changes only.
        self._lock = threading.RLock()
        self._naps: dict[InterruptibleWait, None] = {}
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
    ) -> InterruptibleWait:
        """Call `done` when `pause` is over, or what it is for is: never blocks.

        Args:
            pause: How long, and for which task.
            deadline: When the call must be over.
            cancel: Ends it, too.
            done: Called once, on the timer's or any other thread; must not block.
        """
        nap = InterruptibleWait(self, pause.task, done)
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

    def remove(self, nap: InterruptibleWait) -> None:
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
