"""Time limits of the library's waits, by a clock that only the test moves.

A few tests measure in real time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import RateLimit
from syncmcp._concurrency import forks, timing
from syncmcp._concurrency.event_queue import EventQueue
from syncmcp._concurrency.fair_lock import FairLock
from syncmcp._concurrency.files import FileLock, KeyLocks, SharedJson, UnusableFile, try_lock
from syncmcp._concurrency.futures import ItemQueue
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.single_flight import SharedAttempt, SingleFlight
from syncmcp._concurrency.timing import Deadline, Latch
from syncmcp._http import exchange
from syncmcp._http.exchange import AbortableExchange
from syncmcp.errors import RequestTimeout
from tests.support.moved_time import MovedTime, soonest
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Clock, Stage, Wire, in_threads

LIMIT = 600.0


def wait_in_an_exchange() -> object:
    with AbortableExchange(Deadline(None)):
        return exchange.wait(threading.Event(), LIMIT)


def pause_an_exchange(seconds: float) -> object:
    with AbortableExchange(Deadline(LIMIT if seconds > LIMIT else None)) as own:
        own.sleep(seconds)
    return False


# A wait, and the type of its outcome when its time is over.
WAITS: list[tuple[Callable[[], object], type[object]]] = [
    (lambda: ItemQueue[int](1).next(LIMIT), TimeoutError),
    (lambda: EventQueue().next(LIMIT), TimeoutError),
    (lambda: syncmcp.CancelToken().wait(LIMIT), bool),
    (wait_in_an_exchange, bool),
    (lambda: exchange.wait(threading.Event(), LIMIT), bool),
    (partial(pause_an_exchange, LIMIT), bool),
    (partial(pause_an_exchange, 2 * LIMIT), TimeoutError),
]


@pytest.mark.parametrize(
    ("job", "outcome"),
    WAITS,
    ids=["item", "event", "token", "exchange", "no exchange", "pause", "too long a pause"],
)
def test_a_wait_ends_at_its_limit(
    moved: MovedTime, job: Callable[[], object], outcome: type[object]
) -> None:
    ended = moved.ending(LIMIT, job, partial(moved.waits_for, LIMIT))
    assert type(ended) is outcome
    assert ended is not True


def test_a_held_deadline_goes_on_where_it_stood(moved: MovedTime) -> None:
    deadline = Deadline(100.0)
    assert deadline.remaining() == 100.0
    moved.advance(10.0)
    deadline.hold(patience=50.0)
    assert deadline.remaining() == 50.0 + 90.0
    moved.advance(20.0)
    deadline.release()
    assert deadline.remaining() == 90.0
    deadline.hold(patience=50.0)
    assert deadline.remaining() == 30.0 + 90.0
    moved.advance(40.0)  # ten more than is left of its patience
    deadline.release()
    assert deadline.remaining() == deadline.sooner(LIMIT).remaining() == 80.0
    assert deadline.sooner(5.0).remaining() == 5.0
    moved.advance(79.5)
    assert not deadline.expired
    moved.advance(0.5)
    assert deadline.expired
    moved.advance(1.0)
    assert deadline.remaining() == 0.0


def test_a_window_of_the_past_is_as_long_as_is_said(moved: MovedTime) -> None:
    limit = RateLimit(calls=1, per=60)
    assert limit.take("server", calls=1, tokens=0)
    moved.advance(59.5)
    assert not limit.take("server", calls=1, tokens=0)
    moved.advance(0.5)
    assert limit.take("server", calls=1, tokens=0)


def test_a_token_cancels_itself_at_its_time(moved: MovedTime) -> None:
    token = syncmcp.CancelToken.after(LIMIT)
    assert moved.ending(LIMIT, token.wait, partial(moved.waits_for, LIMIT)) is True
    assert token.reason == "600 s have passed"


def test_an_event_of_the_program_is_looked_at_fifty_times_a_second(moved: MovedTime) -> None:
    source = threading.Event()
    token = syncmcp.CancelToken(source)
    cancelled = threading.Event()
    token.on_cancel(cancelled.set)
    for _ in range(2):
        moved.waits_for(0.02)
        moved.advance(0.02)
    source.set()
    moved.advance(0.02)
    assert cancelled.wait(PATIENCE)


def test_a_locked_file_is_waited_for_until_the_deadline(moved: MovedTime, tmp_path: Path) -> None:
    pauses: list[float | None] = []

    def wait(event: threading.Event, seconds: float | None) -> bool:
        if event.is_set():  # the first in this process does not wait
            return True
        pauses.append(seconds)
        moved.advance(seconds or 0.0)
        return False

    path, begun = tmp_path / "lock", moved.now()
    with path.open("wb") as other:
        assert try_lock(other.fileno())
        with pytest.raises(RequestTimeout), FileLock(path).take(Deadline(LIMIT), wait):
            pass
    assert moved.now() - begun == pytest.approx(LIMIT)
    assert len(pauses) > 10


@pytest.mark.parametrize("lock", ["fair", "by key"])
def test_the_next_in_line_waits_until_deadline(moved: MovedTime, tmp_path: Path, lock: str) -> None:
    fair, keys = FairLock(), KeyLocks(tmp_path)

    def take(limit: float | None) -> Any:
        if lock == "fair":
            return fair.take(Deadline(limit))
        return keys.take("key", Deadline(limit))

    def wait() -> None:
        with take(LIMIT):
            pass

    with take(None):
        error = moved.ending(LIMIT, wait, partial(moved.waits_for, LIMIT))
    assert isinstance(error, RequestTimeout)
    assert error.seconds == LIMIT


def test_a_file_in_change_is_waited_for_ten_seconds(moved: MovedTime, tmp_path: Path) -> None:
    shared = SharedJson(tmp_path / "file.json", "file", "entries", 1000)

    def change() -> None:
        with shared.change():
            pass

    with shared.locks.take(None, Deadline(None)):
        error = moved.ending(10.0, change, partial(moved.waits_for, 10.0))
    assert isinstance(error, UnusableFile)


def test_who_joins_an_attempt_waits_until_their_own_deadline(moved: MovedTime) -> None:
    flights: SingleFlight[int] = SingleFlight(
        exchange.current, "syncmcp-test", late="too late", reentered="again"
    )
    reached, gate = threading.Event(), threading.Event()

    def work(_: SharedAttempt[int]) -> int:
        reached.set()
        gate.wait(PATIENCE)
        return 1

    def join() -> object:
        with AbortableExchange(Deadline(LIMIT)):
            return flights.run(lambda: None, work, detached=False)

    leader = moved.start(lambda: flights.run(lambda: None, work, detached=False))
    assert reached.wait(PATIENCE)
    error = moved.ending(LIMIT, join, partial(moved.waits_for, LIMIT))
    gate.set()
    assert isinstance(error, RequestTimeout)
    assert leader.get(timeout=PATIENCE) == 1


def test_a_fork_waits_one_second_for_what_it_would_break(moved: MovedTime) -> None:
    begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        with forks.delaying_forks():
            begun.set()
            gate.wait(PATIENCE)

    def fork() -> None:
        with forks._forking:
            forks._wait_for_blocks()

    working = moved.start(work)
    assert begun.wait(PATIENCE)
    assert moved.ending(1.0, fork, partial(moved.waits_for, 1.0)) is None
    gate.set()
    assert working.get(timeout=PATIENCE) is None


def test_a_latch_gives_its_limit_to_its_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []

    def acquire(lock: threading.Lock, seconds: float | None) -> bool:
        given.append(seconds)
        return False

    monkeypatch.setattr(timing, "acquire", acquire)
    assert Latch().wait(LIMIT) is False
    assert Latch().wait(None) is False
    assert given == [LIMIT, None]


class _Lock:
    """A lock that is never free, and that stores the timeouts of its waits."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def acquire(self, timeout: float) -> bool:
        self.waits.append(timeout)
        return False


