"""The tokens of one MCP server: one thread obtains and refreshes them for all, within limits.

A server that refuses every token must not cause a sign-in for each request: a `SignInLimiter`
counts the sign-ins.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from syncmcp._base.origin import origin_of
from syncmcp._base.text import logger, whole
from syncmcp._concurrency import timing
from syncmcp._concurrency.single_flight import SharedAttempt, SingleFlight
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import current
from syncmcp._http.url_guard import UnsafeUrl
from syncmcp.auth import flow
from syncmcp.auth.discovery import missing_scopes
from syncmcp.auth.flow import ClientAssertion, TokenNeed
from syncmcp.auth.tokens import Login, Registration
from syncmcp.errors import AuthError, ConnectFailed, LoginRequired, RequestTimeout, TokenRefused

if TYPE_CHECKING:
    from syncmcp.auth.fetch import Driver
    from syncmcp.auth.store import TokenStore

    Obtain: TypeAlias = Callable[[TokenNeed, SharedAttempt["CachedLogin"]], Login]

_log = logger("syncmcp.auth")

# A token is refreshed this many seconds before it expires, or a tenth of its lifetime before if
# that is less.
_EARLY = 30.0

# The clock of the process that stored a token may differ by this many seconds. Within them only the
# server's 401 decides whether the token has expired.
_SKEW = 300.0

# After an early refresh failed, the next one is tried this many seconds later.
_PAUSE = 10.0

# How long to wait for the lock of a login, in seconds: its holder may be waiting for a person.
_TURN_SECONDS = 300.0

# Step-ups that one operation may lead to; with the first login that makes three ("no more than a
# few times").
_MOST_STEP_UPS = 2

# The most logins in a row without an accepted request after them.
_MOST_IN_VAIN = 3

# The most logins in total: each accepted request resets the limit above.
_MOST_SIGN_INS = 20

# The window of the two limits above, in seconds.
_WITHIN = 3600.0

_DOWNGRADED = (
    "the authorization server issued a token that is not bound to the key of this client: the"
    " server does not support DPoP, or somebody prevented its use; dpop=False accepts such"
    " tokens"
)
_NOT_ASKED_FOR = (
    "the authorization server issued a token that is bound to a key (DPoP), but the client sent no"
    " proof of it: dpop=True sends one"
)


@dataclass(frozen=True)
class CachedLogin:
    """A login in use.

    Attributes:
        login: The login.
        due: When to refresh its token, by `time.monotonic()`; `None` to wait until the server
            refuses the token.
        own: Whether this process obtained the token; `False` if it was read from the store.
    """

    login: Login
    due: float | None
    own: bool

    @property
    def fresh(self) -> bool:
        """Whether its token need not be refreshed yet."""
        return self.due is None or timing.monotonic() < self.due


class TokenCache:
    """The current login of one client at one MCP server. Methods may be called from any thread.

    The login is kept in memory, and under `key` in the store that other processes may share. Every
    method that uses the store raises `AuthError` if the store fails, or if the entry is not a valid
    login.

    Args:
        store: The store of the login.
        key: The login's key in the store.
        accepts: Returns whether a login at an issuer may be used. It is called for each login that
            is read from the store, on the thread that reads it. A refused login counts as absent.
        bound: Whether tokens must be bound to a key of the client (RFC 9449). If so, bearer tokens
            are refused, and otherwise DPoP tokens.
    """

    def __init__(
        self, store: TokenStore, key: str, accepts: Callable[[str], bool], *, bound: bool = False
    ) -> None:
        self._store = store
        self._key = key
        self._accepts = accepts
        self._bound = bound
        # Guards the current login; never held while the store is used.
        self._lock = threading.RLock()
        self._current: CachedLogin | None = None
        # Only the holder of the login's lock changes it.
        self._unsaved: Login | None = None

    def lock(self) -> AbstractContextManager[None]:
        """Lock the login against changes by other threads and processes.

        Raises:
            RequestTimeout: Another thread or process held the lock for too long.
            AuthError: The store fails.
            ExchangeAborted: The exchange on this thread was aborted.
        """
        return self._store.lock(self._key, Deadline(_TURN_SECONDS))

    def current(self) -> CachedLogin | None:
        """Return the login in memory, or else the stored one."""
        with self._lock:
            cached = self._current
        if cached is None and (cached := self.stored()) is not None:
            with self._lock:
                # Another thread may have cached a newer one in the meantime.
                cached = self._current = self._current or cached
        return cached

    def stored(self) -> CachedLogin | None:
        """Return the login in the store, whichever process stored it."""
        value = self._store.load(self._key)
        if value is None:
            return None
        login = Login.from_json(value)
        if not (self._has_right_type(login) and self._accepts(login.server.issuer)):
            return None
        expires = login.token.expires_at
        due = None if expires is None else timing.monotonic() + expires - time.time() + _SKEW
        return CachedLogin(login, due, own=False)

    def other_than(self, used: Login | None) -> CachedLogin | None:
        """Return the login in memory, unless it has the same token as `used`."""
        with self._lock:
            cached = self._current
        return None if cached is None or cached.login.same_token(used) else cached

    def load_other_than(self, used: Login | None) -> CachedLogin | None:
        """Make the login in the store the current one, unless it has the same token as `used`."""
        cached = self.stored()
        if cached is None or cached.login.same_token(used):
            return None
        self._set_current(cached)
        return cached

    def save(self, login: Login) -> CachedLogin:
        """Make a new login the current one, and store it.

        If the store fails, the login is used anyway, and `save_again` stores it later: the
        authorization server no longer accepts the earlier tokens.

        Raises:
            AuthError: The token is a bearer token where a DPoP token is required, or the other way
                round; or the store fails.
        """
        if not self._has_right_type(login):
            raise AuthError(_DOWNGRADED if self._bound else _NOT_ASKED_FOR)
        expires = login.token.expires_at
        left = None if expires is None else expires - time.time()
        due = None if left is None else timing.monotonic() + left - min(_EARLY, left / 10)
        cached = CachedLogin(login, due, own=True)
        self._set_current(cached)
        self._unsaved = login
        self.save_again()
        return cached

    def save_again(self) -> None:
        """Store the login that `save` could not store, if any; `AuthError` if the store fails.

        Call this with the login locked, before the store is read: the stored login is older.
        """
        if self._unsaved is not None:
            self._store.save(self._key, self._unsaved.to_json())
            self._unsaved = None

    def postpone_refresh(self, cached: CachedLogin) -> None:
        """Wait before the next early refresh: this one failed, and the token still works."""
        later = CachedLogin(cached.login, timing.monotonic() + _PAUSE, cached.own)
        with self._lock:
            if self._current is cached:  # else another thread has a newer one, or has logged out
                self._current = later

    def discard_refresh_token(self, login: Login) -> CachedLogin | None:
        """Remove a used refresh token; if the store has a newer login, only return that."""
        newer = self.load_other_than(login)
        if newer is not None:
            return newer
        left = replace(login, token=replace(login.token, refresh_token=None))
        if self.stored() is not None:
            self._store.save(self._key, left.to_json())
        self._set_current(CachedLogin(left, None, own=False))
        return None

    def remove(self) -> Login | None:
        """Remove the login from memory and from the store, and return it."""
        cached = self.stored() if self._unsaved is None else None
        with self._lock:
            cached, self._current = cached or self._current, None
        self._unsaved = None
        self._store.save(self._key, None)
        return None if cached is None else cached.login

    def _has_right_type(self, login: Login) -> bool:
        return login.token.token_type.lower() == ("dpop" if self._bound else "bearer")

    def _set_current(self, cached: CachedLogin) -> None:
        with self._lock:
            self._current = cached


class SignInLimiter:
    """Limits how often a person is asked to sign in. Methods may be called from any thread.

    A sign-in for more scope (a step-up) that was denied is not repeated.
    (basic/authorization/index#step-up-authorization-flow; security best practices, scope
    minimization)
    """

    def __init__(self) -> None:
        # Guards the fields below. Times are by `time.monotonic()`.
        self._lock = threading.RLock()
        self._all: list[float] = []
        self._in_vain: list[float] = []
        self._step_ups: dict[str, int] = {}
        self._denied: frozenset[str] = frozenset()

    def check(self) -> None:
        """Raise `LoginRequired` if a person must not be asked now."""
        since = timing.monotonic() - _WITHIN
        with self._lock:
            self._all = [when for when in self._all if when > since]
            self._in_vain = [when for when in self._in_vain if when > since]
            if len(self._in_vain) >= _MOST_IN_VAIN:
                why = f"the last {len(self._in_vain)} sign-ins failed"
            elif len(self._all) >= _MOST_SIGN_INS:
                why = f"the server asked for {len(self._all)} sign-ins"
            else:
                return
        raise LoginRequired(
            f"a person has to sign in, but {why} within {_WITHIN / 60:.0f} minutes: the limit is"
            " reached; call login() to ask again"
        )

    def record_login(self) -> None:
        """Count a sign-in, for which a person is asked now."""
        now = timing.monotonic()
        with self._lock:
            self._all.append(now)
            self._in_vain.append(now)

    def record_step_up(self, need: TokenNeed, operation: str) -> None:
        """Count a step-up for `operation`.

        Raises:
            AuthError: The limit is reached, or the scope was denied or requested before.
        """
        scope = need.challenge.scope
        if scope is not None and not missing_scopes(scope, need.earlier_scope):
            raise scope_insufficient(
                f"the server asks for the scope {whole(scope, 200)}, which was requested already:"
                " requesting it again would not help"
            )
        with self._lock:
            if scope is not None and self._denied.intersection(scope.split()):
                raise scope_insufficient(
                    f"the scope {whole(scope, 200)} was denied before: call login() to ask again"
                )
            step_ups = self._step_ups.get(operation, 0)
            if step_ups >= _MOST_STEP_UPS:
                raise scope_insufficient(
                    f"the server asks for more scope after {step_ups + 1} sign-ins: the limit"
                    " is reached"
                )
            self._step_ups[operation] = step_ups + 1

    def record_denial(self, need: TokenNeed) -> None:
        """Record that the person or the authorization server denied the scope of a step-up."""
        with self._lock:
            self._denied |= missing_scopes(need.challenge.scope, need.earlier_scope)

    def without_denied(self, scope: str | None) -> str | None:
        """Return the scope to request, without denied words; `None` if nothing remains."""
        with self._lock:
            words = [word for word in (scope or "").split() if word not in self._denied]
        return " ".join(words) or None

    def record_success(self, operation: str | None) -> None:
        """Record that the server accepted a token, perhaps that of a step-up for `operation`."""
        if self._in_vain or operation is not None:
            with self._lock:
                self._in_vain = []
                self._step_ups.pop(operation or "", None)

    def reset(self) -> None:
        """Forget all sign-ins and denied scopes: the user asks for a new login, or logs out."""
        with self._lock:
            self._all, self._in_vain = [], []
            self._step_ups.clear()
            self._denied = frozenset()


def scope_insufficient(message: str) -> AuthError:
    """Return the error of a request whose token cannot get the scope that the server demands."""
    return AuthError(message, status=403, error="insufficient_scope")


def _single_flight() -> SingleFlight[CachedLogin]:
    return SingleFlight(
        current,
        "syncmcp-auth",
        late="no token arrived in time",
        reentered="a receiver or store must not use the authentication object that calls it",
    )


@dataclass(eq=False, repr=False)
class TokenManager:
    """Refreshes and obtains the tokens of one client at one MCP server.

    Methods may be called from any thread. At any time one thread does the work, and the others wait
    for the outcome.

    Every method that returns a login raises `AuthError` if there is no usable token, and
    `TransportError` if the authorization server cannot be reached. It raises `RequestTimeout` if
    the server is too slow, and `ExchangeAborted` if the exchange on this thread was aborted.

    Attributes:
        url: The MCP server, without user and fragment.
        obtain: Signs in. It runs on one thread at a time, with the login locked.
        client_rejected: Called when the authorization server does not know the client any more.
        assertion: Signs for a client that authenticates by a key.
    """

    url: str
    driver: Driver
    cache: TokenCache
    obtain: Obtain
    client_rejected: Callable[[Registration], None]
    assertion: ClientAssertion | None
    limits: SignInLimiter = field(default_factory=SignInLimiter, init=False)
    _flight: SingleFlight[CachedLogin] = field(default_factory=_single_flight, init=False)

    def is_for(self, url: str) -> bool:
        """Return whether the tokens may be sent to `url`."""
        return origin_of(url) == origin_of(self.url)

    def usable(self) -> Login | None:
        """Return the current login; refresh it first if its token is about to expire."""
        cached = self.cache.current()
        if cached is None:
            return None
        if cached.fresh or cached.login.token.refresh_token is None:
            return cached.login  # without a refresh token, the server's 401 ends its use
        try:
            cached = self.refresh(cached.login) or cached
        except (ConnectFailed, TokenRefused) as error:
            if cached.login.token.expired(time.time()):
                raise
            _log.warning("could not refresh a token ahead of time: %s", type(error).__name__)
            self.cache.postpone_refresh(cached)
        return cached.login

    def refresh(self, used: Login) -> CachedLogin | None:
        """Return a login with another token than `used`; `None` if a new sign-in is needed.

        The refresh continues when the call that needs it ends: a lost response loses the login.
        """
        return self._flight.run(
            lambda: self.cache.other_than(used), partial(self._refresh, used), detached=True
        )

    def _refresh(self, used: Login, attempt: SharedAttempt[CachedLogin]) -> CachedLogin | None:
        cache = self.cache
        with cache.lock():
            cache.save_again()
            newer = cache.load_other_than(used)
            if newer is not None:
                return newer
            stored = cache.stored()
            # Another process has logged out, or its failed refresh removed the refresh token.
            if stored is None or stored.login.token.refresh_token is None:
                return None
            login = stored.login
            steps = flow.refresh(
                login.token, login.registration, login.server, time.time(), self.assertion
            )
            try:
                token = self.driver.run(steps)
            except TokenRefused as error:
                if error.status >= 500 or error.status == 429:
                    raise  # the refresh token may still be valid
                _log.info("a refresh token was refused (%s)", error.error)
                if error.error == "invalid_client":
                    self.client_rejected(login.registration)
                return cache.discard_refresh_token(login)
            except (ConnectFailed, UnsafeUrl):
                raise  # nothing was sent
            except (AuthError, RequestTimeout) as error:
                newer = cache.discard_refresh_token(login)
                if newer is not None:
                    return newer
                # It may be used up, and servers may revoke the new token if it is used again.
                raise AuthError(
                    "the response of the token endpoint was lost, and the refresh token may be used"
                    " up: sign in again"
                ) from error
            return cache.save(Login(token, login.registration, login.server))

    def sign_in(self, need: TokenNeed, *, always: bool = False) -> Login:
        """Return the login of a new sign-in, by this thread or another one.

        With `always`, sign in even if another thread or process has obtained a token.
        """
        cache = self.cache

        def ready() -> CachedLogin | None:
            return None if always else cache.other_than(need.refused)

        def work(attempt: SharedAttempt[CachedLogin]) -> CachedLogin:
            with cache.lock():
                cache.save_again()
                newer = None if always else cache.load_other_than(need.refused)
                return newer or cache.save(self.obtain(need, attempt))

        cached = self._flight.run(ready, work, detached=False)
        assert cached is not None
        return cached.login

    def step_up(self, need: TokenNeed, operation: str) -> Login:
        """Return the login of a sign-in for more scope, which `operation` needs."""
        other = self.cache.other_than(need.refused)
        if other is not None and not missing_scopes(need.challenge.scope, other.login.token.scope):
            return other.login
        self.limits.record_step_up(need, operation)
        try:
            return self.sign_in(need)
        except TokenRefused:
            self.limits.record_denial(need)
            raise
