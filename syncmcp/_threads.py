"""Time and threads: deadlines, one timer for the process, pools of daemon threads.

`concurrent.futures.ThreadPoolExecutor` is not used anywhere: the interpreter joins its workers at
exit, so one callback stuck at a prompt would keep the whole program from ending.

Locks on the way of a cancel or a close are reentrant, here and everywhere: a signal handler or a
finalizer of the program's may do either, in a thread that holds them at that moment. And they are
entered as they are, never through a `Condition`: that is Python code, and Ctrl-C at its first line
would leave the lock taken for ever.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import os
import sys
import threading
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

monotonic = time.monotonic

# Before Python 3.14, a main thread on Windows that waits for a lock does not notice Ctrl-C.
_SLICED = sys.platform == "win32" and sys.version_info < (3, 14)
_SLICE = 0.2

generation = 0
"""Counts the forks on the way to this process; what was made in another generation is dead."""

_log = logging.getLogger("syncmcp.threads")

# An idle pool thread stays this long, in seconds, so that a burst of calls reuses threads.
_LINGER = 10.0


def acquire(lock: threading.Lock, seconds: float | None) -> bool:
    """Acquire `lock`, waiting at most `seconds` (`None`: for ever); return whether it was."""
    if seconds is not None:
        seconds = min(max(seconds, 0.0), threading.TIMEOUT_MAX)
    if not _SLICED or threading.current_thread() is not threading.main_thread():
        return lock.acquire(timeout=-1 if seconds is None else seconds)
    end = None if seconds is None else monotonic() + seconds
    while True:
        left = _SLICE if end is None else min(_SLICE, end - monotonic())
        if lock.acquire(timeout=max(left, 0.0)):
            return True
        if end is not None and monotonic() >= end:
            return False


class Deadline:
    """A point in time, made once for a call and handed down to everything the call waits for."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        """Set it `seconds` from now; `None` means never."""
        self.seconds = seconds
        self.at = None if seconds is None else monotonic() + seconds

    def remaining(self) -> float | None:
        """Seconds left, never below zero; `None` when there is no limit."""
        if self.at is None:
            return None
        return max(0.0, self.at - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the point in time has passed."""
        return self.at is not None and monotonic() >= self.at

    def sooner(self, seconds: float | None) -> Deadline:
        """The earlier of this deadline and one `seconds` from now."""
        other = Deadline(seconds)
        if other.at is None or (self.at is not None and self.at <= other.at):
            return self
        return other


class Timer:
    """Runs short functions at given times on one daemon thread.

    What it runs must not block: it takes a request out of a table, sets an event, puts something
    into a queue.
    """

    def __init__(self, name: str = "syncmcp-timer") -> None:
        self._name = name
        # Guards everything below. Held for heap operations only.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Tuples are compared without running Python code, in whose midst a signal might come.
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._cancelled = 0
        self._thread: threading.Thread | None = None
        self._order = itertools.count()

    def start(self) -> None:
        """Make sure the thread runs (starting one at interpreter exit is impossible)."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread  # not before: where it cannot be started, the next one tries

    def at(self, when: float, action: Callable[[], object]) -> TimerEntry:
        """Run `action` once `time.monotonic()` has reached `when`; the entry can be cancelled."""
        entry = TimerEntry(self, when, action)
        item = (when, next(self._order), entry)
        with self._lock:
            self._start()
            heapq.heappush(self._heap, item)
            if self._heap[0] is item:
                self._changed.notify()
        return entry

    def after(self, seconds: float, action: Callable[[], object]) -> TimerEntry:
        """Run `action` in `seconds` seconds."""
        return self.at(monotonic() + seconds, action)

    def _forget(self, entry: TimerEntry) -> None:
        with self._lock:
            if entry.action is None:
                return
            entry.action = None
            self._cancelled += 1
            # Calls end long before their deadlines: without this the heap would hold every call of
            # the last minutes. Halving keeps the cost of a removal constant on average.
            if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
                self._heap = [kept for kept in self._heap if kept[2].action is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _run(self) -> None:
        while True:
            action = self._next()
            try:
                action()
            except Exception:  # one broken entry must not stop everybody's clock
                _log.exception("a timer action failed")
            del action

    def _next(self) -> Callable[[], object]:
        with self._lock:
            while True:
                now = monotonic()
                if not self._heap:
                    self._changed.wait()
                    continue
                when, _, entry = self._heap[0]
                if entry.action is not None and when > now:
                    self._changed.wait(min(when - now, threading.TIMEOUT_MAX))
                    continue
                heapq.heappop(self._heap)
                action, entry.action = entry.action, None
                if action is not None:
                    return action
                self._cancelled -= 1


class TimerEntry:
    """One appointment of a `Timer`."""

    __slots__ = ("_timer", "action", "when")

    def __init__(self, timer: Timer, when: float, action: Callable[[], object]) -> None:
        self._timer = timer
        self.when = when
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Make sure that the action will not start any more; harmless when it has run."""
        self._timer._forget(self)


