"""Refresh, logout and stored tokens; hostile servers."""

from __future__ import annotations

import pickle
import threading
import time
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp.auth import FileStore, MemoryStore, OAuth
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    DiscoveryFailed,
    LoginRequired,
    RequestTimeout,
    TokenRefused,
    UsageError,
)
from tests.auth.authorization_server import (
    WAIT,
    Answer,
    Person,
    Seen,
    call,
    signed_in,
    token_cache,
    world,
)
from tests.support.moved_time import MovedTime
from tests.support.stage import Clock, elsewhere


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, "syncmcp._concurrency.timing")


@pytest.mark.requirement("TOK-06")
def test_a_login_without_a_refresh_token_works_until_it_expires(clock: Clock) -> None:
    with signed_in(refresh=False, expires_in=600) as (resource, auth, person):
        server = resource.authorization_server
        clock.advance(580)
        call(resource, auth)
        assert len(server.token_requests) == 1
        server.expire()
        assert call(resource, auth).status_code == 200
        assert len(person.redirects) == 2


def test_a_refused_refresh_or_a_refused_fresh_token_leads_to_one_login_and_no_more() -> None:
    with signed_in() as (resource, auth, person):
        server = resource.authorization_server
        server.expire()
        server.refreshable.clear()
        assert call(resource, auth).status_code == 200
        assert len(server.grants("refresh_token")) == 1
        assert len(person.redirects) == 2
        resource.serve = lambda _: Answer(401, None, {"WWW-Authenticate": "Bearer"})
        assert call(resource, auth).status_code == 401
        assert len(server.grants("refresh_token")) == 2
        assert len(person.redirects) == 3


@pytest.mark.pitfall("17")
def test_a_lost_answer_to_a_refresh_is_an_error_and_the_token_is_not_sent_again() -> None:
    with signed_in() as (resource, auth, person):
        server = resource.authorization_server
        server.expire()
        server.token_answer = lambda _: Answer(None)
        with pytest.raises(AuthError, match="sign in again"):
            call(resource, auth)
        assert len(server.grants("refresh_token")) == 1
        server.token_answer = lambda answer: answer
        assert call(resource, auth).status_code == 200
        assert len(server.grants("refresh_token")) == 1
        assert server.reused == 0
        assert len(person.redirects) == 2


@pytest.mark.pitfall("17")
@pytest.mark.parametrize("status", [None, 400])
def test_a_failed_refresh_does_not_touch_a_newer_token(status: int | None) -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, auth, person):
        server = resource.authorization_server
        key, value = next((key, store.load(key)) for key in store._texts if key.startswith("login"))
        assert value is not None
        newer = {**value, "token": {**value["token"], "access_token": "access-newer"}}

        def overtaken(_: Answer) -> Answer:
            with server.lock:
                server.valid["access-newer"] = {"scope": None, "resource": resource.url}
            store.save(key, newer)
            return Answer(status, {"error": "invalid_grant"})

        server.expire()
        server.token_answer = overtaken
        assert call(resource, auth).json() == {"token": "access-newer"}
        assert store.load(key) == newer
        assert len(person.redirects) == 1


