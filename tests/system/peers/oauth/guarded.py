"""An MCP server that requires an access token, and validates each one itself.

It may also require a DPoP proof: that the client has the key of the token (RFC 9449 §4.3).
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import jwt
import requests

from syncmcp.testing import HttpEndpoint, Server, wsgi_app
from tests.testing.wires import wsgi_served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

PATIENCE = 30.0
PATH = "/mcp"
METADATA = f"/.well-known/oauth-protected-resource{PATH}"
RECENT = 300.0


class NonceWanted(Exception):
    """A proof that is valid except for its nonce, so it may be old."""


class Proofs:
    """Validates proofs, and records them, because each may be used only once.

    Attributes:
        nonce: The nonce that proofs must have.
        seen: The ids of the valid proofs.
    """

    def __init__(self) -> None:
        self.nonce = "the first nonce"
        self.seen: list[str] = []

    def judge(self, proof: str, method: str, url: str, token: str, thumbprint: str | None) -> None:
        """Validate a proof.

        Raises:
            InvalidTokenError: It is not for this request, this token and this key, or is not new.
            NonceWanted: It is valid except for the nonce.
        """
        header = jwt.get_unverified_header(proof)
        key = header["jwk"]
        said: dict[str, Any] = jwt.decode(
            proof,
            jwt.PyJWK(key, "ES256"),
            algorithms=["ES256"],
            options={"require": ["jti", "htm", "htu", "iat", "ath"]},
        )
        about = (header["typ"], said["htm"], said["htu"], said["ath"], _thumbprint(key))
        if about != ("dpop+jwt", method, url, _digest(token.encode()), thumbprint):
            raise jwt.InvalidTokenError(f"it is about {about}")
        if "d" in key or said["jti"] in self.seen or abs(time.time() - said["iat"]) > RECENT:
            raise jwt.InvalidTokenError("it cannot be trusted")
        if said.get("nonce") != self.nonce:
            raise NonceWanted
        self.seen.append(said["jti"])


def _thumbprint(key: dict[str, str]) -> str:
    """Return the thumbprint of a key, by which a token names it (RFC 7638 §3)."""
    needed = {name: key[name] for name in ("crv", "kty", "x", "y")}
    return _digest(json.dumps(needed, sort_keys=True, separators=(",", ":")).encode())


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


class Refused(Exception):
    """A request without authorization.

    Attributes:
        status: The HTTP status of the answer.
        facts: The parameters of the challenge.
    """

    def __init__(self, status: str, **facts: str) -> None:
        super().__init__(status)
        self.status = status
        self.facts = facts


class Guard:
    """A WSGI middleware that requires authorization.

    Attributes:
        url: The MCP endpoint, which must be the audience of tokens.
        ahead: Seconds by which the clock of this server is ahead.
        let_in: For each accepted request, the tool or method, and the claims of the token.
        refused: For each other request, the HTTP status and the error in the challenge.
    """

    def __init__(
        self, app: Callable[..., Iterable[bytes]], issuer: str, proofs: Proofs | None
    ) -> None:
        self.url = ""
        self.ahead = 0.0
        self.let_in: list[tuple[str, dict[str, Any]]] = []
        self.refused: list[tuple[str, str | None]] = []
        self._app = app
        self._issuer = issuer
        self._proofs = proofs
        self._scheme = "Bearer" if proofs is None else "DPoP"
        server = requests.get(f"{issuer}/.well-known/openid-configuration", timeout=PATIENCE).json()
        self._keys = jwt.PyJWKClient(server["jwks_uri"])

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """Serve the metadata; forward authorized requests to the application, refuse others."""
        if environ["PATH_INFO"] == METADATA:
            return _json(start_response, "200 OK", self._metadata())
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        needed, what = _needed(body)
        try:
            claims = self._judge(environ, needed)
        except Refused as refusal:
            self.refused.append((refusal.status[:3], refusal.facts.get("error")))
            facts = {**refusal.facts, "resource_metadata": self.url.replace(PATH, METADATA)}
            said = ", ".join(f'{name}="{fact}"' for name, fact in facts.items())
            headers = [("WWW-Authenticate", f"{self._scheme} {said}")]
            if self._proofs is not None:
                headers.append(("DPoP-Nonce", self._proofs.nonce))
            return _json(start_response, refusal.status, {}, *headers)
        self.let_in.append((what, claims))
        return self._app(environ, start_response)

    def _metadata(self) -> dict[str, Any]:
        return {
            "resource": self.url,
            "authorization_servers": [self._issuer],
            "scopes_supported": ["mcp:read"],
            "bearer_methods_supported": ["header"],
        }

    def _judge(self, environ: dict[str, Any], needed: str) -> dict[str, Any]:
        scheme, _, token = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme != self._scheme:
            raise Refused("401 Unauthorized")
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                self._keys.get_signing_key_from_jwt(token),
                algorithms=["RS256"],
                audience=self.url,
                issuer=self._issuer,
                options={
                    "require": ["exp", "aud", "iss", "sub", "scope"],
                    "verify_exp": False,  # by another clock, below
                    "verify_iat": False,
                },
            )
            if jwt.get_unverified_header(token)["typ"] != "at+jwt":
                raise jwt.InvalidTokenError
            if self._proofs is not None:
                proof, method = environ.get("HTTP_DPOP", ""), environ["REQUEST_METHOD"]
                key = claims.get("cnf", {}).get("jkt")
                self._proofs.judge(proof, method, self.url, token, key)
        except NonceWanted:
            raise Refused("401 Unauthorized", error="use_dpop_nonce") from None
        except jwt.InvalidTokenError:
            raise Refused("401 Unauthorized", error="invalid_token") from None
        if claims["exp"] <= time.time() + self.ahead:
            raise Refused("401 Unauthorized", error="invalid_token")
        if needed not in claims["scope"].split():
            raise Refused("403 Forbidden", error="insufficient_scope", scope=needed)
        return claims


def _needed(body: bytes) -> tuple[str, str]:
    """Return the scope that a message needs, and its tool or method."""
    message = json.loads(body) if body else {}
    params = message.get("params") or {}
    what = params.get("name") if message.get("method") == "tools/call" else message.get("method")
    return "mcp:write" if what == "write" else "mcp:read", what or "a stream"


def _json(
    start_response: Callable[..., Any], status: str, value: object, *headers: tuple[str, str]
) -> list[bytes]:
    body = json.dumps(value).encode()
    facts = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
    start_response(status, [*facts, *headers])
    return [body]


@contextmanager
def guarded(server: Server, issuer: str, proofs: Proofs | None = None) -> Iterator[Guard]:
    """Serve `server` until the block ends, to clients with a token of this issuer.

    Args:
        server: The server.
        issuer: The URL of the authorization server.
        proofs: If given, each request needs a proof, which this validates.
    """
    endpoint = HttpEndpoint(server)
    guard = Guard(wsgi_app(endpoint), issuer, proofs)
    with wsgi_served(endpoint, guard) as root:
        guard.url = f"{root}{PATH}"
        yield guard
