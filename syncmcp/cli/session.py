"""The session of a command that speaks to a server: options, output, the person, the client."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import re
import textwrap
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import fields
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, cast

import typer
from typer.core import TyperCommand

from syncmcp._base.secrets import Secrets
from syncmcp._base.text import WORD, logger
from syncmcp._client.client import Client, Target
from syncmcp._client.core import core_of
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.negotiate import MODES
from syncmcp._protocol.revisions import Mode
from syncmcp.approval import AllowAll, Approval, Decision, Question
from syncmcp.cli.output import (
    CommandError,
    Exit,
    FormCancelled,
    Output,
    advise,
    approval_hint,
    as_json,
    describe,
    exit_code,
)
from syncmcp.cli.parsing import (
    Settings,
    complete_servers,
    http_target,
    is_url,
    read_file,
    sampling_model,
    stdio_target,
    with_stored_login,
)
from syncmcp.cli.person import Person, person_at_terminal, print_line, without_person
from syncmcp.cli.state import find_server, load_roots
from syncmcp.config import Http, Stdio
from syncmcp.errors import ConnectFailed, InvalidOutput, McpError, ServerError, ToolError
from syncmcp.servers_file import NotApproved
from syncmcp.transports.stdio import SKIPPED_LINE
from syncmcp.types import LoggingMessageNotificationParams
from syncmcp.ui import visible


class _DenyWithoutPerson:
    """Denies all requests because there is no person; prints one note if roots are requested."""

    def __init__(self, note: Callable[[str], object]) -> None:
        self._note = functools.cache(note)

    def decide(self, question: Question, /) -> Decision:
        """Deny."""
        if question.kind == "roots":
            self._note(
                "the server asked for the roots and got none; --yes sends them without a prompt"
            )
        return Decision.DENY


# The most characters of a stray line that are shown during the wait for a connection.
_MOST_OF_STRAY_LINE = 24

# `replay` rejects options for the server; a shell those for its connection, which is open.
_SERVER_OPTIONS = ("header", "bearer", "env", "cwd", "config", "trust")
CONNECTION_OPTIONS = (*_SERVER_OPTIONS, "model", "revision", "open_timeout", "verbose")
"""The options of a connection, which commands in a shell reject."""


LONGEST_WAIT = 5.0
"""How long a completion or a hint may take, in seconds: nobody waits longer for one."""

# The maximum number of characters of the server's name in the prompt.
_LONGEST_NAME = 32

SHELL_COMMANDS = (
    "call",
    "complete",
    "exit",
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
"""The commands of the shell; all but `help`, `exit` and `quit` are commands of `syncmcp`."""


def short_name(name: str) -> str:
    """Return the client's name for a server, short enough for the prompt."""
    return visible(name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}…")


class SharedClient(NamedTuple):
    """`shell`: all commands share its open client, and the person who types them."""

    client: Client
    person: Person


class RecordTo(NamedTuple):
    """`record`: the session is written to this file."""

    path: Path


class ReplayFrom(NamedTuple):
    """`replay`: the recording in this file takes the place of the server."""

    path: Path


OuterCommand = SharedClient | RecordTo | ReplayFrom
"""A command that runs another one: the `typer.Context.obj` of that other command."""


def knows_server(outer: object) -> bool:
    """Return whether commands within `outer` take no TARGET."""
    return isinstance(outer, (ReplayFrom, SharedClient))


def as_typed(text: str, outer: object) -> str:
    """Write commands as they are typed within `outer`: without TARGET if the server is known.

    In a shell, commands that the shell has are also written without the name of the program.
    """
    if knows_server(outer):
        text = text.replace(" TARGET", "")
    if isinstance(outer, SharedClient):
        text = re.sub(r"\bsyncmcp (?!auth|doctor|roots|servers)", "", text)
    return text