def test_a_lock_is_waited_for_as_long_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SLICED", False)
    lock: Any = _Lock()
    for seconds in (LIMIT, 0.0, -1.0, None, 1e300):
        assert timing.acquire(lock, seconds) is False
    assert lock.waits == [LIMIT, 0.0, 0.0, -1, threading.TIMEOUT_MAX]


@pytest.mark.pitfall("H9")
def test_a_lock_is_waited_for_in_slices_if_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "_SLICED", True)
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing", stands=True)

    class Lock(_Lock):
        def acquire(self, timeout: float) -> bool:
            clock.advance(timeout)
            assert len(self.waits) < 10
            return super().acquire(timeout)

    lock: Any = Lock()
    assert timing.acquire(lock, 0.5) is False
    assert lock.waits[:2] == [0.2, 0.2]
    assert sum(lock.waits) == pytest.approx(0.5)
    # Only the main thread gets Ctrl-C, so other threads wait without slices.
    lock = Lock()
    assert in_threads(lambda: timing.acquire(lock, 1.0)) == [False]
    assert lock.waits == [1.0]


def test_a_server_that_ends_again_and_again_is_started_ever_later(moved: MovedTime) -> None:
    backoff = timing.Backoff()
    backoff.opened()
    assert [backoff.next() for _ in range(9)] == [0.0, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    backoff.opened()
    moved.advance(30.0)
    assert backoff.next() == 10.0
    moved.advance(0.1)
    assert backoff.next() == 0.0


def taken() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock


def idle_in_a_pool() -> None:
    threads, done = list[threading.Thread](), threading.Event()

    def job() -> None:
        threads.append(threading.current_thread())
        done.set()

    DaemonPool("syncmcp-test", 1, linger=0.1).run(job)
    assert done.wait(PATIENCE)
    threads[0].join(PATIENCE)


SHORT: dict[str, Callable[[], object]] = {
    "in a lock": lambda: not timing.acquire(taken(), 0.1),
    "in a latch": lambda: not Latch().wait(0.1),
    "by the timer": lambda: syncmcp.CancelToken.after(0.1).wait(),
    "idle in a pool": idle_in_a_pool,
}


@pytest.mark.alone
@pytest.mark.parametrize("job", SHORT.values(), ids=SHORT)
def test_a_tenth_of_a_second_is_one(job: Callable[[], object]) -> None:
    ends: list[object] = []
    assert 0.1 <= soonest(lambda: ends.append(job())) < 0.25
    assert set(ends) <= {True, None}


@pytest.mark.alone
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.parametrize(
    "wire", [Wire("memory", STATEFUL), Wire("stdio", STATELESS), Wire("http", STATEFUL)], ids=str
)
def test_a_call_takes_no_longer_than_its_limit(wire: Wire, way: str) -> None:
    with wire.connect(Stage().server) as client:

        def call() -> object:
            if way == "blocking":
                return client.call_tool("hold", timeout=0.1)
            return client.call_tool.future("hold", timeout=0.1).result()

        def job() -> None:
            with pytest.raises(RequestTimeout):
                call()

        assert 0.1 <= soonest(job) < 0.25
