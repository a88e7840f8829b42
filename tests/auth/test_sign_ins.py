"""People are not asked for ever, whatever a server answers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from syncmcp.auth import OAuth, token_manager
from syncmcp.errors import AuthError, LoginRequired
from tests.auth.authorization_server import Answer, Person, ResourceServer, Seen, call, world
from tests.support.stage import Clock

MANY = 22
HOUR = 3600.0


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass."""
    return Clock(monkeypatch, "syncmcp._concurrency.timing").advance


@pytest.fixture
def resource() -> Iterator[ResourceServer]:
    """An MCP endpoint and its authorization server."""
    with world() as resource:
        yield resource


def refuse_everything(resource: ResourceServer) -> None:
    """It takes no token, whoever issued it."""
    challenge = {"WWW-Authenticate": resource.challenge or ""}
    resource.routes["POST", resource.path] = lambda _: Answer(401, None, challenge)


def ask_often(resource: ResourceServer, auth: OAuth) -> list[type[BaseException] | int]:
    """Make many requests; what each of them came to."""
    outcomes: list[type[BaseException] | int] = []
    for number in range(MANY):
        try:
            outcomes.append(call(resource, auth, f"method/{number}").status_code)
        except AuthError as error:
            outcomes.append(type(error))
    return outcomes


@pytest.mark.requirement("SCO-05", "SEC-08")
def test_a_server_that_refuses_every_token_has_three_browsers_opened_and_no_more(
    resource: ResourceServer,
) -> None:
    refuse_everything(resource)
    person = Person()
    auth = OAuth(receiver=person)
    outcomes = ask_often(resource, auth)
    assert outcomes == [401] * 3 + [LoginRequired] * (MANY - 3)
    assert len(person.redirects) == token_manager._MOST_IN_VAIN == 3
    with pytest.raises(
        LoginRequired, match=r"last 3 sign-ins led to nothing.* call login\(\) to ask again"
    ):
        call(resource, auth)
    auth.login()  # whatever was before
    assert len(person.redirects) == 4
    resource.routes["POST", resource.path] = resource._mcp
    assert call(resource, auth).status_code == 200
    assert len(person.redirects) == 4


def test_a_server_that_always_wants_another_scope_is_no_exception(
    resource: ResourceServer,
) -> None:
    numbers = itertools.count()

    def more(_: Seen) -> Answer:
        challenge = f'Bearer error="insufficient_scope", scope="scope-{next(numbers)}"'
        return Answer(403, None, {"WWW-Authenticate": challenge})

    resource.serve = more
    person = Person()
    outcomes = ask_often(resource, OAuth(receiver=person))
    assert outcomes == [403] + [LoginRequired] * (MANY - 1)
    assert len(person.redirects) == 3


def test_a_server_that_lets_something_through_now_and_then_gets_twenty_in_an_hour(
    resource: ResourceServer, pass_time: Callable[[float], None]
) -> None:
    server = resource.authorization_server
    server.refresh = False

    def once(seen: Seen) -> Answer:
        server.expire()
        return Answer(200, None)

    resource.serve = once
    person = Person()
    auth = OAuth(receiver=person)
    outcomes = ask_often(resource, auth)
    assert outcomes == [200] * 20 + [LoginRequired] * (MANY - 20)
    assert len(person.redirects) == token_manager._MOST_SIGN_INS == 20
    pass_time(HOUR)
    assert call(resource, auth).status_code == 200


def test_where_metadata_cannot_be_had_nobody_was_asked(resource: ResourceServer) -> None:
    server = resource.authorization_server
    place = "/.well-known/oauth-authorization-server"
    metadata: Any = server.routes["GET", place]
    server.routes["GET", place] = lambda _: Answer(503)
    person = Person()
    auth = OAuth(receiver=person)
    assert LoginRequired not in ask_often(resource, auth)
    server.routes["GET", place] = metadata
    assert call(resource, auth).status_code == 200
    assert len(person.redirects) == 1
