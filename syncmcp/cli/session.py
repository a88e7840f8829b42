"""What a command that speaks to a server gets: its options, output, the person, the client."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    NamedTuple,
    ParamSpec,
    TypeAlias,
    cast,
)

import typer
from typer.core import TyperCommand

from syncmcp._client.client import Client
from syncmcp.approval import AllowAll, Approval, DenyAll
from syncmcp.cli.output import Bar, CommandError, Output, as_json
from syncmcp.cli.parsing import Settings, http, is_url, sampling_by, servers, signed_in, stdio
from syncmcp.cli.state import entry, remembered
from syncmcp.config import Http, Stdio
from syncmcp.ui import visible

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.client import Target
    from syncmcp._connection.options import CallOptions
    from syncmcp._protocol.revisions import Mode
    from syncmcp.servers_file import ServerReview
    from syncmcp.types import LoggingMessageNotificationParams
    from syncmcp.ui.terminal import Terminal

__all__ = [
    "Around",
    "CallCommand",
    "Person",
    "Recorded",
    "Replayed",
    "ServerCommand",
    "Session",
    "Shared",
    "somebody",
    "speaks_to_server",
]


# The person at the terminal, who answers servers and allows calls. Stdout stays the results'.


def somebody() -> Person | None:
    """The person, if there is one: stdin and stderr are a terminal that takes commands."""
    dumb = os.environ.get("TERM") == "dumb"
    return Person() if sys.stdin.isatty() and sys.stderr.isatty() and not dumb else None


class Person:
    """Somebody to ask.

    Attributes:
        bar: Shows them progress.
    """

    def __init__(self) -> None:
        self.bar = Bar()

    @cached_property
    def terminal(self) -> Terminal:
        """Asks them what servers ask, with the bar out of the way."""
        from syncmcp.ui.terminal import Terminal

        return Terminal(sys.stdin, sys.stderr, beside=self.bar.lent)

    @cached_property
    def approval(self) -> Approval:
        """Asks them what has to be allowed."""
        from syncmcp.ui.terminal import AskOnTerminal

        return AskOnTerminal(terminal=self.terminal)

    def approve(self, review: ServerReview) -> bool:
        """Ask whether a server that a file in the working tree names may be used."""
        return self.terminal.approve(review)


# What no command can be given that finds its server chosen, or its connection made.
_OF_SERVER = ("header", "env", "cwd", "config", "trust")
_OF_CONNECTION = (*_OF_SERVER, "model", "revision", "open_timeout", "verbose")


class Shared:
    """What the commands of a shell have in common.

    Attributes:
        client: Open.
        person: Who types.
    """

    def __init__(self, client: Client, person: Person) -> None:
        self.client = client
        self.person = person


class Recorded(NamedTuple):
    """The session of a command is written to a file."""

    path: Path


class Replayed(NamedTuple):
    """A recording stands in the place of a command's server."""

    path: Path


Around: TypeAlias = Shared | Recorded | Replayed
"""What a command may run inside of."""


