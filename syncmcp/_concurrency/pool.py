"""Thread pools: daemon threads, slots that waiting jobs release, and queues that run in order.

A `DaemonPool` runs jobs concurrently, up to a limit. `SerialExecutor` and `CallbackQueue` run their
jobs on a pool, too, but one at a time and in order. See `timing` for the rules on locks.
"""

from __future__ import annotations

import contextvars
import itertools
import logging
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias

from syncmcp._base.text import logger
from syncmcp._concurrency.budget import Budget
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp.errors import LimitExceeded

_log = logger("syncmcp.threads")
_callbacks_log = logger("syncmcp.callbacks")

BACKLOG = 1024
"""How many notifications are queued for a slow callback before some are dropped."""

MAX_ABANDONED = 64
"""The most abandoned jobs of a pool that occupy no slot; each further one occupies a slot."""

MAX_WAITING_HANDLERS = 500
"""The most handlers of a client that may wait at the same time, in calls that they have made."""

_Inbox: TypeAlias = "SimpleQueue[Callable[[], object] | None]"
"""Gives an idle thread its next job, or `None` to end the thread."""

# An idle thread waits this long, in seconds, for its next job before it ends.
_LINGER = 10.0

# The pools of this process.
_pools: weakref.WeakSet[DaemonPool] = weakref.WeakSet()


