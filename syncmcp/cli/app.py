"""The command tree: every command, the commands that run others, and how errors are reported."""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import syncmcp
from syncmcp._base.similar import similar
from syncmcp._base.text import logger
from syncmcp._client.core import core_of
from syncmcp.cli import calls, doctor, inspection, manage
from syncmcp.cli.output import (
    CommandError,
    CommandGroup,
    Exit,
    Output,
    advise,
    as_json,
    describe,
    exit_code,
    explain,
    show_help,
)
from syncmcp.cli.person import without_person
from syncmcp.cli.session import (
    CONNECTION_OPTIONS,
    SHELL_COMMANDS,
    CallCommand,
    OuterCommand,
    RecordTo,
    ReplayFrom,
    ServerCommand,
    Session,
    SharedClient,
    as_typed,
    short_name,
    with_session,
)
from syncmcp.errors import McpError


@with_session
def shell(session: Session) -> None:
    """Type commands at one connection; Tab completes.

    Write commands without TARGET. Ctrl-D or exit ends the shell.

    For example: syncmcp shell https://example.com/mcp
    """
    person = session.person
    if person is None:
        text = f"the shell does not work {without_person()}"
        raise CommandError(text, hint="the other commands do")
    from syncmcp.cli.shell import LinePrompt  # its line editor takes time to load

    client = session.client
    outer = SharedClient(client, person)
    name = short_name(client.server.name)
    session.out.note(f"connected to {name}; help lists the commands, Ctrl-D ends the shell")
    prompt = LinePrompt(client, _shell_options())
    person.in_shell, person.suspend_prompt = True, prompt.suspended
    connection = core_of(client).connection
    for line in prompt.lines():
        try:
            words = shlex.split(line)
        except ValueError as error:  # such as an open quotation mark
            hint = "close the quotation, or put a backslash before it"
            text = f"the line cannot be split into words: {error}"
            print_error(CommandError(text, hint=hint if "quotation" in str(error) else None))
            continue
        if not words:
            continue
        if words[0] in ("quit", "exit"):
            break
        if words[0] in ("help", "?", "--help", "-h"):
            known = words[1:] and words[1] not in ("help", "quit", "exit")
            words = [words[1], "--help"] if known else []
        if symbols := {"<", ">", ">>", "|"}.intersection(words):
            text = f"{symbols.pop()!r} works only outside the shell of syncmcp"
            print_error(CommandError(text, hint="--output FILE saves a result"))
        elif words and words[0] not in SHELL_COMMANDS:
            # At 0.6, `hello` would match `help`.
            close = similar(words[0], SHELL_COMMANDS, 1, cutoff=0.7)
            hint = "`help` lists the commands; `call TOOL` calls a tool"
            if words[0] == "syncmcp":
                hint = "leave out `syncmcp` in this shell"
            elif words[0] in command_tree().commands:
                hint = f"`syncmcp {words[0]}` works outside this shell"
            elif other := calls.other_kind(client, words[0]):
                hint = as_typed(other, outer)
            elif close:
                hint = f"did you mean {close[0]}?"
            print_error(CommandError(f"there is no command {words[0]!r}", hint=hint))
        elif words:
            run_command(words, outer)
            if core_of(client).connection is not connection:
                connection = core_of(client).connection
                session.out.note("the connection had been lost; the server was connected again")
        else:
            session.out.note(_shell_help())
    raise typer.Exit  # with 0, even if the person has cancelled a question


def _shell_options() -> dict[str, list[str]]:
    """Return the options of each command that the shell has, without those of the connection."""
    return {
        name: [
            option
            for one in command.params
            if one.name not in CONNECTION_OPTIONS
            for option in one.opts
            if option.startswith("--")
        ]
        for name, command in command_tree().commands.items()
        if name in SHELL_COMMANDS
    }


def _shell_help() -> str:
    summaries = {"exit": "End the shell.", "help": "List the commands.", "quit": "End the shell."}
    for name, command in command_tree().commands.items():
        summaries.setdefault(name, command.get_short_help_str(70))
    lines = [f"{name:<9} {summaries[name]}" for name in SHELL_COMMANDS]
    return "\n".join([*lines, "help COMMAND says more."])


