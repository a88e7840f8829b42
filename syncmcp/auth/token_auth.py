"""Authentication objects of `requests`: a given token (`Bearer`), and the base of obtained ones."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit, urlunsplit

from requests.auth import AuthBase

from syncmcp._base.text import redact
from syncmcp.auth import flow
from syncmcp.auth.fetch import Driver
from syncmcp.auth.flow import TokenNeed
from syncmcp.auth.steps import AuthChallenge
from syncmcp.auth.store import MemoryStore
from syncmcp.auth.token_manager import CachedLogin, TokenCache, TokenManager
from syncmcp.auth.unauthorized import LoginLimiter, StepUpLimiter, UnauthorizedHook
from syncmcp.config import _check_url as check_url
from syncmcp.errors import AuthError, McpError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import requests

    from syncmcp.auth.flow import ClientAssertion
    from syncmcp.auth.signing import Binder, SigningKey
    from syncmcp.auth.single_flight import SharedAttempt
    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.tokens import Login, Registration, Token

__all__ = ["Bearer", "SecretSource", "SourceLike", "TokenAuth"]


SourceLike: TypeAlias = str | Path | Callable[[], str]
"""A secret, the path of a file that contains it, or a function that returns it."""


class SecretSource:
    """A secret that somebody else issues and may renew; read anew each time. Used from any thread.

    Args:
        given: The secret, the path of a file that contains it, or a function that returns it.
        name: What messages call the secret.

    Raises:
        UsageError: `given` is of another type, or a text that is not one word of visible ASCII.
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
        """Return the current secret.

        Raises:
            AuthError: The secret cannot be read, or is not one word of visible ASCII.
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
        if not word or not all("!" <= letter <= "~" for letter in word):
            raise AuthError(f"{self._name} is not one word of visible ASCII")
        return word

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}>"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a secret is not pickled: hand it over where it is needed")


class Bearer(AuthBase):
    """Puts a token that the program already has into each request (RFC 6750).

    ::

        syncmcp.Http("https://example.com/mcp", auth=Bearer(os.environ["EXAMPLE_TOKEN"]))

    Args:
        token: The token; the path of a file that contains it; or a function that returns it, on
            the thread that makes the request. File and function are read for each request, so
            the token may change.

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

    def _authorization(self) -> str | None:
        """The header of the next request; `None` if a subclass makes the header."""
        if type(self).__call__ is not Bearer.__call__:
            return None
        return f"Bearer {self._token.read()}"

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


# Attributes that belong to this process, and are left out of a pickle.
_OF_PROCESS = frozenset({"_store", "_step_ups", "_logins", "_lock", "_manager", "binder"})


