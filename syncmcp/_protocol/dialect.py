"""The interface of a revision: how requests are written, and results and tasks are read.

`revisions` chooses the implementation: `stateful` or `stateless`, with the tasks of `tasks`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from syncmcp._protocol.capabilities import NO_OFFER, OfferedCapabilities
from syncmcp._protocol.steps import InputQuestion, InputRound, Steps


class TaskState(NamedTuple):
    """Where a task stands."""

    id: str
    status: str
    interval: float
    """Seconds to wait before the next look."""

    raw: dict[str, Any]
    """Everything that the server said."""


class PolledTask(Protocol):
    """A task that is polled until it has a result, as its `TaskProtocol` sees it."""

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
        """Poll the task once; return the dialect of the session."""
        ...

    def answer_questions(
        self, questions: Mapping[str, InputQuestion], timeout: float | None = None
    ) -> Steps[None]:
        """Have new questions answered and send the answers (2026-07-28)."""
        ...


class TaskProtocol(Protocol):
    """How an era says things about tasks."""

    required_capability: tuple[str, ...]
    """The path of the server capability without which no call becomes a task."""

    requested_by_client: bool
    """Whether a call becomes a task because its parameters ask for that."""

    def read(self, method: str, raw: Any) -> TaskState:
        """Read the state of a task, which came in answer to `method`.

        Raises:
            ProtocolError: That is none.
        """
        ...

    def advance(
        self, poller: PolledTask, dialect: Dialect, timeout: float | None
    ) -> Steps[dict[str, Any] | None]:
        """Do what the state of a task asks for; return the result of the call if there is one.

        Raises:
            McpError: What became of the call instead.
        """
        ...


class Dialect(Protocol):
    """How one revision says things."""

    revision: str

    stateful: bool
    """Whether there is a handshake, a session, and a server that may send requests."""

    batches: bool
    """Whether one frame may hold several messages."""

    tasks: TaskProtocol | None
    """How calls become tasks; `None` where none does."""

    def required_capability(self, method: str) -> tuple[str, ...] | None:
        """The path of the server capability that a request needs, ``()`` for none.

        `None` when the revision has no such request.
        """
        ...

    def unsupported_reason(self, method: str) -> str:
        """Why there is no such request."""
        ...

    def supports_notification(self, method: str) -> bool:
        """Whether a client of this revision may send this notification."""
        ...

    content_lists: bool
    """Whether a message to or from a model may be a list of content blocks."""

    single_blocks: frozenset[str]
    """Where it may not: the types of the one block that a model may answer with."""

    def supported_part(self, offer: OfferedCapabilities) -> OfferedCapabilities:
        """The part of `offer` that the revision has."""
        ...

    def params(
        self,
        method: str,
        params: dict[str, Any] | None,
        id: int,
        meta: Mapping[str, Any] | None,
        log_level: str | None,
        offer: OfferedCapabilities = NO_OFFER,
    ) -> dict[str, Any] | None:
        """The parameters as they travel: with `_meta`, without what the revision lacks.

        `meta` and `log_level` are what the caller wants in the `_meta` of this request; `offer` is
        what may be asked in return.
        """
        ...

    def headers(self, method: str, params: Mapping[str, Any] | None) -> Mapping[str, str]:
        """The HTTP headers of one request."""
        ...

    def mirror_arguments(self, on_excluded: Callable[[str, str], object]) -> None:
        """Have HTTP headers repeat the arguments that tools mark, where the revision knows marks.

        `left_out` is told of each tool that its marks make unusable: its name and the reason.
        """
        ...

    def session_headers(self) -> Mapping[str, str]:
        """The HTTP headers of every message after the start."""
        ...

    def notifies_cancel(self, *, own_stream: bool) -> bool:
        """Whether a cancel is a notification; with streams of one's own, closing can be it."""
        ...

    def read_result(self, method: str, result: Any) -> dict[str, Any] | InputRound | TaskState:
        """Return `result` if it is final, or what the server asks first, or the task it became.

        Raises:
            ProtocolError: It is no object, or of a kind that was not agreed on.
        """
        ...


class Reply(NamedTuple):
    """A result as it came, and the dialect to read it in."""

    result: Any
    dialect: Dialect
    identity: object = None
    """As whom the request was sent, where that is known."""

    altered: bool = False
    """Whether the request or its result was changed on its way."""