# `record` and `replay`: run another command and record its session, or replay a recorded one.


_OTHER_COMMAND = "syncmcp.words"


def complete_commands(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return completions of COMMAND: the commands of the tree, or the ones of a group."""
    place = command_tree()
    for word in [*(ctx.params.get("words") or ()), *ctx.meta.get(_OTHER_COMMAND, ())]:
        place = getattr(place, "commands", {}).get(word)
    return [name for name in getattr(place, "commands", ()) if name.startswith(incomplete)]


_File = Annotated[Path, typer.Argument(metavar="FILE", help="The recording.")]
_Command = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="COMMAND",
        help="Any other command, with its arguments.",
        autocompletion=complete_commands,
    ),
]


class PrefixCommand(TyperCommand):
    """A command whose arguments end with another command line, which it does not parse."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Take the first word as the file, and store the rest for the other command."""
        if args[:1] and args[0] in ctx.parent.command.commands:
            hint = f"write `{ctx.command_path} FILE {args[0]}`"
            raise CommandError("FILE comes before the command", hint=hint)
        if args and not args[0].startswith("-"):
            ctx.meta[_OTHER_COMMAND] = args[1:]
            args = args[:1]
        return super().parse_args(ctx, args)


def record(context: typer.Context, path: _File, command: _Command = None) -> None:
    """Run a command, and record its session in a file, masking secrets.

    For example: syncmcp record tape.jsonl call https://example.com/mcp add a=1 b=2
    """
    if os.path.lexists(path):
        raise CommandError(f"{str(path)!r} already exists", hint="remove it, or name another file")
    calls.check_output_path(path, force=True)  # the recorder would make missing directories
    path.touch(exist_ok=False)  # fails before the server starts, if it cannot be written
    path.unlink()
    _run_other(context, RecordTo(path))
    if not os.path.lexists(path):
        Output(json=False).note("nothing was recorded: the command used no server")


def replay(context: typer.Context, path: _File, command: _Command = None) -> None:
    """Run a command, without its TARGET, on a recording.

    Requests get the recorded responses.

    For example: syncmcp replay tape.jsonl call add a=1 b=2
    """
    _run_other(context, ReplayFrom(path))


def _run_other(context: typer.Context, outer: RecordTo | ReplayFrom) -> None:
    words: list[str] = context.meta[_OTHER_COMMAND]
    if not words or words[0] == "--":
        hint = f"write it after FILE, as in `syncmcp {context.info_name} FILE tools`"
        raise CommandError("which command?", hint=hint)
    if words[0] in ("record", "replay"):
        raise CommandError("record and replay cannot be nested", hint="name one FILE")
    if words[0] in ("auth", "demo", "help", "roots", "servers"):
        hint = f"{context.info_name} takes the commands that ask a server, such as call and list"
        raise CommandError(f"`{words[0]}` has no session to record", hint=hint)
    code = run_command(words, outer)
    if code:
        raise typer.Exit(code)


# `demo`: runs a series of commands on the demo server of the library.


_SERVER = (sys.executable, "-m", "syncmcp.testing")
# `python -m` looks for modules in its working directory first: here it finds this package.
_SERVER_FOLDER = str(Path(syncmcp.__file__).parents[1])

_TOUR: tuple[tuple[str, Sequence[str]], ...] = (
    ("What the server is", ("info",)),
    ("What it has", ("list",)),
    ("What a tool takes", ("call", "add", "--help")),
    ("A call", ("call", "add", "a=1", "b=2")),
    ("A call that takes its time, with progress", ("call", "countdown", "steps=5")),
    ("The protocol's own result", ("call", "weather", "city=Bergen", "--json")),
    ("A resource, by its template", ("read", "demo://cities/{city}", "city=Kyoto")),
)


def _python() -> str:
    """Return the command that starts this Python; another Python may not have the package."""
    same = os.path.dirname(shutil.which("python") or "") == os.path.dirname(sys.executable)
    return "python" if same else sys.executable


def demo() -> None:
    """Show the commands on a demo server, on this computer.

    For example: syncmcp demo
    """
    out = Output(json=False)
    command = shlex.join(("--", _python(), *_SERVER[1:]))
    for title, words in _TOUR:
        out.note("")
        out.note(f"{title}:")
        out.note(f"$ syncmcp {shlex.join(words)} {command}")
        code = run_command([*words, "--cwd", _SERVER_FOLDER, "--", *_SERVER])
        if code == Exit.INTERRUPTED:
            raise typer.Exit(code)
    out.note("")
    out.note(f"Your turn: `syncmcp shell {command}` offers all of this, with Tab completion.")


def show_help_of(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="The command.", autocompletion=complete_commands),
    ] = None,
) -> None:
    """Show the help of a command.

    For example: syncmcp help call
    """
    if code := run_command([*(words or ()), "--help"]):
        raise typer.Exit(code)


