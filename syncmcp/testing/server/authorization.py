"""An OAuth authorization server for tests and demos, which grants every request at once."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode

from syncmcp.testing.listener import HOST, LOOPBACK, Closing
from syncmcp.testing.server.events import HttpReply
from syncmcp.testing.server.http_listener import HttpRequest, find_foreign_host, listen_http
from syncmcp.testing.server.wire import listed

_METADATA = "/.well-known/oauth-authorization-server"
_RESOURCES = "/resources/"
_JSON = {"content-type": "application/json", "cache-control": "no-store"}


@dataclass(frozen=True)
class _Grant:
    """The terms of a grant, by which a code or token is checked."""

    client: str
    resource: str
    scope: str
    redirect_uri: str = ""
    challenge: str = ""
    expires: float = 0.0


class _OAuthError(Exception):
    """An OAuth error (RFC 6749 §5.2); its text is the error code."""


class AuthorizationServer(Closing):
    """An OAuth 2.1 authorization server on loopback, for `serve_http(authorization_server=...)`.

    It serves `OAuth`, not `ClientCredentials`: it registers every client and grants authorization
    without a password. It checks PKCE with S256, the redirect URI and the resource. Codes and
    refresh tokens are valid once. A request with another `Host` or `Origin` than loopback gets 403.
    Use it for nothing but tests and demos: it is not safe.

    >>> import threading, urllib.request
    >>> from syncmcp.auth import LoopbackReceiver, OAuth
    >>> from syncmcp.testing import AuthorizationServer, serve_http
    >>> def visit(text):  # in place of a person with a browser
    ...     url = next(word for word in text.split() if word.startswith("http"))
    ...     threading.Thread(target=urllib.request.urlopen, args=[url]).start()
    >>> receiver = LoopbackReceiver(open_browser=False, show=visit)
    >>> with AuthorizationServer() as issuer:
    ...     login = OAuth(allow=issuer.issuer, receiver=receiver)
    ...     with serve_http(server, authorization_server=issuer) as http:
    ...         with syncmcp.connect(syncmcp.Http(http.url, auth=login)) as client:
    ...             print(client.call_tool("add", {"a": 1, "b": 2}).text)
    3

    Args:
        port: The port; 0 picks a free port.
        lifetime: The lifetime of access tokens, in seconds.
        scopes: The `scopes_supported` of its metadata, and the default scope of a grant.

    Attributes:
        issuer: Its URL.
        lifetime: The lifetime of access tokens from now on, in seconds.
        agrees: Whether authorization requests are granted. If not, the response is
            ``access_denied``.
        granted: The type of each grant so far, such as ``"authorization_code"``.
    """

    def __init__(
        self, port: int = 0, *, lifetime: float = 3600.0, scopes: Iterable[str] = ()
    ) -> None:
        self.lifetime = lifetime
        self.agrees = True
        self.granted: list[str] = []
        self._scopes = listed(scopes, "scopes")
        self._lock = threading.Lock()  # Guards all attributes up to `_refresh`, and `granted`.
        self._numbers = itertools.count(1)
        self._clients: dict[str, list[str]] = {}
        self._resources: dict[str, str] = {}  # The path of the metadata of each resource.
        self._codes: dict[str, _Grant] = {}
        self._access: dict[str, _Grant] = {}
        self._refresh: dict[str, _Grant] = {}
        self._listener = listen_http(self._answer, port)
        self.issuer = f"http://{HOST}:{self._listener.port}"

    def __repr__(self) -> str:
        return f"<AuthorizationServer {self.issuer}>"

    def expire(self) -> None:
        """Invalidate all access tokens, as their lifetime does."""
        with self._lock:
            self._access.clear()

    def forget(self) -> None:
        """Invalidate all codes, access tokens and refresh tokens."""
        with self._lock:
            for kept in (self._codes, self._access, self._refresh):
                kept.clear()

    def close(self) -> None:
        """Stop listening, and wait for the requests in progress."""
        self._listener.close(socket.SHUT_RD)

    def refusal(self, headers: Mapping[str, str], resource: str) -> HttpReply | None:
        """Return the 401 for a request without a valid token, or `None` if it is authorized.

        Args:
            headers: The request's headers, names in lower case.
            resource: The URL of the MCP server.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        with self._lock:
            path = f"{_RESOURCES}{len(self._resources)}"
            path = self._resources.setdefault(resource, path)
            grant = self._access.get(token) if scheme.lower() == "bearer" else None
        if grant is not None and grant.resource == resource and time.monotonic() < grant.expires:
            return None
        challenge = f'Bearer resource_metadata="{self.issuer}{path}"'
        if token:
            challenge += ', error="invalid_token"'
        return HttpReply(401, {"www-authenticate": challenge})

    # Requests

    def _answer(self, request: HttpRequest) -> HttpReply:
        foreign = find_foreign_host(request.headers, LOOPBACK)
        if foreign is not None:
            return HttpReply(403, {"content-type": "text/plain"}, foreign.encode())
        path, query = request.path, dict(parse_qsl(request.query))
        answers: dict[tuple[str, str], Callable[[], HttpReply]] = {
            ("GET", _METADATA): lambda: _reply(200, self._metadata()),
            ("GET", "/authorize"): lambda: self._authorize(query),
            ("POST", "/register"): lambda: self._register(request.body),
            ("POST", "/token"): lambda: self._token(request.body),
            ("POST", "/revoke"): lambda: self._revoke(request.body),
        }
        answer = answers.get((request.verb, path))
        if answer is None:
            with self._lock:
                found = [resource for resource, place in self._resources.items() if place == path]
            if not found:
                return HttpReply(404)
            return _reply(200, {"resource": found[0], "authorization_servers": [self.issuer]})
        try:
            return answer()
        except _OAuthError as refused:
            return _reply(400, {"error": str(refused)})
        except (KeyError, ValueError):
            return _reply(400, {"error": "invalid_request"})

    def _metadata(self) -> dict[str, Any]:
        facts: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "registration_endpoint": f"{self.issuer}/register",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": True,
        }
        return {**facts, "scopes_supported": self._scopes} if self._scopes else facts

    def _register(self, body: bytes) -> HttpReply:
        metadata = json.loads(body)
        with self._lock:
            client = f"client-{next(self._numbers)}"
            self._clients[client] = list(metadata["redirect_uris"])
        return _reply(201, {**metadata, "client_id": client, "token_endpoint_auth_method": "none"})

    def _authorize(self, query: Mapping[str, str]) -> HttpReply:
        client, back = query.get("client_id", ""), query.get("redirect_uri", "")
        with self._lock:
            known = back in self._clients.get(client, [])
        if not known:  # An unknown redirect URI must not be redirected to.
            return _reply(400, {"error": "unknown client or redirect URI"})
        answer = {"state": query.get("state", ""), "iss": self.issuer}
        challenge, resource = query.get("code_challenge"), query.get("resource")
        if query.get("code_challenge_method") != "S256" or not challenge or not resource:
            answer["error"] = "invalid_request"
        elif not self.agrees:
            answer["error"] = "access_denied"
        else:
            scope = query.get("scope", " ".join(self._scopes))
            answer["code"] = secrets.token_urlsafe()
            with self._lock:
                self._codes[answer["code"]] = _Grant(client, resource, scope, back, challenge)
        return HttpReply(302, {"location": f"{back}?{urlencode(answer)}"})

    def _token(self, body: bytes) -> HttpReply:
        form = dict(parse_qsl(body.decode()))
        kind = form["grant_type"]
        with self._lock:
            if kind == "authorization_code":
                grant = self._codes.pop(form["code"], None)
                digest = hashlib.sha256(form["code_verifier"].encode()).digest()
                proof = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
                if grant and (grant.challenge, grant.redirect_uri) != (proof, form["redirect_uri"]):
                    raise _OAuthError("invalid_grant")
            elif kind == "refresh_token":
                grant = self._refresh.pop(form["refresh_token"], None)
            else:
                raise _OAuthError("unsupported_grant_type")
            asked = (form["client_id"], form["resource"])
            if grant is None or asked != (grant.client, grant.resource):
                raise _OAuthError("invalid_grant")
            access, refresh = secrets.token_urlsafe(), secrets.token_urlsafe()
            self._access[access] = replace(grant, expires=time.monotonic() + self.lifetime)
            self._refresh[refresh] = grant
            self.granted.append(kind)
        answer = {
            "access_token": access,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": refresh,
        }
        return _reply(200, {**answer, "scope": grant.scope} if grant.scope else answer)

    def _revoke(self, body: bytes) -> HttpReply:
        token = dict(parse_qsl(body.decode()))["token"]
        with self._lock:
            self._access.pop(token, None)
            self._refresh.pop(token, None)
        return HttpReply(200)


def _reply(status: int, value: object) -> HttpReply:
    return HttpReply(status, _JSON, json.dumps(value).encode())
