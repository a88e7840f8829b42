"""Output of commands: results, and errors as text or as a line of JSON.

Text of servers passes through `visible` before it is written to a terminal. In JSON, the same
characters are written as escapes, which changes no value.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Final, TextIO

import typer
from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup

from syncmcp._base.similar import similar
from syncmcp._base.text import several_lines
from syncmcp.cli.hints import DOCTOR, INSTALL, OTHER_WORDS, RUNNERS, SEARCHED, USAGE_HINTS
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    InvalidOutput,
    McpError,
    MissingCapability,
    NotSupported,
    OutcomeUnknown,
    RequestCancelled,
    RequestTimeout,
    ResourceNotFound,
    ServerError,
    ToolError,
    TransportError,
    UsageError,
)
from syncmcp.servers_file import NotApproved, ServersFileError
from syncmcp.ui import shorten, visible

# The least width of a table's last column, which has the longest texts.
_MIN_LAST_COLUMN = 30

# What precedes each row of a quoted text.
_BAR: Final = "│ "
# The indentation of a line, and the bar of a quoted one; `several_lines` writes the other bar.
_PREFIX: Final = re.compile(rf"( *)({_BAR}|\| |)")


class Output:
    """Prints results on stdout, as text or as the protocol's `json`, and notes on stderr.

    `before` is called before anything is printed: it removes a progress bar from the terminal.
    """

    def __init__(self, *, json: bool, before: Callable[[], object] = lambda: None) -> None:
        self.json = json
        self.terminal = sys.stdout.isatty()
        self._before = before
        self._headed = False

    def result(self, wire: Any) -> None:
        """Print a result as JSON: on one line, or indented on a terminal."""
        self._before()
        print(as_json(wire, indent=2 if self.terminal else None), flush=True)

    def show(self, wire: Any, *lines: str) -> None:
        """Print a result as JSON, or else as these lines of text."""
        if self.json:
            self.result(wire)
            return
        for line in lines:
            self.text(line)

    def text(self, words: str) -> None:
        """Print text of a server: unchanged into a pipe, made safe on a terminal."""
        self._before()
        print(visible(words, lines=True) if self.terminal else words, flush=True)

    def raw(self, data: bytes) -> None:
        """Write bytes of a server. Never called on a terminal."""
        self._before()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: as a table on a terminal, else one per line with tabs between cells.

        A table that is too wide for the terminal becomes lines: the first two cells of each row,
        the last cell, then the others.
        """
        self._before()
        rows = list(rows)
        if not rows:  # print no heading without rows
            return
        if not self.terminal:
            for row in rows:
                print("\t".join(visible(cell) for cell in row))
            sys.stdout.flush()
            return
        console = console_for(sys.stdout)
        rows = [[visible(cell) for cell in row] for row in rows]
        widths = [max(map(cell_len, column)) for column in zip(columns, *rows, strict=True)]
        if sum(widths[:-1]) + min(widths[-1], _MIN_LAST_COLUMN) + 2 * len(rows[0]) > console.width:
            for first, *middle, last in rows:
                head = "  ".join(filter(None, [first, *middle[:1]]))
                _print_lines(console, head, "bold", head=len(first))
                named = zip(columns[2:-1], middle[1:], strict=True)
                for cell in (last, *(f"{column}: {cell}" for column, cell in named if cell)):
                    if cell:
                        _print_lines(console, f"  {cell}")
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)
        for row in rows:
            table.add_row(*map(Text, row))
        console.print(table)

    def heading(self, words: str) -> None:
        """Print a heading above a table, on a terminal only; a blank line separates tables."""
        if self.terminal:
            if self._headed:
                print()
            self._headed = True
            self.line(words, "bold underline")

    def line(self, words: str, style: str = "", *, head: int | None = None) -> None:
        """Print lines on stdout, the first `head` characters or all of them in this style."""
        self._before()
        _print_lines(console_for(sys.stdout), visible(words, lines=True), style, head=head)

    def note(self, words: str) -> None:
        """Print a note for the person on stderr."""
        self._before()
        _print_lines(console_for(sys.stderr), visible(words, lines=True))


