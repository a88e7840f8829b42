"""Which results may be cached, for how long, and what invalidates them (2026-07-28, "Caching").

This module reads no clock: times are arguments, in seconds, and are only compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp._protocol.subscription import ChangeEvent, is_within
from syncmcp.errors import McpError, ServerError

MAX_TTL = 24 * 3600.0
"""The longest time, in seconds, that a result is cached, whatever its ``ttlMs``."""

MAX_URIS = 256
"""The number of resources whose changes are recorded separately."""

LONGEST_URI = 8192
"""The longest URI that is recorded, in characters; a longer one invalidates all resources."""

CACHEABLE_REQUESTS: Mapping[str, str | None] = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": None,
    "resources/templates/list": "resources",
    "server/discover": None,
    "skills/get": None,
    "skills/list": "skills",
    "tools/list": "tools",
}
"""The requests whose results may be cached, and the list whose page each result is, if any."""

# Requests with these parameters are not cached: they answer questions, or carry metadata.
_UNCACHEABLE_PARAMS = frozenset(("_meta", "inputResponses", "requestState"))


def is_cacheable(method: str, params: Mapping[str, Any] | None) -> bool:
    """Return True if a result of this request may be cached, provided that the server allows it."""
    return method in CACHEABLE_REQUESTS and (
        params is None or _UNCACHEABLE_PARAMS.isdisjoint(params)
    )


def ttl_seconds(result: Mapping[str, Any]) -> float:
    """Return the seconds for which a result may be cached; 0 if it must not be cached."""
    hint = result.get("ttlMs")
    if result.get("resultType", "complete") != "complete":
        return 0.0
    if isinstance(hint, bool) or not isinstance(hint, (int, float)):
        return 0.0
    # NaN is not above 0. Clamped before the division, because some numbers are too large for it.
    return min(hint, MAX_TTL * 1000) / 1000 if hint > 0 else 0.0


def is_public(result: Mapping[str, Any]) -> bool:
    """Return True if a result may be shared by users; without ``cacheScope`` it is private."""
    return result.get("cacheScope") == "public"


def first_page_params(method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the parameters for the first page of a list, if `params` are for a later page."""
    if CACHEABLE_REQUESTS.get(method) is None or params is None or "cursor" not in params:
        return None
    return {name: value for name, value in params.items() if name != "cursor"}


def list_of_refused_cursor(
    method: str, params: Mapping[str, Any] | None, error: McpError
) -> str | None:
    """Return the list whose cursor the server refused with `error`: its pages are invalid."""
    if not isinstance(error, ServerError) or error.code != INVALID_PARAMS:
        return None
    return None if first_page_params(method, params) is None else CACHEABLE_REQUESTS[method]


class InvalidationLog:
    """The times of the latest changes. Results that were requested earlier are outdated.

    The time of the *request* counts: if a result is in flight while the server notifies of a
    change, it is outdated when it arrives.
    """

    def __init__(self) -> None:
        self._lists: dict[str, float] = {}
        self._uris: dict[str, float] = {}
        # The latest change that may concern every resource, and every result.
        self._resources = self._everything = float("-inf")

    def record_change(self, event: ChangeEvent, now: float) -> None:
        """Record a change, or a possible change, at `now`."""
        if event.uri is None:
            self._lists[event.kind] = now
            return
        if len(event.uri) > LONGEST_URI:
            self._resources = max(self._resources, now)
            return
        self._uris.pop(event.uri, None)
        self._uris[event.uri] = now
        if len(self._uris) > MAX_URIS:
            # The older half is merged into one time that counts for every resource.
            for uri in list(self._uris)[: MAX_URIS // 2]:
                self._resources = max(self._resources, self._uris.pop(uri))

    def record_refused_cursor(self, name: str, now: float) -> None:
        """Record that the server refused a cursor of a list; see `list_of_refused_cursor`."""
        self._lists[name] = now

    def invalidate_all(self, now: float) -> None:
        """Invalidate all results, because the server may have been replaced."""
        self._everything = now

    def is_outdated(self, method: str, params: Mapping[str, Any] | None, asked: float) -> bool:
        """Return True if a result of this request, sent at `asked`, may be older than a change."""
        last = self._everything
        kind = CACHEABLE_REQUESTS.get(method)
        if kind is not None:
            last = max(last, self._lists.get(kind, last))
        elif method == "resources/read" and params is not None:
            wanted = params.get("uri")
            last = max(last, self._resources)
            for uri, when in self._uris.items():
                if when > last and isinstance(wanted, str) and is_within(uri, wanted):
                    last = when
        return asked <= last
