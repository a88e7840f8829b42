"""`shell`, `demo`, `record` and `replay`: one connection, many commands; a line to type in."""

from __future__ import annotations

import shlex
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer as LineCompleter
from prompt_toolkit.completion import Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.output import create_output
from typer.core import TyperCommand

from syncmcp.cli.calls import choices_of, properties_of, written
from syncmcp.cli.options import speaks_to_server
from syncmcp.cli.output import CommandError, Output
from syncmcp.cli.session import Recorded, Replayed, Session, Shared
from syncmcp.cli.state import home
from syncmcp.completion import Completer
from syncmcp.errors import McpError
from syncmcp.ui import visible

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp.types import Prompt, Tool

__all__ = ["COMMANDS", "Prefix", "Suggestions", "demo", "lines", "record", "replay", "shell"]


@speaks_to_server
def shell(session: Session) -> None:
    """Type commands at one connection, without TARGET; Tab completes, Ctrl-D ends."""
    from syncmcp.cli.app import obey

    person = session.person
    if person is None:
        raise CommandError("a shell needs a terminal", hint="`syncmcp call` and its kin need none")
    client = session.client
    shared = Shared(client, person)
    session.out.note(f"connected to {client.server.name}; help lists the commands, Ctrl-D ends")
    for line in lines(client):
        words = _words(line)
        if not words:
            continue
        if words[0] == "quit":
            return
        if words[0] == "help":
            known = words[1:] and words[1] not in ("help", "quit")
            words = [words[1], "--help"] if known else []
        if words and words[0] not in COMMANDS:
            session.out.note(f"{words[0]}: there is no such command; help lists them")
        elif words:
            obey(words, shared)
        else:
            session.out.note(" ".join(COMMANDS) + "; help COMMAND says more")


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quotation mark is missing
        return line.split()


# The shell's prompt: a line of input, with a history, and completion by what the server has.


T = TypeVar("T")

COMMANDS = (
    "call",
    "complete",
    "help",
    "info",
    "list",
    "listen",
    "ping",
    "prompt",
    "quit",
    "read",
    "tools",
)
"""What can be typed; but for `help` and `quit`, the commands of the same names."""


def lines(client: Client) -> Iterator[str]:
    """What the person types, line by line."""
    prompt: PromptSession[str] = PromptSession(
        "syncmcp> ",
        history=_history(),
        completer=ThreadedCompleter(Suggestions(client)),
        complete_while_typing=False,
        output=create_output(sys.stderr),
    )
    while True:
        try:
            yield prompt.prompt()
        except KeyboardInterrupt:
            continue  # it ends the line, not the shell
        except EOFError:
            return


def _history() -> History:
    path = home() / "history"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()  # a shell that forgets is better than none
    return FileHistory(str(path))


