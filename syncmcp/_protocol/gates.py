"""What a server cannot be asked, and why; and what it cannot ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncmcp._protocol.dialect import KNOWN_REQUESTS, Dialect
from syncmcp._protocol.offer import Offer


def gates(dialect: Dialect, capabilities: Mapping[str, Any]) -> dict[str, str]:
    """For each known request that cannot be made here, why not."""
    missing = {}
    for method in KNOWN_REQUESTS:
        path = dialect.needs(method)
        if path is None:
            missing[method] = dialect.why_not(method)
            continue
        if not declares(capabilities, path):
            missing[method] = f"the server does not declare the capability {'.'.join(path)}"
    return missing


def declares(capabilities: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a server with these capabilities has the one at `path`."""
    value: Any = capabilities
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
        # Some servers write `true` or an empty object for the same thing.
        if value is None or value is False:
            return False
    return True


def undeclared(dialect: Dialect | None, offer: Offer, declared: Offer | None) -> str | None:
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
