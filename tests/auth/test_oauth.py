"""Signing in, end to end: from a 401 to a token in each request, over real sockets."""

from __future__ import annotations

import base64
import pickle
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp._http.exchange import current
from syncmcp.auth import LoopbackReceiver, MemoryStore, OAuth
from syncmcp.errors import (
    AuthError,
    DiscoveryFailed,
    LoginRequired,
    RegistrationFailed,
    RequestTimeout,
    TokenRefused,
    UsageError,
)
from syncmcp.testing import Server
from syncmcp.testing.server.http import HttpEndpoint
from tests.auth.authorization_server import (
    WAIT,
    Answer,
    AuthorizationServer,
    Person,
    Route,
    Seen,
    call,
    world,
)

DOCUMENT = "https://app.example/client.json"


def through(endpoint: HttpEndpoint) -> Any:
    """Answer what is let through as a real endpoint does."""

    def serve(seen: Seen) -> Answer:
        if seen.method == "DELETE":
            reply = endpoint.handle_delete(seen.headers)
        elif seen.method == "GET":
            return Answer(405)
        else:
            reply = endpoint.handle_post(seen.headers, seen.body)
        assert isinstance(reply.body, bytes)
        return Answer(reply.status, reply.body, reply.headers)

    return serve


@pytest.mark.requirement("AUD-01", "AUD-02", "FLW-01", "FLW-02", "FLW-04", "REG-01")
def test_a_401_leads_to_a_login_and_the_request_is_made_again() -> None:
    with world() as resource:
        response = call(resource, OAuth(receiver=Person()))
        server = resource.authorization_server
        assert response.status_code == 200
        assert [one.status_code for one in response.history] == [401]
        assert server.paths() == [
            "/.well-known/oauth-authorization-server",
            "/register",
            "/authorize",
            "/token",
        ]
        (asked,), (form,) = server.authorizations, server.grants("authorization_code")
        assert asked["resource"] == form["resource"] == resource.url
        assert asked["code_challenge_method"] == "S256"


@pytest.mark.requirement("TOK-01", "TOK-02", "FLW-01")
def test_every_request_carries_the_token_in_its_header_and_nowhere_else() -> None:
    with world() as resource:
        auth = OAuth(receiver=Person())
        for _ in range(3):
            call(resource, auth)
        token = auth.token
        assert token is not None
        assert [one.bearer for one in resource.calls] == [None] + [token.access_token] * 3
        assert not any(b"access-" in one.body for one in resource.seen)
        auth.logout()
        for site in (resource, resource.authorization_server):
            for one in site.seen:
                assert token.access_token not in f"{one.path}{one.query}"
                assert b"access-" not in one.body or one.path.endswith("/revoke")


@pytest.mark.requirement("TOK-01", "TOK-02")
@pytest.mark.parametrize("kind", ["listening", "taking up", "of an old server"])
def test_a_get_of_a_stream_carries_the_token_in_its_header_and_nowhere_else(kind: str) -> None:
    endpoint = HttpEndpoint(Server(), response="json")
    answered: Route = through(endpoint)
    came = threading.Event()
    events = {"Content-Type": "text/event-stream"}

    def serve(seen: Seen) -> Answer:
        if seen.method == "GET":
            if kind != "taking up" or "last-event-id" in seen.headers:
                came.set()
            if kind == "of an old server":
                return Answer(200, b"event: endpoint\ndata: /messages\n\n", events)
        elif kind == "taking up" and seen.body and seen.json["method"] == "ping":
            return Answer(200, b"retry: 1\nid: 7\ndata:\n\n", events)  # and ends before its answer
        answer: Answer = answered(seen)
        return answer

    with world() as resource:
        resource.serve = serve
        auth = OAuth(resource.url, receiver=Person())
        token = auth.login().access_token
        old = kind == "of an old server"
        config = syncmcp.Http(resource.url, auth=auth, transport="sse" if old else "auto")
        with suppress(syncmcp.McpError), syncmcp.connect(config, mode="legacy") as client:
            if kind == "taking up":
                client.ping()
            assert came.wait(WAIT)
        assert came.is_set()
        streams = [one for one in resource.calls if one.method == "GET"]
        assert [one.bearer for one in streams] == [token] * len(streams)
        assert [one.query for one in resource.calls] == [{}] * len(resource.calls)
        for one in resource.seen + resource.authorization_server.seen:
            assert token not in f"{one.path}{one.query}"
    endpoint.close()


