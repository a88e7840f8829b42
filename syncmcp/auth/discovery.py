"""Discovery: metadata of the MCP server, then of its authorization server; scopes; no I/O.

(basic/authorization/authorization-server-discovery; RFC 9728, RFC 8414, OpenID Connect Discovery;
basic/authorization/index#scope-selection-strategy)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, urlunsplit

import pydantic

from syncmcp._base.origin import origin_of, split_url
from syncmcp._base.text import counted, whole
from syncmcp._protocol.revisions import STATEFUL
from syncmcp.auth.steps import FetchSteps, HttpRequest, HttpResponse, json_body
from syncmcp.errors import DiscoveryFailed
from syncmcp.types.extensions import (
    AuthModel,
    AuthorizationServerMetadata,
    ProtectedResourceMetadata,
)

M = TypeVar("M", bound=AuthModel)

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"

# Servers of 2025-03-26 may respond according to the client's revision. This header names the newest
# one with a handshake. (2025-03-26 basic/authorization#server-metadata-discovery-headers)
_HEADERS = {"Accept": "application/json", "MCP-Protocol-Version": STATEFUL[0]}

_MOST_SHOWN = 3


@dataclass(frozen=True)
class AuthServer:
    """The authorization server for an MCP server.

    Attributes:
        resource: The resource identifier of the MCP server (RFC 8707), unchanged.
        scopes: The scopes in the metadata of the MCP server; `None` if not given.
        metadata: The metadata of the authorization server.
        published: Whether the authorization server has published metadata. Otherwise they are
            assumed.
    """

    resource: str
    scopes: tuple[str, ...] | None
    metadata: AuthorizationServerMetadata
    published: bool = True


def discover(
    url: str, hint: str | None = None, *, issuer: str | None = None, known: Sequence[str] = ()
) -> FetchSteps[AuthServer]:
    """Find the authorization server for the MCP server at `url`; `hint` is from its challenge.

    If `issuer` is given, no other authorization server is acceptable. Otherwise those in `known`
    are preferred, the best first.

    Raises:
        DiscoveryFailed: There are no usable metadata, or they must not be used.
    """
    found = yield from find_resource(url, hint)
    if found is None:
        return (yield from _fallback(url, issuer))
    server = yield from find_server(
        _choose_issuer(found.authorization_servers or (), issuer, known)
    )
    if server is None:
        raise DiscoveryFailed("the authorization server that this server names has no metadata")
    scopes = found.scopes_supported
    return AuthServer(found.resource, None if scopes is None else tuple(scopes), server)


def find_resource(
    url: str, hint: str | None = None
) -> FetchSteps[ProtectedResourceMetadata | None]:
    """Find the metadata of the MCP server at `url`; return `None` if none exist (RFC 9728 §3, §5).

    Raises:
        DiscoveryFailed: The metadata are about another server, invalid, or temporarily unavailable.
    """
    for metadata_url in _resource_metadata_urls(url, hint):
        response = yield HttpRequest("GET", metadata_url, _HEADERS)
        found = _parse_document(
            response, ProtectedResourceMetadata, ("resource", "authorization_servers")
        )
        if found is None:
            continue
        if not covers(found.resource, url):
            raise DiscoveryFailed(
                f"the server's metadata describes another server, {_quoted(found.resource)}"
            )
        return found
    return None


def find_server(
    issuer: str, *, guessed: bool = False
) -> FetchSteps[AuthorizationServerMetadata | None]:
    """Find the metadata of the authorization server `issuer`, or return `None` (RFC 8414 §3).

    If `guessed` is true, `issuer` is an assumed origin, and the metadata may add a slash at its
    end.

    Raises:
        DiscoveryFailed: The metadata are those of another issuer, invalid, or temporarily
            unavailable.
    """
    for metadata_url in _server_metadata_urls(issuer):
        response = yield HttpRequest("GET", metadata_url, _HEADERS)
        found = _parse_document(response, AuthorizationServerMetadata, ("issuer", "token_endpoint"))
        if found is None:
            continue
        # Exact comparison: otherwise the owner of this URL could impersonate another issuer.
        if found.issuer != issuer and not (guessed and found.issuer == f"{issuer}/"):
            raise DiscoveryFailed(
                f"the metadata of the authorization server {_quoted(issuer)} names another"
                f" issuer, {_quoted(found.issuer)}"
            )
        return found
    return None


def require_pkce(auth_server: AuthServer) -> None:
    """Raise `DiscoveryFailed` unless the server supports PKCE with S256 (OAuth 2.1 §7.5.1)."""
    server = auth_server.metadata
    methods = server.code_challenge_methods_supported or ()
    if auth_server.published and "S256" not in methods:
        raise DiscoveryFailed(
            f"{named(server)} does not say that it supports PKCE with S256"
            " (code_challenge_methods_supported): signing in would not be safe"
        )


def canonical_resource(url: str) -> str:
    """The canonical URI of an MCP server (basic/authorization/index#canonical-server-uri).

    The URI has no user, query and fragment, which are not part of the resource and may be secret.
    """
    path = split_url(url).path
    return f"{origin_of(url)}{'' if path == '/' else path}"


def covers(resource: str, url: str) -> bool:
    """Whether a resource identifier is that of the server at `url`, or of a parent path.

    (RFC 9728 §3.3; RFC 8707 §2)
    """
    # URL parsers disagree about these characters, and the authorization server uses another parser.
    if not resource.isprintable() or " " in resource or "\\" in resource:
        return False
    try:
        parts, whole = split_url(resource), split_url(url)
        if origin_of(resource) != origin_of(url) or parts.fragment or parts.username is not None:
            return False
    except ValueError:
        return False
    if parts.query and (parts.path, parts.query) != (whole.path, whole.query):
        return False
    above, path = parts.path.rstrip("/"), whole.path
    return path == above or path.startswith(f"{above}/") or (not above and not path)


def is_wider(resource: str, url: str) -> bool:
    """Whether a resource identifier that covers the server at `url` is that of a parent path."""
    return split_url(resource).path.rstrip("/") != split_url(url).path.rstrip("/")


def _resource_metadata_urls(url: str, hint: str | None) -> list[str]:
    """The possible URLs of the metadata of the MCP server at `url`, in order (RFC 9728 §3.1)."""
    path = split_url(url).path
    root = f"{origin_of(url)}{_RESOURCE}"
    places = [] if hint is None else [hint]
    places += [root] if path in ("", "/") else [f"{root}{path}", root]
    return list(dict.fromkeys(places))


def _server_metadata_urls(issuer: str) -> list[str]:
    """The possible URLs of the metadata of `issuer`, in order.

    (basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery)

    Raises:
        DiscoveryFailed: `issuer` is not an issuer identifier (RFC 8414 §2).
    """
    try:
        parts = split_url(issuer)
        usable = bool(parts.scheme and parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = SplitResult("", "", "", "", "")
    if not usable or "?" in issuer or "#" in issuer:
        raise DiscoveryFailed(f"{_quoted(issuer)} is not the identifier of an authorization server")
    path = parts.path.rstrip("/")
    base = urlunsplit(parts._replace(path=""))
    if not path:
        return [f"{base}{_OAUTH}", f"{base}{_OPENID}"]
    return [f"{base}{_OAUTH}{path}", f"{base}{_OPENID}{path}", f"{base}{path}{_OPENID}"]


def same_but_slash(issuer: str, other: str) -> bool:
    """Whether two issuers differ by a slash at the end: a frequent mistake."""
    return issuer != other and issuer.rstrip("/") == other.rstrip("/")


def _choose_issuer(listed: Sequence[str], issuer: str | None, known: Sequence[str]) -> str:
    """The authorization server to use, of those that the metadata list (RFC 9728 §7.6)."""
    if issuer is not None:
        if issuer not in listed:
            shown = ", ".join(map(_quoted, listed[:_MOST_SHOWN])) or "nobody"
            if (others := len(listed) - _MOST_SHOWN) > 0:
                shown += f" and {counted(others, 'others')}"
            slash = any(same_but_slash(issuer, one) for one in listed)
            raise DiscoveryFailed(
                f"the server accepts tokens from {shown}, but not from the issuer that was named,"
                f" {_quoted(issuer)}"
                f"{' (the / at the end differs)' if slash else ''}"
            )
        return issuer
    if not listed:
        raise DiscoveryFailed("the server's metadata names no authorization server")
    return next((one for one in known if one in listed), listed[0])


def _fallback(url: str, issuer: str | None) -> FetchSteps[AuthServer]:
    """Return the authorization server of an MCP server without metadata: by default its origin.

    (2025-03-26 basic/authorization#fallbacks-for-servers-without-metadata-discovery)
    """
    origin = str(origin_of(url))
    server = yield from find_server(issuer or origin, guessed=issuer is None)
    published = server is not None
    if server is None:
        if issuer not in (None, origin):
            raise DiscoveryFailed(f"the issuer that was named, {_quoted(issuer)}, has no metadata")
        server = AuthorizationServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
        )
    return AuthServer(canonical_resource(url), None, server, published)


def _parse_document(response: HttpResponse, model: type[M], telling: tuple[str, ...]) -> M | None:
    """The metadata document in a response; `None` if there is none at that URL.

    Raises:
        DiscoveryFailed: The document is invalid, or temporarily unavailable.
    """
    if response.status >= 500 or response.status == 429:
        # Not treated as missing: otherwise an attacker could force the fallback by this error.
        raise DiscoveryFailed(
            "the authorization metadata is temporarily unavailable", status=response.status
        )
    if response.status != 200:
        return None
    value = json_body(response)  # some servers send an HTML page at every URL
    if not isinstance(value, dict) or not any(name in value for name in telling):
        return None
    try:
        return model.from_wire(value)
    except pydantic.ValidationError as error:
        raise DiscoveryFailed(
            f"the authorization metadata is malformed: {model.__name__}"
            f" has {counted(error.error_count(), 'errors')}"
        ) from error


def _quoted(url: str | None) -> str:
    """A server's URL for a message, quoted."""
    return repr(url) if url is None else whole(url, 200)


def named(server: AuthorizationServerMetadata) -> str:
    """Return the name of an authorization server in messages."""
    return f"the authorization server {_quoted(server.issuer)}"


OFFLINE = "offline_access"
"""The scope that requests a refresh token (OpenID Connect Core §11)."""


def union_scopes(*scopes: str | Iterable[str] | None) -> str | None:
    """Return all words of some scopes in order, without duplicates; `None` if there are none.

    No word replaces another one: only the server knows whether a scope includes another.
    """
    words = [
        word
        for scope in scopes
        if scope is not None
        for word in (scope.split() if isinstance(scope, str) else scope)
    ]
    return " ".join(dict.fromkeys(words)) or None


def missing_scopes(needed: str | None, had: str | None) -> frozenset[str]:
    """The words of `needed` that are not in `had`."""
    return frozenset((needed or "").split()).difference((had or "").split())


def select_scope(
    auth_server: AuthServer,
    *,
    challenged: str | None = None,
    configured: Iterable[str] | None = None,
    earlier: str | None = None,
    offline: bool = True,
) -> str | None:
    """Return the scope of an authorization request; `None` to request no scope.

    (basic/authorization/index#scope-selection-strategy)

    Args:
        auth_server: The authorization server.
        challenged: The scope that the current request needs, even if the metadata do not list it.
        configured: The user's scopes, which replace those of the metadata.
        earlier: The scope requested before, which is requested again.
        offline: Whether to request a refresh token, if the server supports that.
    """
    if configured is not None:
        scope = union_scopes(earlier, configured, challenged)
    elif challenged is not None:
        scope = union_scopes(earlier, challenged)
    else:
        scope = union_scopes(earlier, auth_server.scopes)
    words = [word for word in (scope or "").split() if word != OFFLINE]
    grants = auth_server.metadata.grant_types_supported
    offered = offline and OFFLINE in (auth_server.metadata.scopes_supported or ())
    # Not added as the only word: it would replace the server's default scopes.
    if words and offered and (grants is None or "refresh_token" in grants):
        words.append(OFFLINE)
    return " ".join(words) or None
