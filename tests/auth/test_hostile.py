"""Servers that mean harm, and moments that are badly chosen."""

from __future__ import annotations

import pickle
import threading
import traceback
from pathlib import Path
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp.auth import FileStore, MemoryStore, OAuth
from syncmcp.errors import AuthError, DiscoveryFailed, RequestTimeout, UsageError
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
from tests.support.stage import elsewhere

CANARY = "canary-very-secret"


# What authorization servers answer


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/register", b"[" * 200_000),
        ("/token", b'{"a":' * 200_000),
        ("/register", b'{"client_id": "\\ud800"}'),
        ("/token", b'{"access_token": "\\ud800", "token_type": "Bearer"}'),
    ],
    ids=["list", "object", "surrogate in an id", "surrogate in a token"],
)
def test_json_that_is_no_use_is_an_error_of_ours(path: str, body: bytes) -> None:
    with world() as resource:
        status = 201 if path == "/register" else 200
        resource.authorization_server.routes["POST", path] = lambda _: Answer(status, body)
        with pytest.raises(AuthError):
            call(resource, OAuth(receiver=Person()))


# The end of a login


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


# Time


@pytest.mark.parametrize(("transport", "method"), [("sse", "GET"), ("streamable", "POST")])
def test_the_clock_is_watched_again_after_a_person_took_longer_than_it(
    transport: Any, method: str, moved: MovedTime
) -> None:
    reached, over, limit = threading.Event(), threading.Event(), 60.0

    def mute(seen: Seen) -> Answer:
        if seen.bearer is None:
            return Answer(401, None, {"WWW-Authenticate": str(resource.challenge)})
        reached.set()
        over.wait(WAIT)
        return Answer(None)

    with world() as resource:
        resource.routes[method, resource.path] = mute
        client = syncmcp.Client(
            syncmcp.Http(
                resource.url,
                transport=transport,
                auth=OAuth(receiver=Person(before=lambda _: moved.advance(2 * limit))),
            ),
            mode="2025-11-25" if transport == "streamable" else "auto",
            open_timeout=limit,
        )
        # The exchange is looked at a quarter of a second late.
        error = moved.ending(limit + 0.25, client.open, lambda: reached.wait(WAIT))
        over.set()
    assert isinstance(error, RequestTimeout)


# Secrets


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
    class Keys(MemoryStore):
        def save(self, key: str, value: Any) -> None:
            keys.append(key)
            super().save(key, value)

    keys: list[str] = []
    store = Keys()
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
    assert len({key for key in keys if key.startswith("login")}) == 4
    assert CANARY not in str(keys)


def test_a_login_and_its_pickled_copy_are_of_the_whole_url(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "private" / "tokens.json")
    with world() as resource:
        auth = OAuth(f"{resource.url}?tenant=a", receiver=Person(), store=store)
        token = auth.login()
        # It is asked whether it wants a token.
        assert [one.query for one in resource.calls] == [{"tenant": "a"}]
        auth._receiver = None  # ours is no part of the library
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


def test_a_damaged_registration_is_replaced() -> None:
    store = MemoryStore()
    with world() as resource:
        key = f"client {resource.authorization_server.issuer}"
        store.save(key, {"nonsense": 1})
        assert call(resource, OAuth(receiver=Person(), store=store)).status_code == 200
        assert "client_id" in (store.load(key) or {})
