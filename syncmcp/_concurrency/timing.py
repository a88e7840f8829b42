"""Waiting and time: locks that Ctrl-C does not break, deadlines, the timer and the reaper, backoff.

Three rules apply to all threads and locks of the library.

`concurrent.futures.ThreadPoolExecutor` is not used anywhere: the interpreter joins its workers at
exit, so one callback stuck at a prompt would keep the whole program from ending.

Locks that a cancel or a close takes are reentrant, here and everywhere. A signal handler or a
finalizer of the program may cancel or close in a thread that holds them. They are entered
directly, never through a `Condition`: that is Python code, and Ctrl-C at its first line would leave
the lock acquired permanently.

Under gevent, waiting threads are greenlets. gevent must patch all modules that wait, before the
library is imported; `check_gevent` refuses anything else. The library never imports gevent.
"""

from __future__ import annotations

import _thread
import contextlib
import heapq
import itertools
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

from syncmcp._base.text import logger
from syncmcp.errors import UsageError

monotonic = time.monotonic

# Before Python 3.14 on Windows, Ctrl-C does not interrupt the main thread in a wait for a lock. So
# it waits in slices of this many seconds there.
_SLICED = sys.platform == "win32" and sys.version_info < (3, 14)
_SLICE = 0.2

fork_generation = 0
"""How many forks led to this process. Objects made in another generation must not be used."""

_log = logger("syncmcp.threads")


def acquire(lock: threading.Lock, seconds: float | None) -> bool:
    """Acquire `lock`, waiting at most `seconds` (`None`: no limit); return True if acquired."""
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


class Latch:
    """An event that is set once. Unlike with `threading.Event`, Ctrl-C in `set` or `wait` is safe.

    In a `threading.Event`, Ctrl-C may leave the internal lock acquired permanently.
    """

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        self._set = False
        # Acquired until the latch is set; from then on only `_set` counts.
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Wake all waiting threads; later calls of `wait` return at once."""
        self._set = True
        self._free()

    def wait(self, seconds: float | None) -> bool:
        """Wait at most `seconds` (`None`: no limit) for `set`; return True if it was called."""
        try:
            if not self._set:
                acquire(self._lock, seconds)
        finally:
            if self._set:  # wake the next waiting thread
                self._free()
        return self._set

    def _free(self) -> None:
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # another thread was faster
                self._lock.release()


def start_thread(thread: threading.Thread) -> None:
    """Start `thread` from a helper thread, which Ctrl-C does not interrupt.

    Ctrl-C within `Thread.start` could leave the thread registered but never running, or running
    although `start` raised. Here Ctrl-C may raise, too, but in any case the thread runs or will
    run.

    Raises:
        RuntimeError: No thread can be started.
    """
    done = Latch()
    failure: list[BaseException] = []

    def start() -> None:
        try:
            thread.start()
        except BaseException as error:
            failure.append(error)
        finally:
            done.set()

    _thread.start_new_thread(start, ())
    done.wait(None)
    if failure:
        raise failure.pop()


# The modules of the standard library with which this library waits.
_WAITING_MODULES = ("threading", "queue", "select", "socket", "ssl", "subprocess")


def gevent_patched(module: str) -> bool:
    """Return True if gevent has patched this module of the standard library."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(module))


def _unpatched_modules() -> list[str]:
    return [module for module in _WAITING_MODULES if not gevent_patched(module)]


_unpatched_at_import = _unpatched_modules()


def check_gevent() -> None:
    """Check that gevent patched either nothing, or everything before syncmcp was imported.

    Raises:
        UsageError: Some modules are not patched, or they were patched after the import.
    """
    unpatched = _unpatched_modules()
    if len(unpatched) == len(_WAITING_MODULES):
        return
    if unpatched:
        here = ", ".join(module for module in _WAITING_MODULES if module not in unpatched)
        raise UsageError(
            f"gevent has patched {here}, but not {', '.join(unpatched)}: calls hang if only some "
            "of them let other greenlets run. Use gevent.monkey.patch_all() without "
            "exceptions, or patch none of them"
        )
    if _unpatched_at_import:
        raise UsageError(
            "gevent has patched the standard library after syncmcp was imported: call "
            "gevent.monkey.patch_all() first thing in the program, before `import syncmcp`"
        )


# Guards the clocks of all held deadlines. One lock is enough: it is needed seldom and briefly.
_hold_lock = threading.RLock()


