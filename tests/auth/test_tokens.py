"""The values that stores hold: what is written, what is read again, what is shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from syncmcp.auth.tokens import Login, Registration, Token
from syncmcp.errors import AuthError
from syncmcp.types.extensions import AuthorizationServerMetadata

ISSUER = "https://as.example"
TOKEN = Token("access-canary", "DPoP", 60.5, "refresh-canary", "a", "a b", ISSUER, "https://r", "c")
CLIENT = Registration("c", "secret-canary", "none", ISSUER, ("http://127.0.0.1/", "http://b/"), 9)
LOGIN = Login(TOKEN, CLIENT, AuthorizationServerMetadata(issuer=ISSUER, token_endpoint="/token"))


def stored(**changed: Any) -> dict[str, Any]:
    """The JSON object of a login, with other members in its token."""
    value: dict[str, Any] = json.loads(json.dumps(LOGIN.to_json()))
    value["token"].update(changed)
    return value


def test_a_login_is_read_as_it_was_written() -> None:
    later: dict[str, Any] = {**stored(of_a_later_version=1), "colour": "blue"}
    later["registration"] |= {"colour": "blue"}
    assert Login.from_json(later) == LOGIN
    assert Token.from_json(Token("x").to_json()) == Token("x")
    assert Token("x").to_json() == {"access_token": "x", "token_type": "Bearer", "issuer": ""}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        *(
            (value, "the token store contains an invalid login: sign in again")
            for value in (
                *({}, stored(expires_at="soon"), stored() | {"token": 5}),
                *(stored() | {"token": {}}, stored() | {"server": {}}),
            )
        ),
        *(
            (value, "the stored login mixes several authorization servers: sign in again")
            for value in (
                stored(issuer="https://other.example"),
                stored() | {"registration": {"client_id": "c", "issuer": "https://other.example"}},
            )
        ),
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


def test_a_token_expires_at_its_moment_if_it_has_one() -> None:
    assert [TOKEN.expired(now) for now in (60.4, 60.5, 61.0)] == [False, True, True]
    assert not Token("x").expired(1e12)


def test_a_token_is_known_by_its_secret() -> None:
    renewed = Login(Token("other", issuer=ISSUER), CLIENT, LOGIN.server)
    same = Login(Token("access-canary"), Registration("d"), LOGIN.server)
    assert [LOGIN.same_token(other) for other in (same, renewed, None)] == [True, False, False]
