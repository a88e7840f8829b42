"""Futures of requests, and fan-out: many calls with a bounded number in flight."""

from __future__ import annotations

import concurrent.futures
import contextvars
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from typing import Any, Generic, NamedTuple, TypeVar

from syncmcp._base.checks import check_callable
from syncmcp._base.text import logger
from syncmcp._concurrency.pool import (
    BACKLOG,
    DaemonPool,
    SerialExecutor,
    current,
    lending_handler,
)
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import (
    Delivery,
    LimitExceeded,
    McpError,
    RequestCancelled,
    UsageError,
    forked_error,
    fresh,
)

__all__ = ["Progress", "RequestFuture"]


MAX_CHARACTERS = 256 * 1024
"""The most characters of the texts of progress reports that one future keeps."""

R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound="Future[Any]")

_log = logger("syncmcp.callbacks")


# A forked child inherits these. Not a `WeakSet`, which calls a Python function for each object.
_futures: set[weakref.ref[RequestFuture[Any]]] = set()
_queues: set[weakref.ref[ItemQueue[Any]]] = set()


class Progress(NamedTuple):
    """One progress report of a call (spec: "Progress").

    >>> with client.call_tool.stream("countdown", {"steps": 1, "delay": 0.1}) as items:
    ...     print(next(item for item in items if isinstance(item, syncmcp.Progress)))
    Progress(progress=1, total=1, message='0 left')

    Attributes:
        progress: Grows with each report; without a `total` its unit is unknown.
        total: The value of `progress` at the end; `None` if the server did not say.
        message: What the server is doing, as text for people; `None` if the server did not say.
    """

    progress: float
    total: float | None
    message: str | None


