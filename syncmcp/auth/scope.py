"""Which scope to ask for (basic/authorization/index#scope-selection-strategy); no I/O."""

from __future__ import annotations

from collections.abc import Iterable

from syncmcp.auth.discovery import Place

__all__ = ["OFFLINE", "missing", "select", "union"]

OFFLINE = "offline_access"
"""Asks for a refresh token (OpenID Connect Core §11)."""


def union(*scopes: str | Iterable[str] | None) -> str | None:
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


def missing(needed: str | None, had: str | None) -> frozenset[str]:
    """The words of `needed` that `had` does not have."""
    return frozenset((needed or "").split()).difference((had or "").split())


def select(
    place: Place,
    *,
    challenged: str | None = None,
    configured: Iterable[str] | None = None,
    earlier: str | None = None,
    offline: bool = True,
) -> str | None:
    """The scope of an authorization request; `None`: it names none.

    Args:
        place: Where the request goes.
        challenged: The scope that a challenge names: what the request at hand needs, whatever the
            metadata list.
        configured: The scopes that the user wants; they replace those of the metadata.
        earlier: The scope that was asked for before, which is not to be lost.
        offline: Whether a refresh token is of use.
    """
    if configured is not None:
        scope = union(earlier, configured, challenged)
    elif challenged is not None:
        scope = union(earlier, challenged)
    else:
        scope = union(earlier, place.scopes)
    words = [word for word in (scope or "").split() if word != OFFLINE]
    grants = place.server.grant_types_supported
    offered = offline and OFFLINE in (place.server.scopes_supported or ())
    # Alone it would replace the scopes that the server has by default.
    if words and offered and (grants is None or "refresh_token" in grants):
        words.append(OFFLINE)
    return " ".join(words) or None
