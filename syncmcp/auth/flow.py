"""The authorization code flow with PKCE, refresh and revocation (OAuth 2.1 §4); no I/O, no clock.

What is drawn at random here is drawn once per login and used once.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from syncmcp.auth.discovery import OFFLINE, AuthServer, union_scopes
from syncmcp.auth.steps import (
    AuthChallenge,
    FetchSteps,
    HttpRequest,
    HttpResponse,
    Redirect,
    auth_challenge,
    json_members,
    printable,
)
from syncmcp.auth.tokens import AuthMethod, Login, Registration, Token
from syncmcp.errors import AuthError, DiscoveryFailed, RegistrationFailed, TokenRefused
from syncmcp.types.extensions import AuthorizationServerMetadata

__all__ = [
    "ClientAssertion",
    "PendingAuthorization",
    "TokenNeed",
    "authorization_code",
    "choose_method",
    "form_request",
    "probe",
    "read_token",
    "redeem",
    "refresh",
    "revoke",
    "string_member",
    "token_refused",
    "token_request",
]


# How a client proves itself at an authorization server's endpoints (OAuth 2.1 §2.4); no I/O.


ClientAssertion: TypeAlias = Callable[[AuthorizationServerMetadata], str]
"""Makes a signed statement of who the client is, for one authorization server (RFC 7523 §3)."""

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_SECRETS: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post")


def choose_method(
    server: AuthorizationServerMetadata, *, secret: bool, assertion: bool
) -> AuthMethod:
    """The method for a client that has a secret, can sign an assertion, or neither.

    Raises:
        RegistrationFailed: The server supports none that such a client can use.
    """
    # Without a list, RFC 8414 §2 says Basic; public clients exist at such servers all the same.
    listed = server.token_endpoint_auth_methods_supported
    able: tuple[AuthMethod, ...]
    able = ("private_key_jwt",) if assertion else _SECRETS if secret else ("none",)
    if listed is None:
        return able[0]
    for method in able:
        if method in listed:
            return method
    if not secret and not assertion:
        # Public clients need no method, and some servers forget to list that.
        return "none"
    raise RegistrationFailed(
        f"the authorization server {server.issuer[:200]!r} takes none of {', '.join(able)} at its"
        f" token endpoint, only {', '.join(listed)[:200]}"
    )


def token_request(
    server: AuthorizationServerMetadata,
    registration: Registration,
    fields: Mapping[str, str | None],
    assertion: ClientAssertion | None = None,
) -> HttpRequest:
    """A request to the token endpoint.

    Args:
        server: The authorization server.
        registration: Who asks.
        fields: What is asked for; those that are `None` are left out.
        assertion: Signs for a client that has a key.

    Raises:
        RegistrationFailed: The server has no token endpoint, or the client cannot prove itself.
    """
    if not server.token_endpoint:
        raise RegistrationFailed(
            f"the authorization server {server.issuer[:200]!r} has no token endpoint"
        )
    request = form_request(server.token_endpoint, server, registration, fields, assertion=assertion)
    algorithms = server.dpop_signing_alg_values_supported
    return replace(
        request,
        token=True,
        algorithms=None if algorithms is None else tuple(algorithms),
        # A signed statement is accepted once.
        renew=assertion and partial(token_request, server, registration, fields, assertion),
    )


def form_request(
    url: str,
    server: AuthorizationServerMetadata,
    registration: Registration,
    fields: Mapping[str, str | None],
    *,
    assertion: ClientAssertion | None = None,
) -> HttpRequest:
    """A form posted to an endpoint where clients prove themselves.

    Raises:
        RegistrationFailed: The client cannot prove itself there.
    """
    headers = {
        "Accept": "application/json",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    form = {name: value for name, value in fields.items() if value is not None}
    secret = registration.client_secret
    method = registration.auth_method or choose_method(
        server, secret=secret is not None, assertion=assertion is not None
    )
    if method == "none":
        if registration.client_id:
            form["client_id"] = registration.client_id
    elif method == "private_key_jwt" and assertion is not None:
        form["client_assertion_type"] = _ASSERTION_TYPE
        form["client_assertion"] = assertion(server)
    elif method == "client_secret_post" and secret is not None:
        form["client_id"] = registration.client_id
        form["client_secret"] = secret
    elif method == "client_secret_basic" and secret is not None:
        # Both are encoded first, so that a colon in the id is told from the separator (RFC 6749
        # §2.3.1); a blank so that servers understand it, too, who take a plus for a plus.
        pair = f"{quote(registration.client_id, safe='')}:{quote(secret, safe='')}"
        # Servers on the official Python SDK look up the client by what the body says.
        form["client_id"] = registration.client_id
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        raise RegistrationFailed(
            f"this client cannot prove itself by {method[:40]!r} at the authorization server"
            f" {server.issuer[:200]!r}"
        )
    return HttpRequest("POST", url, headers, urlencode(form).encode())


_GONE = (200, 204)


# Any request would do: who has to sign in is told so before it is looked at.
_QUESTION = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "ping"}).encode()


@dataclass(frozen=True, repr=False)
class PendingAuthorization:
    """What is written down before a person is sent away, to judge what they come back with.

    (basic/authorization/index#authorization-response-validation)

    Attributes:
        auth_server: Where they were sent, its issuer from validated metadata included.
        registration: The client that sent them.
        redirect_uri: Where they come back to.
        scope: What was asked for.
        state: What they must bring back (RFC 6749 §10.12).
        verifier: What proves at the token endpoint that it was us (RFC 7636 §4.1).
    """

    auth_server: AuthServer
    registration: Registration
    redirect_uri: str
    scope: str | None
    state: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    @property
    def redirect(self) -> Redirect:
        """The authorization request (RFC 6749 §4.1.1, RFC 7636 §4.3, RFC 8707 §2.1).

        Raises:
            DiscoveryFailed: The server has no place for it.
        """
        metadata = self.auth_server.metadata
        endpoint = metadata.authorization_endpoint
        if not endpoint:
            raise DiscoveryFailed(
                f"the authorization server {metadata.issuer[:200]!r} has no authorization"
                " endpoint: nobody can sign in there"
            )
        digest = hashlib.sha256(self.verifier.encode()).digest()
        fields = {
            "response_type": "code",
            "client_id": self.registration.client_id,
            "redirect_uri": self.redirect_uri,
            "state": self.state,
            "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
            "resource": self.auth_server.resource,
        }
        if self.scope is not None:
            fields["scope"] = self.scope
            if OFFLINE in self.scope.split():
                # OpenID Connect Core §11: without, the server may leave it out.
                fields["prompt"] = "consent"
        parts = urlsplit(endpoint)
        theirs = [
            (name, value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if name not in fields
        ]
        url = urlunsplit(parts._replace(query=urlencode([*theirs, *fields.items()]), fragment=""))
        return Redirect(url, self.redirect_uri, self.state)


def probe(url: str) -> FetchSteps[AuthChallenge | None]:
    """Ask the MCP server at `url` what it demands of those who have no token; `None`: nothing."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    response = yield HttpRequest("POST", url, headers, _QUESTION)
    return (
        auth_challenge(response.headers.get("www-authenticate")) if response.status == 401 else None
    )


def redeem(
    pending: PendingAuthorization,
    callback: Mapping[str, str],
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Trade what a person brought back for a token (RFC 6749 §4.1.3); once, whatever happens.

    Raises:
        TokenRefused: The server or the person said no.
        AuthError: It does not belong to this login, or the answer is no token.
    """
    code = authorization_code(pending, callback)
    auth_server = pending.auth_server
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": pending.redirect_uri,
        "code_verifier": pending.verifier,
        "resource": auth_server.resource,
    }
    response = yield token_request(auth_server.metadata, pending.registration, fields, assertion)
    base = Token(
        access_token="",
        requested=pending.scope,
        issuer=auth_server.metadata.issuer,
        resource=auth_server.resource,
        client_id=pending.registration.client_id,
    )
    return read_token(response, base, now)


def authorization_code(pending: PendingAuthorization, callback: Mapping[str, str]) -> str:
    """The authorization code in a callback, once all of it was judged.

    (basic/authorization/index#authorization-response-validation)

    Raises:
        AuthError: It does not belong to this login; nothing in it was looked at.
        TokenRefused: It says that there is no code.
    """
    # In constant time: how long it takes would tell an attacker how much of a guess was right.
    if not hmac.compare_digest(
        callback.get("state", "").encode(errors="replace"), pending.state.encode()
    ):
        raise AuthError("the browser came back without the state of this login: it was dropped")
    server = pending.auth_server.metadata
    issuer = callback.get("iss")
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise AuthError(
            f"the browser came back without the issuer that {server.issuer[:200]!r} always adds:"
            " it was dropped"
        )
    # Letter by letter; and nothing else of such an answer is shown or followed (RFC 9207 §2.4).
    if issuer is not None and issuer != server.issuer:
        raise AuthError(
            "the browser came back from another authorization server than"
            f" {server.issuer[:200]!r}: it was dropped"
        )
    if "error" in callback:
        raise token_refused(
            "nobody was signed in", callback["error"], callback.get("error_description")
        )
    code = callback.get("code")
    if not code:
        raise AuthError("the browser came back without an authorization code")
    return code


def refresh(
    token: Token,
    registration: Registration,
    server: AuthorizationServerMetadata,
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Get the next token (RFC 6749 §6); the same refresh token and scope unless others came.

    Raises:
        TokenRefused: The server said no.
        AuthError: It said nothing that makes sense.
    """
    fields = {
        "grant_type": "refresh_token",
        "refresh_token": token.refresh_token,
        "resource": token.resource,
    }
    response = yield token_request(server, registration, fields, assertion)
    return read_token(response, token, now)


def revoke(
    token: Token,
    registration: Registration,
    server: AuthorizationServerMetadata,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[None]:
    """Give a token back (RFC 7009 §2), the refresh token first; nothing without an endpoint.

    Raises:
        AuthError: The server did not take it.
    """
    if not server.revocation_endpoint:
        return
    for kind, secret in (
        ("refresh_token", token.refresh_token),
        ("access_token", token.access_token),
    ):
        if secret is None:
            continue
        response = yield form_request(
            server.revocation_endpoint,
            server,
            registration,
            {"token": secret, "token_type_hint": kind},
            assertion=assertion,
        )
        if (
            response.status not in _GONE
            and string_member(response, "error") != "unsupported_token_type"
        ):
            raise token_refused(
                "the token could not be revoked",
                string_member(response, "error"),
                string_member(response, "error_description"),
                status=response.status,
            )


def read_token(response: HttpResponse, base: Token, now: float) -> Token:
    """The token in an answer of a token endpoint (RFC 6749 §5).

    Args:
        response: The response.
        base: What is already known of the token, and what stays as it was if the answer is silent.
        now: When it was asked for, in seconds since the epoch.

    Raises:
        TokenRefused: The answer is an error.
        AuthError: It makes no sense.
    """
    error = string_member(response, "error")
    access, kind = string_member(response, "access_token"), string_member(response, "token_type")
    # Some servers refuse with a 200.
    if response.status != 200 or (error and not access):
        words = string_member(response, "error_description")
        raise token_refused("there is no token", error, words, status=response.status)
    if not access or not kind:
        raise AuthError("the token endpoint answered without a token or without its type")
    if not all("!" <= one <= "~" for one in access):  # it would end the header, or not fit into it
        raise AuthError("the token endpoint issued a token that no request can carry")
    if kind.lower() not in ("bearer", "dpop"):
        raise AuthError(f"the token endpoint issued a token of the unknown type {kind[:40]!r}")
    # RFC 6749 §5.1: a scope that is not named is the one that was asked for.
    scope = string_member(response, "scope") or base.scope or base.requested
    return replace(
        base,
        access_token=access,
        token_type=kind,
        expires_at=_expiry(response, now),
        refresh_token=string_member(response, "refresh_token") or base.refresh_token,
        scope=scope,
    )


def string_member(response: HttpResponse, name: str) -> str | None:
    """A member of an answer, if it is a string."""
    value = json_members(response).get(name)
    return value if isinstance(value, str) else None


def _expiry(response: HttpResponse, now: float) -> float | None:
    """When it expires; `None` if that is not said, or not in a way that makes sense."""
    value = json_members(response).get("expires_in")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)  # some servers put it in quotes
    except (ValueError, OverflowError):
        return None
    return now + max(0.0, seconds) if math.isfinite(seconds) else None


def token_refused(
    what: str, error: str | None, words: str | None, *, status: int = 0
) -> TokenRefused:
    """The error that tells why there is no token, as far as the server said."""
    reason = printable(words, "the authorization server gave no reason")
    code = printable(error, "")[:80] or None
    return TokenRefused(f"{what}: {reason}", status=status, error=code)


# Why a new token is needed.


class TokenNeed(NamedTuple):
    """Why a new token is needed.

    Attributes:
        challenge: The challenge of the MCP server's response.
        refused: The login whose token was refused, if a token was sent.
        more_scope: Whether the token is valid, and only lacks scope.
    """

    challenge: AuthChallenge
    refused: Login | None = None
    more_scope: bool = False

    @property
    def earlier_scope(self) -> str | None:
        """The scopes that were requested or granted before."""
        token = None if self.refused is None else self.refused.token
        return None if token is None else union_scopes(token.requested, token.scope)
