"""`auth`, `servers` and `roots`: manage the sign-ins, approvals and roots on this computer."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from syncmcp._base.text import redact
from syncmcp.cli.output import CommandError, CommandGroup, Exit, Output, advise, describe, show_help
from syncmcp.cli.parsing import complete_roots, complete_servers, is_url
from syncmcp.cli.person import person_at_terminal, without_person
from syncmcp.cli.session import ServerCommand, Session, with_session
from syncmcp.cli.state import find_server, load_roots, read_server_files, save_roots
from syncmcp.config import Http
from syncmcp.errors import (
    AuthError,
    DiscoveryFailed,
    LoginRequired,
    McpError,
    RegistrationFailed,
    TransportError,
)
from syncmcp.handlers.roots import Roots
from syncmcp.servers_file import NotApproved, ServerEntry, ServerReview, ServersFileError
from syncmcp.types import Root
from syncmcp.ui import visible

# `auth login`, `logout` and `status`: signing in to servers over HTTP.


auth_app = typer.Typer(
    cls=CommandGroup,
    help="Sign in to HTTP servers, and sign out.",
    invoke_without_command=True,
    callback=show_help,
    rich_markup_mode=None,
)


class _AuthCommand(ServerCommand):
    """A command of `auth`: it starts no program and makes no calls."""

    unused = ("yes", "env", "cwd", "model", "idle_timeout")


@with_session
def login(
    session: Session,
    scope: Annotated[
        list[str] | None,
        typer.Option(metavar="SCOPE", help="Request this scope (repeatable)."),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open a browser, or only show the address.")] = True,
    client_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The id of your registered client."),
    ] = None,
    client_secret_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The variable with the client's secret; needs --client-id and --issuer.",
        ),
    ] = None,
    client_metadata_url: Annotated[
        str | None,
        typer.Option(metavar="URL", help="The document that describes the client."),
    ] = None,
    redirect_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The address that the browser returns to: http://localhost:PORT/PATH.",
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Accept only this authorization server."),
    ] = None,
) -> None:
    """Sign in; later commands use and refresh the token.

    For example: syncmcp auth login https://example.com/mcp
    """
    from syncmcp.auth import LoopbackReceiver
    from syncmcp.cli.logins import log_in

    server = _http_server(session)
    make = LoopbackReceiver if redirect_uri is None else partial(LoopbackReceiver.at, redirect_uri)
    receiver = make(open_browser=browser, show=session.out.note)
    if client_secret_env is not None and (client_id is None or issuer is None):
        raise CommandError("--client-secret-env needs --client-id and --issuer")
    secret = None if client_secret_env is None else _secret_from(client_secret_env)
    if _wants_no_sign_in(session, server, issuer):
        raise CommandError(
            f"{server.label} does not require a sign-in", hint="use the server without a sign-in"
        )
    try:
        token = log_in(
            server,
            receiver,
            session.out.note,
            scopes=scope,
            client_id=client_id,
            client_secret=secret,
            client_metadata_url=client_metadata_url,
            issuer=issuer,
        )
    except AuthError as error:
        advise(error, _login_hint(error, asked=session.person is not None))
        raise
    session.out.show(
        {"url": server.label, "scope": token.scope, "expires_at": token.expires_at},
        f"signed in to {server.label}" + (f" for {visible(token.scope)}" if token.scope else ""),
    )


@with_session
def logout(session: Session) -> None:
    """Forget the token of a server, and revoke it if possible.

    For example: syncmcp auth logout https://example.com/mcp
    """
    from syncmcp.cli.logins import stored_login

    server = _http_server(session)
    login = stored_login(server)
    signed_in = login.token is not None
    try:
        login.logout()
    except TransportError as error:  # the token was deleted here anyway
        session.out.note(f"could not revoke the token: {error}")
    told = "signed out of" if signed_in else "not signed in to"
    session.out.show({"url": server.label}, f"{told} {server.label}")


@with_session
def status(session: Session) -> None:
    """Show whether a token is stored for a server.

    The exit code is 3 if not.

    For example: syncmcp auth status https://example.com/mcp
    """
    from syncmcp.cli.logins import stored_login

    server = _http_server(session)
    token = stored_login(server).token
    if session.out.json:
        facts: dict[str, Any] = {"url": server.label, "signed_in": token is not None}
        if token is not None:
            facts.update(
                scope=token.scope,
                expires_at=token.expires_at,
                issuer=token.issuer,
                client_id=token.client_id,
            )
        session.out.result(facts)
    elif token is None:
        session.out.text(f"not signed in to {server.label}")
    else:
        rows = [("server", server.label), ("authorization server", token.issuer)]
        if token.client_id:
            rows.append(("client", token.client_id))
        if token.scope:
            rows.append(("scope", token.scope))
        if token.expires_at is not None:
            rows.append(("expires", _moment(token.expires_at)))
        rows.append(("refreshed automatically", "yes" if token.refresh_token else "no"))
        session.out.table(("Signed in", ""), rows)
    if token is None:
        raise typer.Exit(Exit.AUTH)


auth_app.command("login", cls=_AuthCommand)(login)
auth_app.command("logout", cls=_AuthCommand)(logout)
auth_app.command("status", cls=_AuthCommand)(status)


def _wants_no_sign_in(session: Session, server: Http, issuer: str | None) -> bool:
    """Return whether the server publishes no place to sign in, and opens without a sign-in.

    Raises:
        McpError: The server publishes no place to sign in, and opening failed, but not for lack of
            a sign-in: there may be no MCP server.
    """
    from syncmcp.cli.logins import says_where_to_sign_in

    try:
        if says_where_to_sign_in(server, issuer):
            return False
    except McpError:
        return False  # the sign-in says what is wrong
    try:
        return session.opens_without_sign_in(server)
    except AuthError:
        return False  # the server's challenge may say where to sign in


def _login_hint(error: AuthError, *, asked: bool) -> str | None:
    """Return a hint for a failed sign-in; `asked`: a person could be asked to agree to it."""
    from syncmcp.auth.registration import BAD_REDIRECT

    if isinstance(error, LoginRequired) and error.hint is not None and not asked:
        return "--issuer URL accepts that authorization server, if you trust it"
    if isinstance(error, DiscoveryFailed) and error.hint is not None:
        return "--bearer sends a token that you get elsewhere"
    if isinstance(error, RegistrationFailed) and error.hint is not None:
        other = "--redirect-uri names another address; " if error.error == BAD_REDIRECT else ""
        return f"{other}--client-id ID uses a client that you registered there yourself"
    return None


def _moment(seconds: float) -> str:
    """Return a time as local time; `seconds` since the epoch come from an authorization server."""
    try:
        return datetime.fromtimestamp(seconds).astimezone().isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):  # out of range for Python or the system
        return f"{seconds:g} seconds after 1970"


def _secret_from(name: str) -> str:
    secret = os.environ.get(name)
    if not secret:
        raise CommandError(
            "the variable that --client-secret-env names is not set",
            hint="the option takes the name of a variable, not the secret itself",
        )
    return secret


def _http_server(session: Session) -> Http:
    """Return the server; show only its `label`, because its URL may contain secrets."""
    session.reject_options(_AuthCommand.unused, "does not apply to a sign-in")
    is_http = not session.command
    if is_http and not is_url(session.named):  # known before a person is asked to approve it
        is_http = find_server(session.named, session.settings.config).review().url is not None
    target = session.target[0] if is_http else None
    if not isinstance(target, Http):
        raise CommandError(
            "only HTTP servers support signing in",
            hint="a command gets its credentials from its environment: --env",
        )
    return target


# `servers`: the servers that files of editors name, and which of them are approved.


class _ListByDefault(CommandGroup):
    """A group of commands that runs `list` if no command is given."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert ``list`` before options that do not belong to the group."""
        lists = not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names)
        if lists and not ctx.resilient_parsing:
            args = ["list", *args]
        return super().parse_args(ctx, args)


