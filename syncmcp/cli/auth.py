"""`auth login`, `logout` and `status`: signing in to servers over HTTP."""

from __future__ import annotations

import os
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncmcp.cli.options import ServerCommand, show_help, speaks_to_server
from syncmcp.cli.output import CommandError, Exit
from syncmcp.cli.session import Session
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
    client_id: Annotated[
        str | None,
        typer.Option(
            "--client-id", metavar="ID", help="The client that you registered there by hand."
        ),
    ] = None,
    client_secret_env: Annotated[
        str | None,
        typer.Option(
            "--client-secret-env",
            metavar="NAME",
            help="The variable of the environment that has its secret; needs --issuer.",
        ),
    ] = None,
    client_metadata_url: Annotated[
        str | None,
        typer.Option(
            "--client-metadata-url", metavar="URL", help="The document that describes the client."
        ),
    ] = None,
    redirect_uri: Annotated[
        str | None,
        typer.Option(
            "--redirect-uri",
            metavar="URI",
            help="Where the browser is to come back to: http://localhost:PORT/PATH.",
        ),
    ] = None,
    issuer: Annotated[
        str | None,
        typer.Option(
            "--issuer", metavar="URL", help="The only authorization server that is acceptable."
        ),
    ] = None,
) -> None:
    """Sign in; later commands use, and renew, what this gets."""
    from syncmcp.auth import LoopbackReceiver
    from syncmcp.cli.state import begin

    url = _url(session)
    receiver: Receiver
    if redirect_uri is None:
        receiver = LoopbackReceiver(open_browser=browser, show=session.out.note)
    else:
        receiver = LoopbackReceiver.at(redirect_uri, open_browser=browser, show=session.out.note)
    if client_secret_env is not None and (client_id is None or issuer is None):
        raise CommandError("--client-secret-env goes with --client-id and --issuer")
    token = begin(
        url,
        receiver,
        session.out.note,
        scopes=scope,
        client_id=client_id,
        client_secret=None if client_secret_env is None else _variable(client_secret_env),
        client_metadata_url=client_metadata_url,
        issuer=issuer,
    )
    if session.out.json:
        session.out.result({"url": url, "scope": token.scope, "expires_at": token.expires_at})
    else:
        session.out.text(f"signed in to {url}" + (f" for {token.scope}" if token.scope else ""))


@speaks_to_server
def logout(session: Session) -> None:
    """Forget the token of a server, and revoke it where that can be done."""
    from syncmcp.cli.state import kept

    url = _url(session)
    kept(url).logout()
    if session.out.json:
        session.out.result({"url": url})
    else:
        session.out.text(f"signed out of {url}")


@speaks_to_server
def status(session: Session) -> None:
    """Say whether there is a token of a server; the exit code is 3 if there is none."""
    from syncmcp.cli.state import kept

    url = _url(session)
    token = kept(url).token
    if session.out.json:
        facts: dict[str, Any] = {"url": url, "signed_in": token is not None}
        if token is not None:
            facts.update(
                scope=token.scope,
                expires_at=token.expires_at,
                issuer=token.issuer,
                client_id=token.client_id,
            )
        session.out.result(facts)
    elif token is None:
        session.out.text(f"not signed in to {url}")
    else:
        rows = [("server", url), ("authorization server", token.issuer)]
        if token.client_id:
            rows.append(("client", token.client_id))
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


def _variable(name: str) -> str:
    secret = os.environ.get(name)
    if not secret:
        raise CommandError(
            "there is no variable of the name that --client-secret-env gives",
            hint="it takes the name of a variable, not the secret itself",
        )
    return secret


def _url(session: Session) -> str:
    target, _ = session.target
    if not isinstance(target, Http):
        raise CommandError(
            "signing in is for servers over HTTP",
            hint="a command gets its credentials from its environment: --env",
        )
    return target.url
