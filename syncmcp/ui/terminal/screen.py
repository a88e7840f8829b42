"""What a person sees on a terminal: our words, quoted words of others, and prompts.

Needs the packages of the extra `terminal`.
"""

from __future__ import annotations

import atexit
import math
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import questionary
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition, is_done, to_filter
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import create_output
from rich.console import Console
from rich.text import Text

from syncmcp.ui import shorten, visible

if TYPE_CHECKING:
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.context import ConnectedServer

__all__ = ["Gone", "Quit", "Screen", "named"]


# What a question changes of a terminal, and how it is put back, on each system.


if sys.platform == "win32":
    import msvcrt

    def modes_of(number: int) -> Callable[[], None]:
        """Return what puts the terminal back as it is now; the console does so by itself."""
        return lambda: None

    def forget_typed(number: int) -> None:
        """Throw away what was typed and nobody has read."""
        while msvcrt.kbhit():
            msvcrt.getwch()

else:
    import termios

    def modes_of(number: int) -> Callable[[], None]:
        """Return what puts the terminal back as it is now."""
        before = termios.tcgetattr(number)
        return lambda: termios.tcsetattr(number, termios.TCSADRAIN, before)

    def forget_typed(number: int) -> None:
        """Throw away what was typed and nobody has read."""
        termios.tcflush(number, termios.TCIFLUSH)


T = TypeVar("T")

_BAR = "│ "
_INDENT = "  "
_MOST_QUOTED = 4000
_MOST_NAME = 60

# How often, in seconds, a prompt looks whether it is still wanted and draws the time left.
_GLANCE = 0.25

# A terminal must never continue a line of a server's in the next row, where no bar precedes it.
_NO_AUTOWRAP, _AUTOWRAP = "\x1b[?7l", "\x1b[?7h"
_SHOW_CURSOR, _NO_BRACKETED_PASTE = "\x1b[?25h", "\x1b[?2004l"


class Gone(Exception):
    """The question was withdrawn, or its time is over."""


class Quit(Exception):
    """The person pressed Ctrl-C, or closed the terminal."""


