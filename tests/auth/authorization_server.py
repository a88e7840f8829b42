"""A scripted authorization server, and an MCP endpoint that uses it, on loopback."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, unquote_plus, urlencode, urlsplit

import requests

from syncmcp.auth import Deadline, OAuth, SignInRequest
from syncmcp.auth.receiver import Waiting
from syncmcp.auth.steps import Redirect
from syncmcp.auth.token_manager import TokenCache
from tests.transports.http_peer import RawServer, Request

WAIT = 10.0
"""The longest wait for an event that a test expects, in seconds."""


@dataclass
class Seen:
    """A received request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def bearer(self) -> str | None:
        scheme, _, token = self.headers.get("authorization", "").partition(" ")
        return token if scheme == "Bearer" else None


@dataclass
class Answer:
    """A response; with `None` as `status`, the server closes the connection instead."""

    status: int | None
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Route = Callable[[Seen], Answer]


class Site:
    """An HTTP server on loopback with some routes, which records its requests.

    Attributes:
        spelling: Converts the names of the response headers.
        metadata: The metadata that it publishes; tests change it.
    """

    metadata: dict[str, Any]

    def __init__(self) -> None:
        self.spelling: Callable[[str], str] = str.lower
        self.seen: list[Seen] = []
        self.routes: dict[tuple[str, str], Route] = {}
        self._server = RawServer(self._serve)
        self.origin = f"http://127.0.0.1:{self._server.port}"

    def _serve(self, request: Request) -> None:
        parts = urlsplit(request.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        seen = Seen(request.method, parts.path, query, request.headers, request.body)
        self.seen.append(seen)
        route = self.routes.get((seen.method, seen.path))
        answer = Answer(404, {"error": "not_found"}) if route is None else route(seen)
        if answer.status is not None:
            kind = "text/html" if isinstance(answer.body, str) else "application/json"
            theirs = {name.lower(): value for name, value in answer.headers.items()}
            headers = {"content-type": kind, "connection": "close", **theirs}
            spelt = {self.spelling(name): value for name, value in headers.items()}
            request.connection.respond(answer.status, _encoded(answer.body), spelt)
        # `requests` may hold its side open until garbage collection.
        request.connection.close()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def metadata_at(self, *paths: str) -> None:
        """Publish the metadata only at these paths."""
        for key in [key for key in self.routes if ".well-known" in key[1]]:
            del self.routes[key]
        for path in paths:
            self.routes["GET", path] = lambda _: Answer(200, self.metadata)

    def paths(self, method: str | None = None) -> list[str]:
        return [one.path for one in self.seen if method in (None, one.method)]

    def requests_to(self, path: str) -> list[Seen]:
        return [one for one in self.seen if one.path == path]


def _encoded(body: Any) -> bytes:
    if body is None or isinstance(body, bytes):
        return body or b""
    return (body if isinstance(body, str) else json.dumps(body)).encode()


class AuthorizationServer(Site):
    """An authorization server that grants every sign-in, with the checks of OAuth 2.1.

    Attributes:
        clients: The registered clients, by id: secret (or `None`) and authentication method.
        granted: Returns the granted scope for a requested one.
        callback: Returns the parameters of a redirect; tests replace it.
        expires_in: The lifetime of tokens, in seconds; `None`: responses do not contain it.
        refresh: Whether it issues refresh tokens.
    """

    def __init__(self, path: str = "", name: str = "") -> None:
        super().__init__()
        self.name = name
        self.issuer = f"{self.origin}{path}"
        self.metadata = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }
        self.clients: dict[str, tuple[str | None, str]] = {}
        self.granted: Callable[[str | None], str | None] = lambda asked: asked
        self.callback: Callable[[dict[str, str]], dict[str, str]] = lambda parameters: parameters
        self.expires_in: Any = 3600
        self.refresh = True
        self.token_answer: Callable[[Answer], Answer] = lambda answer: answer
        self.registered: Callable[[dict[str, Any]], Answer | None] = lambda metadata: None
        # Guards the fields below.
        self.lock = threading.Lock()
        self._numbers = itertools.count(1)
        self.codes: dict[str, dict[str, str]] = {}
        self.valid: dict[str, dict[str, Any]] = {}
        self.refreshable: dict[str, dict[str, Any]] = {}
        self.used_up: set[str] = set()
        self.reused = 0
        self.metadata_at(f"/.well-known/oauth-authorization-server{path}")
        self.routes["GET", f"{path}/authorize"] = self._authorize
        self.routes["POST", f"{path}/token"] = self._token
        self.routes["POST", f"{path}/register"] = self._register
        self.routes["POST", f"{path}/revoke"] = self._revoke

    def expire(self) -> None:
        """Invalidate all access tokens."""
        with self.lock:
            self.valid.clear()

    @property
    def authorizations(self) -> list[dict[str, str]]:
        """The queries of the authorization requests."""
        return [one.query for one in self.seen if one.path.endswith("/authorize")]

    @property
    def token_requests(self) -> list[Seen]:
        return [one for one in self.seen if one.path.endswith("/token")]

    def grants(self, kind: str) -> list[dict[str, str]]:
        """The forms of the token requests of one kind."""
        return [one.form for one in self.token_requests if one.form["grant_type"] == kind]

    def _authorize(self, seen: Seen) -> Answer:
        asked = seen.query
        code = f"code-{next(self._numbers)}-very-secret"
        with self.lock:
            self.codes[code] = asked
        back = {"code": code, "state": asked["state"], "iss": self.issuer}
        query = urlencode(self.callback(back))
        return Answer(302, None, {"Location": f"{asked['redirect_uri']}?{query}"})

    def _register(self, seen: Seen) -> Answer:
        metadata = seen.json
        other = self.registered(metadata)
        if other is not None:
            return other
        client_id = f"{self.name}client-{next(self._numbers)}"
        method = metadata["token_endpoint_auth_method"]
        secret = None if method == "none" else f"{client_id}-very-secret"
        with self.lock:
            self.clients[client_id] = (secret, method)
        answer = {**metadata, "client_id": client_id}
        if secret is not None:
            answer |= {"client_secret": secret, "client_secret_expires_at": 0}
        return Answer(201, answer)

    def client_of(self, seen: Seen) -> str | None:
        """Return the id of the client that the request authenticates, if its proof is right."""
        form = seen.form
        scheme, _, pair = seen.headers.get("authorization", "").partition(" ")
        if scheme == "Basic":
            client_id, _, secret = base64.b64decode(pair).decode().partition(":")
            proof: tuple[str | None, str] = (unquote_plus(secret), "client_secret_basic")
            client_id = unquote_plus(client_id)
        elif "client_secret" in form:
            client_id, proof = form["client_id"], (form["client_secret"], "client_secret_post")
        else:
            client_id, proof = form.get("client_id", ""), (None, "none")
        with self.lock:
            return client_id if self.clients.get(client_id) == proof else None

    def _token(self, seen: Seen) -> Answer:
        return self.token_answer(self._token_answer(seen))

    def _token_answer(self, seen: Seen) -> Answer:
        form = seen.form
        client = self.client_of(seen)
        if client is None:
            return Answer(401, {"error": "invalid_client"})
        with self.lock:
            if form["grant_type"] == "authorization_code":
                asked = self.codes.pop(form["code"], None)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if (
                    asked is None
                    or asked["code_challenge"] != challenge
                    or asked["client_id"] != client
                    or asked["redirect_uri"] != form["redirect_uri"]
                    or asked["resource"] != form["resource"]
                ):
                    return Answer(400, {"error": "invalid_grant"})
                scope = self.granted(asked.get("scope"))
                grant = {"client": client, "scope": scope, "resource": form["resource"]}
            else:
                secret = form["refresh_token"]
                if secret in self.used_up:
                    self.reused += 1
                    self.refreshable.clear()
                    self.valid.clear()
                found = self.refreshable.pop(secret, None)
                if found is None or found["client"] != client:
                    return Answer(400, {"error": "invalid_grant", "error_description": "no"})
                self.used_up.add(secret)
                grant = found
            number = next(self._numbers)
            answer: dict[str, Any] = {
                "access_token": f"access-{number}-very-secret",
                "token_type": "Bearer",
            }
            self.valid[answer["access_token"]] = grant
            if self.expires_in is not None:
                answer["expires_in"] = self.expires_in
            if grant["scope"] is not None:
                answer["scope"] = grant["scope"]
            if self.refresh:
                answer["refresh_token"] = f"refresh-{number}-very-secret"
                self.refreshable[answer["refresh_token"]] = grant
            return Answer(200, answer)

    def _revoke(self, seen: Seen) -> Answer:
        if self.client_of(seen) is None:
            return Answer(401, {"error": "invalid_client"})
        with self.lock:
            self.valid.pop(seen.form["token"], None)
            self.refreshable.pop(seen.form["token"], None)
        return Answer(200)


