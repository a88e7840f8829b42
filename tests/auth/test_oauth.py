"""Signing in, end to end: from a 401 to a token in each request, over real sockets.

`test_discovery.py`, `test_registration.py` and `test_flow.py` test each kind of server, client and
proof without sockets; `tests/system/conformance` and `tests/system/peers/test_oauth.py` test with
independent servers.
"""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from typing import Any

import pytest
import requests

import syncmcp
from syncmcp.auth import LoopbackReceiver, MemoryStore, OAuth
from syncmcp.errors import (
    AuthError,
    DiscoveryFailed,
    LoginRequired,
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


def through(endpoint: HttpEndpoint) -> Any:
    """Return a route that forwards authorized requests to an endpoint."""

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


@pytest.mark.requirement("AUD-01", "AUD-02", "FLW-01", "FLW-04", "TOK-01", "TOK-02")
def test_a_401_leads_to_a_login_and_the_token_to_each_request_in_its_header_alone() -> None:
    with world() as resource:
        auth = OAuth(receiver=Person())
        response = call(resource, auth)
        server = resource.authorization_server
        assert response.status_code == 200
        assert [one.status_code for one in response.history] == [401]
        assert server.paths() == [
            "/.well-known/oauth-authorization-server",
            *("/register", "/authorize", "/token"),
        ]
        (asked,), (form,) = server.authorizations, server.grants("authorization_code")
        assert asked["resource"] == form["resource"] == resource.url
        assert asked["code_challenge_method"] == "S256"
        for _ in range(2):
            call(resource, auth)
        assert auth.token is not None
        secret = auth.token.access_token
        assert [one.bearer for one in resource.calls] == [None] + [secret] * 3
        auth.logout()
        for one in resource.seen + server.seen:
            assert secret not in f"{one.path}{one.query}"
            assert b"access-" not in one.body or one.path.endswith("/revoke")


@pytest.mark.requirement("TOK-01", "TOK-02")
def test_a_get_of_a_stream_carries_the_token_in_its_header_and_nowhere_else() -> None:
    endpoint, came = HttpEndpoint(Server(), response="json"), threading.Event()
    answered: Route = through(endpoint)

    def serve(seen: Seen) -> Answer:
        if seen.method == "GET":
            came.set()
        return answered(seen)

    with world() as resource, closing(endpoint):
        resource.serve = serve
        auth = OAuth(resource.url, receiver=Person())
        token = auth.login().access_token
        with syncmcp.connect(syncmcp.Http(resource.url, auth=auth), mode="legacy"):
            assert came.wait(WAIT)
        assert {one.bearer for one in resource.calls if one.method == "GET"} == {token}
        for one in resource.seen + resource.authorization_server.seen:
            assert token not in f"{one.path}{one.query}"


def test_a_client_that_cannot_sign_in_says_why() -> None:
    with world() as resource:
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=None))
        with pytest.raises(LoginRequired, match=r"login\(\) on an OAuth with a receiver") as caught:
            syncmcp.connect(config)
        assert caught.value.delivery == "refused"
        assert not resource.authorization_server.seen
        resource.metadata["authorization_servers"] = "nonsense"
        config = syncmcp.Http(resource.url, auth=OAuth(receiver=Person()))
        with pytest.raises(DiscoveryFailed, match="no authorization server"):
            syncmcp.connect(config)


# Client registration


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


# Which server


@pytest.mark.requirement("FLW-03", "REG-10")
def test_nobody_signs_in_without_pkce_nor_comes_back_to_another_machine() -> None:
    with world() as resource:
        server = resource.authorization_server
        with pytest.raises(UsageError, match="redirect URI"):
            call(resource, OAuth(receiver=Person("http://app.example/callback")))
        assert not server.authorizations
        server.seen.clear()
        del server.metadata["code_challenge_methods_supported"]
        with pytest.raises(DiscoveryFailed, match="PKCE"):
            call(resource, OAuth(receiver=Person()))
        assert len(server.seen) == 1


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
        sent = "".join(f"{one.query}{one.headers}{one.body!r}" for one in new.seen)
        assert first.client_id == "old-client-1"
        for secret in ("old-", first.access_token, str(first.refresh_token)):
            assert secret not in sent
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
        with pytest.raises(AuthError, match="issuer that was named" if pinned else "belong to"):
            call(resource, auth)
        assert not new.authorizations