class Suggestions(LineCompleter):
    """Completes a line by what the server has: names, arguments, and their values.

    Runs on a thread of the prompt's. What a server lists is fetched once.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        # Guards the lists: two keys in a row must not fetch one twice.
        self._lock = threading.Lock()
        self._lists: dict[Callable[[], Any], list[Any]] = {}

    def get_completions(self, document: Document, complete_event: object) -> Iterable[Completion]:
        """What the word before the cursor may become."""
        before = document.text_before_cursor
        words = before.split()
        if not words or before[-1].isspace():
            words.append("")
        *earlier, typed = words
        try:
            found = list(self._candidates(earlier, typed))
        except McpError:
            return  # Tab is no place for an error; the command itself will meet it
        for candidate in found:
            # What has hidden characters in it is typed by hand, by those who know it.
            if candidate.startswith(typed) and visible(candidate) == candidate:
                yield Completion(candidate, start_position=-len(typed), display=candidate[:80])

    def _candidates(self, earlier: list[str], typed: str) -> Iterable[str]:
        match earlier:
            case []:
                return COMMANDS
            case ["call"]:
                return (tool.name for tool in self._tools())
            case ["call", name, *_]:
                tool = next((one for one in self._tools() if one.name == name), None)
                return [] if tool is None else self._arguments_of(tool, typed)
            case ["prompt"] | ["complete"]:
                return (prompt.name for prompt in self._prompts())
            case ["prompt", name, *settled]:
                prompt = next((one for one in self._prompts() if one.name == name), None)
                return [] if prompt is None else self._values_for(prompt, settled, typed)
            case ["read"]:
                return self._uris()
            case ["list"]:
                return ("tools", "resources", "templates", "prompts")
            case ["help"]:
                return COMMANDS
            case _:
                return ()

    def _arguments_of(self, tool: Tool, typed: str) -> Iterator[str]:
        for name, details in properties_of(tool.input_schema).items():
            start = written(name, details).partition("=")[0] + "="
            if typed.startswith(start):
                yield from (start + choice for choice in choices_of(details))
            else:
                yield start

    def _values_for(self, prompt: Prompt, settled: list[str], typed: str) -> Iterator[str]:
        name, equals, value = typed.partition("=")
        names = [argument.name for argument in prompt.arguments or ()]
        if not equals or name not in names:
            yield from (f"{each}=" for each in names)
            return
        known = dict(word.split("=", 1) for word in settled if "=" in word)
        completer = Completer(self._client, prompt, pause=0)
        found = completer.suggest(name, value, {n: v for n, v in known.items() if n in names})
        if found is not None:
            yield from (shlex.quote(f"{name}={one}") for one in found.values)

    def _uris(self) -> Iterator[str]:
        yield from (one.uri for one in self._all(self._client.iter_resources))
        yield from (one.uri_template for one in self._all(self._client.iter_resource_templates))

    def _tools(self) -> list[Tool]:
        return self._all(self._client.iter_tools)

    def _prompts(self) -> list[Prompt]:
        return self._all(self._client.iter_prompts)

    def _all(self, fetch: Callable[[], Iterator[T]]) -> list[T]:
        with self._lock:
            if fetch not in self._lists:
                self._lists[fetch] = list(fetch())
            return self._lists[fetch]


# `record` and `replay`: another command, its session written to a file, or played from one.


_WORDS = "syncmcp.words"

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The recording.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="COMMAND", help="Any other command, with its arguments."),
]


class Prefix(TyperCommand):
    """A command that stands before another one, whose words it leaves alone."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep all but the first word for the other command."""
        if args and not args[0].startswith("-"):
            ctx.meta[_WORDS] = args[1:]
            args = args[:1]
        return super().parse_args(ctx, args)


def record(context: typer.Context, path: _File, command: _Command = None) -> None:
    """Run a command, and write its session to a file, without the secrets in it.

    For example: syncmcp record tape.jsonl call https://example.com/mcp add a:=1 b:=2
    """
    _run(context, Recorded(path))


def replay(context: typer.Context, path: _File, command: _Command = None) -> None:
    """Run a command, without its TARGET, on a recording: what was recorded is answered again.

    For example: syncmcp replay tape.jsonl call add a:=1 b:=2
    """
    _run(context, Replayed(path))


def _run(context: typer.Context, around: Recorded | Replayed) -> None:
    from syncmcp.cli.app import obey

    words: list[str] = context.meta[_WORDS]
    if not words:
        raise CommandError("which command?", hint="it stands behind the file")
    code = obey(words, around)
    if code:
        raise typer.Exit(code)


# `demo`: a first look, on the server that comes with the library.


_SERVER = (sys.executable, "-m", "syncmcp.testing")

_TOUR: tuple[tuple[str, Sequence[str]], ...] = (
    ("What the server is", ("info",)),
    ("What it has", ("list",)),
    ("What a tool takes", ("call", "add", "--help")),
    ("A call", ("call", "add", "a:=1", "b:=2")),
    ("A call that takes its time, with progress", ("call", "countdown", "steps:=5")),
    ("The protocol's own result", ("call", "weather", "city=Bergen", "--json")),
    ("A resource, by its template", ("read", "demo://cities/{city}", "city=Kyoto")),
)


def demo() -> None:
    """Go through the commands on the demo server; nothing leaves this computer."""
    from syncmcp.cli.app import obey

    out = Output(json=False)
    command = shlex.join(("--", "python", *_SERVER[1:]))
    for title, words in _TOUR:
        out.note("")
        out.note(f"{title}:")
        out.note(f"$ syncmcp {shlex.join(words)} {command}")
        obey([*words, "--", *_SERVER])
    out.note("")
    out.note(f"Now you: `syncmcp shell {command}` has all of it, with Tab.")
