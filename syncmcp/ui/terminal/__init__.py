"""A terminal at which a person answers questions of servers. It needs the extra ``terminal``.

::

    from syncmcp.ui.terminal import AskOnTerminal, Terminal

    client = syncmcp.connect(target, elicitation=Terminal(), approval=AskOnTerminal())

Every question starts with a banner that shows the name which the program gave the server. Text of
the server or a model is printed after a bar, with control and hidden characters made visible.
"""

from __future__ import annotations

import importlib
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TextIO

from syncmcp._base.checks import check_callable, flag
from syncmcp._base.terminal import dumb_terminal
from syncmcp._base.text import logger
from syncmcp._concurrency.fair_lock import FairLock
from syncmcp._concurrency.timing import Deadline
from syncmcp.approval import Approval, Question, Verdict
from syncmcp.errors import Denied, UsageError
from syncmcp.handlers.forms import Form
from syncmcp.types import ElicitResult
from syncmcp.ui.everything import check_length

if TYPE_CHECKING:
    from syncmcp.approval import AuditRecord, Policy, RateLimit
    from syncmcp.handlers import HandlerContext
    from syncmcp.servers_file import ServerReview
    from syncmcp.types import ElicitRequestFormParams, ElicitRequestURLParams
    from syncmcp.ui.terminal.screen import Screen

__all__ = ["AskOnTerminal", "Terminal"]

_log = logger("syncmcp.ui")

CANCELLED: Final = "the person cancelled"
"""The reason of a denial with Ctrl-C or Ctrl-D."""


