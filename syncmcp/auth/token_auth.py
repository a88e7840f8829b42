"""Tokens for one MCP server, renewed and given back: what all grants share."""

from __future__ import annotations

import logging
import threading
import time
from abc import abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from requests.auth import AuthBase

from syncmcp._base.text import redact
from syncmcp._concurrency import timing
from syncmcp._http.exchange import authorization_of
from syncmcp._http.url_guard import UnsafeUrl
from syncmcp.auth import flow
from syncmcp.auth.discovery import missing, origin_of
from syncmcp.auth.fetch import Driver
from syncmcp.auth.flow import TokenNeed
from syncmcp.auth.steps import AuthChallenge
from syncmcp.auth.store import MemoryStore
from syncmcp.auth.token_cache import CachedLogin, SingleFlight, TokenCache
from syncmcp.auth.tokens import Login
from syncmcp.auth.unauthorized import UnauthorizedHook
from syncmcp.config import check_url
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    LoginRequired,
    RequestTimeout,
    TokenRefused,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    import requests

    from syncmcp.auth.flow import ClientAssertion
    from syncmcp.auth.signing import Binder, SigningKey
    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.token_cache import SharedAttempt
    from syncmcp.auth.tokens import Registration, Token

__all__ = ["LoginLimiter", "Site", "StepUps", "TokenAuth", "pointless"]


# Sign-ins for more scope: counted, and not repeated once somebody said no.
#
# (basic/authorization/index#step-up-authorization-flow; security best practices, scope
# minimization)


# How often one operation may lead to a sign-in for more scope; with the first sign-in that makes
# three ("no more than a few times").
_MOST_STEP_UPS = 2


class StepUps:
    """What was tried, and what was denied. Used from any thread."""

    def __init__(self) -> None:
        # Guards what follows.
        self._lock = threading.RLock()
        self._tried: dict[str, int] = {}
        self._denied: frozenset[str] = frozenset()

    def begin(self, need: TokenNeed, operation: str) -> None:
        """Count a sign-in for what `operation` needs.

        Raises:
            AuthError: There were enough of them, or it was denied, or would change nothing.
        """
        scope = need.demand.scope
        if scope is not None and not missing(scope, need.earlier):
            raise pointless(
                f"the server wants the scope {scope[:200]!r}, which was asked for already:"
                " asking again would not help"
            )
        with self._lock:
            if scope is not None and self._denied.intersection(scope.split()):
                raise pointless(f"the scope {scope[:200]!r} was denied before: login() asks again")
            tried = self._tried.get(operation, 0)
            if tried >= _MOST_STEP_UPS:
                raise pointless(
                    f"the server wants more scope after {tried + 1} sign-ins: no further one"
                )
            self._tried[operation] = tried + 1

    def deny(self, need: TokenNeed) -> None:
        """The person or the authorization server said no."""
        with self._lock:
            self._denied |= missing(need.demand.scope, need.earlier)

    def accept(self, operation: str) -> None:
        """The operation was let through."""
        with self._lock:
            self._tried.pop(operation, None)

    def reset(self) -> None:
        """Everything may be asked for again."""
        with self._lock:
            self._tried.clear()
            self._denied = frozenset()


def pointless(message: str) -> AuthError:
    """What ends a request whose scope stays too small."""
    return AuthError(message, status=403, error="insufficient_scope")


# How often people are asked to sign in, whatever a server demands.


# Sign-ins in a row after which the server let nothing through.
_MOST_IN_VAIN = 3

# Sign-ins in all: a server may let a request through now and then.
_MOST_SIGN_INS = 20

# Either holds within so many seconds; older ones are forgotten.
_WITHIN = 3600.0


