"""Time: deadlines, one timer for the process, pauses that grow; a latch, a reaper.

`concurrent.futures.ThreadPoolExecutor` is not used anywhere: the interpreter joins its workers at
exit, so one callback stuck at a prompt would keep the whole program from ending.

Locks on the way of a cancel or a close are reentrant, here and everywhere: a signal handler or a
finalizer of the program's may do either, in a thread that holds them at that moment. And they are
entered as they are, never through a `Condition`: that is Python code, and Ctrl-C at its first line
would leave the lock taken for ever.
"""

from __future__ import annotations

import _thread
import contextlib
import heapq
import itertools
import logging
import os
import sys
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING

from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


monotonic = time.monotonic

# Before Python 3.14, a main thread on Windows that waits for a lock does not notice Ctrl-C.
_SLICED = sys.platform == "win32" and sys.version_info < (3, 14)
_SLICE = 0.2

fork_generation = 0
"""Counts the forks on the way to this process; what was made in another generation is dead."""

_log = logging.getLogger("syncmcp.threads")


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


class Latch:
    """An event that happens once, and that Ctrl-C in the midst of `set` or `wait` does not spoil.

    In those of `threading.Event` it may leave a lock taken for ever.
    """

    __slots__ = ("_lock", "_set")

    def __init__(self) -> None:
        self._set = False
        # Taken until the latch is set; whatever becomes of it then, `_set` says how things are.
        self._lock = threading.Lock()
        self._lock.acquire()

    def set(self) -> None:
        """Let all who wait go on, now and later."""
        self._set = True
        self._free()

    def wait(self, seconds: float | None) -> bool:
        """Wait, at most this long (`None`: for ever), for `set`; return whether it was called."""
        try:
            if not self._set:
                acquire(self._lock, seconds)
        finally:
            if self._set:  # for the next one who waits
                self._free()
        return self._set

    def _free(self) -> None:
        if self._lock.locked():
            with contextlib.suppress(RuntimeError):  # somebody else was faster
                self._lock.release()


def start_thread(thread: threading.Thread) -> None:
    """Start `thread` from yet another one.

    Ctrl-C in the midst of `Thread.start` would leave an entry of the thread behind for ever, or cut
    it off from whoever starts it. Here it may raise as well, but then the thread runs, or will.

    Raises:
        RuntimeError: No thread can be started.
    """
    over = threading.Lock()
    over.acquire()
    failure: list[BaseException] = []

    def start() -> None:
        try:
            thread.start()
        except BaseException as error:
            failure.append(error)
        finally:
            over.release()

    _thread.start_new_thread(start, ())
    acquire(over, None)
    if failure:
        raise failure.pop()


# Guards the counts of all deadlines that stand still: few do, and never for long under it.
_holding = threading.RLock()


