"""What an operation is made of: what its generator may yield, and rounds of input.

An operation is written once. Whoever drives it decides whether the waiting happens in the caller's
thread or behind a future.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

from syncmcp._protocol.client_capabilities import ELICITATION
from syncmcp.errors import (
    ConnectFailed,
    ConnectionLost,
    McpError,
    OutcomeUnknown,
    ProtocolError,
    TooManyRounds,
)

if TYPE_CHECKING:
    from syncmcp._protocol.client_capabilities import OfferedCapabilities
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
    def close_error(self) -> McpError | None:
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
        self.began: float | None = None
        self._latest = session
        self._held = session is not None

    def enter(self, session: Session) -> None:
        """A request is about to be sent in `session`.

        Raises:
            SessionChanged: It belongs to another one.
        """
        if self._held and self._latest is not None and session is not self._latest:
            raise SessionChanged("the session has ended", ended=self._latest.close_error)
        self._latest = session

    def hold(self) -> None:
        """The latest request has its result: those after it belong to its session."""
        self._held = True


class Send(NamedTuple):
    """Send this request and come back with its `Reply`."""

    method: str
    params: dict[str, Any] | None
    offer: OfferedCapabilities | None = None
    """What may be asked in return, where that is not what the handlers can answer."""

    within: float | None = None
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


class AnswerInput(NamedTuple):
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

    do: Callable[[], Any]


Effect = (
    Send | AnswerInput | Pause | WatchTask | CacheLookup | Compute | SendAndForget | GetNegotiated
)

Steps = Generator[Effect, Any, R]


# Rounds of input: a result that is a question first (spec: 2026-07-28, "Multi Round-Trip").
#
# The server's state is opaque and secret. It goes back exactly as it came, with the same request
# and no other, and is never looked at, kept or shown.


METHODS = frozenset(("prompts/get", "resources/read", "tools/call"))
"""The requests whose result may be a question."""

# The one among them that does something; the others only ask.
_WORKS = "tools/call"

# More questions than this at once are not for a person, nor for a model.
_MOST_QUESTIONS = 64

# Seconds to wait before a request is repeated that nothing was asked for, and at most.
_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.25

# The same for a request that waits for a person who is at a link: about a minute in ten rounds.
_LONGEST_VISIT_PAUSE = 15.0

# What may be a random value in a URL; it is one if there is a digit in it. Shorter ones are names.
_PERHAPS_RANDOM = re.compile(r"[A-Za-z0-9_-]{16,}")


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
    if method not in METHODS:
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
    if len(requests) > _MOST_QUESTIONS:
        raise ProtocolError(f"the server asks {len(requests)} questions at once", method=method)
    return {key: _question(method, each) for key, each in requests.items()}


def _question(method: str, request: Any) -> InputQuestion:
    if type(request) is dict:
        asked, params = request.get("method"), request.get("params")
        if type(asked) is str and (params is None or type(params) is dict):
            return InputQuestion(asked, params or {})
    raise ProtocolError("a question of an input request makes no sense", method=method)


class RoundLimit:
    """Counts how often a server asks before it has a result."""

    def __init__(self, method: str, most: int) -> None:
        self._method = method
        self._most = most
        self.rounds = 0

    def count(self, last: McpError | Mapping[str, InputQuestion]) -> None:
        """It asks once more.

        Args:
            last: What it said: an error, or these questions.

        Raises:
            TooManyRounds: That is too often.
        """
        if self.rounds >= self._most:
            self.stop(f"the server asked more than {self._most} times (option max_rounds)", last)
        self.rounds += 1

    def stop(self, why: str, last: McpError | Mapping[str, InputQuestion]) -> NoReturn:
        """Nothing will come of it.

        Raises:
            TooManyRounds: Always; its cause is `last`.
        """
        if not isinstance(last, McpError):
            last = McpError(
                f"the server asked for {len(last)} more answers",
                method=self._method,
                questions={
                    key: {"method": each.method, "params": each.params}
                    for key, each in last.items()
                },
            )
        raise TooManyRounds(why, rounds=self.rounds, method=self._method) from last


class AnsweredLinks:
    """Where one call has sent somebody, so that nobody is asked for the same link twice."""

    def __init__(self) -> None:
        self._names: set[tuple[str, ...]] = set()
        self._answers: dict[tuple[str, str], dict[str, Any]] = {}
        self._visits = 0

    def new(self, questions: Mapping[str, InputQuestion]) -> dict[str, InputQuestion]:
        """Those links of an error -32042 that it names for the first time in this call.

        A server that knows no progress names the same ones again, perhaps with another id.
        """
        known = frozenset(self._names)  # one error may name a page twice, for two ids
        listed: dict[tuple[tuple[str, ...], ...], str] = {}
        for key, each in questions.items():
            names = _names(each.params)
            if known.isdisjoint(names):
                listed.setdefault(names, key)
            self._names.update(names)
        return {key: questions[key] for key in listed.values()}

    def answered(self, questions: Mapping[str, InputQuestion]) -> dict[str, dict[str, Any]]:
        """The answers to those links of a result that somebody gave in this call, by key.

        The link and the words must be the same: no consent is passed on to anything else.
        """
        answers = {key: self._known(each) for key, each in questions.items()}
        return {key: answer for key, answer in answers.items() if answer is not None}

    def _known(self, question: InputQuestion) -> dict[str, Any] | None:
        link = link_of(question)
        return None if link is None else self._answers.get(link)

    def remember(
        self, questions: Mapping[str, InputQuestion], answers: Mapping[str, dict[str, Any]]
    ) -> None:
        """Keep what was answered, if it was a link."""
        for key, each in questions.items():
            if (link := link_of(each)) is not None and key in answers:
                self._answers[link] = answers[key]

    def pause(self) -> float:
        """Seconds until the server is asked again whether a person is done."""
        self._visits += 1
        return pause_before(self._visits, _LONGEST_PAUSE, _LONGEST_VISIT_PAUSE)


def link_of(question: InputQuestion) -> tuple[str, str] | None:
    """Where a question sends a person, and the words for it; `None` if it does not."""
    method, params = question
    url, message = params.get("url"), params.get("message")
    if method != ELICITATION or params.get("mode") != "url":
        return None
    return (url, message) if type(url) is str and type(message) is str else None


def _names(params: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    """What a link is known by: its id, its URL, and what a person would recognize.

    Many servers make an id, or a state of their own, for each error and put it into the URL. Where
    nothing else is new, neither the words for the person, they lead to the same page.
    """
    id, url, message = (params.get(name) for name in ("elicitationId", "url", "message"))
    names: list[tuple[str, ...]] = [("id", id)] if type(id) is str else []
    if type(url) is str:
        names.append(("url", url))
        if type(message) is str:
            path = max(url.find("/", url.find("//") + 2), 0)  # another host is another page
            rest = _PERHAPS_RANDOM.sub(_without_random, url[path:])
            names.append(("page", url[:path], rest, message))
    return tuple(names)


def _without_random(match: re.Match[str]) -> str:
    value = match.group()
    return "*" if any(character.isdigit() for character in value) else value


def of_begun(error: McpError, method: str) -> McpError:
    """What became of a call that its server has begun on, where a later request about it failed.

    That may not have been sent, but the call was.

    Args:
        error: How that request failed; says afterwards how the call ended.
        method: The method of the call.
    """
    facts: Any = error
    if hasattr(facts, "delivery"):
        facts.method, facts.delivery = method, "unknown"
    if method == _WORKS and isinstance(error, (ConnectFailed, ConnectionLost)):
        lost = OutcomeUnknown(*error.args, **error.__dict__)
        lost.__cause__ = error.__cause__
        return lost
    return error


def url_questions(data: Any) -> dict[str, InputQuestion]:
    """The URLs in the data of an error -32042 (spec: 2025-11-25); empty if it has none."""
    entries = data.get("elicitations") if type(data) is dict else None
    if type(entries) is not list or not 0 < len(entries) <= _MOST_QUESTIONS:
        return {}
    if not all(type(entry) is dict and entry.get("mode") == "url" for entry in entries):
        return {}
    return {
        str(index): InputQuestion("elicitation/create", entry)
        for index, entry in enumerate(entries)
    }


def pause_before(
    round_number: int, first: float = _FIRST_PAUSE, longest: float = _LONGEST_PAUSE
) -> float:
    """Seconds to wait before a request is repeated that nothing was asked for; 1 is the first."""
    return float(min(first * 2.0 ** (min(round_number, 16) - 1), longest))