def console_for(stream: TextIO) -> Console:
    """Return a console that uses colours only on a terminal, and interprets no markup."""
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def _print_lines(console: Console, text: str, style: str = "", *, head: int | None = None) -> None:
    """Print lines; on a terminal, each is broken between words, and a bar is repeated.

    Further rows of a line are indented more than any line, so words of a server in them cannot pass
    for a hint. A command in backquotes is not broken: a person may copy it. The first `head`
    characters, or all, have the style.
    """
    styled = len(text) if head is None else head
    for line in text.split("\n"):
        rows = [line]
        if console.is_terminal:
            prefix = _PREFIX.match(line)
            assert prefix is not None  # it may be empty
            indent, bar = prefix.groups()
            joined = re.sub(r"`[^`]*`", lambda command: command[0].replace(" ", "\0"), line)
            rows = textwrap.wrap(
                joined,
                console.width,
                subsequent_indent=indent + (bar or "    "),
                break_long_words=bool(bar),
                break_on_hyphens=False,
            )
            rows = [row.replace("\0", " ") for row in rows]
        for row in rows or [""]:
            shown = Text(row)
            shown.stylize(style, 0, max(styled, 0))
            styled -= len(row)
            console.print(shown, soft_wrap=True)


def as_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in which control and hidden characters are written as escapes."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(_escape(character) for character in text)


def _escape(character: str) -> str:
    # Line breaks of the indentation are the only raw control characters: those in strings are
    # already escaped.
    if character == "\n" or visible(character) == character:
        return character
    if character == "\x7f":
        return "\\u007f"
    return json.dumps(character)[1:-1]


# Errors: an exit code, and the members of one JSON object on stderr.


class Exit(IntEnum):
    """The exit codes of the command."""

    OK = 0
    SERVER = 1
    """The server answered with an error, violated the protocol, or lacks a feature; or the
    output could not be written."""
    USAGE = 2
    AUTH = 3
    UNREACHABLE = 4
    TOOL = 5
    """The tool ran and reported failure."""
    TIMEOUT = 6
    CANCELLED = 7
    """The person cancelled a form of the server."""
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + 13
    """The reader of the output closed the pipe: the code of a program that SIGPIPE ended."""


class CommandError(UsageError):
    """The command line is invalid, or cannot be carried out; `hint` says how to correct it."""


class FormCancelled(UsageError):
    """The person cancelled a form of the server, which therefore may not have done its work."""


