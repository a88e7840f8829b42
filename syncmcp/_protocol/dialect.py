"""The interface of a revision: how requests are written, and results and tasks are read.

`revisions` chooses the implementation: `stateful` or `stateless`, with the tasks of `tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.steps import InputQuestion, InputRound, Steps


class TaskState(NamedTuple):
    """The state of a task, as the server reported it."""

    id: str
    status: str
    interval: float
    """Seconds to wait before the next poll."""

    raw: dict[str, Any]
    """The task object as the server sent it."""


class PolledTask(Protocol):
    """The part of `exchange.TaskPoller` that a `TaskProtocol` uses."""

    @property
    def id(self) -> str:
        """The task's id."""
        ...

    @property
    def state(self) -> TaskState | None:
        """The latest state; `None` before the first poll."""
        ...

    @property
    def ended(self) -> bool:
        """Whether the latest state is a final one."""
        ...

    def set_final_status(self, status: str) -> None:
        """Record a final status that was not polled."""
        ...

    def poll(self, timeout: float | None = None) -> Steps[Dialect]:
        """Poll the task once; return the dialect of the connection."""
        ...

    def answer_questions(
        self, questions: Mapping[str, InputQuestion], timeout: float | None = None
    ) -> Steps[None]:
        """Have new questions answered and send the answers (2026-07-28)."""
        ...


class TaskProtocol(Protocol):
    """How tasks are read and their results fetched: one implementation for each era."""

    required_capability: tuple[str, ...]
    """The path of the server capability without which no call becomes a task."""

    requested_by_client: bool
    """True if the client asks for a task in the parameters of the call; false if the server alone
    decides that a call becomes a task."""

    def read(self, method: str, raw: Any) -> TaskState:
        """Read the task object in the result of `method`.

        Raises:
            ProtocolError: The task object has no id or no status.
        """
        ...

    def advance(
        self, poller: PolledTask, dialect: Dialect, timeout: float | None
    ) -> Steps[dict[str, Any] | None]:
        """Act on the latest state of a task; return the result of the call, `None` if not done.

        Raises:
            McpError: The call failed or was cancelled, or a request about the task failed.
        """
        ...


class Dialect(Protocol):
    """Writes requests and reads results as one revision of the protocol specifies."""

    revision: str

    stateful: bool
    """True if the revision has a handshake, sessions, and requests from the server."""

    batches: bool
    """True if one frame may hold several messages."""

    tasks: TaskProtocol | None
    """The revision's tasks; `None` if no call can become a task."""

    def required_capability(self, method: str) -> tuple[str, ...] | None:
        """The path of the server capability that a request needs, ``()`` for none.

        `None` if the revision does not have the request.
        """
        ...

    def unsupported_reason(self, method: str) -> str:
        """The text of the error for a request that the revision does not have."""
        ...

    def supports_notification(self, method: str) -> bool:
        """Whether a client of this revision may send this notification."""
        ...

    content_lists: bool
    """True if the content of a sampling message may be a list of blocks."""

    single_blocks: frozenset[str]
    """The block types allowed in a model's answer, if `content_lists` is false; else empty."""

    def supported_part(self, offer: OfferedCapabilities) -> OfferedCapabilities:
        """The capabilities in `offer` that the revision has."""
        ...

    def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NO_OFFER,
    ) -> tuple[str, dict[str, Any] | None]:
        """The method and the parameters to send.

        The parameters have a `_meta`, and no members that the revision lacks.

        Args:
            method: The method of the request, the same in all revisions.
            params: The parameters that the operation gave.
            id: The id of the request.
            meta: Keys that the caller adds to `_meta`.
            log_level: The least severe log messages that the caller wants, if it asks per request.
            offer: Which questions the server may ask in return.
        """
        ...

    def headers(self, id: int, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The HTTP headers of one request: its id, and its method and parameters as sent."""
        ...

    def mirror_arguments(self, on_excluded: Callable[[str, str], object]) -> None:
        """From now on, mirror tool arguments annotated with ``x-mcp-header`` into HTTP headers.

        Does nothing if the revision has no such annotations.

        Args:
            on_excluded: Called with the name of each tool that is left out of lists because its
                annotations are invalid, and the reason.
        """
        ...

    def session_headers(self) -> Mapping[str, str]:
        """The HTTP headers of every message after the handshake."""
        ...

    def notifies_cancel(self, *, own_stream: bool) -> bool:
        """True if a request is cancelled by a notification.

        Args:
            own_stream: The response has a stream of its own, which can be closed instead.
        """
        ...

    def read_result(self, method: str, result: Any) -> dict[str, Any] | InputRound | TaskState:
        """Return `result` if it is final; else the server's questions, or the task it became.

        Raises:
            ProtocolError: The result is no object, or of a kind that was not agreed on.
        """
        ...


class Reply(NamedTuple):
    """The result of a request before any validation, and the dialect that reads it."""

    result: Any
    dialect: Dialect
    altered: bool = False
    """True if an interceptor changed the request or its result."""
