"""What an operation is made of: what its generator may yield, and rounds of input.

An operation is written once. Whoever drives it decides whether the waiting happens in the caller's
thread or behind a future.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar

from syncmcp._protocol.capabilities import ELICITATION, OfferedCapabilities
from syncmcp.errors import McpError, ProtocolError

if TYPE_CHECKING:
    from syncmcp.errors import Delivery


R = TypeVar("R")

RegisterCallback: TypeAlias = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a function called, once, when something happens, or now if it has; returns what undoes that.

The function must not block.
"""


class SessionChanged(McpError):
    """A request was not sent, for its session has ended. Steps see it, and callers never do.

    Attributes:
        ended: What ended the session, if that is known.
    """

    delivery: Delivery = "not_sent"
    cause: McpError | None = None


class Session(Protocol):
    """A session with a server, or the life of its process: in either era, a connection."""

    @property
    def dead(self) -> McpError | None:
        """Why it is over, if it is."""
        ...


class SessionPin:
    """The session that all requests of one list are sent in: its cursors mean nothing in another.

    Args:
        session: Which it is; `None` if the first request decides that.

    Attributes:
        began: When the first of these requests was sent, by the clock of what keeps results: their
            pages belong together. `None` if nothing is kept, or not yet.
    """

    def __init__(self, session: Session | None = None) -> None:
        self.started_at: float | None = None
        self._latest = session
        self._pinned = session is not None

    def check(self, session: Session) -> None:
        """A request is about to be sent in `session`.

        Raises:
            SessionChanged: It belongs to another one.
        """
        if self._pinned and self._latest is not None and session is not self._latest:
            raise SessionChanged("the session has ended", cause=self._latest.dead)
        self._latest = session

    def pin(self) -> None:
        """The latest request has its result: those after it belong to its session."""
        self._pinned = True


class Send(NamedTuple):
    """Send this request and come back with its `Reply`."""

    method: str
    params: dict[str, Any] | None
    offer: OfferedCapabilities | None = None
    """What may be asked in return, where that is not what the handlers can answer."""

    timeout: float | None = None
    """The longest that it may take, in seconds, where that is less than the call has left."""

    session: SessionPin | None = None
    """The session that it belongs to: in another one it fails with `SessionChanged`, unsent."""


class SendAndForget(NamedTuple):
    """Send this request; nobody waits for what comes of it."""

    method: str
    params: dict[str, Any] | None


class GetNegotiated(NamedTuple):
    """Come back with what was agreed with the server, which is connected to if need be."""

    method: str
    """The request that it is needed for."""


class InputQuestion(NamedTuple):
    """A question that came inside of a result or an error."""

    method: str
    params: dict[str, Any]


class AnswerInput(NamedTuple):
    """Have these questions answered, all at once; come back with the answers under their keys."""

    method: str
    """The request of ours that they belong to, and its parameters."""

    params: dict[str, Any] | None
    questions: Mapping[str, InputQuestion]

    await_completion: bool = False
    """Also wait until what the URLs led to is done; come back with `None` if nobody can go there,
    or somebody would not."""

    withdraw_on: RegisterCallback | None = None
    """When the questions are withdrawn; then come back with `None`."""


class Pause(NamedTuple):
    """Wait this many seconds."""

    seconds: float

    task: str | None = None
    """Or less, if the server says that this task has changed. That may take long, so a future
    needs no thread meanwhile."""


class WatchTask(NamedTuple):
    """Have the server tell of this task's changes, where it can; come back with what ends that.

    That, and this, never block. Nothing may depend on what the server tells.
    """

    task: str


class CacheLookup(NamedTuple):
    """Come back with the result of this request that is kept; `None` if there is none."""

    method: str
    params: dict[str, Any] | None
    session: SessionPin | None = None
    """That of the list whose page it is, if the pages must belong together."""


class Compute(NamedTuple):
    """Call this, which blocks nowhere but takes its time; come back with what it returns."""

    function: Callable[[], Any]


Effect = (
    Send | AnswerInput | Pause | WatchTask | CacheLookup | Compute | SendAndForget | GetNegotiated
)

Steps = Generator[Effect, Any, R]


# Rounds of input: a result that is a question first (spec: 2026-07-28, "Multi Round-Trip").
#
# The server's state is opaque and secret. It goes back exactly as it came, with the same request
# and no other, and is never looked at, kept or shown.


INPUT_METHODS = frozenset(("prompts/get", "resources/read", "tools/call"))
"""The requests whose result may be a question."""

# More questions than this at once are not for a person, nor for a model.
_MAX_QUESTIONS = 64


class InputRound:
    """What a server wants before it goes on.

    Attributes:
        questions: By key; empty when the server only wants the request again.
        state: To be sent back; `None` when there was none, which is not the same as ``""``.
    """

    def __init__(self, questions: Mapping[str, InputQuestion], state: str | None) -> None:
        self.questions = questions
        self.state = state

    def retry(
        self, params: Mapping[str, Any] | None, answers: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The parameters of the request that goes on from here."""
        retried = dict(params or {})
        if answers is not None:
            retried["inputResponses"] = dict(answers)
        if self.state is not None:
            retried["requestState"] = self.state
        return retried

    def __repr__(self) -> str:
        return f"<InputRound {', '.join(self.questions) or 'without questions'}>"


def read_round(method: str, result: Mapping[str, Any]) -> InputRound:
    """Read an ``input_required`` result.

    Raises:
        ProtocolError: It belongs to a request that cannot have one, or makes no sense.
    """
    if method not in INPUT_METHODS:
        raise ProtocolError("the server may not ask for input here", method=method)
    state = result.get("requestState")
    requests = result.get("inputRequests")
    if state is None and requests is None:
        raise ProtocolError("the server asks for input without a question", method=method)
    if state is not None and type(state) is not str:
        raise ProtocolError("the state of an input request is no string", method=method)
    return InputRound({} if requests is None else read_questions(method, requests), state)


def read_questions(method: str, requests: Any) -> dict[str, InputQuestion]:
    """Read the questions in an answer to `method`, by key.

    Raises:
        ProtocolError: They make no sense.
    """
    if type(requests) is not dict:
        raise ProtocolError("the questions of an input request are no object", method=method)
    if len(requests) > _MAX_QUESTIONS:
        raise ProtocolError(f"the server asks {len(requests)} questions at once", method=method)
    return {key: _question(method, each) for key, each in requests.items()}


def _question(method: str, request: Any) -> InputQuestion:
    if type(request) is dict:
        asked, params = request.get("method"), request.get("params")
        if type(asked) is str and (params is None or type(params) is dict):
            return InputQuestion(asked, params or {})
    raise ProtocolError("a question of an input request makes no sense", method=method)


def link_of(question: InputQuestion) -> tuple[str, str] | None:
    """Where a question sends a person, and the words for it; `None` if it does not."""
    method, params = question
    url, message = params.get("url"), params.get("message")
    if method != ELICITATION or params.get("mode") != "url":
        return None
    return (url, message) if type(url) is str and type(message) is str else None


def url_questions(data: Any) -> dict[str, InputQuestion]:
    """The URLs in the data of an error -32042 (spec: 2025-11-25); empty if it has none."""
    entries = data.get("elicitations") if type(data) is dict else None
    if type(entries) is not list or not 0 < len(entries) <= _MAX_QUESTIONS:
        return {}
    if not all(type(entry) is dict and entry.get("mode") == "url" for entry in entries):
        return {}
    return {
        str(index): InputQuestion("elicitation/create", entry)
        for index, entry in enumerate(entries)
    }