class _Warnings(logging.Handler):
    """Shows warnings of the library: with --verbose each, else during the wait for a connection.

    The only ones of the latter kind are about lines on a server's stdout that are not messages: the
    program may be no server, and the wait would end with the timeout.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(logging.WARNING)
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        if self._session.settings.verbose:
            self._session.print_line(f"syncmcp: {record.getMessage()}")
        elif record.msg == SKIPPED_LINE and isinstance(record.args, tuple):
            self._session.connecting_despite(str(record.args[-1]))


class Session:
    """The options, output and client of one command. The client is opened at its first use.

    Attributes:
        named: TARGET as it was typed.
        misused: Whether the command ended because of an invalid command line.
    """

    def __init__(
        self,
        settings: Settings,
        target: str,
        command: Sequence[str],
        outer: OuterCommand | None = None,
    ) -> None:
        self.settings = settings
        self.named = target
        self.command = command
        self.outer = outer
        self._shared = shared = outer if isinstance(outer, SharedClient) else None
        self._client: Client | None = None
        self._opened = False
        self.misused = False
        self.person = person = shared.person if shared is not None else person_at_terminal()
        hide = (lambda: None) if person is None else person.bar.hide
        self.out = Output(json=settings.json, before=hide)
        self._warnings = _Warnings(self)
        logger("syncmcp").addHandler(self._warnings)

    def close(self) -> None:
        """Disconnect. A server that was started is stopped; Ctrl-C kills it."""
        try:
            if self._client is not None:
                self.wait("disconnecting; Ctrl-C ends this at once")
                self._client.close()
                # Such a recording is useless, and would block the corrected command.
                if isinstance(self.outer, RecordTo) and (self.misused or not self._opened):
                    self.outer.path.unlink(missing_ok=True)
        finally:
            self.wait_no_more()
            logger("syncmcp").removeHandler(self._warnings)

    @property
    def target(self) -> tuple[Stdio | Http, dict[str, Any]]:
        """The server to connect to, and the options of `Client` that its file sets."""
        settings = self.settings
        if isinstance(self.outer, ReplayFrom):
            hint = "leave out `replay FILE`, and name the server"
            raise CommandError("this command needs a server: a recording has none", hint=hint)
        self._check_options()
        if self.command:
            stderr: Callable[[str], None] | str = self.print_line if settings.verbose else "log"
            started = stdio_target(
                self.command, env=settings.env or (), cwd=settings.cwd, stderr=stderr
            )
            # The person who typed the command knows it without the directory of the program.
            command, blank, rest = started.label.partition(" ")
            return started, {"name": os.path.basename(command) + blank + rest}
        if is_url(self.named):
            headers = list(settings.header or ())
            if settings.bearer is not None:
                token = settings.bearer
                token = read_file(token[1:]).strip() if token.startswith("@") else token
                if not WORD.fullmatch(token):
                    raise CommandError("--bearer is one word of visible ASCII characters")
                if any(word.lower().startswith("authorization:") for word in headers):
                    raise CommandError("--header and --bearer pass two tokens: leave out one")
                headers.append(f"Authorization:Bearer {token}")
            return http_target(self.named, headers), {}
        approve = None if self.person is None else self.person.approve
        try:
            found = find_server(self.named, settings.config, approve=approve, trust=settings.trust)
        except CommandError as error:
            if self.module_hint is not None:
                advise(error, self.module_hint)
            raise
        try:
            target = found.target()
        except NotApproved as error:
            advise(error, approval_hint(error, settings.config))
            raise
        return with_stored_login(target) if isinstance(target, Http) else target, found.options

    @property
    def module_hint(self) -> str | None:
        """The hint if ``-m`` was meant for Python, so that `--model` got the name of a module."""
        model = self.settings.model
        if model is None or ":" in model:
            return None
        return f"-m is --model: write -- before the command, as in `-- python -m {model}`"

    @property
    def client(self) -> Client:
        """The open client."""
        if self._shared is not None:
            self.reject_options(CONNECTION_OPTIONS, "must be passed when you start the shell")
            return self._shared.client
        if self._client is None:
            client = self.make_client()
            self._client = client  # set first: closed even if opening is interrupted
            self.wait("connecting")
            client.open()
            self._opened = True
            if self.settings.verbose and client.server.capabilities.logging is not None:
                client.set_log_level("debug")
        return self._client

    def opens_without_sign_in(self, server: Http) -> bool:
        """Open the client of `server`; return whether no token of a sign-in was used.

        Raises:
            AuthError: The server requires a sign-in.
        """
        try:
            _ = self.client
        finally:
            self.wait_no_more()  # it would draw over the question of a sign-in
        return getattr(server.auth, "token", None) is None

    @property
    def cancelled(self) -> int:
        """How many questions of servers the person has cancelled."""
        return 0 if self.person is None else self.person.cancelled

    def wait(self, words: str) -> None:
        """Show the person what the command waits for, until the next output or question."""
        if self.person is not None:
            self.person.bar.wait(words)

    def connecting_despite(self, line: str) -> None:
        """Show the person what a server printed instead of a message, if they wait for it."""
        if self.person is not None and not self._opened:
            more = "…" if len(line) > _MOST_OF_STRAY_LINE else ""
            shown = f"{line[:_MOST_OF_STRAY_LINE].rstrip()}{more}"
            self.person.bar.reword(f"connecting; its stdout is not MCP: {shown}")

    def wait_no_more(self) -> None:
        """Remove what `wait` shows."""
        if self.person is not None:
            self.person.bar.hide()

    def make_client(self) -> Client:
        """Return a client that has not been opened."""
        settings = self.settings
        if settings.revision not in MODES:
            known = ", ".join(MODES)
            raise CommandError(f"--revision must be one of {known}, not {settings.revision!r}")
        target, options = self._wrapped_target()
        if settings.timeout is not None:
            options["timeout"] = settings.timeout
        person = self.person
        roots = load_roots()
        try:
            model = None if settings.model is None else sampling_model(settings.model)
        except CommandError as error:
            if "." in (settings.model or "") and self.module_hint is not None:
                advise(error, self.module_hint)
            raise
        if person is not None:
            approval: Approval = person.approval
        else:
            approval = Approval(AllowAll() if settings.yes else _DenyWithoutPerson(self.out.note))
        return Client(
            target,
            mode=cast("Mode", settings.revision),
            open_timeout=settings.open_timeout,
            elicitation=None if person is None else person.terminal,
            # Not advertised without a person and without --yes: every request would be denied.
            sampling=model if person is not None or settings.yes else None,
            roots=roots if roots.list() else None,
            approval=approval,
            on_log=self._print_log if settings.verbose else None,
            **options,
        )

    def hide_secrets(self, error: McpError) -> None:
        """Mask the known secrets of the server in an error, which may repeat its answers."""
        secrets = self._known_secrets()
        if isinstance(error, ToolError):  # from its whole text: the message may end within a secret
            error.args = (secrets.quote(error.result.text) or error.message,)
        if isinstance(error, ServerError):
            error.data = secrets.mask_value(error.data)
        if isinstance(error, InvalidOutput) and (result := error.result) is not None:
            error.result = result.from_wire(secrets.mask_value(result.to_wire()))
        secrets.clean(error)

    def mask(self, text: str) -> str:
        """Return a text that may repeat the server, without its known secrets."""
        return self._known_secrets().mask(text)

    def _known_secrets(self) -> Secrets:
        client = self._client if self._shared is None else self._shared.client
        return Secrets() if client is None else core_of(client).wire.secrets

    def reject_options(self, names: Sequence[str], why: str) -> None:
        """Raise `CommandError` if one of these options was passed."""
        usual = type(self.settings)()
        for name in names:
            if getattr(self.settings, name) != getattr(usual, name):
                raise CommandError(f"--{name.replace('_', '-')} {why}")

    def _check_options(self) -> None:
        """Reject options that do not apply to this kind of target, rather than ignore them."""
        settings, remote = self.settings, is_url(self.named)
        if (settings.header or settings.bearer is not None) and (self.command or not remote):
            hint = "the file that names a server sets its headers"
            if self.command:
                hint = "a command gets its credentials from its environment: -e NAME=value"
            raise CommandError("--header and --bearer need a URL", hint=hint)
        if not self.command:
            self.reject_options(("env", "cwd"), "needs a command after --")
        if settings.config is not None and (self.command or remote):
            raise CommandError("--config needs the name of a server in that file")

    def _wrapped_target(self) -> tuple[Target, dict[str, Any]]:
        """Return the target: under `record` in a `Recording`, under `replay` a `Replay`."""
        if isinstance(self.outer, ReplayFrom):
            self.reject_options(_SERVER_OPTIONS, "needs a server, but a recording has none")
            from syncmcp.testing import Replay

            return Replay(self.outer.path), {}
        target, options = self.target
        if isinstance(self.outer, RecordTo):
            from syncmcp.testing import Recording

            return Recording(target, self.outer.path), options
        return target, options

    def request_options(self) -> CallOptions:
        """Show that the command waits; return the options of a request: time limits, progress."""
        self.wait("waiting for the server")
        options: CallOptions = {}
        if self.settings.timeout is not None:
            options["timeout"] = self.settings.timeout
        if self.settings.idle_timeout is not None:
            options["idle_timeout"] = self.settings.idle_timeout
        if self.person is not None:
            options["on_progress"] = self.person.bar.report
        return options

    def confirm_call(self, tool: Any, arguments: dict[str, Any]) -> None:
        """Ask whether a tool may be called, unless its annotations claim that it is read-only."""
        claims = tool.annotations
        if self.settings.yes or (claims is not None and claims.read_only_hint is True):
            return
        if self.person is None:
            raise CommandError(
                f"the tool {tool.name!r} is not marked as read-only: the command cannot ask"
                f" {without_person()}",
                hint="--yes calls it without asking",
            )
        self.person.before_call(tool.name, arguments, claims, self.client.server)

    def _print_log(self, params: LoggingMessageNotificationParams) -> None:
        said = params.data if isinstance(params.data, str) else as_json(params.data)
        where = f" {params.logger}" if params.logger else ""
        self.print_line(f"[{params.level}{where}] {said}")

    def print_line(self, words: str) -> None:
        """Print a line of the server, which must not appear within a question to the person."""
        if self.person is None:
            print_line(words)
        else:
            self.person.bar.line(words)


# The parsers of commands that speak to a server, and the decorator that gives them a session.


P = ParamSpec("P")

_AFTER_DASHES = "--"

# The key of whether the help is short, as with -h in other programs.
_BRIEF = "syncmcp.brief"


class ServerCommand(TyperCommand):
    """A command whose first argument is a server; a server command may follow ``--`` instead.

    Attributes:
        unused: The names of the shared options that do not apply, which its help leaves out.
    """

    unused: tuple[str, ...] = ()

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert a placeholder for TARGET if the server is given in another way."""
        ctx.meta[_AFTER_DASHES] = []
        ctx.meta[_BRIEF] = "--help" not in takewhile(_AFTER_DASHES.__ne__, args)
        # The first argument of these three may be the URL of a resource.
        named = self.name not in ("read", "complete", "listen") and any(map(is_url, args[:1]))
        if knows_server(ctx.obj):
            if _AFTER_DASHES in args:
                raise CommandError("the server is known here: leave out -- and its command")
            if named:
                raise CommandError(f"the server is known here: leave out {args[0]!r}")
            args = ["TARGET", *args]
        elif _AFTER_DASHES in args:
            dashes = args.index(_AFTER_DASHES)
            if dashes + 1 == len(args) and not ctx.resilient_parsing:
                raise CommandError("the command after -- is missing")
            ctx.meta[_AFTER_DASHES] = args[dashes + 1 :]
            if named:
                hint = "pass a URL or a command, not both"
                raise CommandError("the server appears twice", hint=hint)
            args = ["COMMAND", *args[:dashes]]
        elif any(map(is_url, args[1:])) and "://" in args[0] and not is_url(args[0]):
            raise CommandError(f"{args[0]!r} is not a server", hint="TARGET comes first")
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """List the options of every server command in their own section, with -h only by name."""
        brief, names = ctx.meta[_BRIEF], []
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for one in self.get_params(ctx):
            if one.name in self.unused:
                continue
            common = any(one.name == field.name for field in fields(Settings))
            title = "Options of every server command" if common else "Options"
            if one.param_type_name == "argument":
                title = "Arguments"
            if common and brief:
                names.append(max(one.opts, key=len))
            elif (record := one.get_help_record(ctx)) is not None:
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if not records:
                continue
            with formatter.section(title):
                formatter.write_dl(records)
        if names:
            with formatter.section("Options of every server command, which --help describes"):
                shown = " ".join(names)
                formatter.write(
                    textwrap.fill(
                        shown,
                        formatter.width,
                        initial_indent="  ",
                        subsequent_indent="  ",
                        break_on_hyphens=False,
                    )
                    + "\n"
                )

    def get_help(self, ctx: Any) -> str:
        """If the server is known, leave out TARGET, the example with it, and rejected options."""
        if not knows_server(ctx.obj):
            return super().get_help(ctx)
        in_shell = isinstance(ctx.obj, SharedClient)
        hidden = ("target", *(CONNECTION_OPTIONS if in_shell else _SERVER_OPTIONS))
        shown = copy(self)
        shown.params = [one for one in self.params if one.name not in hidden]
        shown.help = (self.help or "").partition("\n\n\b\nFor example:")[0]
        return as_typed(super(ServerCommand, shown).get_help(ctx), ctx.obj)