@pytest.mark.requirement("TOK-01", "AUD-02")
@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
def test_a_client_signs_in_and_calls_in_either_era(mode: Any) -> None:
    person = Person()
    server = Server()

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    endpoint = HttpEndpoint(server, response="json")
    with world() as resource:
        resource.serve = through(endpoint)
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=person))
        with syncmcp.connect(config, mode=mode) as client:
            assert client.call_tool("add", {"a": 1, "b": 2}).text == "3"
        assert len(person.redirects) == 1
        assert all(one.bearer for one in resource.calls[1:])
    endpoint.close()


def test_the_time_that_a_person_takes_counts_for_no_call() -> None:
    clocks: list[float | None] = []

    def look(_: Any) -> None:
        exchange = current()
        assert exchange is not None
        clocks.append(exchange.deadline.remaining())

    endpoint = HttpEndpoint(Server(), response="json")
    with world() as resource:
        resource.serve = through(endpoint)
        auth = OAuth(receiver=Person(before=look))
        with syncmcp.connect(syncmcp.Http(resource.url, auth=auth), mode="2026-07-28"):
            assert auth.token is not None
    assert clocks == [None]  # it stands still
    endpoint.close()


def test_a_call_ends_by_its_deadline_while_a_token_endpoint_is_silent() -> None:
    go_on, person = threading.Event(), Person()

    def silent(answer: Answer) -> Answer:
        assert go_on.wait(WAIT)
        return answer

    endpoint = HttpEndpoint(Server(), response="json")
    with world() as resource:
        server = resource.authorization_server
        resource.serve = through(endpoint)
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=person))
        with syncmcp.connect(config, mode="2025-11-25") as client:
            server.expire()
            server.token_answer = silent
            with pytest.raises(RequestTimeout):
                client.ping(timeout=0.3)
            go_on.set()
            client.ping()
        assert len(server.grants("refresh_token")) == 1
        assert len(person.redirects) == 1
    endpoint.close()


@pytest.mark.parametrize("era", ["auto", "legacy"])
def test_a_client_that_cannot_sign_in_says_why(era: Any) -> None:
    with world() as resource:
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=None))
        with pytest.raises(LoginRequired, match="receiver") as caught:
            syncmcp.connect(config, mode=era)
        assert caught.value.delivery == "refused"
        resource.metadata["authorization_servers"] = "nonsense"
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=Person()))
        with pytest.raises(DiscoveryFailed, match="no authorization server"):
            syncmcp.connect(config, mode=era)
        resource.metadata["resource"] = ["nonsense"]
        with pytest.raises(DiscoveryFailed, match="malformed"):
            syncmcp.connect(config, mode=era)


@pytest.mark.requirement("FLW-10")
@pytest.mark.parametrize("state", ["theirs", "", None])
def test_a_redirect_with_another_state_is_dropped_with_its_code(state: str | None) -> None:
    with world() as resource:
        server = resource.authorization_server

        def altered(back: dict[str, str]) -> dict[str, str]:
            others = {name: value for name, value in back.items() if name != "state"}
            return others if state is None else {**others, "state": state}

        server.callback = altered
        auth = OAuth(receiver=Person())
        for _ in range(2):
            with pytest.raises(AuthError, match="without the state"):
                call(resource, auth)
        assert server.token_requests == []
        assert auth.token is None
        sent = [one["state"] for one in server.authorizations]
        assert len(set(sent)) == 2
        assert all(len(each) >= 22 for each in sent)  # 128 random bits


# Who the client is


@pytest.mark.requirement("REG-02", "REG-11")
@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
def test_a_client_id_of_the_user_is_used_without_registration(method: str) -> None:
    with world() as resource:
        server = resource.authorization_server
        server.clients["mine"] = ("secret:very%", method)
        server.metadata["token_endpoint_auth_methods_supported"] = [method]
        auth = OAuth(
            client_id="mine",
            client_secret="secret:very%",
            issuer=server.issuer,
            receiver=Person(),
        )
        assert call(resource, auth).status_code == 200
        assert "/register" not in server.paths()
        (request,) = server.token_requests
        assert ("authorization" in request.headers) == (method == "client_secret_basic")
        assert ("client_secret" in request.form) == (method == "client_secret_post")
        assert "secret:very%" not in repr(auth) + repr(auth.token) + repr(vars(auth))


@pytest.mark.requirement("REG-02", "REG-03")
def test_a_metadata_document_serves_as_client_id() -> None:
    with world() as resource:
        server = resource.authorization_server
        server.metadata["client_id_metadata_document_supported"] = True
        server.clients[DOCUMENT] = (None, "none")
        auth = OAuth(client_metadata_url=DOCUMENT, receiver=Person())
        assert call(resource, auth).status_code == 200
        assert server.authorizations[0]["client_id"] == DOCUMENT
        assert "/register" not in server.paths()


