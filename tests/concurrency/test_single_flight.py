"""One thread does what many wait for."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from syncmcp._concurrency.single_flight import SharedAttempt, SingleFlight
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import AbortableExchange, current
from syncmcp.errors import RequestTimeout, UsageError
from tests.support.stage import PATIENCE


def flight() -> SingleFlight[Any]:
    """For threads in HTTP exchanges."""
    return SingleFlight(current, "syncmcp-test", late="too late", reentered="again")


def test_the_clocks_of_all_who_wait_stand_still_while_a_person_signs_in() -> None:
    flights: SingleFlight[int] = flight()
    early, late = Deadline(PATIENCE), Deadline(PATIENCE)
    joined = threading.Barrier(3)
    looks: list[tuple[int, int]] = []

    class Telling(AbortableExchange):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            joined.wait(PATIENCE)
            return super().wait(event, seconds)

    def work(flight: SharedAttempt[int]) -> int:
        waiters[0].start()
        while not flight._waiting_deadlines:
            assert not early.held
        with flight.paused_deadlines(None):
            waiters[1].start()
            joined.wait(PATIENCE)
            looks.append((early.held, late.held))
        looks.append((early.held, late.held))
        return 1

    def wait(deadline: Deadline) -> None:
        with Telling(deadline):
            assert flights.run(lambda: None, work, detached=False) == 1

    waiters = [threading.Thread(target=wait, args=(one,)) for one in (early, late)]
    assert flights.run(lambda: None, work, detached=False) == 1
    for waiter in waiters:
        waiter.join(PATIENCE)
    assert looks == [(True, True), (False, False)]
    assert not early.held
    assert not late.held


def test_work_whose_own_call_ran_out_of_time_is_taken_over_by_another_thread() -> None:
    flights: SingleFlight[int] = flight()
    reached, go_on = threading.Event(), threading.Event()
    outcomes: list[Any] = []

    def fail(_: SharedAttempt[int]) -> int:
        reached.set()
        assert go_on.wait(PATIENCE)
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
    assert reached.wait(PATIENCE)
    follower = threading.Thread(target=follow)
    follower.start()
    go_on.set()
    leader.join(PATIENCE)
    follower.join(PATIENCE)
    assert {type(one) for one in outcomes} == {RequestTimeout, int}


def test_work_apart_that_fails_in_an_unforeseen_way_says_so_to_whoever_waits() -> None:
    flights: SingleFlight[int] = flight()

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
    flights: SingleFlight[str] = flight()
    done = flights.run(lambda: None, lambda _: threading.current_thread().name, detached=True)
    assert done == threading.current_thread().name


def test_what_was_under_way_in_the_parent_process_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