class Screen:
    """A terminal while one question is on it.

    Words that are not ours are only shown by `quote` and, short ones within a line, by `named`.

    Args:
        stdin: The terminal to read from.
        stdout: The terminal to write to.
        context: Whose question it is; tells when it is withdrawn and how much time is left.
        waiting: Tells how many more questions wait.
    """

    def __init__(
        self,
        stdin: TextIO,
        stdout: TextIO,
        context: HandlerContext | None,
        waiting: Callable[[], int] = lambda: 0,
    ) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._context = context
        self._waiting = waiting
        self._asker = ""
        width = os.get_terminal_size(stdout.fileno()).columns or 80
        self._console = Console(
            file=stdout, width=width, markup=False, emoji=False, highlight=False
        )

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the terminal in raw mode, so that Ctrl-C is a key between two prompts as well."""
        number = self._stdin.fileno()
        put_back = modes_of(number)

        def restore() -> None:
            # The thread that asks is a daemon: the interpreter may end in the middle of a prompt.
            put_back()
            self._stdout.write(_AUTOWRAP + _SHOW_CURSOR + _NO_BRACKETED_PASTE + "\n")
            self._stdout.flush()

        atexit.register(restore)
        self._input = create_input(self._stdin)
        self._output = create_output(self._stdout)
        try:
            with self._input.raw_mode():
                # What was typed before the question was there does not answer it.
                clear_typeahead(self._input)
                forget_typed(number)
                yield
        finally:
            self._input.close()
            atexit.unregister(restore)

    def banner(self, server: ConnectedServer, wants: str) -> None:
        """Say which server wants what. The name is the program's; the server's own is quoted."""
        self.say()
        self._asker = named(server.name)
        self.headline(f"{self._asker} {wants}")
        if (info := server.info) is not None:
            self.say("It says of itself:")
            self.quote(f"{info.title or info.name} {info.version}", limit=200)

    def headline(self, words: str) -> None:
        """Print words of ours that something new starts with."""
        self.say(f"━━ {words} ━━", "bold")

    def say(self, words: str = "", style: str = "") -> None:
        """Print words of ours. What does not fit in a row goes on indented."""
        lines = Text(words, style).wrap(self._console, self._console.width - len(_INDENT))
        for number, line in enumerate(lines):
            self._print(line if number == 0 else Text.assemble(_INDENT, line))

    def warn(self, words: str) -> None:
        """Print a warning of ours."""
        self.say(f"Warning: {words}", "bold yellow")

    def message(self, words: str) -> None:
        """Print what the server says to the person."""
        self.say("Its message:")
        self.quote(words)

    def quote(self, words: str, *, limit: int = _MOST_QUOTED) -> None:
        """Print words of a server or a model, every line behind a bar."""
        for line in self.quoted(words, limit=limit):
            self.quote_line(line)

    def quoted(self, words: str, *, limit: int = _MOST_QUOTED) -> list[str]:
        """The lines that `quote` prints."""
        shown = Text(visible(shorten(words, limit), lines=True))
        lines = shown.wrap(self._console, self._console.width - len(_BAR), tab_size=4)
        return [line.plain for line in lines] or [""]

    def quote_line(self, line: str) -> None:
        """Print one line that `quoted` made."""
        self._print(Text.assemble((_BAR, "cyan"), line))

    def choose(
        self,
        message: str,
        options: Sequence[tuple[T, str]],
        *,
        default: int = 0,
        until: Callable[[], bool] | None = None,
    ) -> T | None:
        """Let the person choose one of `options`: pairs of a value and our words for it.

        Args:
            message: Our words.
            options: What there is to choose, at least one.
            default: Where the pointer is at first.
            until: Ends the prompt without a choice once it returns true.

        Returns:
            The value, or `None` if `until` ended the prompt.

        Raises:
            Gone: The question is not wanted any more.
            Quit: The person went away.
        """
        choices = [
            questionary.Choice(words, value=index) for index, (_, words) in enumerate(options)
        ]
        prompt = questionary.select(
            message,
            choices,
            default=choices[default],
            instruction="(arrow keys, Enter)",
            **self._place(),
        )
        chosen: int | None = self._ask(prompt, until)
        if chosen is None:
            return None
        value, words = options[chosen]
        self._answered(message, words)
        return value

    def tick(
        self,
        message: str,
        options: Sequence[str],
        ticked: Sequence[int],
        check: Callable[[list[int]], str | None],
    ) -> list[int]:
        """Let the person tick any of `options`.

        Args:
            message: Our words.
            options: Our words for each.
            ticked: Positions of those ticked at first.
            check: Says what is wrong with the positions ticked, if anything.

        Returns:
            The positions that are ticked.

        Raises:
            Gone: The question is not wanted any more.
            Quit: The person went away.
        """
        prompt = questionary.checkbox(
            message,
            [
                questionary.Choice(words, value=index, checked=index in ticked)
                for index, words in enumerate(options)
            ],
            validate=lambda positions: check([int(position) for position in positions]) or True,
            instruction="(arrow keys, space to tick, Enter)",
            **self._place(),
        )
        positions: list[int] = self._ask(prompt)
        self._answered(message, ", ".join(options[position] for position in positions))
        return positions

    def write(
        self,
        message: str,
        text: str = "",
        *,
        check: Callable[[str], str | None] = lambda _: None,
        lines: bool = False,
    ) -> str:
        """Let the person write or edit a text.

        Args:
            message: Our words.
            text: What stands there at first. Hidden characters in it are written out; the text
                comes back unchanged if the person changes nothing.
            check: Says what is wrong with a text, if anything; the person then corrects it.
            lines: Whether the text may have several lines; Esc and then Enter end them.

        Returns:
            The text.

        Raises:
            Gone: The question is not wanted any more.
            Quit: The person went away.
        """
        shown = visible(text, lines=lines)
        prompt = questionary.text(
            message,
            default=shown,
            validate=lambda written: check(text if written == shown else written) or True,
            multiline=lines,
            instruction=f"(Esc, then Enter when done)\n{_BAR.rstrip()}" if lines else None,
            **self._place(),
        )
        written: str = self._ask(prompt)
        self._answered(message, written)
        return text if written == shown else written

    def _place(self) -> dict[str, Any]:
        return {"input": self._input, "output": self._output, "prompt_continuation": _BAR}

    def _ask(self, prompt: questionary.Question, until: Callable[[], bool] | None = None) -> Any:
        application = prompt.application
        footer = ConditionalContainer(
            Window(FormattedTextControl(self._footer), height=1, style="fg:ansibrightblack"),
            filter=~is_done & Condition(lambda: bool(self._footer())),
        )
        layout = application.layout
        for window in layout.find_all_windows():  # or the footer goes to the terminal's last row
            window.dont_extend_height = to_filter(True)
        application.layout = Layout(HSplit([layout.container, footer]), layout.current_window)
        application.refresh_interval = _GLANCE
        application.erase_when_done = True
        application.before_render += lambda asking: self._glance(asking, until)
        try:
            return application.run(handle_sigint=False, set_exception_handler=False)
        except (KeyboardInterrupt, EOFError):
            raise Quit from None

    def _answered(self, message: str, words: str) -> None:
        # One row, cut where it ends: the words may be a server's, and have no bar here.
        line = Text(visible(f"? {message} {shorten(words, 500)}"), no_wrap=True)
        line.truncate(self._console.width, overflow="ellipsis")
        self._print(line)

    def _glance(self, asking: Application[Any], until: Callable[[], bool] | None) -> None:
        if asking.is_done:
            return
        if self.over:
            asking.exit(exception=Gone())
        elif until is not None and until():
            asking.exit(result=None)

    @property
    def over(self) -> bool:
        """Whether the question is not wanted any more."""
        context = self._context
        return context is not None and (context.cancel.cancelled or context.time_left() == 0)

    def _footer(self) -> str:
        # A long message may have moved the banner off the screen.
        parts = [f"asked by {self._asker}"] if self._asker else []
        left = None if self._context is None else self._context.time_left()
        if left is not None:
            minutes, seconds = divmod(math.ceil(left), 60)
            parts.append(f"{minutes}:{seconds:02} left to answer")
        if (waiting := self._waiting()) > 0:
            parts.append(f"{waiting} more {'question waits' if waiting == 1 else 'questions wait'}")
        return "  ".join(parts)

    def _print(self, text: Text) -> None:
        self._stdout.write(_NO_AUTOWRAP)
        try:
            self._console.print(text)
        finally:
            self._stdout.write(_AUTOWRAP)
            self._stdout.flush()


def named(words: str) -> str:
    """A short name that is not ours, within a line of ours."""
    return visible(shorten(words, _MOST_NAME))
