"""Simulated time: the clocks of the library move only when the test moves them.

With a real limit of 0.2 seconds, a test can only check that a call ends some time later: on a busy
machine, that may take seconds. With simulated time, a test checks the limit exactly: the call does
not end before it, and does not wait a second longer.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

import pytest

import syncmcp
from syncmcp._concurrency import timing
from tests.support.stage import PATIENCE, is_library, tick

SHORT: Final = 0.3
"""Shorter waits (in seconds) use the real clock: they are for the system, and are no limits."""

_BEFORE: Final = 0.5
"""How many seconds before a limit `ending` checks that the job has not ended."""

_LOOK: Final = 0.01
"""The interval in real seconds at which a waiting thread reads the simulated clock."""

_acquire: Final = timing.acquire
_EXACT: Final = 1e-6
_LIBRARY: Final = Path(syncmcp.__file__).parent
_LEFT_OUT: Final = ("__main__.py", "cli", "llm", "testing", "ui")
_MACHINERY: Final = (
    os.path.join(os.path.dirname(os.__file__), "threading.py"),
    os.path.join(os.path.dirname(os.__file__), "concurrent", ""),
)


class MovedTime:
    """A simulated clock for the whole library; only `advance` moves it.

    It ends the timed waits of the library on all threads but that of the test, where all waits use
    the real clock.
    """

    def __init__(self) -> None:
        # A whole number, so that sums with limits are exact.
        self._now = float(int(timing.monotonic()))
        self._tests_thread = threading.get_ident()
        self._over = False
        # The times at which the current waits end.
        self._ends: list[float] = []

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and let the timer run the actions that are due."""
        self._now += seconds
        tick()

    def ending(
        self,
        limit: float,
        job: Callable[[], object],
        waits: Callable[[], object],
        *,
        passed: float = 0.0,
    ) -> Any:
        """Run `job`, which must end when `limit` seconds have passed, and not before.

        Args:
            limit: Seconds from the beginning of the job.
            job: Runs on another thread. It must wait for futures without a limit.
            waits: Returns once the job waits, so that its limit has begun.
            passed: The seconds by which `waits` moves the clock.

        Returns:
            The result or the exception of the job.
        """
        ended = self.start(job)
        waits()
        self.advance(limit - passed - _BEFORE)
        with pytest.raises(Empty):
            ended.get(timeout=2 * _LOOK)
        self.advance(_BEFORE)
        try:
            return ended.get(timeout=PATIENCE)
        except Empty:
            pytest.fail(f"not ended after {limit:g} s")

    def waits_for(self, seconds: float) -> None:
        """Return once a wait or a timer entry of the library ends `seconds` from now.

        Fails if there is none within `PATIENCE`.
        """
        given_up, left = time.monotonic() + PATIENCE, list[float]()
        while time.monotonic() < given_up:
            ends = [
                *self._ends,
                *(when for when, _, entry in [*timing.timer._heap] if entry.action),
            ]
            left = sorted(end - self._now for end in ends)
            if any(abs(one - seconds) < _EXACT for one in left):
                return
            threading.Event().wait(_LOOK)
        pytest.fail(f"nothing ends in {seconds:g} s, but in {left}")

    def start(self, job: Callable[[], object]) -> SimpleQueue[Any]:
        """Run `job` on another thread; return a queue, which gets its result or exception."""
        ended: SimpleQueue[Any] = SimpleQueue()

        def run() -> None:
            try:
                ended.put(job())
            except BaseException as error:
                ended.put(error)

        threading.Thread(target=run, name="test-job", daemon=True).start()
        return ended

    # -- replacements of the timed waits of the standard library

    def _passes(self, seconds: float | None, frame: FrameType | None) -> bool:
        """Return True if a wait with this limit, called from `frame`, uses the simulated clock."""
        if seconds is None or seconds < SHORT or threading.get_ident() == self._tests_thread:
            return False
        while frame is not None and frame.f_code.co_filename.startswith(_MACHINERY):
            frame = frame.f_back
        return frame is not None and is_library(frame.f_code.co_filename)

    def _wait(self, seconds: float, wait: Callable[[float], bool]) -> bool:
        end = self._now + seconds
        self._ends.append(end)
        try:
            while not self._over:
                if wait(_LOOK):
                    return True
                if self._now >= end:
                    return False
        finally:
            self._ends.remove(end)
        return wait(max(end - self._now, 0.0))

    def _wait_for_notify(self, condition: Any, seconds: float) -> bool:
        # Like `Condition.wait`, but polling. Repeated calls of it could miss a `notify` in between.
        waiter = threading.Lock()
        waiter.acquire()
        condition._waiters.append(waiter)
        state = condition._release_save()
        notified = False
        try:
            notified = self._wait(seconds, lambda part: waiter.acquire(timeout=part))
        finally:
            if not notified and waiter in condition._waiters:
                condition._waiters.remove(waiter)
            condition._acquire_restore(state)
        return notified

    def _acquire(self, lock: threading.Lock, seconds: float | None) -> bool:
        if seconds is None or not self._passes(seconds, sys._getframe(1)):
            return _acquire(lock, seconds)
        return self._wait(seconds, lambda part: _acquire(lock, part))

    @contextmanager
    def installed(self) -> Iterator[MovedTime]:
        """Replace the real clock, and the timed waits of the library, until the block ends."""
        condition_wait, join = threading.Condition.wait, threading.Thread.join

        def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
            if timeout is None or not self._passes(timeout, sys._getframe(1)):
                return condition_wait(condition, timeout)
            return self._wait_for_notify(condition, timeout)

        def wait_for_end(thread: threading.Thread, timeout: float | None = None) -> None:
            def ended(part: float) -> bool:
                join(thread, part)
                return not thread.is_alive()

            if timeout is None or not self._passes(timeout, sys._getframe(1)):
                join(thread, timeout)
            else:
                self._wait(timeout, ended)

        modules = _modules_with_clocks()
        with pytest.MonkeyPatch.context() as patch:
            for module in modules:
                for name, value in list(vars(module).items()):
                    if value is time.monotonic:
                        patch.setattr(module, name, self.now)
                    elif value is _acquire:
                        patch.setattr(module, name, self._acquire)
            patch.setattr(threading.Condition, "wait", wait)
            patch.setattr(threading.Thread, "join", wait_for_end)
            timing.timer.at(0.0, lambda: None)  # wakes the timer, which then uses this clock
            yield self
        self._over = True
        timing.timer.at(0.0, lambda: None)


