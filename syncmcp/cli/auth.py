"""`auth login`, `logout` and `status`: signing in to servers over HTTP."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp.cli.failures import CommandError, Exit
from syncmcp.cli.options import ServerCommand, show_help, speaks_to_server
from syncmcp.cli.session import Session
from syncmcp.cli.target import login_store
from syncmcp.config import Http

if TYPE_CHECKING:
    from syncmcp.auth.receiver import Receiver

__all__ = ["app"]

app = typer.Typer(
    help="Sign in to servers over HTTP, and out again.",
    invoke_without_command=True,
    callback=show_help,
    rich_markup_mode=None,
)


@speaks_to_server
def login(
    session: Session,
    scope: Annotated[
        list[str] | None, typer.Option("--scope", help="Ask for this; may be given several times.")
    ] = None,
    browser: Annotated[
        bool, typer.Option(help="Open a browser, or show the address to go to.")
    ] = True,
) -> None:
    """Sign in; later commands use, and renew, what this gets."""
    from syncmcp.auth import LoopbackReceiver, OAuth

    url = _url(session)
    receiver: Receiver = LoopbackReceiver(open_browser=browser, show=session.out.note)
    token = OAuth(url, receiver=receiver, scopes=scope, store=login_store()).login()
    if session.out.json:
        session.out.result({"url": url, "scope": token.scope, "expires_at": token.expires_at})
    else:
        session.out.text(f"signed in to {url}" + (f" for {token.scope}" if token.scope else ""))


@speaks_to_server
def logout(session: Session) -> None:
    """Forget the token of a server, and revoke it where that can be done."""
    from syncmcp.auth import OAuth

    url = _url(session)
    OAuth(url, receiver=None, store=login_store()).logout()
    if session.out.json:
        session.out.result({"url": url})
    else:
        session.out.text(f"signed out of {url}")


@speaks_to_server
def status(session: Session) -> None:
    """Say whether there is a token of a server; the exit code is 3 if there is none."""
    from syncmcp.auth import OAuth

    url = _url(session)
    token = OAuth(url, receiver=None, store=login_store()).token
    if session.out.json:
        facts: dict[str, Any] = {"url": url, "signed_in": token is not None}
        if token is not None:
            facts.update(scope=token.scope, expires_at=token.expires_at, issuer=token.issuer)
        session.out.result(facts)
    elif token is None:
        session.out.text(f"not signed in to {url}")
    else:
        rows = [("server", url), ("authorization server", token.issuer)]
        if token.scope:
            rows.append(("scope", token.scope))
        if token.expires_at is not None:
            expires = datetime.fromtimestamp(token.expires_at).astimezone()
            rows.append(("expires", expires.isoformat(" ", "seconds")))
        rows.append(("renewed by itself", "yes" if token.refresh_token else "no"))
        session.out.table(("Signed in", ""), rows)
    if token is None:
        raise typer.Exit(Exit.AUTH)


app.command("login", cls=ServerCommand)(login)
app.command("logout", cls=ServerCommand)(logout)
app.command("status", cls=ServerCommand)(status)


def _url(session: Session) -> str:
    target, _ = session.target
    if not isinstance(target, Http):
        raise CommandError(
            "signing in is for servers over HTTP",
            hint="a command gets its credentials from its environment: --env",
        )
    return target.url
