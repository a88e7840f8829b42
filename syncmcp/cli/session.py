"""One command at work: its options, its output, the person, and the client it opens."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from syncmcp._client.client import Client
from syncmcp.approval import AllowAll, Approval, DenyAll
from syncmcp.cli import target as targets
from syncmcp.cli.failures import CommandError
from syncmcp.cli.model import sampling_by
from syncmcp.cli.named import entry
from syncmcp.cli.output import Output, as_json
from syncmcp.cli.person import somebody
from syncmcp.cli.remembered_roots import remembered
from syncmcp.config import Http
from syncmcp.ui.text import visible

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.client import Target
    from syncmcp._connection.options import CallOptions
    from syncmcp._protocol.revisions import Mode
    from syncmcp.cli.options import Settings
    from syncmcp.cli.person import Person
    from syncmcp.config import Stdio
    from syncmcp.types import LoggingMessageNotificationParams

__all__ = ["Around", "Recorded", "Replayed", "Session", "Shared"]


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
            return targets.stdio(
                self._command, env=settings.env or (), cwd=settings.cwd, verbose=settings.verbose
            ), {}
        if targets.is_url(self._target):
            return targets.http(self._target, settings.header or ()), {}
        approve = None if self.person is None else self.person.approve
        found = entry(self._target, settings.config, approve=approve, trust=settings.trust)
        target = found.target()
        return targets.signed_in(target) if isinstance(target, Http) else target, found.options

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
        settings, remote = self.settings, targets.is_url(self._target)
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
