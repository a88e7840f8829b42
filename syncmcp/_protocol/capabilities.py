"""What a server cannot be asked, and why; and what it cannot ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from syncmcp._protocol.client_capabilities import OfferedCapabilities
from syncmcp._protocol.revisions import KNOWN_REQUESTS, Dialect

HARMLESS = frozenset(
    (
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "subscriptions/listen",
        "tasks/cancel",
        "tasks/get",
        "tasks/list",
        "tasks/result",
        "tasks/update",
        "tools/list",
    )
)
"""Requests that only ask. Repeating any other one might do its work twice."""

Undeclared = Literal["refuse", "try"]
"""What becomes of a request whose capability the server does not declare."""


class Unavailable(NamedTuple):
    """Why a known request is not made here."""

    reason: str

    undeclared: bool = False
    """Whether the revision has the request, and only the server does not declare the capability.
    Some servers handle what they do not declare, so a program may have it tried."""


def unavailable_requests(
    dialect: Dialect, capabilities: Mapping[str, Any]
) -> dict[str, Unavailable]:
    """The gate of each known request that has one here."""
    missing = {}
    for method in KNOWN_REQUESTS:
        path = dialect.needs(method)
        if path is None:
            missing[method] = Unavailable(dialect.why_not(method))
            continue
        if not declares(capabilities, path):
            missing[method] = Unavailable(not_declared(path), undeclared=True)
    return missing


def not_declared(path: tuple[str, ...]) -> str:
    """The text of the error about a capability that the server does not declare."""
    name = ".".join(path)
    return (
        f"the server does not declare the capability {name}"
        ' (undeclared="try" asks for it all the same)'
    )


def declares(capabilities: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a server with these capabilities has the one at `path`."""
    value: Any = capabilities
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
        # Some servers write `true` or an empty object for the same thing.
        if value is None or value is False:
            return False
    return True


def undeclared(
    dialect: Dialect | None, offer: OfferedCapabilities, declared: OfferedCapabilities | None
) -> str | None:
    """What of `offer` a server cannot know of, because its handshake `declared` less."""
    if dialect is None or not dialect.stateful or declared is None:
        return None
    for name, now, then in zip(
        offer._fields, dialect.within(offer), dialect.within(declared), strict=True
    ):
        if now and not then:
            return name.replace("_", " ")
    return None


def every_capability(dialect: Dialect) -> dict[str, Any]:
    """What a server would declare that can do everything its revision has."""
    capabilities: dict[str, Any] = {}
    for method in KNOWN_REQUESTS:
        inner = capabilities
        for key in dialect.needs(method) or ():
            inner = inner.setdefault(key, {})
    return capabilities