def test_a_server_that_is_away_does_not_spoil_a_token_that_still_works(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with signed_in(expires_in=600) as (resource, auth, person):
        server, token = resource.authorization_server, auth.token

        def away(_: Answer) -> Answer:
            server.used_up.clear()  # as if the request had not arrived
            server.refreshable = refreshable
            return Answer(503, {"error": "temporarily_unavailable"})

        refreshable = dict(server.refreshable)
        server.token_answer = away
        clock.advance(580)
        for _ in range(3):
            assert call(resource, auth).status_code == 200
        assert auth.token == token
        assert len(server.grants("refresh_token")) == 1
        server.token_answer = lambda answer: answer
        clock.advance(11)
        assert call(resource, auth).status_code == 200
        assert auth.token != token
        # With an expired token the call fails, but a later refresh needs no new login.
        token, refreshable, real = auth.token, dict(server.refreshable), time.time()
        server.token_answer = away
        clock.advance(609)
        monkeypatch.setattr("syncmcp.auth.token_manager.time.time", lambda: real + 1200)
        with pytest.raises(TokenRefused) as caught:
            call(resource, auth)
        assert (caught.value.status, auth.token) == (503, token)
        server.token_answer = lambda answer: answer
        assert call(resource, auth).status_code == 200
        assert len(person.redirects) == 1


def test_logging_out_revokes_and_forgets_even_what_cannot_be_revoked() -> None:
    with signed_in() as (resource, auth, person):
        server, token = resource.authorization_server, auth.token
        assert token is not None
        auth.logout()
        assert auth.token is None
        revoked = [one.form["token"] for one in server.requests_to("/revoke")]
        assert revoked == [token.refresh_token, token.access_token]
        auth.logout()
        assert len(server.requests_to("/revoke")) == 2
        assert call(resource, auth).status_code == 200
        assert len(person.redirects) == 2
        server.routes["POST", "/revoke"] = lambda _: Answer(503, {"error": "server_error"})
        with pytest.raises(TokenRefused, match="could not revoke the token"):
            auth.logout()
        assert auth.token is None


def test_nobody_to_ask_is_an_error_only_when_the_refresh_does_not_help() -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, _, _):
        server = resource.authorization_server
        silent = OAuth(receiver=None, store=store)
        server.expire()
        assert call(resource, silent).status_code == 200
        server.expire()
        server.refreshable.clear()
        with pytest.raises(LoginRequired):
            call(resource, silent)


class FullDisk(MemoryStore):
    full = False

    def save(self, key: str, value: Mapping[str, Any] | None) -> None:
        if self.full:
            raise AuthError("the disk is full", delivery="not_sent")
        super().save(key, value)


def test_a_token_that_could_not_be_stored_is_used_and_stored_later() -> None:
    store = FullDisk()
    with signed_in(store) as (resource, auth, person):
        server = resource.authorization_server
        server.expire()
        store.full = True
        with pytest.raises(AuthError, match="disk is full"):
            call(resource, auth)
        assert call(resource, auth).status_code == 200
        assert call(resource, auth).status_code == 200
        server.expire()
        with pytest.raises(AuthError, match="disk is full"):  # no refresh before it is stored
            call(resource, auth)
        assert len(server.grants("refresh_token")) == 1
        store.full = False
        assert call(resource, auth).status_code == 200
        assert (server.reused, len(person.redirects)) == (0, 1)
        other = OAuth(receiver=None, store=store)
        assert call(resource, other).status_code == 200
        assert other.token == auth.token


def test_a_logout_revokes_a_token_that_could_not_be_stored() -> None:
    store = FullDisk()
    with signed_in(store) as (resource, auth, _):
        server = resource.authorization_server
        server.expire()
        store.full = True
        with pytest.raises(AuthError, match="disk is full"):
            call(resource, auth)
        store.full = False
        auth.logout()
        assert (auth.token, server.valid, server.refreshable) == (None, {}, {})
        assert not [key for key in store._texts if key.startswith("login")]


def test_a_server_that_cannot_be_reached_is_no_refusal() -> None:
    with signed_in() as (resource, auth, person):
        server = resource.authorization_server
        refresh_token = auth.token and auth.token.refresh_token
        held = token_cache(auth).current()
        assert held is not None
        held.login.server.token_endpoint = "http://127.0.0.1:9/token"
        token_cache(auth).save(held.login)
        server.expire()
        with pytest.raises(ConnectFailed):
            call(resource, auth)
        assert auth.token is not None
        assert auth.token.refresh_token == refresh_token
        assert len(person.redirects) == 1


@pytest.mark.parametrize("kind", ["refresh_token", "authorization_code"])
def test_a_client_that_the_server_forgot_is_registered_again_at_the_next_login(kind: str) -> None:
    with signed_in(MemoryStore()) as (resource, auth, _):
        server = resource.authorization_server
        if kind == "refresh_token":
            server.expire()
        else:
            auth.logout()
        server.clients.clear()
        if kind == "authorization_code":
            with pytest.raises(TokenRefused) as caught:
                call(resource, auth)
            assert caught.value.error == "invalid_client"
        assert call(resource, auth).status_code == 200
        assert server.paths().count("/register") == 2


