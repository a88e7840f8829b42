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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from syncmcp.auth.answer import members, readable
from syncmcp.auth.challenge import Demand, demand
from syncmcp.auth.client_auth import ClientAssertion, form_request, token_request
from syncmcp.auth.discovery import Place
from syncmcp.auth.scope import OFFLINE
from syncmcp.auth.steps import Fetch, Fetched, FetchSteps, Redirect
from syncmcp.auth.token import Registration, Token
from syncmcp.errors import AuthError, DiscoveryFailed, TokenRefused
from syncmcp.types.auth import AuthorizationServerMetadata

__all__ = [
    "Attempt",
    "ask",
    "code_of",
    "field_of",
    "read_token",
    "redeem",
    "refresh",
    "refused",
    "revoke",
]

_GONE = (200, 204)


# Any request would do: who has to sign in is told so before it is looked at.
_QUESTION = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "ping"}).encode()


@dataclass(frozen=True, repr=False)
class Attempt:
    """What is written down before a person is sent away, to judge what they come back with.

    (basic/authorization/index#authorization-response-validation)

    Attributes:
        place: Where they were sent, its issuer from validated metadata included.
        registration: The client that sent them.
        redirect_uri: Where they come back to.
        scope: What was asked for.
        state: What they must bring back (RFC 6749 §10.12).
        verifier: What proves at the token endpoint that it was us (RFC 7636 §4.1).
    """

    place: Place
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
        endpoint = self.place.server.authorization_endpoint
        if not endpoint:
            raise DiscoveryFailed(
                f"the authorization server {self.place.server.issuer[:200]!r} has no authorization"
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
            "resource": self.place.resource,
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


def ask(url: str) -> FetchSteps[Demand | None]:
    """Ask the MCP server at `url` what it demands of those who have no token; `None`: nothing."""
    headers = {
        "Accept": "application/json, text/event-stream",
        "Content-Type": "application/json",
    }
    fetched = yield Fetch("POST", url, headers, _QUESTION)
    return demand(fetched.headers.get("www-authenticate")) if fetched.status == 401 else None


def redeem(
    attempt: Attempt,
    callback: Mapping[str, str],
    now: float,
    assertion: ClientAssertion | None = None,
) -> FetchSteps[Token]:
    """Trade what a person brought back for a token (RFC 6749 §4.1.3); once, whatever happens.

    Raises:
        TokenRefused: The server or the person said no.
        AuthError: It does not belong to this login, or the answer is no token.
    """
    code = code_of(attempt, callback)
    place = attempt.place
    fields = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": attempt.redirect_uri,
        "code_verifier": attempt.verifier,
        "resource": place.resource,
    }
    fetched = yield token_request(place.server, attempt.registration, fields, assertion)
    base = Token(
        access_token="",
        requested=attempt.scope,
        issuer=place.server.issuer,
        resource=place.resource,
        client_id=attempt.registration.client_id,
    )
    return read_token(fetched, base, now)


def code_of(attempt: Attempt, callback: Mapping[str, str]) -> str:
    """The authorization code in a callback, once all of it was judged.

    (basic/authorization/index#authorization-response-validation)

    Raises:
        AuthError: It does not belong to this login; nothing in it was looked at.
        TokenRefused: It says that there is no code.
    """
    # In constant time: how long it takes would tell an attacker how much of a guess was right.
    if not hmac.compare_digest(
        callback.get("state", "").encode(errors="replace"), attempt.state.encode()
    ):
        raise AuthError("the browser came back without the state of this login: it was dropped")
    server = attempt.place.server
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
        raise refused("nobody was signed in", callback["error"], callback.get("error_description"))
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
    fetched = yield token_request(server, registration, fields, assertion)
    return read_token(fetched, token, now)


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
        fetched = yield form_request(
            server.revocation_endpoint,
            server,
            registration,
            {"token": secret, "token_type_hint": kind},
            assertion=assertion,
        )
        if fetched.status not in _GONE and field_of(fetched, "error") != "unsupported_token_type":
            raise refused(
                "the token could not be revoked",
                field_of(fetched, "error"),
                field_of(fetched, "error_description"),
                status=fetched.status,
            )


def read_token(fetched: Fetched, base: Token, now: float) -> Token:
    """The token in an answer of a token endpoint (RFC 6749 §5).

    Args:
        fetched: The answer.
        base: What is already known of the token, and what stays as it was if the answer is silent.
        now: When it was asked for, in seconds since the epoch.

    Raises:
        TokenRefused: The answer is an error.
        AuthError: It makes no sense.
    """
    error = field_of(fetched, "error")
    access, kind = field_of(fetched, "access_token"), field_of(fetched, "token_type")
    # Some servers refuse with a 200.
    if fetched.status != 200 or (error and not access):
        words = field_of(fetched, "error_description")
        raise refused("there is no token", error, words, status=fetched.status)
    if not access or not kind:
        raise AuthError("the token endpoint answered without a token or without its type")
    if not all("!" <= one <= "~" for one in access):  # it would end the header, or not fit into it
        raise AuthError("the token endpoint issued a token that no request can carry")
    if kind.lower() not in ("bearer", "dpop"):
        raise AuthError(f"the token endpoint issued a token of the unknown type {kind[:40]!r}")
    # RFC 6749 §5.1: a scope that is not named is the one that was asked for.
    scope = field_of(fetched, "scope") or base.scope or base.requested
    return replace(
        base,
        access_token=access,
        token_type=kind,
        expires_at=_expiry(fetched, now),
        refresh_token=field_of(fetched, "refresh_token") or base.refresh_token,
        scope=scope,
    )


def field_of(fetched: Fetched, name: str) -> str | None:
    """A member of an answer, if it is a string."""
    value = members(fetched).get(name)
    return value if isinstance(value, str) else None


def _expiry(fetched: Fetched, now: float) -> float | None:
    """When it expires; `None` if that is not said, or not in a way that makes sense."""
    value = members(fetched).get("expires_in")
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        seconds = float(value)  # some servers put it in quotes
    except (ValueError, OverflowError):
        return None
    return now + max(0.0, seconds) if math.isfinite(seconds) else None


def refused(what: str, error: str | None, words: str | None, *, status: int = 0) -> TokenRefused:
    """The error that tells why there is no token, as far as the server said."""
    reason = readable(words, "the authorization server gave no reason")
    code = readable(error, "")[:80] or None
    return TokenRefused(f"{what}: {reason}", status=status, error=code)
