"""Subscriptions: the changes that a server is asked to notify of, and its notifications.

Before 2026-07-28, servers notify of changed lists unasked, and of a changed resource after
``resources/subscribe`` (server/resources#subscriptions). In 2026-07-28, one long-lived request
subscribes to all of these (basic/patterns/subscriptions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from syncmcp._protocol.capabilities import declares

LISTEN = "subscriptions/listen"
"""The request that stays open as long as its subscription (2026-07-28)."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
"""The notification of what a server grants of a subscription (2026-07-28)."""

_UPDATED = "notifications/resources/updated"

_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

Kind = Literal["tools", "prompts", "resources", "resource"]

_LISTS: Mapping[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}

_KINDS = tuple(_LISTS.values())

SUBSCRIPTION_NOTIFICATIONS = frozenset((*_LISTS, _UPDATED, ACKNOWLEDGED))
"""The notifications that belong to subscriptions."""


class ChangeEvent(NamedTuple):
    """A change, or a possible change, at the server.

    Attributes:
        kind: What changed: ``"tools"``, ``"prompts"`` or ``"resources"`` for one of these lists
            (that of resources includes the templates), ``"resource"`` for the content of one
            resource.
        uri: The URI of the resource; `None` for a list. May be below the URI that was subscribed
            to.
        missed: True if the server did not notify of this change: the connection was interrupted,
            and changes during the interruption are not reported afterwards.
    """

    kind: Kind
    uri: str | None = None
    missed: bool = False


class ChangeFilter(NamedTuple):
    """The changes that a subscriber wants to be notified of."""

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The lists in the filter."""
        return tuple(kind for kind in _KINDS if getattr(self, kind))

    def missing_capability(self, capabilities: Mapping[str, Any]) -> tuple[str, ...] | None:
        """Return the path of the first required server capability that is not in `capabilities`."""
        paths: list[tuple[str, ...]] = [(kind, "listChanged") for kind in self.kinds]
        if self.uris:
            paths.append(("resources", "subscribe"))
        for path in paths:
            if not declares(capabilities, path):
                return path
        return None

    def params(self) -> dict[str, Any]:
        """Return the parameters of `LISTEN`."""
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in self.kinds}
        if self.uris:
            wanted["resourceSubscriptions"] = list(self.uris)
        return {"notifications": wanted}

    def granted(self, params: Mapping[str, Any]) -> ChangeFilter:
        """Return the part that the server grants, from the parameters of `ACKNOWLEDGED`."""
        granted = params.get("notifications")
        if not isinstance(granted, dict):
            return ChangeFilter()
        lists = {kind: granted.get(f"{kind}ListChanged") is True for kind in self.kinds}
        return ChangeFilter(**lists, uris=_named(granted.get("resourceSubscriptions"), self.uris))

    def difference(self, other: ChangeFilter) -> ChangeFilter:
        """Return the part of the filter that is not in `other`."""
        lists = {kind: kind not in other.kinds for kind in self.kinds}
        return ChangeFilter(**lists, uris=tuple(uri for uri in self.uris if uri not in other.uris))

    def covers(self, event: ChangeEvent) -> bool:
        """Return True if the filter includes `event`."""
        if event.uri is None:
            return bool(getattr(self, event.kind))
        return any(is_within(event.uri, uri) for uri in self.uris)

    def missed_events(self) -> Iterator[ChangeEvent]:
        """Yield a missed event for each list and resource, to deliver after an interruption."""
        for kind in self.kinds:
            yield ChangeEvent(kind, missed=True)
        for uri in self.uris:
            yield ChangeEvent("resource", uri, missed=True)

    def __str__(self) -> str:
        return ", ".join((*self.kinds, *self.uris)) or "nothing"


def _named(value: Any, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the members of `wanted` that are in `value`, a list from the server."""
    named = {each for each in value if isinstance(each, str)} if isinstance(value, list) else set()
    return tuple(each for each in wanted if each in named)


def is_within(uri: str, subscribed: str) -> bool:
    """Return True if `uri` is the URI `subscribed`, or below it."""
    if not uri.startswith(subscribed):
        return False
    rest = uri[len(subscribed) :]
    return not rest or subscribed.endswith("/") or rest[0] in "/?#"


def read_event(method: str, params: Mapping[str, Any]) -> ChangeEvent | None:
    """Return the change that a notification reports; `None` if it reports no change."""
    kind = _LISTS.get(method)
    if kind is not None:
        return ChangeEvent(kind)
    uri = params.get("uri")
    if method == _UPDATED and isinstance(uri, str):
        return ChangeEvent("resource", uri)
    return None


def subscription_id(params: Mapping[str, Any], own: int | None = None) -> object:
    """Return the id of the `LISTEN` request that a notification belongs to (2026-07-28).

    A notification without that id belongs to `own`: the request on whose stream it arrived, if any.
    """
    meta = params.get("_meta")
    return meta.get(_SUBSCRIPTION_ID, own) if isinstance(meta, dict) else own
