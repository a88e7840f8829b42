"""Threads and objects that need a token at the same time."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncmcp._concurrency.single_flight import SharedAttempt
from syncmcp.auth import Deadline, FileStore, MemoryStore, OAuth, TokenStore
from syncmcp.errors import TokenRefused
from tests.auth.authorization_server import (
    WAIT,
    Answer,
    Person,
    call,
    denied,
    signed_in,
    token_cache,
    world,
)
from tests.support.parts import Exchange, aborted
from tests.support.stage import elsewhere, in_threads, nervous


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` in `count` threads that start together; return results and errors."""
    return in_threads(*[work] * count)


@pytest.mark.pitfall("17")
def test_threads_that_get_a_401_together_sign_in_once() -> None:
    with world() as resource:
        person = Person()
        auth = OAuth(receiver=person)
        responses = at_once(16, lambda: call(resource, auth).status_code)
        assert responses == [200] * 16
        assert len(person.redirects) == 1
        assert len(resource.authorization_server.token_requests) == 1


@pytest.mark.pitfall("17")
def test_threads_with_an_expired_token_refresh_it_once() -> None:
    with signed_in() as (resource, auth, person):
        server = resource.authorization_server
        for count in range(1, 3):
            server.expire()
            assert at_once(16, lambda: call(resource, auth).status_code) == [200] * 16
            assert len(server.grants("refresh_token")) == count
        assert (server.reused, len(person.redirects)) == (0, 1)


@pytest.mark.pitfall("17")
@pytest.mark.parametrize("kept", ["in memory", "in a file"])
def test_objects_that_share_a_store_refresh_once(kept: str, tmp_path: Path) -> None:
    """With a file, each object has its own store, as in another process (`test_store.py`)."""
    memory = MemoryStore()

    def store() -> TokenStore:
        return memory if kept == "in memory" else FileStore(tmp_path / "tokens.json")

    with signed_in(store()) as (resource, auth, _):
        server = resource.authorization_server
        others = [auth, *(OAuth(receiver=None, store=store()) for _ in range(3))]
        turns = itertools.cycle(others)
        for count in range(1, 3):
            server.expire()
            with nervous():
                codes = at_once(8, lambda: call(resource, next(turns)).status_code)
            assert codes == [200] * 8
            assert len(server.grants("refresh_token")) == count
        assert server.reused == 0


def test_a_login_that_fails_fails_for_all_who_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with world() as resource:
        all_here = threading.Event()
        person = Person(before=lambda _: all_here.wait(WAIT))
        resource.authorization_server.callback = denied
        auth = OAuth(receiver=person)
        wait, waiting = SharedAttempt.wait, threading.Barrier(7, action=all_here.set)

        def together(flight: SharedAttempt[Any], exchange: Any, late: str) -> None:
            # The thread that signs in calls this only after its attempt.
            if not all_here.is_set():
                waiting.wait(WAIT)
            wait(flight, exchange, late)

        monkeypatch.setattr(SharedAttempt, "wait", together)
        outcomes = at_once(8, lambda: call(resource, auth))
        assert [type(one) for one in outcomes] == [TokenRefused] * 8
        assert len({id(one) for one in outcomes}) == 8
        assert len(person.redirects) == 1


def test_a_refresh_goes_on_when_the_call_that_wanted_it_is_cut() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def slow(answer: Answer) -> Answer:
        reached.set()
        assert go_on.wait(WAIT)
        return answer

    with signed_in() as (resource, auth, person):
        server, old = resource.authorization_server, auth.token
        server.expire()
        server.token_answer = slow
        exchange = Exchange(Deadline(None))
        cut_off = elsewhere(lambda: reached.wait(WAIT) and exchange.abort())
        login = token_cache(auth).current()
        assert login is not None
        with exchange, aborted():
            auth._manager.refresh(login.login)  # type: ignore[union-attr]
        cut_off.result(WAIT)
        go_on.set()
        assert call(resource, auth).status_code == 200
        assert auth.token != old
        assert len(server.grants("refresh_token")) == 1
        assert len(person.redirects) == 1