class Terminal:
    """Shows questions of servers on a terminal, one at a time; the others are queued.

    Pass it as `elicitation` of a client, or as the reviewer of an `Approval`. A question that is
    withdrawn or expires is removed with a message. Ctrl-C cancels the question, as Ctrl-D does
    unless a text is being written. Esc goes back to the prompt before, where the screen says so.
    Enter alone allows, opens, sends and starts nothing. A question can be answered only after half
    a second in which no key was pressed. Without a terminal that can move the cursor, elicitations
    are cancelled, reviews are denied, and the log says why. The methods are called on the threads
    of the questions, and block.

    Args:
        stdin: The terminal to read from; `sys.stdin` by default.
        stdout: The terminal to write to; `sys.stdout` by default.
        open_url: Opens a URL, after consent, and returns whether that succeeded.
        beside: Returns a context manager that is entered, on the thread of the question, while the
            question is shown. For example, it can hide a progress bar of the program on the same
            terminal.
        grants: Whether the person may also allow all later questions of the same kind, while the
            program runs. Pass `False` in a program that makes one call, where that means nothing.

    Attributes:
        cancelled: How many questions of `form`, `url` and `approve` the person has cancelled.

    Raises:
        UsageError: The packages of the extra ``terminal`` are not installed.
    """

    asks_person = True

    def __init__(
        self,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        *,
        open_url: Callable[[str], bool] = webbrowser.open,
        beside: Callable[[], AbstractContextManager[object]] = nullcontext,
        grants: bool = True,
    ) -> None:
        try:
            importlib.import_module("syncmcp.ui.terminal.screen")
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"asking on a terminal needs the package {missing.name}: "
                "install syncmcp-client[terminal]"
            ) from missing
        check_callable(open_url, "open_url", ("url",))
        check_callable(beside, "beside", ())
        self._stdin = stdin
        self._stdout = stdout
        self._open_url = open_url
        self._beside = beside
        self._grants = flag(grants, "grants")
        self.cancelled = 0
        # The context of the text that `update` has printed, and how many lines of it.
        self._partial_shown: tuple[HandlerContext | None, int] = (None, 0)

    def __repr__(self) -> str:
        return "<Terminal>"

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """Let the person fill in a form, decline or cancel (spec: "Elicitation", form mode).

        Raises:
            UnsupportedForm: The schema is not that of a form.
            UsageError: The question is too long to be shown.
        """
        check_length(Question("form", context.server, request, context))
        form = Form.read(request.requested_schema)
        return self._ask(context, lambda screen: _ask_form(screen, request, form, context))

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Send the person to a URL, with their consent (spec: "Elicitation", URL mode).

        The URL is shown in full, and nothing is fetched. Consent is sent to the server at once,
        unless the answer resumes the call (`HandlerContext.resumes_call`). In that case, the person
        is first asked whether they are done, until the server reports the completion. Otherwise
        that report is printed on a line, whenever it arrives.

        Raises:
            UsageError: The question is too long to be shown.
        """
        check_length(Question("url", context.server, request, context))
        return self._ask(context, lambda screen: self._ask_url(screen, request, context))

    def review(self, question: Question, /) -> Verdict:
        """Let the person allow, deny or edit a request of a server, or the answer to the request.

        Raises:
            UsageError: The question is too long to be shown.
            Denied: There is no terminal that can move the cursor, so nobody can be asked.
        """
        check_length(question)
        from syncmcp.ui.terminal import cards
        from syncmcp.ui.terminal.keys import PersonCancelled
        from syncmcp.ui.terminal.screen import QuestionEnded

        try:
            with self._acquire_screen(question.context) as screen:
                return cards.review(screen, question, grants=self._grants)
        except PersonCancelled:
            return Verdict.deny(CANCELLED)
        except QuestionEnded:
            return Verdict.deny("the question was withdrawn, or its time ran out")
        except _NoTerminal as problem:
            raise Denied(str(problem), kind=question.kind, by="nobody") from None

    def update(self, question: Question, text: str, /) -> None:
        """Print the partial answer of a model, unless a question is on the terminal."""
        with _turns.take_if_free() as free:
            if free:
                self._show_partial(question, text)

    def approve(self, review: ServerReview, /) -> bool:
        """Ask whether a server that a file names may be used; Ctrl-C means no.

        The warnings about the server are shown first, and again at the prompt. If the description
        is longer than the screen, it is shown page by page, and can be approved only after the last
        page.

        Pass this method to `servers_file.read` (``approve=terminal.approve``). Without a terminal,
        it returns `False`.
        """
        from syncmcp.ui.terminal.cards import review_server
        from syncmcp.ui.terminal.keys import PersonCancelled

        try:
            with self._acquire_screen(None) as screen:
                return review_server(screen, review)
        except PersonCancelled:
            self.cancelled += 1
            return False
        except _NoTerminal:
            return False

    def _ask(self, context: HandlerContext, ask: Callable[[Screen], ElicitResult]) -> ElicitResult:
        from syncmcp.ui.terminal.keys import PersonCancelled
        from syncmcp.ui.terminal.screen import QuestionEnded

        try:
            with self._acquire_screen(context) as screen:
                result = ask(screen)
        except (QuestionEnded, _NoTerminal):
            return ElicitResult.cancel()
        except PersonCancelled:
            result = ElicitResult.cancel()
        self.cancelled += result.action == "cancel"
        return result

    def _ask_url(
        self, screen: Screen, request: ElicitRequestURLParams, context: HandlerContext
    ) -> ElicitResult:
        from syncmcp.ui.terminal.cards import show_cause, show_link

        screen.banner(context.server, "asks you to open a web address")
        show_cause(screen, context)
        screen.message(request.message)
        options = [("decline", "Decline: tell the server no"), ("cancel", "Cancel")]
        if show_link(screen, request.url):
            options.append(("open", "Open it in the browser"))
            options.append(("self", "Agree, and open it myself"))
        action = screen.choose("What do you want to do?", options)
        if action == "decline":
            return ElicitResult.decline()
        if action == "cancel":
            return ElicitResult.cancel()
        if action == "open" and not self._open_in_browser(request.url):
            screen.warn("could not start the browser; open the address yourself")
        if not context.resumes_call:
            screen.say("The server learns that you agree, and sees when you are done there.")
            context.on_completed(partial(self._print_completed, context.server.name))
            return ElicitResult.accept()
        done = screen.choose(
            "Are you done there?",
            [("done", "Done"), ("later", "Go on without waiting"), ("cancel", "Cancel")],
            until=lambda: context.wait_completed(0),
        )
        if done == "cancel":
            return ElicitResult.cancel()
        if done == "done":
            context.completed()
        elif done is None:
            screen.say("The server says that you are done.")
        return ElicitResult.accept()

    def _print_completed(self, name: str, done: bool) -> None:
        from syncmcp.ui.terminal.screen import Screen, short_name

        if not done:
            return
        with _turn(None), self._beside():
            try:
                screen = Screen(*self._streams(), None)
            except _NoTerminal:
                return
            screen.say(f"{short_name(name)} says that the visit is done.")

    def _open_in_browser(self, url: str) -> bool:
        try:
            return self._open_url(url)
        except (OSError, webbrowser.Error):
            return False

    def _show_partial(self, question: Question, text: str) -> None:
        from syncmcp.ui.terminal.screen import Screen, short_name

        try:
            screen = Screen(*self._streams(), question.context)
        except _NoTerminal:
            return
        whose, printed = self._partial_shown
        lines = screen.wrap_quote(text)
        if whose is not question.context or printed >= len(lines):
            printed = 0
            screen.headline(f"A model is writing for {short_name(question.server.name)}")
        # The last line is incomplete: the model may continue it.
        for line in lines[printed:-1]:
            screen.quote_line(line)
        self._partial_shown = (question.context, max(printed, len(lines) - 1))

    @contextmanager
    def _acquire_screen(self, context: HandlerContext | None) -> Iterator[Screen]:
        from syncmcp.ui.terminal.keys import PersonCancelled
        from syncmcp.ui.terminal.screen import QuestionEnded, Screen

        with _turn(context), self._beside():
            try:
                # Inside `beside`, which may restore standard streams that the program has replaced.
                stdin, stdout = self._streams()
            except _NoTerminal as problem:
                _log.error("%s", problem)
                raise
            self._partial_shown = (None, 0)
            screen = Screen(stdin, stdout, context, lambda: _turns.waiting)
            with screen.raw_mode():
                try:
                    yield screen
                except QuestionEnded:
                    _print_ended(screen, context)
                    raise
                except PersonCancelled:
                    screen.say("Cancelled.", "bold")
                    raise

    def _streams(self) -> tuple[TextIO, TextIO]:
        streams = (self._stdin or sys.stdin, self._stdout or sys.stdout)
        for stream, name in zip(streams, ("input", "output"), strict=True):
            # Without a console, the standard streams may be None.
            if stream is None or stream.closed or not stream.isatty():
                raise _NoTerminal(
                    f"cannot ask: standard {name} is not a terminal; pass terminals to"
                    f" Terminal as stdin and stdout, or {_OTHERS}"
                )
        if kind := dumb_terminal():
            raise _NoTerminal(
                f"cannot ask: the terminal cannot move the cursor (TERM={kind}); if it can, set"
                f" TERM to its type, such as xterm-256color, or {_OTHERS}"
            )
        return streams


class AskOnTerminal(Approval):
    """An `Approval` that asks a person at the terminal.

    It needs the extra ``terminal``.

    Args:
        policy: Decides first; by default the person is asked about everything.
        limit: The rate limit for each server.
        audit: Called with every decision.
        terminal: The terminal on which the person is asked.

    Raises:
        UsageError: The packages of the extra ``terminal`` are not installed.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        limit: RateLimit | None = None,
        audit: Callable[[AuditRecord], object] | None = None,
        terminal: Terminal | None = None,
    ) -> None:
        super().__init__(policy, terminal or Terminal(), limit=limit, audit=audit)


