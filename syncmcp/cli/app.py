"""The commands, put together; and what becomes of their errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

import syncmcp
from syncmcp.cli import auth, calls, doctor, look, manage, shell
from syncmcp.cli.options import CallCommand, ServerCommand, show_help
from syncmcp.cli.output import Exit, as_json, describe, exit_code
from syncmcp.cli.session import Around
from syncmcp.errors import McpError

__all__ = ["app", "report", "run"]

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
app.add_typer(auth.app, name="auth")
app.command("shell", cls=ServerCommand)(shell.shell)
app.command("demo")(shell.demo)
app.command("record", cls=shell.Prefix)(shell.record)
app.command("replay", cls=shell.Prefix)(shell.replay)
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
