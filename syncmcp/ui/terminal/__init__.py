"""A person at the terminal answers what servers ask. Needs the extra `terminal`.

::

    from syncmcp.ui.terminal import AskOnTerminal, Terminal

    client = syncmcp.connect(target, elicitation=Terminal(), approval=AskOnTerminal())

Every question starts with a banner that names the server as the program calls it. Whatever the
server or a model wrote stands behind a bar, with control and other hidden characters written out.
"""

from __future__ import annotations

import importlib
import logging
import sys
import threading
import webbrowser
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, TextIO

from syncmcp.approval import Approval, Verdict
from syncmcp.errors import UsageError
from syncmcp.handlers.forms import Form
from syncmcp.types import ElicitResult

if TYPE_CHECKING:
    from syncmcp.approval import AuditRecord, Policy, Question, RateLimit
    from syncmcp.handlers import HandlerContext
    from syncmcp.servers_file import ServerReview
    from syncmcp.types import ElicitRequestFormParams, ElicitRequestURLParams
    from syncmcp.ui.terminal.screen import Screen

__all__ = ["AskOnTerminal", "Terminal"]

_log = logging.getLogger("syncmcp.ui")


class Terminal:
    """Shows questions of servers on a terminal, one at a time; the others wait.

    Give it as `elicitation` of a client, or as the reviewer of an `Approval`. A question that is
    withdrawn, or whose time is over, goes away and says so. Ctrl-C cancels the question. Where
    there is no terminal nobody can be asked: elicitations are cancelled, reviews end in a denial,
    and the log says why. Its methods are called on pool threads, and block.

    Args:
        stdin: The terminal to read from; `sys.stdin` by default.
        stdout: The terminal to write to; `sys.stdout` by default.
        open_url: Opens a URL, after consent, and says whether it could.
        beside: Makes a context in which a question is asked, for a program that writes to the same
            terminal: to take a progress bar away meanwhile. Entered on the thread of the question.

    Raises:
        UsageError: The packages of the extra `terminal` are not installed.
    """

    asks_person = True

    def __init__(
        self,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        *,
        open_url: Callable[[str], bool] = webbrowser.open,
        beside: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        try:
            importlib.import_module("syncmcp.ui.terminal.screen")
        except ModuleNotFoundError as missing:
            raise UsageError(
                f"asking on a terminal needs the package {missing.name}: "
                "install syncmcp-client[terminal]"
            ) from missing
        self._stdin = stdin
        self._stdout = stdout
        self._open_url = open_url
        self._beside = beside
        # What `update` has shown: whose text, and how many lines of it.
        self._shown: tuple[HandlerContext | None, int] = (None, 0)

    def form(self, request: ElicitRequestFormParams, context: HandlerContext, /) -> ElicitResult:
        """Let the person fill in a form, decline or cancel (spec: "Elicitation", form mode).

        Raises:
            UnsupportedForm: The form has something in it that no form has.
        """
        form = Form.read(request.requested_schema)
        return self._elicit(context, lambda screen: _form(screen, request, form, context))

    def url(self, request: ElicitRequestURLParams, context: HandlerContext, /) -> ElicitResult:
        """Send the person to a URL, with their consent (spec: "Elicitation", URL mode).

        The URL is shown in full and nothing is fetched. The server is told of the consent at once.
        Where the call behind it is sent again afterwards (`HandlerContext.resumes_call`), the
        person says first when they are done there, unless the server does. Elsewhere a line tells
        that the server said so, whenever it does.
        """
        return self._elicit(context, lambda screen: self._url(screen, request, context))

    def review(self, question: Question, /) -> Verdict:
        """Let the person allow, deny or edit what a server asks, or what it would be answered."""
        from syncmcp.ui.terminal import cards
        from syncmcp.ui.terminal.screen import Gone, Quit

        try:
            with self._turn(question.context) as screen:
                return cards.review(screen, question)
        except Quit:
            return Verdict.deny("the person cancelled")
        except Gone:
            return Verdict.deny("it was withdrawn, or the time to answer is over")
        except _NoTerminal as problem:
            return Verdict.deny(str(problem))

    def update(self, question: Question, text: str, /) -> None:
        """Show what a model has written so far, unless another question is on the screen."""
        with _turns.if_free() as free:
            if free:
                self._show(question, text)

    def approve(self, review: ServerReview, /) -> bool:
        """Ask whether a server that a file names may be used; Ctrl-C means no.

        For `servers_file.read` (``approve=terminal.approve``). Without a terminal the answer is no.
        """
        from syncmcp.ui.terminal.screen import Quit

        try:
            with self._turn(None) as screen:
                screen.say()
                screen.headline("A file in this folder names the server")
                screen.quote(str(review))
                answer = screen.choose(
                    "Use it? The answer is remembered as long as this stays the same.",
                    [("no", "No"), ("yes", "Yes, use exactly this")],
                )
        except (Quit, _NoTerminal):
            return False
        return answer == "yes"

    def _elicit(
        self, context: HandlerContext, ask: Callable[[Screen], ElicitResult]
    ) -> ElicitResult:
        from syncmcp.ui.terminal.screen import Gone, Quit

        try:
            with self._turn(context) as screen:
                return ask(screen)
        except (Gone, Quit, _NoTerminal):
            return ElicitResult.cancel()

    def _url(
        self, screen: Screen, request: ElicitRequestURLParams, context: HandlerContext
    ) -> ElicitResult:
        from syncmcp.ui.terminal.cards import show_cause, show_link

        screen.banner(context.server, "asks you to open a web address")
        show_cause(screen, context)
        screen.message(request.message)
        options = [("decline", "Decline: tell the server no"), ("cancel", "Cancel")]
        if show_link(screen, request.url):
            options[:0] = [
                ("open", "Open it in the browser"),
                ("self", "Agree, and open it myself"),
            ]
        action = screen.choose("What will you do?", options)
        if action == "decline":
            return ElicitResult.decline()
        if action == "cancel":
            return ElicitResult.cancel()
        if action == "open" and not self._opened(request.url):
            screen.warn("the browser could not be started; open the address yourself")
        if not context.resumes_call:
            screen.say("The server is told that you agree. It sees when you are done there.")
            context.on_completed(partial(self._tell_done, context.server.name))
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
            screen.say("The server says that it is done.")
        return ElicitResult.accept()

    def _tell_done(self, name: str, done: bool) -> None:
        from syncmcp.ui.terminal.screen import Screen, named

        if not done:
            return
        with _turns.turn(None), self._beside():
            try:
                screen = Screen(*self._streams(), None)
            except _NoTerminal:
                return
            screen.say(f"{named(name)} says that the visit is done.")

    def _opened(self, url: str) -> bool:
        try:
            return self._open_url(url)
        except (OSError, webbrowser.Error):
            return False

    def _show(self, question: Question, text: str) -> None:
        from syncmcp.ui.terminal.screen import Screen, named

        try:
            screen = Screen(*self._streams(), question.context)
        except _NoTerminal:
            return
        whose, printed = self._shown
        lines = screen.quoted(text)
        if whose is not question.context or printed >= len(lines):
            printed = 0
            screen.headline(f"A model writes for {named(question.server.name)}")
        # The last line may still grow.
        for line in lines[printed:-1]:
            screen.quote_line(line)
        self._shown = (question.context, max(printed, len(lines) - 1))

    @contextmanager
    def _turn(self, context: HandlerContext | None) -> Iterator[Screen]:
        from syncmcp.ui.terminal.screen import Gone, Quit, Screen

        with _turns.turn(context), self._beside():
            try:
                # Not before: what is drawn beside may stand in the place of the standard streams.
                stdin, stdout = self._streams()
            except _NoTerminal as problem:
                _log.error("%s", problem)
                raise
            self._shown = (None, 0)
            screen = Screen(stdin, stdout, context, _turns.waiting)
            with screen.held():
                try:
                    yield screen
                except Gone:
                    _say_gone(screen, context)
                    raise
                except Quit:
                    screen.say("Cancelled.", "bold")
                    raise

    def _streams(self) -> tuple[TextIO, TextIO]:
        streams = (self._stdin or sys.stdin, self._stdout or sys.stdout)
        for stream, name in zip(streams, ("input", "output"), strict=True):
            # A program without a console may have no streams at all.
            if stream is None or stream.closed or not stream.isatty():
                raise _NoTerminal(
                    f"nobody can be asked: standard {name} is not a terminal; give Terminal a "
                    "stdin and a stdout that are, or answer with another handler, such as "
                    "syncmcp.ui.browser.Browser, or another approval"
                )
        return streams


class AskOnTerminal(Approval):
    """An approval that asks a person at the terminal. Needs the extra `terminal`.

    Args:
        policy: Decides what has to be asked; everything by default.
        limit: How much one server may ask for.
        audit: Is told every decision.
        terminal: Where to ask.

    Raises:
        UsageError: The packages of the extra `terminal` are not installed.
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
    """There is no terminal to ask on."""


class _Turns:
    """The queue before the terminal: a process has one, whatever number of objects ask on it."""

    def __init__(self) -> None:
        # Guards the queue, and tells those in it that it moved. Held for moments only.
        self._moved = threading.Condition()
        self._queue: deque[object] = deque()

    @contextmanager
    def turn(self, context: HandlerContext | None) -> Iterator[None]:
        """Wait for the terminal, first come first served, and keep it.

        Raises:
            Gone: The question was withdrawn before its turn came, or its time is over.
        """
        from syncmcp.ui.terminal.screen import Gone

        ticket = object()
        with self._moved:
            self._queue.append(ticket)
        unsubscribe = context.cancel.on_cancel(self._wake) if context else lambda: None
        try:
            with self._moved:
                while self._queue[0] is not ticket:
                    left = None if context is None else context.time_left()
                    if context is not None and (context.cancel.cancelled or left == 0):
                        raise Gone
                    self._moved.wait(left)
            yield
        finally:
            unsubscribe()
            self._leave(ticket)

    def waiting(self) -> int:
        """How many wait behind the one whose turn it is."""
        with self._moved:
            return len(self._queue) - 1

    @contextmanager
    def if_free(self) -> Iterator[bool]:
        """Keep the terminal for a moment, unless it is somebody's turn; say whether it is kept."""
        ticket = object()
        with self._moved:
            free = not self._queue
            if free:
                self._queue.append(ticket)
        try:
            yield free
        finally:
            if free:
                self._leave(ticket)

    def _leave(self, ticket: object) -> None:
        with self._moved:
            self._queue.remove(ticket)
            self._moved.notify_all()

    def _wake(self) -> None:
        with self._moved:
            self._moved.notify_all()


_turns = _Turns()


def _form(
    screen: Screen, request: ElicitRequestFormParams, form: Form, context: HandlerContext
) -> ElicitResult:
    from syncmcp.ui.terminal import cards
    from syncmcp.ui.terminal.cards import show_cause

    screen.banner(context.server, "asks you to fill in a form")
    show_cause(screen, context)
    screen.message(request.message)
    action = screen.choose(
        "What will you do?",
        [
            ("accept", "Fill in the form"),
            ("decline", "Decline: tell the server no"),
            ("cancel", "Cancel"),
        ],
    )
    if action == "decline":
        return ElicitResult.decline()
    if action == "cancel":
        return ElicitResult.cancel()
    answers = cards.reviewed(screen, form, cards.fill(screen, form))
    return ElicitResult.cancel() if answers is None else ElicitResult.accept(answers)


def _say_gone(screen: Screen, context: HandlerContext | None) -> None:
    if context is not None and context.time_left() == 0:
        screen.say("The time to answer is over.", "bold")
        return
    screen.say("Withdrawn: no answer is needed any more.", "bold")
    if context is not None and context.cancel.reason:
        screen.quote(context.cancel.reason, limit=200)
