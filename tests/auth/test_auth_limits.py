"""The time limits of signing in, mostly on a simulated clock."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from syncmcp.auth import (
    Deadline,
    LoopbackReceiver,
    MemoryStore,
    OAuth,
    PasteReceiver,
    Receiver,
    SignInRequest,
    loopback,
)
from syncmcp.auth.signing import DPoPProver
from syncmcp.auth.steps import Redirect
from syncmcp.auth.token_manager import CachedLogin, SignInLimiter, TokenCache
from syncmcp.auth.tokens import Login, Registration, Token
from syncmcp.errors import AuthError, LoginRequired, RequestTimeout
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.authorization_server import Person, call, signed_in, world
from tests.auth.test_fetch import driver, get, here, silent
from tests.support.moved_time import MovedTime, soonest
from tests.support.parts import Exchange, aborted
from tests.support.stage import PATIENCE, elsewhere
from tests.transports import http_peer
from tests.transports.http_peer import serving

LIMIT = 600.0
ISSUER = "https://as.example"
PLACE = f"{ISSUER}/authorize?state=secret-state"
REQUEST = SignInRequest("https://mcp.example/mcp", ISSUER, None)


# -- people


class Nobody:
    """A prompt without an answer until the test sets `gate`."""

    def __init__(self) -> None:
        self.gate = threading.Event()

    def __call__(self, prompt: str) -> str:
        self.gate.wait(3 * PATIENCE)
        return ""


def shown(text: str) -> None:
    """Discard the text."""


def pasting(nobody: Nobody) -> Receiver:
    return PasteReceiver(shown, nobody)


def listening(nobody: Nobody | None = None) -> Receiver:
    return LoopbackReceiver(open_browser=False, show=shown, ask=nobody)


def receive(receiver: Receiver, limit: float | None) -> Mapping[str, str]:
    with receiver.start() as waiting:
        redirect = Redirect(PLACE, waiting.redirect_uri, "secret-state")
        return waiting.receive(redirect, Deadline(limit))


@pytest.mark.parametrize("receiver", [pasting, listening])
def test_a_person_is_asked_to_agree_until_the_limit(
    receiver: Callable[[Nobody], Receiver], moved: MovedTime
) -> None:
    nobody = Nobody()

    def agree() -> bool:
        return receiver(nobody).agree(REQUEST, Deadline(LIMIT))

    error = moved.ending(LIMIT, agree, partial(moved.waits_for, LIMIT))
    nobody.gate.set()
    assert isinstance(error, RequestTimeout)


def test_an_answer_is_pasted_until_the_limit(moved: MovedTime) -> None:
    nobody = Nobody()
    paste = partial(receive, pasting(nobody), LIMIT)
    error = moved.ending(LIMIT, paste, partial(moved.waits_for, LIMIT))
    nobody.gate.set()
    assert isinstance(error, RequestTimeout)


def come_to_nobody() -> None:
    with pytest.raises(RequestTimeout) as caught:
        receive(listening(), 0.1)
    assert (caught.value.seconds, caught.value.delivery) == (0.1, "not_sent")
    assert "secret-state" not in str(caught.value)


def say_nothing_to_who_listens() -> None:
    """A connection without a request is closed, even if the login has no time limit."""
    with listening().start() as waiting:
        redirect = Redirect(PLACE, waiting.redirect_uri, "secret-state")
        exchange = Exchange(Deadline(None))

        def wait() -> None:
            with exchange, aborted():
                waiting.receive(redirect, Deadline(None))

        ended = elsewhere(wait)
        place = ("127.0.0.1", urlsplit(waiting.redirect_uri).port or 0)
        with socket.create_connection(place, PATIENCE) as visitor:
            assert visitor.recv(1) == b""
        exchange.abort()
        ended.result(PATIENCE)


@pytest.mark.alone
@pytest.mark.parametrize("job", [come_to_nobody, say_nothing_to_who_listens])
def test_who_listens_waits_a_tenth_of_a_second(
    job: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "_REQUEST_SECONDS", 0.1)
    assert 0.1 <= soonest(job) < 0.25


def test_a_browser_has_ten_seconds_for_its_request_and_one_for_the_page(moved: MovedTime) -> None:
    limits: list[float | None] = []
    browser: Any = SimpleNamespace(
        settimeout=limits.append, sendall=lambda data: None, shutdown=lambda how: None
    )
    connection = loopback._BrowserConnection(browser)
    assert connection.limit.remaining() == 10.0
    connection.send(b"page")
    assert limits == [1.0]


class Noting(Person):
    """A person who records the time left for each question."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float | None] = []

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        self.limits.append(deadline.remaining())
        return super().agree(request, deadline)

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        self.limits.append(deadline.remaining())
        return super().receive(redirect, deadline)


