"""Cancel tokens: cancel any number of calls, from any thread, with one object."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from functools import partial

from syncmcp._base.checks import check_callable, kind_of
from syncmcp._base.text import logger
from syncmcp._concurrency.pool import DaemonPool, lending_handler
from syncmcp._concurrency.timing import reaper, timer
from syncmcp.errors import RequestCancelled, UsageError

__all__ = ["CancelToken"]


_log = logger("syncmcp._concurrency.cancel")

# A `threading.Event` has no callbacks, so it is polled at this interval, in seconds.
_POLL_INTERVAL = 0.02

# Followers are pruned once there are twice as many as after the last pruning, plus this.
_PRUNE_STEP = 16

# Runs the callbacks of tokens that the timer or an Event cancels: the timer thread must not block.
# It is never closed and seldom used, so its idle threads end soon.
_pool = DaemonPool("syncmcp-cancel", 16, linger=0.1)


class CancelToken:
    """A request to stop, shared by the code that cancels and the calls that are cancelled.

    >>> token = syncmcp.CancelToken()
    >>> future = client.call_tool.future("sleep", {"seconds": 60}, cancel=token)
    >>> token.cancel("not needed any more")
    True
    >>> future.result()
    Traceback (most recent call last):
      ...
    syncmcp.errors.RequestCancelled: tools/call [syncmcp-demo]: cancelled (not needed any more; ...)

    Give it to any number of calls as their `cancel` option: cancelling it ends all of them, and
    each server is notified once. Thread-safe. A token is cancelled at most once and stays
    cancelled.

    Args:
        links: Tokens or plain events; when one of them is cancelled or set, this token is
            cancelled, too.

    Raises:
        UsageError: A link is neither; a time limit is `CancelToken.after(seconds)`.
    """

    def __init__(self, *links: CancelToken | threading.Event) -> None:
        for link in links:
            if not isinstance(link, (CancelToken, threading.Event)):
                raise UsageError(
                    f"a link must be a CancelToken or a threading.Event, not {kind_of(link)};"
                    " for a timeout, write CancelToken.after(seconds)"
                )
        # Guards what follows. Never held while a callback runs.
        self._lock = threading.RLock()
        self._cancelled = False
        # Created by the first call of `wait`, which most tokens never get.
        self._event: threading.Event | None = None
        self._reason: str | None = None
        self._internal_callbacks: dict[int, Callable[[], object]] = {}
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._keys = 0
        self._followers: list[weakref.ref[CancelToken]] = []
        self._prune_at = _PRUNE_STEP
        # Strong references: in `CancelToken(CancelToken.after(5))` nothing else holds the link.
        self._links = [as_token(link) for link in links]
        for link in self._links:
            self._follow(link)

    @classmethod
    def after(cls, seconds: float, reason: str | None = None) -> CancelToken:
        """Return a token that cancels itself after `seconds` seconds.

        Raises:
            UsageError: `seconds` is not a number.
        """
        given: object = seconds
        # NaN alone differs from itself.
        if isinstance(given, bool) or not isinstance(given, (int, float)) or given != given:  # noqa: PLR0124
            raise UsageError(
                f"CancelToken.after(seconds) takes a number of seconds, not {seconds!r}"
            )
        token = cls()
        reaper.start()
        # A token that was garbage-collected needs no timer entry. The reaper removes it, because a
        # finalizer must not take the timer's lock.
        alive = weakref.ref(token, lambda _: reaper.put(entry.cancel))

        def expire() -> None:
            if (token := alive()) is not None:
                token._cancel(reason or f"{seconds:g} s have passed", on_timer=True)

        entry = timer.after(seconds, expire)
        return token

    def child(self) -> CancelToken:
        """Return a token that is cancelled with this one; cancelling it leaves this one alone."""
        return CancelToken(self)

    def cancel(self, reason: str | None = None) -> bool:
        """Cancel the token. Its callbacks run on this thread before the method returns.

        Args:
            reason: Sent to the servers of the cancelled calls, and kept as
                `RequestCancelled.reason`.

        Returns:
            True if this call cancelled the token; `False` if it was cancelled before.
        """
        return self._cancel(reason, on_timer=False)

    @property
    def cancelled(self) -> bool:
        """True once the token is cancelled."""
        return self._cancelled

    @property
    def reason(self) -> str | None:
        """The reason given to `cancel` or `after`, which has a default; or `None`."""
        return self._reason

    def wait(self, timeout: float | None = None) -> bool:
        """Block until cancelled, at most `timeout` seconds; return True if it is cancelled."""
        with self._lock:
            if self._event is None:
                self._event = threading.Event()
                if self._cancelled:
                    self._event.set()
            event = self._event
        with lending_handler():
            return event.wait(timeout)

    def raise_if_cancelled(self) -> None:
        """Raise `RequestCancelled` if the token is cancelled."""
        if self.cancelled:
            raise RequestCancelled("cancelled", reason=self._reason, delivery="not_sent")

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` once when the token is cancelled, or now if it is cancelled already.

        The callback runs on the thread that cancels; if the token is cancelled by a time limit or
        by a plain event, on a thread of a pool. Exceptions of the callback are logged.

        Returns:
            A function that unregisters the callback.

        Raises:
            UsageError: `callback` is a coroutine function, or not callable.
        """
        check_callable(callback, "the callback of on_cancel", ())
        return self._register(self._callbacks, callback)

    def _register(
        self, registry: dict[int, Callable[[], object]], callback: Callable[[], object]
    ) -> Callable[[], None]:
        with self._lock:
            if not self._cancelled:
                self._keys += 1
                key = self._keys
                registry[key] = callback
                self._listener_added()
                return lambda: self._unregister(registry, key)
        _run(callback)
        return lambda: None

    def _unregister(self, registry: dict[int, Callable[[], object]], key: int) -> None:
        with self._lock:
            registry.pop(key, None)

    def _listener_added(self) -> None:
        """Called with the lock held when a callback or a follower was added."""

    def _follow(self, link: CancelToken) -> None:
        # A link may exist as long as the program, so it must not keep its followers alive. They
        # are pruned here, because a finalizer could run in a thread that holds the lock.
        with link._lock:
            if not link._cancelled:
                link._followers.append(weakref.ref(self))
                if len(link._followers) >= link._prune_at:
                    link._followers = [ref for ref in link._followers if ref() is not None]
                    link._prune_at = 2 * len(link._followers) + _PRUNE_STEP
                link._listener_added()
                return
        self._cancel(link.reason, on_timer=False)

    def _cancel(self, reason: str | None, *, on_timer: bool) -> bool:
        with self._lock:
            if self._cancelled:
                return False
            self._reason = reason
            self._cancelled = True
            if self._event is not None:
                self._event.set()
            internal = list(self._internal_callbacks.values())
            callbacks = list(self._callbacks.values())
            followers = self._followers
            self._internal_callbacks.clear()
            self._callbacks.clear()
            self._followers = []
        for callback in internal:
            _run(callback)
        for follower in followers:
            if (token := follower()) is not None:
                token._cancel(reason, on_timer=on_timer)
        for callback in callbacks:
            if on_timer:
                _pool.submit(partial(_run, callback))
            else:
                _run(callback)
        return True

    def __repr__(self) -> str:
        return f"<CancelToken {'cancelled' if self.cancelled else 'open'}>"


