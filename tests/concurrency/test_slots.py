"""The slots of a pool: lent while a job waits, taken back, and given up with what is stuck."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp._concurrency.pool import DaemonPool, PoolSlot, current, slot_released
from tests.support.shops import known
from tests.support.stage import PATIENCE, GatedQueue


class Counting(DaemonPool):
    """A pool whose counters can be looked at."""

    def __init__(self, limit: int) -> None:
        super().__init__("syncmcp-test", limit, lends=True)

    @property
    def running(self) -> int:
        """How many slots are taken, in one look."""
        with self._lock:
            assert len(self._idle) <= self._threads
            return self._threads - len(self._idle)

    @property
    def threads(self) -> int:
        with self._lock:
            return self._threads

    def wait_running(self, count: int) -> None:
        """Wait until so many slots are taken: one is given back a moment after its job."""
        known(lambda: self.running == count)


@pytest.fixture
def pool() -> Iterator[Counting]:
    workers = Counting(1)
    yield workers
    workers.close()


class Job:
    """A job that tells when it runs, does one thing at a time as it is told, and ends."""

    def __init__(self, pool: DaemonPool, *, at_once: bool = False) -> None:
        self._orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._reports: SimpleQueue[object] = SimpleQueue()
        self._started = threading.Event()
        self.slot: PoolSlot | None = None
        pool.submit(self._run, at_once=at_once)

    def _run(self) -> None:
        self.slot = current.slot
        self._started.set()
        while (order := self._orders.get(timeout=PATIENCE)) is not None:
            self._reports.put(order())

    @property
    def started(self) -> bool:
        return self._started.is_set()

    def wait_started(self) -> PoolSlot:
        assert self._started.wait(PATIENCE)
        assert self.slot is not None
        return self.slot

    def do(self, order: Callable[[], object]) -> object:
        """Have something done on the job's thread, and wait until it is."""
        self._orders.put(order)
        return self._reports.get(timeout=PATIENCE)

    def end(self) -> None:
        self._orders.put(None)


