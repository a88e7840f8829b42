"""The questions that wait for a person, and what became of the last ones. No web in here."""

from __future__ import annotations

import secrets
import threading
import weakref
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from syncmcp._concurrency.timing import Deadline

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.approval import Question
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.url_completion import UrlVisit

A = TypeVar("A")

State = Literal["waiting", "answered", "withdrawn", "expired", "closed"]

_OUTCOMES: dict[State, str] = {
    "withdrawn": "The question was withdrawn: nobody waits for an answer any more.",
    "expired": "Time ran out: the question was given up without an answer.",
    "closed": "The program stopped asking here.",
}

# What happened to this many questions is remembered for the pages that still show them.
_MAX_CLOSED = 100

# Of a model's text in the making, so many characters at the end are shown.
_MAX_TAIL = 20_000


class Answers(Protocol):
    """What a person sent: the fields of a page by their names."""

    def get(self, name: str, /) -> str | None:
        """The value of a field."""
        ...

    def getlist(self, name: str, /) -> list[str]:
        """All values of a field."""
        ...


class Card(ABC, Generic[A]):
    """A question before a person. Settled once, by whoever comes first.

    Args:
        question: What is asked.
        human_timeout: Seconds to wait for a question that brings no clock of its own.
    """

    template: ClassVar[str]
    """The page that shows it."""

    title: str
    """What it is about, in a few words of our own."""

    def __init__(self, question: Question, human_timeout: float | None) -> None:
        self.id = secrets.token_urlsafe(9)
        self.csrf = secrets.token_urlsafe(24)
        self.question = question
        self.server = question.server
        self.server_name = question.server.name
        self.state: State = "waiting"
        self.outcome = ""
        self.answer: A | None = None
        self._deadline = Deadline(human_timeout)
        # Guards the state and the answer; held for no longer than it takes to set them.
        self._lock = threading.RLock()
        self._settled = threading.Event()

    @property
    def context(self) -> HandlerContext | None:
        """Where the question belongs, if it came from a server."""
        return self.question.context

    @property
    def token(self) -> CancelToken | None:
        """The token that ends the question; it tells which pages belong to one question."""
        return None if self.context is None else self.context.cancel

    @property
    def page_state(self) -> str:
        """The state of its page while it waits; the page is loaded anew when that changes."""
        return "waiting"

    def time_left(self) -> float | None:
        """Seconds until the question is given up; `None` if it never is."""
        return self._deadline.remaining() if self.context is None else self.context.time_left()

    @abstractmethod
    def submit(self, action: str, answers: Answers) -> Mapping[str, str]:
        """Do what a person asked for.

        Returns:
            What is wrong with the answers, by field; empty if the question is settled.
        """

    def settle(self, answer: A, outcome: str) -> None:
        """Answer, if nothing else has happened to the question."""
        self._settle_once("answered", outcome, answer)

    def settle_unanswered(self, state: State) -> None:
        """End it without an answer, if nothing else has happened to it."""
        self._settle_once(state, _OUTCOMES[state], None)

    def wait(self) -> None:
        """Block until it is settled or out of time."""
        # The time left may have grown meanwhile: clocks can stand still.
        while not self._settled.wait(self.time_left()):
            if self.time_left() == 0:
                self.settle_unanswered("expired")

    def withdraw(self) -> None:
        """End it because its token was cancelled."""
        left = self.time_left()
        self.settle_unanswered("withdrawn" if left is None or left > 0 else "expired")

    def to_closed(self) -> ClosedQuestion:
        """What to remember of it, without what the server and the person wrote."""
        token = self.token
        return ClosedQuestion(
            self.title,
            self.server_name,
            self.state,
            self.outcome,
            self.csrf,
            None if token is None else weakref.ref(token),
        )

    def _settle_once(self, state: State, outcome: str, answer: A | None) -> None:
        with self._lock:
            if self.state != "waiting":
                return
            self.state, self.outcome, self.answer = state, outcome, answer
        self._settled.set()


class ClosedQuestion(NamedTuple):
    """A question that is over: what its page still shows, and nothing of the client that asked."""

    title: str
    server: str
    state: State
    outcome: str
    csrf: str
    token_ref: weakref.ref[CancelToken] | None
    visit: UrlVisit | None = None
    """Of a link that a person agreed to open: how it goes."""
    url: str = ""
    """That link."""

    @property
    def token(self) -> CancelToken | None:
        """The token of the question, while somebody holds it."""
        return None if self.token_ref is None else self.token_ref()


