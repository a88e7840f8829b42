"""What ties tokens to a key of the client: a seam for proofs of possession (RFC 9449)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import requests

    from syncmcp.auth.login import Login
    from syncmcp.auth.steps import Fetch, Fetched

__all__ = ["Binder"]


class Binder(Protocol):
    """Adds proofs to token requests and to requests with a token. Used from any thread."""

    def bind_token_request(self, request: Fetch) -> Fetch:
        """Return the request to a token endpoint with a fresh proof."""
        ...

    def token_nonce(self, request: Fetch, answer: Fetched) -> bool:
        """Look at each answer; return whether the request needs a new proof for its nonce."""
        ...

    def bind_request(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token and a fresh proof into the headers of a request to the MCP server."""
        ...

    def nonce(self, response: requests.Response) -> bool:
        """Look at each response; return whether the request needs a new proof for its nonce."""
        ...
