"""The effects that an operation's generator yields, and the questions in results.

An operation is one generator for blocking calls and futures alike. A driver performs each effect
and resumes the generator with the outcome: in the caller's thread, or behind a future.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from syncmcp._base.numbers import MAX_QUESTIONS
from syncmcp._base.text import visible
from syncmcp._protocol.capabilities import ELICITATION, OfferedCapabilities
from syncmcp.errors import Delivery, McpError, ProtocolError

R = TypeVar("R")

RegisterCallback: TypeAlias = Callable[[Callable[[], object]], Callable[[], object]]
"""Registers a callback for an event that happens once; returns a function that unregisters it.

If the event has happened, the callback is called at once. It must not block.
"""


class SessionChanged(McpError):
    """A request was not sent, because its session has ended. Operations catch it."""

    delivery: Delivery = "not_sent"
    cause: McpError | None = None  # what ended the session, if known


class Session(Protocol):
    """A connection, which lasts as long as its session or its server process."""

    close_error: McpError | None  # `None` while the session lasts


class SessionPin:
    """Ties the page requests of one list to one session: cursors are valid in one session only.

    Without a `session`, the first page request with a result decides.
    """

    def __init__(self, session: Session | None = None) -> None:
        # When the first page was requested, by the clock of the cache; `None` without a cache.
        # Cached pages with the same value belong together.
        self.started_at: float | None = None
        self._latest = session
        self._pinned = session is not None

    def check(self, session: Session) -> None:
        """Record the session of the next request; `SessionChanged` if it is not the pinned one."""
        if self._pinned and self._latest is not None and session is not self._latest:
            raise SessionChanged("the session has ended", cause=self._latest.close_error)
        self._latest = session

    def pin(self) -> None:
        """Tie later requests to the session of the latest one, whose result has arrived."""
        self._pinned = True


class Send(NamedTuple):
    """Send a request; the outcome is a `Reply`."""

    method: str
    params: dict[str, Any] | None
    # Which questions the server may ask; `None` for those that the handlers can answer.
    offer: OfferedCapabilities | None = None
    timeout: float | None = None  # in seconds, in addition to the deadline of the call
    session: SessionPin | None = None  # in another session, `SessionChanged` instead of sending


class SendAndForget(NamedTuple):
    """Send a request and ignore its result; the generator is resumed at once."""

    method: str
    params: dict[str, Any] | None


class GetNegotiated(NamedTuple):
    """Connect if necessary; the outcome is the `NegotiatedState` of the connection."""

    method: str  # the request that needs it, named in errors


class InputQuestion(NamedTuple):
    """A question of the server that is part of a result or an error."""

    method: str
    params: dict[str, Any]


class AnswerInput(NamedTuple):
    """Run handlers that answer questions, in parallel; the outcome is the answers by key."""

    method: str  # of the client's request that caused the questions, with these parameters
    params: dict[str, Any] | None
    questions: Mapping[str, InputQuestion]
    # The questions are URLs: also wait until the person has finished there. The outcome is `None`
    # if no handler can open URLs, or the person did not agree to one.
    await_completion: bool = False
    withdraw_on: RegisterCallback | None = None  # withdraws the questions: the outcome is `None`


class Pause(NamedTuple):
    """Wait. The call of a future occupies no thread during the pause."""

    seconds: float
    # Ends the pause early, as the end of the call and of the client do.
    ends_on: RegisterCallback | None = None


class CacheLookup(NamedTuple):
    """Look up a request in the cache; the outcome is its cached result, or `None`."""

    method: str
    params: dict[str, Any] | None
    session: SessionPin | None = None  # of the list whose cached pages must belong together


class Compute(NamedTuple):
    """Call a CPU-bound function that does not block; the outcome is its return value."""

    # Its argument is a function to call regularly, which raises an error once the call has ended.
    function: Callable[[Callable[[], None]], Any]
    delivery: Delivery = "unknown"  # how far the request has come, for that error


Effect = Send | AnswerInput | Pause | CacheLookup | Compute | SendAndForget | GetNegotiated

Steps = Generator[Effect, Any, R]


# Rounds of input: a result with questions instead of the final result (spec: 2026-07-28, "Multi
# Round-Trip").
#
# The `requestState` of the server is opaque and secret. It is sent back unchanged, with the same
# request only, and is never read, stored or logged.


INPUT_METHODS = frozenset(("prompts/get", "resources/read", "tools/call"))
"""The requests whose result may contain questions."""


class InputRound(NamedTuple):
    """An ``input_required`` result: questions to answer before the request is sent again."""

    questions: Mapping[str, InputQuestion]  # empty if the client must only repeat the request
    state: str | None  # the server's `requestState`; `None` if absent, which differs from ``""``

    def retry(
        self, params: Mapping[str, Any] | None, answers: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Return the parameters of the repeated request."""
        retried = dict(params or {})
        if answers is not None:
            retried["inputResponses"] = dict(answers)
        if self.state is not None:
            retried["requestState"] = self.state
        return retried

    def __repr__(self) -> str:
        return visible(f"<InputRound {', '.join(self.questions) or 'without questions'}>")


def read_round(method: str, result: Mapping[str, Any]) -> InputRound:
    """Read an ``input_required`` result; `ProtocolError` if malformed, or not of `method`."""
    if method not in INPUT_METHODS:
        raise ProtocolError("the server may not ask for input here", method=method)
    state = result.get("requestState")
    requests = result.get("inputRequests")
    if state is None and requests is None:
        raise ProtocolError("the server asks for input without a question", method=method)
    if state is not None and type(state) is not str:
        raise ProtocolError("the state of an input request is not a string", method=method)
    return InputRound({} if requests is None else read_questions(method, requests), state)


def read_questions(method: str, requests: Any) -> dict[str, InputQuestion]:
    """Read the questions in a result, by key; `ProtocolError` if malformed, or too many."""
    if type(requests) is not dict:
        raise ProtocolError("the questions of an input request are not an object", method=method)
    if len(requests) > MAX_QUESTIONS:
        raise ProtocolError(f"the server asks {len(requests)} questions at once", method=method)
    return {key: _question(method, each) for key, each in requests.items()}


def _question(method: str, request: Any) -> InputQuestion:
    if type(request) is dict:
        asked, params = request.get("method"), request.get("params")
        if type(asked) is str and (params is None or type(params) is dict):
            return InputQuestion(asked, params or {})
    raise ProtocolError("an input request contains an invalid question", method=method)


def link_of(question: InputQuestion) -> tuple[str, str] | None:
    """Return URL and message of a question that asks a person to open a URL, else `None`."""
    method, params = question
    url, message = params.get("url"), params.get("message")
    if method != ELICITATION or params.get("mode") != "url":
        return None
    return (url, message) if type(url) is str and type(message) is str else None


def url_questions(data: Any) -> dict[str, InputQuestion]:
    """Return the URL questions in the data of an error -32042 (2025-11-25); empty if malformed."""
    entries = data.get("elicitations") if type(data) is dict else None
    if type(entries) is not list or not 0 < len(entries) <= MAX_QUESTIONS:
        return {}
    if not all(type(entry) is dict and entry.get("mode") == "url" for entry in entries):
        return {}
    return {
        str(index): InputQuestion("elicitation/create", entry)
        for index, entry in enumerate(entries)
    }
