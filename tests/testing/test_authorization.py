"""The authorization server for tests checks requests, and protects an MCP server."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests

import syncmcp
from syncmcp.auth import MemoryStore, OAuth
from syncmcp.errors import AuthError, LoginRequired, TokenRefused
from syncmcp.testing import AuthorizationServer, Cut, FaultProxy, HttpServer, Server, serve_http
from tests.auth.authorization_server import Person

WAIT = 20.0
BACK = "http://127.0.0.1:1455/callback"
RESOURCE = "http://127.0.0.1:1/mcp"
VERIFIER = "a verifier that nobody can guess, or so we hope"
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=")


@pytest.fixture
def issuer() -> Iterator[AuthorizationServer]:
    """An authorization server."""
    with AuthorizationServer(scopes=["notes"]) as issuer:
        yield issuer


@pytest.fixture
def http(issuer: AuthorizationServer) -> Iterator[HttpServer]:
    """An MCP server that requires its tokens."""
    server = Server("notebook")
    server.add_tool(lambda: "a line", name="read", description="Reads.")
    with serve_http(server, authorization_server=issuer) as http:
        yield http


def post(issuer: AuthorizationServer, path: str, **form: str) -> requests.Response:
    return requests.post(f"{issuer.issuer}{path}", data=form, timeout=WAIT)


def registered(issuer: AuthorizationServer) -> str:
    metadata = {"redirect_uris": [BACK]}
    answer = requests.post(f"{issuer.issuer}/register", json=metadata, timeout=WAIT)
    assert answer.status_code == 201
    client: str = answer.json()["client_id"]
    return client


def authorize(issuer: AuthorizationServer, **query: str) -> requests.Response:
    address = f"{issuer.issuer}/authorize"
    return requests.get(address, params=query, allow_redirects=False, timeout=WAIT)


def sent_back(issuer: AuthorizationServer, client: str, **change: str) -> dict[str, str]:
    """Return the parameters of the redirect after a sign-in."""
    query = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": BACK,
        "state": "a state",
        "code_challenge": CHALLENGE.decode(),
        "code_challenge_method": "S256",
        "resource": RESOURCE,
    }
    answer = authorize(issuer, **{**query, **change})
    assert answer.status_code == 302
    assert answer.headers["location"].startswith(f"{BACK}?")
    back = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert (back["state"], back["iss"]) == ("a state", issuer.issuer)
    return back


def trade(issuer: AuthorizationServer, client: str, code: str, **change: str) -> requests.Response:
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "client_id": client,
        "redirect_uri": BACK,
        "code_verifier": VERIFIER,
        "resource": RESOURCE,
    }
    return post(issuer, "/token", **{**form, **change})


def test_who_signs_in_is_let_in_until_they_log_out(
    issuer: AuthorizationServer, http: HttpServer
) -> None:
    auth = OAuth(receiver=Person())
    with syncmcp.connect(syncmcp.Http(http.url, auth=auth)) as client:
        assert client.call_tool("read").text == "a line"
        issuer.expire()
        assert client.call_tool("read").text == "a line"
        token = auth.token
        assert token
        assert token.scope == "notes"
        headers = {"Authorization": f"Bearer {token.access_token}"}
        # The token is not valid at another server.
        with (
            serve_http(Server("other"), authorization_server=issuer) as other,
            pytest.raises(AuthError),
        ):
            syncmcp.connect(syncmcp.Http(other.url, headers=headers))
        syncmcp.connect(syncmcp.Http(http.url, headers=headers)).close()
        auth.logout()
        with pytest.raises(AuthError):
            syncmcp.connect(syncmcp.Http(http.url, headers=headers))
    assert issuer.granted == ["authorization_code", "refresh_token"]
    with pytest.raises(AuthError):
        syncmcp.connect(syncmcp.Http(http.sse_url), mode="2024-11-05")
    target = syncmcp.Http(http.sse_url, auth=OAuth(receiver=Person()))
    with syncmcp.connect(target, mode="2024-11-05") as client:
        assert client.call_tool("read").text == "a line"


def test_who_does_not_agree_or_whose_token_has_ended_is_not_let_in(
    issuer: AuthorizationServer, http: HttpServer
) -> None:
    def sign_in(**options: Any) -> None:
        syncmcp.connect(syncmcp.Http(http.url, auth=OAuth(**options)))

    issuer.agrees = False
    with pytest.raises(TokenRefused) as caught:
        sign_in(receiver=Person())
    assert (caught.value.error, issuer.granted) == ("access_denied", [])
    issuer.agrees = True
    store = MemoryStore()
    OAuth(http.url, receiver=Person(), store=store).login()
    issuer.forget()
    with pytest.raises(LoginRequired):
        sign_in(receiver=None, store=store)
    issuer.lifetime = 0.0
    with pytest.raises(AuthError):
        sign_in(receiver=Person())


@pytest.mark.parametrize("mode", ["2026-07-28", "2025-11-25"])
def test_faults_hit_calls_of_a_client_that_has_signed_in(
    issuer: AuthorizationServer, http: HttpServer, mode: Any
) -> None:
    with FaultProxy(http.url) as proxy:
        target = syncmcp.Http(proxy.url, auth=OAuth(receiver=Person()))
        with syncmcp.connect(target, mode=mode) as client:
            assert client.call_tool("read").text == "a line"
            proxy.queue(Cut("sent"), method="tools/call")
            with pytest.raises(syncmcp.OutcomeUnknown):
                client.call_tool("read")
            assert client.call_tool("read").text == "a line"
    assert issuer.granted == ["authorization_code"]


def test_without_its_token_no_request_gets_anything(http: HttpServer) -> None:
    for token in (None, "Bearer nonsense", "Basic bm9ib2R5Og=="):
        headers = {} if token is None else {"Authorization": token}
        for method in ("POST", "GET", "DELETE"):
            answer = requests.request(
                method, http.url, headers=headers, json={}, timeout=WAIT, auth=lambda sent: sent
            )
            assert (answer.status_code, method) == (401, method)
            told = answer.headers["WWW-Authenticate"]
            assert ('error="invalid_token"' in told) == (token is not None)


def test_a_code_is_good_once_and_for_what_it_was_asked_for_alone(
    issuer: AuthorizationServer,
) -> None:
    client = registered(issuer)
    code = sent_back(issuer, client)["code"]
    answer = trade(issuer, client, code)
    assert answer.status_code == 200
    assert trade(issuer, client, code).json() == {"error": "invalid_grant"}
    form = {"grant_type": "refresh_token", "client_id": client, "resource": RESOURCE}
    form["refresh_token"] = answer.json()["refresh_token"]
    assert post(issuer, "/token", **form).status_code == 200
    assert post(issuer, "/token", **form).json() == {"error": "invalid_grant"}
    for change in (
        {"code_verifier": "another"},
        {"redirect_uri": f"{BACK}/other"},
        {"client_id": "another"},
        {"resource": "http://127.0.0.1:2/mcp"},
    ):
        answer = trade(issuer, client, sent_back(issuer, client)["code"], **change)
        assert (answer.status_code, answer.json()) == (400, {"error": "invalid_grant"})
    for change in ({"code_challenge_method": "plain"}, {"code_challenge": ""}, {"resource": ""}):
        back = sent_back(issuer, client, **change)
        assert back["error"] == "invalid_request"
        assert "code" not in back
    # With an unknown client or redirect URI, there is no redirect.
    for change in ({"client_id": "x"}, {"redirect_uri": "http://evil.example/"}):
        query = {"client_id": client, "redirect_uri": BACK, **change}
        assert authorize(issuer, **query).status_code == 400


def test_a_page_whose_name_leads_here_gets_nothing(issuer: AuthorizationServer) -> None:
    metadata = "/.well-known/oauth-authorization-server"

    def status(path: str, **headers: str) -> int:
        ask = requests.post if path == "/register" else requests.get
        body = {"redirect_uris": [BACK]}
        address = f"{issuer.issuer}{path}"
        return ask(address, headers=headers, json=body, timeout=WAIT).status_code

    for name, value in (
        ("Host", "evil.example"),
        ("Host", "127.0.0.1.evil.example"),
        ("Origin", "https://evil.example"),
        ("Origin", "null"),
    ):
        for path in (metadata, "/authorize", "/resources/0", "/other", "/register"):
            assert (status(path, **{name: value}), value) == (403, value)
    # All names of this computer lead to it.
    port = urlsplit(issuer.issuer).port
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
        assert status(metadata, Host=host, Origin=f"http://{host}") == 200


def test_what_makes_no_sense_is_an_error_of_oauth(issuer: AuthorizationServer) -> None:
    for path, body, error in (
        ("/token", "grant_type=password", "unsupported_grant_type"),
        ("/token", "", "invalid_request"),
        ("/token", "grant_type=authorization_code", "invalid_request"),
        ("/revoke", "", "invalid_request"),
        ("/register", "{", "invalid_request"),
        ("/register", "{}", "invalid_request"),
    ):
        answer = requests.post(f"{issuer.issuer}{path}", data=body, timeout=WAIT)
        assert (answer.status_code, answer.json()) == (400, {"error": error})
    for path in ("/", "/resources/7", "/resources/x", "/nothing"):
        for ask in (requests.get, requests.post):
            assert ask(f"{issuer.issuer}{path}", timeout=WAIT).status_code == 404
