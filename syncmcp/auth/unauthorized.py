"""What is done about a 401 or 403: another token, and the request once more."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from syncmcp._http.exchange import current
from syncmcp._http.session import finish
from syncmcp.auth import steps
from syncmcp.auth.flow import TokenNeed

if TYPE_CHECKING:
    import requests

    from syncmcp._http.url_guard import UrlGuard
    from syncmcp.auth.token_auth import TokenAuth
    from syncmcp.auth.tokens import Login

__all__ = ["UnauthorizedHook"]

# Logins that one request may lead to, the first one and those for more scope together.
_MOST_LOGINS = 3

# Tokens of other processes that one request may try; each may be outdated by now.
_MOST_FOUND = 3

# The error of a request whose proof is not accepted, for another reason than its nonce.
_BAD_PROOF = "invalid_dpop_proof"

_DRAIN_BYTES = 64 * 1024


class UnauthorizedHook:
    """The response hook of one request.

    Args:
        auth: Where tokens come from.
        guard: Learns where the server is.
        used: The login whose token the request has, if it has one.
    """

    def __init__(self, auth: TokenAuth, guard: UrlGuard, used: Login | None) -> None:
        self._auth = auth
        self._guard = guard
        self._used = used
        self._refreshed = False
        self._found = 0
        self._logged_in = False
        self._logins = 0
        self._bound_again = False
        self._operation: str | None = None

    def __call__(self, response: requests.Response, *_: Any, **options: Any) -> requests.Response:
        """Answer refusals as long as that makes sense; return what came in the end.

        Raises:
            AuthError: There is no token that would do.
            TransportError: A server could not be reached.
            RequestTimeout: It took too long.
            Cut: The exchange on this thread was cut.
        """
        try:
            while (login := self._remedy(response)) is not None:
                self._used = login
                response = self._send_again(response, login, options)
        except BaseException:
            _let_go(response)
            raise
        if self._used is not None and response.status_code < 400:
            self._auth._let_in(self._operation)
        return response

    def _remedy(self, response: requests.Response) -> Login | None:
        """The login to send the request again with; `None` if that would not help."""
        request = response.request
        wants_nonce = self._auth.binder is not None and self._auth.binder.nonce(response)
        # After a redirect elsewhere the token is none of that server's business.
        if response.status_code not in (401, 403) or not self._auth._is_for(request.url or ""):
            return None
        if (exchange := current()) is not None and exchange.lingers:
            return None  # whoever wanted an answer has gone
        if request.body is not None and not isinstance(request.body, (bytes, str)):
            return None  # it was read while it was sent
        self._guard.record_peer(response)
        header = response.headers.get("WWW-Authenticate")
        demand = steps.demand(header)
        if wants_nonce or (demand is not None and demand.error == _BAD_PROOF):
            # Nothing is wrong with the token: no other one would help (RFC 9449 §7.1, §9).
            return self._with_nonce() if wants_nonce else None
        if response.status_code == 401:
            # Some servers forget the header; one that names other schemes alone means them.
            return None if demand is None and header else self._after_401(request, demand)
        if demand is not None and demand.error == "insufficient_scope":
            return self._after_403(request, demand)
        return None

    def _with_nonce(self) -> Login | None:
        """The same login, whose proof will have the nonce that is wanted; once."""
        if self._bound_again:
            return None
        self._bound_again = self._used is not None
        return self._used

    def _after_401(
        self, request: requests.PreparedRequest, demand: steps.AuthChallenge | None
    ) -> Login | None:
        """One refresh, one login, and no more (RFC 6750 §3.1: invalid_token)."""
        if self._used is not None and not self._refreshed and not self._logged_in:
            held = self._auth._renewed(self._used)
            if held is not None:
                self._found += not held.own
                self._refreshed = held.own or self._found >= _MOST_FOUND
                return held.login
        # Nobody is asked to sign in for the sake of a session's end.
        if self._logged_in or self._logins >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._logged_in = True
        self._logins += 1
        return self._auth._obtained(TokenNeed(demand or steps.AuthChallenge(), self._used))

    def _after_403(
        self, request: requests.PreparedRequest, demand: steps.AuthChallenge
    ) -> Login | None:
        """Sign in for the scope that is missing, too.

        (basic/authorization/index#step-up-authorization-flow)
        """
        if self._used is None or self._logins >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._logins += 1
        self._operation = self._operation or _operation(request)
        return self._auth._stepped_up(TokenNeed(demand, self._used, more=True), self._operation)

    def _send_again(
        self, response: requests.Response, login: Login, options: dict[str, Any]
    ) -> requests.Response:
        request = response.request
        exchange = current()
        _let_go(response)
        if exchange is not None:
            left = exchange.deadline.remaining()
            if left is not None and left <= 0:
                raise TimeoutError("there was no time left")
            _, patience = options["timeout"]
            options = {**options, "timeout": (left, patience and left)}
        self._auth._sign(request, login)
        again: requests.Response = response.connection.send(request, **options)
        again.history.append(response)
        return again


def _let_go(response: requests.Response) -> None:
    """Give the connection of a response back, or close it."""
    exchange = current()
    if exchange is not None:
        finish(exchange, response)
        return
    try:
        response.raw.read(_DRAIN_BYTES, decode_content=False)
    finally:
        response.close()


def _operation(request: requests.PreparedRequest) -> str:
    """What a request is for, alike when it is made again."""
    names = ("Mcp-Method", "Mcp-Name")
    words = [request.method or "", *(str(request.headers.get(name, "")) for name in names)]
    if not any(words[1:]) and request.body:
        try:
            message: Any = json.loads(request.body)
            params = message.get("params") or {}
            words += [str(message.get("method")), str(params.get("name") or params.get("uri"))]
        except (ValueError, AttributeError):
            pass  # no message of the protocol: the address says enough
    return " ".join([*words, request.url or ""])
