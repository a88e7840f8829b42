"""A scope that is too small: more is asked for, a few times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import requests

from syncmcp.auth import OAuth, token_auth
from syncmcp.auth.flow import TokenNeed
from syncmcp.auth.steps import AuthChallenge
from syncmcp.errors import AuthError, TokenRefused
from tests.auth.authorization_server import (
    Answer,
    Person,
    ResourceServer,
    call,
    signed_in,
    token_cache,
    world,
)


@pytest.mark.requirement("SCO-03", "SCO-04", "HTM-07")
@pytest.mark.parametrize("spelling", [str.lower, str.upper, str.title])
def test_more_scope_is_asked_for_together_with_what_there_was(
    spelling: Callable[[str], str],
) -> None:
    with signed_in() as (resource, auth, person):
        resource.spelling = spelling
        server = resource.authorization_server
        resource.needed = {"one": "a", "two": "b c"}
        for method in ("one", "two", "one", "two"):
            assert call(resource, auth, method).status_code == 200
        assert [one.get("scope") for one in server.authorizations] == [None, "a", "a b c"]
        resource.serve = lambda _: Answer(403, {"error": "no"})  # for another reason
        assert call(resource, auth).status_code == 403
        assert len(person.redirects) == 3


@pytest.mark.requirement("SCO-05")
def test_a_server_that_always_wants_more_gets_three_authorization_requests_in_all() -> None:
    with world() as resource:
        server, wanted = resource.authorization_server, iter("abcdefgh")

        def more(_: Any) -> Answer:
            challenge = f'Bearer error="insufficient_scope", scope="{next(wanted)}"'
            return Answer(403, None, {"WWW-Authenticate": challenge})

        resource.serve = more
        auth = OAuth(receiver=Person())
        assert call(resource, auth, "tools/call").status_code == 403
        assert [one.get("scope") for one in server.authorizations] == [None, "a", "a b"]
        for _ in range(2):
            with pytest.raises(AuthError, match="sign-ins: limit reached"):
                call(resource, auth, "tools/call")
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


def deny(resource: ResourceServer, auth: OAuth) -> None:
    """Have the person deny the scope "b", which "two" needs."""
    server = resource.authorization_server
    resource.needed = {"two": "b"}
    server.callback = lambda back: {
        "state": back["state"], "iss": back["iss"], "error": "access_denied"
    }  # fmt: skip
    with pytest.raises(TokenRefused):
        call(resource, auth, "two")
    server.callback = lambda back: back


@pytest.mark.requirement("SEC-08")
def test_a_scope_that_a_person_denied_is_asked_for_again_only_by_hand() -> None:
    with signed_in() as (resource, auth, _):
        server = resource.authorization_server
        deny(resource, auth)
        with pytest.raises(AuthError, match="denied before"):
            call(resource, auth, "two")
        assert call(resource, auth, "one").status_code == 200
        assert len(server.authorizations) == 2
        auth.login()
        assert call(resource, auth, "two").status_code == 200


def test_a_scope_that_a_person_denied_is_not_asked_for_after_a_refused_token() -> None:
    with signed_in() as (resource, auth, _):
        server = resource.authorization_server
        deny(resource, auth)
        asked = len(server.authorizations)
        resource.serve = lambda _: Answer(
            401, None, {"WWW-Authenticate": 'Bearer error="invalid_token", scope="a b"'}
        )
        call(resource, auth, "one")
        assert [one.get("scope") for one in server.authorizations[asked:]] == ["a"]


def test_more_scope_without_a_name_comes_from_the_metadata_or_not_at_all() -> None:
    with signed_in() as (resource, auth, _):
        server = resource.authorization_server
        resource.serve = lambda _: Answer(
            403, None, {"WWW-Authenticate": 'Bearer error="insufficient_scope"'}
        )
        with pytest.raises(AuthError, match="names none that was not requested"):
            call(resource, auth)
        assert len(server.authorizations) == 1


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
