"""Where to sign in: metadata of the MCP server, then of its authorization server; no I/O.

(basic/authorization/authorization-server-discovery; RFC 9728, RFC 8414, OpenID Connect Discovery)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, urlsplit, urlunsplit

import pydantic

from syncmcp._protocol.revisions import STATEFUL
from syncmcp.auth.steps import FetchSteps, HttpRequest, HttpResponse, json_body
from syncmcp.errors import DiscoveryFailed
from syncmcp.types.extensions import (
    AuthModel,
    AuthorizationServerMetadata,
    ProtectedResourceMetadata,
)

__all__ = [
    "OFFLINE",
    "AuthServer",
    "canonical_resource",
    "covers",
    "discover",
    "find_resource",
    "find_server",
    "missing_scopes",
    "origin_of",
    "require_pkce",
    "select_scope",
    "union_scopes",
]


M = TypeVar("M", bound=AuthModel)

_RESOURCE = "/.well-known/oauth-protected-resource"
_OAUTH = "/.well-known/oauth-authorization-server"
_OPENID = "/.well-known/openid-configuration"

# Servers of 2025-03-26 may answer by the revision of the client; this is the newest that has the
# handshake they know. (2025-03-26 basic/authorization#server-metadata-discovery-headers)
_HEADERS = {"Accept": "application/json", "MCP-Protocol-Version": STATEFUL[0]}

_MOST_SHOWN = 3

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port of a URL, as they are compared."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" if usual else f"{self.scheme}://{host}:{self.port}"


@dataclass(frozen=True)
class AuthServer:
    """Where to sign in for an MCP server.

    Attributes:
        resource: What the token is to be for (RFC 8707), letter by letter.
        scopes: The scopes that the resource's metadata list, if they do.
        server: The authorization server.
        published: Whether the authorization server has metadata; without, they are assumed.
    """

    resource: str
    scopes: tuple[str, ...] | None
    metadata: AuthorizationServerMetadata
    published: bool = True


def discover(
    url: str, hint: str | None = None, *, issuer: str | None = None, known: str | None = None
) -> FetchSteps[AuthServer]:
    """Find out where to sign in for the MCP server at `url`.

    Args:
        url: The MCP server.
        hint: Where its challenge says its metadata are.
        issuer: The one authorization server that is acceptable, if there is only one.
        known: The authorization server of the last login, taken where there is a choice.

    Raises:
        DiscoveryFailed: It cannot be found out, or metadata must not be used.
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
    """The metadata of the MCP server at `url`; `None` if it has none (RFC 9728 §3, §5).

    Raises:
        DiscoveryFailed: They are about another server, are no use, or cannot be had now.
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
                f"the metadata of the server are about another one, {_quoted(found.resource)}"
            )
        return found
    return None


def find_server(
    issuer: str, *, guessed: bool = False
) -> FetchSteps[AuthorizationServerMetadata | None]:
    """The metadata of the authorization server `issuer`; `None` if it has none (RFC 8414 §3).

    Args:
        issuer: Its name, which is the address of its metadata, too.
        guessed: Whether nobody has named it: it is an origin, and may write itself with a slash.

    Raises:
        DiscoveryFailed: They are another issuer's, are no use, or cannot be had now.
    """
    for metadata_url in _server_metadata_urls(issuer):
        response = yield HttpRequest("GET", metadata_url, _HEADERS)
        found = _parse_document(response, AuthorizationServerMetadata, ("issuer", "token_endpoint"))
        if found is None:
            continue
        # Letter by letter: whoever may publish here could otherwise speak for another issuer.
        if found.issuer != issuer and not (guessed and found.issuer == f"{issuer}/"):
            raise DiscoveryFailed(
                f"the metadata of the authorization server {_quoted(issuer)} are those of another"
                f" issuer, {_quoted(found.issuer)}"
            )
        return found
    return None


def require_pkce(auth_server: AuthServer) -> None:
    """Make sure that the authorization server knows PKCE with S256 (OAuth 2.1 §7.5.1).

    Raises:
        DiscoveryFailed: Its metadata do not say so.
    """
    methods = auth_server.metadata.code_challenge_methods_supported or ()
    if auth_server.published and "S256" not in methods:
        raise DiscoveryFailed(
            f"the authorization server {_quoted(auth_server.metadata.issuer)} does not say that it"
            " supports PKCE with S256 (code_challenge_methods_supported): signing in would not be safe"
        )


def origin_of(url: str) -> Origin:
    """Scheme, host and port of a URL.

    Raises:
        ValueError: It is no URL.
    """
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return Origin(scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(scheme))


def canonical_resource(url: str) -> str:
    """The canonical URI of an MCP server (basic/authorization/index#canonical-server-uri).

    Without user, query and fragment: they name no resource, and some are secret.
    """
    path = urlsplit(url).path
    return f"{origin_of(url)}{'' if path == '/' else path}"


def covers(resource: str, url: str) -> bool:
    """Whether a resource identifier names the server at `url`, or all that is below it.

    (RFC 9728 §3.3; RFC 8707 §2: a resource may stand for what is below its path.)
    """
    try:
        parts, whole = urlsplit(resource), urlsplit(url)
        if origin_of(resource) != origin_of(url) or parts.fragment or parts.username is not None:
            return False
    except ValueError:
        return False
    if parts.query and (parts.path, parts.query) != (whole.path, whole.query):
        return False
    above, path = parts.path.rstrip("/"), whole.path
    return path == above or path.startswith(f"{above}/") or (not above and not path)


def _resource_metadata_urls(url: str, hint: str | None) -> list[str]:
    """Where the metadata of the MCP server at `url` may be, in order (RFC 9728 §3.1)."""
    path = urlsplit(url).path
    root = f"{origin_of(url)}{_RESOURCE}"
    places = [] if hint is None else [hint]
    places += [root] if path in ("", "/") else [f"{root}{path}", root]
    return list(dict.fromkeys(places))


def _server_metadata_urls(issuer: str) -> list[str]:
    """Where the metadata of `issuer` may be, in order.

    (basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery)

    Raises:
        DiscoveryFailed: It is no issuer identifier (RFC 8414 §2).
    """
    try:
        parts = urlsplit(issuer)
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


def _choose_issuer(listed: Sequence[str], issuer: str | None, known: str | None) -> str:
    """The authorization server to use of those listed (RFC 9728 §7.6)."""
    if issuer is not None:
        if issuer not in listed:
            shown = ", ".join(map(_quoted, listed[:_MOST_SHOWN])) or "nobody"
            others = len(listed) - _MOST_SHOWN
            raise DiscoveryFailed(
                f"the server takes tokens of {shown}{f' and {others} others' * (others > 0)}, and"
                f" not of the issuer that was configured, {_quoted(issuer)}"
            )
        return issuer
    if not listed:
        raise DiscoveryFailed("the metadata of the server name no authorization server")
    return known if known is not None and known in listed else listed[0]


def _fallback(url: str, issuer: str | None) -> FetchSteps[AuthServer]:
    """A server without metadata of its own: its origin is the authorization server.

    (2025-03-26 basic/authorization#fallbacks-for-servers-without-metadata-discovery)
    """
    origin = str(origin_of(url))
    server = yield from find_server(issuer or origin, guessed=issuer is None)
    published = server is not None
    if server is None:
        if issuer not in (None, origin):
            raise DiscoveryFailed(
                f"the issuer that was configured, {_quoted(issuer)}, has no metadata"
            )
        server = AuthorizationServerMetadata(
            issuer=origin,
            authorization_endpoint=f"{origin}/authorize",
            token_endpoint=f"{origin}/token",
            registration_endpoint=f"{origin}/register",
        )
    return AuthServer(canonical_resource(url), None, server, published)


def _parse_document(response: HttpResponse, model: type[M], telling: tuple[str, ...]) -> M | None:
    """A metadata document out of an answer; `None` if there is none at that URL.

    Raises:
        DiscoveryFailed: There might be one and it cannot be had now, or it makes no sense.
    """
    if response.status >= 500 or response.status == 429:
        # Not "there is none": going on without would let whoever can cause this choose the flow.
        raise DiscoveryFailed(
            "the metadata that say where to sign in cannot be had now", status=response.status
        )
    if response.status != 200:
        return None
    value = json_body(response)  # or a page for people, as some servers have at every address
    if not isinstance(value, dict) or not any(name in value for name in telling):
        return None
    try:
        return model.from_wire(value)
    except pydantic.ValidationError as error:
        raise DiscoveryFailed(
            f"the metadata that say where to sign in are malformed: {model.__name__}"
            f" has {error.error_count()} faults"
        ) from error


def _quoted(url: str | None) -> str:
    """A URL of a server's for a message: one line, not for ever."""
    return repr(url if url is None else url[:200])


# Which scope to ask for (basic/authorization/index#scope-selection-strategy); no I/O.


OFFLINE = "offline_access"
"""Asks for a refresh token (OpenID Connect Core §11)."""


def union_scopes(*scopes: str | Iterable[str] | None) -> str | None:
    """All words of some scopes in order, each once; `None` if there are none.

    No word counts as part of another one: what scopes mean is the server's business.
    """
    words = [
        word
        for scope in scopes
        if scope is not None
        for word in (scope.split() if isinstance(scope, str) else scope)
    ]
    return " ".join(dict.fromkeys(words)) or None


def missing_scopes(needed: str | None, had: str | None) -> frozenset[str]:
    """The words of `needed` that `had` does not have."""
    return frozenset((needed or "").split()).difference((had or "").split())


def select_scope(
    auth_server: AuthServer,
    *,
    challenged: str | None = None,
    configured: Iterable[str] | None = None,
    earlier: str | None = None,
    offline: bool = True,
) -> str | None:
    """The scope of an authorization request; `None`: it names none.

    Args:
        auth_server: Where the request goes.
        challenged: The scope that a challenge names: what the request at hand needs, whatever the
            metadata list.
        configured: The scopes that the user wants; they replace those of the metadata.
        earlier: The scope that was asked for before, which is not to be lost.
        offline: Whether a refresh token is of use.
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
    # Alone it would replace the scopes that the server has by default.
    if words and offered and (grants is None or "refresh_token" in grants):
        words.append(OFFLINE)
    return " ".join(words) or None