class RequestFuture(concurrent.futures.Future[R]):
    """The future result of a request in flight: a real `concurrent.futures.Future`.

    >>> future = client.call_tool.future("add", {"a": 1, "b": 2})
    >>> future.result(timeout=10).text
    '3'
    >>> future.attempts
    1

    Works with `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`. The timeout of
    `result(timeout)` only ends the wait; the call itself ends by its own `timeout` option.
    Functions given to `add_done_callback` run on a thread of the client's pool, one after another
    in the order in which they were added; they may block and may call the client.
    """

    _waker: Callable[[], object] | None = None

    # How far the request had come when it was cancelled. A thread that wakes before this is known
    # gets "unknown".
    _delivery: Delivery = "unknown"

    def __init__(self, workers: DaemonPool) -> None:
        super().__init__()
        self._workers = workers
        # Guards what follows: the right to settle the future, and objects created at first use.
        self._state_lock = threading.RLock()
        self._claimed = False
        self._finished = False
        self._cancel_won = False
        self._canceller: Callable[[], Delivery] | None = None
        # See `call_when_done`.
        self._done_hook: Callable[[], object] | None = None
        # The thread that will send the call with its batch; `None` once it has sent it.
        self._collecting_thread: int | None = None
        # The result once it has arrived; `None` until then, or if the result is `None`.
        self._value: R | None = None
        self._server: str | None = None
        self._method: str | None = None
        self._callback_executor: SerialExecutor | None = None
        self._progress_queue: ItemQueue[Progress] | None = None
        self._attempts = 1
        _futures.add(weakref.ref(self, _futures.discard))

    def __repr__(self) -> str:
        what = " ".join(filter(None, (self._method, self._server and f"[{self._server}]")))
        return f"<RequestFuture {what} {self._state.lower()}>"

    @property
    def attempts(self) -> int:
        """How often the client has sent the request, or tried to; see `Retry`."""
        return self._attempts

    def cancel(self) -> bool:
        """Cancel the request; the server is notified once.

        Returns:
            True if the request is cancelled; `False` if it had a result or an error before.
        """
        with self._state_lock:
            if self._claimed:
                return self._cancel_won
            self._claimed = self._cancel_won = True
        super().cancel()
        # Until this is called, `concurrent.futures.wait` does not count the future as done.
        self.set_running_or_notify_cancel()
        self._finish()
        canceller, self._canceller = self._canceller, None
        self._delivery = "not_sent" if canceller is None else canceller()
        return True

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result, at most `timeout` seconds, and return it.

        Raises:
            RequestCancelled: The future was cancelled.
            TimeoutError: The future is not done in time; the request goes on. In Python 3.10 it is
                that of `concurrent.futures`.
            UsageError: The call belongs to a batch that this thread sends when it leaves the
                `with` block of the batch: waiting within the block would never end.
            LimitExceeded: A handler waits for the result, and 500 other handlers wait, too. The
                future is cancelled: its call may have caused the question of the handler.
            McpError: The request failed.
        """
        if self._collecting_thread is not None:
            self._check_sent()
        try:
            if self._value is not None:  # the fastest path for a result that has arrived
                return self._value
            if not current.handler:
                return super().result(timeout)
            with lending_handler():
                return super().result(timeout)
        except LimitExceeded:
            self.cancel()  # no effect if this is the error of the call, which then is done
            raise
        except concurrent.futures.CancelledError as error:
            raise self._as_cancelled(error) from None
        finally:
            del self  # as in the base class: the traceback of its error refers to this frame

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the future is done, at most `timeout` seconds, and return its error.

        Raises:
            RequestCancelled: The future was cancelled.
            TimeoutError: The future is not done in time; the request goes on. In Python 3.10 it is
                that of `concurrent.futures`.
            UsageError: See `result`.
        """
        self._check_sent()
        try:
            with lending_handler():
                return super().exception(timeout)
        except concurrent.futures.CancelledError as error:
            raise self._as_cancelled(error) from None

    def _check_sent(self) -> None:
        if self._collecting_thread == threading.get_ident() and not self._finished:
            raise UsageError(
                "the batch sends its calls at the end of its `with` block: wait for the result "
                "after it",
                server=self._server,
                method=self._method,
            )

    def _as_cancelled(self, error: BaseException) -> RequestCancelled:
        if isinstance(error, RequestCancelled):
            return error
        return RequestCancelled(
            "cancelled by the caller",
            server=self._server,
            method=self._method,
            delivery=self._delivery,
        )

    def progress(self, timeout: float | None = None) -> Iterator[Progress]:
        """Iterate over the progress reports of the call until the future is done.

        Starts with the reports received so far: the newest 1,024, with messages of 262,144
        characters at most. The iteration ends when the future is done, whatever its outcome, and
        does not raise its error.

        Args:
            timeout: The longest time, in seconds, to wait for the next report.

        Raises:
            TimeoutError: No report came in time; the call itself goes on.
            UsageError: See `result`.
        """
        self._check_sent()
        queue = self._get_progress_queue()
        while True:
            with lending_handler():
                item = queue.next(timeout)
            if item is None:
                return
            yield item

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[R]], object]) -> None:
        """Call `fn(future)` on a pool thread when the future is done; see `RequestFuture`.

        Raises:
            UsageError: `fn` is not callable with the future, or is a coroutine function.
        """
        check_callable(fn, "fn", ("future",))
        context = contextvars.copy_context()
        with self._state_lock:
            if self._callback_executor is None:
                # Held until the future is done: a function that is added at that moment must not
                # run before functions that were added earlier.
                self._callback_executor = SerialExecutor(self._workers, held=not self._finished)
            executor = self._callback_executor
        executor.push(lambda: context.run(fn, self))

    # -- for the code that makes the request ---------------------------------------------------

    def _finish(self) -> None:
        with self._state_lock:
            self._finished = True
            executor, queue = self._callback_executor, self._progress_queue
            hook, self._done_hook = self._done_hook, None
        if hook is not None:
            hook()
        if executor is not None:
            executor.start()
        if queue is not None:
            queue.close()
        if self._waker is not None:
            self._waker()

    def _disown(self) -> None:
        """Fail with `ForkedError` in a forked child, unless finished. No callback runs.

        No thread of the child would settle the future. A thread of the parent may hold its locks.
        """
        self._state_lock = threading.RLock()
        self._callback_executor = None
        if self._finished:
            self._condition = threading.Condition()
            return
        super().__init__()
        self._claimed = self._cancel_won = False
        self._collecting_thread = self._canceller = self._done_hook = self._value = None
        error = forked_error(self._server, self._method)
        settle(self, None, fresh(error, delivery="unknown"))  # the call continues in the parent

    def _get_progress_queue(self) -> ItemQueue[Progress]:
        with self._state_lock:
            if self._progress_queue is None:
                self._progress_queue = ItemQueue(MAX_CHARACTERS, closed=self._finished)
            return self._progress_queue


# Functions, not methods: a program that has the future is not meant to settle it.


def settle(future: RequestFuture[R], result: R | None, error: BaseException | None) -> None:
    """Settle the future; nothing happens if it was settled or cancelled before."""
    with future._state_lock:
        if future._claimed:
            return
        future._claimed = True
    try:
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # None only where R allows it
            future._value = result
    except concurrent.futures.InvalidStateError:
        _log.warning("%r was completed by the program: the outcome of its call is lost", future)
    # A program that keeps the future must not keep the client alive.
    future._canceller = None
    future._finish()


def is_claimed(future: RequestFuture[Any]) -> bool:
    """Return True once the future is being settled, even before waiting threads are woken."""
    return future._claimed


def is_cancelled(future: RequestFuture[Any]) -> bool:
    """Return True once `RequestFuture.cancel` has won, even before waiting threads are woken."""
    return future._cancel_won


def adopt_request(
    future: RequestFuture[Any],
    server: str | None,
    method: str | None,
    cancel: Callable[[], Delivery] | None,
) -> None:
    """Tie the future to its request; server and method are for its errors.

    `cancel` cancels the request, and returns how far it had come; `None` while nothing can have
    been sent.
    """
    future._server, future._method, future._canceller = server, method, cancel


def count_attempts(future: RequestFuture[Any], attempts: int) -> None:
    """Set `RequestFuture.attempts`."""
    future._attempts = attempts


def add_progress(future: RequestFuture[Any], item: Progress | dict[str, Any]) -> None:
    """Queue a progress report; log messages go to the client's own callback instead."""
    if isinstance(item, Progress):
        future._get_progress_queue().add(item, len(item.message or ""))


