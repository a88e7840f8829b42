"""The authorization code flow: links, the checks of redirects, and tokens.

Also the authentication of clients at the token endpoint.
"""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from syncmcp.auth.discovery import AuthServer
from syncmcp.auth.flow import (
    PendingAuthorization,
    authorization_code,
    choose_method,
    probe,
    read_token,
    redeem,
    refresh,
    revoke,
    token_request,
)
from syncmcp.auth.steps import AuthChallenge, HttpRequest, HttpResponse, error_code, printable
from syncmcp.auth.tokens import Registration, Token
from syncmcp.errors import AuthError, DiscoveryFailed, RegistrationFailed, TokenRefused
from syncmcp.types.extensions import AuthorizationServerMetadata
from tests.auth.stepping import Walk, told

ISSUER = "https://as.example/t1"
RESOURCE = "https://mcp.example/mcp"
REDIRECT = "http://127.0.0.1:1455/callback"
CLIENT = Registration("client", issuer=ISSUER)
ANSWER = {"access_token": "access-canary", "token_type": "bearer", "expires_in": 60}


def server(**more: Any) -> AuthorizationServerMetadata:
    return AuthorizationServerMetadata.from_wire(
        {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/authorize",
            "token_endpoint": f"{ISSUER}/token",
            "revocation_endpoint": f"{ISSUER}/revoke",
            **more,
        }
    )


def attempt(scope: str | None = "a b", **more: Any) -> PendingAuthorization:
    return PendingAuthorization(AuthServer(RESOURCE, None, server(**more)), CLIENT, REDIRECT, scope)


def query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


def form(fetch: HttpRequest) -> dict[str, str]:
    return dict(parse_qsl((fetch.body or b"").decode()))


def back(one: PendingAuthorization, **more: str) -> dict[str, str]:
    return {"state": one.state, "code": "code-canary", **more}


@pytest.mark.requirement("FLW-01", "FLW-02", "FLW-04", "FLW-06", "FLW-10", "REG-09")
def test_the_authorization_request() -> None:
    one = attempt()
    sent = query(one.redirect.url)
    digest = hashlib.sha256(one.verifier.encode()).digest()
    assert sent == {
        "response_type": "code",
        "client_id": "client",
        "redirect_uri": REDIRECT,
        "scope": "a b",
        "state": one.state,
        "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
        "code_challenge_method": "S256",
        "resource": RESOURCE,
    }
    assert 43 <= len(one.verifier) <= 128
    assert one.redirect.url.startswith(f"{ISSUER}/authorize?")
    assert (one.redirect.redirect_uri, one.redirect.state) == (REDIRECT, one.state)
    assert one.auth_server.metadata.issuer == ISSUER


@pytest.mark.requirement("FLW-10")
def test_no_two_logins_share_state_or_verifier() -> None:
    first, second = attempt(), attempt()
    assert len({first.state, second.state, first.verifier, second.verifier}) == 4
    assert min(len(first.state), len(second.state)) >= 22  # 128 random bits
    for secret in (first.state, first.verifier, "mcp.example"):
        assert secret not in repr(first)
    assert repr(first.redirect) == "<Redirect>"


def test_a_query_that_the_endpoint_has_already_is_kept_and_cannot_replace_ours() -> None:
    endpoint = f"{ISSUER}/authorize?tenant=&state=evil&x=1#part"
    url = attempt(None, authorization_endpoint=endpoint).redirect.url
    sent = query(url)
    assert url.partition("?")[2].startswith("tenant=&x=1&")
    assert sent["state"] != "evil"
    assert "scope" not in sent
    assert "#" not in url


def test_offline_access_is_asked_for_with_consent() -> None:
    assert query(attempt("a offline_access").redirect.url)["prompt"] == "consent"


def test_a_server_without_an_authorization_endpoint_is_no_place_for_a_person() -> None:
    with pytest.raises(DiscoveryFailed, match="no authorization endpoint"):
        _ = attempt(authorization_endpoint=None).redirect


@pytest.mark.requirement("FLW-06", "FLW-07", "FLW-08")
@pytest.mark.parametrize(
    ("advertised", "issuer", "good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, "https://evil.example", False),
        (False, ISSUER, True),
        (False, None, True),
        (False, "https://evil.example", False),
        (None, None, True),
        (None, "", False),
        # The client compares each character, without normalization.
        *((True, issuer, False) for issuer in (f"{ISSUER}/", ISSUER.upper())),
        *((True, f"https://as.example{end}", False) for end in (":443/t1", "/%741")),
    ],
)
def test_the_issuer_in_a_redirect_is_judged_before_the_code_is_used(
    advertised: bool | None, issuer: str | None, good: bool
) -> None:
    one = attempt(authorization_response_iss_parameter_supported=advertised)
    callback = back(one) if issuer is None else back(one, iss=issuer)
    walk = Walk({f"{ISSUER}/token": told(ANSWER)})
    if good:
        assert walk.run(redeem(one, callback, 0.0)).access_token == "access-canary"
    else:
        with pytest.raises(AuthError, match="the sign-in has ended"):
            walk.run(redeem(one, callback, 0.0))
        assert not walk.asked


