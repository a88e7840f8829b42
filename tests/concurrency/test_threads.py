"""Deadlines, the timer and the thread pools."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp import RateLimit
from syncmcp._concurrency import timing
from syncmcp._concurrency.pool import DaemonPool, SerialExecutor
from syncmcp._concurrency.single_flight import SharedAttempt, SingleFlight
from syncmcp._concurrency.timing import Alarm, Deadline, Reaper, Timer
from syncmcp._http.exchange import AbortableExchange, current
from syncmcp.errors import RequestTimeout, UsageError
from tests.support.shops import known
from tests.support.stage import (
    PATIENCE,
    Clock,
    GatedQueue,
    elsewhere,
    interrupted,
    nervous,
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "syncmcp._concurrency.timing")


@pytest.fixture
def workers() -> Iterator[Callable[[int], DaemonPool]]:
    made: list[DaemonPool] = []

    def make(limit: int) -> DaemonPool:
        made.append(DaemonPool("syncmcp-test", limit))
        return made[-1]

    yield make
    for pool in made:
        pool.close()


@pytest.mark.parametrize("held", [False, True])
def test_no_deadline_never_comes(clock: Clock, held: bool) -> None:
    deadline = Deadline(None)
    if held:
        deadline.hold(10.0)
    clock.advance(1e9)
    assert deadline.remaining() is None
    if held:
        deadline.release()
    assert not deadline.expired


@pytest.mark.parametrize("first", [None, 10.0])
def test_a_deadline_held_without_a_limit_does_not_pass(clock: Clock, first: float | None) -> None:
    deadline = Deadline(100.0)
    deadline.hold(first)
    deadline.hold(10.0 if first is None else None)
    clock.advance(1000.0)
    assert deadline.remaining() is None
    deadline.release()
    assert not deadline.expired
    deadline.release()
    assert deadline.remaining() == pytest.approx(100.0, abs=1.0)


def test_a_patience_is_for_all_who_hold_at_one_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing", stands=True)
    deadline = Deadline(100.0)
    deadline.hold(300.0)
    clock.advance(200.0)
    deadline.hold(300.0)
    clock.advance(100.0)
    deadline.release()
    assert deadline.remaining() == pytest.approx(100.0)
    clock.advance(40.0)
    deadline.release()
    assert deadline.remaining() == pytest.approx(60.0)


@pytest.fixture
def timer() -> Timer:
    # Its daemon thread ends with the process, so no test has to wait for threads of this name.
    return Timer("test-timer")


def test_a_timer_runs_what_is_due_in_order(timer: Timer, caplog: pytest.LogCaptureFixture) -> None:
    heard: SimpleQueue[str] = SimpleQueue()

    def fail() -> None:
        raise RuntimeError("broken")

    start = timing.monotonic() + 0.05
    timer.at(start + 0.02, partial(heard.put, "third"))
    timer.at(start, fail)
    timer.at(start, partial(heard.put, "first"))
    dropped = timer.at(start, partial(heard.put, "dropped"))
    timer.at(start, partial(heard.put, "second"))
    dropped.cancel()
    dropped.cancel()
    assert [heard.get(timeout=PATIENCE) for _ in range(3)] == ["first", "second", "third"]
    assert heard.empty()
    assert "a timer action failed" in caplog.text


def test_an_alarm_has_the_first_appointment(timer: Timer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "timer", timer)
    rang: SimpleQueue[str] = SimpleQueue()
    alarm, start = Alarm(threading.RLock(), lambda: rang.put("rang")), timing.monotonic()
    for later in range(3):
        alarm.set(start + 3600.0 + later)
    assert [when for when, _, _ in timer._heap] == [start + 3600.0]
    for _ in range(2):
        alarm.set(start)
        assert rang.get(timeout=PATIENCE) == "rang"
    start = timing.monotonic()
    alarm.set(start + 0.02)
    alarm.cancel()
    timer.at(start + 0.03, lambda: rang.put("after it"))
    alarm.set(start + 0.04)
    assert [rang.get(timeout=PATIENCE) for _ in range(2)] == ["after it", "rang"]


def test_of_two_idle_threads_the_last_one_works_next(workers: Callable[[int], DaemonPool]) -> None:
    pool = workers(2)
    both = threading.Barrier(2)
    names: SimpleQueue[str] = SimpleQueue()

    for _ in range(2):
        pool.submit(lambda: both.wait(PATIENCE))
    seen = set()
    for _ in range(6):
        known(lambda: len(pool._idle) == 2)
        pool.submit(lambda: names.put(threading.current_thread().name))
        seen.add(names.get(timeout=PATIENCE))
    assert len(seen) == 1


@pytest.mark.parametrize("error", [RuntimeError("broken"), SystemExit(3)], ids=["error", "exit"])
def test_a_job_that_fails_ends_nothing_but_itself(
    workers: Callable[[int], DaemonPool], error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise error

    pool = workers(1)
    for put, said in ((pool.submit, "failed"), (SerialExecutor(pool).push, "a callback failed")):
        caplog.clear()
        done = threading.Event()
        put(fail)
        put(done.set)
        assert done.wait(PATIENCE)
        assert said in caplog.text


def test_a_job_that_comes_while_a_closed_pool_ends_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = DaemonPool("syncmcp-test", 1)
    queue = GatedQueue()
    monkeypatch.setattr("syncmcp._concurrency.pool.SimpleQueue", lambda: queue)
    done = threading.Event()
    pool.submit(lambda: None)
    # `close` affects idle threads only, and a thread is idle shortly after its job.
    known(lambda: bool(pool._idle))
    pool.close()
    assert queue.told.wait(PATIENCE)
    pool.submit(done.set)
    queue.gate.set()
    assert done.wait(PATIENCE)


def test_a_lane_runs_its_jobs_one_at_a_time(workers: Callable[[int], DaemonPool]) -> None:
    lane = SerialExecutor(workers(8))
    heard: list[int] = []
    running = threading.Lock()
    overlapped = threading.Event()
    done = threading.Event()

    def job(number: int) -> None:
        if not running.acquire(blocking=False):
            overlapped.set()
            return
        heard.append(number)
        if number == 999:
            done.set()
        running.release()

    with nervous():
        for number in range(1000):
            lane.push(partial(job, number))
        assert done.wait(PATIENCE)
    assert heard == list(range(1000))
    assert not overlapped.is_set()


def test_the_reaper_works_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def fail() -> None:
        raise RuntimeError("broken")

    with caplog.at_level(logging.ERROR, "syncmcp.threads"):
        reaper = timing.reaper
        reaper.put(fail)
        reaper.put(done.set)
        reaper.start()
        reaper.start()
        assert done.wait(PATIENCE)
    assert "could not be closed" in caplog.text
    assert isinstance(reaper, Reaper)
    named = [thread for thread in threading.enumerate() if thread.name == "syncmcp-reaper"]
    assert len(named) == 1


class TimedQueue(SimpleQueue[Any]):
    """A queue that stores the arguments of `get`."""

    def __init__(self, waits: list[tuple[bool, float | None]]) -> None:
        super().__init__()
        self._waits = waits

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        self._waits.append((block, timeout))
        return super().get(block, timeout)


def test_a_thread_that_must_not_linger_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    # In CPython 3.10, waiting 0 seconds for a queue can block forever.
    waits: list[tuple[bool, float | None]] = []
    monkeypatch.setattr("syncmcp._concurrency.pool.SimpleQueue", lambda: TimedQueue(waits))
    threads: SimpleQueue[threading.Thread] = SimpleQueue()
    DaemonPool("syncmcp-test", 1, linger=0.0).submit(
        lambda: threads.put(threading.current_thread())
    )
    threads.get(timeout=PATIENCE).join(PATIENCE)
    assert waits == [(False, 0.0)]


def test_a_signal_handler_may_ask_a_rate_limit_in_the_middle_of_a_question() -> None:
    number = 1
    while True:
        limit = RateLimit(calls=5, tokens=5, per=60)
        take = partial(limit.take, "server", calls=1, tokens=1)
        if not interrupted(take, number, take):
            break
        number += 1
    assert number > 10


def flight() -> SingleFlight[Any]:
    """Return a single flight for threads in HTTP exchanges."""
    return SingleFlight(current, "syncmcp-test", late="too late", reentered="again")


def test_the_clocks_of_all_who_wait_stand_still_while_a_person_signs_in() -> None:
    flights: SingleFlight[int] = flight()
    early, late = Deadline(PATIENCE), Deadline(PATIENCE)
    joined, looks = threading.Barrier(3), list[tuple[int, int]]()

    class Telling(AbortableExchange):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            joined.wait(PATIENCE)
            return super().wait(event, seconds)

    def work(flight: SharedAttempt[int]) -> int:
        waits.append(elsewhere(partial(wait, early)))
        while not flight._waiting_deadlines:
            assert not early.held
        with flight.paused_deadlines(None):
            waits.append(elsewhere(partial(wait, late)))
            joined.wait(PATIENCE)
            looks.append((early.held, late.held))
        looks.append((early.held, late.held))
        return 1

    def wait(deadline: Deadline) -> int | None:
        with Telling(deadline):
            return flights.run(lambda: None, work, detached=False)

    waits: list[Future[int | None]] = []
    assert flights.run(lambda: None, work, detached=False) == 1
    assert [waiter.result(PATIENCE) for waiter in waits] == [1, 1]
    assert looks == [(True, True), (False, False)]
    assert (early.held, late.held) == (False, False)


def test_work_whose_own_call_ran_out_of_time_is_taken_over_by_another_thread() -> None:
    flights: SingleFlight[int] = flight()
    reached, go_on = threading.Event(), threading.Event()

    def fail(_: SharedAttempt[int]) -> int:
        reached.set()
        assert go_on.wait(PATIENCE)
        raise RequestTimeout("too late")

    def lead() -> int | None:
        with AbortableExchange(Deadline(0.0)):
            return flights.run(lambda: None, fail, detached=False)

    leader = elsewhere(lead)
    assert reached.wait(PATIENCE)
    follower = elsewhere(lambda: flights.run(lambda: None, lambda _: 2, detached=False))
    go_on.set()
    assert isinstance(leader.exception(PATIENCE), RequestTimeout)
    assert follower.result(PATIENCE) == 2


def test_work_apart_that_fails_in_an_unforeseen_way_says_so_to_whoever_waits() -> None:
    flights: SingleFlight[int] = flight()

    def broken(_: SharedAttempt[int]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        flights.run(lambda: None, broken, detached=True)
    assert flights.run(lambda: None, lambda _: 3, detached=True) == 3
    assert flights.run(lambda: None, lambda _: None, detached=True) is None
    assert flights.run(lambda: 4, broken, detached=True) == 4


def test_at_the_end_of_the_program_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    flights: SingleFlight[str] = flight()
    done = flights.run(lambda: None, lambda _: threading.current_thread().name, detached=True)
    assert done == threading.current_thread().name


def test_what_was_under_way_in_the_parent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    flights: SingleFlight[int] = flight()
    flights._attempt = SharedAttempt(detached=False)
    monkeypatch.setattr("syncmcp._concurrency.timing.fork_generation", 99)
    assert flights.run(lambda: None, lambda _: 5, detached=False) == 5


@pytest.mark.parametrize("detached", [False, True])
def test_work_that_needs_its_own_result_is_refused(detached: bool) -> None:
    flights: SingleFlight[int] = flight()

    def work(_: SharedAttempt[int]) -> int | None:
        with pytest.raises(UsageError, match="again"):
            flights.run(lambda: None, lambda _: 1, detached=False)
        return 2

    assert flights.run(lambda: None, work, detached=detached) == 2
