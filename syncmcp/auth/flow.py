"""Token requests: authorization code with PKCE, refresh, revocation (OAuth 2.1 §4); no I/O.

The module also authenticates the client at the endpoints (OAuth 2.1 §2.4). Times are arguments, in
seconds since the epoch: this module reads no clock.
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
from urllib.parse import parse_qsl, quote, urlencode, urlunsplit

from syncmcp._base.origin import split_url
from syncmcp._base.text import whole
from syncmcp.auth.discovery import OFFLINE, AuthServer, named, union_scopes
from syncmcp.auth.steps import (
    AuthChallenge,
    FetchSteps,
    HttpRequest,
    HttpResponse,
    Redirect,
    auth_challenge,
    error_code,
    json_members,
    printable,
)
from syncmcp.auth.tokens import AuthMethod, Login, Registration, Token
from syncmcp.errors import AuthError, DiscoveryFailed, RegistrationFailed, TokenRefused
from syncmcp.types.extensions import AuthorizationServerMetadata

ClientAssertion: TypeAlias = Callable[[AuthorizationServerMetadata], str]
"""A function that returns a signed client assertion (RFC 7523 §3) for an authorization server."""

_JSON = "application/json"

_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

_SECRETS: tuple[AuthMethod, ...] = ("client_secret_basic", "client_secret_post")


def choose_method(
    server: AuthorizationServerMetadata, *, secret: bool, assertion: bool
) -> AuthMethod:
    """Choose how a client with a secret, with an assertion, or with neither authenticates.

    Raises:
        RegistrationFailed: The authorization server supports no method that the client can use.
    """
    # Without a list, the default is Basic (RFC 8414 §2); such servers have public clients, too.
    listed = server.token_endpoint_auth_methods_supported
    able: tuple[AuthMethod, ...]
    able = ("private_key_jwt",) if assertion else _SECRETS if secret else ("none",)
    if listed is None:
        return able[0]
    for method in able:
        if method in listed:
            return method
    if not secret and not assertion:
        # Public clients do not authenticate, and some servers omit "none" from the list.
        return "none"
    shown = printable(", ".join(f"'{method}'" for method in listed), "nothing")
    raise RegistrationFailed(
        f"{named(server)} accepts none of {', '.join(able)} at its token endpoint, only {shown}"
    )


def token_request(
    server: AuthorizationServerMetadata,
    registration: Registration,
    fields: Mapping[str, str | None],
    assertion: ClientAssertion | None = None,
) -> HttpRequest:
    """Make a request to the token endpoint; see `form_request`.

    Raises:
        RegistrationFailed: The authorization server has no token endpoint, or the client cannot
            authenticate.
    """
    if not server.token_endpoint:
        raise RegistrationFailed(f"{named(server)} has no token endpoint")
    request = form_request(server.token_endpoint, server, registration, fields, assertion=assertion)
    algorithms = server.dpop_signing_alg_values_supported
    return replace(
        request,
        token=True,
        algorithms=None if algorithms is None else tuple(algorithms),
        # A client assertion is accepted only once.
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
    """Make a form POST to an endpoint that requires client authentication; omit `None` fields.

    Raises:
        RegistrationFailed: The client cannot authenticate there.
    """
    headers = {"Accept": _JSON, "Content-Type": "application/x-www-form-urlencoded"}
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
        # Both are form-encoded first: a colon in the id does not separate them (RFC 6749 §2.3.1).
        # A blank becomes %20, because some servers do not decode a plus.
        pair = f"{quote(registration.client_id, safe='')}:{quote(secret, safe='')}"
        # Servers on the official Python SDK read the client id from the body.
        form["client_id"] = registration.client_id
        headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        raise RegistrationFailed(
            f"this client cannot authenticate with {whole(method, 40)} at {named(server)}"
        )
    return HttpRequest("POST", url, headers, urlencode(form).encode())


_REVOKED_STATUSES = (200, 204)

# The request does not matter: a server checks the token before it reads the body.
_PROBE_BODY = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "ping"}).encode()


@dataclass(frozen=True, repr=False)
class PendingAuthorization:
    """An authorization request that waits for its callback, and the values to check the callback.

    The state and the verifier (RFC 7636 §4.1) are random, and used for one login only. The issuer
    is that of validated metadata. (basic/authorization/index#authorization-response-validation)
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
            DiscoveryFailed: The authorization server has no authorization endpoint.
        """
        metadata = self.auth_server.metadata
        endpoint = metadata.authorization_endpoint
        if not endpoint:
            raise DiscoveryFailed(
                f"{named(metadata)} has no authorization endpoint, so sign-in is impossible"
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
                # Without it, the server may ignore `offline_access` (OpenID Connect Core §11).
                fields["prompt"] = "consent"
        parts = split_url(endpoint)
        theirs = [
            (name, value)
            for name, value in parse_qsl(parts.query, keep_blank_values=True)
            if name not in fields
        ]
        url = urlunsplit(parts._replace(query=urlencode([*theirs, *fields.items()]), fragment=""))
        return Redirect(url, self.redirect_uri, self.state)


def probe(url: str) -> FetchSteps[AuthChallenge | None]:
    """Send a request without a token to the MCP server; return its challenge, or `None`."""
    headers = {"Accept": f"{_JSON}, text/event-stream", "Content-Type": _JSON}
    response = yield HttpRequest("POST", url, headers, _PROBE_BODY)
    header = response.headers.get("www-authenticate")
    return auth_challenge(header) if response.status == 401 else None


def redeem(
    pending: PendingAuthorization,
    callback: Mapping[str, str],
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Exchange the code in a callback for a token (RFC 6749 §4.1.3). A code can be used only once.

    Raises:
        TokenRefused: The authorization server or the person denied the request.
        AuthError: The callback belongs to another login, or the response contains no valid token.
    """
    fields = {
        "grant_type": "authorization_code",
        "code": authorization_code(pending, callback),
        "redirect_uri": pending.redirect_uri,
        "code_verifier": pending.verifier,
    }
    server, client = pending.auth_server, pending.registration
    return (yield from request_token(server, client, fields, pending.scope, now, assertion))


def request_token(
    auth_server: AuthServer,
    registration: Registration,
    fields: Mapping[str, str | None],
    scope: str | None,
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Obtain a token for the MCP server by a grant, which is in `fields`.

    Raises:
        TokenRefused: The response is an error.
        AuthError: The response contains no valid token.
    """
    form = {**fields, "resource": auth_server.resource}
    response = yield token_request(auth_server.metadata, registration, form, assertion)
    base = Token(
        access_token="",
        requested=scope,
        issuer=auth_server.metadata.issuer,
        resource=auth_server.resource,
        client_id=registration.client_id or None,
    )
    return read_token(response, base, now)


def authorization_code(pending: PendingAuthorization, callback: Mapping[str, str]) -> str:
    """Return the authorization code in a callback, after all checks.

    (basic/authorization/index#authorization-response-validation)

    Raises:
        AuthError: The callback belongs to another login; nothing else in it was used.
        TokenRefused: The callback contains an error.
    """
    # In constant time: the duration must not reveal how much of a guessed state is right.
    if not hmac.compare_digest(
        callback.get("state", "").encode(errors="replace"), pending.state.encode()
    ):
        raise AuthError(
            "the browser returned without the state of this login: the sign-in has ended"
        )
    server = pending.auth_server.metadata
    issuer = callback.get("iss")
    if issuer is None and server.authorization_response_iss_parameter_supported:
        raise AuthError(
            f"the browser returned without the issuer that {whole(server.issuer, 200)} always"
            " adds: the sign-in has ended"
        )
    # Exact comparison; if it fails, no other parameter is shown or used (RFC 9207 §2.4).
    if issuer is not None and issuer != server.issuer:
        raise AuthError(
            "the browser returned from another authorization server than"
            f" {whole(server.issuer, 200)}: the sign-in has ended"
        )
    if "error" in callback:
        raise _token_refused(
            "the sign-in failed", callback["error"], callback.get("error_description")
        )
    code = callback.get("code")
    if not code:
        raise AuthError("the browser returned without an authorization code")
    return code


def refresh(
    token: Token,
    registration: Registration,
    server: AuthorizationServerMetadata,
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Refresh a token (RFC 6749 §6).

    The refresh token and the scope stay, unless the response has new ones.

    Raises:
        TokenRefused: The response is an error.
        AuthError: The response contains no valid token.
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
    """Revoke a token (RFC 7009 §2), the refresh token first.

    Without an endpoint for revocation, this does nothing.

    Raises:
        AuthError: The authorization server did not revoke the token.
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
            response.status not in _REVOKED_STATUSES
            and string_member(response, "error") != "unsupported_token_type"
        ):
            raise request_refused("could not revoke the token", response)


def read_token(response: HttpResponse, base: Token, now: float) -> Token:
    """Return the token in a response of a token endpoint (RFC 6749 §5).

    `base` has the known attributes of the token, and the defaults of the others.

    Raises:
        TokenRefused: The response is an error.
        AuthError: The response contains no valid token.
    """
    access, kind = string_member(response, "access_token"), string_member(response, "token_type")
    # Some servers send errors with status 200.
    if response.status != 200 or (string_member(response, "error") and not access):
        raise request_refused("the token endpoint issued no token", response)
    if not access or not kind:
        raise AuthError("the token endpoint answered without a token or without its type")
    if not all("!" <= one <= "~" for one in access):  # not allowed in a header
        raise AuthError("the token endpoint issued a token that is not valid in a header")
    if kind.lower() not in ("bearer", "dpop"):
        raise AuthError(f"the token endpoint issued a token of the unknown type {whole(kind, 40)}")
    return replace(
        base,
        access_token=access,
        token_type=kind,
        expires_at=_expiry(response, now),
        refresh_token=string_member(response, "refresh_token") or base.refresh_token,
        # An omitted scope is the requested one (RFC 6749 §5.1).
        scope=string_member(response, "scope") or base.scope or base.requested,
    )


def string_member(response: HttpResponse, name: str) -> str | None:
    """Return a member of the JSON object in a response; `None` unless it is a string."""
    value = json_members(response).get(name)
    return value if isinstance(value, str) else None


def _expiry(response: HttpResponse, now: float) -> float | None:
    """When the token expires, in seconds since the epoch; `None` if missing or invalid."""
    value = json_members(response).get("expires_in")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)  # some servers send a string
    except (ValueError, OverflowError):
        return None
    return now + max(0.0, seconds) if math.isfinite(seconds) else None


def request_refused(what: str, response: HttpResponse) -> TokenRefused:
    """Return the error for a request that an endpoint refused; `what` begins the message."""
    error, words = (string_member(response, name) for name in ("error", "error_description"))
    return _token_refused(what, error, words, status=response.status)


def _token_refused(
    what: str, error: str | None, words: str | None, *, status: int = 0
) -> TokenRefused:
    """The error for a refused request, with the server's reason; `status` is 0 for a callback."""
    code = error_code(error)
    reason = printable(words, "" if code else "the authorization server gave no reason")
    return TokenRefused(f"{what}: {reason}" if reason else what, status=status, error=code)


class TokenNeed(NamedTuple):
    """Why a new token is needed.

    Attributes:
        challenge: The challenge of the MCP server's response.
        refused: The login whose token was refused, if a token was sent.
        more_scope: Whether the token is valid, but lacks scope.
    """

    challenge: AuthChallenge
    refused: Login | None = None
    more_scope: bool = False

    @property
    def earlier_scope(self) -> str | None:
        """The scopes that were requested or granted before."""
        token = None if self.refused is None else self.refused.token
        return None if token is None else union_scopes(token.requested, token.scope)