@pytest.mark.requirement("FLW-09", "FLW-10")
@pytest.mark.parametrize(
    "wrong", [{"iss": "https://evil.example"}, {"state": "other"}, {"state": ""}, {"state": None}]
)
def test_a_redirect_from_elsewhere_is_dropped_with_its_code_and_nothing_of_it_is_shown(
    wrong: dict[str, str | None],
) -> None:
    one, walk = attempt(), Walk({f"{ISSUER}/token": told(ANSWER)})
    callback = back(one, error="canary", error_description="go to canary", error_uri="canary")
    given = {name: value for name, value in {**callback, **wrong}.items() if value is not None}
    with pytest.raises(
        AuthError, match=r"another authorization server|without the state"
    ) as caught:
        walk.run(redeem(one, given, 0.0))
    assert walk.asked == []
    assert type(caught.value) is AuthError
    assert caught.value.error is None
    assert "canary" not in str(caught.value)


def test_a_person_who_says_no_is_an_error_with_its_code_and_words() -> None:
    one = attempt()
    words = "no\x1b[2J thanks, access_token=canary-secret"
    denied = {"state": one.state, "error": "access_denied", "error_description": words}
    with pytest.raises(TokenRefused) as caught:
        authorization_code(one, denied)
    assert (caught.value.error, caught.value.status) == ("access_denied", 0)
    assert "no [2J thanks" in str(caught.value)
    assert "canary" not in str(caught.value)
    with pytest.raises(AuthError, match="without an authorization code"):
        authorization_code(one, {"state": one.state})


