"""What happens after a 401 or 403: get another token and repeat the request, within limits.

A server that refuses every token must not open a browser for each request: `LoginLimiter` and
`StepUpLimiter` count the sign-ins.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency import timing
from syncmcp._http.exchange import current
from syncmcp._http.session import finish
from syncmcp.auth import steps
from syncmcp.auth.discovery import missing_scopes
from syncmcp.auth.flow import TokenNeed
from syncmcp.errors import AuthError, LoginRequired, TokenRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from syncmcp.auth.signing import Binder
    from syncmcp.auth.token_manager import TokenManager
    from syncmcp.auth.tokens import Login

__all__ = ["LoginLimiter", "StepUpLimiter", "UnauthorizedHook", "scope_insufficient"]


# Logins that one request may lead to, the first one and step-ups together.
_MOST_LOGINS = 3

# Tokens obtained by other processes that one request tries; each may have expired in the meantime.
_MOST_FOUND = 3

# Step-ups that one operation may lead to; with the first login that makes three ("no more than a
# few times").
_MOST_STEP_UPS = 2

# Logins in a row after which the server accepted no request.
_MOST_IN_VAIN = 3

# Logins in all: a server may accept a request now and then.
_MOST_SIGN_INS = 20

# The window of the two limits above, in seconds.
_WITHIN = 3600.0

# The error of a request whose DPoP proof is not accepted, for another reason than its nonce.
_BAD_PROOF = "invalid_dpop_proof"

_DRAIN_BYTES = 64 * 1024


class LoginLimiter:
    """Limits how often a person is asked to sign in. Used from any thread."""

    def __init__(self) -> None:
        # Guards the times of the logins, by `time.monotonic()`.
        self._lock = threading.RLock()
        self._all: list[float] = []
        self._in_vain: list[float] = []

    def check(self) -> None:
        """Check whether a person may be asked now.

        Raises:
            LoginRequired: A limit is reached.
        """
        since = timing.monotonic() - _WITHIN
        with self._lock:
            self._all = [when for when in self._all if when > since]
            self._in_vain = [when for when in self._in_vain if when > since]
            if len(self._in_vain) >= _MOST_IN_VAIN:
                raise _limit_reached(f"the last {len(self._in_vain)} sign-ins led to nothing")
            if len(self._all) >= _MOST_SIGN_INS:
                raise _limit_reached(f"the server wanted {len(self._all)} sign-ins")

    def record_login(self) -> None:
        """A person is asked to sign in now."""
        now = timing.monotonic()
        with self._lock:
            self._all.append(now)
            self._in_vain.append(now)

    def record_success(self) -> None:
        """The server accepted a request with a token."""
        if self._in_vain:
            with self._lock:
                self._in_vain = []

    def reset(self) -> None:
        """Forget all recorded logins."""
        with self._lock:
            self._all, self._in_vain = [], []


def _limit_reached(why: str) -> LoginRequired:
    return LoginRequired(
        f"somebody has to sign in, but {why} within {_WITHIN / 60:.0f} minutes: nobody is asked"
        " again for now, unless by login()"
    )


class StepUpLimiter:
    """Limits logins for more scope (step-ups), and repeats none that was denied.

    Used from any thread.
    (basic/authorization/index#step-up-authorization-flow; security best practices, scope
    minimization)
    """

    def __init__(self) -> None:
        # Guards the fields below.
        self._lock = threading.RLock()
        self._attempts: dict[str, int] = {}
        self._denied: frozenset[str] = frozenset()

    def record_attempt(self, need: TokenNeed, operation: str) -> None:
        """Count a step-up for `operation`.

        Raises:
            AuthError: The limit is reached, the scope was denied, or the token has it already.
        """
        scope = need.challenge.scope
        if scope is not None and not missing_scopes(scope, need.earlier_scope):
            raise scope_insufficient(
                f"the server wants the scope {scope[:200]!r}, which was asked for already:"
                " asking again would not help"
            )
        with self._lock:
            if scope is not None and self._denied.intersection(scope.split()):
                raise scope_insufficient(
                    f"the scope {scope[:200]!r} was denied before: login() asks again"
                )
            attempts = self._attempts.get(operation, 0)
            if attempts >= _MOST_STEP_UPS:
                raise scope_insufficient(
                    f"the server wants more scope after {attempts + 1} sign-ins: no further one"
                )
            self._attempts[operation] = attempts + 1

    def record_denial(self, need: TokenNeed) -> None:
        """The person or the authorization server denied the scope."""
        with self._lock:
            self._denied |= missing_scopes(need.challenge.scope, need.earlier_scope)

    def record_success(self, operation: str) -> None:
        """The server accepted the operation."""
        with self._lock:
            self._attempts.pop(operation, None)

    def reset(self) -> None:
        """Forget all attempts and denials."""
        with self._lock:
            self._attempts.clear()
            self._denied = frozenset()


def scope_insufficient(message: str) -> AuthError:
    """The error of a request whose token does not get the scope that the server demands."""
    return AuthError(message, status=403, error="insufficient_scope")


class UnauthorizedHook:
    """The `requests` response hook of one request.

    Args:
        tokens: Refreshes and obtains tokens.
        sign: Puts the token of a login into a request.
        binder: Knows the nonces for DPoP proofs; `None`: tokens are not bound to a key.
        logins: Told when the server accepts a token.
        step_ups: Limits the logins for more scope.
        used: The login whose token the request has, if it has one.
    """

    def __init__(
        self,
        tokens: TokenManager,
        sign: Callable[[requests.PreparedRequest, Login], None],
        binder: Binder | None,
        logins: LoginLimiter,
        step_ups: StepUpLimiter,
        used: Login | None,
    ) -> None:
        self._tokens = tokens
        self._sign = sign
        self._binder = binder
        self._logins = logins
        self._step_ups = step_ups
        self._used = used
        self._refreshed = False
        self._found_tokens = 0
        self._logged_in = False
        self._login_count = 0
        self._nonce_retried = False
        self._operation: str | None = None

    def __call__(self, response: requests.Response, *_: Any, **options: Any) -> requests.Response:
        """Repeat the request with other tokens as long as that may help; return the last response.

        Raises:
            AuthError: No usable token can be obtained.
            TransportError: A server could not be reached.
            RequestTimeout: It took too long.
            ExchangeAborted: The exchange on this thread was aborted.
        """
        try:
            while (login := self._login_for_retry(response)) is not None:
                self._used = login
                response = self._send_again(response, login, options)
        except BaseException:
            _release_connection(response)
            raise
        if self._used is not None and response.status_code < 400:
            self._logins.record_success()
            if self._operation is not None:
                self._step_ups.record_success(self._operation)
        return response

    def _login_for_retry(self, response: requests.Response) -> Login | None:
        """The login to repeat the request with; `None` if that would not help."""
        request = response.request
        needs_nonce = self._binder is not None and self._binder.needs_nonce(response)
        # After a redirect to another origin, that server must not get a token.
        if response.status_code not in (401, 403) or not self._tokens.is_for(request.url or ""):
            return None
        if (exchange := current()) is not None and exchange.lingers:
            return None  # the call has ended
        if request.body is not None and not isinstance(request.body, (bytes, str)):
            return None  # the body was a stream, and cannot be read a second time
        self._tokens.driver.guard.meet(response)
        header = response.headers.get("WWW-Authenticate")
        challenge = steps.auth_challenge(header)
        if needs_nonce or (challenge is not None and challenge.error == _BAD_PROOF):
            # The token is valid: another one would not help (RFC 9449 §7.1, §9).
            return self._after_nonce() if needs_nonce else None
        if response.status_code == 401:
            # Some servers send no header. A header with other schemes only asks for those.
            return None if challenge is None and header else self._after_401(request, challenge)
        if challenge is not None and challenge.error == "insufficient_scope":
            return self._after_403(request, challenge)
        return None

    def _after_nonce(self) -> Login | None:
        """The same login, whose next proof will have the nonce; once."""
        if self._nonce_retried:
            return None
        self._nonce_retried = self._used is not None
        return self._used

    def _after_401(
        self, request: requests.PreparedRequest, challenge: steps.AuthChallenge | None
    ) -> Login | None:
        """One refresh, then one login (RFC 6750 §3.1: invalid_token)."""
        if self._used is not None and not self._refreshed and not self._logged_in:
            cached = self._tokens.refresh(self._used)
            if cached is not None:
                self._found_tokens += not cached.own
                self._refreshed = cached.own or self._found_tokens >= _MOST_FOUND
                return cached.login
        # DELETE ends a session: not worth asking a person to sign in.
        if self._logged_in or self._login_count >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._logged_in = True
        self._login_count += 1
        return self._tokens.sign_in(TokenNeed(challenge or steps.AuthChallenge(), self._used))

    def _after_403(
        self, request: requests.PreparedRequest, challenge: steps.AuthChallenge
    ) -> Login | None:
        """A step-up: a login for the missing scope as well.

        (basic/authorization/index#step-up-authorization-flow)
        """
        if self._used is None or self._login_count >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._login_count += 1
        self._operation = self._operation or _operation(request)
        need = TokenNeed(challenge, self._used, more_scope=True)
        other = self._tokens.cache.other_than(need.refused)
        if other is not None and not missing_scopes(challenge.scope, other.login.token.scope):
            return other.login
        self._step_ups.record_attempt(need, self._operation)
        try:
            return self._tokens.sign_in(need)
        except TokenRefused:
            self._step_ups.record_denial(need)
            raise

    def _send_again(
        self, response: requests.Response, login: Login, options: dict[str, Any]
    ) -> requests.Response:
        request = response.request
        exchange = current()
        _release_connection(response)
        if exchange is not None:
            left = exchange.deadline.remaining()
            if left is not None and left <= 0:
                raise TimeoutError("there was no time left")
            _, read_timeout = options["timeout"]
            options = {**options, "timeout": (left, read_timeout and left)}
        self._sign(request, login)
        again: requests.Response = response.connection.send(request, **options)
        again.history.append(response)
        return again


def _release_connection(response: requests.Response) -> None:
    """Return the connection of a response to its pool, or close it."""
    exchange = current()
    if exchange is not None:
        finish(exchange, response)
        return
    try:
        response.raw.read(_DRAIN_BYTES, decode_content=False)
    finally:
        response.close()


def _operation(request: requests.PreparedRequest) -> str:
    """What a request does, the same text for each request that does the same."""
    names = ("Mcp-Method", "Mcp-Name")
    words = [request.method or "", *(str(request.headers.get(name, "")) for name in names)]
    if not any(words[1:]) and request.body:
        try:
            message: Any = json.loads(request.body)
            params = message.get("params") or {}
            words += [str(message.get("method")), str(params.get("name") or params.get("uri"))]
        except (ValueError, AttributeError):
            pass  # no JSON-RPC message: the URL alone identifies the operation
    return " ".join([*words, request.url or ""])
