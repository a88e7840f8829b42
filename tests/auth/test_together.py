"""Threads, objects and processes that need a token at the same time."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from syncmcp._concurrency.single_flight import SharedAttempt
from syncmcp.auth import Deadline, FileStore, MemoryStore, OAuth
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
from tests.auth.peers import Peer, peer
from tests.support.parts import Exchange, aborted
from tests.support.stage import elsewhere, in_threads, nervous


def at_once(count: int, work: Callable[[], Any]) -> list[Any]:
    """Run `work` in so many threads that begin together; return results and errors."""
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
def test_objects_that_share_a_store_refresh_once() -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, auth, _):
        server = resource.authorization_server
        others = [auth, *(OAuth(receiver=None, store=store) for _ in range(3))]
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
            # The thread that signs in gets here when that is over.
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


@pytest.mark.pitfall("17")
@pytest.mark.parametrize(
    ("threads", "expiries"), [(4, 2), pytest.param(32, 20, marks=pytest.mark.stress)]
)
def test_each_expiry_leads_to_one_refresh_over_all_processes(
    tmp_path: Path, threads: int, expiries: int
) -> None:
    path = tmp_path / "tokens.json"
    with signed_in(FileStore(path)) as (resource, _, _), ExitStack() as stack:
        server = resource.authorization_server
        # One has a clock that is a minute ahead, and another one's is a minute behind.
        peers = [
            stack.enter_context(peer("login", resource.url, path, threads, offset))
            for offset in (0.0, 60.0, -60.0)
        ]
        assert [one.heard() for one in peers] == ["ready"] * 3

        def all_call(callers: list[Peer], meanwhile: Callable[[], object] = lambda: None) -> None:
            for one in callers:
                one.tell("call")
            meanwhile()
            for one in callers:
                assert json.loads(one.heard()) == {"200": threads}

        server.expires_in = 20  # not long, by any of the clocks
        for count in range(1, expiries + 1):
            server.expire()
            all_call(peers)
            assert len(server.grants("refresh_token")) == count
        victim, *others = peers
        assert victim.answer("hold") == "held"
        server.expire()
        all_call(others, victim.popen.kill)
        assert len(server.grants("refresh_token")) == expiries + 1
        assert (server.reused, len(server.authorizations)) == (0, 1)