def test_after_a_login_that_nobody_came_back_from_the_client_is_registered_again() -> None:
    def give_up(_: Any) -> None:
        raise RequestTimeout("nobody came back", seconds=300.0)

    with world() as resource:
        server, person = resource.authorization_server, Person()
        auth = OAuth(receiver=person)
        call(resource, auth)
        auth.logout()
        person.before = give_up
        with pytest.raises(RequestTimeout):
            call(resource, auth)
        person.before = lambda _: None
        assert call(resource, auth).status_code == 200
        assert server.paths().count("/register") == 2


def test_tokens_of_other_processes_are_tried_and_then_refreshed() -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, auth, person):
        server = resource.authorization_server
        other = OAuth(resource.url, receiver=None, store=store)
        assert other.token == auth.token
        server.expire()
        call(resource, auth)
        server.expire()
        assert call(resource, other).status_code == 200
        assert [one.bearer for one in resource.calls[-3:-1]] != [None, None]
        assert len(server.grants("refresh_token")) == 2
        assert len(person.redirects) == 1


def test_what_is_no_login_in_a_store_is_an_error_and_no_registration_is_replaced() -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, _, _):
        store.save(next(key for key in store._texts if key.startswith("login")), {"token": None})
        with pytest.raises(AuthError, match="sign in again"):
            call(resource, OAuth(receiver=None, store=store))
    store = MemoryStore()
    with world() as resource:
        key = f"client {resource.authorization_server.issuer}"
        store.save(key, {"nonsense": 1})
        assert call(resource, OAuth(receiver=Person(), store=store)).status_code == 200
        assert "client_id" in (store.load(key) or {})


@pytest.mark.requirement("ASC-01")
@pytest.mark.parametrize(
    "answer",
    [
        Answer(None),
        Answer(503, None, {"Retry-After": "0"}),
        Answer(401, {"error": "invalid_client"}),
        Answer(200, "no token"),
        Answer(307, None, {"Location": "/token"}),
    ],
    ids=lambda answer: str(answer.status),
)
def test_an_authorization_code_is_sent_once_whatever_becomes_of_the_answer(answer: Answer) -> None:
    with world() as resource:
        server, person = resource.authorization_server, Person()
        server.token_answer = lambda _: answer
        with pytest.raises(AuthError):
            call(resource, OAuth(receiver=person))
        assert len(server.token_requests) == 1
        assert len(person.redirects) == 1


# -- hostile servers, and races

CANARY = "canary-very-secret"


def test_a_logout_elsewhere_is_not_undone_by_a_refresh() -> None:
    store = MemoryStore()
    with signed_in(store) as (resource, auth, _):
        other = OAuth(receiver=None, store=store)
        assert call(resource, other).status_code == 200
        auth.logout()
        server = resource.authorization_server
        server.expire()
        with pytest.raises(AuthError, match="a person has to sign in"):
            call(resource, other)
        assert not server.grants("refresh_token")


def test_a_renewal_that_failed_does_not_replace_a_newer_login() -> None:
    with signed_in() as (resource, auth, _):
        held = token_cache(auth).current()
        assert held is not None
        newer = auth.login()
        token_cache(auth).postpone_refresh(held)
        assert auth.token == newer
        assert call(resource, auth).status_code == 200
        auth.logout()
        token_cache(auth).postpone_refresh(held)
        assert auth.token is None


def test_a_login_that_was_read_late_does_not_replace_a_newer_one() -> None:
    class Slow(MemoryStore):
        def load(self, key: str) -> dict[str, Any] | None:
            value = super().load(key)
            if threading.current_thread().name == "test-elsewhere":
                read.set()
                assert go_on.wait(WAIT)
            return value

    read, go_on = threading.Event(), threading.Event()
    store = Slow()
    with signed_in(store) as (resource, _, _):
        other = OAuth(resource.url, receiver=Person(), store=store)
        reader = elsewhere(lambda: other.token)
        assert read.wait(WAIT)
        newer = other.login()
        go_on.set()
        reader.result(WAIT)
        assert other.token == newer


