"""Step-up: the client requests more scope, and asks a person only a limited number of times."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import requests

from syncmcp.auth import OAuth, token_auth, token_manager
from syncmcp.auth.flow import TokenNeed
from syncmcp.auth.steps import AuthChallenge
from syncmcp.errors import AuthError, LoginRequired, TokenRefused
from tests.auth.authorization_server import (
    Answer,
    Person,
    ResourceServer,
    call,
    denied,
    signed_in,
    token_cache,
    world,
)
from tests.support.moved_time import MovedTime


def wants(scope: str = "") -> Answer:
    """Return the response of a server that requires more scope."""
    named = scope and f', scope="{scope}"'
    challenge = f'Bearer error="insufficient_scope"{named}'
    return Answer(403, None, {"WWW-Authenticate": challenge})


@pytest.mark.requirement("SCO-03", "SCO-04", "HTM-07")
def test_more_scope_is_asked_for_together_with_what_there_was() -> None:
    with signed_in() as (resource, auth, person):
        resource.spelling = str.upper
        server = resource.authorization_server
        resource.needed = {"one": "a", "two": "b c"}
        for method in ("one", "two", "one", "two"):
            assert call(resource, auth, method).status_code == 200
        assert [one.get("scope") for one in server.authorizations] == [None, "a", "a b c"]
        resource.serve = lambda _: Answer(403, {"error": "no"})  # not for lack of scope
        assert call(resource, auth).status_code == 403
        assert len(person.redirects) == 3


@pytest.mark.requirement("SCO-05")
def test_a_server_that_always_wants_more_gets_three_authorization_requests_in_all() -> None:
    with world() as resource:
        server, wanted = resource.authorization_server, iter("abcdefgh")
        resource.serve = lambda _: wants(next(wanted))
        auth = OAuth(receiver=Person())
        assert call(resource, auth, "tools/call").status_code == 403
        assert [one.get("scope") for one in server.authorizations] == [None, "a", "a b"]
        for _ in range(2):
            with pytest.raises(AuthError, match="sign-ins: the limit is reached"):
                call(resource, auth, "tools/call")
        with pytest.raises(LoginRequired, match="limit is reached"):  # for other methods, too
            call(resource, auth, "resources/read")
        assert len(server.authorizations) == 3


@pytest.mark.requirement("SCO-05", "SEC-08")
def test_a_scope_that_was_asked_for_is_not_asked_for_again() -> None:
    with signed_in() as (resource, auth, _):
        server = resource.authorization_server
        server.granted = lambda asked: "nothing"
        resource.needed = {"two": "b"}
        for _ in range(2):
            with pytest.raises(AuthError, match="was requested already") as caught:
                call(resource, auth, "two")
            assert (caught.value.status, caught.value.error) == (403, "insufficient_scope")
        assert len(server.authorizations) == 2


@pytest.mark.requirement("SEC-08")
def test_a_scope_that_a_person_denied_is_asked_for_again_only_by_hand() -> None:
    with signed_in() as (resource, auth, _):
        server = resource.authorization_server
        resource.needed = {"two": "b"}
        server.callback = denied
        with pytest.raises(TokenRefused):
            call(resource, auth, "two")
        server.callback = lambda back: back
        with pytest.raises(AuthError, match="denied before"):
            call(resource, auth, "two")
        assert call(resource, auth, "one").status_code == 200
        assert len(server.authorizations) == 2
        serve, resource.serve = (
            resource.serve,
            lambda _: Answer(
                401, None, {"WWW-Authenticate": 'Bearer error="invalid_token", scope="a b"'}
            ),
        )
        call(resource, auth, "one")
        assert [one.get("scope") for one in server.authorizations[2:]] == ["a"]
        resource.serve = serve
        auth.login()
        assert call(resource, auth, "two").status_code == 200


def test_more_scope_without_a_name_comes_from_the_metadata_or_not_at_all() -> None:
    with signed_in() as (resource, auth, _):
        resource.serve = lambda _: wants()
        with pytest.raises(AuthError, match="names only scope that was requested"):
            call(resource, auth)
        assert len(resource.authorization_server.authorizations) == 1


def test_an_overtaken_thread_uses_the_scope_that_another_one_got() -> None:
    with signed_in() as (resource, auth, person):
        resource.needed = {"two": "b"}
        old = token_cache(auth).current()
        assert old is not None
        assert call(resource, auth, "two").status_code == 200
        assert auth._manager is not None
        challenge = AuthChallenge(scope="b", error="insufficient_scope")
        need = TokenNeed(challenge, old.login, more_scope=True)
        assert auth._manager.step_up(need, "another").token == auth.token
        assert len(person.redirects) == 2


def test_operations_are_counted_each_for_itself() -> None:
    def operation(json: Any = None, **headers: str) -> str:
        request = requests.Request("POST", "https://h/mcp", headers=headers, json=json).prepare()
        return token_auth._operation(request)

    first = operation({"id": 1, "method": "tools/call", "params": {"name": "a"}})
    assert operation({"id": 2, "method": "tools/call", "params": {"name": "a"}}) == first
    assert operation({"id": 2, "method": "tools/call", "params": {"name": "b"}}) != first
    assert operation({"id": 3, "method": "resources/read", "params": {"uri": "x"}}) != first
    assert operation(**{"Mcp-Method": "tools/call", "Mcp-Name": "a"}) != operation(
        **{"Mcp-Method": "tools/call", "Mcp-Name": "b"}
    )
    assert operation(["no", "message"]) == operation() != first
    bare = requests.Request("POST", "https://h/mcp", data=b"\xff").prepare()
    assert token_auth._operation(bare) == operation()


# How often the client asks a person, whatever the server answers


@pytest.fixture
def resource() -> Iterator[ResourceServer]:
    with world() as resource:
        yield resource


def ask_often(
    resource: ResourceServer, auth: OAuth, times: int = 6
) -> list[type[BaseException] | int]:
    """Make several requests; return the status of each, or the type of its error."""
    outcomes: list[type[BaseException] | int] = []
    for number in range(times):
        try:
            outcomes.append(call(resource, auth, f"method/{number}").status_code)
        except AuthError as error:
            outcomes.append(type(error))
    return outcomes


@pytest.mark.requirement("SCO-05", "SEC-08")
def test_a_server_that_refuses_every_token_has_three_browsers_opened_and_no_more(
    resource: ResourceServer,
) -> None:
    challenge = {"WWW-Authenticate": resource.challenge or ""}
    resource.routes["POST", resource.path] = lambda _: Answer(401, None, challenge)
    person = Person()
    auth = OAuth(receiver=person)
    assert ask_often(resource, auth) == [401] * 3 + [LoginRequired] * 3
    assert len(person.redirects) == token_manager._MOST_IN_VAIN == 3
    with pytest.raises(
        LoginRequired, match=r"last 3 sign-ins failed.* call login\(\) to ask again"
    ):
        call(resource, auth)
    auth.login()  # the limit does not apply
    assert len(person.redirects) == 4
    resource.routes["POST", resource.path] = resource._mcp
    assert call(resource, auth).status_code == 200
    assert len(person.redirects) == 4


def test_a_server_that_lets_something_through_now_and_then_gets_some_in_an_hour(
    resource: ResourceServer, moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert token_manager._MOST_SIGN_INS == 20
    monkeypatch.setattr(token_manager, "_MOST_SIGN_INS", 5)
    server = resource.authorization_server
    server.refresh = False

    def once(_: Any) -> Answer:
        server.expire()
        return Answer(200, None)

    resource.serve = once
    person = Person()
    auth = OAuth(receiver=person)
    assert ask_often(resource, auth, 7) == [200] * 5 + [LoginRequired] * 2
    assert len(person.redirects) == 5
    moved.advance(3600.0)
    assert call(resource, auth).status_code == 200


def test_where_metadata_cannot_be_had_nobody_was_asked(
    resource: ResourceServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_manager, "_MOST_SIGN_INS", 5)  # fewer than there are requests
    server = resource.authorization_server
    place = "/.well-known/oauth-authorization-server"
    metadata = server.routes["GET", place]
    server.routes["GET", place] = lambda _: Answer(503)
    person = Person()
    auth = OAuth(receiver=person)
    assert LoginRequired not in ask_often(resource, auth)
    server.routes["GET", place] = metadata
    assert call(resource, auth).status_code == 200
    assert len(person.redirects) == 1
