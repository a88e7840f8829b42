"""Stored logins, and tokens from other systems: their formats, and what is shown."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from syncmcp.auth import Bearer
from syncmcp.auth.bearer import SecretSource, has_fixed_token
from syncmcp.auth.tokens import Login, Registration, Token
from syncmcp.errors import AuthError, LoginRequired, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata

ISSUER = "https://as.example"
TOKEN = Token("access-canary", "DPoP", 60.5, "refresh-canary", "a", "a b", ISSUER, "https://r", "c")
CLIENT = Registration("c", "secret-canary", "none", ISSUER, ("http://127.0.0.1/", "http://b/"), 9)
LOGIN = Login(TOKEN, CLIENT, AuthorizationServerMetadata(issuer=ISSUER, token_endpoint="/token"))


def stored(**changed: Any) -> dict[str, Any]:
    """Return the JSON object of a login, with changed members in its token."""
    value: dict[str, Any] = json.loads(json.dumps(LOGIN.to_json()))
    value["token"].update(changed)
    return value


def test_a_login_is_read_as_it_was_written() -> None:
    later: dict[str, Any] = {**stored(of_a_later_version=1), "colour": "blue"}
    later["registration"] |= {"colour": "blue"}
    assert Login.from_json(later) == LOGIN
    assert Token.from_json(Token("x").to_json()) == Token("x")
    assert Token("x").to_json() == {"access_token": "x", "token_type": "Bearer", "issuer": ""}


INVALID = "the token store contains an invalid login: sign in again"
MIXED = "the stored login mixes several authorization servers: sign in again"
OTHER = "https://other.example"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, INVALID),
        *((stored(expires_at=when), INVALID) for when in ("soon", 10**400, float("inf"), True)),
        (stored() | {"token": 5}, INVALID),
        (stored() | {"token": {}}, INVALID),
        (stored() | {"server": {}}, INVALID),
        (stored(issuer=OTHER), MIXED),
        (stored() | {"registration": {"client_id": "c", "issuer": OTHER}}, MIXED),
    ],
)
def test_what_is_no_login_of_one_server_is_refused(value: Any, message: str) -> None:
    with pytest.raises(AuthError) as caught:
        Login.from_json(value)
    assert caught.value.message == message


def test_a_value_is_shown_without_its_secrets_and_what_it_lacks() -> None:
    assert repr(Token("canary", refresh_token="r", scope="a")) == (
        "Token(access_token=***, token_type='Bearer', refresh_token=***, scope='a', issuer='')"
    )
    assert "canary" not in repr(LOGIN)


def test_a_token_expires_at_its_moment_if_it_has_one_and_is_known_by_its_secret() -> None:
    assert [TOKEN.expired(now) for now in (60.4, 60.5, 61.0)] == [False, True, True]
    assert not Token("x").expired(1e12)
    renewed = Login(Token("other", issuer=ISSUER), CLIENT, LOGIN.server)
    same = Login(Token("access-canary"), Registration("d"), LOGIN.server)
    assert [LOGIN.same_token(other) for other in (same, renewed, None)] == [True, False, False]


# -- tokens from other systems


def sent(auth: Bearer) -> str:
    """Return the header that this authentication adds to a request."""
    return auth(requests.Request("POST", "https://x.example").prepare()).headers["Authorization"]


def test_a_token_from_elsewhere_goes_into_each_request(tmp_path: Path) -> None:
    tokens = iter(["first", "second"])
    auth = Bearer(lambda: next(tokens))
    assert [sent(Bearer(" fixed ")), sent(auth), sent(auth)] == [
        *("Bearer fixed", "Bearer first", "Bearer second"),
    ]
    file = tmp_path / "token"
    auth = Bearer(file)
    for word in ("third", "!~"):
        file.write_text(f" {word}\n")
        assert sent(auth) == f"Bearer {word}"


@pytest.mark.parametrize("token", ["", " ", "two words", "tök", "a\nb", "a\x7f"])
def test_a_text_that_can_be_no_token_is_refused_when_it_is_given_or_read(
    token: str, tmp_path: Path
) -> None:
    message = "the token must be one word of visible ASCII characters"
    with pytest.raises(UsageError) as refused:
        Bearer(token)
    assert refused.value.message == message
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    for auth in (Bearer(lambda: token), Bearer(file)):
        with pytest.raises(AuthError) as caught:
            sent(auth)
        assert (caught.value.message, caught.value.delivery) == (message, "not_sent")


@pytest.mark.parametrize("token", [None, 5, b"token"])
def test_what_is_no_token_and_leads_to_none_is_refused(token: Any) -> None:
    with pytest.raises(UsageError) as caught:
        Bearer(token)
    kind = type(token).__name__
    assert caught.value.message == f"the token must be a str, a Path or a callable, not {kind}"
    with pytest.raises(AuthError, match=r"one word of .*, not (None|int|bytes) \("):
        sent(Bearer(lambda: token))
    given: Any = lambda request: "token"  # noqa: E731
    with pytest.raises(UsageError, match=r"^the token must be callable without arguments$"):
        Bearer(given)


def raiser(error: Exception) -> Callable[[], str]:
    def read() -> str:
        raise error

    return read


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(2, "No such file"), "cannot read the token: No such file"),
        (OSError("canary"), "cannot read the token: OSError"),
        (RuntimeError("canary"), "cannot get the token: RuntimeError"),
    ],
)
def test_a_token_that_cannot_be_read_is_an_error_without_what_was_said(
    error: Exception, message: str
) -> None:
    with pytest.raises(AuthError) as caught:
        sent(Bearer(raiser(error)))
    assert (caught.value.message, caught.value.delivery) == (message, "not_sent")
    assert caught.value.__cause__ is error
    with pytest.raises(AuthError) as caught:
        sent(Bearer(Path("/nowhere/token")))
    said = "cannot read the token in '/nowhere/token': No such file or directory"
    assert (caught.value.message, caught.value.delivery) == (said, "not_sent")
    ours = LoginRequired("nobody is there")  # an error of this library is raised unchanged
    with pytest.raises(LoginRequired) as passed:
        sent(Bearer(raiser(ours)))
    assert passed.value is ours


def test_a_token_is_neither_shown_nor_pickled() -> None:
    source = SecretSource("canary", "the assertion")
    assert repr(source) == "<SecretSource of the assertion>"
    assert repr(Bearer("canary")) == "<Bearer>"
    with pytest.raises(TypeError) as caught:
        pickle.dumps(source)
    assert str(caught.value) == "a secret cannot be pickled: pass it again in the other process"


def test_only_a_token_that_was_given_as_text_stays_the_same(tmp_path: Path) -> None:
    class Own(Bearer):
        pass

    given: list[Any] = [Bearer("a"), Bearer(lambda: "a"), Bearer(tmp_path), Own("a"), None]
    assert [has_fixed_token(auth) for auth in given] == [True, False, False, False, False]