class DaemonPool:
    """A pool of daemon threads that grows on demand up to a limit and shrinks when idle.

    Its threads are never joined: a job that never returns costs its thread and nothing else.

    Args:
        name: Prefix of the names of its threads.
        limit: The number of slots: each running job has one. A job that waits may release its slot
            for another job; see `slot_released`. An abandoned job releases its slot, too; see
            `MAX_ABANDONED`.
        lends: Whether every blocking call of this library within a job releases the job's slot;
            see `lending_handler`.
        linger: Seconds that an idle thread waits for its next job.
    """

    def __init__(
        self, name: str, limit: int, *, lends: bool = False, linger: float = _LINGER
    ) -> None:
        self._name = name
        self._limit = limit
        self._linger = linger
        self._lends = lends
        self._closed = False
        self._empty()
        _pools.add(self)

    def _empty(self) -> None:
        """Reset to a pool without threads and jobs: in the constructor, and in a forked child."""
        # Guards everything below. Never held while a job runs.
        self._lock = threading.RLock()
        self._waiting: deque[Callable[[], object]] = deque()
        # A stack: the thread that worked last gets the next job. Its memory is warm, and surplus
        # threads reach the end of `linger` even while others are busy.
        self._idle: list[_Inbox] = []
        # The number of idle threads and of jobs with slots; the number of abandoned jobs.
        self._threads = 0
        self._abandoned = 0
        # The handlers that wait in blocking calls of this library.
        self._waiting_handlers = 0
        self._numbers = itertools.count(1)

    @property
    def waiting(self) -> int:
        """The number of queued jobs."""
        return len(self._waiting)

    def submit(self, job: Callable[[], object], *, at_once: bool = False) -> bool:
        """Run `job` on a thread of the pool; queue it while `limit` jobs are running.

        `at_once` ignores the limit, for a job that running jobs wait for.

        Returns:
            True if a thread has the job, `False` if it is queued.

        Raises:
            RuntimeError: The interpreter is ending and no thread can be started.
        """
        # A thread keeps references to its arguments until it ends. It empties this list, so that
        # its first job does not stay alive.
        box = [job]
        counted = False
        try:
            with self._lock:
                if self._taken() >= self._limit and not at_once:
                    self._waiting.append(job)
                    return False
                if self._idle:
                    self._idle.pop().put(job)
                    return True
                self._threads += 1
                counted = True
            self._start(box)
        except BaseException:  # no thread can be started, or Ctrl-C
            if counted:
                self._undo_start(box)
            raise
        return True

    def _start(self, box: list[Callable[[], object]]) -> None:
        threading.Thread(
            target=self._run, args=(box,), name=f"{self._name}-{next(self._numbers)}", daemon=True
        ).start()

    def _undo_start(self, box: list[Callable[[], object]]) -> None:
        """Uncount a thread whose start failed; no effect if it runs nevertheless."""
        with self._lock:
            if not box:
                return  # it runs, and has taken its job
            box.clear()
            self._threads -= 1
            # If there is no other thread, none would run the jobs that were queued until now.
            stranded = [] if self._threads else list(self._waiting)
            for _ in stranded:
                self._waiting.popleft()
        for waiting in stranded:
            self.run(waiting)

    def run(self, job: Callable[[], object], *, at_once: bool = False) -> None:
        """Do what `submit` does, but run `job` on this thread if no thread can be started.

        For jobs that must run even while the interpreter is ending.
        """
        try:
            self.submit(job, at_once=at_once)
        except RuntimeError:
            try:
                job()
            except BaseException:
                _log.exception("a job on %s failed", self._name)

    def withdraw(self, job: Callable[[], object]) -> None:
        """Remove a job from the queue; no effect if a thread has it."""
        with self._lock, suppress(ValueError):
            self._waiting.remove(job)

    def close(self) -> None:
        """End idle threads; busy threads end after their jobs. Joins no thread."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().put(None)

    def _taken(self) -> int:
        """Return the number of occupied slots; called with the lock held."""
        return self._threads - len(self._idle) + max(0, self._abandoned - MAX_ABANDONED)

    def _release_slot(self, slots: int = 1, *, abandoned: int = 0) -> None:
        """Uncount released `slots` (0 if they were released before), and start a queued job.

        `abandoned` is added to the number of abandoned jobs.
        """
        with self._lock:
            self._threads -= slots
            self._abandoned += abandoned
            if not self._waiting or self._taken() >= self._limit:
                return
            job = self._waiting.popleft()
        self.run(job)

    def _retake_slot(self) -> None:
        """Give a job a slot again, without waiting for a free one: other jobs may wait for it."""
        with self._lock:
            self._threads += 1

    def add_waiting_handler(self) -> None:
        """Count a handler that begins to wait.

        Raises:
            LimitExceeded: `MAX_WAITING_HANDLERS` others wait.
        """
        with self._lock:
            if self._waiting_handlers >= MAX_WAITING_HANDLERS:
                raise LimitExceeded(
                    f"{MAX_WAITING_HANDLERS} handlers of this client wait in calls of their own: do"
                    " these calls cause the questions that the handlers answer?"
                )
            self._waiting_handlers += 1

    def remove_waiting_handler(self) -> None:
        """Uncount a handler that has waited."""
        with self._lock:
            self._waiting_handlers -= 1

    def _run(self, box: list[Callable[[], object]]) -> None:
        with self._lock:
            if not box:
                return  # `_undo_start` was faster
            job: Callable[[], object] | None = box.pop()
        inbox: _Inbox = SimpleQueue()
        current.handler = self._lends
        while job is not None:
            slot = current.slot = PoolSlot(self)
            try:
                job()
            except BaseException:  # sys.exit() in a callback ends the callback, not the pool
                _log.exception("a job on %s failed", threading.current_thread().name)
            job = None  # objects that the job refers to must not live until the next job comes
            if not slot.finish():
                return
            job = self._next(inbox)

    def _next(self, inbox: _Inbox) -> Callable[[], object] | None:
        with self._lock:
            # Above the limit, because jobs that had released their slots have them again.
            if self._taken() > self._limit:
                self._threads -= 1
                return None
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._threads -= 1
                return None
            self._idle.append(inbox)
        try:
            # In CPython 3.10, `get(timeout=0.0)` may block without limit: the remaining time is
            # negative then, which means "no limit" there.
            job = inbox.get(block=self._linger > 0, timeout=self._linger)
        except Empty:
            with self._lock:
                if inbox in self._idle:
                    self._idle.remove(inbox)
                    self._threads -= 1
                    return None
            # Between the timeout and the lock, `submit` chose this thread: its job is there.
            job = inbox.get()
        if job is None:
            with self._lock:
                # After `close` put the `None`, a job may have been queued because this thread was
                # counted as busy.
                if self._waiting and self._taken() <= self._limit:
                    return self._waiting.popleft()
                self._threads -= 1
        return job


class PoolSlot:
    """The slot of one running job: one of the `limit` that its pool has."""

    __slots__ = ("_abandoned", "_lent", "_lock", "workers")

    def __init__(self, workers: DaemonPool) -> None:
        self.workers = workers
        # Guards what follows: the timer may abandon a job while the job releases its slot.
        self._lock = threading.RLock()
        self._lent = 0
        self._abandoned = False

    def lend(self) -> None:
        """Release the slot for another job until `take_back` was called as often as `lend`."""
        with self._lock:
            self._lent += 1
            give = self._lent == 1 and not self._abandoned
        if give:
            self.workers._release_slot()

    def take_back(self) -> None:
        """End one `lend`; after the last one, the job has a slot again."""
        with self._lock:
            self._lent -= 1
            if self._lent == 0 and not self._abandoned:
                # With the lock held: `abandon` must find the slot taken.
                self.workers._retake_slot()

    def abandon(self) -> None:
        """Release the slot permanently: the job's result is not needed, and it may never end."""
        with self._lock:
            if self._abandoned:
                return
            self._abandoned = True
            slots = 0 if self._lent else 1
        self.workers._release_slot(slots, abandoned=1)

    def finish(self) -> bool:
        """Record that the job has returned; return True unless it was abandoned."""
        with self._lock:
            had, self._abandoned = not self._abandoned, True
        if not had:
            self.workers._release_slot(0, abandoned=-1)
        return had


class _Current(threading.local):
    """The job of the current thread."""

    slot: PoolSlot | None = None
    """The slot of its job, if a `DaemonPool` runs it."""

    handler = False
    """Whether the job is a handler, whose blocking calls release its slot."""


