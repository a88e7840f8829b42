"""The open questions of a person, and the last closed ones; independent of the web server."""

from __future__ import annotations

import math
import secrets
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, TypeVar

from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp.handlers.context import is_named_by_file

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.approval import Question
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.url_completion import UrlVisit
    from syncmcp.ui.browser.message import Answers

A = TypeVar("A")

State = Literal["waiting", "answered", "withdrawn", "expired", "closed"]

_OUTCOMES: dict[State, str] = {
    "withdrawn": "The question was withdrawn: nobody is waiting for an answer any more.",
    "expired": "Time ran out: the question ended without an answer.",
    "closed": "The program no longer asks questions here.",
}

# How many closed questions are kept, for pages that still show them.
_MAX_CLOSED = 100

# The length of the end of a model's partial answer that is shown, in characters.
_MAX_TAIL = 20_000

# For English text; models report the number of tokens only at the end.
_CHARACTERS_PER_TOKEN = 4


def duration(seconds: float | None) -> str:
    """Return a duration as text for a person; an empty text for `None`."""
    if seconds is None:
        return ""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


def _shorter(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


class Card(ABC, Generic[A]):
    """A question on a page. It is settled once: the first outcome counts.

    Args:
        question: The question.
        human_timeout: The timeout, in seconds, if the question has no context with its own.
    """

    template: ClassVar[str]
    """The file name of the template of its page."""

    title: str
    """What the question is about, in trusted text."""

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        self.id = secrets.token_urlsafe(9)
        self.csrf = secrets.token_urlsafe(24)
        self.question = question
        self.server = question.server
        self.server_name = question.server.name
        self.named_by_file = is_named_by_file(question.server)
        self.about = ""
        """The tool of the question, in quotation marks, for the page of the closed question."""
        self.state: State = "waiting"
        self.outcome = ""
        self.answer: A | None = None
        self._deadline = Deadline(human_timeout)
        # Guards the state, the outcome and the answer.
        self._lock = threading.RLock()
        self._settled = threading.Event()

    @property
    def context(self) -> HandlerContext | None:
        """The context of the question, if it came from a server."""
        return self.question.context

    @property
    def token(self) -> CancelToken | None:
        """The token that cancels the question; it also identifies the pages of one question."""
        return None if self.context is None else self.context.cancel

    @property
    def page_state(self) -> str:
        """The state of an open question's page, which is reloaded when the state changes."""
        return "waiting"

    @property
    def goes_on(self) -> bool:
        """Whether the page of the answered question is still useful to the person."""
        return False

    def time_left(self) -> float | None:
        """Seconds until the question expires; `None` for no limit."""
        return self._deadline.remaining() if self.context is None else self.context.time_left()

    @abstractmethod
    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Handle the form that a person submitted.

        Returns:
            Error messages by field; empty if the question is settled.
        """

    def settle(self, answer: A, outcome: str) -> None:
        """Settle the question with an answer, unless it is settled."""
        self._settle_once("answered", outcome, answer)

    def settle_unanswered(self, state: State) -> None:
        """Settle the question without an answer, unless it is settled."""
        self._settle_once(state, _OUTCOMES[state], None)

    def wait(self, announce: Callable[[], float | None]) -> None:
        """Block until the question is settled or has expired.

        `announce` shows the person that the question waits. It is called at first, and again after
        the seconds that it returns, unless it returns `None`.
        """
        pause = announce()
        # The time left may have grown: the deadline of a question can be paused.
        while not self._settled.wait(_shorter(self.time_left(), pause)):
            if self.time_left() == 0:
                self.settle_unanswered("expired")
            else:
                pause = announce()

    def withdraw(self) -> None:
        """Settle the question because its token was cancelled."""
        left = self.time_left()
        self.settle_unanswered("withdrawn" if left is None or left > 0 else "expired")

    def to_closed(self) -> ClosedQuestion:
        """Return the record of the closed question, without texts of the server and the person."""
        token = self.token
        return ClosedQuestion(
            self.title,
            self.about,
            self.server_name,
            self.state,
            self.outcome,
            self.csrf,
            None if token is None else weakref.ref(token),
            self.goes_on,
        )

    def _settle_once(self, state: State, outcome: str, answer: A | None) -> None:
        with self._lock:
            if self.state != "waiting":
                return
            self.state, self.outcome, self.answer = state, outcome, answer
        self._settled.set()


class ClosedQuestion(NamedTuple):
    """A closed question: the content of its page, without references to the client."""

    title: str
    about: str
    server: str
    state: State
    outcome: str
    csrf: str
    token_ref: weakref.ref[CancelToken] | None
    goes_on: bool
    """See `Card.goes_on`."""
    visit: UrlVisit | None = None
    """The visit, if the question was a link and the person consented."""
    url: str = ""
    """The URL of that link."""

    @property
    def token(self) -> CancelToken | None:
        """The token of the question, while it is referenced elsewhere."""
        return None if self.token_ref is None else self.token_ref()


class LiveDraft:
    """The partial answer of a model to one question, which a person can cancel."""

    def __init__(self, question: Question, context: HandlerContext) -> None:
        from syncmcp.ui.browser.message import cause_of

        self.id = secrets.token_urlsafe(9)
        self.csrf = secrets.token_urlsafe(24)
        self.title = "Your model is writing"
        self.server_name = question.server.name
        self.cause = cause_of(question)
        self.most_tokens: int | None = getattr(question.request, "max_tokens", None)
        self.text = ""
        self._started = self._written = monotonic()
        self.cancelled = False
        self.complete = False
        """Whether the whole answer has been submitted for review."""
        # A weak reference: once the token is collected, no text can be added to this draft.
        self._token = weakref.ref(context.cancel)

    @property
    def token(self) -> CancelToken | None:
        """The token of the question, while it is referenced elsewhere."""
        return self._token()

    @property
    def tail(self) -> str:
        """The end of the text that a page shows."""
        return self.text[-_MAX_TAIL:]

    @property
    def finished(self) -> bool:
        """Whether the text will not be extended any more."""
        token = self.token
        return self.complete or token is None or token.cancelled

    @property
    def progress(self) -> str:
        """How long the model has been writing, and how much, in words."""
        until = self._written if self.finished else monotonic()
        tokens = math.ceil(len(self.text) / _CHARACTERS_PER_TOKEN)
        limit = "" if self.most_tokens is None else f" of at most {self.most_tokens:,}"
        return f"{duration(until - self._started)}, about {tokens:,}{limit} tokens"

    def extend(self, text: str) -> None:
        """Set the text so far."""
        self.text, self._written = text, monotonic()

    def cancel(self) -> None:
        """Cancel the question."""
        self.cancelled = True
        if (token := self.token) is not None:
            token.cancel("stopped by the person who was asked")


class PendingQuestions:
    """The questions of one `Browser`. Methods may be called from any thread."""

    def __init__(self) -> None:
        # Guards the three tables and the flag; held for look-ups and updates only.
        self._lock = threading.RLock()
        self._waiting: dict[str, Card[object]] = {}
        self._closed_questions: OrderedDict[str, ClosedQuestion] = OrderedDict()
        self._drafts: dict[str, LiveDraft] = {}
        self._closed = False

    def ask(self, card: Card[A], announce: Callable[[], float | None]) -> A | None:
        """Open a question and block until it is settled.

        Args:
            card: The question.
            announce: Called while the question is listed on the pages; see `Card.wait`.

        Returns:
            The answer; `None` if the question was settled without one.
        """
        with self._lock:
            if self._closed:
                return None
            self._waiting[card.id] = card  # type: ignore[assignment]
            for draft in self._drafts.values():
                draft.complete |= draft.token is card.token
        unsubscribe = card.token.on_cancel(card.withdraw) if card.token else None
        try:
            card.wait(announce)
        finally:
            if unsubscribe is not None:
                unsubscribe()
            card.settle_unanswered("closed")  # if an exception interrupted `wait`
            with self._lock:
                del self._waiting[card.id]
                self._closed_questions[card.id] = card.to_closed()
                while len(self._closed_questions) > _MAX_CLOSED:
                    self._closed_questions.popitem(last=False)
        return card.answer

    def update_draft(self, question: Question, context: HandlerContext, text: str) -> None:
        """Set the text of a draft, which is created with its first text."""
        with self._lock:
            self._drafts = {key: one for key, one in self._drafts.items() if not one.finished}
            for draft in self._drafts.values():
                if draft.token is context.cancel:
                    break
            else:
                if self._closed or context.cancel.cancelled:
                    return
                draft = LiveDraft(question, context)
                self._drafts[draft.id] = draft
            draft.extend(text)

    def waiting(self) -> list[Card[object]]:
        """The open questions, the oldest first."""
        with self._lock:
            return [card for card in self._waiting.values() if card.state == "waiting"]

    def drafts(self) -> list[LiveDraft]:
        """The drafts that are not finished."""
        with self._lock:
            return [one for one in self._drafts.values() if not one.finished]

    def open_items(self) -> list[Card[object] | LiveDraft]:
        """All open questions and unfinished drafts."""
        return [*self.waiting(), *self.drafts()]

    def card(self, key: str) -> Card[object] | None:
        """Return a question that is open, or is just being settled."""
        with self._lock:
            return self._waiting.get(key)

    def closed(self, key: str) -> ClosedQuestion | None:
        """Return a closed question, if it is still stored."""
        with self._lock:
            return self._closed_questions.get(key)

    def draft(self, key: str) -> LiveDraft | None:
        """Return a draft, which may be finished."""
        with self._lock:
            return self._drafts.get(key)

    def find_by_token(self, token: CancelToken | None) -> Card[object] | LiveDraft | None:
        """Return the open question or draft with this token: a question may have several pages."""
        if token is None:
            return None
        return next((one for one in self.open_items() if one.token is token), None)

    def close(self) -> None:
        """Settle every question, and all later questions, without an answer."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting.values())
            self._drafts.clear()
        for card in waiting:
            card.settle_unanswered("closed")