class Deadline:
    """A point in time, made once for a call and handed down to everything the call waits for."""

    __slots__ = ("_held", "_left", "_resumes", "_since", "_stood", "at", "seconds")

    def __init__(self, seconds: float | None) -> None:
        """Set it `seconds` from now; `None` means never."""
        self.seconds = seconds
        self.at = None if seconds is None else monotonic() + seconds
        self._held = 0
        self._left: float | None = None
        # While it is held: since when, and when the clock goes on all the same, if it does.
        self._since = 0.0
        self._resumes: float | None = None
        # How long, in seconds, it has stood still of what a patience allows.
        self._stood = 0.0

    def hold(self, patience: float | None = None) -> None:
        """Stop the clock until `release` was called as often; what is left stays left.

        Args:
            patience: The most, in seconds, that the clock stands still in all, over all the times
                it is held; then it goes on, and the deadline may pass. `None` for no limit.
        """
        with _holding:
            self._held += 1
            if self._held == 1:
                now, self._left = monotonic(), self.remaining()
                self._since = now
                self._resumes = None if patience is None else now + max(patience - self._stood, 0)
            elif patience is None:
                self._resumes = None
            if self._left is not None:
                self.at = None if self._resumes is None else self._resumes + self._left

    def release(self) -> None:
        """Let the clock go on; whoever waits for the deadline must look again."""
        with _holding:
            self._held -= 1
            if self._held == 0 and self._left is not None:
                now = monotonic()
                if self._resumes is not None:
                    now = min(now, self._resumes)
                    self._stood += now - self._since
                self.at = now + self._left

    @property
    def held(self) -> bool:
        """Whether somebody holds it. Its clock stands still then, while `patience` lasts."""
        return self._held > 0

    def remaining(self) -> float | None:
        """Seconds left, never below zero; `None` when there is no limit."""
        at = self.at  # read once: it may be held by another thread at this moment
        if at is None:
            return None
        return max(0.0, at - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the point in time has passed."""
        at = self.at
        return at is not None and monotonic() >= at

    def sooner(self, seconds: float | None) -> Deadline:
        """The earlier of this deadline and one `seconds` from now."""
        other, at = Deadline(seconds), self.at
        if other.at is None or (at is not None and at <= other.at):
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
            start_thread(thread)
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
        with self._lock:  # Ctrl-C may have cut it off from whoever started it
            if self._thread is None:
                self._thread = threading.current_thread()
            if self._thread is not threading.current_thread():
                return
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
                start_thread(thread)
                self._thread = thread

    def put(self, job: Callable[[], object]) -> None:
        """Run `job` on the thread. Takes no lock of ours."""
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
                _log.exception("something left behind could not be closed")
            del job


timer = Timer()
"""The timer of this process."""

reaper = Reaper()
"""The reaper of this process."""


def _after_fork_in_child() -> None:
    global fork_generation
    fork_generation += 1
    # Threads do not survive fork, and the parent's lock may have been held at that moment. Entries
    # belong to the parent's calls. The object stays the same because modules hold on to it.
    timer.__init__()  # type: ignore[misc]
    reaper.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# The pause before a server that died is started again.


class Backoff:
    """How long to wait before a server that died is started again."""

    def __init__(self) -> None:
        self._deaths = 0
        self._since = 0.0

    def opened(self) -> None:
        """The server is there."""
        self._since = monotonic()

    def next(self) -> float:
        """Seconds to wait: nothing after a long life, else more with each death."""
        if monotonic() - self._since > _LONG_LIFE:
            self._deaths = 0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else min(0.1 * 2.0 ** min(self._deaths, 32), _LONGEST)


# A server that lived this long, in seconds, was healthy.
_LONG_LIFE = 30.0
_LONGEST = 10.0


# gevent: whether a program has patched the standard library, and whether in a way that works.
#
# Nothing here imports it: a program that uses it has it loaded already.


# What the library waits with.
_WAITING = ("threading", "queue", "select", "socket", "ssl", "subprocess")


def patched(module: str) -> bool:
    """Whether gevent has put functions of its own into this module of the standard library."""
    monkey = sys.modules.get("gevent.monkey")
    return monkey is not None and bool(monkey.is_module_patched(module))


def _lacking() -> list[str]:
    return [module for module in _WAITING if not patched(module)]


_lacking_at_import = _lacking()


def check() -> None:
    """Look whether whoever waits here lets other greenlets run, or is a thread of its own.

    Raises:
        UsageError: Neither: a part is patched, or what was in use here before it was patched.
    """
    lacking = _lacking()
    if len(lacking) == len(_WAITING):
        return
    if lacking:
        here = ", ".join(module for module in _WAITING if module not in lacking)
        raise UsageError(
            f"gevent has patched {here}, but not {', '.join(lacking)}: where only some of them let "
            "other greenlets run, calls hang. Use gevent.monkey.patch_all() without exceptions, or "
            "patch none of them"
        )
    if _lacking_at_import:
        raise UsageError(
            "gevent has patched the standard library after syncmcp was imported: call "
            "gevent.monkey.patch_all() first thing in the program, before `import syncmcp`"
        )
