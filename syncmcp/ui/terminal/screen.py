"""Output and prompts on a terminal: trusted text of the program, quoted text of others.

The module needs the packages of the extra ``terminal``.
"""

from __future__ import annotations

import atexit
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import questionary
from prompt_toolkit.application import Application
from prompt_toolkit.filters import Condition, is_done, to_filter
from prompt_toolkit.input import create_input
from prompt_toolkit.input.typeahead import clear_typeahead
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from rich.console import Console
from rich.text import Text

from syncmcp._base.terminal import discard_input
from syncmcp._concurrency.timing import Deadline
from syncmcp.handlers.context import is_named_by_file
from syncmcp.ui import shorten, visible
from syncmcp.ui.terminal.device import make_output, save_modes
from syncmcp.ui.terminal.keys import (
    ESCAPE,
    ESCAPE_SECONDS,
    PersonCancelled,
    WentBack,
    add_keys,
    cancel,
    disable_editor,
    go_back,
    ignore,
)
from syncmcp.ui.terminal.rows import cells_of, wrap

if TYPE_CHECKING:
    from syncmcp.handlers import HandlerContext
    from syncmcp.handlers.context import ConnectedServer

T = TypeVar("T")

_BAR = "│ "
_INDENT = "  "
_CUT = "…"
# The fewest cells of an answered prompt's message, which is cut rather than the answer.
_LEAST_OF_MESSAGE = 4
_MAX_QUOTED = 4000
_MAX_NAME = 60

# How often, in seconds, a prompt checks whether its question has ended, and draws the time left.
_REFRESH_SECONDS = 0.25

# A question can be answered after `_SILENCE_SECONDS` without a key press: a person who is typing
# something else has to see it first. `_SILENCE_REFRESH_SECONDS` is the interval of that check.
_SILENCE_SECONDS = 0.5
_SILENCE_REFRESH_SECONDS = 0.05

_FAINT = "fg:ansibrightblack"

# Keys of questionary that tick all options, or invert the ticks: disabled, as words have them.
_SELECTING = "ai"

# The fewest rows of a screen that are kept for a prompt, and of a text on one page.
_PROMPT_ROWS = 8
_LEAST_ROWS = 5
# What takes the most rows in a prompt: the message, the last of four options, and the footer.
_LONGEST_MESSAGE = "What do you want to edit? (arrow keys, Enter)"
_OTHER_OPTIONS = 3
_LONGEST_OPTION = "Approve this and all later requests while this program runs"
_LONGEST_STATE = ["59:59 left to answer", "9 more questions waiting"]
# The cells before an option: the pointer, the mark of a tick; further rows begin below its words.
_OPTION_INDENT = "     "

# The terminal must not wrap quoted text by itself: the next row would begin without a bar.
_NO_AUTOWRAP, _AUTOWRAP = "\x1b[?7l", "\x1b[?7h"
_SHOW_CURSOR, _NO_BRACKETED_PASTE = "\x1b[?25h", "\x1b[?2004l"


class QuestionEnded(Exception):
    """The question was withdrawn, or it expired."""