class _NoTerminal(Exception):
    """A standard stream is not a terminal, or the terminal cannot move the cursor."""


_OTHERS: Final = "use another handler, such as syncmcp.ui.browser.Browser, or another approval"


# The order in which questions get the terminal; all `Terminal` objects of the process share it.
_turns = FairLock()


def _turn(context: HandlerContext | None) -> AbstractContextManager[None]:
    """Return a context manager that reserves the terminal.

    Raises:
        QuestionEnded: The question was withdrawn or expired while it waited.
    """
    from syncmcp.ui.terminal.screen import QuestionEnded

    def wait(granted: threading.Event, _: float | None) -> bool:
        if context is None:
            return granted.wait()
        unsubscribe = context.cancel.on_cancel(granted.set)
        try:
            # The deadline of the question may be paused during the wait.
            while not granted.wait(context.time_left()):
                if context.time_left() == 0:
                    raise QuestionEnded
        finally:
            unsubscribe()
        if context.cancel.cancelled:
            raise QuestionEnded
        return True

    return _turns.take(Deadline(None), wait)


def _ask_form(
    screen: Screen, request: ElicitRequestFormParams, form: Form, context: HandlerContext
) -> ElicitResult:
    from syncmcp.ui.terminal.cards import show_cause
    from syncmcp.ui.terminal.forms import fill_form
    from syncmcp.ui.terminal.keys import WentBack

    screen.banner(context.server, "asks you to fill in a form")
    show_cause(screen, context)
    screen.message(request.message)
    options = [
        ("accept", "Fill in the form"),
        ("decline", "Decline: tell the server no"),
        ("cancel", "Cancel"),
    ]
    answers: dict[str, Any] = {}
    while (action := screen.choose("What do you want to do?", options)) == "accept":
        with suppress(WentBack):
            sent = fill_form(screen, form, answers)
            return ElicitResult.cancel() if sent is None else ElicitResult.accept(sent)
    return ElicitResult.decline() if action == "decline" else ElicitResult.cancel()


def _print_ended(screen: Screen, context: HandlerContext | None) -> None:
    if context is not None and context.time_left() == 0:
        screen.say("The time to answer has run out.", "bold")
        return
    screen.say("Withdrawn: no answer is needed any more.", "bold")
    if context is not None and context.cancel.reason:
        screen.quote(context.cancel.reason, limit=200)