_ABOUT = """Use MCP servers from a shell.

A server is a URL, or a command after --:

syncmcp tools https://example.com/mcp

syncmcp call add a=1 b=2 -- python server.py

Try `syncmcp demo` first: it needs no server.
"""

_OUTPUT = """Results go to stdout. Errors go to stderr: a sentence at a terminal, elsewhere a line
of JSON."""

_EXIT_CODES = {
    Exit.OK: "The command is done.",
    Exit.SERVER: "The server failed or lacks a feature, you denied the call, or output failed.",
    Exit.USAGE: "The command line or a file is invalid, or a server is not approved.",
    Exit.AUTH: "You must sign in first, or the server refused the credentials.",
    Exit.UNREACHABLE: "The server was not reached, or the connection was lost.",
    Exit.TOOL: "The tool reported failure.",
    Exit.TIMEOUT: "A timeout expired.",
    Exit.CANCELLED: "You cancelled a form or a link of the server.",
    Exit.INTERRUPTED: "You pressed Ctrl-C, except at a server's question.",
    Exit.BROKEN_PIPE: "The program that reads the output ended.",
}

_SECTIONS = {
    "Ask a server": (
        *("list", "tools", "call", "read", "prompt", "complete"),
        *("listen", "ping", "info", "shell"),
    ),
    "Servers and sign-in": ("servers", "auth", "roots", "doctor"),
    "Try and record": ("demo", "record", "replay", "help"),
}