@cache
def _modules_with_clocks() -> tuple[Any, ...]:
    """Return the modules of the library that read the clock or wait for locks."""
    found: list[Any] = []
    for path in sorted(_LIBRARY.rglob("*.py")):
        place = path.relative_to(_LIBRARY)
        if place.parts[0] in _LEFT_OUT or path.name == "_windows.py":
            continue
        if re.search(r"\bmonotonic\b|\bacquire\(", path.read_text("utf-8")):
            name = ".".join(("syncmcp", *place.with_suffix("").parts)).removesuffix(".__init__")
            found.append(import_module(name))
    return tuple(found)


@contextmanager
def no_limit_begins() -> Iterator[None]:
    """Make the constructor of `Deadline` fail within the block, unless it has no limit.

    A limit that begins while tests are collected may have passed when its test runs.
    """
    begin = timing.Deadline.__init__

    def refuse(deadline: timing.Deadline, seconds: float | None) -> None:
        assert seconds is None, f"a limit of {seconds:g} s begins before its test runs"
        begin(deadline, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing.Deadline, "__init__", refuse)
        yield


def soonest(job: Callable[[], object], times: int = 8) -> float:
    """Run `job` up to `times` times; return the shortest duration, in real seconds.

    Stops after the first run that takes less than a quarter of a second.
    """
    taken: list[float] = []
    while len(taken) < times and min(taken, default=1.0) >= 0.25:
        begun = time.monotonic()
        job()
        taken.append(time.monotonic() - begun)
    return min(taken)
