"""What a command prints: results, progress, and failures as an exit code and one line.

Whatever a server wrote passes through `visible` before a terminal gets it. In JSON, the same
characters are written as escapes, which changes no value.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, TextIO

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    MissingCapability,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    ToolError,
    TransportError,
    UsageError,
)
from syncmcp.servers_file import NotApproved
from syncmcp.ui import shorten, visible

if TYPE_CHECKING:
    from rich.progress import TaskID

__all__ = [
    "Bar",
    "CommandError",
    "Exit",
    "Output",
    "as_json",
    "console_on",
    "describe",
    "exit_code",
    "show_help",
]


# In fewer columns, those of a table would be too thin to be read, or would be left out.
_NARROW = 60


class Output:
    """The command's stdout, and its notes on stderr.

    Args:
        json: Whether results are printed as the protocol has them.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.terminal = sys.stdout.isatty()

    def result(self, wire: Any) -> None:
        """Print a result as JSON: one line, or for a person several."""
        print(as_json(wire, indent=2 if self.terminal else None), flush=True)

    def text(self, words: str) -> None:
        """Print text of a server: as it is into a pipe, made safe on a terminal."""
        print(visible(words, lines=True) if self.terminal else words, flush=True)

    def raw(self, data: bytes) -> None:
        """Write bytes of a server, which a terminal never gets."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: below a heading on a terminal, else one a line with tabs between.

        On a narrow terminal, the cells of a row stand below each other.
        """
        if not self.terminal:
            for row in rows:
                print("\t".join(visible(cell) for cell in row))
            sys.stdout.flush()
            return
        console = console_on(sys.stdout)
        if console.width < _NARROW:
            for first, *others in rows:
                console.print(Text(visible(first), "bold"))
                for column, cell in zip(columns[1:], others, strict=True):
                    if cell:
                        named = f"{column}: " if column else ""
                        console.print(Text(f"  {named}{visible(cell)}"))
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)

    def heading(self, words: str) -> None:
        """Print words of ours above a table; a pipe does not get them."""
        if self.terminal:
            console_on(sys.stdout).print(Text(words, "bold underline"))

    def note(self, words: str) -> None:
        """Tell the person something on stderr."""
        console_on(sys.stderr).print(Text(visible(words, lines=True)), soft_wrap=True)


def console_on(stream: TextIO) -> Console:
    """A console that has colours only on a terminal, and takes nothing for markup."""
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which nothing stands that a terminal obeys or hides."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    # Our own line breaks are the only controls outside of strings, and in strings there are none.
    if character == "\n" or visible(character) == character:
        return character
    if character == "\x7f":
        return "\\u007f"
    return json.dumps(character)[1:-1]


# What went wrong, as an exit code and as one line of JSON on stderr.


class Exit(IntEnum):
    """What the command's exit codes mean."""

    OK = 0
    SERVER = 1
    """The server answered with an error, broke the protocol, or cannot do it."""
    USAGE = 2
    AUTH = 3
    UNREACHABLE = 4
    TOOL = 5
    """The tool ran and reported failure."""
    TIMEOUT = 6
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + 13
    """Whoever read the output has gone: the code of a program that SIGPIPE ended."""


class CommandError(UsageError):
    """The command line asks for something that cannot be.

    Attributes:
        hint: What to do about it.
    """

    hint: str | None = None


# The first that fits.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (NotSupported, Exit.SERVER),
    (UsageError, Exit.USAGE),
    (NotApproved, Exit.USAGE),
    (typer.TyperException, Exit.USAGE),
    (AuthError, Exit.AUTH),
    (ConnectFailed, Exit.UNREACHABLE),
    (ConnectionLost, Exit.UNREACHABLE),
    (ToolError, Exit.TOOL),
    (RequestTimeout, Exit.TIMEOUT),
    (TimeoutError, Exit.TIMEOUT),
    (RequestCancelled, Exit.INTERRUPTED),
    (KeyboardInterrupt, Exit.INTERRUPTED),
)