def test_the_clock_is_watched_again_after_a_person_took_longer_than_it(moved: MovedTime) -> None:
    reached, over, limit = threading.Event(), threading.Event(), 60.0

    def mute(seen: Seen) -> Answer:
        if seen.bearer is None:
            return Answer(401, None, {"WWW-Authenticate": str(resource.challenge)})
        reached.set()
        over.wait(WAIT)
        return Answer(None)

    with world() as resource:
        resource.routes["POST", resource.path] = mute
        auth = OAuth(receiver=Person(before=lambda _: moved.advance(2 * limit)))
        http = syncmcp.Http(resource.url, auth=auth)
        client = syncmcp.Client(http, mode="2025-11-25", open_timeout=limit)
        # The transport's timer ends an exchange a quarter of a second after its deadline.
        error = moved.ending(limit + 0.25, client.open, lambda: reached.wait(WAIT))
        over.set()
    assert isinstance(error, RequestTimeout)


@pytest.mark.requirement("REG-08", "TOK-04")
def test_a_client_secret_is_for_an_issuer_that_the_program_names_and_is_not_pickled() -> None:
    mine: dict[str, Any] = {"client_id": "one", "client_secret": CANARY}
    with pytest.raises(UsageError, match="issuer") as caught:
        OAuth("https://mcp.example/mcp", **mine)
    assert CANARY not in str(caught.value)
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(OAuth("https://mcp.example/mcp", **mine, issuer="https://login.example"))


@pytest.mark.requirement("TOK-04")
def test_what_stands_in_the_url_is_neither_kept_nor_shown_by_an_error() -> None:
    auth = OAuth(f"https://somebody:{CANARY}@mcp.example/mcp?key=a-key")
    assert CANARY.encode() not in pickle.dumps(auth)
    assert CANARY not in repr(vars(token_cache(auth)))
    assert "a-key" not in f"{auth!r}{vars(token_cache(auth))}"
    with world() as resource:
        resource.metadata["resource"] = f"https://elsewhere.example/{CANARY}"
        auth = OAuth(f"{resource.url}?tenant={CANARY}", receiver=Person())
        with pytest.raises(DiscoveryFailed, match="elsewhere") as caught:
            auth.login()
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.requirement("TOK-03")
def test_a_login_is_filed_by_the_whole_url_and_its_key_shows_no_query() -> None:
    store = MemoryStore()
    with world() as resource:
        resource.metadata["resource"] = resource.origin
        resource.metadata_at("/.well-known/oauth-protected-resource")
        resource.routes["POST", "/other"] = resource.routes["POST", "/mcp"]
        places = [f"{resource.url}{query}" for query in ("", "?tenant=a", f"?tenant={CANARY}")]
        for place in (*places, f"{resource.origin}/other"):
            assert OAuth(place, receiver=None, store=store).token is None
            auth = OAuth(receiver=Person(), store=store)
            with requests.post(place, json={"method": "ping"}, auth=auth, timeout=WAIT) as response:
                assert response.status_code == 200
            assert OAuth(place, receiver=None, store=store).token == auth.token
    assert len([key for key in store._texts if key.startswith("login")]) == 4
    assert CANARY not in str(list(store._texts))


def test_a_login_and_its_pickled_copy_are_of_the_whole_url(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "private" / "tokens.json")
    with world() as resource:
        auth = OAuth(f"{resource.url}?tenant=a", receiver=Person(), store=store)
        token = auth.login()
        # The login first sends a request without a token, to get the challenge.
        assert [one.query for one in resource.calls] == [{"tenant": "a"}]
        auth._receiver = None  # the test's receiver cannot be pickled
        assert pickle.loads(pickle.dumps(auth)).token == token
        assert OAuth(resource.url, receiver=None, store=store).token is None


def test_a_receiver_that_uses_what_it_signs_in_does_not_wait_for_itself() -> None:
    with world() as resource:
        raised: list[UsageError] = []

        def use_it(_: object) -> None:
            with pytest.raises(
                UsageError, match="must not use the authentication object"
            ) as caught:
                call(resource, auth)
            raised.append(caught.value)

        auth = OAuth(receiver=Person(before=use_it))
        assert call(resource, auth).status_code == 200
        assert len(raised) == 1