class Session:
    """What a command has to work with. The client is opened when it is wanted.

    Attributes:
        settings: The options, as given.
        out: Where results go.
        person: Who can be asked; `None` where there is no terminal.
    """

    def __init__(
        self,
        settings: Settings,
        target: str,
        command: Sequence[str],
        around: Around | None = None,
    ) -> None:
        self.settings = settings
        self.out = Output(json=settings.json)
        self._target = target
        self._command = command
        self._around = around
        self._shared = shared = around if isinstance(around, Shared) else None
        self._client: Client | None = None
        self.person: Person | None = shared.person if shared is not None else somebody()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._client is not None:
            self._client.close()
        if self.person is not None:
            self.person.bar.end()  # after the last report that could draw it again

    @property
    def target(self) -> tuple[Stdio | Http, dict[str, Any]]:
        """What to connect to, and what options of `Client` come with it.

        Raises:
            UsageError: The command line names nothing that can be connected to.
            NotApproved: A file in the working tree names it, and nobody approved it.
        """
        settings = self.settings
        if isinstance(self._around, Replayed):
            raise CommandError("there is no server behind a recording")
        self._check_fit()
        if self._command:
            return stdio(
                self._command, env=settings.env or (), cwd=settings.cwd, verbose=settings.verbose
            ), {}
        if is_url(self._target):
            return http(self._target, settings.header or ()), {}
        approve = None if self.person is None else self.person.approve
        found = entry(self._target, settings.config, approve=approve, trust=settings.trust)
        target = found.target()
        return signed_in(target) if isinstance(target, Http) else target, found.options

    @property
    def client(self) -> Client:
        """The open client.

        Raises:
            UsageError: As with `target`.
            McpError: It cannot be opened.
        """
        if self._shared is not None:
            self._refuse(_OF_CONNECTION, "counts when the shell is started")
            return self._shared.client
        if self._client is None:
            client = self.unopened()
            self._client = client  # to be closed even if opening is interrupted
            client.open()
            if self.settings.verbose and client.server.capabilities.logging is not None:
                client.set_log_level("debug")
        return self._client

    def unopened(self) -> Client:
        """A client that has not been opened.

        Raises:
            UsageError: As with `target`.
            NotApproved: The same.
        """
        settings = self.settings
        target, options = self._source()
        if settings.timeout is not None:
            options["timeout"] = settings.timeout
        person = self.person
        roots = remembered()
        model = None if settings.model is None else sampling_by(settings.model)
        if person is not None:
            approval: Approval = person.approval
        else:
            approval = Approval(AllowAll() if settings.yes else DenyAll())
        return Client(
            target,
            mode=cast("Mode", settings.revision),
            open_timeout=settings.open_timeout,
            elicitation=None if person is None else person.terminal,
            # What nobody would agree to is not offered.
            sampling=model if person is not None or settings.yes else None,
            roots=roots if roots.list() else None,
            approval=approval,
            on_log=_show_log if settings.verbose else None,
            **options,
        )

    def _refuse(self, names: Sequence[str], why: str) -> None:
        usual = type(self.settings)()
        for name in names:
            if getattr(self.settings, name) != getattr(usual, name):
                raise CommandError(f"--{name.replace('_', '-')} {why}")

    def _check_fit(self) -> None:
        """Refuse options that the kind of target has no use for, rather than forget them."""
        settings, remote = self.settings, is_url(self._target)
        if settings.header and (self._command or not remote):
            raise CommandError("--header goes with a URL")
        if (settings.env or settings.cwd) and not self._command:
            raise CommandError("--env and --cwd go with a command after --")

    def _source(self) -> tuple[Target, dict[str, Any]]:
        """The target, or what stands before it, or in its place."""
        if isinstance(self._around, Replayed):
            self._refuse(_OF_SERVER, "is for a server, and there is none behind a recording")
            from syncmcp.testing import Replay

            return Replay(self._around.path), {}
        target, options = self.target
        if isinstance(self._around, Recorded):
            from syncmcp.testing import Recording

            return Recording(target, self._around.path), options
        return target, options

    @property
    def options(self) -> CallOptions:
        """What goes with each call."""
        options: CallOptions = {}
        if self.settings.timeout is not None:
            options["timeout"] = self.settings.timeout
        if self.settings.idle_timeout is not None:
            options["idle_timeout"] = self.settings.idle_timeout
        if self.person is not None:
            options["on_progress"] = self.person.bar.report
        return options

    def allow(self, tool: Any, arguments: dict[str, Any]) -> None:
        """Ask whether a tool may be called, unless it claims to change nothing.

        Raises:
            CommandError: Nobody can be asked.
            Denied: The person said no.
        """
        claims = tool.annotations
        if self.settings.yes or (claims is not None and claims.read_only_hint is True):
            return
        if self.person is None:
            raise CommandError(
                f"the tool {tool.name!r} is not marked read-only, and nobody can be asked",
                hint="--yes calls it without asking",
            )
        self.person.approval.before_call(tool.name, arguments, claims, self.client.server)


def _show_log(params: LoggingMessageNotificationParams) -> None:
    said = params.data if isinstance(params.data, str) else as_json(params.data)
    where = f" {params.logger}" if params.logger else ""
    print(visible(f"[{params.level}{where}] {said}"), file=sys.stderr)


# A command that speaks to a server: its parser, and the session that it gets.


P = ParamSpec("P")

_AFTER_DASHES = "--"


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
