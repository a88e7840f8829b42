"""A token that the program has from somewhere else (RFC 6750)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from requests.auth import AuthBase

from syncmcp.auth.source import Source, SourceLike

if TYPE_CHECKING:
    import requests

__all__ = ["Bearer"]


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

    def _authorization(self) -> str | None:
        """The header of the next request; `None` where a subclass makes it in its own way."""
        if type(self).__call__ is not Bearer.__call__:
            return None
        return f"Bearer {self._token.read()}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"
