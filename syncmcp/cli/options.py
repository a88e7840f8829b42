"""What every command that speaks to a server takes, and what Tab offers in a shell."""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer
from typer.core import TyperCommand

from syncmcp._protocol.revisions import REVISIONS
from syncmcp.cli.output import CommandError, Exit
from syncmcp.cli.session import PROVIDERS, Around, Replayed, Session, Shared, files
from syncmcp.cli.state import remembered
from syncmcp.errors import McpError

__all__ = [
    "CallCommand",
    "ServerCommand",
    "Settings",
    "providers",
    "revisions",
    "root_paths",
    "servers",
    "show_help",
    "speaks_to_server",
]


# What Tab offers in the person's own shell: from files alone, no server is started or contacted.
#
# What is offered gets onto a command line, and a file in the working tree may be anybody's: names
# that a shell would take for more than a word are left to be typed.


def servers(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names that files have for servers."""
    # One that begins with - would be an option, of which --trust asks nobody.
    return _plain((name for name in _names(ctx) if name[:1] != "-"), incomplete)


def providers(incomplete: str) -> list[str]:
    """The providers of models."""
    return _plain((f"{name}:" for name in PROVIDERS), incomplete)


def revisions(incomplete: str) -> list[str]:
    """What ``--revision`` takes."""
    return _plain(("auto", "legacy", *REVISIONS), incomplete)


def root_paths(incomplete: str) -> list[str]:
    """The roots that there are."""
    try:
        return _plain((str(status.path) for status in remembered().list()), incomplete)
    except CommandError:
        return []  # Tab is no place for an error; the command itself will meet it


def _names(ctx: typer.Context) -> Iterator[str]:
    config: Any = ctx.params.get("config")
    for _, read in files(None if config is None else Path(config)):
        if not isinstance(read, McpError):
            yield from read


def _plain(words: Iterable[str], incomplete: str) -> list[str]:
    return [word for word in words if word.startswith(incomplete) and shlex.quote(word) == word]


P = ParamSpec("P")

_AFTER_DASHES = "--"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options, as given; see their help."""

    json: Annotated[
        bool, typer.Option("--json", help="Print the protocol's own result as JSON.")
    ] = False
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Do not ask before a tool is called.")
    ] = False
    header: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME:VALUE", help="Send this HTTP header."),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option("--env", "-e", metavar="NAME=VALUE", help="Give the command this variable."),
    ] = None
    cwd: Annotated[
        Path | None,
        typer.Option("--cwd", metavar="DIRECTORY", help="Start the command in this directory."),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Look names up in this file alone."),
    ] = None
    trust: Annotated[
        bool,
        typer.Option("--trust", help="Use servers of a file in the working tree without asking."),
    ] = False
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            "-m",
            metavar="PROVIDER:NAME",
            help="Let this model answer where the server asks for one, after you agreed.",
            autocompletion=providers,
        ),
    ] = None
    revision: Annotated[
        str,
        typer.Option(
            "--revision",
            metavar="REVISION",
            help="Insist on this one, or with 'legacy' on an older one.",
            autocompletion=revisions,
        ),
    ] = "auto"
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", metavar="SECONDS", help="The longest that a request may take; 300."
        ),
    ] = None
    idle_timeout: Annotated[
        float | None,
        typer.Option(
            "--idle-timeout",
            metavar="SECONDS",
            help="The longest silence after a first sign of life; 60.",
        ),
    ] = None
    open_timeout: Annotated[
        float,
        typer.Option(
            "--open-timeout", metavar="SECONDS", help="The longest that connecting may take."
        ),
    ] = 30.0
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Show the server's stderr and log on stderr."),
    ] = False


class ServerCommand(TyperCommand):
    """A command whose first argument is a server, which may stand after ``--`` as a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the place of the target where the target would be."""
        ctx.meta[_AFTER_DASHES] = []
        if isinstance(ctx.obj, (Replayed, Shared)):
            args = ["TARGET", *args]
        elif _AFTER_DASHES in args:
            dashes = args.index(_AFTER_DASHES)
            if dashes + 1 == len(args) and not ctx.resilient_parsing:
                raise CommandError("no command stands after --")
            ctx.meta[_AFTER_DASHES] = args[dashes + 1 :]
            args = ["COMMAND", *args[:dashes]]
        return super().parse_args(ctx, args)


class CallCommand(ServerCommand):
    """`call`, whose ``--help`` is about a tool, if one is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Show the command's own help where no tool is named."""
        if ctx.resilient_parsing:  # Tab is no place for it
            return super().parse_args(ctx, args)
        wanted = "--help" in args  # which parsing uses up
        try:
            rest = super().parse_args(ctx, args)
        except typer.TyperException:
            if not wanted:
                raise
        else:
            if not ctx.params["show_help"] or ctx.params["tool"] is not None:
                return rest
        print(ctx.get_help())
        raise typer.Exit


def show_help(context: typer.Context) -> None:
    """Show the help of a group of commands that was called without any of them."""
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit(Exit.USAGE)


def speaks_to_server(
    command: Callable[Concatenate[Session, P], None],
) -> Callable[..., None]:
    """Give a command a server to name and the options for it; it gets a `Session` of them."""
    own = [*inspect.signature(command, eval_str=True).parameters.values()][1:]
    common = [*inspect.signature(Settings, eval_str=True).parameters.values()]
    call: Callable[..., None] = command
    context = _keyword("context", typer.Context)
    target = _keyword(
        "target",
        Annotated[
            str,
            typer.Argument(
                metavar="TARGET", help=_TARGET, show_default=False, autocompletion=servers
            ),
        ],
    )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        place: typer.Context = given.pop("context")
        named: str = given.pop("target")
        settings = Settings(**{one.name: given.pop(one.name) for one in common})
        around: Around | None = place.obj
        with Session(settings, named, place.meta[_AFTER_DASHES], around) as session:
            call(session, **given)

    parameters = [context, target, *own, *common]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


_TARGET = "A URL, or a name (see servers); left out where a command stands after --."


def _keyword(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