class LoginLimiter:
    """Counts how often people were asked, and whether it was good for anything.

    A server that refuses every token would otherwise open a browser for each request. Used from any
    thread.
    """

    def __init__(self) -> None:
        # Guards what follows: when people were asked, by `time.monotonic()`.
        self._lock = threading.RLock()
        self._all: list[float] = []
        self._in_vain: list[float] = []

    def check(self) -> None:
        """Make sure that somebody may be asked now.

        Raises:
            LoginRequired: That was done often enough.
        """
        since = timing.monotonic() - _WITHIN
        with self._lock:
            self._all = [when for when in self._all if when > since]
            self._in_vain = [when for when in self._in_vain if when > since]
            if len(self._in_vain) >= _MOST_IN_VAIN:
                raise _enough(f"the last {len(self._in_vain)} sign-ins led to nothing")
            if len(self._all) >= _MOST_SIGN_INS:
                raise _enough(f"the server wanted {len(self._all)} sign-ins")

    def begin(self) -> None:
        """Somebody is asked now."""
        now = timing.monotonic()
        with self._lock:
            self._all.append(now)
            self._in_vain.append(now)

    def let_in(self) -> None:
        """The server let a request with a token through."""
        if self._in_vain:
            with self._lock:
                self._in_vain = []

    def reset(self) -> None:
        """Everybody may be asked again."""
        with self._lock:
            self._all, self._in_vain = [], []


def _enough(why: str) -> LoginRequired:
    return LoginRequired(
        f"somebody has to sign in, but {why} within {_WITHIN / 60:.0f} minutes: nobody is asked"
        " again for now, unless by login()"
    )


_log = logging.getLogger("syncmcp.auth")


@dataclass(frozen=True)
class Site:
    """The MCP server that tokens are for.

    Attributes:
        url: Its URL, without what may be secret.
        driver: Makes the requests of signing in.
        keeper: Keeps the login.
    """

    url: str
    driver: Driver
    keeper: TokenCache


# What belongs to the process, and not into a pickle.
_OF_PROCESS = frozenset(
    {"_store", "_flights", "_step_ups", "_sign_ins", "_lock", "_site", "binder"}
)