class LiveDraft:
    """What a model has written so far for one question, and the means to stop it."""

    def __init__(self, server: str, context: HandlerContext) -> None:
        self.id = secrets.token_urlsafe(9)
        self.csrf = secrets.token_urlsafe(24)
        self.title = "Your model is writing"
        self.server_name = server
        self.text = ""
        self.cancelled = False
        self.complete = False
        """Whether the whole of it has come up for review."""
        # Not the token itself: with it goes the last one who could go on writing.
        self._token = weakref.ref(context.cancel)

    @property
    def token(self) -> CancelToken | None:
        """The token of the question, while somebody holds it."""
        return self._token()

    @property
    def tail(self) -> str:
        """The last of what has been written: as much as a page shows."""
        return self.text[-_MAX_TAIL:]

    @property
    def finished(self) -> bool:
        """Whether nothing more will be written."""
        token = self.token
        return self.complete or token is None or token.cancelled

    def cancel(self) -> None:
        """Cancel the question."""
        self.cancelled = True
        if (token := self.token) is not None:
            token.cancel("stopped by the person who was asked")


class PendingQuestions:
    """All questions of one browser interface. Thread-safe."""

    def __init__(self) -> None:
        # Guards the three tables; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._waiting: dict[str, Card[object]] = {}
        self._closed_questions: OrderedDict[str, ClosedQuestion] = OrderedDict()
        self._drafts: dict[str, LiveDraft] = {}
        self._closed = False

    def ask(self, card: Card[A], arrived: Callable[[], object]) -> A | None:
        """Put a question before a person and wait.

        Args:
            card: The question.
            arrived: Called once it can be seen.

        Returns:
            The answer; `None` if there was none until the question was given up.
        """
        with self._lock:
            if self._closed:
                return None
            self._waiting[card.id] = card  # type: ignore[assignment]
            for draft in self._drafts.values():
                draft.complete |= draft.token is card.token
        unsubscribe = card.token.on_cancel(card.withdraw) if card.token else None
        try:
            arrived()
            card.wait()
        finally:
            if unsubscribe is not None:
                unsubscribe()
            card.settle_unanswered("closed")  # for one who is thrown out of waiting
            with self._lock:
                del self._waiting[card.id]
                self._closed_questions[card.id] = card.to_closed()
                while len(self._closed_questions) > _MAX_CLOSED:
                    self._closed_questions.popitem(last=False)
        return card.answer

    def update_draft(self, server: str, context: HandlerContext, text: str) -> None:
        """Show what a model has written so far."""
        with self._lock:
            self._drafts = {key: one for key, one in self._drafts.items() if not one.finished}
            for draft in self._drafts.values():
                if draft.token is context.cancel:
                    break
            else:
                if self._closed or context.cancel.cancelled:
                    return
                draft = LiveDraft(server, context)
                self._drafts[draft.id] = draft
            draft.text = text

    def waiting(self) -> list[Card[object]]:
        """The questions that wait, the oldest first."""
        with self._lock:
            return [card for card in self._waiting.values() if card.state == "waiting"]

    def drafts(self) -> list[LiveDraft]:
        """What is being written and has not yet come up for review."""
        with self._lock:
            return [one for one in self._drafts.values() if not one.finished]

    def open_items(self) -> list[Card[object] | LiveDraft]:
        """Everything a person may want to look at."""
        return [*self.waiting(), *self.drafts()]

    def card(self, key: str) -> Card[object] | None:
        """A question that waits, or is just being settled."""
        with self._lock:
            return self._waiting.get(key)

    def closed(self, key: str) -> ClosedQuestion | None:
        """A question that is over."""
        with self._lock:
            return self._closed_questions.get(key)

    def draft(self, key: str) -> LiveDraft | None:
        """Something that is, or was last, being written."""
        with self._lock:
            return self._drafts.get(key)

    def find_by_token(self, token: CancelToken | None) -> Card[object] | LiveDraft | None:
        """Where the question with this token goes on: at a review, or at what is being written."""
        if token is None:
            return None
        return next((one for one in self.open_items() if one.token is token), None)

    def close(self) -> None:
        """Give up every question, and all that come later."""
        with self._lock:
            self._closed = True
            waiting = list(self._waiting.values())
            self._drafts.clear()
        for card in waiting:
            card.settle_unanswered("closed")
