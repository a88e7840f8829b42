"""The registration of the client at an authorization server."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from syncmcp.auth import OAuth
from syncmcp.auth.discovery import AuthServer
from syncmcp.auth.registration import (
    ClientIdentity,
    check_redirect_uri,
    identify,
    is_usable,
    register,
)
from syncmcp.auth.steps import HttpResponse
from syncmcp.auth.tokens import Registration
from syncmcp.errors import DiscoveryFailed, RegistrationFailed, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.authorization_server import Person
from tests.auth.stepping import Walk, told

ISSUER = "https://as.example"
REGISTER = f"{ISSUER}/register"
REDIRECT = "http://127.0.0.1:1455/callback"
DOCUMENT = "https://app.example/client.json"


def place(scopes: tuple[str, ...] | None = None, **server: Any) -> AuthServer:
    metadata = {"issuer": ISSUER, "registration_endpoint": REGISTER, **server}
    return AuthServer(
        "https://mcp.example/mcp", scopes, AuthorizationServerMetadata.from_wire(metadata)
    )


def registered(
    *answers: Any, at: AuthServer | None = None, scope: str | None = None
) -> Registration:
    walk = Walk({REGISTER: list(answers)})
    return walk.run(register(at or place(), ClientIdentity(), REDIRECT, scope))


@pytest.mark.requirement("REG-02", "REG-11")
def test_a_client_id_of_the_user_comes_before_the_address_of_a_document() -> None:
    identity = ClientIdentity("mine", "secret", DOCUMENT)
    found = identify(place(client_id_metadata_document_supported=True), identity)
    assert found == Registration("mine", "secret", None, ISSUER)


@pytest.mark.requirement("REG-02", "REG-03")
def test_the_address_of_a_document_comes_before_registration_where_it_is_supported() -> None:
    supported = place(client_id_metadata_document_supported=True)
    for has_key, method in ((False, "none"), (True, "private_key_jwt")):
        identity = ClientIdentity(metadata_url=DOCUMENT, has_key=has_key)
        assert identify(supported, identity) == Registration(DOCUMENT, None, method, ISSUER)
        assert identify(place(), identity) is None


@pytest.mark.requirement("REG-03")
@pytest.mark.parametrize(
    "url",
    [
        "http://app.example/client.json",
        *(
            f"https://app.example{end}"
            for end in ("", "/", "/a/../client.json", "/client.json#part")
        ),
        *("https:///client.json", "https://me@app.example/client.json"),
    ],
)
def test_a_document_is_at_an_https_url_with_a_path(url: str) -> None:
    with pytest.raises(UsageError, match="client_metadata_url"):
        OAuth(client_metadata_url=url, receiver=None)


@pytest.mark.requirement("REG-03")
def test_the_document_to_publish_names_itself() -> None:
    auth = OAuth(client_metadata_url=DOCUMENT, client_name="Example", receiver=Person())
    document = auth.client_metadata([REDIRECT])
    expected = {"client_id": DOCUMENT, "client_name": "Example", "redirect_uris": [REDIRECT]}
    expected["token_endpoint_auth_method"] = "none"
    assert {name: document[name] for name in expected} == expected
    with pytest.raises(UsageError, match="redirect URI"):
        auth.client_metadata(["http://app.example/callback"])
    for one, redirects in ((auth, []), (OAuth(receiver=None), [REDIRECT])):
        with pytest.raises(UsageError, match="URL and redirect"):
            one.client_metadata(redirects)


@pytest.mark.parametrize(
    ("identity", "words"),
    [
        (ClientIdentity(client_secret="secret"), "client_id"),
        (ClientIdentity("id", "secret", has_key=True), "not with both"),
    ],
)
def test_what_cannot_be_a_client_is_refused(identity: ClientIdentity, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        identity.check()
    assert "'secret'" not in repr(identity)


@pytest.mark.requirement("REG-04", "REG-06", "REG-09", "TOK-07")
@pytest.mark.parametrize(
    ("redirect", "kind"), [(REDIRECT, "native"), ("https://app.example/callback", "web")]
)
def test_registration_says_what_kind_of_program_this_is_and_what_it_wants(
    redirect: str, kind: str
) -> None:
    walk = Walk({REGISTER: told({"client_id": "c", "issuer": "https://evil.example"}, 201)})
    scopes = ("a", "b") if kind == "native" else None
    identity = ClientIdentity(name="Example")
    found = walk.run(register(place(scopes), identity, redirect, "b c" if scopes else None))
    (fetch,) = walk.asked
    assert fetch.method == "POST"
    assert fetch.headers == {"Accept": "application/json", "Content-Type": "application/json"}
    assert json.loads(fetch.body or b"") == {
        "client_name": "Example",
        "redirect_uris": [redirect],
        "application_type": kind,
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
        **({"scope": "b c a"} if scopes else {}),
    }
    # The registration belongs to the issuer that was asked, even if the response differs.
    assert found == Registration("c", None, "none", ISSUER, (redirect,))


@pytest.mark.requirement("REG-06", "REG-09")
def test_a_registration_serves_its_own_issuer_and_redirects_until_its_secret_expires() -> None:
    one = Registration("c", "s", "client_secret_basic", ISSUER, (REDIRECT,), 100.0)
    assert is_usable(one, ISSUER, REDIRECT, 99.0)
    for issuer, redirect, now in (
        (ISSUER, REDIRECT, 100.0),
        (f"{ISSUER}/", REDIRECT, 99.0),
        (ISSUER, "http://127.0.0.1:9/callback", 99.0),
    ):
        assert not is_usable(one, issuer, redirect, now)
    lasting = Registration("c", issuer=ISSUER, redirect_uris=(REDIRECT,))
    assert is_usable(lasting, ISSUER, REDIRECT, 9e9)


POST = "client_secret_post"
BASIC = "client_secret_basic"


@pytest.mark.parametrize(
    ("answer", "methods", "method"),
    [
        ({"client_secret": "s", "token_endpoint_auth_method": POST}, None, POST),
        ({"client_secret": "s"}, None, BASIC),
        ({"client_secret": "s"}, [POST], POST),
        ({"client_secret": ""}, ["none"], "none"),
        ({}, None, "none"),
    ],
)
def test_what_the_server_made_of_the_client_is_honoured(
    answer: dict[str, Any], methods: list[str] | None, method: str
) -> None:
    at = place(token_endpoint_auth_methods_supported=methods)
    assert registered(told({"client_id": "c", **answer}, 201), at=at).auth_method == method


@pytest.mark.parametrize(
    ("listed", "method"),
    [
        (["private_key_jwt", BASIC], BASIC),
        (["private_key_jwt", POST], POST),
        ([BASIC, POST], BASIC),
        ([POST, BASIC], POST),
        ([POST, "none"], "none"),
    ],
)
def test_a_program_asks_to_be_public_or_for_the_first_method_that_it_can_use(
    listed: list[str], method: str
) -> None:
    walk = Walk({REGISTER: told({"client_id": "c", "client_secret": "s"})})
    at = place(token_endpoint_auth_methods_supported=listed)
    walk.run(register(at, ClientIdentity(), REDIRECT, None))
    assert json.loads(walk.asked[0].body or b"")["token_endpoint_auth_method"] == method


@pytest.mark.parametrize(("expires", "kept"), [(0, None), (5e9, 5e9), ("soon", None), (None, None)])
def test_when_a_secret_expires_is_written_down(expires: Any, kept: float | None) -> None:
    answer = {"client_id": "c", "client_secret": "s", "client_secret_expires_at": expires}
    assert registered(told(answer)).expires_at == kept


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({}, "without a client id"),
        ({"client_id": ""}, "without a client id"),
        (
            {"client_id": "c", "token_endpoint_auth_method": "tls_client_auth"},
            "which it cannot use",
        ),
        ({"client_id": "c", "token_endpoint_auth_method": BASIC}, "without a secret"),
        ({"client_id": "c", "redirect_uris": ["http://localhost/other"]}, "other redirect"),
    ],
)
def test_a_registration_that_is_no_use_is_refused_before_a_browser_opens(
    answer: dict[str, Any], words: str
) -> None:
    with pytest.raises(RegistrationFailed, match=words):
        registered(told(answer, 201))


@pytest.mark.requirement("REG-05")
def test_a_refused_redirect_address_ends_in_an_error_that_says_what_to_do() -> None:
    answer = told({"error": "invalid_redirect_uri", "error_description": "no loopback"}, 400)
    with pytest.raises(RegistrationFailed) as caught:
        registered(answer, scope="a")
    assert caught.value.error == "invalid_redirect_uri"
    for words in (REDIRECT, "no loopback", "redirect_uri="):
        assert words in str(caught.value)


def test_a_server_that_does_not_know_the_scopes_is_asked_once_more_without_them() -> None:
    walk = Walk(
        {REGISTER: [told({"error": "invalid_client_metadata"}, 400), told({"client_id": "c"})]}
    )
    found = walk.run(register(place(("a",)), ClientIdentity(), REDIRECT, None))
    assert found.client_id == "c"
    assert ["scope" in json.loads(fetch.body or b"") for fetch in walk.asked] == [True, False]


@pytest.mark.requirement("REG-10")
@pytest.mark.parametrize(
    "uri",
    ["http://app.example/back", "app://back", "https://", "https://h/back#part", "http://[::1/x"],
)
def test_a_redirect_that_others_could_read_is_refused(uri: str) -> None:
    with pytest.raises(UsageError, match="redirect URI"):
        check_redirect_uri(uri)
    for good in ("http://localhost/x", "http://127.0.0.1:8/x", "http://[::1]:8/x", "https://h/x"):
        check_redirect_uri(good)


@pytest.mark.parametrize(
    "answer",
    [told({}, 403), told(["x"], 500), told({"error": 1}, 400), HttpResponse(404, {}, b"<html>")],
)
def test_a_refused_registration_tells_the_user_what_to_do(answer: Any) -> None:
    with pytest.raises(RegistrationFailed, match="client_id=") as caught:
        registered(answer)
    assert caught.value.status == answer.status


def test_an_assumed_authorization_server_that_does_not_exist_is_named_as_the_cause() -> None:
    at = dataclasses.replace(place(), published=False)
    with pytest.raises(DiscoveryFailed, match=r"^the server requires a sign-in, but") as caught:
        registered(HttpResponse(404, {}, b"<html>"), at=at)
    end = " names no authorization server, and is not one itself"
    assert caught.value.message.endswith(end)
    assert caught.value.status == 404
    assert caught.value.hint == "if you get a token for the server elsewhere, pass token= to Http"
    with pytest.raises(RegistrationFailed, match="no reason given"):
        registered(told({"error": "no"}, 400), at=at)


@pytest.mark.requirement("REG-01", "REG-02")
def test_a_server_without_registration_needs_a_client_id_of_the_user() -> None:
    with pytest.raises(RegistrationFailed, match=r"advertises no registration.*client_id="):
        registered(at=place(registration_endpoint=None))