def test_a_slot_that_is_lent_goes_to_the_next_in_line(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    slot = first.wait_started()
    assert pool.waiting == 2
    for _ in range(2):
        first.do(slot.lend)
        second.wait_started()
        assert (pool.running, pool.waiting) == (1, 1)
    first.do(slot.take_back)
    assert (pool.running, pool.waiting) == (1, 1)
    # It goes on at once, however full it is.
    first.do(slot.take_back)
    assert (pool.running, pool.waiting) == (2, 1)
    first.end()
    pool.wait_running(1)
    assert not third.started
    second.end()
    third.wait_started()
    assert (pool.running, pool.waiting, pool.threads) == (1, 0, 1)
    third.end()


def test_a_slot_is_given_up_once_whatever_its_job_does(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    slot = first.wait_started()
    for _ in range(2):
        slot.abandon()
    second.wait_started()
    for act in (slot.lend, slot.take_back):
        first.do(act)
        assert (pool.running, pool.waiting) == (1, 1)
    first.end()
    second.end()
    third.wait_started()
    assert (pool.running, pool.waiting, pool.threads) == (1, 0, 1)
    third.end()


def test_so_many_abandoned_jobs_make_room(pool: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.pool.MAX_ABANDONED", 2)
    jobs = [Job(pool) for _ in range(6)]
    jobs[0].wait_started().abandon()
    slot = jobs[1].wait_started()
    jobs[1].do(slot.lend)
    jobs[2].wait_started()
    slot.abandon()  # one that lends counts, too
    jobs[2].wait_started().abandon()
    assert (pool.running, pool.waiting) == (0, 3)
    late = Job(pool)
    assert (pool.running, pool.waiting) == (0, 4)
    # Whichever of them ends makes room for one, and its own end for no other.
    jobs[1].end()
    jobs[3].wait_started().abandon()
    assert (pool.running, pool.waiting) == (0, 3)
    jobs[0].end()
    jobs[4].wait_started()
    jobs[2].end()
    jobs[3].end()
    assert (pool.running, pool.waiting) == (1, 2)
    for job in (jobs[4], jobs[5], late):
        job.end()
    late.wait_started()
    pool.wait_running(0)


def test_threads_end_if_too_many_are_stuck(pool: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp._concurrency.pool.MAX_ABANDONED", 0)
    first, urgent, third = Job(pool), Job(pool, at_once=True), Job(pool)
    first.wait_started().abandon()
    urgent.wait_started()
    urgent.end()
    known(lambda: pool.threads == 0)
    assert pool.waiting == 1
    first.end()
    third.wait_started()
    third.end()
    pool.wait_running(0)


def test_a_job_that_comes_at_once_does_not_stand_in_line(pool: Counting) -> None:
    first, second = Job(pool), Job(pool)
    urgent = Job(pool, at_once=True)
    urgent.wait_started()
    assert (pool.running, pool.waiting) == (2, 1)
    urgent.end()
    pool.wait_running(1)
    assert not second.started
    for job in (first, second):
        job.end()
    second.wait_started()


@pytest.mark.parametrize("moment", ["making", "starting", "started"])
@pytest.mark.pitfall("H11")
def test_ctrl_c_while_a_thread_is_being_made_costs_no_slot(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, name = Counting(1), "__init__" if moment == "making" else "start"
    original, begun = getattr(threading.Thread, name), list[threading.Thread]()

    def stop(self: threading.Thread, *args: Any, **options: Any) -> None:
        if moment != "starting":
            original(self, *args, **options)
        if moment == "started":
            begun.append(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, name, stop)
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                pool.submit(lambda: None)
            pool.wait_running(0)
            # The second submit meets no thread of the first.
            pool.close()
            for thread in begun:
                thread.join(PATIENCE)
            assert pool.threads == 0
    job = Job(pool)
    job.wait_started()
    assert (pool.threads, pool.running, pool.waiting) == (1, 1, 0)
    job.end()


def test_a_thread_that_comes_after_its_job_was_given_up_runs_nothing(
    pool: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[threading.Thread] = []
    ran: list[str] = []

    def stop(self: threading.Thread) -> None:
        late.append(self)
        raise KeyboardInterrupt

    start = threading.Thread.start
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", stop)
        with pytest.raises(KeyboardInterrupt):
            pool.submit(lambda: ran.append("given up"))
    (thread,) = late
    start(thread)
    thread.join(PATIENCE)
    assert (ran, pool.threads) == ([], 0)


def test_a_job_that_forks_has_no_slot_in_the_child(pool: Counting) -> None:
    first, second = Job(pool), Job(pool)
    first.wait_started()

    def fork() -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the threads that stay behind
            child = os.fork()
        if child == 0:
            try:
                with slot_released():
                    counted, ran = pool.threads, threading.Event()
                pool.submit(ran.set)
                os._exit(0 if counted == 0 and ran.wait(PATIENCE) else 1)
            finally:
                os._exit(100)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    # The pool of the child is free, and has none of the parent's jobs.
    assert first.do(fork) == 0
    assert not second.started
    first.end()
    second.wait_started()
    second.end()


def test_a_thread_that_ends_takes_no_job_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Counting(1)
    queue = GatedQueue()
    monkeypatch.setattr("syncmcp._concurrency.pool.SimpleQueue", lambda: queue)
    first, second = Job(pool), Job(pool)
    slot = first.wait_started()
    first.do(slot.lend)
    second.wait_started()
    second.end()
    pool.wait_running(0)
    first.do(slot.take_back)
    pool.close()
    assert queue.told.wait(PATIENCE)
    # The thread that was idle has not ended yet, and the pool is full.
    third = Job(pool)
    queue.gate.set()
    known(lambda: pool.threads == 1)
    assert not third.started
    first.end()
    third.wait_started()
    third.end()
    known(lambda: pool.threads == 0)
