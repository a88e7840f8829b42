"""A token that the program already has, as `requests` authentication (RFC 6750)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import requests
from requests.auth import AuthBase

from syncmcp._base.checks import check_callable, kind_of
from syncmcp._base.text import WORD
from syncmcp.errors import AuthError, McpError, UsageError

SourceLike: TypeAlias = str | Path | Callable[[], str]
"""A secret, the path of a file that contains it, or a function that returns it."""


class SecretSource:
    """A secret that another system issues and may replace; the secret is read for each use.

    The methods may be called from any thread.

    `name` is the name of the secret in messages.

    Raises `UsageError` if `given` is of another type, or a text that is not one word of visible
    ASCII.
    """

    def __init__(self, given: SourceLike, name: str) -> None:
        if not isinstance(given, (str, Path)) and not callable(given):
            raise UsageError(
                f"{name} must be a str, a Path or a callable, not {type(given).__name__}"
            )
        if callable(given):
            check_callable(given, name, ())
        self._given = given
        self._name = name
        if isinstance(given, str):
            try:
                self._checked(given)
            except AuthError as error:
                raise UsageError(error.message) from None

    @property
    def is_fixed(self) -> bool:
        """Whether the program passed the secret itself, which never changes."""
        return isinstance(self._given, str)

    def read(self) -> str:
        """Return the current secret; `AuthError` if it cannot be read, or is not one ASCII word."""
        given = self._given
        if isinstance(given, str):
            return self._checked(given)
        try:
            text = given.read_text("ascii") if isinstance(given, Path) else given()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            file = f" in {str(given)!r}" if isinstance(given, Path) else ""
            text = f"cannot read {self._name}{file}: {reason}"
            raise AuthError(text, delivery="not_sent") from error
        except McpError:
            raise
        except UnicodeDecodeError:
            text = ""
        except Exception as error:
            text = f"cannot get {self._name}: {type(error).__name__}"
            raise AuthError(text, delivery="not_sent") from error
        return self._checked(text)

    def _checked(self, text: object) -> str:
        word = text.strip() if isinstance(text, str) else ""
        if not WORD.fullmatch(word):
            other = "" if isinstance(text, str) else f", not {kind_of(text)}"
            wrong = f"{self._name} must be one word of visible ASCII characters{other}"
            raise AuthError(wrong, delivery="not_sent")
        return word

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret cannot be pickled: pass it again in the other process")


class Bearer(AuthBase):
    """Puts a token that the program already has into each request.

    >>> import os
    >>> from syncmcp.auth import Bearer
    >>> token = Bearer(lambda: os.environ["EXAMPLE_TOKEN"])  # read for each request
    >>> syncmcp.Http("https://example.com/mcp", auth=token)
    Http('https://example.com/mcp', auth=***)

    Args:
        token: The token, the path of a file that contains it, or a function that returns it. The
            file is read, or the function called, for each request, so the token may change. The
            function runs on the thread that makes the request.

    Raises:
        UsageError: `token` is of another type, or a text that is not one word of visible ASCII.
    """

    def __init__(self, token: SourceLike) -> None:
        self._token = SecretSource(token, "the token")

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into a request.

        Raises:
            AuthError: The token cannot be read, or is not one word of visible ASCII.
        """
        request.headers["Authorization"] = f"Bearer {self._token.read()}"
        return request

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


def has_fixed_token(auth: object) -> bool:
    """Return whether `auth` is a `Bearer` that puts the same token into every request."""
    # A subclass may put in something else.
    return type(auth) is Bearer and auth._token.is_fixed
