"""The interface of a revision: how requests are written, and results and tasks are read.

`revisions` chooses the implementation: `stateful` or `stateless`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.steps import InputRound
from syncmcp._protocol.tasks import TaskRules, TaskState


class Dialect(Protocol):
    """Writes requests and reads results as one revision of the protocol specifies.

    The bodies of the methods here are the behaviour of most revisions.
    """

    revision: str
    stateful: bool  # the revision has a handshake, sessions, and requests from the server
    batches: bool = False  # one frame may hold several messages
    tasks: TaskRules | None  # `None` if no call can become a task
    content_lists: bool = True  # the content of a sampling message may be a list of blocks
    # The block types allowed in a model's answer, if `content_lists` is false.
    single_blocks: frozenset[str] = frozenset()

    def required_capability(self, method: str) -> tuple[str, ...] | None:
        """Return the server capability that a request needs; `None` if there is no such request."""
        ...

    def unsupported_reason(self, method: str) -> str:
        """Return the text of the error for a request that the revision does not have."""
        return f"revision {self.revision} has no such request"

    def supports_notification(self, method: str) -> bool:
        """Return whether a client of this revision may send this notification."""
        return False

    def supported_part(self, offer: OfferedCapabilities) -> OfferedCapabilities:
        """Return the capabilities in `offer` that the revision has."""
        return offer

    def request_params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NO_OFFER,
    ) -> dict[str, Any] | None:
        """Return the parameters to send, with a `_meta`, without members that the revision lacks.

        Args:
            method: The method of the request, the same in all revisions.
            params: The parameters that the operation gave.
            id: The id of the request.
            meta: Keys that the caller adds to `_meta`.
            log_level: The lowest level of log messages that the caller wants for this request.
            offer: Which questions the server may ask in return.
        """
        ...

    def headers(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        """Return the HTTP headers of one request, from its method and parameters as sent."""
        return {}

    def mirror_arguments(self, on_excluded: Callable[[str, str], object]) -> None:
        """From now on, mirror tool arguments annotated with ``x-mcp-header`` into HTTP headers.

        Does nothing if the revision has no such annotations. `on_excluded` is called with the name
        of each tool that is left out of lists because its annotations are invalid, and the reason.
        """
        return

    def session_headers(self) -> Mapping[str, str]:
        """Return the HTTP headers of every message after the handshake."""
        return {}

    def notifies_cancel(self, *, own_stream: bool) -> bool:
        """Return True if the client cancels a request by a notification.

        `own_stream` says that the response has a separate stream. Before 2026-07-28, closing that
        stream does not cancel the request.
        """
        return True

    def read_result(self, method: str, result: Any) -> dict[str, Any] | InputRound | TaskState:
        """Return `result` if it is final; else the server's questions, or the task it became.

        `ProtocolError` if it is not an object, or of a kind that was not negotiated.
        """
        ...


class Reply(NamedTuple):
    """The result of a request before any validation, and the dialect that reads it."""

    result: Any
    dialect: Dialect
    altered: bool = False  # an interceptor changed the request or its result
