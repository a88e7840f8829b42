"""Pools of daemon threads, the seats that their jobs may lend, and callbacks in their order.

See `timing` on locks.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias

_log = logging.getLogger("syncmcp.threads")

_Inbox: TypeAlias = "SimpleQueue[Callable[[], object] | None]"
"""Where an idle thread gets its next job, or `None`: the word to end."""

# An idle thread stays this long, in seconds, so that a burst of calls reuses threads.
_LINGER = 10.0


class DaemonPool:
    """A pool of daemon threads that grows on demand up to a limit and shrinks when idle.

    Nobody joins its threads: a job that never returns costs its thread and nothing else.

    Args:
        name: What its threads are called.
        limit: How many jobs run at one time. One that waits for something else may lend its seat
            to another job meanwhile; see `slot_released`.
        lends: Whether jobs that make a blocking call of this library do so by themselves.
        linger: Seconds that an idle thread stays for the next job.
    """

    def __init__(
        self, name: str, limit: int, *, lends: bool = False, linger: float = _LINGER
    ) -> None:
        self._name = name
        self._limit = limit
        self._linger = linger
        self.lends = lends
        # Guards everything below. Never held while a job runs.
        self._lock = threading.RLock()
        self._waiting: deque[Callable[[], object]] = deque()
        # A stack: who worked last works next. Its memory is warm, and whoever is not needed any
        # more comes to the end of its stay, though others are busy.
        self._idle: list[_Inbox] = []
        self._threads = 0
        self._numbers = itertools.count(1)
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many jobs stand in line."""
        return len(self._waiting)

    def submit(self, job: Callable[[], object], *, at_once: bool = False) -> bool:
        """Run `job` on some thread of the pool, soon; it waits in line when all are busy.

        Args:
            job: The job.
            at_once: Do not wait in line: jobs that are running wait for this one.

        Returns:
            Whether a thread has it; otherwise it stands in line.

        Raises:
            RuntimeError: The interpreter is ending and no thread can be started.
        """
        # In a box that the thread empties: it keeps its arguments for as long as it lives, which is
        # longer than anyone should keep a job and all that hangs on it.
        box = [job]
        counted = False
        try:
            with self._lock:
                if self._threads - len(self._idle) >= self._limit and not at_once:
                    self._waiting.append(job)
                    return False
                if self._idle:
                    self._idle.pop().put(job)
                    return True
                self._threads += 1
                counted = True
            self._start(box)
        except BaseException:  # no thread is to be had, or Ctrl-C
            if counted:
                self._take_back(box)
            raise
        return True

    def _start(self, box: list[Callable[[], object]]) -> None:
        threading.Thread(
            target=self._run, args=(box,), name=f"{self._name}-{next(self._numbers)}", daemon=True
        ).start()

    def _take_back(self, box: list[Callable[[], object]]) -> None:
        """A thread was counted that may not have come about."""
        with self._lock:
            if not box:
                return  # it did, and has its job
            box.clear()
            self._threads -= 1
            # Jobs that came meanwhile counted on this thread, and perhaps on no other.
            stranded = [] if self._threads else list(self._waiting)
            for _ in stranded:
                self._waiting.popleft()
        for waiting in stranded:
            self.run(waiting)

    def run(self, job: Callable[[], object], *, at_once: bool = False) -> None:
        """Like `submit`, but run `job` here where no thread can be started any more.

        For what must happen even while the interpreter is ending.
        """
        try:
            self.submit(job, at_once=at_once)
        except RuntimeError:
            try:
                job()
            except BaseException:
                _log.exception("a job on %s failed", self._name)

    def close(self) -> None:
        """Let idle threads end; threads that are busy end after their jobs. Waits for nobody."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().put(None)

    def _give_seat(self) -> None:
        """A running job needs its seat no more: the next in line may have it."""
        with self._lock:
            self._threads -= 1
            if not self._waiting or self._threads - len(self._idle) >= self._limit:
                return
            job = self._waiting.popleft()
        self.run(job)

    def _take_seat(self) -> None:
        """A running job goes on. It does not wait for a seat: whoever has one might wait for it."""
        with self._lock:
            self._threads += 1

    def _run(self, box: list[Callable[[], object]]) -> None:
        with self._lock:
            if not box:
                return  # whoever started this thread has given it up
            job: Callable[[], object] | None = box.pop()
        inbox: _Inbox = SimpleQueue()
        while job is not None:
            seat = _here.seat = PoolSlot(self)
            try:
                job()
            except BaseException:  # sys.exit() in a callback ends the callback, not the pool
                _log.exception("a job on %s failed", threading.current_thread().name)
            job = None  # what the job holds on to must not live until the next one comes
            if not seat.leave():
                return
            job = self._next(inbox)

    def _next(self, inbox: _Inbox) -> Callable[[], object] | None:
        with self._lock:
            # More than there may be: seats that were lent have been taken again.
            if self._threads - len(self._idle) > self._limit:
                self._threads -= 1
                return None
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._threads -= 1
                return None
            self._idle.append(inbox)
        try:
            job = inbox.get(timeout=self._linger)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._threads -= 1
                    return None
            # Between the timeout and the lock somebody counted on this thread: its job is there.
            job = inbox.get()
        if job is None:
            with self._lock:
                # Since `close` put the `None` there, this thread may have been counted as busy.
                if self._waiting and self._threads - len(self._idle) <= self._limit:
                    return self._waiting.popleft()
                self._threads -= 1
        return job


class PoolSlot:
    """The right of a running job to be one of the `limit` that its pool runs."""

    __slots__ = ("_abandoned", "_lent", "_lock", "_workers")

    def __init__(self, workers: DaemonPool) -> None:
        self._workers = workers
        # Guards the two: a job that lends its seat may be abandoned by a clock at that moment.
        self._lock = threading.RLock()
        self._lent = 0
        self._abandoned = False

    @property
    def lends(self) -> bool:
        """Whether every blocking call on this thread lends it."""
        return self._workers.lends

    def lend(self) -> None:
        """Let another job run until `take_back` was called as often."""
        with self._lock:
            self._lent += 1
            give = self._lent == 1 and not self._abandoned
        if give:
            self._workers._give_seat()

    def take_back(self) -> None:
        """Go on as one of the running jobs."""
        with self._lock:
            self._lent -= 1
            if self._lent == 0 and not self._abandoned:
                # Within the lock: who abandons it now must find it taken.
                self._workers._take_seat()

    def abandon(self) -> None:
        """Give it away for good: nobody waits for this job any more, and it may never end."""
        with self._lock:
            give = not self._abandoned and self._lent == 0
            self._abandoned = True
        if give:
            self._workers._give_seat()

    def leave(self) -> bool:
        """The job is over; return whether its thread still has a seat for another one."""
        with self._lock:
            had, self._abandoned = not self._abandoned, True
            return had


class _Here(threading.local):
    """What is known of the current thread."""

    seat: PoolSlot | None = None


_here = _Here()


def in_handler() -> bool:
    """Whether this thread runs a handler, whose blocking calls lend its seat."""
    seat = _here.seat
    return seat is not None and seat.lends


def seat_of_this_thread() -> PoolSlot | None:
    """The seat of the job that runs on this thread, if a pool of ours runs it."""
    return _here.seat


@contextmanager
def slot_released() -> Iterator[None]:
    """Lend the seat of this thread, if it has one, while something is waited for."""
    seat = _here.seat
    if seat is None:
        yield
        return
    seat.lend()
    try:
        yield
    finally:
        seat.take_back()


def lending_handler() -> AbstractContextManager[None]:
    """Like `slot_released`, if this thread runs a handler: for every wait within a handler."""
    return slot_released() if in_handler() else _NOTHING


_NOTHING: AbstractContextManager[None] = nullcontext()


class SerialExecutor:
    """Runs jobs one at a time and in order, on whatever thread of a pool is free.

    Args:
        workers: The pool.
        held: Collect jobs until `start` is called.
    """

    __slots__ = ("_jobs", "_lock", "_running", "_workers")

    def __init__(self, workers: DaemonPool, *, held: bool = False) -> None:
        self._workers = workers
        # Guards the queue and the flag: exactly one thread drains the lane.
        self._lock = threading.RLock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._running = held

    def start(self) -> None:
        """Let a lane that was held run, once. Never blocks."""
        with self._lock:
            self._running = bool(self._jobs)
            if not self._running:
                return
        self._workers.run(self._drain)

    def push(self, job: Callable[[], object]) -> None:
        """Run `job` after everything pushed before it. Never blocks."""
        with self._lock:
            self._jobs.append(job)
            if self._running:
                return
            self._running = True
        self._workers.run(self._drain)

    def _drain(self) -> None:
        while True:
            with self._lock:
                if not self._jobs:
                    self._running = False
                    return
                job = self._jobs.popleft()
            try:
                job()
            except BaseException:
                _log.exception("a callback failed")


def _after_fork_in_child() -> None:
    # The handler that forked goes on here as a plain thread: its pool stayed in the parent, and
    # nothing that waits in it may be started in the child.
    _here.seat = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# The order in which a program's own callbacks hear of things.


_callbacks_log = logging.getLogger("syncmcp.callbacks")

# How many notifications may wait for a slow callback.
BACKLOG = 1024


class Item(NamedTuple):
    """One callback to make."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    is_progress: bool


class CallbackQueue:
    """Makes callbacks one at a time and in order, on threads of a pool.

    A call has one of its own, and its result is released by the last entry: so what was said
    before the result is heard before it, and no call waits for another's callbacks. When callbacks
    are too slow, newer progress replaces older; other notifications are dropped and counted.
    """

    def __init__(self, workers: DaemonPool, context: contextvars.Context) -> None:
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
                _callbacks_log.warning(
                    "%d notifications were dropped: a callback is too slow", dropped
                )
            if item is None:
                assert last is not None
                last()
                continue
            try:
                self._context.run(item.callback, *item.args)
            except BaseException:  # sys.exit() in a callback ends the callback
                _callbacks_log.exception("a callback failed")
