"""The stored sign-ins of the command, each with the OAuth client that it was made for.

A module of its own: only commands for HTTP servers load it, because it loads an HTTP client.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any

from syncmcp.auth import FileStore, OAuth, Token
from syncmcp.auth.receiver import Receiver
from syncmcp.auth.token_auth import client_label_of, filed_under, publishes_sign_in
from syncmcp.cli.state import state_directory
from syncmcp.config import Http
from syncmcp.errors import McpError

# The options that identify the OAuth client. Its secret is stored with the token, for refreshes.
_CLIENT_OPTIONS = ("client_id", "client_metadata_url", "issuer")


def stored_login(server: Http) -> OAuth:
    """Return the authentication of a server with its stored token, if any, but no sign-in."""
    return _login_of(server, _client_options(_token_store().load(_login_key(server)) or {}))


def says_where_to_sign_in(server: Http, issuer: str | None = None) -> bool:
    """Return whether the server, or the `issuer`, publishes where to sign in.

    Raises:
        AuthError: The published metadata is unusable.
        TransportError: The server or the issuer could not be reached.
    """
    return publishes_sign_in(
        stored_login(server) if issuer is None else _login_of(server, {"issuer": issuer})
    )


def log_in(
    server: Http, receiver: Receiver, note: Callable[[str], object], **options: Any
) -> Token:
    """Have a person sign in at a server; the new token replaces that of an earlier sign-in.

    `options` are further arguments of `OAuth`. `note` is called with a warning if the earlier token
    could not be revoked.
    """
    store, key = _token_store(), _login_key(server)
    token = _authentication(server, receiver=receiver, store=store, **options).login()
    client, before = _client_options(options), _client_options(store.load(key) or {})
    if client != before:
        store.save(key, client or None)
        earlier = _login_of(server, before)
        if client_label_of(earlier) == client_label_of(_login_of(server, client)):
            return token  # the same key in the store: the earlier token is overwritten
        try:
            earlier.logout()  # nothing refers to the earlier token any more, so it is revoked
        except McpError as error:
            note(f"the earlier sign-in was deleted, but its token was not revoked: {error}")
    return token


def _login_of(server: Http, client: dict[str, Any]) -> OAuth:
    return _authentication(server, receiver=None, store=_token_store(), **client)


def _authentication(server: Http, **options: Any) -> OAuth:
    auth = OAuth(server.url, **options)
    # A copy, to avoid a cycle: the server's secrets may include those of its authentication.
    auth.secrets.include(copy(server.secrets))
    return auth


def _client_options(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in _CLIENT_OPTIONS if isinstance(given.get(name), str)}


def _token_store() -> FileStore:
    return FileStore(state_directory() / "tokens.json")


def _login_key(server: Http) -> str:
    return f"command {filed_under(OAuth(server.url, receiver=None))}"