class Screen:
    """The terminal while it shows one question.

    Untrusted text is shown only by `quote` and, if it is short and within a line, by `short_name`.
    A prompt raises `QuestionEnded` if the question was withdrawn or expired, and `PersonCancelled`
    if the person pressed Ctrl-C, closed the terminal, or pressed Ctrl-D (which deletes a character
    in a written text). A prompt from which the person can go back says so, and raises `WentBack`
    for Esc. The first prompt appears once the person has stopped typing; keys pressed before that
    answer nothing.

    Args:
        stdin: The terminal to read from.
        stdout: The terminal to write to.
        context: The context of the question: its cancellation and the time left.
        waiting: Returns the number of queued questions.

    Attributes:
        printed: The rows that were printed since the last prompt.
        cut: Whether a text was shortened since the last banner.
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
        self._server_name = ""
        self._silent = False
        self.printed = 0
        self.cut = False
        columns, rows = os.get_terminal_size(stdout.fileno())
        self._rows_of_screen = rows or 24
        self._console = Console(
            file=stdout, width=columns or 80, markup=False, emoji=False, highlight=False
        )

    @contextmanager
    def raw_mode(self) -> Iterator[None]:
        """Put the terminal into raw mode, so Ctrl-C is a key press between prompts, too."""
        number = self._stdin.fileno()
        put_back = save_modes(number)

        def restore() -> None:
            # The prompt runs on a daemon thread: the interpreter may exit in the middle of it.
            put_back()
            self._stdout.write(_AUTOWRAP + _SHOW_CURSOR + _NO_BRACKETED_PASTE + "\n")
            self._stdout.flush()

        atexit.register(restore)
        self._input = create_input(self._stdin)
        self._output = make_output(self._stdout)
        try:
            with self._input.raw_mode():
                # Keys typed before the question was shown must not answer it.
                clear_typeahead(self._input)
                discard_input(number)
                yield
        finally:
            self._input.close()
            atexit.unregister(restore)

    def banner(self, server: ConnectedServer, wants: str) -> None:
        """Print the program's name for the server and the request; quote the server's own name.

        A name that a servers file chose is marked as such: it may imitate another server's.
        """
        self.say()
        self.printed = 0  # the empty row may scroll off
        self._server_name = short_name(server.name)
        self.headline(f"{self._server_name} {wants}")
        if is_named_by_file(server):
            self.say("A servers file chose this name, not this program.")
        if (info := server.info) is not None:
            self.say("It describes itself as:")
            self.quote(f"{info.title or info.name} {info.version}", limit=200)
        self.cut = False  # from here on

    def headline(self, words: str) -> None:
        """Print a headline of trusted text."""
        self.say(f"━━ {words} ━━", "bold")

    def say(self, words: str = "", style: str = "") -> None:
        """Print trusted text, with further rows indented."""
        for number, row in enumerate(self._rows(words)):
            self._print(Text(row if number == 0 else _INDENT + row, style))

    def warn(self, words: str) -> None:
        """Print a warning, which is trusted text."""
        self.say(_warning(words), "bold yellow")

    def rows_of(self, words: str) -> int:
        """Return the number of rows that `say` prints."""
        return len(self._rows(words))

    def rows_of_warning(self, words: str) -> int:
        """Return the number of rows that `warn` prints."""
        return self.rows_of(_warning(words))

    def _rows(self, words: str) -> list[str]:
        return wrap(words, self._console.width - len(_INDENT))

    def name(self, words: str) -> str:
        """Return a name, short and safe for a line of trusted text; set `cut` if it was long."""
        self.cut = self.cut or len(words) > _MAX_NAME
        return short_name(words)

    def message(self, words: str) -> None:
        """Print the message of the server to the person, all of it.

        Raises:
            PersonCancelled: The person stopped reading.
        """
        self.say("Its message:")
        self.read(words)

    def read(self, words: str, *, below: int = 0, hanging: bool = False) -> None:
        """Print all of an untrusted text as `page` does.

        Raises:
            PersonCancelled: The person stopped reading.
        """
        if not self.page(words, below=below, hanging=hanging):
            raise PersonCancelled

    def quote(self, words: str, *, limit: int = _MAX_QUOTED, hanging: bool = False) -> None:
        """Print untrusted text, with a bar before every line.

        Args:
            words: The text.
            limit: The maximum number of characters to print.
            hanging: Whether to indent the further rows of each line. Use it for lines of the
                program that contain untrusted words, which then cannot look like another line.
        """
        self.cut = self.cut or len(words) > limit
        for line in self.wrap_quote(words, limit=limit, hanging=hanging):
            self.quote_line(line)

    def wrap_quote(
        self, words: str, *, limit: int = _MAX_QUOTED, hanging: bool = False
    ) -> list[str]:
        """Return the lines that `quote` prints: made visible, cut and wrapped."""
        shown = visible(shorten(words, limit), lines=True)
        return wrap(shown, self._console.width - cells_of(_BAR), hanging=hanging)

    def quote_line(self, line: str) -> None:
        """Print one line of `wrap_quote` after a bar."""
        self._print(Text.assemble((_BAR, "cyan"), line))

    @property
    def _page_rows(self) -> int:
        """The rows that are on the screen above any prompt with options of this program."""
        width = self._console.width
        prompt = (
            *wrap(_LONGEST_MESSAGE, width - len(_INDENT)),
            *wrap(_LONGEST_OPTION, width - len(_OPTION_INDENT)),
            *self._fold_footer([self._footer_name, *_LONGEST_STATE], ESCAPE),
        )
        kept = max(len(prompt) + _OTHER_OPTIONS, _PROMPT_ROWS)
        return max(self._rows_of_screen - kept, _LEAST_ROWS)

    @property
    def is_full(self) -> bool:
        """Whether some rows since the last prompt will have scrolled off at the next prompt."""
        return self.printed > self._page_rows

    def fits(self, words: str, *, below: int = 0) -> bool:
        """Return whether `quote` can print all of a text below the rows of the question.

        Args:
            words: The text, with ``hanging`` lines.
            below: The rows that will be printed between the text and the next prompt.
        """
        if len(words) > min(_MAX_QUOTED, self._page_rows * self._console.width):
            return False
        rows = self.wrap_quote(words, hanging=True)
        return self.printed + len(rows) + below <= self._page_rows

    def page(self, words: str, *, below: int = 0, hanging: bool = False) -> bool:
        """Print all of an untrusted text after bars, one screen at a time if it is long.

        Args:
            words: The text.
            below: The rows that will be printed between the text and the next prompt.
            hanging: See `quote`.

        Returns:
            Whether all of the text was shown. `False` if the person stopped before its end.
        """
        lines = self.wrap_quote(words, limit=len(words), hanging=hanging)
        end = 0
        while end < len(lines):
            rest = len(lines) - end
            room = self._page_rows - self.printed
            # After a pause, one row is printed: on the lowest screens, there never is more room.
            if room < min(rest, _LEAST_ROWS) and self.printed > 1:
                if not self._pause("The screen is full."):
                    return False
                continue
            start, end = end, end + max(room, _LEAST_ROWS)
            for line in lines[start:end]:
                self.quote_line(line)
            if end < len(lines):
                if not self._pause(f"{end:,} of {len(lines):,} lines were shown."):
                    return False
            # Otherwise the first rows would scroll off before the next prompt.
            elif self.printed + below > self._page_rows and not self._pause("The screen is full."):
                return False
        return True

    def _pause(self, message: str) -> bool:
        """Wait until the person has read what is on the screen; return whether to go on."""
        return self.choose(message, [(True, "Go on"), (False, "Stop reading")]) is True

    def choose(
        self,
        message: str,
        options: Sequence[tuple[T, str]],
        *,
        default: int = 0,
        until: Callable[[], bool] | None = None,
        back: bool = False,
    ) -> T | None:
        """Let the person choose one of `options`.

        Args:
            message: Trusted text.
            options: Pairs of a value and safe text for the value, at least one. Enter alone chooses
                the default, which must not allow, open, send or start anything.
            default: The index of the option selected at first.
            until: Called repeatedly. Once it returns true, the prompt ends without a choice.
            back: Whether the person can go back.

        Returns:
            The value, or `None` if `until` ended the prompt.

        Raises:
            WentBack: The person went back.
        """
        choices = [
            questionary.Choice(self._option(words), value=index)
            for index, (_, words) in enumerate(options)
        ]
        prompt = questionary.select(
            choices=choices,
            default=choices[default],
            use_jk_keys=False,  # letters of a sentence must not move the choice
            **self._prompt_options(message, "(arrow keys, Enter)"),
        )
        disable_editor(prompt.application)
        chosen: int | None = self._ask(prompt, message, until, back=ESCAPE if back else ())
        if chosen is None:
            return None
        value, words = options[chosen]
        self._print_answer(message, words)
        return value

    def choose_many(
        self,
        message: str,
        options: Sequence[str],
        ticked: Sequence[int],
        check: Callable[[list[int]], str | None],
    ) -> list[int]:
        """Let the person check any of `options`, or go back.

        Args:
            message: Trusted text.
            options: Safe text of each option.
            ticked: The indexes of the options checked at first.
            check: Returns an error message for the checked indexes, or `None`.

        Returns:
            The indexes of the checked options.

        Raises:
            WentBack: The person went back.
        """
        prompt = questionary.checkbox(
            choices=[
                questionary.Choice(self._option(words), value=index, checked=index in ticked)
                for index, words in enumerate(options)
            ],
            validate=lambda positions: self._problem(check([int(one) for one in positions])),
            use_jk_keys=False,
            **self._prompt_options(message, "(arrow keys, space to tick, Enter)"),
        )
        letters = KeyBindings()
        for letter in _SELECTING:
            letters.add(letter, eager=True)(ignore)
        add_keys(prompt.application, letters)
        disable_editor(prompt.application)
        positions: list[int] = self._ask(prompt, message, back=ESCAPE)
        self._print_answer(
            message, ", ".join(options[position] for position in positions) or "(none)"
        )
        return positions

    def edit_text(
        self,
        message: str,
        text: str = "",
        *,
        check: Callable[[str], str | None] = lambda _: None,
        lines: bool = False,
        empty: str = "(empty)",
        back: bool = True,
    ) -> str:
        """Let the person write or edit a text, or go back.

        Args:
            message: Trusted text.
            text: The initial text. It is shown with hidden characters made visible, and returned
                unchanged if the person does not edit it.
            check: Returns an error message for a text, or `None`; the person then corrects it.
            lines: Whether the text may have several lines. Esc and then Enter end the input, so
                the person presses Esc twice to go back.
            empty: What the screen shows as the answer if the text is empty.
            back: Whether the person can go back.

        Returns:
            The text.

        Raises:
            WentBack: The person went back.
        """
        shown = visible(text, lines=lines)
        words = self._prompt_options(message, "(Esc, then Enter when done)" if lines else "")
        if lines:
            words["instruction"] += f"\n{_BAR.rstrip()}"
        prompt = questionary.text(
            default=shown,
            validate=lambda written: self._problem(check(text if written == shown else written)),
            multiline=lines,
            validate_while_typing=False,  # a problem is shown once the person has finished
            **words,
        )
        keys = ESCAPE * 2 if lines else ESCAPE
        written: str = self._ask(prompt, message, back=keys if back else ())
        self._print_answer(message, written or empty)
        return text if written == shown else written

    def _prompt_options(self, message: str, instruction: str) -> dict[str, Any]:
        """Return the common options of a prompt, whose words are wrapped at spaces."""
        width = self._console.width
        if instruction and cells_of(f"? {message} {instruction}") > width:
            instruction = f"\n{_INDENT}" + f"\n{_INDENT}".join(
                wrap(instruction, width - len(_INDENT))
            )
        return {
            "message": f"\n{_INDENT}".join(wrap(message, width - len(_INDENT))),
            "instruction": instruction or None,
            "input": self._input,
            "output": self._output,
            "prompt_continuation": _BAR,
        }

    def _option(self, words: str) -> str:
        """Return the words of an option, wrapped and indented: no row looks like another option."""
        rows = wrap(words, self._console.width - len(_OPTION_INDENT))
        return f"\n{_OPTION_INDENT}".join(rows)

    def _problem(self, words: str | None) -> str | bool:
        """Return a problem for a validator, wrapped; `True` if there is none."""
        return True if words is None else "\n".join(wrap(words, self._console.width, hanging=True))

    def _ask(
        self,
        prompt: questionary.Question,
        message: str,
        until: Callable[[], bool] | None = None,
        *,
        back: tuple[Keys, ...],
    ) -> Any:
        """Run a prompt.

        Args:
            prompt: The prompt.
            message: Its message.
            until: See `choose`.
            back: The keys with which the person goes back, if that is possible.
        """
        self._wait_for_silence()
        application = prompt.application
        keys = KeyBindings()
        unwritten = Condition(lambda: not application.current_buffer.text)
        keys.add(Keys.ControlD, eager=True, filter=unwritten)(cancel)
        keys.add(*(back or ESCAPE), eager=True)(go_back if back else ignore)
        add_keys(application, keys)
        application.ttimeoutlen = ESCAPE_SECONDS
        footer = ConditionalContainer(
            Window(
                FormattedTextControl(partial(self._footer, back)),
                style=_FAINT,
                dont_extend_height=True,
            ),
            filter=~is_done,
        )
        layout = application.layout
        for window in layout.find_all_windows():
            # Otherwise the footer would be on the last row of the terminal.
            window.dont_extend_height = to_filter(True)
            if window.height == 1:  # the problem with an answer may take several rows
                window.height = None
        application.layout = Layout(HSplit([layout.container, footer]), layout.current_window)
        application.refresh_interval = _REFRESH_SECONDS
        try:
            return self._run(application, until)
        except WentBack:
            self._print_answer(message, "(back)")
            raise

    def _wait_for_silence(self) -> None:
        """Wait until no key was pressed for a moment, once for all prompts of a question."""
        if self._silent:
            return
        silence = Deadline(_SILENCE_SECONDS)
        keys = KeyBindings()
        keys.add(Keys.ControlC)(cancel)
        keys.add(Keys.ControlD)(cancel)

        @keys.add(Keys.Any)
        def start_again(_: object) -> None:
            nonlocal silence
            silence = Deadline(_SILENCE_SECONDS)

        words = "Pause typing for half a second; until then, keys are ignored."
        hint = FormattedTextControl("\n".join(wrap(words, self._console.width)))
        application: Application[None] = Application(
            Layout(Window(hint, dont_extend_height=True, style=_FAINT)),
            key_bindings=keys,
            refresh_interval=_SILENCE_REFRESH_SECONDS,
            input=self._input,
            output=self._output,
        )
        self._run(application, lambda: silence.expired)
        self._silent = True

    def _run(self, application: Application[Any], until: Callable[[], bool] | None) -> Any:
        application.erase_when_done = True
        application.before_render += lambda asking: self._check_ended(asking, until)
        try:
            return application.run(handle_sigint=False, set_exception_handler=False)
        except (KeyboardInterrupt, EOFError):  # Ctrl-C in a prompt; the terminal was closed
            raise PersonCancelled from None

    def _print_answer(self, message: str, words: str) -> None:
        # Cut to one row: the answer may be text of a server, and no bar precedes it here.
        width = self._console.width - cells_of(_CUT)
        answer = visible(shorten(words, 500))
        if cells_of(f"? {message} {answer}") > width:  # the person has just read the message
            room = max(width - cells_of(f"? {_CUT} {answer}"), _LEAST_OF_MESSAGE)
            message = wrap(message, room)[0].rstrip() + _CUT
        row, *more = wrap(f"? {message} {answer}", width)
        self._print(Text(row + _CUT if more else row))
        self.printed = 1

    def _check_ended(self, asking: Application[Any], until: Callable[[], bool] | None) -> None:
        if asking.is_done:
            return
        if self.ended:
            asking.exit(exception=QuestionEnded())
        elif until is not None and until():
            asking.exit(result=None)

    @property
    def ended(self) -> bool:
        """Whether the question was withdrawn, or has expired."""
        context = self._context
        return context is not None and (context.cancel.cancelled or context.time_left() == 0)

    def _footer(self, back: tuple[Keys, ...]) -> str:
        # Repeats the name in the banner, which a long message may have scrolled off the screen.
        # It does not say that the server asks: this program asks about calls and answers.
        parts = [self._footer_name] if self._footer_name else []
        left = None if self._context is None else self._context.time_left()
        if left is not None:
            minutes, seconds = divmod(math.ceil(left), 60)
            parts.append(f"{minutes}:{seconds:02} left to answer")
        if (waiting := self._waiting()) > 0:
            parts.append(f"{waiting} more {'question' if waiting == 1 else 'questions'} waiting")
        return "\n".join(self._fold_footer(parts, back))

    @property
    def _footer_name(self) -> str:
        return f"server: {self._server_name}" if self._server_name else ""

    def _fold_footer(self, parts: list[str], back: tuple[Keys, ...]) -> list[str]:
        keys = [f"{', '.join(['Esc'] * len(back))}: back"] if back else []
        keys.append("Ctrl-C: cancel")
        width = self._console.width
        if cells_of(words := "  ".join([*parts, *keys])) <= width:
            return [words]
        # A key stays in one row with what it does.
        return [row for some in (parts, keys) for row in wrap("  ".join(some), width)]

    def _print(self, text: Text) -> None:
        self._stdout.write(_NO_AUTOWRAP)
        try:
            self._console.print(text)
            self.printed += 1
        finally:
            self._stdout.write(_AUTOWRAP)
            self._stdout.flush()


def _warning(words: str) -> str:
    return f"Warning: {words}"


def short_name(words: str) -> str:
    """Return an untrusted name, short and safe for a line of trusted text."""
    return visible(shorten(words, _MAX_NAME))