current = _Current()
"""The job of the current thread; calls read it often, so no function wraps it."""


def _after_fork_in_child() -> None:
    # In the child, the thread that forked belongs to no pool. The threads of the pools exist only
    # in the parent process, and queued jobs belong to the parent.
    current.slot, current.handler = None, False
    for pool in list(_pools):
        pool._empty()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


@contextmanager
def slot_released() -> Iterator[None]:
    """Release the slot of this thread's job, if it has one, for the length of the `with`."""
    slot = current.slot
    if slot is None:
        yield
        return
    slot.lend()
    try:
        yield
    finally:
        slot.take_back()


def lending_handler() -> AbstractContextManager[None]:
    """Return the context for every blocking wait: in a handler, it releases the handler's slot.

    Raises:
        LimitExceeded: On entry; see `DaemonPool.add_waiting_handler`.
    """
    return _handler_waiting() if current.handler else _NOTHING


@contextmanager
def _handler_waiting() -> Iterator[None]:
    slot = current.slot
    assert slot is not None  # a handler is a job of a pool
    slot.workers.add_waiting_handler()
    try:
        with slot_released():
            yield
    finally:
        slot.workers.remove_waiting_handler()


_NOTHING: AbstractContextManager[None] = nullcontext()


class SerialExecutor:
    """Runs jobs one at a time and in order, on any free thread of a pool.

    Args:
        workers: The pool.
        held: Only queue jobs until `start` is called.
    """

    __slots__ = ("_jobs", "_lock", "_running", "_workers")

    def __init__(self, workers: DaemonPool, *, held: bool = False) -> None:
        self._workers = workers
        # Guards what follows. Only one thread at a time runs `_drain`.
        self._lock = threading.RLock()
        self._jobs: deque[Callable[[], object]] = deque()
        self._running = held

    def start(self) -> None:
        """Run the jobs that were queued because of `held`; called once. Never blocks."""
        with self._lock:
            self._running = bool(self._jobs)
            if not self._running:
                return
        self._workers.run(self._drain)

    def push(self, job: Callable[[], object]) -> None:
        """Run `job` after all jobs pushed before it. Never blocks."""
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


class _QueuedCallback(NamedTuple):
    """One queued callback."""

    callback: Callable[..., object]
    args: tuple[Any, ...]
    is_progress: bool
    size: int


class CallbackQueue:
    """Runs callbacks one at a time and in order, on threads of a pool.

    Each call has a separate queue, and `finish` settles the call. So notifications that came before
    the result are delivered before it, and no call waits for the callbacks of another. If the queue
    is full, or the budget is used up, the oldest progress report is discarded. Without a progress
    report, the oldest notification is dropped and counted. The budget counts the arguments of
    callbacks until these have returned. If arguments do not fit into the budget although the queue
    is empty, they are dropped and counted.
    """

    def __init__(
        self,
        workers: DaemonPool,
        context: contextvars.Context,
        log: LimitedLog,
        budget: Budget,
        label: str,
    ) -> None:
        self._label = label
        self._workers = workers
        self._context = context
        self._log = log
        self._budget = budget
        # Guards what follows; not held while a callback runs.
        self._lock = threading.RLock()
        self._items: deque[_QueuedCallback] = deque()
        self._last: Callable[[], None] | None = None
        self._dropped = 0
        self._running = False

    def push(
        self,
        callback: Callable[..., object],
        *args: Any,
        is_progress: bool = False,
        size: int = 0,
    ) -> None:
        """Call `callback(*args)` after all callbacks pushed before. Never blocks, never raises.

        `size` is the size of the arguments in memory, in bytes.
        """
        with self._lock:
            if len(self._items) >= BACKLOG:
                self._make_room()
            while not (fits := self._budget.take_if_fits(size)) and self._items:
                self._make_room()
            if fits:
                self._items.append(_QueuedCallback(callback, args, is_progress, size))
            else:
                self._dropped += 1
        self._wake()

    def finish(self, last: Callable[[], None]) -> None:
        """Call `last` after all callbacks pushed so far; it must not block."""
        with self._lock:
            self._last = last
        self._wake()

    def _make_room(self) -> None:
        for index, item in enumerate(self._items):
            if item.is_progress:
                del self._items[index]
                self._budget.give(item.size)
                return
        self._budget.give(self._items.popleft().size)
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
                text = "[%s] %d notifications were dropped: a callback is too slow"
                self._log.log(_callbacks_log, logging.WARNING, text, self._label, dropped)
            if item is None:
                assert last is not None
                last()
                continue
            try:
                self._context.run(item.callback, *item.args)
            except BaseException as error:  # sys.exit() in a callback ends the callback
                text, told = "[%s] a callback failed: %s", (self._label, repr(error))
                self._log.log(_callbacks_log, logging.ERROR, text, *told, exc_info=True)
            finally:
                self._budget.give(item.size)
