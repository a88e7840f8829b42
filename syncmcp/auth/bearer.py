"""A token that the program has from somewhere else (RFC 6750)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from requests.auth import AuthBase

from syncmcp._http.exchange import authorization_of
from syncmcp.errors import AuthError, McpError, UsageError

if TYPE_CHECKING:
    import requests

__all__ = ["Bearer", "Source", "SourceLike"]


# Where a secret comes from that others hand out: a text, a file that they renew, a function.


SourceLike: TypeAlias = str | Path | Callable[[], str]
"""A secret, the file that has it, or what returns it."""


class Source:
    """A secret that is looked up anew each time. Used from any thread.

    Args:
        given: The secret, the file that has it, or what returns it.
        name: What to call it in messages.

    Raises:
        UsageError: It is none of these, or empty.
    """

    def __init__(self, given: SourceLike, name: str) -> None:
        if not isinstance(given, (str, Path)) and not callable(given):
            raise UsageError(f"{name} is a str, a Path or a callable, not {type(given).__name__}")
        self._given = given
        self._name = name
        if isinstance(given, str):
            try:
                self._checked(given)
            except AuthError as error:
                raise UsageError(error.message) from None

    def read(self) -> str:
        """Return it as it is now.

        Raises:
            AuthError: It cannot be had, or is no text that goes into a request.
        """
        given = self._given
        if isinstance(given, str):
            return self._checked(given)
        try:
            text = given.read_text("ascii") if isinstance(given, Path) else given()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise AuthError(f"{self._name} cannot be read: {reason}") from error
        except McpError:
            raise
        except UnicodeDecodeError:
            text = ""
        except Exception as error:
            raise AuthError(f"{self._name} cannot be had: {type(error).__name__}") from error
        return self._checked(text)

    def _checked(self, text: object) -> str:
        word = text.strip() if isinstance(text, str) else ""
        if not word or not all("!" <= one <= "~" for one in word):
            raise AuthError(f"{self._name} is not one word of visible ASCII")
        return word

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not pickled: hand it over where it is needed")


class Bearer(AuthBase):
    """Puts a token into each request.

    ::

        syncmcp.Http("https://example.com/mcp", auth=Bearer(os.environ["EXAMPLE_TOKEN"]))

    Args:
        token: The token; the path of a file that has it; or what returns it, on the thread that
            makes the request. The last two are asked for each request, so they may change it.

    Raises:
        UsageError: It can be no token.
    """

    def __init__(self, token: SourceLike) -> None:
        self._token = Source(token, "the token")

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into a request.

        Raises:
            AuthError: It cannot be had.
        """
        request.headers["Authorization"] = f"Bearer {self._token.read()}"
        return request

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


@authorization_of.register
def _(auth: Bearer) -> str | None:
    if type(auth).__call__ is not Bearer.__call__:  # a subclass makes the header in its own way
        return None
    return f"Bearer {auth._token.read()}"
