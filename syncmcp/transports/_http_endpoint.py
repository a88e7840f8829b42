"""The server's one URL: what every HTTP request to it has in common."""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, Any

import urllib3.exceptions

from syncmcp._base.http_headers import check_headers
from syncmcp._http.identity import identity
from syncmcp._http.session import HttpSession, body_of, finish
from syncmcp.errors import HttpError, UsageError
from syncmcp.transports import _http_reply as reply

if TYPE_CHECKING:
    from collections.abc import Mapping

    import requests
    from requests.structures import CaseInsensitiveDict

    from syncmcp._http.exchange import Exchange
    from syncmcp._http.identity import Identity
    from syncmcp.config import Http
    from syncmcp.transports._events import EventStream

__all__ = ["EVENTS", "JSON", "Endpoint"]

_log = logging.getLogger("syncmcp.http")

JSON = "application/json"
EVENTS = "text/event-stream"
_SESSION_ID = "Mcp-Session-Id"

# The user's headers never replace these: they belong to the protocol or to the framing.
_RESERVED = frozenset(
    (
        "accept", "accept-encoding", "connection", "content-encoding", "content-length",
        "content-type", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade",
    )
)  # fmt: skip

_MAX_REDIRECTS = 5

# An error body longer than this, in bytes, is no JSON-RPC error worth reading.
_ERROR_BODY = 1024 * 1024


class Endpoint:
    """Sends HTTP requests with the headers of the protocol, the session and the user."""

    def __init__(self, config: Http, connections: int) -> None:
        """Prepare it; nothing is sent.

        Raises:
            ValueError: The URL or a setting cannot be used.
        """
        self._config = config
        self._http = HttpSession(config, connections)
        self.adopted: dict[str, str] = {}
        """The headers that everything after the handshake has."""
        self.session_id: str | None = None
        """The session that the server opened, if it did."""

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def given(self) -> Mapping[str, str]:
        """The headers that the user wants now; a function is asked.

        Raises:
            UsageError: The function failed, or headers cannot be sent.
        """
        given = self._config.headers
        if callable(given):
            try:
                given = given()
            except Exception as error:
                raise UsageError(f"the headers function failed: {type(error).__name__}") from error
            check_headers(given, "what the headers function returned")
        return given or {}

    def identity(self, given: Mapping[str, str], response: requests.Response) -> Identity:
        """As whom the request was sent that `response` answers.

        Args:
            given: What `given` returned for it.
            response: Perhaps not to the first attempt: `auth` may have sent it again.
        """
        if self._config.auth is None:
            return identity(given)
        return identity(given, response.request.headers.get("Authorization"))

    def headers(
        self,
        extra: Mapping[str, Any],
        given: Mapping[str, str] | None = None,
        *,
        adopted: bool = True,
    ) -> CaseInsensitiveDict[Any]:
        """The headers of one request.

        Args:
            extra: What this request has beside the others.
            given: What the user wants, if that is known already.
            adopted: Whether the handshake is over.

        Raises:
            UsageError: The user's function failed, or headers cannot be sent.
        """
        headers = self._http.headers.copy()
        if given is None:
            given = self.given()
        for name, value in given.items():
            key = name.lower()
            if key not in _RESERVED and not key.startswith("mcp-"):
                headers[name] = value
        check_headers(extra, "headers")
        for name, value in extra.items():
            if name.lower() not in _RESERVED:
                headers[name] = value
        if adopted:
            headers.update(self.adopted)
        if self.session_id is not None:
            headers[_SESSION_ID] = self.session_id
        headers["Accept-Encoding"] = "gzip"
        return headers

    def fetch(
        self,
        exchange: Exchange,
        method: str,
        headers: CaseInsensitiveDict[Any],
        body: bytes | None = None,
        *,
        url: str | None = None,
    ) -> requests.Response:
        """Send a request, also to where the server redirects it, up to the response's headers.

        Args:
            exchange: What runs on this thread.
            method: The HTTP method.
            headers: What `headers` returned, and more.
            body: The request's body.
            url: Another address at the same origin.

        Raises:
            HttpError: It is redirected elsewhere, or again and again.
            Exception: Whatever befalls a connection; see `explain`.
        """
        url = url or self._http.url
        for _ in range(_MAX_REDIRECTS + 1):
            response = self._http.send(exchange, method, url, headers, body)
            try:
                target = reply.redirect(response, method, url)
            except BaseException:
                finish(exchange, response)
                raise
            if target is None:
                return response
            finish(exchange, response)
            url = target
        raise HttpError(f"the server redirected more than {_MAX_REDIRECTS} times")

    @property
    def url(self) -> str:
        """The address that requests go to."""
        return self._http.url

    def open_events(
        self, exchange: Exchange, events: EventStream
    ) -> tuple[requests.Response, CaseInsensitiveDict[Any]]:
        """Ask for an event stream, from where `events` broke off; also returns what was sent."""
        headers = self.headers({})
        headers["Accept"] = EVENTS
        if events.last_id is not None:
            headers["Last-Event-ID"] = events.last_id.encode()
        return self.fetch(exchange, "GET", headers), headers

    def error_body(self, exchange: Exchange, response: requests.Response) -> bytes:
        """What can be had of the body of a response that is an error."""
        body = b""
        try:
            for piece in body_of(exchange, response):
                body += piece
                if len(body) > _ERROR_BODY:
                    break
        except (urllib3.exceptions.HTTPError, OSError, EOFError, zlib.error, HttpError) as error:
            # The status says what happened; the body only adds to it.
            _log.debug("the body of an error response broke off: %s", type(error).__name__)
        return body