class _EventToken(CancelToken):
    """A token that polls a plain `threading.Event`, as long as it has callbacks or followers."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._source = event
        self._polling = False

    @property
    def cancelled(self) -> bool:
        """True once the event is set."""
        return self._cancelled or self._source.is_set()

    def _register(
        self, registry: dict[int, Callable[[], object]], callback: Callable[[], object]
    ) -> Callable[[], None]:
        if self._source.is_set():
            self._cancel(None, on_timer=False)
        return super()._register(registry, callback)

    def _listener_added(self) -> None:
        if not self._polling:
            self._polling = True
            timer.after(_POLL_INTERVAL, self._poll)

    def _poll(self) -> None:
        if self._source.is_set():
            self._cancel(None, on_timer=True)
            return
        with self._lock:
            followed = any(follower() is not None for follower in self._followers)
            self._polling = bool(self._internal_callbacks or self._callbacks or followed)
            if self._polling:
                timer.after(_POLL_INTERVAL, self._poll)


def as_token(cancel: CancelToken | threading.Event) -> CancelToken:
    """Return `cancel` itself, or a token that is cancelled when the plain event is set."""
    return cancel if isinstance(cancel, CancelToken) else _EventToken(cancel)


def call_when_cancelled(token: CancelToken, callback: Callable[[], object]) -> Callable[[], None]:
    """Do what `on_cancel` does, for the library's callbacks, which may run on the timer thread."""
    return token._register(token._internal_callbacks, callback)


def _run(callback: Callable[[], object]) -> None:
    try:
        callback()
    except Exception:  # the remaining callbacks must run
        _log.exception("a callback of a cancel token failed")
