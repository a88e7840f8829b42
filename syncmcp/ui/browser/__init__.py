"""Questions of servers on pages in the browser, for programs without a terminal.

The module needs the extra ``browser``: ``pip install "syncmcp-client[browser]"``.
"""

from __future__ import annotations

import sys
import threading
import webbrowser
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

from syncmcp._base.checks import check_callable
from syncmcp._base.text import logger
from syncmcp._concurrency.timing import monotonic
from syncmcp.approval import Approval, Question, Verdict
from syncmcp.errors import ClosedError, Denied, UsageError
from syncmcp.types import ElicitResult
from syncmcp.ui.browser.link_file import LinkFile
from syncmcp.ui.browser.questions import PendingQuestions
from syncmcp.ui.everything import check_length

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

_log = logger("syncmcp.ui.browser")

# Seconds after its last request in which a page counts as open. A visible page sends two requests
# a second. A hidden page may send only one a minute, and a browser may start slowly.
_VISIBLE_SECONDS = 10.0
_HIDDEN_SECONDS = 90.0


def _show_on_terminal(words: str) -> None:
    """Print on stderr, only if it is a terminal: a log could show the secret link to others."""
    if sys.stderr is not None and sys.stderr.isatty():
        sys.stderr.write(f"{words}\n")


class Browser:
    """Asks a person on pages that only the browser on this computer can open.

    Pass it to clients as `elicitation`; it is also the reviewer of `AskInBrowser`. Any number of
    questions, from any number of clients, can be open on the pages at the same time. The web server
    of the pages starts with the first question. An unanswered question stays open until its
    `context.cancel` is cancelled. The client cancels it after its `human_timeout`.

    All methods may be called from any thread.

    Args:
        open_page: Opens a page, and returns whether that succeeded. It is called on a thread of its
            own while a question waits and no page is open, at most every 90 seconds for each
            question. Its argument is the ``file:`` URL of a private file that leads to the pages;
            the file is removed after its use. Pass `None` if the program shows `address` itself.
        show: Shows a text to the person. When a page is opened, the text is the code of the pages
            and their address, for browsers that cannot read the file. Another text says that a link
            was used twice. `show` is called on the threads of `open_page` and of the web server.
            The default prints on stderr, if that is a terminal.
        roots: The `Client.roots` to manage on a page.
        human_timeout: The timeout, in seconds, of questions for which no client has a timeout;
            `None` for no limit.

    Raises:
        UsageError: The extra ``browser`` is not installed.
    """

    asks_person = True
    """`True`: answers come from a person, so the `Approval` of a client does not ask again."""

    def __init__(
        self,
        *,
        open_page: Callable[[str], object] | None = webbrowser.open,
        show: Callable[[str], object] = _show_on_terminal,
        roots: Roots | None = None,
        human_timeout: float | None = 300.0,
    ) -> None:
        for package in ("flask", "markdown_it"):
            if find_spec(package) is None:
                raise UsageError(
                    f"questions in the browser need the package {package}: "
                    "install syncmcp-client[browser]"
                )
        if open_page is not None:
            check_callable(open_page, "open_page", ("url",))
        check_callable(show, "show", ("text",))
        self.roots = roots
        """The roots on the page.

        They may be set later: a client may need this object before its roots exist.
        """
        self._open_page = open_page
        self._show = show
        self._human_timeout = human_timeout
        self._questions = PendingQuestions()
        # Guards the four attributes below; also held while the web server starts, which is quick.
        self._lock = threading.RLock()
        self._running: tuple[PageServer, AccessControl] | None = None
        self._closed = False
        self._open_until = float("-inf")
        self._link_file: LinkFile | None = None

    def __repr__(self) -> str:
        return f"<Browser {'not ' if self._running is None else ''}running>"

    def start(self) -> Self:
        """Start the web server of the pages, unless it runs; the first question also starts it.

        Raises:
            ClosedError: The interface has been closed.
        """
        self._start()
        return self

    @property
    def address(self) -> str:
        """A link to the pages, for a person on this computer.

        The link is valid once; then another replaces it.

        To read the property starts the web server. Anybody with the link can answer the questions,
        so keep it secret.

        Raises:
            ClosedError: The interface has been closed.
        """
        return self._start().address

    @property
    def code(self) -> str:
        """Six letters and digits that every page shows, for a person to tell it from a fake page.

        To read the property starts the web server. Show the code where only the person sees it.

        Raises:
            ClosedError: The interface has been closed.
        """
        return self._start().code

    def close(self) -> None:
        """End all questions without an answer, and stop the web server for good.

        The method is idempotent.
        """
        with self._lock:
            self._closed = True
            running, self._running = self._running, None
        self._remove_link_file()
        self._questions.close()
        if running is not None:
            running[0].stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """Let a person fill in a form; the action is ``cancel`` if nobody answers.

        Raises:
            UnsupportedForm: The schema is not that of a form.
            UsageError: The question is too long to be shown.
        """
        from syncmcp.ui.browser.cards import FillCard

        question = Question("form", context.server, request, context)
        check_length(question)
        return self._ask(FillCard(question, None)) or ElicitResult.cancel()

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Ask a person for consent to open a link; the action is ``cancel`` if nobody answers.

        The link can be clicked only after consent. From then on the page has a button to confirm
        completion (`HandlerContext.completed`) and one to cancel (`context.cancel`).

        Raises:
            UnsafeLink: The URL may not be shown.
            UsageError: The question is too long to be shown.
        """
        from syncmcp.ui.browser.cards import LinkCard

        question = Question("url", context.server, request, context)
        check_length(question)
        return self._ask(LinkCard(question, None)) or ElicitResult.cancel()

    def review(self, question: Question, /) -> Verdict:
        """Let a person decide.

        Raises:
            Denied: The interface was closed, or the question ended before a person answered.
            UnsupportedForm: The question is about a form with an unsupported schema.
            UnsafeLink: The question is about a URL that may not be shown.
            UsageError: The question is too long to be shown.
        """
        check_length(question)
        verdict = self._ask(self._card(question))
        if verdict is None:
            raise Denied("nobody answered", kind=question.kind, by="nobody")
        return verdict

    def update(self, question: Question, text: str) -> None:
        """Show the partial answer of a model, with a button that cancels the question."""
        if question.context is not None:
            self._questions.update_draft(question, question.context, text)

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
                access = AccessControl(server.port, self._remove_link_file, self._report_reuse)
                pages = Pages(self._questions, access, lambda: self.roots, self._note_view)
                server.start(pages.app)
                self._running = server, access
            return self._running[1]

    def _note_view(self, visible: bool) -> None:
        self._open_until = monotonic() + (_VISIBLE_SECONDS if visible else _HIDDEN_SECONDS)

    def _open_page_unless_open(self, access: AccessControl) -> float | None:
        """Open a page in the browser, unless one is open.

        Returns:
            The seconds until the next check, as the person may close the page; `None` for never.
        """
        if self._open_page is None:
            return None
        with self._lock:
            if (left := self._open_until - monotonic()) > 0:
                return left
            self._open_until = monotonic() + _HIDDEN_SECONDS
        # On a thread: a browser in the terminal returns only when the person leaves it.
        threading.Thread(
            target=self._call_open_page, args=(access,), name="syncmcp-browser-open", daemon=True
        ).start()
        return _HIDDEN_SECONDS

    def _call_open_page(self, access: AccessControl) -> None:
        assert self._open_page is not None
        self._say(
            f"A question is waiting in the browser, on a page with the code {access.code}. "
            f"If no page opens, go to {access.address}"
        )
        try:
            opened = self._open_page(self._make_link_file(access).url)
        except Exception:  # questions stay open, and the program may show the address itself
            self._open_until = float("-inf")
            _log.exception("could not open the page")
            return
        if opened is False:
            self._open_until = float("-inf")  # so that the next question tries again
            _log.warning("could not open a browser: open the address of the questions yourself")

    def _make_link_file(self, access: AccessControl) -> LinkFile:
        made = LinkFile(access.door, access.token)
        with self._lock:
            useless, self._link_file = self._link_file, made
            if self._closed:
                useless, self._link_file = made, None
        if useless is not None:
            useless.remove()
        return made

    def _remove_link_file(self) -> None:
        with self._lock:
            link_file, self._link_file = self._link_file, None
        if link_file is not None:
            link_file.remove()

    def _report_reuse(self) -> None:
        words = (
            "the program refused a second use of the link to the questions; if the page with "
            "the code is not open in your own browser, somebody else has opened it: end the program"
        )
        _log.warning("%s", words)
        self._say(f"Warning: {words}")

    def _say(self, words: str) -> None:
        try:
            self._show(words)
        except Exception:  # raised by the program's function
            _log.exception("could not show a text")


class AskInBrowser(Approval):
    """An `Approval` that asks a person in the browser if the policy does not decide.

    Args:
        policy: Decides first; by default the person is asked about everything.
        limit: See `Approval`.
        audit: See `Approval`.
        browser: The interface in which the person is asked; by default a new `Browser`.

    Attributes:
        browser: The interface in which the person is asked. It may also be the `elicitation` of
            clients.

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
