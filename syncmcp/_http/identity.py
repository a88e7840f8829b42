"""As whom a request is sent: what an answer that is private may depend on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from syncmcp.config import Http


class Identity(NamedTuple):
    """The credentials of a request. Secret: never shown, only compared and made digests of."""

    headers: tuple[tuple[str, str], ...] = ()
    """The headers that the program gave, by a mapping or a function."""

    authorization: str | None = None
    """What the program's `auth` made of the request."""

    def __repr__(self) -> str:
        return "<Identity>"


def identity(headers: Mapping[str, str] | None, authorization: str | None = None) -> Identity:
    """The identity of a request that is sent with these."""
    pairs = ((name.lower(), value) for name, value in (headers or {}).items())
    return Identity(tuple(sorted(pairs)), authorization)


def tells_identity(target: object) -> bool:
    """Whether it can be told, before a request to `target` is sent, as whom that will be.

    Of `auth`, the library's own and user names with passwords tell. Another one may do anything to
    a request, and so may a `session`.
    """
    if not isinstance(target, Http):
        return True
    auth = target.auth
    known = auth is None or isinstance(auth, tuple) or hasattr(auth, "_authorization")
    return known and target.session is None


def next_identity(target: object) -> Identity | None:
    """As whom the next request to `target`, which tells, would be sent; `None` if nobody knows yet.

    Raises:
        Exception: What the program's own functions raise, which are asked.
    """
    if not isinstance(target, Http):
        return Identity()  # there are no credentials but those that the server was started with
    authorization = None
    auth: Any = target.auth
    if auth is not None:
        authorization = _basic(*auth) if isinstance(auth, tuple) else auth._authorization()
        if authorization is None:
            return None
    given = target.headers
    return identity(given() if callable(given) else given, authorization)


def _basic(user: str, password: str) -> str:
    from requests import PreparedRequest
    from requests.auth import HTTPBasicAuth

    request = PreparedRequest()
    request.prepare_headers({})
    HTTPBasicAuth(user, password)(request)
    return str(request.headers["Authorization"])
