"""How a client proves itself at the token endpoint."""

from __future__ import annotations

import base64
from urllib.parse import parse_qsl

import pytest

from syncmcp.auth.flow import choose_method, token_request
from syncmcp.auth.steps import HttpRequest
from syncmcp.auth.tokens import Registration
from syncmcp.errors import RegistrationFailed
from syncmcp.types.extensions import AuthorizationServerMetadata

ISSUER = "https://as.example"


def server(methods: list[str] | None = None, **more: str) -> AuthorizationServerMetadata:
    return AuthorizationServerMetadata.from_wire(
        {
            "issuer": ISSUER,
            "token_endpoint": f"{ISSUER}/token",
            "token_endpoint_auth_methods_supported": methods,
            **more,
        }
    )


def form(fetch: HttpRequest) -> dict[str, str]:
    return dict(parse_qsl((fetch.body or b"").decode()))


def test_basic_encodes_id_and_secret_first_and_keeps_the_secret_out_of_the_body() -> None:
    one = Registration("https://a:b", "s p/ä", None, ISSUER)
    fetch = token_request(server(["client_secret_basic", "client_secret_post"]), one, {"a": "b"})
    scheme, _, pair = fetch.headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair) == b"https%3A%2F%2Fa%3Ab:s%20p%2F%C3%A4"
    assert form(fetch) == {"a": "b", "client_id": "https://a:b"}
    assert fetch.token
    assert "s p" not in repr(fetch)


@pytest.mark.parametrize(
    ("methods", "client", "sent"),
    [
        (
            ["client_secret_post"],
            Registration("id", "secret", None, ISSUER),
            {"client_secret": "secret"},
        ),
        # What the registration says comes before what the metadata list.
        (
            ["client_secret_basic"],
            Registration("id", "secret", "client_secret_post", ISSUER),
            {"client_secret": "secret"},
        ),
        (["client_secret_basic"], Registration("id"), {}),
    ],
    ids=["post", "registered", "public"],
)
def test_what_is_not_basic_is_in_the_body_and_in_no_header(
    methods: list[str], client: Registration, sent: dict[str, str]
) -> None:
    fetch = token_request(server(methods), client, {"a": "b", "c": None})
    assert "Authorization" not in fetch.headers
    assert form(fetch) == {"a": "b", "client_id": "id", **sent}


def test_a_client_with_a_key_signs_for_the_server_that_asks() -> None:
    fetch = token_request(
        server(["private_key_jwt"]), Registration("id"), {}, lambda server: f"for {server.issuer}"
    )
    assert form(fetch) == {
        "client_assertion_type": "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
        "client_assertion": f"for {ISSUER}",
    }


@pytest.mark.parametrize(
    ("methods", "secret", "assertion", "method"),
    [
        (None, True, False, "client_secret_basic"),
        (None, False, False, "none"),
        (None, False, True, "private_key_jwt"),
        (["client_secret_post", "client_secret_basic"], True, False, "client_secret_basic"),
        (["none", "client_secret_post"], True, False, "client_secret_post"),
        (["client_secret_post"], False, False, "none"),
    ],
)
def test_the_method_follows_from_what_the_client_has_and_the_server_lists(
    methods: list[str] | None, secret: bool, assertion: bool, method: str
) -> None:
    assert choose_method(server(methods), secret=secret, assertion=assertion) == method


def test_a_client_that_cannot_prove_itself_sends_nothing() -> None:
    for methods, secret, able, listed in (
        (["client_secret_basic"], False, "private_key_jwt", "'client_secret_basic'"),
        (["none", "x"], True, "client_secret_basic, client_secret_post", "'none', 'x'"),
        ([], True, "client_secret_basic, client_secret_post", "nothing"),
    ):
        with pytest.raises(RegistrationFailed) as caught:
            choose_method(server(methods), secret=secret, assertion=not secret)
        assert caught.value.message == (
            f"the authorization server '{ISSUER}' accepts none of {able} at its token endpoint,"
            f" only {listed}"
        )
    for method in ("client_secret_basic", "client_secret_post", "private_key_jwt", "other"):
        with pytest.raises(RegistrationFailed, match="cannot authenticate with"):
            token_request(server(), Registration("id", None, method, ISSUER), {})
    with pytest.raises(RegistrationFailed, match="no token endpoint"):
        token_request(server(token_endpoint=""), Registration("id"), {})
