"""Runs the steps of signing in: makes their requests, with proofs where a key is in play."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from syncmcp._http.guard import UrlGuard
from syncmcp.auth.fetch import Fetcher

if TYPE_CHECKING:
    import requests

    from syncmcp.auth.binding import Binder
    from syncmcp.auth.steps import Fetch, Fetched, FetchSteps

__all__ = ["Driver"]

T = TypeVar("T")


class Driver:
    """Runs steps for one MCP server. Used from any thread.

    Args:
        url: The MCP server.
        session: Where proxies and certificates come from.
        allow_private: Whether a public server may name private addresses.
        binder: Adds proofs to token requests.
    """

    def __init__(
        self,
        url: str,
        *,
        session: requests.Session | None = None,
        allow_private: bool = False,
        binder: Binder | None = None,
    ) -> None:
        self.guard = UrlGuard(url, allow_private=allow_private)
        self._fetcher = Fetcher(self.guard, session=session)
        self._binder = binder

    def run(self, steps: FetchSteps[T]) -> T:
        """Run steps to their end, on this thread.

        Raises:
            AuthError: What the steps raise, or a URL must not be used.
            TransportError: A request failed.
            RequestTimeout: A request took too long.
            Cut: The exchange on this thread was cut.
        """
        try:
            request = next(steps)
            while True:
                request = steps.send(self._fetch(request))
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()
            self._fetcher.close()

    def _fetch(self, request: Fetch) -> Fetched:
        if self._binder is None or not request.token:
            return self._fetcher.fetch(request)
        answer = self._fetcher.fetch(self._binder.bind_token_request(request))
        if self._binder.token_nonce(request, answer):
            # It was refused for want of the nonce that came with the answer (RFC 9449 §8).
            if request.renew is not None:
                request = request.renew()
            answer = self._fetcher.fetch(self._binder.bind_token_request(request))
            self._binder.token_nonce(request, answer)
        return answer
