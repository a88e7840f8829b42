"""The sign-ins that the command keeps, and as which client somebody has signed in."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syncmcp.auth import FileStore, OAuth
from syncmcp.cli.places import home
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp.auth import Token
    from syncmcp.auth.receiver import Receiver

__all__ = ["begin", "kept"]

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
        if earlier._client == _of(url, client)._client:
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
    return f"command {OAuth(url, receiver=None)._bound().url}"