def collect(future: RequestFuture[Any], thread: int | None) -> None:
    """Refuse waits by the thread that will send the call with its batch; `None` allows them."""
    future._collecting_thread = thread
    if thread is not None:
        # An attribute of the standard library's `Future`, which is a list there, too.
        vars(future)["_waiters"] = _Waiters(future)


def wake_when_done(future: RequestFuture[Any], waker: Callable[[], object]) -> None:
    """Call `waker()`, which must not block, when the future is done, after all other hooks."""
    with future._state_lock:
        future._waker = waker
        finished = future._finished
    if finished:
        waker()


def call_when_done(future: RequestFuture[Any], action: Callable[[], object]) -> None:
    """Call `action()`, which must not block, when the future is done, before its callbacks."""
    with future._state_lock:
        if not future._finished:
            future._done_hook = action
            return
    action()


class _Waiters(list[Any]):
    """The waiters that `concurrent.futures.wait` and `as_completed` add to a future of a batch.

    These functions call no method of the future. So this list checks that a thread does not wait
    for a call that the same thread has not sent yet.
    """

    def __init__(self, future: RequestFuture[Any]) -> None:
        super().__init__()
        # A weak reference: a cycle would keep the future until the garbage collector runs.
        self._future = weakref.ref(future)

    def append(self, waiter: Any) -> None:
        future = self._future()
        if future is not None:
            future._check_sent()
        super().append(waiter)


class ItemQueue(Generic[T]):
    """A queue of items from a server; several threads may wait for the next item.

    It holds at most `BACKLOG` items whose sizes, in any unit, sum up to at most `most`. The oldest
    items are dropped for new ones. A single item may have any size.
    """

    def __init__(self, most: int, *, closed: bool = False) -> None:
        self._renew_lock()
        _queues.add(weakref.ref(self, _queues.discard))
        self.dropped = 0
        self._most = most
        self._items: deque[tuple[T, int]] = deque()
        self._size = 0
        self._closed = closed

    def _renew_lock(self) -> None:
        # Guards the other attributes. Reentrant: a finalizer may run in a thread that holds it.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)

    def add(self, item: T, size: int) -> None:
        """Queue an item. Never blocks."""
        with self.lock:
            full = len(self._items) == BACKLOG
            while self._items and (full or self._size + size > self._most):
                self._take()
                self.dropped, full = self.dropped + 1, False
            self._items.append((item, size))
            self._size += size
            self._changed.notify()

    def close(self) -> None:
        """Close the queue: no more items are added."""
        with self.lock:
            self._closed = True
            self._changed.notify_all()

    def next(self, timeout: float | None = None) -> T | None:
        """Wait for an item, at most `timeout` seconds; `None` after the last one."""
        deadline = Deadline(timeout)
        with self.lock:
            while not self._items:
                if self._closed:
                    return None
                if deadline.expired:
                    raise TimeoutError(f"no progress within {timeout:g} s")
                self._changed.wait(deadline.remaining())
            return self._take()

    def _take(self) -> T:
        item, size = self._items.popleft()
        self._size -= size
        return item


def _after_fork_in_child() -> None:
    for queue in [reference() for reference in list(_queues)]:
        if queue is not None:
            queue._renew_lock()
    for future in [reference() for reference in list(_futures)]:
        if future is not None:
            future._disown()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def failed_future(error: BaseException, workers: DaemonPool) -> RequestFuture[Any]:
    """Return a future that has failed already."""
    future: RequestFuture[Any] = RequestFuture(workers)
    settle(future, None, error)
    return future


def done_futures(
    starts: Iterator[Callable[[], F]], limit: int, *, ordered: bool = False
) -> Generator[F, None, None]:
    """Start calls, with at most `limit` in flight, and yield their futures as they are done.

    If the iteration ends early, the calls in flight are cancelled. If `starts` is exhausted, it is
    tried again when a call is done. With `ordered`, the futures come in the order of the calls, and
    may not be done yet.
    """
    # A dictionary keeps the order of the calls.
    in_flight: dict[F, None] = {}
    try:
        while True:
            while len(in_flight) < limit and (start := next(starts, None)) is not None:
                in_flight[start()] = None
            if not in_flight:
                return
            first = next(iter(in_flight)) if ordered else _first_done(in_flight)
            yield first
            del in_flight[first]
    finally:
        for future in in_flight:
            future.cancel()


def fan_out(
    starts: Iterator[Callable[[], RequestFuture[R]]],
    limit: int,
    *,
    ordered: bool,
    return_errors: bool,
) -> Iterator[R | McpError]:
    """Do the same as `done_futures`, and yield results, or raise the first error.

    With `return_errors`, yield the error of a call instead of its result.
    """
    with closing(done_futures(starts, limit, ordered=ordered)) as futures:
        for future in futures:
            result: R | McpError
            try:
                result = future.result()
            except McpError as error:
                if not return_errors:
                    raise
                result = error
            yield result


def _first_done(in_flight: dict[F, None]) -> F:
    with lending_handler():
        done = wait(in_flight, return_when=FIRST_COMPLETED).done
    return next(future for future in in_flight if future in done)
