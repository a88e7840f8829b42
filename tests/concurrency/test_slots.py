"""The slots of a pool: released while a job waits, resumed, and replaced for stuck jobs."""

from __future__ import annotations

import os
import random
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp._concurrency.pool import DaemonPool, PoolSlot, current, slot_released
from tests.support.shops import known
from tests.support.stage import PATIENCE, GatedQueue, in_threads, nervous


class Counting(DaemonPool):
    """A pool that exposes its counters."""

    def __init__(self, limit: int) -> None:
        super().__init__("syncmcp-test", limit, lends=True)

    @property
    def running(self) -> int:
        """Return the number of occupied slots, read under the lock."""
        with self._lock:
            assert len(self._idle) <= self._threads
            return self._threads - len(self._idle)

    @property
    def threads(self) -> int:
        with self._lock:
            return self._threads

    def wait_running(self, count: int) -> None:
        """Wait for this number of occupied slots: a slot is released shortly after its job ends."""
        known(lambda: self.running == count)


@pytest.fixture
def pool() -> Iterator[Counting]:
    workers = Counting(1)
    yield workers
    workers.close()


class Job:
    """A job that runs orders of a test on its thread, one at a time, until it is ended."""

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
        """Run a function on the job's thread; return its result."""
        self._orders.put(order)
        return self._reports.get(timeout=PATIENCE)

    def end(self) -> None:
        self._orders.put(None)