class ResourceServer(Site):
    """An MCP endpoint that requires tokens of an authorization server.

    Attributes:
        authorization_server: The server whose tokens it accepts.
        challenge: The value of `WWW-Authenticate` in a 401; `None`: no such header.
        needed: The scope that a request needs, by its JSON-RPC method.
        serve: Answers the authorized requests.
    """

    def __init__(self, server: AuthorizationServer, path: str = "/mcp") -> None:
        super().__init__()
        self.authorization_server = server
        self.url = f"{self.origin}{path}"
        self.path = path
        place = f"/.well-known/oauth-protected-resource{path}"
        self.metadata = {
            "resource": self.url,
            "authorization_servers": [server.issuer],
        }
        self.challenge: str | None = f'Bearer resource_metadata="{self.origin}{place}"'
        self.needed: dict[str, str] = {}
        self.serve: Route = lambda seen: Answer(200, {"token": seen.bearer})
        self.metadata_at(place)
        for method in ("GET", "POST", "DELETE"):
            self.routes[method, path] = self._mcp

    @property
    def calls(self) -> list[Seen]:
        """The requests to the endpoint itself."""
        return self.requests_to(self.path)

    def _mcp(self, seen: Seen) -> Answer:
        server = self.authorization_server
        with server.lock:
            grant = server.valid.get(seen.bearer or "")
        if grant is None or grant["resource"] != self.metadata["resource"]:
            headers = {} if self.challenge is None else {"WWW-Authenticate": self.challenge}
            return Answer(401, {"error": "unauthorized"}, headers)
        method = seen.json["method"] if seen.body else ""
        needed = self.needed.get(method)
        if needed is not None and not set(needed.split()) <= set((grant["scope"] or "").split()):
            challenge = f'Bearer error="insufficient_scope", scope="{needed}"'
            return Answer(403, {"error": "forbidden"}, {"WWW-Authenticate": challenge})
        return self.serve(seen)


