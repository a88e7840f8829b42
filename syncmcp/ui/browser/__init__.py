"""Questions from servers on a page in the browser, for programs without a terminal.

Needs the extra ``browser``: ``pip install "syncmcp-client[browser]"``.
"""

from __future__ import annotations

import logging
import threading
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from syncmcp._concurrency.timing import monotonic
from syncmcp.approval import Approval, Question, Verdict
from syncmcp.errors import ClosedError, UsageError
from syncmcp.types import ElicitResult
from syncmcp.ui.browser.questions import PendingQuestions

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

    from syncmcp.approval import AuditRecord, Policy, RateLimit
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.roots import Roots
    from syncmcp.types import ElicitRequestFormParams, ElicitRequestURLParams
    from syncmcp.ui.browser.app import AccessControl, PageServer
    from syncmcp.ui.browser.questions import Card

__all__ = ["AskInBrowser", "Browser"]

A = TypeVar("A")

_log = logging.getLogger("syncmcp.ui.browser")

# After so many seconds without a sign of life the page has been closed. (Browsers let pages in the
# background speak once a minute.)
_PAGE_TIMEOUT = 90.0


class Browser:
    """Asks a person on pages that only the browser on this computer can open.

    It can be given to clients as `elicitation`, and is the reviewer of `AskInBrowser`. Any number
    of questions, from any number of clients, wait side by side on the pages. The server of the
    pages starts with the first question. Where nobody answers, a question waits until its
    `context.cancel` is cancelled, which `human_timeout` of the client takes care of.

    All methods may be called from any thread.

    Args:
        open_page: Called with the address when a question comes and no page is open, on a thread
            of its own; returns whether it worked. `None`: the program shows `address` itself.
        roots: The `Client.roots` to manage on a page.
        human_timeout: Seconds to wait for an answer to a question that no client bounds; `None`
            for no limit.

    Raises:
        UsageError: The extra ``browser`` is not installed.
    """

    asks_person = True
    """What it answers, a person has answered: a client's approval does not ask again."""

    def __init__(
        self,
        *,
        open_page: Callable[[str], object] | None = webbrowser.open,
        roots: Roots | None = None,
        human_timeout: float | None = 300.0,
    ) -> None:
        if find_spec("flask") is None:
            raise UsageError("questions in the browser need Flask: install syncmcp-client[browser]")
        self.roots = roots
        """May be set later: the client may need this object before it has roots."""
        self._open_page = open_page
        self._human_timeout = human_timeout
        self._questions = PendingQuestions()
        # Guards the three below; held while the server starts, which is quick.
        self._lock = threading.RLock()
        self._running: tuple[PageServer, AccessControl] | None = None
        self._closed = False
        self._last_view = float("-inf")

    def start(self) -> Self:
        """Start the server of the pages, unless it runs. The first question does it as well.

        Raises:
            ClosedError: The interface has been closed.
        """
        self._start()
        return self

    @property
    def address(self) -> str:
        """A link to the pages, for a person on this computer. It works once; then it is another.

        Starts the server. Whoever has the link can answer the questions: show it to nobody else.

        Raises:
            ClosedError: The interface has been closed.
        """
        return self._start().address

    def close(self) -> None:
        """Give up all questions and stop the server. For good: later questions get no answer."""
        with self._lock:
            self._closed = True
            running, self._running = self._running, None
        self._questions.close()
        if running is not None:
            running[0].stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """Have a person fill in a form; ``cancel`` if nobody does.

        Raises:
            UnsupportedForm: The form has something in it that no form has.
        """
        from syncmcp.ui.browser.cards import FillCard

        question = Question("form", context.server, request, context)
        return self._ask(FillCard(question, None)) or ElicitResult.cancel()

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Have a person agree to open a link; ``cancel`` if nobody does.

        The link can be clicked only after that. Then the page has a button to say that it is done
        (`HandlerContext.completed`) and one to give up (which cancels `context.cancel`).

        Raises:
            UnsafeLink: The URL is none that may be shown.
        """
        from syncmcp.ui.browser.cards import LinkCard

        question = Question("url", context.server, request, context)
        return self._ask(LinkCard(question, None)) or ElicitResult.cancel()

    def review(self, question: Question, /) -> Verdict:
        """Have a person decide; a denial if nobody does.

        Raises:
            UnsupportedForm: The question is about a form that is none.
            UnsafeLink: The question is about a URL that may not be shown.
        """
        return self._ask(self._card(question)) or Verdict.deny("nobody answered")

    def update(self, question: Question, text: str) -> None:
        """Show what a model has written so far, with a button that cancels the question."""
        if question.context is not None:
            self._questions.update_draft(question.server.name, question.context, text)

    def _card(self, question: Question) -> Card[Verdict]:
        from syncmcp.ui.browser.cards import AnswerCard, ConsentCard, RequestCard, ReviewFormCard

        if question.kind == "sampling":
            if question.answer is None:
                return RequestCard(question, self._human_timeout)
            return AnswerCard(question, self._human_timeout)
        if question.kind == "form" and question.answer is not None:
            return ReviewFormCard(question, self._human_timeout)
        return ConsentCard(question, self._human_timeout)

    def _ask(self, card: Card[A]) -> A | None:
        try:
            access = self._start()
        except ClosedError:
            _log.warning("[%s] asked after the interface was closed", card.server.name)
            return None
        return self._questions.ask(card, lambda: self._open_page_unless_open(access))

    def _start(self) -> AccessControl:
        from syncmcp.ui.browser.app import AccessControl, Pages, PageServer

        with self._lock:
            if self._closed:
                raise ClosedError("this interface has been closed")
            if self._running is None:
                server = PageServer()
                access = AccessControl(server.port)
                pages = Pages(self._questions, access, lambda: self.roots, self._note_view)
                server.start(pages.app)
                self._running = server, access
            return self._running[1]

    def _note_view(self) -> None:
        self._last_view = monotonic()

    def _open_page_unless_open(self, access: AccessControl) -> None:
        """Open a page, unless one is open."""
        if self._open_page is None:
            return
        with self._lock:
            if monotonic() - self._last_view < _PAGE_TIMEOUT:
                return
            self._last_view = monotonic()
        # A browser in a terminal runs until the person leaves it.
        threading.Thread(
            target=self._run_open_page, args=(access,), name="syncmcp-browser-open", daemon=True
        ).start()

    def _run_open_page(self, access: AccessControl) -> None:
        assert self._open_page is not None
        try:
            opened = self._open_page(access.address)
        except Exception:  # the questions wait, and the program may show the address itself
            _log.exception("the page could not be opened")
            return
        if opened is False:
            _log.warning("no browser could be opened; Browser.address leads to the questions")


class AskInBrowser(Approval):
    """Has a person decide in the browser whatever the policy does not decide.

    Args:
        policy: Decides first; by default a person is asked always.
        limit: See `Approval`.
        audit: See `Approval`.
        browser: Where to ask; a `Browser` of its own by default.

    Attributes:
        browser: Where a person is asked. Clients can have it as `elicitation` as well.

    Raises:
        UsageError: The extra ``browser`` is not installed.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        limit: RateLimit | None = None,
        audit: Callable[[AuditRecord], object] | None = None,
        browser: Browser | None = None,
    ) -> None:
        self.browser = Browser() if browser is None else browser
        super().__init__(policy, self.browser, limit=limit, audit=audit)