def test_a_registered_secret_proves_the_client() -> None:
    with world() as resource:
        server = resource.authorization_server
        server.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_basic"]
        assert call(resource, OAuth(receiver=Person())).status_code == 200
        (request,) = server.token_requests
        pair = base64.b64decode(request.headers["authorization"].partition(" ")[2]).decode()
        assert pair == "client-1:client-1-very-secret"


@pytest.mark.requirement("REG-06", "REG-09")
def test_a_registration_is_kept_for_the_next_login_with_the_same_redirect() -> None:
    with world() as resource:
        store, server = MemoryStore(), resource.authorization_server
        people = [Person(f"http://127.0.0.1:{port}/a") for port in (1, 1, 2)]
        for person in people:
            auth = OAuth(receiver=person, store=store)
            call(resource, auth)
            auth.logout()
        assert server.paths().count("/register") == 2
        assert people[2].registered == [("http://127.0.0.1:1/a",)]


@pytest.mark.requirement("REG-05")
def test_a_refused_redirect_address_is_an_error_before_anybody_is_sent_anywhere() -> None:
    with world() as resource:
        server, person = resource.authorization_server, Person()
        server.registered = lambda _: Answer(400, {"error": "invalid_redirect_uri"})
        with pytest.raises(RegistrationFailed, match="redirect_uri="):
            call(resource, OAuth(receiver=person))
        assert not person.redirects


@pytest.mark.requirement("REG-10")
def test_a_redirect_goes_to_this_machine_or_is_encrypted() -> None:
    with world() as resource:
        with pytest.raises(UsageError, match="redirect URI"):
            call(resource, OAuth(receiver=Person("http://app.example/callback")))
        assert not resource.authorization_server.authorizations


# Which server


@pytest.mark.requirement("AUD-12")
def test_metadata_about_another_resource_end_the_login() -> None:
    with world() as resource:
        resource.metadata["resource"] = "https://evil.example/mcp"
        with pytest.raises(DiscoveryFailed, match="another one"):
            call(resource, OAuth(receiver=Person()))
        assert not resource.authorization_server.seen


@pytest.mark.requirement("AUD-07")
def test_metadata_of_another_issuer_end_the_login() -> None:
    with world() as resource:
        resource.authorization_server.metadata["issuer"] += "/"
        with pytest.raises(DiscoveryFailed, match="another issuer"):
            call(resource, OAuth(receiver=Person()))
        assert len(resource.authorization_server.seen) == 1


@pytest.mark.requirement("FLW-03")
def test_a_server_that_does_not_offer_pkce_is_not_used() -> None:
    with world() as resource:
        del resource.authorization_server.metadata["code_challenge_methods_supported"]
        with pytest.raises(DiscoveryFailed, match="PKCE"):
            call(resource, OAuth(receiver=Person()))
        assert len(resource.authorization_server.seen) == 1


@pytest.mark.requirement("AUD-03", "AUD-05")
def test_a_server_that_says_nothing_is_asked_at_the_well_known_addresses() -> None:
    with world(issuer_path="/t1") as resource:
        resource.challenge = None
        server = resource.authorization_server
        server.metadata_at("/t1/.well-known/openid-configuration")
        resource.metadata_at("/.well-known/oauth-protected-resource")
        resource.metadata["resource"] = resource.origin
        assert call(resource, OAuth(receiver=Person())).status_code == 200
        assert server.authorizations[0]["resource"] == resource.origin


@pytest.mark.requirement("AUD-08")
@pytest.mark.parametrize("published", [True, False])
def test_an_old_server_is_its_own_authorization_server(published: bool) -> None:
    with AuthorizationServer() as server:
        if not published:
            server.metadata_at()
        url = f"{server.origin}/mcp"

        def mcp(seen: Seen) -> Answer:
            return Answer(200 if seen.bearer in server.valid else 401)

        server.routes["POST", "/mcp"] = mcp
        auth = OAuth(receiver=Person())
        with requests.post(url, json={}, auth=auth, timeout=WAIT) as response:
            assert response.status_code == 200
        assert auth.token is not None
        assert auth.token.resource == url


