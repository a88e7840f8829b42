"""Futures for requests in flight, and many calls with a bounded number in flight."""

from __future__ import annotations

import concurrent.futures
import contextvars
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from typing import Any, NamedTuple, TypeVar

from syncmcp._concurrency.pool import BACKLOG, DaemonPool, SerialExecutor, lending_handler
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import McpError, RequestCancelled, UsageError

__all__ = ["Progress", "RequestFuture"]


R = TypeVar("R")


class Progress(NamedTuple):
    """How far a call has come (spec: "Progress")."""

    progress: float
    """Grows with each report; without a `total` it says nothing but that."""

    total: float | None
    """What `progress` will be at the end, if the server knows."""

    message: str | None
    """What the server is doing, for people."""


class RequestFuture(concurrent.futures.Future[R]):
    """The result of a request that is under way: a real `concurrent.futures.Future`.

    Works with `concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future`.
    `result(timeout)` only waits; it is the call's own `timeout` that ends the call. Functions
    given to `add_done_callback` run on a thread of the client's pool, one after another in the
    order they were added; they may block and may call the client.
    """

    _waker: Callable[[], object] | None = None

    def __init__(self, workers: DaemonPool) -> None:
        super().__init__()
        self._workers = workers
        # Guards what follows: who settles the future, and what is made at its first use.
        self._once = threading.RLock()
        self._claimed = False
        self._finished = False
        self._withdrawn = False
        self._withdraw: Callable[[], object] | None = None
        # Called once when it is done; see `call_when_done`.
        self._ended: Callable[[], object] | None = None
        # The thread that collects a batch, as long as this future's call is only collected.
        self._collector: int | None = None
        self._server: str | None = None
        self._method: str | None = None
        self._lane: SerialExecutor | None = None
        self._feed: _ProgressQueue | None = None
        self._attempts = 1

    @property
    def attempts(self) -> int:
        """How often a request of the call has been sent, or was to be sent; see `Retry`."""
        return self._attempts

    def cancel(self) -> bool:
        """Withdraw the request; the server is told, once.

        Returns:
            Whether the request is cancelled. `False` if its result was there first.
        """
        if not self._claim(withdrawn=True):
            return self._withdrawn
        super().cancel()
        # Without this, `concurrent.futures.wait` would wait for a cancelled future for ever.
        self.set_running_or_notify_cancel()
        self._finish()
        withdraw, self._withdraw = self._withdraw, None
        if withdraw is not None:
            withdraw()
        return True

    def result(self, timeout: float | None = None) -> R:
        """Wait for the result, at most `timeout` seconds, and return it.

        Raises:
            RequestCancelled: The future was cancelled.
            TimeoutError: It is not done yet; the request goes on.
            UsageError: Its batch is sent by this thread, and not before the block is left.
            McpError: Whatever became of the request instead.
        """
        self._check_sent()
        try:
            with lending_handler():
                return super().result(timeout)
        except concurrent.futures.CancelledError as error:
            raise self._as_cancelled(error) from None

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait until the future is done, at most `timeout` seconds, and return its error.

        Raises:
            RequestCancelled: The future was cancelled.
            TimeoutError: It is not done yet; the request goes on.
        """
        self._check_sent()
        try:
            with lending_handler():
                return super().exception(timeout)
        except concurrent.futures.CancelledError as error:
            raise self._as_cancelled(error) from None

    def _check_sent(self) -> None:
        if self._collector == threading.get_ident() and not self._finished:
            raise UsageError(
                "the call is sent when the block of its batch is left: it cannot be waited for "
                "within",
                server=self._server,
                method=self._method,
            )

    def _as_cancelled(self, error: BaseException) -> RequestCancelled:
        if isinstance(error, RequestCancelled):
            return error
        return RequestCancelled("cancelled by the caller", server=self._server, method=self._method)

    def progress(self, timeout: float | None = None) -> Iterator[Progress]:
        """Iterate over the call's progress until the call ends.

        Starts with what has come already (the newest 1,024). Ends when the future is done, however
        it ended.

        Args:
            timeout: The longest time, in seconds, to wait for the next report.

        Raises:
            TimeoutError: No report came in time; the call itself goes on.
            UsageError: See `result`.
        """
        self._check_sent()
        feed = self._open_feed()
        while True:
            with lending_handler():
                item = feed.next(timeout)
            if item is None:
                return
            yield item

    def add_done_callback(self, fn: Callable[[concurrent.futures.Future[R]], object]) -> None:
        """Call `fn(future)` on a pool thread when the future is done; see the class."""
        context = contextvars.copy_context()
        with self._once:
            if self._lane is None:
                # Held until the future is done: a function added at that moment must not be called
                # before those that were there.
                self._lane = SerialExecutor(self._workers, held=not self._finished)
            lane = self._lane
        lane.push(lambda: context.run(fn, self))

    # -- for the one who drives the request ------------------------------------------------

    def _claim(self, *, withdrawn: bool = False) -> bool:
        """Get the right to settle the future; only one caller ever gets it."""
        with self._once:
            if self._claimed:
                return False
            self._claimed = True
            self._withdrawn = withdrawn
            return True

    def _finish(self) -> None:
        with self._once:
            self._finished = True
            lane, feed = self._lane, self._feed
            ended, self._ended = self._ended, None
        if ended is not None:
            ended()
        if lane is not None:
            lane.start()
        if feed is not None:
            feed.close()
        if self._waker is not None:
            self._waker()

    def _open_feed(self) -> _ProgressQueue:
        with self._once:
            if self._feed is None:
                self._feed = _ProgressQueue(closed=self._finished)
            return self._feed


# The side of whoever makes the request: what a program that has the future cannot do.


def settle(future: RequestFuture[R], result: R | None, error: BaseException | None) -> None:
    """Give the future its outcome; nothing happens if it was settled or cancelled before."""
    if not future._claim():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)  # type: ignore[arg-type]  # None only where R allows it
    # A program that keeps the result must not keep the client by it.
    future._withdraw = None
    future._finish()


def is_claimed(future: RequestFuture[Any]) -> bool:
    """True once an outcome has been chosen; waiters may not have been told yet."""
    return future._claimed


def is_cancelled(future: RequestFuture[Any]) -> bool:
    """True as soon as `RequestFuture.cancel` has won, even before its waiters are told."""
    return future._withdrawn


def set_canceller(future: RequestFuture[Any], cancel: Callable[[], object]) -> None:
    """Have `RequestFuture.cancel` call `cancel()`, which withdraws the request."""
    future._withdraw = cancel


def name_request(future: RequestFuture[Any], server: str | None, method: str | None) -> None:
    """Name the server and the method in the errors of the future."""
    future._server, future._method = server, method


def count_attempts(future: RequestFuture[Any], attempts: int) -> None:
    """Set `RequestFuture.attempts`."""
    future._attempts = attempts


def add_progress(future: RequestFuture[Any], item: Progress | dict[str, Any]) -> None:
    """Queue a progress report; log messages go to the client's own callback instead."""
    if isinstance(item, Progress):
        future._open_feed().put(item)


