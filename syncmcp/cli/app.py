"""The command tree: every command, those that run other commands, and how errors are reported."""

from __future__ import annotations

import io
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import syncmcp
from syncmcp.cli import calls, doctor, look, manage
from syncmcp.cli.output import CommandError, Exit, Output, as_json, describe, exit_code, show_help
from syncmcp.cli.session import (
    Around,
    CallCommand,
    Recorded,
    Replayed,
    ServerCommand,
    Session,
    Shared,
    speaks_to_server,
)
from syncmcp.cli.shell import COMMANDS, lines
from syncmcp.errors import McpError

__all__ = ["app", "report", "run"]


@speaks_to_server
def shell(session: Session) -> None:
    """Type commands at one connection, without TARGET; Tab completes, Ctrl-D ends."""
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
    out = Output(json=False)
    command = shlex.join(("--", "python", *_SERVER[1:]))
    for title, words in _TOUR:
        out.note("")
        out.note(f"{title}:")
        out.note(f"$ syncmcp {shlex.join(words)} {command}")
        obey([*words, "--", *_SERVER])
    out.note("")
    out.note(f"Now you: `syncmcp shell {command}` has all of it, with Tab.")


_ABOUT = """Use MCP servers from a shell.

A server is a URL, or a command after --:

syncmcp tools https://example.com/mcp

syncmcp call add a:=1 b:=2 -- python server.py

Results go to stdout, an error is one line of JSON on stderr. Exit codes: 0 done, 1 the server
failed or cannot do it, 2 usage, 3 sign in first, 4 not reached, 5 the tool reported failure,
6 it took too long, 130 Ctrl-C.
"""

# Set by the scripts of --show-completion.
_COMPLETE = "_SYNCMCP_COMPLETE"

app = typer.Typer(
    name="syncmcp",
    help=_ABOUT,
    invoke_without_command=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"syncmcp {syncmcp.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    show_help(context)


app.command("list", cls=ServerCommand)(look.list_all)
app.command("tools", cls=ServerCommand)(look.list_tools)
app.command("call", cls=CallCommand, add_help_option=False)(calls.call)
app.command("read", cls=ServerCommand)(calls.read)
app.command("prompt", cls=ServerCommand)(calls.prompt)
app.command("complete", cls=ServerCommand)(calls.complete)
app.command("listen", cls=ServerCommand)(look.listen)
app.command("ping", cls=ServerCommand)(look.ping)
app.command("info", cls=ServerCommand)(look.info)
app.add_typer(manage.auth_app, name="auth")
app.command("shell", cls=ServerCommand)(shell)
app.command("demo")(demo)
app.command("record", cls=Prefix)(record)
app.command("replay", cls=Prefix)(replay)
app.add_typer(manage.servers_app, name="servers")
app.add_typer(manage.roots_app, name="roots")
app.command("doctor", cls=ServerCommand)(doctor.doctor)


def run(arguments: Sequence[str]) -> int:
    """Run one command; whatever goes wrong becomes a line on stderr and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # servers write what they like
    try:
        if os.environ.get(_COMPLETE):  # a shell asks what Tab may offer
            typer.main.get_command(app).main([], prog_name="syncmcp", complete_var=_COMPLETE)
        code = obey(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # so ends what is about completion
        return int(end.code or 0)
    except BrokenPipeError:
        # What is left in the buffer would fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Exit.BROKEN_PIPE


def obey(arguments: Sequence[str], around: Around | None = None) -> int:
    """Run one command line; return its exit code.

    Args:
        arguments: Its words.
        around: What it runs inside of.

    Raises:
        BrokenPipeError: Nobody reads the output any more.
    """
    command = typer.main.get_command(app)
    try:  # not by its `main`, which has its own ideas of Ctrl-C and of broken pipes
        with command.make_context("syncmcp", list(arguments), obj=around) as context:
            command.invoke(context)
    except typer.Exit as end:
        return end.exit_code
    except (McpError, typer.TyperException, KeyboardInterrupt, TimeoutError) as error:
        report(error)
        return exit_code(error)
    return Exit.OK


def report(error: BaseException) -> None:
    """Print an error as one line of JSON on stderr."""
    print(as_json({"error": describe(error)}), file=sys.stderr, flush=True)