@pytest.mark.requirement("AUD-10", "AUD-11", "REG-06", "REG-07", "TOK-03")
def test_when_the_authorization_server_changes_nothing_of_the_old_one_is_used() -> None:
    with world() as resource, AuthorizationServer(name="new-") as new:
        old, auth = resource.authorization_server, OAuth(receiver=Person())
        old.name = "old-"
        call(resource, auth)
        first = auth.token
        assert first is not None
        resource.metadata["authorization_servers"] = [new.issuer]
        resource.authorization_server = new
        old.refreshable.clear()
        assert call(resource, auth).status_code == 200
        assert "/register" in new.paths()
        sent = [f"{one.query}{one.headers}{one.body!r}" for one in new.seen]
        assert first.client_id == "old-client-1"
        for secret in ("old-", first.access_token, str(first.refresh_token)):
            assert not any(secret in text for text in sent)
        assert auth.token is not None
        assert auth.token.issuer == new.issuer


@pytest.mark.requirement("REG-08", "AUD-11")
@pytest.mark.parametrize("pinned", [True, False])
def test_a_given_client_id_is_not_tried_at_another_authorization_server(pinned: bool) -> None:
    with world() as resource, AuthorizationServer() as new:
        old = resource.authorization_server
        old.clients["mine"] = (None, "none")
        auth = OAuth(client_id="mine", issuer=old.issuer if pinned else None, receiver=Person())
        call(resource, auth)
        resource.metadata["authorization_servers"] = [new.issuer]
        old.expire()
        old.refreshable.clear()
        with pytest.raises(AuthError, match="configured" if pinned else "belong to"):
            call(resource, auth)
        assert not new.authorizations


@pytest.mark.requirement("FLW-07", "FLW-09")
def test_a_redirect_from_another_issuer_leads_to_no_token_request() -> None:
    with world() as resource:
        server = resource.authorization_server
        server.callback = lambda back: {**back, "iss": f"{server.issuer}/", "error": "canary"}
        with pytest.raises(AuthError, match="another authorization server") as caught:
            call(resource, OAuth(receiver=Person()))
        assert "canary" not in str(caught.value)
        assert not server.token_requests


@pytest.mark.requirement("SEC-03", "SEC-05", "ASC-02")
@pytest.mark.parametrize(
    "endpoint",
    ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "http://as.example/a", "//x"],
)
def test_only_web_addresses_are_opened(endpoint: str) -> None:
    with world() as resource:
        person = Person()
        resource.authorization_server.metadata["authorization_endpoint"] = endpoint
        with pytest.raises(AuthError):
            call(resource, OAuth(receiver=person))
        assert not person.redirects