class TokenAuth(AuthBase):
    """Base of the ways to get tokens; one object is for one MCP server.

    Use it as ``auth=`` of `Http` or of `requests`. Any number of threads may share it: they get one
    new token together. Whatever blocks ends with the deadline or cancel of the call that needs it.

    Args:
        url: The MCP server; by default that of the first request.
        store: Where tokens are kept; by default in memory.
        issuer: The one authorization server that is acceptable.
        scopes: What to ask for instead of what the server's metadata list.
        session: Where proxies and certificates for the authorization server come from.
        allow_private: Whether a public server may name private addresses.
        dpop: Whether tokens are bound to a key, so that whoever steals one cannot use it (RFC 9449;
            extra ``oauth``). The key is made here and kept in the store, unless it is given.
        assertion: Signs for a client that proves itself by a key.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        store: TokenStore | None = None,
        issuer: str | None = None,
        scopes: Iterable[str] | None = None,
        session: requests.Session | None = None,
        allow_private: bool = False,
        dpop: bool | SigningKey = False,
        assertion: ClientAssertion | None = None,
    ) -> None:
        if isinstance(scopes, str):
            raise UsageError("scopes is a list of words, not one str")
        self._given_store = store
        self._issuer = issuer
        self._scopes = None if scopes is None else tuple(scopes)
        self._session = session
        self._allow_private = allow_private
        self._assertion = assertion
        self._dpop = dpop
        if url is not None:
            check_url(url)
        self._start(url)

    def _start(self, url: str | None) -> None:
        """Set up what is no setting."""
        given = self._given_store
        self._store: TokenStore = MemoryStore() if given is None else given
        self.binder = self._binder()
        self._flights: SingleFlight[CachedLogin] = SingleFlight()
        self._step_ups = StepUps()
        self._sign_ins = LoginLimiter()
        # Guards what follows.
        self._lock = threading.RLock()
        self._site: Site | None = None
        if url is not None:
            self._bind(url)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has the same settings, and no token but those of a store that both can reach.
        state = {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}
        return {**state, "url": None if self._site is None else self._site.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        url = state.pop("url")
        self.__dict__.update(state)
        self._start(url)

    # What a grant has to say

    @property
    @abstractmethod
    def _client(self) -> str:
        """What tells the logins of different clients at one server apart; no secret."""

    @abstractmethod
    def _obtain(self, need: TokenNeed, flight: SharedAttempt[CachedLogin]) -> Login:
        """Get a token without one. Called by one thread at a time, with the store locked.

        Raises:
            AuthError: There is none to be had.
            TransportError: A server could not be reached.
        """

    def _disowned(self, registration: Registration) -> None:
        """The authorization server does not know the client (any more)."""

    # What the user sees

    @property
    def token(self) -> Token | None:
        """The token in use, or else kept in the store; `None` if there is none."""
        if self._site is None:
            return None
        held = self._site.keeper.current()
        return None if held is None else held.login.token

    def login(self) -> Token:
        """Get a new token now, whether or not there is one; what was denied may be asked again.

        Raises:
            UsageError: No `url` was given, and no request was made.
            AuthError: There is no token to be had.
            TransportError: A server could not be reached.
        """
        site = self._bound()
        self._begin_anew()
        demand = site.driver.run(flow.ask(site.url))
        held = site.keeper.current()
        refused = None if held is None else held.login
        return self._obtained(TokenNeed(demand or AuthChallenge(), refused), anew=True).token

    def logout(self) -> None:
        """Forget the token and revoke it where the authorization server lets us (RFC 7009).

        It is forgotten even if an error is raised.

        Raises:
            UsageError: No `url` was given, and no request was made.
            AuthError: The authorization server did not revoke it.
            TransportError: It could not be reached.
        """
        site = self._bound()
        self._begin_anew()
        with site.keeper.turn():
            login = site.keeper.forget()
        if login is not None:
            client = self._proving(login.registration)
            steps = flow.revoke(login.token, client, login.server, self._assertion)
            site.driver.run(steps)

    def _proving(self, registration: Registration) -> Registration:
        """A client that was kept, with what it proves itself by."""
        return registration

    def __repr__(self) -> str:
        where = "" if self._site is None else f" for {redact(self._site.url)}"
        return f"<{type(self).__name__}{where}>"

    # What requests calls, and what comes of it

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into a request, and see to it that a refusal is answered.

        Raises:
            UsageError: The request goes to another server.
            AuthError: The token has to be renewed, and cannot be.
            TransportError: The same.
        """
        site = self._bind(request.url or "")
        login = self._in_time(site.keeper)
        if login is not None:
            self._sign(request, login)
        hook = UnauthorizedHook(self, site.driver.guard, login)
        request.register_hook("response", hook)  # type: ignore[no-untyped-call]
        return request

    def _sign(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token into a request: in the header, and nowhere else.

        (basic/authorization/index#token-requirements)
        """
        if self.binder is not None:
            self.binder.bind_request(request, login)
        else:
            request.headers["Authorization"] = f"Bearer {login.token.access_token}"

    def _is_for(self, url: str) -> bool:
        """Whether the token may go to `url`."""
        return self._site is not None and origin_of(url) == origin_of(self._site.url)

    def _renewed(self, used: Login) -> CachedLogin | None:
        """Another token than the one of `used`, by refresh or because others got one.

        The refresh goes on when the call that wants it ends: its answer is worth a login.

        Returns:
            `None` if only a new login helps.

        Raises:
            AuthError: The refresh failed, and it cannot be told whether the old token still works.
            TransportError: The authorization server could not be reached.
            RequestTimeout: It took too long.
            Cut: The exchange on this thread was cut.
        """
        keeper = self._bound().keeper
        return self._flights.run(
            lambda: keeper.other_than(used), partial(self._refresh, used), apart=True
        )

    def _stepped_up(self, need: TokenNeed, operation: str) -> Login:
        """A token with more scope, as `operation` needs it.

        Raises:
            AuthError: That was tried often enough, or was denied.
            TransportError: A server could not be reached.
            RequestTimeout: It took too long.
            Cut: The exchange on this thread was cut.
        """
        other = self._bound().keeper.other_than(need.refused)
        if other is not None and not missing(need.demand.scope, other.login.token.scope):
            return other.login
        self._step_ups.begin(need, operation)
        try:
            return self._obtained(need)
        except TokenRefused:
            self._step_ups.deny(need)
            raise

    def _let_in(self, operation: str | None) -> None:
        """A request with a token was let through; `operation`: what had needed more scope."""
        self._sign_ins.let_in()
        if operation is not None:
            self._step_ups.accept(operation)

    # How it is done

    def _begin_anew(self) -> None:
        self._step_ups.reset()
        self._sign_ins.reset()

    def _binder(self) -> Binder | None:
        if self._dpop is False:
            return None
        from syncmcp.auth.signing import DPoPProver

        key = None if self._dpop is True else self._dpop
        return DPoPProver(self._store, lambda: f"{self._bound().url} {self._client}", key)

    def _bind(self, url: str) -> Site:
        with self._lock:
            site = self._site
            if site is None:
                # Without what may be secret, and names no resource.
                server = _bare(url)
                driver = Driver(
                    server,
                    session=self._session,
                    allow_private=self._allow_private,
                    binder=self.binder,
                )
                key = f"login {server} {self._client}"
                bound = self.binder is not None
                keeper = TokenCache(self._store, key, self._issuer, bound=bound)
                site = self._site = Site(server, driver, keeper)
        if not self._is_for(url):
            raise UsageError(
                f"this {type(self).__name__} is for {redact(site.url)}: another server needs one"
                " of its own"
            )
        return site

    def _bound(self) -> Site:
        if self._site is None:
            raise UsageError("which server? Pass url=, or make a request first")
        return self._site

    def _in_time(self, keeper: TokenCache) -> Login | None:
        """The login to use, renewed if its token is about to expire and that can be done."""
        held = keeper.current()
        if held is None:
            return None
        if held.fresh or held.login.token.refresh_token is None:
            return held.login  # the server says when it no longer works
        try:
            held = self._renewed(held.login) or held
        except (ConnectFailed, TokenRefused) as error:
            if held.login.token.expired(time.time()):
                raise
            _log.warning("a token could not be renewed ahead of time: %s", type(error).__name__)
            keeper.put_off(held)
        return held.login

    def _refresh(self, used: Login, flight: SharedAttempt[CachedLogin]) -> CachedLogin | None:
        site = self._bound()
        keeper = site.keeper
        with keeper.turn():
            newer = keeper.newer_than(used)
            if newer is not None:
                return newer
            stored = keeper.stored()
            # Somebody has logged out, or a refresh that failed has left it without its secret.
            if stored is None or stored.login.token.refresh_token is None:
                return None
            login = stored.login
            steps = flow.refresh(
                login.token, login.registration, login.server, time.time(), self._assertion
            )
            try:
                token = site.driver.run(steps)
            except TokenRefused as error:
                if error.status >= 500 or error.status == 429:
                    raise  # that says nothing about the refresh token
                _log.info("a refresh token was refused (%s)", error.error)
                if error.error == "invalid_client":
                    self._disowned(login.registration)
                return keeper.spent(login)
            except (ConnectFailed, UnsafeUrl):
                raise  # nothing was sent
            except (AuthError, RequestTimeout) as error:
                newer = keeper.spent(login)
                if newer is not None:
                    return newer
                # It may have been used up, and to use it twice may revoke what it got.
                raise AuthError(
                    "the answer of the token endpoint was lost, and the refresh token may be used"
                    " up: sign in again"
                ) from error
            return keeper.keep(Login(token, login.registration, login.server))

    def _obtained(self, need: TokenNeed, *, anew: bool = False) -> Login:
        """A token of a new login, by this thread or, unless it must be new, because others got one.

        Raises:
            AuthError: There is none to be had.
            TransportError: A server could not be reached.
            RequestTimeout: It took too long.
            Cut: The exchange on this thread was cut.
        """
        keeper = self._bound().keeper

        def ready() -> CachedLogin | None:
            return None if anew else keeper.other_than(need.refused)

        def sign_in(flight: SharedAttempt[CachedLogin]) -> CachedLogin:
            with keeper.turn():
                newer = None if anew else keeper.newer_than(need.refused)
                return newer or keeper.keep(self._obtain(need, flight))

        held = self._flights.run(ready, sign_in, apart=False)
        assert held is not None
        return held.login


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))


@authorization_of.register
def _(auth: TokenAuth) -> str | None:
    """The header that holds unless the token is renewed first.

    Raises:
        AuthError: The store cannot be read.
    """
    kind = type(auth)
    if kind.__call__ is not TokenAuth.__call__ or kind._sign is not TokenAuth._sign:
        return None
    token = auth.token
    if token is None:
        return None
    return f"{'Bearer' if auth.binder is None else 'DPoP'} {token.access_token}"


def resource_of(auth: TokenAuth) -> str:
    """The URL of the server that `auth` signs in to."""
    return auth._bound().url