servers_app = typer.Typer(
    cls=_ListByDefault,
    help="Manage the servers in files of Claude Desktop, VS Code and Cursor.\n\n"
    "Without a subcommand, it lists them.",
    rich_markup_mode=None,
)

_Config = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Look only in this file."),
]
_Json = Annotated[bool, typer.Option("--json", help="Print the servers as JSON.")]
_StateJson = Annotated[bool, typer.Option("--json", help="Print the server's state as JSON.")]
_Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The name of the server.", autocompletion=complete_servers),
]


@servers_app.command("list")
def show_servers(config: _Config = None, json: _Json = False) -> None:
    """List the servers that files name.

    The files are those of Claude Desktop, VS Code and Cursor, or the one of --config. Nothing is
    started or contacted.

    For example: syncmcp servers list --config mcp.json
    """
    out = Output(json=json)
    found: list[dict[str, Any]] = []
    files: list[str] = []
    for path, read in read_server_files(config):
        files.append(str(path))
        if not isinstance(read, McpError):
            found.extend(_server_facts(one) for one in read.values())
        elif config is not None:
            raise read
        else:
            found.append({"name": None, "file": str(path), "state": describe(read)["message"]})
    if json:
        out.result({"servers": found})
        return
    for file in dict.fromkeys(one["file"] for one in found):
        rows: list[tuple[str, ...]] = [
            (one["name"] or "(none)", one["state"], one.get("target", ""))
            for one in found
            if one["file"] == file
        ]
        out.heading(file)
        if not out.terminal:
            rows = [(*row, file) for row in rows]  # in place of the heading
        out.table(("Name", "State", "Command or URL"), rows)
    if not found and files:
        out.note(f"there are no servers in {', '.join(files)}")
    elif not found:
        out.note("found no editor configuration file; --config FILE names one")


