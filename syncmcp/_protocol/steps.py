"""What an operation is made of: a generator that yields what is to be done and returns its result.

An operation is written once. Whoever drives it decides whether the waiting happens in the caller's
thread or behind a future.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp._protocol.offer import Offer
    from syncmcp._protocol.revisions import Dialect
    from syncmcp.errors import Delivery

R = TypeVar("R")

Until: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a function called, once, when something happens, or now if it has; returns what undoes that.

The function must not block.
"""


class SessionChanged(McpError):
    """A request was not sent, for its session has ended. Steps see it, and callers never do.

    Attributes:
        ended: What ended the session, if that is known.
    """

    delivery: Delivery = "not_sent"
    ended: McpError | None = None


class Session(Protocol):
    """A session with a server, or the life of its process: in either era, a connection."""

    @property
    def dead(self) -> McpError | None:
        """Why it is over, if it is."""
        ...


class OneSession:
    """The session that all requests of one list are sent in: its cursors mean nothing in another.

    Args:
        session: Which it is; `None` if the first request decides that.

    Attributes:
        began: When the first of these requests was sent, by the clock of what keeps results: their
            pages belong together. `None` if nothing is kept, or not yet.
    """

    def __init__(self, session: Session | None = None) -> None:
        self.began: float | None = None
        self._latest = session
        self._held = session is not None

    def enter(self, session: Session) -> None:
        """A request is about to be sent in `session`.

        Raises:
            SessionChanged: It belongs to another one.
        """
        if self._held and self._latest is not None and session is not self._latest:
            raise SessionChanged("the session has ended", ended=self._latest.dead)
        self._latest = session

    def hold(self) -> None:
        """The latest request has its result: those after it belong to its session."""
        self._held = True


class Send(NamedTuple):
    """Send this request and come back with its `Reply`."""

    method: str
    params: dict[str, Any] | None
    offer: Offer | None = None
    """What may be asked in return, where that is not what the handlers can answer."""

    within: float | None = None
    """The longest that it may take, in seconds, where that is less than the call has left."""

    session: OneSession | None = None
    """The session that it belongs to: in another one it fails with `SessionChanged`, unsent."""


class Post(NamedTuple):
    """Send this request; nobody waits for what comes of it."""

    method: str
    params: dict[str, Any] | None


class Meet(NamedTuple):
    """Come back with what was agreed with the server, which is connected to if need be."""

    method: str
    """The request that it is needed for."""


class Reply(NamedTuple):
    """A result as it came, and the dialect to read it in."""

    result: Any
    dialect: Dialect
    identity: object = None
    """As whom the request was sent, where that is known."""

    altered: bool = False
    """Whether the request or its result was changed on its way."""


class InputQuestion(NamedTuple):
    """A question that came inside of a result or an error."""

    method: str
    params: dict[str, Any]


class Ask(NamedTuple):
    """Have these questions answered, all at once; come back with the answers under their keys."""

    method: str
    """The request of ours that they belong to, and its parameters."""

    params: dict[str, Any] | None
    questions: Mapping[str, InputQuestion]

    await_completion: bool = False
    """Also wait until what the URLs led to is done; come back with `None` if nobody can go there,
    or somebody would not."""

    until: Until | None = None
    """When the questions are withdrawn; then come back with `None`."""


class Pause(NamedTuple):
    """Wait this many seconds."""

    seconds: float

    task: str | None = None
    """Or less, if the server says that this task has changed. That may take long, so a future
    needs no thread meanwhile."""


class Hear(NamedTuple):
    """Have the server tell of this task's changes, where it can; come back with what ends that.

    That, and this, never block. Nothing may depend on what the server tells.
    """

    task: str


class Recall(NamedTuple):
    """Come back with the result of this request that is kept; `None` if there is none."""

    method: str
    params: dict[str, Any] | None
    session: OneSession | None = None
    """That of the list whose page it is, if the pages must belong together."""


class Work(NamedTuple):
    """Call this, which blocks nowhere but takes its time; come back with what it returns."""

    do: Callable[[], Any]


Effect = Send | Ask | Pause | Hear | Recall | Work | Post | Meet

Steps = Generator[Effect, Any, R]
