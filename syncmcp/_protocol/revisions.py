"""Eras as objects: everything that differs between revisions stands behind one `Dialect`.

No other module names a revision. What an era does not have is missing from its tables, and that
absence is the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from syncmcp._protocol import stateful, stateless
from syncmcp._protocol.client_capabilities import NOTHING, OfferedCapabilities
from syncmcp._protocol.steps import InputRound
from syncmcp._protocol.tasks import TaskProtocol, TaskState

STATELESS: tuple[str, ...] = (stateless.REVISION,)
"""Revisions without a session, newest first."""

STATEFUL: tuple[str, ...] = tuple(stateful.TABLES)
"""Revisions that start with `initialize`, newest first."""

REVISIONS: tuple[str, ...] = STATELESS + STATEFUL
"""Every published revision, newest first."""

NO_EXTENSIONS: Mapping[str, Any] = {}

Mode = Literal[
    "auto", "legacy", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"
]
"""How to find the revision to speak: by asking, by handshake, or by insisting on one."""

KNOWN_REQUESTS: frozenset[str] = frozenset(stateless.REQUESTS).union(
    stateless.EXTENSION_REQUESTS,
    *(table.requests for table in stateful.TABLES.values()),
)
"""Every request that a client can send in some revision."""

KNOWN_NOTIFICATIONS: frozenset[str] = frozenset[str]().union(
    *(table.notifications for table in stateful.TABLES.values())
)
"""Every notification that a client can send in some revision."""

KNOWN_QUESTIONS: frozenset[str] = frozenset[str]().union(
    *(table.questions for table in stateful.TABLES.values())
)
"""Every request that a server can send in some revision."""


class Dialect(Protocol):
    """How one revision says things."""

    revision: str

    stateful: bool
    """Whether there is a handshake, a session, and a server that may send requests."""

    batches: bool
    """Whether one frame may hold several messages."""

    tasks: TaskProtocol | None
    """How calls become tasks; `None` where none does."""

    def needs(self, method: str) -> tuple[str, ...] | None:
        """The path of the server capability that a request needs, ``()`` for none.

        `None` when the revision has no such request.
        """
        ...

    def why_not(self, method: str) -> str:
        """Why there is no such request."""
        ...

    def has_notification(self, method: str) -> bool:
        """Whether a client of this revision may send this notification."""
        ...

    content_lists: bool
    """Whether a message to or from a model may be a list of content blocks."""

    single_blocks: frozenset[str]
    """Where it may not: the types of the one block that a model may answer with."""

    def within(self, offer: OfferedCapabilities) -> OfferedCapabilities:
        """The part of `offer` that the revision has."""
        ...

    def params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NOTHING,
    ) -> dict[str, Any] | None:
        """The parameters as they travel: with `_meta`, without what the revision lacks.

        `meta` and `log_level` are what the caller wants in the `_meta` of this request; `offer` is
        what may be asked in return.
        """
        ...

    def headers(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The HTTP headers of one request."""
        ...

    def repeat_arguments(self, left_out: Callable[[str, str], object]) -> None:
        """Have HTTP headers repeat the arguments that tools mark, where the revision knows marks.

        `left_out` is told of each tool that its marks make unusable: its name and the reason.
        """
        ...

    def session_headers(self) -> Mapping[str, str]:
        """The HTTP headers of every message after the start."""
        ...

    def announces_cancel(self, *, own_stream: bool) -> bool:
        """Whether a cancel is a notification; with streams of one's own, closing can be it."""
        ...

    def read_result(self, method: str, result: Any) -> dict[str, Any] | InputRound | TaskState:
        """Return `result` if it is final, or what the server asks first, or the task it became.

        Raises:
            ProtocolError: It is no object, or of a kind that was not agreed on.
        """
        ...


def dialect_for(
    revision: str, client_info: dict[str, Any] | None, extensions: Mapping[str, Any] = NO_EXTENSIONS
) -> Dialect:
    """Build the dialect of `revision` for a client that presents itself like this."""
    if revision == stateless.REVISION:
        return stateless.Stateless(client_info, extensions)
    return stateful.Stateful(revision)


def session_capabilities(
    revision: str, offer: OfferedCapabilities, extensions: Mapping[str, Any] = NO_EXTENSIONS
) -> dict[str, Any]:
    """What a client that offers `offer` declares in a handshake for a stateful `revision`.

    Extensions have a place of their own since 2026-07-28; servers of older revisions that know one
    look for it there, too, and the others look past it.
    """
    capabilities = stateful.Stateful(revision).capabilities(offer)
    if extensions:
        capabilities["extensions"] = dict(extensions)
    return capabilities


def newest_shared(offered: object, ours: tuple[str, ...]) -> str | None:
    """The newest of our revisions that `offered`, a list from the server, has too."""
    if not isinstance(offered, (list, tuple)):
        return None
    for revision in ours:
        if revision in offered:
            return revision
    return None