class Workers:
    """A pool of daemon threads that grows on demand up to a limit and shrinks when idle.

    Nobody joins its threads: a job that never returns costs its thread and nothing else.
    """

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        # Guards the counters and the two queues' bookkeeping. Never held while a job runs.
        self._lock = threading.RLock()
        self._jobs: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._waiting: deque[Callable[[], object]] = deque()
        self._idle = 0
        self._threads = 0
        self._numbers = itertools.count(1)
        self._closed = False

    def submit(self, job: Callable[[], object]) -> None:
        """Run `job` on some thread of the pool, soon; it waits in line when all are busy.

        Raises:
            RuntimeError: The interpreter is ending and no thread can be started.
        """
        with self._lock:
            if self._idle:
                self._idle -= 1
                self._jobs.put(job)
                return
            if self._threads >= self._limit:
                self._waiting.append(job)
                return
            self._threads += 1
        # In a box that the thread empties: it keeps its arguments for as long as it lives, which is
        # longer than anyone should keep a job and all that hangs on it.
        box = [job]
        thread = threading.Thread(
            target=self._run, args=(box,), name=f"{self._name}-{next(self._numbers)}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError:
            with self._lock:
                self._threads -= 1
                # Jobs that came meanwhile counted on this thread, and perhaps on no other.
                stranded = [] if self._threads else list(self._waiting)
                for _ in stranded:
                    self._waiting.popleft()
            for waiting in stranded:
                self.run(waiting)
            raise

    def run(self, job: Callable[[], object]) -> None:
        """Like `submit`, but run `job` here where no thread can be started any more.

        For what must happen even while the interpreter is ending.
        """
        try:
            self.submit(job)
        except RuntimeError:
            try:
                job()
            except BaseException:
                _log.exception("a job on %s failed", self._name)

    def close(self) -> None:
        """Let idle threads end; threads that are busy end after their jobs. Waits for nobody."""
        with self._lock:
            self._closed = True
            for _ in range(self._idle):
                self._jobs.put(None)
            self._idle = 0

    def _run(self, box: list[Callable[[], object]]) -> None:
        job: Callable[[], object] | None = box.pop()
        while job is not None:
            try:
                job()
            except BaseException:  # sys.exit() in a callback ends the callback, not the pool
                _log.exception("a job on %s failed", threading.current_thread().name)
            job = None  # what the job holds on to must not live until the next one comes
            job = self._next()

    def _next(self) -> Callable[[], object] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            if self._closed:
                self._threads -= 1
                return None
            self._idle += 1
        try:
            job = self._jobs.get(timeout=_LINGER)
        except Empty:
            with self._lock:
                if self._idle:
                    self._idle -= 1
                    self._threads -= 1
                    return None
            # Between the timeout and the lock somebody counted on this thread: its job is there.
            job = self._jobs.get()
        if job is None:
            with self._lock:
                # Since `close` put the `None` there, this thread may have been counted as busy.
                if self._waiting:
                    return self._waiting.popleft()
                self._threads -= 1
        return job


class Lane:
    """Runs jobs one at a time and in order, on whatever thread of a pool is free.

    Args:
        workers: The pool.
        held: Collect jobs until `start` is called.
    """

    __slots__ = ("_jobs", "_lock", "_running", "_workers")

    def __init__(self, workers: Workers, *, held: bool = False) -> None:
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


class Reaper:
    """Closes what was left behind.

    The garbage collector may run finalizers in any thread at any moment, also in one that holds a
    lock which closing would need. So a finalizer only puts its work here: a `SimpleQueue` is made
    to be used like that.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        # Guards the start of the thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make sure the thread runs (a finalizer could not start it)."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="syncmcp-reaper", daemon=True)
                thread.start()
                self._thread = thread

    def put(self, job: Callable[[], object]) -> None:
        """Run `job` on the thread. Takes no lock of ours."""
        self._jobs.put(job)

    def _run(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                _log.exception("something left behind could not be closed")
            del job


timer = Timer()
"""The timer of this process."""

reaper = Reaper()
"""The reaper of this process."""


def _after_fork_in_child() -> None:
    global generation
    generation += 1
    # Threads do not survive fork, and the parent's lock may have been held at that moment. Entries
    # belong to the parent's calls. The object stays the same because modules hold on to it.
    timer.__init__()  # type: ignore[misc]
    reaper.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