# The first class that matches decides.
_CODES: Final[tuple[tuple[type[BaseException], Exit], ...]] = (
    (NotSupported, Exit.SERVER),
    (FormCancelled, Exit.CANCELLED),
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


# How to enable a client capability that a server requires.
_CAPABILITY_HINTS: Final = {
    "sampling": "--model PROVIDER:NAME lets a model answer; without a terminal, add --yes",
    "elicitation": "the server asks a person: run the command at a terminal",
    "roots": "`syncmcp roots add` adds the directories that the server may know",
}


# The attribute of an error that has the hint set by a command.
_ADVICE: Final = "command_hint"


MAY_HAVE_RUN: Final = "the tool may have run"
# The characters that are shown of a result that does not fit its schema; JSON has all of it.
_LONGEST_RESULT: Final = 2_000


# Patterns of messages of Typer and pydantic, and their replacements in the style of the command.
_TYPER_WORDS: Final = (
    (r" \(Possible options: .*|\. Did you mean .*", ""),  # the hint has the suggestion
    (r"\.$", ""),
    (r"^No such option: ", "there is no option "),
    (r"^No such command ", "there is no command "),
    (r"^Missing command$", "which command?"),
    (r"^Missing argument '(.*)'$", r"\1 is missing"),
    (r"^Got unexpected extra argument\(s\) \((.*)\)$", r"too many arguments: \1"),
    (r"^Option '(.*)' requires an argument$", r"\1 needs a value"),
    (r"^Option '(.*)' does not take a value$", r"\1 takes no value"),
    (r"^Invalid value for '([^']*)'[^:]*: ", r"\1: "),
    (r"Value error, ", ""),
    (r"Input should be greater than or equal to", "it must be at least"),
)


# Patterns of messages of the library for programs, and their replacements for the command line.
_IN_WORDS: Final = (
    (r"\(option open_timeout\)", "(--open-timeout)"),
    (r" \(option \w+\)", ""),
    (r' \(undeclared="try" [^)]*\)', ""),
    (r"\bmode='legacy'", "--revision legacy"),
    (r"^headers has", "--header has"),
    (r"^(the value of .*) in headers ", r"\1 in --header "),
    (r"Stdio\('python', '(.*)'\)$", r"write -- python \1"),
    ("pass the program and its arguments as separate strings", "leave out the quotes"),
    ("pass others with env= or inherit_env='all'", "-e NAME passes one of yours"),
    ("pass with env= the variables that the server may have", "-e NAME passes one of yours"),
    (r"^the root (.*) does not exist$", r"there is no such file or directory: \1"),
    (r"^(no such root: .*)", r"\1; `syncmcp roots` lists them"),
    (r"(is not a URL with a valid host and port)$", r"\1, such as https://example.com/mcp"),
)


def in_words(said: str) -> str:
    """Return a message of the library without the names of Python arguments."""
    return _replaced(said, _IN_WORDS)


def _replaced(said: str, table: Iterable[tuple[str, str]]) -> str:
    for pattern, words in table:
        said = re.sub(pattern, words, said)
    return said


def exit_code(error: BaseException) -> Exit:
    """Return the exit code of a command that ended with `error`."""
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    return Exit.SERVER


def describe(error: BaseException) -> dict[str, Any]:
    """Return an error as the members of a JSON object, without empty members."""
    facts: dict[str, Any] = {"kind": _kind(error), "message": _message(error)}
    facts["exit_code"] = int(exit_code(error))
    if isinstance(error, McpError):
        facts["server"] = error.server
        facts["method"] = error.method
    if isinstance(error, ServerError):
        facts["code"] = error.code
        facts["data"] = error.data
    if isinstance(error, (TransportError, RequestTimeout)):
        facts["delivery"] = error.delivery
    if isinstance(error, TransportError):
        facts["process_exit_code"] = error.exit_code
        facts["stderr"] = error.stderr_tail or None
    if isinstance(error, HttpError):
        facts["status"] = error.status or None
        facts["body"] = error.body or None
    if isinstance(error, ToolError):
        facts["tool"] = error.tool
    if isinstance(error, InvalidOutput) and error.result is not None:
        facts["result"] = error.result.to_wire()
    facts["hint"] = _hint(error)
    return {name: value for name, value in facts.items() if value is not None}


def text_body(facts: Mapping[str, Any]) -> str:
    """Return the body that an error has, unless it is a page for a browser."""
    body = str(facts.get("body", ""))
    return "" if body.lstrip().startswith("<") else body


def explain(error: BaseException) -> None:
    """Print an error on stderr as text: the message, the server's stderr or body, the hint.

    The message, and names in the hint, may come from a server. Lines after the first line of each
    are marked, so that none looks like a line of this command.
    """
    facts = describe(error)
    console = console_for(sys.stderr)
    told = [str(facts["code"])] if "code" in facts else []
    # The message may name the status of another request, such as a GET.
    if "status" in facts and not re.search(rf"(?<!: )HTTP {facts['status']}", facts["message"]):
        told.append(f"{'POST: ' if '(GET: ' in facts['message'] else ''}HTTP {facts['status']}")
    if "process_exit_code" in facts:
        told.append(f"exit code {facts['process_exit_code']}")
    if facts.get("delivery") == "unknown" and facts.get("method") == "tools/call":
        told.append(MAY_HAVE_RUN)
    if "result" in facts:
        told.append("the tool has run")
    about = "; ".join(told)
    first = "the tool failed: " if "tool" in facts else "error: "
    said = str(facts["message"])
    if isinstance(error, ConnectFailed):
        said = directories_apart(said.replace(SEARCHED, f"\n{SEARCHED[2:]}"))
    said = f"{first}{said} ({about})" if about else f"{first}{said}"
    _print_lines(console, several_lines(said), "bold red", head=len(first))
    quoted = facts.get("stderr") or text_body(facts)
    if isinstance(error, InvalidOutput) and error.result is not None:
        # Not left for another run with --json, which would call the tool again.
        quoted = shorten(error.result.text or as_json(facts["result"]), _LONGEST_RESULT)
    for words in quoted.splitlines():
        _print_lines(console, f"  {_BAR}{visible(words)}", "dim")
    if "hint" in facts and facts["hint"] not in told:
        _print_lines(console, several_lines(f"  {facts['hint']}"))


def directories_apart(said: str) -> str:
    """Return a message with blanks between the searched directories, where lines may break."""
    before, searched, path = said.partition(SEARCHED[2:])
    return before + searched + path.replace(os.pathsep, ", ")


def _kind(error: BaseException) -> str:
    if isinstance(error, (CommandError, typer.TyperException)):
        return "UsageError"
    if isinstance(error, KeyboardInterrupt):
        return "Interrupted"
    return type(error).__name__


def _message(error: BaseException) -> str:
    if isinstance(error, typer.TyperException):
        said = _replaced(error.format_message(), _TYPER_WORDS)
        before, unreadable, kind = said.partition("Input should be a valid ")
        if unreadable and isinstance(error.__cause__, ValidationError):
            given = error.__cause__.errors()[0]["input"]
            kind = kind.partition(",")[0]
            return f"{before}{given!r} is not {'an' if kind[0] in 'aeiou' else 'a'} {kind}"
        return said
    if isinstance(error, ServersFileError):
        return str(error)
    if isinstance(error, McpError):
        return error.message if isinstance(error, ServerError) else in_words(error.message)
    if isinstance(error, OSError) and error.strerror:
        what = "the output" if error.filename is None else repr(str(error.filename))
        return f"{what} cannot be written: {error.strerror}"
    return str(error) or "interrupted"


def advise(error: BaseException, hint: str | None) -> None:
    """Set the hint of the command for `error`, instead of the hint for its class.

    The error's own `hint` is for programs, and names Python arguments.
    """
    vars(error)[_ADVICE] = hint


def approval_hint(error: NotApproved, config: Path | None = None) -> str | None:
    """Return how to approve a server, of the file `config` if given; `None` after a refusal."""
    if error.by == "person":
        return None
    words = ["syncmcp", "servers", "approve", error.server or ""]
    words += [] if config is None else ["-c", str(config)]
    return f"approve it with `{shlex.join(words)}`, or trust the file with --trust"


def _hint(error: BaseException) -> str | None:
    if _ADVICE in vars(error):
        advice: str | None = vars(error)[_ADVICE]
        return advice
    if isinstance(error.__context__, KeyboardInterrupt):  # Ctrl-C again, while the command ended
        return _hint(error.__context__)
    if isinstance(error, CommandError):
        return error.hint
    if isinstance(error, typer.TyperException):
        # Members of the error for an unknown option; its class is not public.
        known = getattr(error, "possibilities", None) or ()
        option = getattr(error, "option_name", "")
        bare = {name.lstrip("-"): name for name in known}
        # So high that no option of other programs is corrected to --trust, which skips approval.
        close = [bare[name] for name in similar(option.lstrip("-"), bare, 1, cutoff=0.7)]
        context = getattr(error, "ctx", None)
        commands = getattr(getattr(context, "command", None), "commands", {})
        if option in {
            name for one in commands.values() for each in one.params for name in each.opts
        }:
            return "write it after the command"
        if context is None:
            return f"did you mean {close[0]}?" if close else f"--help describes {option}"
        said, usage = error.format_message(), context.get_usage()
        for words, place, hint in OTHER_WORDS:
            if words in said and place in usage:
                return hint
        for pattern, choices in (
            (r"No such command '([^']*)'", commands),  # Typer's suggestions follow it
            (r"'([^']*)' is not one of ", re.findall(r"'(\w+)'", said.rpartition("one of")[2])),
        ):
            if (found := re.search(pattern, said)) is not None:
                close = similar(found[1], choices, 1)
        if close:
            return f"did you mean {close[0]}?"
        target = context.params.get("target") or ""
        if target in ("COMMAND", "TARGET") or "://" in target:  # the server is known
            usage = usage.replace("TARGET", "")
        hints = (hint for words, place, hint in USAGE_HINTS if words in said and place in usage)
        return next(hints, "").format(path=context.command_path) or None
    if isinstance(error, MissingCapability):
        data = error.data if isinstance(error.data, dict) else {}
        required = data.get("requiredCapabilities")
        named = required if isinstance(required, dict) else {}
        return next((hint for name, hint in _CAPABILITY_HINTS.items() if name in named), None)
    if isinstance(error, NotApproved):
        return approval_hint(error)
    if isinstance(error, AuthError):
        known = error.server and not re.search(r"[^\w:/.-]", error.server)  # unmasked
        return (
            f"sign in with `syncmcp auth login {error.server if known else 'URL'}`, at a terminal"
            " or with --issuer, or pass the server's token with --bearer"
        )
    if _kind(error) == "NotRecorded":  # its module takes time to load
        return "remove the recording, and record the command with `syncmcp record`"
    if isinstance(error, ResourceNotFound):
        return "`syncmcp list TARGET resources templates` shows what there is"
    if isinstance(error, ConnectFailed):
        if SEARCHED in error.message:
            found = re.match(r"command not found: '([^']*)'", error.message)
            close = similar(found[1], RUNNERS, 1) if found is not None else []
            return f"did you mean {close[0]}?" if close else INSTALL
        own = "" if error.exit_code is None or error.hint is None else f"{in_words(error.hint)}; "
        return f"{own.replace('?;', '?')}{DOCTOR}"
    if isinstance(error, HttpError) and error.status >= 500:
        return "the server failed: its own log may say why"
    if isinstance(error, RequestTimeout):
        if error.kind == "login":  # no option of the command changes it
            return "`syncmcp auth login` asks you again"
        if error.hint is not None:
            return error.hint
        option = {"open": "--open-timeout", "idle": "--idle-timeout"}.get(error.kind, "--timeout")
        return f"{option} gives it more time"
    if isinstance(error, OutcomeUnknown) and error.method == "tools/call":
        return MAY_HAVE_RUN
    return None


class CommandGroup(TyperGroup):
    """A group of commands; its help has the whole first sentence about each.

    Attributes:
        sections: The names of commands by the title of their section; by default, all in one.
    """

    sections: Mapping[str, Sequence[str]] = {}

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections."""
        for title, names in (self.sections or {"Commands": self.list_commands(ctx)}).items():
            rows = []
            for name in names:
                command = self.get_command(ctx, name)
                assert command is not None
                about = (command.help or "").partition("\n\n")[0]
                rows.append((name, " ".join(about.split())))
            with formatter.section(title):
                formatter.write_dl(rows)


def show_help(context: typer.Context) -> None:
    """Print the help of a group of commands if no command of it was given."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Exit.USAGE)
