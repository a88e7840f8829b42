"""A model's answer as it is being written, to be left at any moment."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final

from syncmcp.errors import RequestCancelled
from syncmcp.llm._tap import Left, Tap

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken

__all__ = ["events"]

# A main thread on Windows that waits for a queue does not notice Ctrl-C.
_SLICE: Final = 0.2 if sys.platform == "win32" else None


class _End:
    """The stream is over: as it should be, or with an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


def events(begin: Callable[[], Any], http: Any, cancel: CancelToken) -> Iterator[Any]:
    """Iterate over what a call of a provider's package brings.

    The call runs on a thread of its own, with the caller's context variables. When it is
    cancelled, or the iterator is closed, what it waits for is ended; where that cannot be done, the
    thread is left behind and ends when it next gets something.

    Args:
        begin: Makes the call and returns its stream, an iterable.
        http: The HTTP client that the package uses.
        cancel: Ends it.

    Raises:
        RequestCancelled: `cancel` was cancelled.
    """
    call = _Call(begin, Tap(http))
    unsubscribe = cancel._subscribe(call.leave)
    try:
        call.start()
        while True:
            item = call.next()
            if cancel.cancelled:
                raise RequestCancelled(
                    "the question was withdrawn", reason=cancel.reason, delivery="unknown"
                )
            if isinstance(item, _End):
                if item.error is not None:
                    raise item.error
                return
            yield item
    finally:
        unsubscribe()
        call.leave()


class _Call:
    """One call on its thread."""

    def __init__(self, begin: Callable[[], Any], tap: Tap) -> None:
        self._begin = begin
        self._tap = tap
        self._items: SimpleQueue[Any] = SimpleQueue()

    def start(self) -> None:
        context = contextvars.copy_context()
        threading.Thread(
            target=context.run, args=(self._run,), name="syncmcp-llm", daemon=True
        ).start()

    def next(self) -> Any:
        while True:
            try:
                return self._items.get(timeout=_SLICE)
            except Empty:
                continue

    def leave(self) -> None:
        """Nobody looks at what still comes."""
        self._tap.close()
        self._items.put(_End())

    def _run(self) -> None:
        end = _End()
        try:
            with self._tap.here():
                self._read()
        except Left:
            pass
        except BaseException as error:  # raised again where the answer is waited for
            end = _End(error)
        self._items.put(end)

    def _read(self) -> None:
        stream = self._begin()
        try:
            for item in stream:
                if self._tap.closed:
                    return
                self._items.put(item)
        finally:
            stream.close()
