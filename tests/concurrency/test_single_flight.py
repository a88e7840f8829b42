"""One thread does what many wait for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from syncmcp._concurrency.single_flight import SharedAttempt, SingleFlight
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import AbortableExchange, current
from syncmcp.errors import RequestTimeout
from tests.auth.authorization_server import (
    WAIT,
)


def test_who_waits_for_a_login_ends_by_their_own_deadline() -> None:
    flights: SingleFlight[int] = SingleFlight(current, "syncmcp-test", "reentered")
    reached, go_on = threading.Event(), threading.Event()

    def work(_: SharedAttempt[int]) -> int:
        reached.set()
        assert go_on.wait(WAIT)
        return 1

    results: list[int | None] = []
    leader = threading.Thread(
        target=lambda: results.append(flights.run(lambda: None, work, detached=False))
    )
    leader.start()
    assert reached.wait(WAIT)
    with AbortableExchange(Deadline(0.0)), pytest.raises(RequestTimeout):
        flights.run(lambda: None, work, detached=False)
    go_on.set()
    leader.join()
    assert results == [1]


def test_the_clocks_of_all_who_wait_stand_still_while_a_person_signs_in() -> None:
    flights: SingleFlight[int] = SingleFlight(current, "syncmcp-test", "reentered")
    early, late = Deadline(WAIT), Deadline(WAIT)
    joined = threading.Barrier(3)
    looks: list[tuple[bool, bool]] = []

    class Telling(AbortableExchange):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            joined.wait(WAIT)
            return super().wait(event, seconds)

    def work(flight: SharedAttempt[int]) -> int:
        waiters[0].start()
        while not flight._waiting_deadlines:
            assert not early.held
        with flight.paused_deadlines(None):
            waiters[1].start()
            joined.wait(WAIT)
            looks.append((early.held, late.held))
        looks.append((early.held, late.held))
        return 1

    def wait(deadline: Deadline) -> None:
        with Telling(deadline):
            assert flights.run(lambda: None, work, detached=False) == 1

    waiters = [threading.Thread(target=wait, args=(one,)) for one in (early, late)]
    assert flights.run(lambda: None, work, detached=False) == 1
    for waiter in waiters:
        waiter.join(WAIT)
    assert looks == [(True, True), (False, False)]
    assert not early.held
    assert not late.held


def test_work_whose_own_call_ran_out_of_time_is_taken_over_by_another_thread() -> None:
    flights: SingleFlight[int] = SingleFlight(current, "syncmcp-test", "reentered")
    reached, go_on = threading.Event(), threading.Event()
    outcomes: list[Any] = []

    def fail(_: SharedAttempt[int]) -> int:
        reached.set()
        assert go_on.wait(WAIT)
        raise RequestTimeout("too late")

    def lead() -> None:
        with AbortableExchange(Deadline(0.0)):
            try:
                flights.run(lambda: None, fail, detached=False)
            except RequestTimeout as error:
                outcomes.append(error)

    def follow() -> None:
        outcomes.append(flights.run(lambda: None, lambda _: 2, detached=False))

    leader = threading.Thread(target=lead)
    leader.start()
    assert reached.wait(WAIT)
    follower = threading.Thread(target=follow)
    follower.start()
    go_on.set()
    leader.join(WAIT)
    follower.join(WAIT)
    assert {type(one) for one in outcomes} == {RequestTimeout, int}


def test_work_apart_that_fails_in_an_unforeseen_way_says_so_to_whoever_waits() -> None:
    flights: SingleFlight[int] = SingleFlight(current, "syncmcp-test", "reentered")

    def broken(_: SharedAttempt[int]) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        flights.run(lambda: None, broken, detached=True)
    assert flights.run(lambda: None, lambda _: 3, detached=True) == 3
    assert flights.run(lambda: None, lambda _: None, detached=True) is None
    assert flights.run(lambda: 4, broken, detached=True) == 4


def test_at_the_end_of_the_program_work_is_done_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    flights: SingleFlight[str] = SingleFlight(current, "syncmcp-test", "reentered")
    done = flights.run(lambda: None, lambda _: threading.current_thread().name, detached=True)
    assert done == threading.current_thread().name


def test_what_was_under_way_in_the_parent_process_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flights: SingleFlight[int] = SingleFlight(current, "syncmcp-test", "reentered")
    flights._attempt = SharedAttempt(detached=False)
    monkeypatch.setattr("syncmcp._concurrency.timing.fork_generation", 99)
    assert flights.run(lambda: None, lambda _: 5, detached=False) == 5