class TokenAuth(AuthBase):
    """Base of the ways to obtain tokens; one object is for one MCP server.

    Use it as ``auth=`` of `Http` or of `requests`. Any number of threads may share it: one of them
    obtains a token, the others wait for it. Waiting ends with the deadline or the cancel of the
    call that needs the token.

    Args:
        url: The MCP server; by default that of the first request.
        store: Where tokens are stored; by default in memory.
        issuer: The only acceptable authorization server; by default any that the server names.
        scopes: The scopes to request instead of those in the server's metadata.
        session: Supplies proxies and certificates for the authorization server.
        allow_private: Whether a public server may name private addresses.
        dpop: Whether tokens are bound to a key, so that a stolen token is useless (RFC 9449; extra
            ``oauth``). The key is generated and kept in the store, unless it is given.
        assertion: Signs for a client that authenticates by a key.

    Raises:
        UsageError: An argument is invalid.
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
        self._initialize(url)

    def _initialize(self, url: str | None) -> None:
        """Set up the attributes that belong to this process."""
        given = self._given_store
        self._store: TokenStore = MemoryStore() if given is None else given
        self.binder = self._make_binder()
        self._step_ups = StepUpLimiter()
        self._logins = LoginLimiter()
        # Guards the manager, which is made when the server is known.
        self._lock = threading.RLock()
        self._manager: TokenManager | None = None
        if url is not None:
            self._manager_for(url)

    def __getstate__(self) -> dict[str, Any]:
        # A copy has the same settings. It shares tokens only through a store that both can reach.
        state = {name: value for name, value in vars(self).items() if name not in _OF_PROCESS}
        return {**state, "url": None if self._manager is None else self._manager.url}

    def __setstate__(self, state: dict[str, Any]) -> None:
        url = state.pop("url")
        self.__dict__.update(state)
        self._initialize(url)

    # What a subclass supplies

    @property
    @abstractmethod
    def _client_label(self) -> str:
        """Distinguishes the logins of different clients at one server; not secret."""

    @abstractmethod
    def _obtain(self, need: TokenNeed, attempt: SharedAttempt[CachedLogin]) -> Login:
        """Obtain a token. Called by one thread at a time, with the login locked.

        Raises:
            AuthError: No token can be obtained.
            TransportError: A server could not be reached.
        """

    def _client_rejected(self, registration: Registration) -> None:
        """The authorization server does not know the client, or no longer."""

    def _with_credentials(self, registration: Registration) -> Registration:
        """A stored client, with the secret that is not stored."""
        return registration

    # What the user calls

    @property
    def token(self) -> Token | None:
        """The current token, in memory or else in the store; `None` if there is none.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        if self._manager is None:
            return None
        cached = self._manager.cache.current()
        return None if cached is None else cached.login.token

    def login(self) -> Token:
        """Obtain a new token now, even if there is one; resets all limits and denied scopes.

        Raises:
            UsageError: No `url` was given, and no request was made.
            AuthError: No token can be obtained.
            TransportError: A server could not be reached.
        """
        manager = self._bound_manager()
        self._reset_limits()
        challenge = manager.driver.run(flow.probe(manager.url))
        cached = manager.cache.current()
        refused = None if cached is None else cached.login
        need = TokenNeed(challenge or AuthChallenge(), refused)
        return manager.sign_in(need, always=True).token

    def logout(self) -> None:
        """Remove the token, and revoke it if the authorization server supports that (RFC 7009).

        The token is removed even if an error is raised.

        Raises:
            UsageError: No `url` was given, and no request was made.
            AuthError: The authorization server did not revoke the token.
            TransportError: The authorization server could not be reached.
        """
        manager = self._bound_manager()
        self._reset_limits()
        with manager.cache.lock():
            login = manager.cache.remove()
        if login is not None:
            client = self._with_credentials(login.registration)
            manager.driver.run(flow.revoke(login.token, client, login.server, self._assertion))

    def __repr__(self) -> str:
        where = "" if self._manager is None else f" for {redact(self._manager.url)}"
        return f"<{type(self).__name__}{where}>"

    # What requests and the HTTP transport call

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Put the token into a request, and register a hook that handles 401 and 403.

        Raises:
            UsageError: The request goes to another server.
            AuthError: The token has to be refreshed, and that failed.
            TransportError: The authorization server could not be reached.
        """
        manager = self._manager_for(request.url or "")
        login = manager.usable()
        if login is not None:
            self._sign(request, login)
        hook = UnauthorizedHook(
            manager, self._sign, self.binder, self._logins, self._step_ups, login
        )
        request.register_hook("response", hook)  # type: ignore[no-untyped-call]
        return request

    def _sign(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token into the header of a request, and nowhere else.

        (basic/authorization/index#token-requirements)
        """
        if self.binder is not None:
            self.binder.bind_request(request, login)
        else:
            request.headers["Authorization"] = f"Bearer {login.token.access_token}"

    def _authorization(self) -> str | None:
        """The header of the next request, if its token is not refreshed; `None` if unknown.

        Raises:
            AuthError: The store cannot be read, or holds no login.
        """
        kind = type(self)
        if kind.__call__ is not TokenAuth.__call__ or kind._sign is not TokenAuth._sign:
            return None
        token = self.token
        if token is None:
            return None
        return f"{'Bearer' if self.binder is None else 'DPoP'} {token.access_token}"

    # Binding to one server

    def _reset_limits(self) -> None:
        self._step_ups.reset()
        self._logins.reset()

    def _make_binder(self) -> Binder | None:
        if self._dpop is False:
            return None
        from syncmcp.auth.signing import DPoPProver

        key = None if self._dpop is True else self._dpop
        return DPoPProver(
            self._store, lambda: f"{self._bound_manager().url} {self._client_label}", key
        )

    def _manager_for(self, url: str) -> TokenManager:
        """The manager for the server at `url`, made for the first URL.

        Raises:
            UsageError: This object is for another server.
        """
        with self._lock:
            manager = self._manager
            if manager is None:
                manager = self._manager = self._make_manager(_without_secrets(url))
        if not manager.is_for(url):
            raise UsageError(
                f"this {type(self).__name__} is for {redact(manager.url)}: another server needs one"
                " of its own"
            )
        return manager

    def _make_manager(self, server: str) -> TokenManager:
        driver = Driver(
            server,
            session=self._session,
            allow_private=self._allow_private,
            binder=self.binder,
        )
        key = f"login {server} {self._client_label}"
        cache = TokenCache(self._store, key, self._issuer, bound=self.binder is not None)
        return TokenManager(
            server,
            driver,
            cache,
            obtain=self._obtain,
            client_rejected=self._client_rejected,
            assertion=self._assertion,
        )

    def _bound_manager(self) -> TokenManager:
        if self._manager is None:
            raise UsageError("which server? Pass url=, or make a request first")
        return self._manager


def _without_secrets(url: str) -> str:
    """A URL without user, query and fragment, which may be secret and name no resource."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