def test_a_slot_that_is_lent_goes_to_the_next_in_line(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    slot = first.wait_started()
    assert pool.waiting == 2
    first.do(slot.lend)
    second.wait_started()
    assert (pool.running, pool.waiting) == (1, 1)
    # The job resumes at once, even if the pool is full.
    first.do(slot.take_back)
    assert (pool.running, pool.waiting) == (2, 1)
    first.end()
    pool.wait_running(1)
    assert not third.started
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
    slot.abandon()  # also possible while the slot is released
    jobs[2].wait_started().abandon()
    assert (pool.running, pool.waiting) == (0, 3)
    late = Job(pool)
    assert (pool.running, pool.waiting) == (0, 4)
    # The pool has room again once one of the abandoned jobs has ended, whichever it is.
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
            # Without this, the second submit could use a thread of the first.
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
            warnings.simplefilter("ignore", DeprecationWarning)  # raised for the other threads
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

    # In the child, the pool has no slot in use, and no job of the parent.
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
    # The idle thread has not ended yet, but the pool is full.
    third = Job(pool)
    queue.gate.set()
    known(lambda: pool.threads == 1)
    assert not third.started
    first.end()
    third.wait_started()
    third.end()
    known(lambda: pool.threads == 0)


class Disorder:
    """Jobs that release slots, wait for other jobs, fail or are abandoned, at random.

    Args:
        dice: The source of random decisions.
        limit: The limit of the pool.
        jobs: How many jobs other threads submit.
    """

    def __init__(self, dice: random.Random, limit: int, jobs: int) -> None:
        self.pool = Counting(limit)
        self._limit = limit
        self._dice = dice
        # Guards the following attributes.
        self._lock = threading.Lock()
        self._numbers = iter(range(10**9))
        self.submitted = 0
        self.ended: list[int] = []
        # The numbers of the jobs that hold their first slot.
        self._fresh: set[int] = set()
        self.wrong: list[str] = []
        self._slots: list[tuple[int, PoolSlot, threading.Event]] = []
        # The plan of each job is made in advance, since only one thread may use `dice`.
        self._plans = [self._plan(2) for _ in range(jobs)]

    def _plan(self, depth: int) -> list[Any]:
        deeds = ["look", "lend", "lend twice", "stuck", "wait for another", "fail"]
        weights = (6, 4, 2, 1, 4 if depth else 0, 1)
        return [
            (deed, self._plan(depth - 1) if deed == "wait for another" else None)
            for deed in self._dice.choices(deeds, weights, k=self._dice.randrange(4))
        ]

    def run(self) -> None:
        """Submit all jobs from four threads; close the pool meanwhile; wait for the end of all."""
        parts = [self._plans[start::4] for start in range(4)]
        over = threading.Event()
        abandoning = threading.Thread(target=self._abandon, args=(over,), name="test-abandon")
        abandoning.start()
        try:
            outcomes = in_threads(*(partial(self._submit_all, part) for part in parts))
            assert outcomes == [None] * 4
            known(lambda: len(self.ended) == self.submitted)
        finally:
            over.set()
            abandoning.join(PATIENCE)
        assert not abandoning.is_alive()
        known(lambda: self.pool.threads == 0)
        assert self.pool.running == self.pool.waiting == 0
        assert (sorted(self.ended), self.wrong) == (list(range(self.submitted)), [])

    def _submit_all(self, plans: list[list[Any]]) -> None:
        for index, plan in enumerate(plans):
            self._submit(plan)
            if index == len(plans) // 2:
                self.pool.close()

    def _submit(self, plan: list[Any], *, at_once: bool = False) -> threading.Event:
        done = threading.Event()
        with self._lock:
            number = next(self._numbers)
            self.submitted += 1
        self.pool.submit(partial(self._job, number, plan, done, at_once), at_once=at_once)
        return done

    def _job(self, number: int, plan: list[Any], done: threading.Event, at_once: bool) -> None:
        slot = current.slot
        assert slot is not None
        abandoned = threading.Event()
        if not at_once:
            self._begin(number)
        try:
            if number % 3 == 0 or any(deed == "stuck" for deed, _ in plan):
                with self._lock:
                    self._slots.append((number, slot, abandoned))
            for deed, more in plan:
                self._do(number, deed, more, abandoned)
        finally:
            with self._lock:
                self._fresh.discard(number)
                self.ended.append(number)
            done.set()

    def _begin(self, number: int) -> None:
        with self._lock:
            self._fresh.add(number)
            if len(self._fresh) > self._limit:
                self.wrong.append(f"{len(self._fresh)} jobs were given a slot")

    def _do(self, number: int, deed: str, more: Any, abandoned: threading.Event) -> None:
        if deed == "look":
            if self.pool.running < 0:
                self.wrong.append("fewer than none")
        elif deed == "stuck":
            assert abandoned.wait(PATIENCE), "nobody gave it up"
        else:
            with self._lock:
                self._fresh.discard(number)
            with slot_released():
                if deed == "fail":
                    sys.exit("as the dice fell")
                if deed == "lend twice":
                    with slot_released():
                        pass
                elif more is not None:
                    # Queued or not, the other job can run, as this one has released its slot.
                    done = self._submit(more, at_once=number % 2 == 0)
                    assert done.wait(3 * PATIENCE), "it was lost"

    def _abandon(self, over: threading.Event) -> None:
        """Abandon jobs in any state: running, waiting, or ended."""
        dice = random.Random(self._dice.random())
        while not over.wait(0.001):
            with self._lock:
                slots, self._slots = self._slots, []
                dice.shuffle(slots)
                for number, _, _ in slots:
                    self._fresh.discard(number)
            for _, slot, abandoned in slots:
                slot.abandon()
                abandoned.set()


def disorder(limit: int) -> None:
    seed = int(os.environ.get("SYNCMCP_STRESS_SEED") or random.randrange(10**6))
    print(f"\nlimit {limit}, seed {seed}")
    with nervous():
        Disorder(random.Random(seed), limit, 200).run()


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_in_all_disorder_no_job_is_lost_and_no_slot_is_counted_twice(limit: int) -> None:
    disorder(limit)


@pytest.mark.stress
@pytest.mark.parametrize("limit", [1, 2, 5])
def test_in_long_disorder_no_job_is_lost_and_no_slot_is_counted_twice(limit: int) -> None:
    for _ in range(50):
        disorder(limit)
