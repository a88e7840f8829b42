"""The order in which a program's own callbacks hear of things."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from syncmcp._concurrency.pool import Workers

_log = logging.getLogger("syncmcp.callbacks")

# How many notifications may wait for a slow callback.
BACKLOG = 1024


class Item(NamedTuple):
    """One callback to make."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    is_progress: bool


class Delivery:
    """Makes callbacks one at a time and in order, on threads of a pool.

    A call has one of its own, and its result is released by the last entry: so what was said
    before the result is heard before it, and no call waits for another's callbacks. When callbacks
    are too slow, newer progress replaces older; other notifications are dropped and counted.
    """

    def __init__(self, workers: Workers, context: contextvars.Context) -> None:
        self._workers = workers
        self._context = context
        # Guards what follows. Never held while a callback runs.
        self._lock = threading.RLock()
        self._items: deque[Item] = deque()
        self._last: Callable[[], None] | None = None
        self._dropped = 0
        self._running = False

    def push(self, callback: Callable[..., object], *args: Any, is_progress: bool = False) -> None:
        """Call `callback(*args)` after everything pushed before. Never blocks, never raises."""
        with self._lock:
            if len(self._items) >= BACKLOG:
                self._make_room()
            self._items.append(Item(callback, args, is_progress))
        self._wake()

    def finish(self, last: Callable[[], None]) -> None:
        """Call `last` after everything pushed so far; it must not block."""
        with self._lock:
            self._last = last
        self._wake()

    def _make_room(self) -> None:
        for index, item in enumerate(self._items):
            if item.is_progress:
                del self._items[index]
                return
        self._items.popleft()
        self._dropped += 1

    def _wake(self) -> None:
        with self._lock:
            if self._running:
                return
            self._running = True
        self._workers.run(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                dropped, self._dropped = self._dropped, 0
                item = self._items.popleft() if self._items else None
                last = None
                if item is None:
                    last, self._last = self._last, None
                    if last is None:
                        self._running = False
                        return
            if dropped:
                _log.warning("%d notifications were dropped: a callback is too slow", dropped)
            if item is None:
                assert last is not None
                last()
                continue
            try:
                self._context.run(item.callback, *item.args)
            except BaseException:  # sys.exit() in a callback ends the callback
                _log.exception("a callback failed")
