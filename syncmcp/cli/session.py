"""One command at work: its options, its output, the person, and the client it opens."""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, cast

from syncmcp import servers_file
from syncmcp._client.client import Client
from syncmcp.approval import AllowAll, Approval, DenyAll
from syncmcp.cli.items import read_file
from syncmcp.cli.output import Bar, CommandError, Output, as_json
from syncmcp.cli.state import home, remembered
from syncmcp.config import Http, Stdio
from syncmcp.errors import McpError
from syncmcp.ui import visible

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.client import Target
    from syncmcp._connection.options import CallOptions
    from syncmcp._protocol.revisions import Mode
    from syncmcp.cli.options import Settings
    from syncmcp.llm import ModelSampling
    from syncmcp.servers_file import Approve, ServerEntry, ServerReview, ServersFile
    from syncmcp.types import LoggingMessageNotificationParams
    from syncmcp.ui.terminal import Terminal

__all__ = [
    "PROVIDERS",
    "Around",
    "Person",
    "Recorded",
    "Replayed",
    "Session",
    "Shared",
    "entry",
    "files",
    "http",
    "is_url",
    "sampling_by",
    "signed_in",
    "somebody",
    "stdio",
]


# What a command line names as its server: a URL, a name, or a command after ``--``.


def is_url(word: str) -> bool:
    """Whether it is meant as a URL."""
    return word.lower().startswith(("http://", "https://"))


def http(url: str, headers: Iterable[str] = ()) -> Http:
    """The server at a URL.

    It gets the token of an earlier ``auth login``; nobody is sent to sign in by the way.

    Args:
        url: The URL.
        headers: As ``Name:value`` or ``Name:@file``; one called ``Authorization`` takes the place
            of the token.

    Raises:
        CommandError: A header is not written like that.
    """
    return signed_in(Http(url, headers=dict(_header(word) for word in headers)))


def signed_in(server: Http) -> Http:
    """Give it the token of an earlier ``auth login``, unless its headers hold one."""
    headers = server.headers if isinstance(server.headers, Mapping) else {}
    if not any(name.lower() == "authorization" for name in headers):
        from syncmcp.cli.state import kept

        server.auth = kept(server.url)
    return server


def stdio(
    command: Sequence[str],
    *,
    env: Iterable[str] = (),
    cwd: Path | None = None,
    verbose: bool = False,
) -> Stdio:
    """The server that a command starts.

    Args:
        command: The program and its arguments.
        env: Variables for it, as ``NAME=value``.
        cwd: Its working directory.
        verbose: Whether its stderr is shown.

    Raises:
        CommandError: A variable is not written like that.
    """
    stderr: Callable[[str], None] | str = _show if verbose else "log"
    return Stdio(*command, env=dict(_variable(word) for word in env), cwd=cwd, stderr=stderr)


def _show(line: str) -> None:
    print(visible(line), file=sys.stderr)


def _header(word: str) -> tuple[str, str]:
    name, colon, value = word.partition(":")
    if not colon or not name.strip():
        raise CommandError("a header is written Name:value", hint="or Name:@file")
    value = value.strip()
    return name.strip(), read_file(value[1:]).strip() if value.startswith("@") else value


def _variable(word: str) -> tuple[str, str]:
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise CommandError("a variable is written NAME=value")
    return name, value


# Servers by their names in the files of editors.


def files(
    config: Path | None, *, approve: Approve | None = None, trust: bool = False
) -> Iterator[tuple[Path, ServersFile | McpError]]:
    """The files to look at, read; or why one cannot be.

    Args:
        config: The only one; without it, those of the editors on this computer.
        approve: Asks a person about a server of a file in the working tree.
        trust: Ask nobody.
    """
    paths = [place.path for place in servers_file.known_files()] if config is None else [config]
    for path in paths:
        try:
            yield (
                path,
                servers_file.read(
                    path,
                    approve=approve,
                    trust=trust,
                    approvals=home() / "approved-servers.json",
                ),
            )
        except McpError as error:
            yield path, error


def entry(
    name: str, config: Path | None, *, approve: Approve | None = None, trust: bool = False
) -> ServerEntry:
    """The server of this name; of several, that of the first file.

    Raises:
        CommandError: No file names it.
        McpError: The file given cannot be read.
    """
    names: list[str] = []
    for _, read in files(config, approve=approve, trust=trust):
        if isinstance(read, McpError):
            if config is not None:
                raise read
            continue  # a broken file of one editor is not in the way of another's; `servers` tells
        if name in read:
            return read[name]
        names.extend(read)
    close = difflib.get_close_matches(name, names, n=3)
    hint = "a URL begins with https:// or http://; a command stands after --"
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif names:
        hint += "; `syncmcp servers` lists the names"
    raise CommandError(f"there is no server {name!r}", hint=hint)


# `--model`: a provider's model that answers where a server asks for one.


def _anthropic(name: str) -> ModelSampling:
    from syncmcp.llm import AnthropicSampling

    return AnthropicSampling(name)


def _gemini(name: str) -> ModelSampling:
    from syncmcp.llm import GeminiSampling

    return GeminiSampling(name)


def _openai(name: str, *, chat: bool = False) -> ModelSampling:
    from syncmcp.llm import OpenAISampling

    return OpenAISampling(name, api="chat" if chat else "responses")


PROVIDERS: Final[Mapping[str, Callable[[str], ModelSampling]]] = MappingProxyType(
    {
        "anthropic": _anthropic,
        "gemini": _gemini,
        "openai": _openai,
        "openai-chat": partial(_openai, chat=True),
    }
)
"""What a model is named with, and what makes it answer."""


def sampling_by(word: str) -> ModelSampling:
    """The model that ``provider:name`` means. Its key comes from the environment.

    Raises:
        CommandError: It means none.
        UsageError: The provider's package is not installed.
    """
    provider, colon, name = word.partition(":")
    make = PROVIDERS.get(provider)
    if make is None:
        close = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PROVIDERS)}"
        raise CommandError(f"there is no provider of models {provider!r}", hint=hint)
    if not colon or not name:
        raise CommandError(f"which model of {provider}?", hint=f"write --model {provider}:NAME")
    return make(name)


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