@servers_app.command()
def approve(
    name: _Name,
    config: _Config = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Approve it without asking.")] = False,
    json: _StateJson = False,
) -> None:
    """Approve a server of a file, as the file defines it.

    Nothing is started or contacted. If the entry changes, approve it again.

    For example: syncmcp servers approve weather
    """
    found = find_server(name, config, otherwise="")
    out = Output(json=json)
    if (problem := found.problem) is not None:
        raise problem
    if not found.approved:
        review = found.review()
        _confirm(found, review, out, yes=yes)
        found.approve(review)
    _print_state(found, out)


@servers_app.command()
def forget(name: _Name, config: _Config = None, json: _StateJson = False) -> None:
    """Discard the approval of a server: its next use asks again.

    For example: syncmcp servers forget weather
    """
    found = find_server(name, config, otherwise="")
    found.forget()
    _print_state(found, Output(json=json))


def _confirm(found: ServerEntry, review: ServerReview, out: Output, *, yes: bool) -> None:
    """Ask a person to approve a server of a file; raises `NotApproved` if they decline."""
    if yes:
        out.note(str(review))
        return
    person = person_at_terminal()
    if person is None:
        raise CommandError(
            f"cannot ask about {found.name!r} {without_person()}",
            hint="--yes approves it without asking",
        )
    if not person.approve(review):
        raise NotApproved(
            "this server was not approved",
            server=found.name,
            kind="server",
            by="person",
            review=review,
        )


def _print_state(found: ServerEntry, out: Output) -> None:
    facts = _server_facts(found)
    out.show(facts, f"{found.name}: {facts['state']}")


def _server_facts(entry: ServerEntry) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": entry.name, "file": str(entry.file)}
    try:
        if (invalid := entry.problem) is not None:
            raise invalid
        review = entry.review()
    except ServersFileError as problem:  # of this entry; the other entries are listed
        return {**facts, "state": f"invalid: {problem.message}"}
    # As in the file: placeholders are not expanded.
    facts["target"] = redact(shlex.join(review.command) if review.command else review.url or "")
    if entry.disabled:
        facts["state"] = "disabled"
    else:
        facts["state"] = "ready" if entry.approved else "to be approved"
    return facts


# `roots list`, `add` and `remove`: the directories that servers may know.


roots_app = typer.Typer(
    cls=_ListByDefault,
    help="Manage the directories and files that you let servers work in.\n\n"
    "Without a subcommand, it lists them.",
    rich_markup_mode=None,
)

_AsRoots = Annotated[
    bool, typer.Option("--json", help="Print the roots as JSON, as in the protocol.")
]
_PATH = "A directory or a file, also as a file: URI."
_Path = Annotated[str, typer.Argument(metavar="PATH", help=_PATH)]
_Known = Annotated[str, typer.Argument(metavar="PATH", help=_PATH, autocompletion=complete_roots)]


@roots_app.command("list")
def show_roots(json: _AsRoots = False) -> None:
    """List the roots.

    Servers see only roots that exist.

    For example: syncmcp roots list
    """
    out = Output(json=json)
    statuses = load_roots().list()
    if json:
        out.result({"roots": [status.root.to_wire() for status in statuses]})
    else:
        out.table(("Root", "State"), [(str(each.path), each.status) for each in statuses])
        if not statuses:
            out.note("there are no roots; `syncmcp roots add DIRECTORY` adds one")


@roots_app.command()
def add(path: _Path, json: _AsRoots = False) -> None:
    """Add a root.

    For example: syncmcp roots add ~/notes
    """
    _change_roots(lambda roots: roots.add(path), json=json)


@roots_app.command()
def remove(path: _Known, json: _AsRoots = False) -> None:
    """Remove a root, even if its directory is gone.

    For example: syncmcp roots remove ~/notes
    """
    _change_roots(lambda roots: roots.remove(path), json=json)


def _change_roots(change: Callable[[Roots], Root], *, json: bool) -> None:
    roots = load_roots()
    root = change(roots)
    save_roots(roots)
    Output(json=json).show(root.to_wire(), root.uri)
