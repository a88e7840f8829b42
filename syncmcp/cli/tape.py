"""`record` and `replay`: another command, its session written to a file, or played from one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from syncmcp.cli.failures import CommandError
from syncmcp.cli.session import Recorded, Replayed

__all__ = ["Prefix", "record", "replay"]

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