# What lets a server ask what it wants to ask.
_OFFERS: Final = {
    "sampling": "--model PROVIDER:NAME lets a model answer it; without a terminal with --yes",
    "elicitation": "it asks a person: run the command at a terminal",
    "roots": "`syncmcp roots add` names the directories that it may know of",
}


def exit_code(error: BaseException) -> Exit:
    """The exit code of a command that ended with `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.SERVER


def describe(error: BaseException) -> dict[str, Any]:
    """The facts of an error, as the members of a JSON object; those that are empty are left out."""
    facts: dict[str, Any] = {"kind": _kind(error), "message": _message(error)}
    facts["exit_code"] = int(exit_code(error))
    if isinstance(error, McpError):
        facts["server"] = error.server
        facts["method"] = error.method
    if isinstance(error, ServerError):
        facts["code"] = error.code
        facts["data"] = error.data
    if isinstance(error, TransportError):
        facts["delivery"] = error.delivery
        facts["process_exit_code"] = error.exit_code
        facts["stderr"] = error.stderr_tail or None
    if isinstance(error, HttpError):
        facts["status"] = error.status or None
    if isinstance(error, ToolError):
        facts["tool"] = error.tool
    facts["hint"] = _hint(error)
    return {name: value for name, value in facts.items() if value is not None}


def _kind(error: BaseException) -> str:
    if isinstance(error, (CommandError, typer.TyperException)):
        return "UsageError"
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted"
    return type(error).__name__


def _message(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        return error.format_message()
    if isinstance(error, McpError):
        return error.message
    return str(error) or "interrupted"


def _lacking(error: MissingCapability) -> dict[str, Any]:
    """What the server wants to ask, by capabilities."""
    data = error.data if isinstance(error.data, dict) else {}
    found = data.get("requiredCapabilities")
    return found if isinstance(found, dict) else {}


def _hint(error: BaseException) -> str | None:
    if isinstance(error, CommandError):
        return error.hint
    if isinstance(error, MissingCapability):
        return next((_OFFERS[name] for name in _OFFERS if name in _lacking(error)), None)
    if isinstance(error, NotApproved):
        return "approve it with `syncmcp servers approve`, or believe the file with --trust"
    if isinstance(error, AuthError):
        return "sign in with `syncmcp auth login`, or give the server's token with --header"
    if isinstance(error, ConnectFailed):
        return "`syncmcp doctor` looks at each step of the way there"
    if isinstance(error, RequestTimeout):
        option = {"open": "--open-timeout", "idle": "--idle-timeout"}.get(error.kind, "--timeout")
        return f"{option} gives it more time"
    return None


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands that was called without any of them."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Exit.USAGE)


# How far a call has come, as a bar on stderr.


_MOST_WORDS = 60


class Bar:
    """Is drawn with the first report of progress, and leaves nothing behind.

    Reports come on a pool thread; the terminal is lent to questions meanwhile.
    """

    def __init__(self) -> None:
        # Guards all of it, so that a report cannot draw over a question.
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._lent = False

    def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Draw what a server reported; see `ProgressHandler`."""
        with self._lock:
            if self._lent:
                return
            if self._bar is None or self._task is None:
                self._bar = _made()
                self._task = self._bar.add_task("")
                self._bar.start()
            words = shorten(message or "", _MOST_WORDS)
            self._bar.update(
                self._task, completed=progress, total=total, description=visible(words)
            )
            self._bar.refresh()

    def end(self) -> None:
        """Take the bar away."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = self._task = None

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Keep off the terminal."""
        with self._lock:
            self.end()
            self._lent = True
        try:
            yield
        finally:
            with self._lock:
                self._lent = False


def _made() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:g}", markup=False),
        console=console_on(sys.stderr),
        auto_refresh=False,
        transient=True,
    )
