"""What a call sends while it runs, as an iterator that ends with the result."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from syncmcp._concurrency.futures import Progress, RequestFuture, wake_when_done
from syncmcp._concurrency.pool import BACKLOG, lending_handler
from syncmcp._concurrency.timing import reaper

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp.types import LoggingMessageNotificationParams

__all__ = ["ResultStream"]

R = TypeVar("R")

_log = logging.getLogger("syncmcp.callbacks")


class ResultStream(Generic[R]):
    """The progress, the log records and the result of one call, in the order in which they came.

    An iterator of `Progress`, `LoggingMessageNotificationParams` and, last, the result; made by
    ``client.call_tool.stream(...)`` and its kin. Where the call fails, iterating raises its error
    instead of the result. Leaving the iteration before that cancels the call, and the server is
    told: at the end of a ``with``, by `close`, or when nobody has the stream any more, which is the
    case after a ``for`` that was left.

    Log records belong to a call where the server sends them on its own stream (over HTTP), or if no
    other call is in flight. Several threads may iterate; each item goes to one.
    """

    def __init__(self, future: RequestFuture[R], items: StreamBuffer) -> None:
        self._future = future
        self._items = items
        self._over = False
        self._finalizer = weakref.finalize(self, reaper.put, future.cancel)
        self._finalizer.atexit = False
        wake_when_done(future, items.close)

    @property
    def dropped(self) -> int:
        """How many items were lost, the oldest first, because more than 1,024 were waiting."""
        return self._items.dropped

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Progress | LoggingMessageNotificationParams | R:
        """Wait for the next item. What bounds the wait is the call's own `timeout`.

        Raises:
            McpError: The call failed; see the operation.
        """
        from syncmcp.types import LoggingMessageNotificationParams

        while not self._over:
            with lending_handler():
                item = self._items.next()
            if isinstance(item, Progress):
                return item
            if item is None:
                return self._end()
            try:
                return LoggingMessageNotificationParams.from_wire(item)
            except ValueError:
                _log.debug("a log message that is none is left out")
        raise StopIteration

    def _end(self) -> R:
        with self._items.lock:
            if self._over:  # another thread has the result
                raise StopIteration
            self._over = True
        self._finalizer.detach()
        return self._future.result(0)

    def close(self) -> None:
        """Cancel the call if it is still running, from any thread; the iteration is over."""
        with self._items.lock:
            self._over = True
        self._finalizer.detach()
        self._future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class StreamBuffer:
    """What has come, on its way to whoever iterates."""

    def __init__(self) -> None:
        # Guards what follows. Reentrant: a finalizer may run in a thread that has it.
        self.lock = threading.RLock()
        self.dropped = 0
        self._changed = threading.Condition(self.lock)
        self._waiting: deque[Progress | dict[str, Any]] = deque(maxlen=BACKLOG)
        self._closed = False

    def take(self, item: Progress | dict[str, Any]) -> None:
        """Keep progress, or the parameters of a log message. Never blocks."""
        with self.lock:
            self.dropped += len(self._waiting) == BACKLOG
            self._waiting.append(item)
            self._changed.notify()

    def close(self) -> None:
        """Nothing comes any more."""
        with self.lock:
            self._closed = True
            self._changed.notify_all()

    def next(self) -> Progress | dict[str, Any] | None:
        """Wait for an item; `None` after the last one."""
        with self.lock:
            while not self._waiting:
                if self._closed:
                    return None
                self._changed.wait()
            return self._waiting.popleft()
