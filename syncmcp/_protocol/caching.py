"""Which results may be kept, for how long, and what outdates them (spec: 2026-07-28, "Caching").

Nothing here looks at a clock: points in time are given, in seconds, and only compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.jsonrpc import INVALID_PARAMS
from syncmcp._protocol.subscription import ChangeEvent, is_within
from syncmcp.errors import McpError, ServerError

MAX_TTL = 24 * 3600.0
"""No result is kept longer than this, in seconds, whatever its server says."""

MAX_URIS = 256
"""Resources whose changes are known one by one."""

# The requests whose results may be kept, and the list that each is a page of.
_METHODS: Mapping[str, str | None] = {
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/read": None,
    "resources/templates/list": "resources",
    "server/discover": None,
    "skills/get": None,
    "skills/list": "skills",
    "tools/list": "tools",
}

# With these it is a request of its own: it answers questions, or says more than its parameters.
_UNCACHEABLE_PARAMS = frozenset(("_meta", "inputResponses", "requestState"))


def is_cacheable(method: str, params: Mapping[str, Any] | None) -> bool:
    """Whether a result of this request may be kept, if the server says so."""
    return method in _METHODS and (params is None or _UNCACHEABLE_PARAMS.isdisjoint(params))


def ttl_seconds(result: Mapping[str, Any]) -> float:
    """Seconds for which a result may be used; 0 for none at all."""
    hint = result.get("ttlMs")
    if result.get("resultType", "complete") != "complete":
        return 0.0
    if isinstance(hint, bool) or not isinstance(hint, (int, float)):
        return 0.0
    # In this order: what is no number at all is not above 0, and some are too large to divide.
    return min(hint, MAX_TTL * 1000) / 1000 if hint > 0 else 0.0


def is_public(result: Mapping[str, Any]) -> bool:
    """Whether others may have it, too. What does not say so is private."""
    return result.get("cacheScope") == "public"


def first_page_params(method: str, params: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The parameters for the first page of a list, if these are for a later one."""
    if _METHODS.get(method) is None or params is None or "cursor" not in params:
        return None
    return {name: value for name, value in params.items() if name != "cursor"}


def list_of_refused_cursor(
    method: str, params: Mapping[str, Any] | None, error: McpError
) -> str | None:
    """The list whose cursor a server refuses with this error: its pages are of no use any more."""
    if not isinstance(error, ServerError) or error.code != INVALID_PARAMS:
        return None
    return None if first_page_params(method, params) is None else _METHODS[method]


class InvalidationLog:
    """When things changed last, as far as it was told. What was asked for before that is outdated.

    It looks at the time when a result was *asked for*: then a result on its way while the change is
    told is outdated as well, whenever it arrives and whoever asked for it.
    """

    def __init__(self) -> None:
        self._lists: dict[str, float] = {}
        self._uris: dict[str, float] = {}
        # For every resource, and for everything.
        self._resources = self._everything = float("-inf")

    def record_change(self, event: ChangeEvent, now: float) -> None:
        """Something has changed, or may have."""
        if event.uri is None:
            self._lists[event.kind] = now
            return
        self._uris.pop(event.uri, None)
        self._uris[event.uri] = now
        if len(self._uris) > MAX_URIS:
            # Those that changed longest ago are known no more: any resource may be one of them.
            for uri in list(self._uris)[: MAX_URIS // 2]:
                self._resources = max(self._resources, self._uris.pop(uri))

    def record_refused_cursor(self, name: str, now: float) -> None:
        """The server refused a cursor of this list; see `refused_page`."""
        self._lists[name] = now

    def invalidate_all(self, now: float) -> None:
        """It is another server now, perhaps."""
        self._everything = now

    def is_outdated(self, method: str, params: Mapping[str, Any] | None, asked: float) -> bool:
        """Whether the result of this request, asked for at `asked`, may be older than a change."""
        last = self._everything
        kind = _METHODS.get(method)
        if kind is not None:
            last = max(last, self._lists.get(kind, last))
        elif method == "resources/read" and params is not None:
            wanted = params.get("uri")
            last = max(last, self._resources)
            for uri, when in self._uris.items():
                if when > last and isinstance(wanted, str) and is_within(uri, wanted):
                    last = when
        return asked <= last