class _Commands(CommandGroup):
    """All commands, in sections."""

    sections = _SECTIONS

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reject -- before the command: the next word would be parsed as the command."""
        if args[:1] == ["--"]:
            hint = f"write the command first: {ctx.command_path} COMMAND -- PROGRAM"
            raise CommandError("which command?", hint=hint)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        formatter.write_paragraph()
        formatter.write_text(_OUTPUT)
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), words) for code, words in _EXIT_CODES.items()])


# Help for the options that Typer adds, in the style of the other options; by name.
_HELP = {
    "help": "Show this help.",
    "install_completion": "Set up Tab completion in your shell.",
    "show_completion": "Print the completion script.",
}


# Commands in a help text, each a paragraph.
_EXAMPLES = re.compile(r"\n\n(For example:)? ?(syncmcp [^\n]*(?:\n\nsyncmcp [^\n]*)*)")


def _set_off(examples: re.Match[str]) -> str:
    lines = [examples[1] or "", *(f"  {line}" for line in examples[2].split("\n\n"))]
    return "\n\n\b\n" + "\n".join(filter(None, lines))  # Typer does not wrap these


def command_tree() -> Any:
    """Return the command tree; its help shows no Python types and no braces."""
    tree: Any = typer.main.get_command(app)
    context = tree.make_context("syncmcp", [], resilient_parsing=True)
    waiting = [tree]
    for command in waiting:
        waiting += getattr(command, "commands", {}).values()
        command.help = _EXAMPLES.sub(_set_off, command.help)
        for one in command.get_params(context):
            one.help = _HELP.get(one.name, one.help)
            if one.param_type_name == "argument":
                usage = [piece.strip("{}") for piece in one.get_usage_pieces(context)]
                one.get_usage_pieces = lambda ctx, usage=usage: usage
                one.display_type_rich = lambda ctx: ""
                if one.name == "target":  # not "[required]": a command after -- replaces it
                    one.get_help_record = lambda ctx, one=one: (one.metavar, one.help)
            elif one.name == "help" and isinstance(command, ServerCommand):
                one.help = f"{one.help} -h leaves out the shared options."
    return tree


# The environment variable that the scripts of --show-completion set.
_COMPLETE = "_SYNCMCP_COMPLETE"

app = typer.Typer(
    name="syncmcp",
    help=_ABOUT,
    cls=_Commands,
    context_settings={"help_option_names": ["--help", "-h"]},
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


app.command("list", cls=ServerCommand)(inspection.list_all)
app.command("tools", cls=ServerCommand)(inspection.list_tools)
app.command("call", cls=CallCommand, add_help_option=False)(calls.call)
app.command("read", cls=ServerCommand)(calls.read)
app.command("prompt", cls=ServerCommand)(calls.prompt)
app.command("complete", cls=ServerCommand)(calls.complete)
app.command("listen", cls=ServerCommand)(inspection.listen)
app.command("ping", cls=ServerCommand)(inspection.ping)
app.command("info", cls=ServerCommand)(inspection.info)
app.add_typer(manage.auth_app, name="auth")
app.command("shell", cls=ServerCommand)(shell)
app.command("demo")(demo)
app.command("record", cls=PrefixCommand)(record)
app.command("replay", cls=PrefixCommand)(replay)
app.add_typer(manage.servers_app, name="servers")
app.add_typer(manage.roots_app, name="roots")
app.command("doctor", cls=ServerCommand)(doctor.doctor)
app.command("help")(show_help_of)


def run(arguments: Sequence[str]) -> int:
    """Run one command; an error is printed on stderr and becomes an exit code."""
    # Warnings of the library are hidden: the command reports problems itself, or with --verbose.
    logger("syncmcp").addHandler(logging.NullHandler())
    closed = sys.stdout is None
    # Python has no stream for a closed descriptor, and the next opened file would get its number.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # server text may not be encodable
    if closed:
        nowhere = OSError(errno.EBADF, "it is closed")
        print_error(nowhere, as_line=_as_line(arguments))
        return exit_code(nowhere)
    try:
        if os.environ.get(_COMPLETE):  # a shell asks for Tab completions
            command_tree().main([], prog_name="syncmcp", complete_var=_COMPLETE)
        code = run_command(arguments)
        sys.stdout.flush()
        return code
    except SystemExit as end:  # raised after a completion request
        return int(end.code or 0)
    except OSError as error:
        if error.filename is None:  # the error is one of stdout, not of a file
            # Flushing the buffer at interpreter exit would raise the same error again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return Exit.BROKEN_PIPE
        print_error(error, as_line=_as_line(arguments))
        return exit_code(error)


def run_command(arguments: Sequence[str], outer: OuterCommand | None = None) -> int:
    """Run one command line, for `outer` if another command runs it; return its exit code.

    Raises `OSError` if the output cannot be written, such as `BrokenPipeError`.
    """
    code: int = Exit.OK
    with ExitStack() as ending:

        def invoke() -> None:  # not `command.main`: it handles Ctrl-C and broken pipes its own way
            command = command_tree()
            context = command.make_context("syncmcp", list(arguments), obj=outer)
            command.invoke(ending.enter_context(context))

        # The server is stopped after the error was printed, because that may take seconds.
        for step in (invoke, ending.close):
            try:
                step()
            except typer.Exit as end:
                code = end.exit_code
            except (McpError, typer.TyperException, KeyboardInterrupt, TimeoutError) as error:
                if hint := describe(error).get("hint"):
                    advise(error, as_typed(hint, outer))
                print_error(error, as_line=_as_line(arguments))
                code = exit_code(error)
    return code


def _as_line(arguments: Sequence[str]) -> bool:
    return "--json" in takewhile("--".__ne__, arguments)


def print_error(error: BaseException, *, as_line: bool = False) -> None:
    """Print an error on stderr: for people on a terminal, else (or `as_line`) as a line of JSON."""
    if as_line or not sys.stderr.isatty():
        print(as_json({"error": describe(error)}), file=sys.stderr, flush=True)
    else:
        explain(error)