@pytest.mark.requirement("FLW-01", "FLW-04")
def test_the_token_request() -> None:
    one = attempt()
    walk = Walk({f"{ISSUER}/token": told(ANSWER)})
    token = walk.run(redeem(one, back(one), 1000.0))
    (fetch,) = walk.asked
    assert (fetch.method, fetch.token, fetch.algorithms, fetch.renew) == ("POST", True, None, None)
    assert fetch.headers == {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    bound = attempt(dpop_signing_alg_values_supported=["ES256", "PS256"])
    walk.run(redeem(bound, back(bound), 0.0))
    assert walk.asked.pop().algorithms == ("ES256", "PS256")
    assert form(fetch) == {
        "grant_type": "authorization_code",
        "code": "code-canary",
        "redirect_uri": REDIRECT,
        "code_verifier": one.verifier,
        "resource": RESOURCE,
        "client_id": "client",
    }
    assert token == Token(
        "access-canary", "bearer", 1060.0, None, "a b", "a b", ISSUER, RESOURCE, "client"
    )
    assert "canary" not in repr(token) + repr(fetch)


def test_a_token_does_not_show_its_secrets_where_the_server_repeats_them() -> None:
    token = Token("access-canary", refresh_token="refresh-canary", scope="a access-canary")
    assert "canary" not in repr(token)
    assert "scope='a ***'" in repr(token)


@pytest.mark.requirement("FLW-04", "TOK-06")
def test_a_refresh_keeps_what_the_answer_does_not_change() -> None:
    old = Token("old", "Bearer", 10.0, "refresh-1", "a", "a b", ISSUER, RESOURCE, "client")
    changes = {"refresh_token": "refresh-2", "scope": "c"}
    walk = Walk({f"{ISSUER}/token": [told(ANSWER), told({**ANSWER, **changes})]})
    kept = walk.run(refresh(old, CLIENT, server(), 1000.0))
    assert form(walk.asked[0]) == {
        "grant_type": "refresh_token",
        "refresh_token": "refresh-1",
        "resource": RESOURCE,
        "client_id": "client",
    }
    assert (kept.refresh_token, kept.scope, kept.requested) == ("refresh-1", "a", "a b")
    new = walk.run(refresh(old, CLIENT, server(), 0.0))
    assert (new.refresh_token, new.scope, new.requested) == ("refresh-2", "c", "a b")


def test_an_expiry_is_read_where_it_makes_sense_and_a_scope_where_there_is_one() -> None:
    def read(**more: Any) -> Token:
        return read_token(told({**ANSWER, **more}), Token("", requested="a b"), 100.0)

    expiries = [read(expires_in=value).expires_at for value in (60, "60", 1.5, -5)]
    assert expiries == [160.0, 160.0, 101.5, 100.0]
    nonsense: list[Any] = [None, True, "soon", "inf", [], float("nan"), 10**400]
    assert [read(expires_in=value).expires_at for value in nonsense] == [None] * 7
    assert (read(scope="a").scope, read().scope) == ("a", "a b")


def test_a_client_with_a_key_signs_each_request_for_a_token() -> None:
    client = Registration("client", None, "private_key_jwt", ISSUER)
    token = Token("access", refresh_token="refresh", issuer=ISSUER)
    walk = Walk({f"{ISSUER}/token": told(ANSWER), f"{ISSUER}/revoke": told(None)})
    one = PendingAuthorization(AuthServer(RESOURCE, None, server()), client, REDIRECT, None)
    signed = iter("abcd")
    assertion = lambda metadata: next(signed)  # noqa: E731
    walk.run(redeem(one, back(one), 0.0, assertion))
    walk.run(refresh(token, client, server(), 0.0, assertion))
    walk.run(revoke(token, client, server(), assertion))
    assert [form(fetch)["client_assertion"] for fetch in walk.asked] == [*"abcd"]
    kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert {form(fetch)["client_assertion_type"] for fetch in walk.asked} == {kind}
    # A server accepts an assertion only once, so a retry contains a new one.
    signed = iter("ef")
    assert walk.asked[0].renew is not None
    renewed = [walk.asked[0].renew() for _ in range(2)]
    assert [form(fetch)["client_assertion"] for fetch in renewed] == ["e", "f"]


@pytest.mark.parametrize("kind", ["bearer", "Bearer", "DPoP"])
def test_a_token_of_a_known_kind_and_of_visible_ascii_is_taken(kind: str) -> None:
    token = read_token(told({"access_token": "!~", "token_type": kind}), Token(""), 0.0)
    assert (token.access_token, token.token_type) == ("!~", kind)


NO_TOKEN = "the token endpoint answered without a token or without its type"
UNKNOWN = "the token endpoint issued a token of the unknown type"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        *((told(answer), NO_TOKEN) for answer in ({"token_type": "bearer"}, {"access_token": "x"})),
        (told({"access_token": 5, "token_type": "bearer"}), NO_TOKEN),
        (HttpResponse(200, {}, b"<html>"), NO_TOKEN),
        (told({"access_token": "x", "token_type": "m" * 40}), f"{UNKNOWN} {'m' * 40!r}"),
        (told({"access_token": "x", "token_type": "m" * 41}), f"{UNKNOWN} (too long to be shown)"),
        *(
            (
                told({"access_token": access, "token_type": "bearer"}),
                "the token endpoint issued a token that is not valid in a header",
            )
            for access in ("a b", "a\x7f", "tök", "a\r\nX-Injected: 1", "\u2603")
        ),
    ],
)
def test_an_answer_that_is_no_token_is_an_error(answer: HttpResponse, message: str) -> None:
    with pytest.raises(AuthError) as caught:
        read_token(answer, Token(""), 0.0)
    assert not isinstance(caught.value, TokenRefused)
    assert caught.value.message == message


def test_a_refused_token_request_says_why_and_masks_what_it_quotes() -> None:
    words = "refresh_token=canary-secret is gone"
    answer = told({"error": "invalid_grant", "error_description": words}, 400)
    with pytest.raises(TokenRefused) as caught:
        read_token(answer, Token(""), 0.0)
    assert (caught.value.error, caught.value.status) == ("invalid_grant", 400)
    assert "is gone" in str(caught.value)
    assert "canary" not in str(caught.value)
    with pytest.raises(TokenRefused) as bare:
        read_token(HttpResponse(502, {}, b"<html>"), Token(""), 0.0)
    assert bare.value.message == (
        "the token endpoint issued no token: the authorization server gave no reason"
    )
    assert (bare.value.error, bare.value.status) == (None, 502)
    # A response with an `error` is a refusal, even with status 200.
    words = "It has expired."
    answer = told({"error": "bad_verification_code", "error_description": words})
    with pytest.raises(TokenRefused, match="It has expired") as caught:
        read_token(answer, Token(""), 0.0)
    assert caught.value.error == "bad_verification_code"