class Deadline:
    """The point in time by which a call must end; created once, and passed to all waiting code.

    Its clock can be held, for instance while a person answers a question that the call caused.

    Attributes:
        at: The point in time, by `time.monotonic()`; `None` if there is no limit, or while the
            clock is held without a limit.
        seconds: The time limit it was created with; `None` for no limit.
        held: The number of calls of `hold` without `release`, even if `patience` is used up.
        resumes_at: When the clock of a held deadline runs again, because `patience` is used up;
            `None` if it is not held, or held without a limit.
    """

    __slots__ = ("_held_seconds", "_left", "_since", "at", "held", "resumes_at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        """Set the deadline `seconds` from now; `None` means no limit."""
        self.seconds = seconds
        self.at = None if seconds is None else monotonic() + seconds
        self.held = 0
        self.resumes_at: float | None = None
        # While held: the time left, and since when.
        self._left: float | None = None
        self._since = 0.0
        # For how many seconds it was held so far; `patience` bounds the sum.
        self._held_seconds = 0.0

    def __repr__(self) -> str:
        left = self.remaining()
        return "<Deadline without a limit>" if left is None else f"<Deadline in {left:.3f} s>"

    def hold(self, patience: float | None = None) -> None:
        """Hold the clock until `release` was called as often as `hold`; preserve the time left.

        Args:
            patience: The most seconds that the clock is held in total, over all calls of `hold`.
                Then it runs again, and the deadline may expire. `None` for no limit.
        """
        with _hold_lock:
            self.held += 1
            if self.held == 1:
                now, self._left = monotonic(), self.remaining()
                self._since = now
                self.resumes_at = (
                    None if patience is None else now + max(patience - self._held_seconds, 0)
                )
            elif patience is None:
                self.resumes_at = None
            if self._left is not None:
                self.at = None if self.resumes_at is None else self.resumes_at + self._left

    def release(self) -> None:
        """End one `hold`. Waiting threads must then read `at` or `remaining` again."""
        with _hold_lock:
            self.held -= 1
            if self.held:
                return
            now = monotonic()
            if self.resumes_at is not None:
                now = min(now, self.resumes_at)
                self._held_seconds += now - self._since
                self.resumes_at = None
            if self._left is not None:
                self.at = now + self._left

    def remaining(self) -> float | None:
        """Return the seconds left, never below zero; `None` if there is no limit."""
        at = self.at  # read once: another thread may hold or release it at this moment
        if at is None:
            return None
        return max(0.0, at - monotonic())

    @property
    def expired(self) -> bool:
        """True once the point in time has passed."""
        at = self.at
        return at is not None and monotonic() >= at

    def sooner(self, seconds: float | None) -> Deadline:
        """Return the earlier of this deadline and a new one `seconds` from now."""
        other, at = Deadline(seconds), self.at
        if other.at is None or (at is not None and at <= other.at):
            return self
        return other


class Hold:
    """One hold of a deadline; `begin` and `end` may be called by any threads, in any order.

    `patience` is that of `Deadline.hold`.
    """

    __slots__ = ("_deadline", "_held", "_patience")

    def __init__(self, deadline: Deadline, patience: float | None) -> None:
        self._deadline = deadline
        self._patience = patience
        # `None` before `begin`; `False` after `end`, permanently.
        self._held: bool | None = None

    def begin(self) -> None:
        """Hold the clock. No effect if called again, or after `end`."""
        with _hold_lock:
            if self._held is None:
                self._held = True
                self._deadline.hold(self._patience)

    def end(self) -> None:
        """Release the clock if it is held. Idempotent."""
        with _hold_lock:
            held, self._held = self._held, False
            if held:
                self._deadline.release()


class Timer:
    """Runs short functions at given times on one daemon thread.

    These functions must not block: they take a request out of a table, set an event, or put
    something into a queue.
    """

    def __init__(self, name: str = "syncmcp-timer") -> None:
        self._name = name
        # Guards everything below. Held for heap operations only.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # Comparing tuples runs no Python code, so no signal handler can interrupt a heap operation.
        self._heap: list[tuple[float, int, TimerEntry]] = []
        self._cancelled = 0
        self._thread: threading.Thread | None = None
        self._order = itertools.count()

    def start(self) -> None:
        """Start the thread unless it runs (at interpreter exit no thread can be started)."""
        with self._lock:
            self._start()

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            start_thread(thread)
            self._thread = thread  # after the start: if that fails, the next caller tries again

    def at(self, when: float, action: Callable[[], object]) -> TimerEntry:
        """Run `action` when `time.monotonic()` reaches `when`; the entry can be cancelled."""
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

    def _cancel(self, entry: TimerEntry) -> None:
        with self._lock:
            if entry.action is None:
                return
            entry.action = None
            self._cancelled += 1
            # Calls end long before their deadlines: without this, the heap would keep an entry for
            # every call of the last minutes. Removing half of the heap at a time makes the cost of
            # a removal constant on average.
            if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
                self._heap = [kept for kept in self._heap if kept[2].action is not None]
                heapq.heapify(self._heap)
                self._cancelled = 0

    def _run(self) -> None:
        with self._lock:  # Ctrl-C may have ended `_start` before it stored the thread
            if self._thread is None:
                self._thread = threading.current_thread()
            if self._thread is not threading.current_thread():
                return
        while True:
            action = self._next()
            try:
                action()
            except Exception:  # a failing action must not stop the timer
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
    """One scheduled action of a `Timer`."""

    __slots__ = ("_timer", "action", "when")

    def __init__(self, timer: Timer, when: float, action: Callable[[], object]) -> None:
        self._timer = timer
        self.when = when
        self.action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Prevent the action from starting. Idempotent; no effect once it has run."""
        self._timer._cancel(self)


class Alarm:
    """One timer entry for many deadlines: runs a function at the earliest time it was set to.

    Most deadlines of one owner are equally long: a later one needs no new entry, and the timer is
    not woken. The function checks all of them, and sets the alarm to the next. It runs on the timer
    thread and does not hold `lock`, with which the owner guards the deadlines. `at` is the time to
    which the alarm is set, by `time.monotonic()`; infinity if it is not set.
    """

    def __init__(self, lock: threading.RLock, ring: Callable[[], object]) -> None:
        self._lock = lock
        self._ring = ring
        self._entry: TimerEntry | None = None
        self.at = math.inf

    def set(self, when: float) -> None:
        """Run the function when `time.monotonic()` reaches `when`, or before."""
        with self._lock:
            if when < self.at:
                self.cancel()
                self.at = when
                self._entry = timer.at(when, self._run)

    def cancel(self) -> None:
        """Unset the alarm."""
        with self._lock:
            if self._entry is not None:
                self._entry.cancel()
            self._entry, self.at = None, math.inf

    def _run(self) -> None:
        with self._lock:
            self._entry, self.at = None, math.inf
        self._ring()


class Reaper:
    """Closes resources whose owner was garbage-collected, on a thread of its own.

    A finalizer may run in any thread at any moment, also in a thread that holds a lock which
    closing needs. So a finalizer only queues its job here: `SimpleQueue.put` is reentrant.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], object]] = SimpleQueue()
        # Guards the start of the thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread unless it runs (a finalizer cannot start it)."""
        with self._lock:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="syncmcp-reaper", daemon=True)
                start_thread(thread)
                self._thread = thread

    def put(self, job: Callable[[], object]) -> None:
        """Run `job` on the thread. Takes no lock of the library."""
        self._jobs.put(job)

    def _run(self) -> None:
        with self._lock:  # as in `Timer`
            if self._thread is None:
                self._thread = threading.current_thread()
            if self._thread is not threading.current_thread():
                return
        while True:
            job = self._jobs.get()
            try:
                job()
            except Exception:
                _log.exception("a resource of a garbage-collected object could not be closed")
            del job


timer = Timer()
"""The timer of this process."""

reaper = Reaper()
"""The reaper of this process."""


def _after_fork_in_child() -> None:
    global _hold_lock, fork_generation
    fork_generation += 1
    _hold_lock = threading.RLock()
    # Threads do not survive a fork, and locks may have been held at that moment. The entries belong
    # to calls of the parent. The objects stay the same because other modules have imported them.
    timer.__init__()  # type: ignore[misc]
    reaper.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# A server that ran this long, in seconds, counts as healthy again.
_STABLE_AFTER = 30.0
_LONGEST_BACKOFF = 10.0


class Backoff:
    """The pause before a server that ended is started or connected to again."""

    def __init__(self) -> None:
        self._failures = 0
        self._since = 0.0

    def opened(self) -> None:
        """Record that the server runs from now on."""
        self._since = monotonic()

    def next(self) -> float:
        """Return the seconds to wait: 0 at first or if the server was healthy, else increasing."""
        if monotonic() - self._since > _STABLE_AFTER:
            self._failures = 0
        self._failures += 1
        pause = 0.1 * 2.0 ** min(self._failures, 32)
        return 0.0 if self._failures == 1 else min(pause, _LONGEST_BACKOFF)
