"""Reads the streamed answer of a model on a thread that nobody waits for."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp.errors import RequestCancelled

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken

# On Windows, Ctrl-C does not interrupt a main thread that waits for a queue without a timeout.
_POLL_SECONDS: Final = 0.2 if sys.platform == "win32" else None


class _End(NamedTuple):
    """The end of the stream, with an error or without."""

    error: BaseException | None = None


def stream_events(begin: Callable[[], Any], cancel: CancelToken) -> Iterator[Any]:
    """Yield the events of a streamed call of a provider's package.

    The call runs on a daemon thread of its own, with the caller's context variables. When it is
    cancelled, or the iterator is closed, the thread is abandoned: nobody waits for it, and what it
    still receives is dropped, an error, too. It closes the stream at the next event, because no
    package lets another thread interrupt one that waits for bytes.

    `begin` makes the call and returns its stream, an iterable with `close`. What the package raises
    is raised here; `RequestCancelled` if `cancel` was cancelled.
    """
    items: SimpleQueue[Any] = SimpleQueue()
    abandoned = threading.Event()

    def read() -> None:
        end = _End()
        try:
            with closing(begin()) as stream:
                for event in stream:
                    if abandoned.is_set():
                        return
                    items.put(event)
        except BaseException as error:  # raised again in the thread that iterates
            end = _End(error)
        items.put(end)

    context = contextvars.copy_context()
    unsubscribe = call_when_cancelled(cancel, lambda: items.put(_End()))
    try:
        threading.Thread(target=context.run, args=(read,), name="syncmcp-llm", daemon=True).start()
        while True:
            try:
                item = items.get(timeout=_POLL_SECONDS)
            except Empty:
                continue
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
        abandoned.set()