def test_revocation_gives_back_the_refresh_token_and_then_the_access_token() -> None:
    token = Token("access", refresh_token="refresh", issuer=ISSUER)
    url = f"{ISSUER}/revoke"
    walk = Walk({url: told(None)})
    walk.run(revoke(token, CLIENT, server()))
    sent = [(form(fetch)["token"], form(fetch)["token_type_hint"]) for fetch in walk.asked]
    assert sent == [("refresh", "refresh_token"), ("access", "access_token")]
    assert not any(fetch.token for fetch in walk.asked)
    unsupported = Walk({url: [told({"error": "unsupported_token_type"}, 400)]})
    unsupported.run(revoke(Token("access"), CLIENT, server()))
    assert [form(fetch)["token"] for fetch in unsupported.asked] == ["access"]
    with pytest.raises(TokenRefused) as caught:
        Walk({url: told({"error": "server_error"}, 503)}).run(revoke(token, CLIENT, server()))
    assert caught.value.message == "could not revoke the token"
    assert "(server_error; " in str(caught.value)
    nowhere = Walk()
    nowhere.run(revoke(token, CLIENT, server(revocation_endpoint=None)))
    assert not nowhere.asked


def test_a_server_is_asked_what_it_demands() -> None:
    challenge = 'Bearer scope="a"'
    walk = Walk({RESOURCE: told({}, 401, **{"www-authenticate": challenge})})
    assert walk.run(probe(RESOURCE)) == AuthChallenge(scope="a")
    (fetch,) = walk.asked
    assert json.loads(fetch.body or b"")["jsonrpc"] == "2.0"
    assert (fetch.method, fetch.headers) == (
        "POST",
        {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"},
    )
    other = told({}, 403, **{"www-authenticate": challenge})
    assert Walk({RESOURCE: other}).run(probe(RESOURCE)) is None
    assert Walk({RESOURCE: told({}, 401)}).run(probe(RESOURCE)) is None


def test_what_a_server_says_is_shown_up_to_a_limit_and_by_whole_words() -> None:
    codes = [error_code(code) for code in ("a" * 80, "a" * 81, "", 5)]
    assert codes == ["a" * 80, None, None, None]
    long = f"a word and {'x' * 400}"
    assert printable(long, "nothing") == "a word and"
    assert printable("x" * 400, "nothing") == "nothing"
    most = "a word " + "x" * 293
    assert (printable(most, ""), printable(f"{most}x", "")) == (most, "a word")
    assert [printable(words, "nothing") for words in (" ", 5)] == ["nothing"] * 2


# -- the authentication of clients at the token endpoint


def listing(*methods: str) -> AuthorizationServerMetadata:
    return server(token_endpoint_auth_methods_supported=list(methods))


def test_basic_encodes_id_and_secret_first_and_keeps_the_secret_out_of_the_body() -> None:
    one = Registration("https://a:b", "s p/ä", None, ISSUER)
    listed = listing("client_secret_basic", "client_secret_post")
    fetch = token_request(listed, one, {"a": "b"})
    scheme, _, pair = fetch.headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(pair) == b"https%3A%2F%2Fa%3Ab:s%20p%2F%C3%A4"
    assert form(fetch) == {"a": "b", "client_id": "https://a:b"}
    assert fetch.token
    assert "s p" not in repr(fetch)


@pytest.mark.parametrize(
    ("method", "client", "sent"),
    [
        ("post", Registration("id", "secret", None, ISSUER), {"client_secret": "secret"}),
        # The method of the registration has priority over those of the metadata.
        (
            "basic",
            Registration("id", "secret", "client_secret_post", ISSUER),
            {"client_secret": "secret"},
        ),
        ("basic", Registration("id"), {}),
    ],
    ids=["post", "registered", "public"],
)
def test_what_is_not_basic_is_in_the_body_and_in_no_header(
    method: str, client: Registration, sent: dict[str, str]
) -> None:
    fetch = token_request(listing(f"client_secret_{method}"), client, {"a": "b", "c": None})
    assert "Authorization" not in fetch.headers
    assert form(fetch) == {"a": "b", "client_id": "id", **sent}


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
    listed = server(token_endpoint_auth_methods_supported=methods)
    assert choose_method(listed, secret=secret, assertion=assertion) == method


def test_a_client_that_cannot_prove_itself_sends_nothing() -> None:
    for methods, secret, able, listed in (
        (["client_secret_basic"], False, "private_key_jwt", "'client_secret_basic'"),
        (["none", "x"], True, "client_secret_basic, client_secret_post", "'none', 'x'"),
        ([], True, "client_secret_basic, client_secret_post", "nothing"),
    ):
        with pytest.raises(RegistrationFailed) as caught:
            choose_method(listing(*methods), secret=secret, assertion=not secret)
        assert caught.value.message == (
            f"the authorization server '{ISSUER}' accepts none of {able} at its token endpoint,"
            f" only {listed}"
        )
    for method in ("client_secret_basic", "client_secret_post", "private_key_jwt", "other"):
        with pytest.raises(RegistrationFailed, match="cannot authenticate with"):
            token_request(server(), Registration("id", None, method, ISSUER), {})
    with pytest.raises(RegistrationFailed, match="no token endpoint"):
        token_request(server(token_endpoint=""), Registration("id"), {})
