"""The person at the terminal: what they wait for, and how they are asked.

Both go to stderr: stdout has nothing but results.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TextColumn

from syncmcp._base.terminal import dumb_terminal
from syncmcp.approval import Approval
from syncmcp.cli.output import console_for
from syncmcp.errors import Denied
from syncmcp.servers_file import ServerReview
from syncmcp.ui import shorten, visible

if TYPE_CHECKING:
    from syncmcp.ui.terminal import Terminal

_MAX_LABEL = 60

# A wait is shown only after this time, in seconds.
_UNSEEN_SECONDS = 0.5

# The most lines of a server that are stored during a question, and the most characters of each.
_MOST_KEPT = 100
_MAX_KEPT = 4_000


def print_line(words: str) -> None:
    """Print a line of a server on stderr."""
    print(visible(words), file=sys.stderr, flush=True)


class ProgressBar:
    """Shows what a person waits for, for how long, and the progress that the server reports.

    Notifications arrive on a pool thread. The bar is hidden while a question is on the terminal.
    Lines of the server are then stored: they could look like a part of the question.
    """

    def __init__(self) -> None:
        # Guards all attributes, so that a notification cannot draw over a question.
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._timer: threading.Timer | None = None
        self._awaited: tuple[str, float] | None = None
        self._suspended = False
        self._resumed: tuple[str, float] | None = None
        self._kept = deque[str](maxlen=_MOST_KEPT)

    def wait(self, words: str) -> None:
        """Show these words and the elapsed seconds until `hide`, if the wait is long."""
        with self._lock:
            self.hide()
            self._resume((words, monotonic()))

    def reword(self, words: str) -> None:
        """Show other words for the same wait."""
        with self._lock:
            if self._awaited is not None:
                self._awaited = (words, self._awaited[1])
                if self._bar is not None:
                    self._bar.update(self._bar.tasks[0].id, description=visible(words))

    def _resume(self, awaited: tuple[str, float] | None) -> None:
        """Show again what `hide` removed, if need be after a question; the caller has the lock."""
        if self._suspended:
            self._resumed = awaited
        elif awaited is not None:
            self._awaited = awaited
            self._timer = threading.Timer(_UNSEEN_SECONDS, self._draw)
            self._timer.daemon = True
            self._timer.start()

    def _draw(self) -> None:
        with self._lock:
            if self._timer is threading.current_thread() and self._awaited is not None:
                self._start(self._awaited[0])

    def _start(self, words: str) -> Progress:
        """Start to draw, and return the bar; the caller holds the lock."""
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TextColumn("{task.fields[done]}", markup=False),
                TextColumn("{task.elapsed:.0f} s", markup=False),
                console=console_for(sys.stderr),
                transient=True,
            )
            self._bar.add_task(visible(words), total=None, done="")
            if self._awaited is not None:
                self._bar.tasks[0].start_time = self._awaited[1]
            self._bar.start()
        return self._bar

    def line(self, words: str) -> None:
        """Print a line of a server; after the question, if one is on the terminal."""
        with self._lock:
            if self._suspended:
                self._kept.append(shorten(words, _MAX_KEPT))
                return
            awaited = self._awaited
            self.hide()
            print_line(words)
            self._resume(awaited)

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Draw the progress that a server reported during a wait; see `ProgressHandler`."""
        with self._lock:
            if self._suspended or self._awaited is None:
                return
            # A share of 1: the bar cannot be drawn from numbers near the largest float.
            share = min(max(progress / total, 0), 1) if total is not None and total > 0 else None
            bar = self._start("")
            bar.update(
                bar.tasks[0].id,
                completed=share or 0,
                total=None if share is None else 1,
                description=visible(shorten(message or "", _MAX_LABEL)),
                done=f"{progress:g}",
            )
            bar.refresh()

    def hide(self) -> None:
        """Remove the bar from the terminal, until the next `wait`."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._awaited = self._resumed = None
            if self._bar is not None:
                self._bar.stop()
                self._bar = None

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Hide the bar, ignore notifications, and store lines of the server in this block."""
        with self._lock:
            awaited = self._awaited
            self.hide()
            self._resumed = awaited  # unless the wait ends during the question
            self._suspended = True
        try:
            yield
        finally:
            with self._lock:
                self._suspended = False
                while self._kept:
                    print_line(self._kept.popleft())
                self._resume(self._resumed)


def person_at_terminal() -> Person | None:
    """Return the person; `None` unless stdin and stderr are terminals that can move the cursor."""
    there = sys.stdin.isatty() and sys.stderr.isatty()
    return Person() if there and not dumb_terminal() else None


def without_person() -> str:
    """Return why the command has no person to ask, as the end of a sentence."""
    if kind := dumb_terminal():
        return f"at a terminal that cannot move the cursor (TERM={kind})"
    return "without a terminal"


class Person:
    """The person at the terminal, who can be asked.

    Attributes:
        bar: What the person waits for.
        in_shell: Whether the person types several commands, so that a grant for later calls makes
            sense.
        suspend_prompt: Returns a context manager that hides the prompt of the shell.
    """

    def __init__(self) -> None:
        self.bar = ProgressBar()
        self.in_shell = False
        self.suspend_prompt: Callable[[], AbstractContextManager[object]] = nullcontext

    @cached_property
    def terminal(self) -> Terminal:
        """Asks the questions of servers, and hides the progress bar and the prompt during them."""
        return self._make_terminal(grants=True)

    def _make_terminal(self, *, grants: bool) -> Terminal:
        from syncmcp.ui.terminal import Terminal

        return Terminal(sys.stdin, sys.stderr, beside=self._beside, grants=grants)

    @property
    def cancelled(self) -> int:
        """How many questions of servers the person has cancelled."""
        return self.terminal.cancelled if "terminal" in vars(self) else 0  # it takes time to load

    @contextmanager
    def _beside(self) -> Iterator[None]:
        with self.suspend_prompt(), self.bar.suspended():
            yield

    @cached_property
    def approval(self) -> Approval:
        """Asks the person for approval."""
        from syncmcp.ui.terminal import AskOnTerminal

        return AskOnTerminal(terminal=self.terminal)

    @cached_property
    def _call_approval(self) -> Approval:
        from syncmcp.ui.terminal import AskOnTerminal

        if self.in_shell:
            return self.approval
        return AskOnTerminal(terminal=self._make_terminal(grants=False))

    def approve(self, review: ServerReview) -> bool:
        """Ask whether a server that a guarded file names may be used; Ctrl-C ends the command."""
        before = self.terminal.cancelled
        approved = self.terminal.approve(review)
        if self.cancelled > before:
            raise KeyboardInterrupt
        return approved

    def before_call(self, *call: Any) -> None:
        """Ask about a call; see `Approval.before_call`. Ctrl-C ends the command."""
        from syncmcp.ui.terminal import CANCELLED

        try:
            self._call_approval.before_call(*call)
        except Denied as denied:
            if denied.reason == CANCELLED:
                raise KeyboardInterrupt from denied
            raise