class Person:
    """A receiver that plays a person who follows the link at once and comes back.

    Args:
        redirect_uri: The redirect URI; nothing listens there.
        before: Called before the link is opened, on the thread of `receive`.
        agrees: Returns whether the person agrees to a sign-in; runs on the thread that asks.
    """

    def __init__(
        self,
        redirect_uri: str = "http://127.0.0.1:1455/callback",
        before: Callable[[Redirect], object] = lambda redirect: None,
        agrees: Callable[[SignInRequest], bool] = lambda request: True,
    ) -> None:
        self.redirect_uri = redirect_uri
        self.before = before
        self.agrees = agrees
        self.asked: list[SignInRequest] = []
        self.redirects: list[Redirect] = []
        self.registered: list[Sequence[str]] = []

    def agree(self, request: SignInRequest, deadline: Deadline) -> bool:
        self.asked.append(request)
        return self.agrees(request)

    def start(self, registered: Sequence[str] = ()) -> Waiting:
        self.registered.append(registered)
        return self

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there is nothing to release."""

    def receive(self, redirect: Redirect, deadline: Deadline) -> Mapping[str, str]:
        self.redirects.append(redirect)
        self.before(redirect)
        response = requests.get(
            redirect.url, allow_redirects=False, timeout=WAIT, auth=lambda request: request
        )
        response.close()
        target = response.headers["Location"]
        assert target.startswith(f"{self.redirect_uri}?"), "nobody listens there"
        return dict(parse_qsl(urlsplit(target).query))


@contextmanager
def world(path: str = "/mcp", issuer_path: str = "") -> Iterator[ResourceServer]:
    """A running MCP endpoint and its authorization server."""
    with AuthorizationServer(issuer_path) as server, ResourceServer(server, path) as resource:
        yield resource


def denied(back: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the redirect when the person denies the sign-in."""
    return {"state": back["state"], "iss": back["iss"], "error": "access_denied"}


def call(resource: ResourceServer, auth: Any, method: str = "ping", **options: Any) -> Any:
    """Send one JSON-RPC request with plain `requests`."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method}
    with requests.post(resource.url, json=message, auth=auth, timeout=WAIT, **options) as response:
        return response


@contextmanager
def signed_in(store: Any = None, **settings: Any) -> Iterator[tuple[ResourceServer, OAuth, Person]]:
    """A server, an `OAuth` that has signed in there, and the person who did."""
    with world() as resource:
        for name, value in settings.items():
            setattr(resource.authorization_server, name, value)
        person = Person()
        auth = OAuth(receiver=person, store=store)
        assert call(resource, auth).status_code == 200
        yield resource, auth, person


def token_cache(auth: OAuth) -> TokenCache:
    """Return the cache that holds the login of a bound object."""
    assert auth._manager is not None
    return auth._manager.cache
