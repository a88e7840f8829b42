"""What the command remembers, and where: roots, sign-ins."""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from syncmcp.auth import FileStore, OAuth
from syncmcp.cli.output import CommandError
from syncmcp.errors import McpError
from syncmcp.handlers.roots import Roots
from syncmcp.handlers.roots import _copy as restored
from syncmcp.servers_file.review import default_path
from syncmcp.types import Root

if TYPE_CHECKING:
    from syncmcp.auth import Token
    from syncmcp.auth.receiver import Receiver

__all__ = ["begin", "home", "keep", "kept", "remembered"]


# Where the command keeps what it remembers: sign-ins, approvals, roots, the shell's history.


def home() -> Path:
    """The directory; it need not exist yet. The variable ``SYNCMCP_HOME`` names another one."""
    given = os.environ.get("SYNCMCP_HOME")
    return Path(given).expanduser() if given else default_path().parent


def remembered() -> Roots:
    """Them, whether or not they are still on the disk.

    Raises:
        CommandError: What is kept cannot be read.
    """
    path = _file()
    try:
        kept = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        kept = []
    except (OSError, ValueError) as error:
        raise CommandError(f"the roots in {str(path)!r} cannot be read: {error}") from error
    if not isinstance(kept, list) or not all(isinstance(uri, str) for uri in kept):
        raise CommandError(f"{str(path)!r} holds no list of roots")
    return restored([Root(uri=uri) for uri in kept], None)


def keep(roots: Roots) -> None:
    """Replace what is kept, as a whole, so that a crash leaves the old roots or the new ones.

    Raises:
        CommandError: It cannot be written.
    """
    path = _file()
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.write_text(json.dumps([status.root.uri for status in roots.list()], indent=1), "utf-8")
        os.replace(new, path)
    except OSError as error:
        raise CommandError(f"the roots cannot be kept in {str(path)!r}: {error}") from error


def _file() -> Path:
    return home() / "roots.json"


# The sign-ins that the command keeps, and as which client somebody has signed in.


# What says which client it is. Its secret is with the sign-in, for renewals.
_CLIENT = ("client_id", "client_metadata_url", "issuer")


def kept(url: str) -> OAuth:
    """The sign-in at a server, if there is one; nobody is sent to make another.

    Raises:
        AuthError: What is kept cannot be read.
    """
    return _of(url, _chosen(_store().load(_key(url)) or {}))


def begin(url: str, receiver: Receiver, note: Callable[[str], object], **options: Any) -> Token:
    """Send a person to sign in at a server; from now on that is `kept`, and no earlier sign-in.

    Args:
        url: The server.
        receiver: What sends the person there.
        note: Told what did not go well besides.
        options: What `OAuth` takes.

    Raises:
        UsageError: An argument is not what it should be.
        AuthError: There is no token to be had, or it cannot be kept.
        TransportError: A server could not be reached.
    """
    store, key = _store(), _key(url)
    token = OAuth(url, receiver=receiver, store=store, **options).login()
    client, before = _chosen(options), _chosen(store.load(key) or {})
    if client != before:
        store.save(key, client or None)
        earlier = _of(url, before)
        if earlier._client_label == _of(url, client)._client_label:
            return token  # filed in the same place: it has taken that of the earlier one
        try:
            earlier.logout()  # else nobody could reach it any more
        except McpError as error:
            note(f"the earlier sign-in is forgotten, but was not revoked: {error}")
    return token


def _of(url: str, client: dict[str, str]) -> OAuth:
    return OAuth(
        url,
        receiver=None,
        store=_store(),
        client_id=client.get("client_id"),
        client_metadata_url=client.get("client_metadata_url"),
        issuer=client.get("issuer"),
    )


def _chosen(said: dict[str, Any]) -> dict[str, str]:
    return {name: said[name] for name in _CLIENT if isinstance(said.get(name), str)}


def _store() -> FileStore:
    return FileStore(home() / "tokens.json")


def _key(url: str) -> str:
    return f"command {OAuth(url, receiver=None)._bound_manager().url}"