@pytest.mark.requirement("SEC-05", "ASC-02")
def test_no_page_is_opened_that_is_not_encrypted(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = socket.getaddrinfo

    def find(name: str, *args: Any, **options: Any) -> Any:
        return look_up("93.184.215.14" if name == "login.example" else name, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", find)
    with world() as resource:
        person = Person()
        resource.authorization_server.metadata["authorization_endpoint"] = "http://login.example/a"
        with pytest.raises(AuthError, match="not encrypted"):
            call(resource, OAuth(receiver=person, allow_private=True))
        assert (person.asked, person.redirects) == ([], [])


@pytest.mark.requirement("SEC-03", "SEC-05", "ASC-02")
@pytest.mark.parametrize(
    ("kind", "endpoint"),
    [
        ("authorization", "javascript:alert(1)"),
        *((kind, "http://as.example/x") for kind in ("token", "registration")),
    ],
)
def test_no_endpoint_is_used_that_is_not_encrypted(kind: str, endpoint: str) -> None:
    with world() as resource:
        person = Person()
        resource.authorization_server.metadata[f"{kind}_endpoint"] = endpoint
        with pytest.raises(AuthError):
            call(resource, OAuth(receiver=person))
        assert kind == "token" or not person.redirects


@pytest.mark.requirement("TOK-03")
def test_one_object_is_for_one_server_whose_redirects_take_no_token_elsewhere() -> None:
    with world() as resource, world() as other:
        auth = OAuth(receiver=Person())
        call(resource, auth)
        with pytest.raises(UsageError, match="another server needs its own"):
            call(other, auth)
        assert not other.seen
        resource.serve = lambda _: Answer(307, None, {"Location": other.url})
        assert call(resource, auth).status_code == 401
        assert [one.headers.get("authorization") for one in other.calls] == [None]
        assert not other.authorization_server.authorizations
    with pytest.raises(UsageError, match="which server"):
        OAuth(receiver=None).login()


def test_what_is_not_ours_to_answer_or_cannot_be_sent_again_asks_nobody_to_sign_in() -> None:
    person = Person()
    with world() as resource:
        auth = OAuth(receiver=person)
        # A DELETE ends the session; the body of an iterator cannot be sent twice.
        with requests.delete(resource.url, auth=auth, timeout=WAIT) as response:
            assert response.status_code == 401
        body = iter([b"{}"])
        with requests.post(resource.url, data=body, auth=auth, timeout=WAIT) as response:
            assert response.status_code != 200
        resource.challenge = 'Basic realm="r"'
        assert call(resource, auth).status_code == 401
    assert person.redirects == []


# People


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


def test_what_cannot_be_is_refused_when_it_is_given() -> None:
    wrong: list[dict[str, Any]] = [{"receiver": "chrome"}, {"scopes": "a b"}]
    for options in wrong:
        with pytest.raises(UsageError):
            OAuth(**options)
    for nonsense in ("ftp://h/mcp", "mcp.example", "https://"):
        with pytest.raises(UsageError):
            OAuth(nonsense)
    with pytest.raises(UsageError, match="a receiver has its own redirect"):
        OAuth(receiver=Person(), redirect_uri="http://localhost:1/x")


def test_the_default_is_the_browser_and_a_redirect_uri_says_where_it_comes_back_to() -> None:
    assert isinstance(OAuth()._receiver, LoopbackReceiver)
    assert OAuth().token is None
    fixed = OAuth(redirect_uri="http://localhost:0/back")._receiver
    assert isinstance(fixed, LoopbackReceiver)
    with fixed.start() as waiting:
        assert waiting.redirect_uri.endswith("/back")