class CallCommand(ServerCommand):
    """`call`, whose ``--help`` describes the tool if one is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help of the command itself if no tool is named."""
        if ctx.resilient_parsing:  # a Tab completion
            return super().parse_args(ctx, args)
        own = [*takewhile(_AFTER_DASHES.__ne__, args)]  # parsing consumes `args`
        wanted = "--help" in own or "-h" in own
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


def with_session(
    command: Callable[Concatenate[Session, P], None],
) -> Callable[..., None]:
    """Add TARGET and the common options to a command, and call it with a `Session` made of them."""
    own = [*inspect.signature(command, eval_str=True).parameters.values()][1:]
    common = [*inspect.signature(Settings, eval_str=True).parameters.values()]
    call: Callable[..., None] = command
    context = _keyword_parameter("context", typer.Context)
    target = _keyword_parameter(
        "target",
        Annotated[
            str,
            typer.Argument(
                metavar="TARGET",
                help=_TARGET_HELP,
                show_default=False,
                autocompletion=complete_servers,
            ),
        ],
    )

    @functools.wraps(command)
    def run(**given: Any) -> None:
        place: typer.Context = given.pop("context")
        named: str = given.pop("target")
        settings = Settings(**{one.name: given.pop(one.name) for one in common})
        outer: OuterCommand | None = place.obj
        session = Session(settings, named, place.meta[_AFTER_DASHES], outer)
        place.find_root().call_on_close(session.close)  # after the error was printed
        before = session.cancelled
        try:
            call(session, **given)
        except McpError as error:
            session.hide_secrets(error)
            session.misused = exit_code(error) == Exit.USAGE
            taken = _own_word(place)
            if taken and isinstance(error, ConnectFailed):
                hint = describe(error)["hint"]
                advise(error, f"{taken} went to the server: is it meant before --? {hint}")
            if session.cancelled > before and isinstance(error, (ServerError, ToolError)):
                raise FormCancelled(f"you cancelled; {error.message}") from error
            raise
        finally:
            session.wait_no_more()
        if session.cancelled > before:
            raise typer.Exit(Exit.CANCELLED)

    parameters = [context, target, *own, *common]
    run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    )
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _own_word(place: typer.Context) -> str | None:
    """Return the first word after ``--`` that looks like an option or argument of this command."""
    own = {name for one in place.command.params for name in one.opts if name.startswith("--")}
    if "what" in place.params:
        own |= {"tools", "resources", "templates", "prompts"}
    command = place.meta[_AFTER_DASHES]
    if any("=" in word for word in command[:1]):
        return str(command[0])
    words = (word.partition("=")[0] for word in command)
    return next((word for word in words if word in own), None)


_TARGET_HELP = "A URL, or a name (see servers); omit it if a command follows --."


def _keyword_parameter(name: str, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
