"""What changes a server is asked to tell of, and how it tells.

Until 2025-11-25 it tells of its lists unasked, and of a resource after ``resources/subscribe``
(server/resources#subscriptions). In 2026-07-28 one long request asks for all of it
(basic/patterns/subscriptions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from syncmcp._protocol.capabilities import declares

LISTEN = "subscriptions/listen"
"""The request that lasts as long as its subscription (2026-07-28)."""

ACKNOWLEDGED = "notifications/subscriptions/acknowledged"

TASK = "notifications/tasks"
"""What a server tells of a task to those who listen for it (the extension of 2026-07-28)."""

_UPDATED = "notifications/resources/updated"

_SUBSCRIPTION_ID = "io.modelcontextprotocol/subscriptionId"

Kind = Literal["tools", "prompts", "resources", "resource"]

_LISTS: Mapping[str, Kind] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}

_KINDS = tuple(_LISTS.values())

SUBSCRIPTION_NOTIFICATIONS = frozenset((*_LISTS, _UPDATED, TASK, ACKNOWLEDGED))
"""The notifications that are about subscriptions."""


class ChangeEvent(NamedTuple):
    """Something has changed at the server, or may have."""

    kind: Kind
    """``"tools"``, ``"prompts"`` or ``"resources"`` for these lists (that of resources includes
    the templates), ``"resource"`` for what one resource contains."""

    uri: str | None = None
    """Which resource; `None` for a list. May lie below the one that is listened to."""

    missed: bool = False
    """Nobody said that it changed: the connection was interrupted, and if it changed meanwhile,
    nobody will say so any more."""


class ChangeFilter(NamedTuple):
    """What somebody wants to be told of."""

    tools: bool = False
    prompts: bool = False
    resources: bool = False
    uris: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The lists."""
        return tuple(kind for kind in _KINDS if getattr(self, kind))

    def missing_capability(self, capabilities: Mapping[str, Any]) -> tuple[str, ...] | None:
        """The path of a capability that is needed, and that a server with these lacks."""
        paths: list[tuple[str, ...]] = [(kind, "listChanged") for kind in self.kinds]
        if self.uris:
            paths.append(("resources", "subscribe"))
        for path in paths:
            if not declares(capabilities, path):
                return path
        return None

    def params(self) -> dict[str, Any]:
        """The parameters of `LISTEN`."""
        wanted: dict[str, Any] = {f"{kind}ListChanged": True for kind in self.kinds}
        if self.uris:
            wanted["resourceSubscriptions"] = list(self.uris)
        if self.tasks:
            wanted["taskIds"] = list(self.tasks)
        return {"notifications": wanted}

    def granted(self, params: Mapping[str, Any]) -> ChangeFilter:
        """What of it the server agrees to, as `ACKNOWLEDGED` says."""
        said = params.get("notifications")
        if not isinstance(said, dict):
            return ChangeFilter()
        lists = {kind: said.get(f"{kind}ListChanged") is True for kind in self.kinds}
        return ChangeFilter(
            **lists,
            uris=_named(said.get("resourceSubscriptions"), self.uris),
            tasks=_named(said.get("taskIds"), self.tasks),
        )

    def difference(self, other: ChangeFilter) -> ChangeFilter:
        """What `other` has not."""
        lists = {kind: kind not in other.kinds for kind in self.kinds}
        return ChangeFilter(
            **lists,
            uris=tuple(uri for uri in self.uris if uri not in other.uris),
            tasks=tuple(task for task in self.tasks if task not in other.tasks),
        )

    def covers(self, event: ChangeEvent) -> bool:
        """Whether `event` is about something that is wanted."""
        if event.uri is None:
            return bool(getattr(self, event.kind))
        return any(is_within(event.uri, uri) for uri in self.uris)

    def missed_events(self) -> Iterator[ChangeEvent]:
        """An event for each, after an interruption."""
        for kind in self.kinds:
            yield ChangeEvent(kind, missed=True)
        for uri in self.uris:
            yield ChangeEvent("resource", uri, missed=True)

    def __str__(self) -> str:
        # Whoever knows the id of a task may get its result: it is in no log.
        tasks = [f"{len(self.tasks)} tasks"] if self.tasks else []
        return ", ".join((*self.kinds, *self.uris, *tasks)) or "nothing"


def _named(said: Any, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Which of `wanted` a server names."""
    named = {each for each in said if isinstance(each, str)} if isinstance(said, list) else set()
    return tuple(each for each in wanted if each in named)


def is_within(uri: str, subscribed: str) -> bool:
    """Whether `uri` is the one that is subscribed to, or lies below it."""
    if not uri.startswith(subscribed):
        return False
    rest = uri[len(subscribed) :]
    return not rest or subscribed.endswith("/") or rest[0] in "/?#"


def read_event(method: str, params: Mapping[str, Any]) -> ChangeEvent | None:
    """What a notification says has changed; `None` if it does not say that."""
    kind = _LISTS.get(method)
    if kind is not None:
        return ChangeEvent(kind)
    uri = params.get("uri")
    if method == _UPDATED and isinstance(uri, str):
        return ChangeEvent("resource", uri)
    return None


def subscription_id(params: Mapping[str, Any], own: int | None = None) -> object:
    """The id of the request that a notification belongs to (2026-07-28).

    Args:
        params: Its parameters.
        own: The request on whose own stream it came, if it came on one: there, one without an id
            belongs to that.
    """
    meta = params.get("_meta")
    return meta.get(_SUBSCRIPTION_ID, own) if isinstance(meta, dict) else own
