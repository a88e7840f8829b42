"""The revisions of the protocol, and the choice of the `Dialect` for each.

All differences between revisions are behind `Dialect`; outside this package, only `testing`
compares revisions. A request that is not in a dialect's table is not available in the revision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from syncmcp._protocol import stateful, stateless
from syncmcp._protocol.capabilities import OfferedCapabilities, Unavailable, declares, not_declared
from syncmcp._protocol.dialect import Dialect

STATELESS: tuple[str, ...] = stateless.REVISIONS
"""Revisions without a session, newest first."""

STATEFUL: tuple[str, ...] = tuple(stateful.REVISION_FEATURES)
"""Revisions that start with `initialize`, newest first."""

REVISIONS: tuple[str, ...] = STATELESS + STATEFUL
"""Every published revision, newest first."""

NO_EXTENSIONS: Mapping[str, Any] = {}
"""The extensions of a client that enables none."""

Mode = Literal["auto", "legacy", stateful.Revision, stateless.Revision]
"""How the revision is negotiated: by a probe, by a handshake, or by accepting only one."""

KNOWN_REQUESTS: frozenset[str] = frozenset(stateless.REQUESTS).union(
    stateless.EXTENSION_REQUESTS,
    *(table.requests for table in stateful.REVISION_FEATURES.values()),
)
"""Every request that a client can send in some revision."""

IDEMPOTENT_REQUESTS = KNOWN_REQUESTS - {"tools/call"}
"""Requests that may be repeated without doing their work twice."""

KNOWN_NOTIFICATIONS: frozenset[str] = frozenset[str]().union(
    *(table.notifications for table in stateful.REVISION_FEATURES.values())
)
"""Every notification that a client can send in some revision."""

KNOWN_QUESTIONS: frozenset[str] = frozenset[str]().union(
    *(table.questions for table in stateful.REVISION_FEATURES.values())
)
"""Every request that a server can send in some revision."""


def dialect_for(
    revision: str, client_info: dict[str, Any] | None, extensions: Mapping[str, Any] = NO_EXTENSIONS
) -> Dialect:
    """Build the dialect of `revision` for a client with this info and these extensions."""
    if revision in STATELESS:
        return stateless.Stateless(revision, client_info, extensions)
    return stateful.Stateful(revision)


def session_capabilities(
    revision: str, offer: OfferedCapabilities, extensions: Mapping[str, Any] = NO_EXTENSIONS
) -> dict[str, Any]:
    """Return the capabilities object of a handshake in a stateful `revision`.

    The member ``extensions`` is of 2026-07-28. Servers of older revisions that implement an
    extension read it, too, and the others ignore it.
    """
    capabilities = stateful.Stateful(revision).capabilities(offer)
    if extensions:
        capabilities["extensions"] = dict(extensions)
    return capabilities


def tool_failed(result: Mapping[str, Any]) -> bool:
    """Return True if a tool ran and failed, from its result in any revision."""
    return result.get("isError") is True


def newest_common(offered: object, ours: tuple[str, ...]) -> str | None:
    """Return the newest revision in `ours` that is also in `offered`, a list from the server."""
    if not isinstance(offered, (list, tuple)):
        return None
    for revision in ours:
        if revision in offered:
            return revision
    return None


def unavailable_requests(
    dialect: Dialect, capabilities: Mapping[str, Any]
) -> dict[str, Unavailable]:
    """Return the requests that cannot be sent with these server capabilities, and the reasons."""
    missing = {}
    for method in KNOWN_REQUESTS:
        path = dialect.required_capability(method)
        if path is None:
            missing[method] = Unavailable(dialect.unsupported_reason(method))
            continue
        if not declares(capabilities, path):
            missing[method] = Unavailable(not_declared(path), undeclared=True)
    return missing


def undeclared_offer(
    dialect: Dialect | None, offer: OfferedCapabilities, declared: OfferedCapabilities | None
) -> str | None:
    """Return the first capability in `offer` that the handshake did not declare, or `None`.

    In stateful revisions, a server cannot use a capability that was added after the handshake.
    """
    if dialect is None or not dialect.stateful or declared is None:
        return None
    for name, now, then in zip(
        offer._fields, dialect.supported_part(offer), dialect.supported_part(declared), strict=True
    ):
        if now and not then:
            return name.replace("_", " ")
    return None


def every_capability(dialect: Dialect) -> dict[str, Any]:
    """Return the capabilities of a server that supports every request of the revision."""
    capabilities: dict[str, Any] = {}
    for method in KNOWN_REQUESTS:
        inner = capabilities
        for key in dialect.required_capability(method) or ():
            inner = inner.setdefault(key, {})
    return capabilities