def test_each_question_to_a_person_has_the_limit_of_a_login(moved: MovedTime) -> None:
    person = Noting()
    with world() as resource:
        auth = OAuth(receiver=person, login_timeout=LIMIT)
        assert call(resource, auth).status_code == 200
    assert person.limits == [LIMIT, LIMIT]


def test_sign_ins_are_counted_for_an_hour(moved: MovedTime) -> None:
    limiter = SignInLimiter()
    for _ in range(3):
        limiter.record_login()
    moved.advance(3599.5)
    with pytest.raises(LoginRequired):
        limiter.check()
    moved.advance(0.5)
    limiter.check()


# -- tokens


class Locked(MemoryStore):
    """A store that records the time limit of each lock."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: list[float | None] = []

    def lock(self, key: str, deadline: Deadline) -> AbstractContextManager[None]:
        self.limits.append(deadline.remaining())
        return super().lock(key, deadline)


NOW = 1_000_000.0


def cache_of(store: MemoryStore) -> TokenCache:
    return TokenCache(store, "key", lambda issuer: True)


def login(lasts: float) -> Login:
    metadata = AuthorizationServerMetadata(issuer=ISSUER, token_endpoint=f"{ISSUER}/token")
    token = Token("secret", expires_at=NOW + lasts, refresh_token="again", issuer=ISSUER)
    return Login(token, Registration("client", issuer=ISSUER), metadata)


def is_fresh_for(cached: CachedLogin | None, seconds: float, moved: MovedTime) -> None:
    assert cached is not None
    moved.advance(seconds - 0.5)
    assert cached.fresh
    moved.advance(0.5)
    assert not cached.fresh


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the time of day, too."""
    monkeypatch.setattr("syncmcp.auth.token_manager.time", SimpleNamespace(time=lambda: NOW))


@pytest.mark.usefixtures("wall_clock")
def test_a_token_is_refreshed_half_a_minute_or_a_tenth_of_its_life_ahead(moved: MovedTime) -> None:
    cache = cache_of(MemoryStore())
    is_fresh_for(cache.save(login(LIMIT)), LIMIT - 30.0, moved)
    is_fresh_for(cache.save(login(100.0)), 90.0, moved)


@pytest.mark.usefixtures("wall_clock")
def test_a_token_of_another_process_may_be_five_minutes_older_than_it_says(
    moved: MovedTime,
) -> None:
    store = MemoryStore()
    cache_of(store).save(login(LIMIT))
    is_fresh_for(cache_of(store).stored(), LIMIT + 300.0, moved)


@pytest.mark.usefixtures("wall_clock")
def test_a_refresh_that_failed_is_tried_again_after_ten_seconds(moved: MovedTime) -> None:
    cache = cache_of(MemoryStore())
    cache.postpone_refresh(cache.save(login(0.0)))
    is_fresh_for(cache.current(), 10.0, moved)


def test_locks_of_stores_are_waited_for_as_long_as_a_person_or_a_key_takes(
    moved: MovedTime,
) -> None:
    store = Locked()
    with cache_of(store).lock():
        pass
    DPoPProver(store, lambda: "name")._key_for(["ES256"])
    assert store.limits == [300.0, 30.0]


# -- requests


def test_a_request_of_signing_in_has_half_a_minute(moved: MovedTime) -> None:
    with serving(silent) as server, driver() as made:
        fetch = partial(made.fetch, get(here(server)))
        error = moved.ending(30.0, fetch, lambda: server.connection(0))
    assert isinstance(error, AuthError)
    assert error.message == f"signing in: {here(server)}: no response within 30 s"


def test_a_request_of_signing_in_ends_with_its_call(moved: MovedTime) -> None:
    def fetch() -> object:
        with Exchange(Deadline(10.0)):
            return made.fetch(get(here(server)))

    with serving(silent) as server, driver() as made:
        error = moved.ending(10.0, fetch, lambda: server.connection(0))
    assert isinstance(error, RequestTimeout)


@pytest.mark.parametrize(
    ("given", "left"), [((5.0, 5.0), (LIMIT, LIMIT)), ((5.0, None), (LIMIT, None))]
)
def test_a_request_with_a_new_token_has_the_time_that_is_left(
    given: Any, left: Any, moved: MovedTime
) -> None:
    with signed_in() as (resource, auth, _), requests.Session() as session:
        slow = http_peer.Noting()
        session.mount("http://", slow)
        resource.authorization_server.expire()
        message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        with Exchange(Deadline(LIMIT)):
            response = session.post(resource.url, json=message, auth=auth, timeout=given)
    assert response.status_code == 200
    assert slow.limits == [given, left]
