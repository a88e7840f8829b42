"""Client registration at an authorization server; no I/O.

The identity of the client is, in this order, the user's client id, the URL of a client metadata
document, or a dynamic registration (RFC 7591). If all three are impossible, an error asks the user
for a client id. (basic/authorization/client-registration)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from syncmcp._base.numbers import is_number
from syncmcp._base.origin import split_url
from syncmcp._base.text import redact_url, whole
from syncmcp.auth.discovery import AuthServer, named, union_scopes
from syncmcp.auth.steps import (
    FetchSteps,
    HttpRequest,
    HttpResponse,
    error_code,
    json_members,
    printable,
)
from syncmcp.auth.tokens import Registration
from syncmcp.errors import DiscoveryFailed, RegistrationFailed, UsageError
from syncmcp.types.extensions import AuthorizationServerMetadata

_USABLE_METHODS = ("none", "client_secret_basic", "client_secret_post")

_WHAT_TO_DO = "register this program there by hand and pass client_id= (and client_secret=)"


@dataclass(frozen=True, repr=False)
class ClientIdentity:
    """The user's settings for the client's identity.

    Attributes:
        client_id: A client id that an authorization server has issued.
        client_secret: The secret of `client_id`.
        metadata_url: The URL of a client metadata document. The URL is also the client id.
        name: The name that authorization servers show to people.
        has_key: Whether the client authenticates by a signed assertion (``private_key_jwt``).
    """

    client_id: str | None = None
    client_secret: str | None = None
    metadata_url: str | None = None
    name: str = "syncmcp"
    has_key: bool = False

    def check(self) -> None:
        """Raise `UsageError` if a setting is invalid, or contradicts another one."""
        if self.client_secret is not None and self.client_id is None:
            raise UsageError("client_secret needs the client_id that it belongs to")
        if self.client_secret is not None and self.has_key:
            raise UsageError("a client authenticates with a secret or an assertion, not with both")
        if self.metadata_url is not None:
            _check_metadata_url(self.metadata_url)


def _check_metadata_url(url: str) -> None:
    """Check the URL (basic/authorization/client-registration#implementation-requirements)."""
    try:
        parts = split_url(url)
    except ValueError:  # brackets that do not match
        parts = split_url("")
    dots = {".", ".."}.intersection(parts.path.split("/"))
    usable = parts.scheme == "https" and parts.hostname and parts.path not in ("", "/")
    if not usable or dots or parts.fragment or parts.username is not None:
        raise UsageError(
            "client_metadata_url must be an https:// URL with a path, without a user, fragment or"
            f" dot segments, not {redact_url(url)!r}"
        )


def identify(auth_server: AuthServer, identity: ClientIdentity) -> Registration | None:
    """Return the client from the user's settings; `None` if it has to be registered."""
    issuer = auth_server.metadata.issuer
    if identity.client_id is not None:
        return Registration(identity.client_id, identity.client_secret, None, issuer)
    if (
        identity.metadata_url is not None
        and auth_server.metadata.client_id_metadata_document_supported
    ):
        method = "private_key_jwt" if identity.has_key else "none"
        return Registration(identity.metadata_url, None, method, issuer)
    return None


def is_usable(registration: Registration, issuer: str, redirect_uri: str, now: float) -> bool:
    """Return whether a stored registration fits a login at `issuer` with `redirect_uri`."""
    return (
        registration.issuer == issuer
        and redirect_uri in registration.redirect_uris
        and (registration.expires_at is None or now < registration.expires_at)
    )


def register(
    auth_server: AuthServer, identity: ClientIdentity, redirect_uri: str, scope: str | None
) -> FetchSteps[Registration]:
    """Register the client with an authorization server (RFC 7591 §3).

    Raises:
        RegistrationFailed: The authorization server has no registration endpoint, refuses the
            client, or registers the client in a way that this library does not support.
        DiscoveryFailed: The assumed authorization server does not exist.
    """
    server = auth_server.metadata
    if not server.registration_endpoint:
        raise RegistrationFailed(
            f"{named(server)} does not know this program and advertises no registration",
            hint=_WHAT_TO_DO,
        )
    # Step-ups request more scopes later, and some servers allow only registered ones.
    wanted = union_scopes(scope, auth_server.scopes)
    method = _auth_method_to_request(server)
    metadata = client_metadata(identity.name, [redirect_uri], method)
    response = yield _registration_request(server.registration_endpoint, metadata, wanted)
    if response.status == 400 and wanted is not None and _error_of(response)[0] != BAD_REDIRECT:
        # Other servers refuse the registration of scopes that they do not know.
        response = yield _registration_request(server.registration_endpoint, metadata, None)
    if not auth_server.published and not json_members(response):
        raise DiscoveryFailed(
            "the server requires a sign-in, but names no authorization server, and is not one"
            " itself",
            status=response.status,
            hint="if you get a token for the server elsewhere, pass token= to Http",
        )
    return _read_registration(response, server, redirect_uri, method)


def client_metadata(name: str, redirect_uris: Sequence[str], method: str) -> dict[str, Any]:
    """Return the client metadata for a registration (RFC 7591 §2)."""
    return {
        "client_name": name,
        "redirect_uris": list(redirect_uris),
        # (basic/authorization/client-registration#application-type-and-redirect-uri-constraints)
        "application_type": "native" if all(map(is_loopback, redirect_uris)) else "web",
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
    }


def is_loopback(url: str) -> bool:
    """Return whether a redirect URI leads to this computer (RFC 8252 §7.3)."""
    parts = split_url(url)
    return parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")


def check_redirect_uri(url: str) -> None:
    """Raise `UsageError` unless a redirect URI leads to this computer, or is encrypted.

    (basic/authorization/security-considerations#communication-security)
    """
    try:
        parts = split_url(url)
        fits = is_loopback(url) or (parts.scheme == "https" and bool(parts.hostname))
        fits = fits and not parts.fragment
    except ValueError:
        fits = False
    if not fits:
        raise UsageError(
            "a redirect URI must be http:// on localhost, 127.0.0.1 or [::1], or https://,"
            f" without a fragment, not {redact_url(url)!r}"
        )


BAD_REDIRECT = "invalid_redirect_uri"


def _registration_request(url: str, metadata: Mapping[str, Any], scope: str | None) -> HttpRequest:
    body = {**metadata, **({} if scope is None else {"scope": scope})}
    headers = {"Accept": "application/json", "Content-Type": "application/json"}
    return HttpRequest("POST", url, headers, json.dumps(body).encode())


def _auth_method_to_request(server: AuthorizationServerMetadata) -> str:
    """Return the authentication method to request: none, if possible, as a local program is public.

    Otherwise this is the first usable method that the authorization server lists. Servers on the
    official Python SDK let only clients with ``client_secret_post`` revoke tokens, even if they
    list other methods after it.
    """
    listed = server.token_endpoint_auth_methods_supported
    if listed is None or "none" in listed:
        return "none"
    return next((one for one in listed if one in _USABLE_METHODS), "none")


def _error_of(response: HttpResponse) -> tuple[str | None, str]:
    """Code and description of an error response (RFC 7591 §3.2.2)."""
    value = json_members(response)
    words = printable(value.get("error_description"), "no reason given")
    return error_code(value.get("error")), words


def _read_registration(
    response: HttpResponse,
    server: AuthorizationServerMetadata,
    redirect_uri: str,
    requested_method: str,
) -> Registration:
    """The client in the response to a registration."""
    who = named(server)
    if response.status not in (200, 201):
        code, words = _error_of(response)
        text, hint = f"{who} did not register this program: {words}", _WHAT_TO_DO
        if code == BAD_REDIRECT:
            text = f"{who} does not accept the redirect URI {redirect_uri!r}: {words}"
            hint = f"pass a redirect_uri= that it accepts, or {_WHAT_TO_DO}"
        raise RegistrationFailed(text, status=response.status, error=code, hint=hint)
    answer = json_members(response)
    client_id, secret = answer.get("client_id"), answer.get("client_secret")
    if not isinstance(client_id, str) or not client_id:
        raise RegistrationFailed(f"{who} registered this program without a client id")
    secret = secret if isinstance(secret, str) and secret else None
    method = answer.get("token_endpoint_auth_method", requested_method if secret is None else None)
    if method is None:
        # The default is Basic (RFC 7591 §2), unless the server's metadata exclude it.
        listed = server.token_endpoint_auth_methods_supported
        method = "client_secret_post" if listed == ["client_secret_post"] else "client_secret_basic"
    if method not in _USABLE_METHODS or (method != "none" and secret is None):
        raise RegistrationFailed(
            f"{who} registered this program for authentication with {whole(str(method), 40)}"
            f"{' but without a secret' if secret is None else ''}, which it cannot use"
        )
    uris = answer.get("redirect_uris")
    kept = tuple(one for one in uris if isinstance(one, str)) if isinstance(uris, list) else ()
    if kept and redirect_uri not in kept:
        raise RegistrationFailed(f"{who} registered other redirect URIs than {redirect_uri!r}")
    expires = answer.get("client_secret_expires_at")
    if secret is None or not is_number(expires) or expires <= 0:
        expires = None
    # The issuer is that of the metadata, whatever the response contains.
    return Registration(client_id, secret, method, server.issuer, kept or (redirect_uri,), expires)