def collect(future: RequestFuture[Any], thread: int | None) -> None:
    """Refuse waits of the thread that will send the call with its batch; `None` allows them."""
    future._collector = thread
    if thread is not None:
        # Of the standard library, which types it as the list that this is.
        vars(future)["_waiters"] = _Waiters(future)


def wake_when_done(future: RequestFuture[Any], waker: Callable[[], object]) -> None:
    """Call `waker()`, which must not block, after everything else at the end; perhaps now."""
    with future._once:
        future._waker = waker
        finished = future._finished
    if finished:
        waker()


def call_when_done(future: RequestFuture[Any], action: Callable[[], object]) -> None:
    """Call `action()`, which must not block, before the callbacks of the program; perhaps now."""
    with future._once:
        if not future._finished:
            future._ended = action
            return
    action()


class _Waiters(list[Any]):
    """Who waits for a call that is only collected, by `concurrent.futures.wait` or `as_completed`.

    They ask no method of a future, so this is where the thread that will send the call is told that
    it waits for itself.
    """

    def __init__(self, future: RequestFuture[Any]) -> None:
        super().__init__()
        # Not itself: what is over must not wait for the garbage collector.
        self._future = weakref.ref(future)

    def append(self, waiter: Any) -> None:
        future = self._future()
        if future is not None:
            future._check_sent()
        super().append(waiter)


class _ProgressQueue:
    """Progress on its way to whoever iterates over it."""

    def __init__(self, *, closed: bool) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._items: deque[Progress] = deque(maxlen=BACKLOG)
        self._closed = closed

    def put(self, item: Progress) -> None:
        with self._lock:
            self._items.append(item)
            self._changed.notify()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def next(self, timeout: float | None) -> Progress | None:
        deadline = Deadline(timeout)
        with self._lock:
            while not self._items:
                if self._closed:
                    return None
                if deadline.expired:
                    raise TimeoutError(f"no progress within {timeout:g} s")
                self._changed.wait(deadline.remaining())
            return self._items.popleft()


def settled(error: BaseException, workers: DaemonPool) -> RequestFuture[Any]:
    """A future that has failed already."""
    future: RequestFuture[Any] = RequestFuture(workers)
    settle(future, None, error)
    return future


# Many calls, a bounded number of them in flight at one time.


F = TypeVar("F", bound="Future[Any]")


def done_futures(
    starts: Iterator[Callable[[], F]], limit: int, *, ordered: bool = False
) -> Generator[F, None, None]:
    """Start calls and iterate over their futures as they are done.

    What is still in flight when the iteration ends early is cancelled.

    Args:
        starts: Each starts one call; taken as they are needed. One that has come to its end is
            asked again when a call is done.
        limit: How many calls may be in flight.
        ordered: Whether they come in the order of the calls; the first may not be done yet then.
    """
    # In the order of the calls: a dictionary keeps it.
    flying: dict[F, None] = {}
    try:
        while True:
            while len(flying) < limit and (start := next(starts, None)) is not None:
                flying[start()] = None
            if not flying:
                return
            first = next(iter(flying)) if ordered else _first_done(flying)
            yield first
            del flying[first]
    finally:
        for future in flying:
            future.cancel()


def fan_out(
    starts: Iterator[Callable[[], RequestFuture[R]]],
    limit: int,
    *,
    ordered: bool,
    return_errors: bool,
) -> Iterator[R | McpError]:
    """Start calls and iterate over their results; see `done_futures`.

    Args:
        starts: Each starts one call.
        limit: How many calls may be in flight.
        ordered: Whether results come in the order of the calls, or as they are there.
        return_errors: Whether the error of a call comes in the place of its result.

    Raises:
        McpError: What became of a call instead, unless errors are returned.
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


def _first_done(flying: dict[F, None]) -> F:
    with lending_handler():
        done = wait(flying, return_when=FIRST_COMPLETED).done
    return next(future for future in flying if future in done)