@pytest.mark.requirement("SEC-05", "ASC-02")
@pytest.mark.parametrize("host", ["93.184.215.14", "login.example"])
def test_no_page_is_opened_that_is_not_encrypted(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_up = socket.getaddrinfo

    def find(name: str, *args: Any, **options: Any) -> Any:
        return look_up("93.184.215.14" if name == "login.example" else name, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", find)
    with world() as resource:
        person = Person()
        resource.authorization_server.metadata["authorization_endpoint"] = f"http://{host}/a"
        with pytest.raises(AuthError, match="not encrypted"):
            call(resource, OAuth(receiver=person, allow_private=True))
        assert (person.asked, person.redirects) == ([], [])


@pytest.mark.requirement("SEC-05", "ASC-02")
@pytest.mark.parametrize("member", ["token_endpoint", "registration_endpoint"])
def test_no_endpoint_is_used_that_is_not_encrypted(member: str) -> None:
    with world() as resource:
        resource.authorization_server.metadata[member] = "http://as.example/endpoint"
        with pytest.raises(AuthError):
            call(resource, OAuth(receiver=Person()))


def test_one_object_is_for_one_server() -> None:
    with world() as resource, world() as other:
        auth = OAuth(receiver=Person())
        call(resource, auth)
        with pytest.raises(UsageError, match="one of its own"):
            call(other, auth)
        assert not other.seen
        with pytest.raises(UsageError, match="which server"):
            OAuth(receiver=None).login()


@pytest.mark.requirement("TOK-03")
def test_a_redirect_to_another_server_takes_no_token_along_and_starts_no_login() -> None:
    with world() as resource, world() as other:
        auth, person = OAuth(receiver=Person()), Person()
        call(resource, auth)
        resource.serve = lambda _: Answer(307, None, {"Location": other.url})
        response = call(resource, auth)
        assert response.status_code == 401
        assert [one.headers.get("authorization") for one in other.calls] == [None]
        assert not person.redirects


@pytest.mark.pitfall("H4")
def test_a_netrc_file_does_not_replace_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login u password p\ndefault login u password p\n")
    monkeypatch.setenv("NETRC", str(netrc))
    with world() as resource:
        assert call(resource, OAuth(receiver=Person())).status_code == 200
        for site in (resource, resource.authorization_server):
            sent = [one.headers.get("authorization", "") for one in site.seen]
            assert not any(value.startswith("Basic") for value in sent)


def test_a_challenge_of_another_scheme_is_not_ours_to_answer() -> None:
    with world() as resource:
        resource.challenge = 'Basic realm="r"'
        person = Person()
        assert call(resource, OAuth(receiver=person)).status_code == 401
        assert not person.redirects


# People


@pytest.mark.parametrize("with_store", [True, False])
def test_without_anybody_to_ask_an_error_says_what_to_do(with_store: bool) -> None:
    with world() as resource:
        store = MemoryStore() if with_store else None
        with pytest.raises(LoginRequired, match=r"login\(\) on an OAuth with a receiver"):
            call(resource, OAuth(receiver=None, store=store))
        assert not resource.authorization_server.seen


def test_a_login_elsewhere_serves_whoever_shares_its_store() -> None:
    with world() as resource:
        store = MemoryStore()
        token = OAuth(resource.url, receiver=Person(), store=store).login()
        silent = OAuth(receiver=None, store=store)
        assert silent.token is None
        assert call(resource, silent).json() == {"token": token.access_token}
        assert silent.token == token
        assert OAuth(resource.url, store=store, receiver=None).token == token
        pinned = OAuth(resource.url, store=store, receiver=None, issuer="https://as.example")
        assert pinned.token is None


def test_a_login_can_come_before_the_first_request() -> None:
    with world() as resource:
        resource.metadata_at("/custom")
        resource.challenge = f'Bearer resource_metadata="{resource.origin}/custom", scope="a"'
        person = Person()
        auth = OAuth(resource.url, receiver=person)
        token = auth.login()
        assert token.scope == "a"
        assert call(resource, auth).json() == {"token": token.access_token}
        assert auth.login() != token
        assert len(person.redirects) == 2


@pytest.mark.requirement("FLW-09")
def test_a_person_who_says_no_ends_the_call() -> None:
    with world() as resource:
        server = resource.authorization_server
        server.callback = lambda back: {
            "state": back["state"], "iss": back["iss"], "error": "access_denied"
        }  # fmt: skip
        with pytest.raises(TokenRefused) as caught:
            call(resource, OAuth(receiver=Person()))
        assert caught.value.error == "access_denied"
        assert not server.token_requests


def test_the_end_of_a_session_asks_nobody_to_sign_in() -> None:
    with world() as resource:
        person = Person()
        auth = OAuth(receiver=person)
        with requests.delete(resource.url, auth=auth, timeout=WAIT) as response:
            assert response.status_code == 401
        assert not person.redirects


def test_a_body_that_was_read_while_it_was_sent_is_not_sent_again() -> None:
    with world() as resource:
        person = Person()
        body = iter([b"{}"])
        with requests.post(
            resource.url, data=body, auth=OAuth(receiver=person), timeout=WAIT
        ) as response:
            assert response.status_code != 200
        assert not person.redirects


@pytest.mark.parametrize("options", [{"receiver": "chrome"}, {"scopes": "a b"}])
def test_what_cannot_be_is_refused_when_it_is_given(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        OAuth(**options)
    with pytest.raises(UsageError, match="knows its redirect"):
        OAuth(receiver=Person(), redirect_uri="http://localhost:1/x")


def test_the_default_is_the_browser_and_a_redirect_uri_says_where_it_comes_back_to() -> None:
    receiver = OAuth()._receiver
    assert isinstance(receiver, LoopbackReceiver)
    fixed = OAuth(redirect_uri="http://localhost:0/back")._receiver
    assert isinstance(fixed, LoopbackReceiver)
    with fixed.start() as waiting:
        assert waiting.redirect_uri.endswith("/back")
    for nonsense in ("ftp://h/mcp", "mcp.example", "https://"):
        with pytest.raises(UsageError):
            OAuth(nonsense)


# Secrets


def test_no_secret_is_shown_or_pickled() -> None:
    with world() as resource:
        auth = OAuth(receiver=None, store=None)
        shown = repr(auth)
        auth = OAuth(receiver=Person())
        call(resource, auth)
        token = auth.token
        assert token is not None
        shown += repr(auth) + repr(token) + str(token) + repr(vars(auth))
        auth._receiver = None  # ours is no part of the library
        copy = pickle.loads(pickle.dumps(auth))
        shown += repr(pickle.dumps(auth)) + repr(vars(copy))
        assert "very-secret" not in shown
        assert copy.token is None
        assert "***" in repr(token)
