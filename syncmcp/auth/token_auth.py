"""The base of the `requests` authentication objects that obtain tokens; handling of 401 and 403.

`TokenAuth` puts a token into each request; its `UnauthorizedHook` repeats a refused request with
another token. A `TokenManager` supplies the tokens.
"""

from __future__ import annotations

import hashlib
import json
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlunsplit

import requests
from requests.auth import AuthBase

from syncmcp._base.checks import check_object, flag, kind_of
from syncmcp._base.origin import split_url
from syncmcp._base.secrets import Secrets
from syncmcp._base.text import redact, whole
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.single_flight import SharedAttempt
from syncmcp._http.exchange import current
from syncmcp._http.session import finish
from syncmcp._http.url_guard import UnsafeUrl, UrlGuard
from syncmcp.auth import flow, steps
from syncmcp.auth.discovery import AuthServer, discover, missing_scopes, select_scope
from syncmcp.auth.fetch import Driver
from syncmcp.auth.flow import ClientAssertion, TokenNeed
from syncmcp.auth.store import MemoryStore, TokenStore
from syncmcp.auth.token_manager import CachedLogin, TokenCache, TokenManager, scope_insufficient
from syncmcp.auth.tokens import Login, Registration, Token
from syncmcp.config import check_url
from syncmcp.errors import AuthError, McpError, UsageError

if TYPE_CHECKING:
    from syncmcp.auth.signing import DPoPProver, SigningKey

# Logins that one request may lead to, the first one and step-ups together.
_MOST_LOGINS = 3

# Tokens obtained by other processes that one request tries; each may have expired in the meantime.
_MOST_FOUND = 3

# The error of a request whose DPoP proof is not accepted, for another reason than its nonce.
_BAD_PROOF = "invalid_dpop_proof"

_DRAIN_BYTES = 64 * 1024


# Attributes that belong to this process, and are left out of a pickle.
_OF_PROCESS = frozenset({"_store", "_lock", "_manager", "prover", "secrets"})


class TokenAuth(AuthBase):
    """Base class of the ways to obtain tokens; one object is for one MCP server.

    Use it as ``auth=`` of `Http` or of `requests`. Any number of threads may share the object: one
    of them obtains a token, the others wait for it. The wait ends with the timeout or the
    cancellation of the call that needs the token.

    `OAuth` describes the arguments.

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
            raise UsageError("scopes must be a list of strings, not a single str")
        allow_private = flag(allow_private, "allow_private")
        if issuer is not None:
            _check_issuer(issuer, allow_private)
        self._given_store = store
        self._issuer = issuer
        self._scopes = None if scopes is None else tuple(scopes)
        self._session = session
        self._allow_private = allow_private
        self._assertion = assertion
        if not hasattr(dpop, "sign"):
            flag(dpop, "dpop")
        self._dpop = dpop
        if url is not None:
            check_url(url, "pass the URL of the MCP server")
        self._initialize(url)

    def _initialize(self, url: str | None) -> None:
        """Set up the attributes that belong to this process."""
        # The secrets that are sent and received while signing in; clients mask them.
        self.secrets = Secrets()
        given = self._given_store
        check_object(given, "store")
        if given is not None and not hasattr(given, "load"):
            raise UsageError(
                f"store must be a token store such as FileStore(path), not {kind_of(given)}"
            )
        self._store: TokenStore = MemoryStore() if given is None else given
        self.prover = self._make_prover()
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

    def _accepts(self, issuer: str) -> bool:
        """Return whether the program's settings allow a stored login at `issuer`."""
        return self._issuer in (None, issuer)

    def _client_rejected(self, registration: Registration) -> None:
        """Handle a client that the authorization server does not know, or no longer knows."""

    def _logged_out(self) -> None:
        """Forget the agreement, because the user logs out. Called with the login locked."""

    def _with_credentials(self, registration: Registration) -> Registration:
        """Return a stored client with its secret, which is not stored."""
        return registration

    # What a subclass uses

    def _choose_server(
        self, need: TokenNeed, *, bound: bool, offline: bool, preferred: Sequence[str] = ()
    ) -> tuple[AuthServer, str | None]:
        """Find the authorization server, and choose the scope to request there.

        `bound` means that the credentials belong to one authorization server. `offline` means to
        request a refresh token, if the authorization server supports that. `preferred` are the
        issuers to prefer after that of the last login.

        Raises:
            AuthError: The credentials belong to another server; or the server demands more scope,
                but names only scope that was requested before.
            TransportError: A server could not be reached.
        """
        manager = self._bound_manager()
        earlier = None if need.refused is None else need.refused.server.issuer
        hint = need.challenge.resource_metadata
        known = [*(() if earlier is None else (earlier,)), *preferred]
        found = manager.driver.run(discover(manager.url, hint, issuer=self._issuer, known=known))
        issuer = found.metadata.issuer
        if bound and earlier not in (None, issuer):
            raise AuthError(
                f"the server now accepts tokens from {whole(issuer, 200)}, but the"
                f" credentials that you passed belong to {earlier!r}"
            )
        before = need.earlier_scope if earlier == issuer else None
        scope = select_scope(
            found,
            challenged=need.challenge.scope,
            configured=self._scopes,
            earlier=before,
            offline=offline,
        )
        scope = manager.limits.without_denied(scope)
        if need.more_scope and not missing_scopes(scope, before):
            raise scope_insufficient(
                "the server asks for more scope, but names only scope that was requested already"
            )
        return found, scope

    # What the user calls

    @property
    def token(self) -> Token | None:
        """The current token, from memory or else from the store.

        The value is `None` if neither has a token that the settings allow. Without `url`, it is
        `None` before the first request.

        Raises:
            AuthError: The store cannot be read, or its entry is not a valid login.
        """
        if self._manager is None:
            return None
        cached = self._manager.cache.current()
        return None if cached is None else cached.login.token

    def login(self) -> Token:
        """Obtain a new token now, even if a token exists; reset all limits and denied scopes.

        Raises:
            UsageError: No `url` was passed, and no request was made.
            AuthError: No token can be obtained.
            TransportError: A server could not be reached.
        """
        manager = self._bound_manager()
        manager.limits.reset()
        challenge = manager.driver.run(flow.probe(manager.url))
        cached = manager.cache.current()
        refused = None if cached is None else cached.login
        need = TokenNeed(challenge or steps.AuthChallenge(), refused)
        try:
            return manager.sign_in(need, always=True).token
        except McpError as error:  # its text may contain secrets that a server repeated
            self.secrets.clean(error)
            raise

    def logout(self) -> None:
        """Remove the token, and revoke it if the authorization server supports that (RFC 7009).

        If the authorization server cannot revoke the token, the token is removed nevertheless. The
        method waits for a sign-in in progress, also that of another process with the same store.
        Such a sign-in ends at its `login_timeout`, or when the client that needs it is closed.

        Raises:
            UsageError: No `url` was passed, and no request was made.
            AuthError: The store cannot be used, or its entry is not a valid login; or the
                authorization server did not revoke the token.
            TransportError: The authorization server could not be reached.
            RequestTimeout: Another thread or process held the login for five minutes.
        """
        manager = self._bound_manager()
        manager.limits.reset()
        with manager.cache.lock():
            self._logged_out()
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
        hook = UnauthorizedHook(manager, self._sign, self.prover, login)
        request.register_hook("response", hook)  # type: ignore[no-untyped-call]
        return request

    def _sign(self, request: requests.PreparedRequest, login: Login) -> None:
        """Put a token into the header of a request, and nowhere else.

        (basic/authorization/index#token-requirements)
        """
        self.secrets.add(login.token.access_token, "token")  # new here if it came from the store
        if self.prover is not None:
            self.prover.bind_request(request, login)
        else:
            request.headers["Authorization"] = f"Bearer {login.token.access_token}"

    # Binding to one server

    def _make_prover(self) -> DPoPProver | None:
        if self._dpop is False:
            return None
        with delaying_forks():
            from syncmcp.auth.signing import DPoPProver

        key = None if self._dpop is True else self._dpop
        return DPoPProver(self._store, lambda: f"{filed_under(self)} {self._client_label}", key)

    def _manager_for(self, url: str) -> TokenManager:
        """Return the manager for the server at `url`; make it for the first URL.

        Raises:
            UsageError: This object is for another server.
        """
        with self._lock:
            manager = self._manager
            if manager is None:
                manager = self._manager = self._make_manager(_without_user(url))
        if not manager.is_for(url):
            raise UsageError(
                f"this {type(self).__name__} is for {redact(manager.url)}: another server"
                " needs its own"
            )
        return manager

    def _make_manager(self, server: str) -> TokenManager:
        self.secrets.give_url(server)
        guard = UrlGuard(server, allow_private=self._allow_private)
        driver = Driver(guard, session=self._session, prover=self.prover, secrets=self.secrets)
        key = f"login {_filing_name(server)} {self._client_label}"
        cache = TokenCache(self._store, key, self._accepts, bound=self.prover is not None)
        return TokenManager(
            server, driver, cache, self._obtain, self._client_rejected, self._assertion
        )

    def _bound_manager(self) -> TokenManager:
        if self._manager is None:
            raise UsageError("which server? Pass url=, or make a request first")
        return self._manager


def _check_issuer(issuer: str, allow_private: bool) -> None:
    if not str(issuer).lower().startswith(("https://", "http://")):
        raise UsageError(f"issuer must be the URL of an authorization server, not {issuer!r}")
    try:
        UrlGuard(issuer, allow_private=allow_private).check(issuer)
    except UnsafeUrl as error:
        text = f"issuer {redact(issuer)!r} cannot be used, because {error.reason}"
        raise UsageError(text) from error


def _without_user(url: str) -> str:
    """Return a URL without user and fragment, which may be secret and identify no resource."""
    parts = split_url(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment=""))


def _filing_name(url: str) -> str:
    """Return the URL of a server for a key of a store: a digest replaces the secret query."""
    place, mark, query = url.partition("?")
    return f"{place}?sha256={hashlib.sha256(query.encode()).hexdigest()}" if mark else place


def filed_under(auth: TokenAuth) -> str:
    """Return the name of the server of `auth` in keys of stores. The name is not secret."""
    return _filing_name(auth._bound_manager().url)


def client_label_of(auth: TokenAuth) -> str:
    """Return the label that distinguishes the logins of clients at one server, not secret."""
    return auth._client_label


def publishes_sign_in(auth: TokenAuth) -> bool:
    """Return whether metadata of `auth`'s server or origin name an issuer, as a challenge may."""
    manager = auth._bound_manager()
    return manager.driver.run(discover(manager.url, issuer=auth._issuer)).published


@dataclass(eq=False, repr=False)
class UnauthorizedHook:
    """The `requests` response hook of one request, which has the token of the login `used`."""

    tokens: TokenManager
    sign: Callable[[requests.PreparedRequest, Login], None]
    prover: DPoPProver | None
    used: Login | None
    _refreshed: bool = False
    _found_tokens: int = 0
    _logged_in: bool = False
    _login_count: int = 0
    _nonce_retried: bool = False
    _operation: str | None = None

    def __call__(self, response: requests.Response, *_: Any, **options: Any) -> requests.Response:
        """Repeat the request with other tokens as long as that may help; return the last response.

        Raises:
            AuthError: No usable token can be obtained.
            TransportError: A server could not be reached.
            RequestTimeout: The new token or the repeated request took too long.
            ExchangeAborted: The exchange on this thread was aborted.
        """
        try:
            while (login := self._login_for_retry(response)) is not None:
                self.used = login
                response = self._send_again(response, login, options)
        except BaseException as error:
            if isinstance(error, McpError):  # its text may contain secrets that a server repeated
                self.tokens.driver.secrets.clean(error)
            _release_connection(response)
            raise
        if self.used is not None and response.status_code < 400:
            self.tokens.limits.record_success(self._operation)
        return response

    def _login_for_retry(self, response: requests.Response) -> Login | None:
        """Return the login to repeat the request with; `None` if that would not help."""
        request = response.request
        needs_nonce = self.prover is not None and self.prover.needs_nonce(response)
        # After a redirect to another origin, that server must not get a token.
        if response.status_code not in (401, 403) or not self.tokens.is_for(request.url or ""):
            return None
        if request.body is not None and not isinstance(request.body, (bytes, str)):
            return None  # the body was a stream, and cannot be read a second time
        self.tokens.driver.guard.record_peer(response)
        header = response.headers.get("WWW-Authenticate")
        challenge = steps.auth_challenge(header)
        if needs_nonce or (challenge is not None and challenge.error == _BAD_PROOF):
            # The token is valid: another one would not help (RFC 9449 §7.1, §9).
            return self._after_nonce() if needs_nonce else None
        if response.status_code == 401:
            # Some servers send no header. A header with only other schemes asks for no token.
            return None if challenge is None and header else self._after_401(request, challenge)
        if challenge is not None and challenge.error == "insufficient_scope":
            return self._after_403(request, challenge)
        return None

    def _after_nonce(self) -> Login | None:
        """Return the same login, but only once: its next proof contains the nonce."""
        if self._nonce_retried:
            return None
        self._nonce_retried = self.used is not None
        return self.used

    def _after_401(
        self, request: requests.PreparedRequest, challenge: steps.AuthChallenge | None
    ) -> Login | None:
        """Return the login of one refresh, then of one sign-in (RFC 6750 §3.1: invalid_token)."""
        if self.used is not None and not self._refreshed and not self._logged_in:
            cached = self.tokens.refresh(self.used)
            if cached is not None:
                self._found_tokens += not cached.own
                self._refreshed = cached.own or self._found_tokens >= _MOST_FOUND
                return cached.login
        # DELETE ends a session: no reason to ask a person to sign in.
        if self._logged_in or self._login_count >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._logged_in = True
        self._login_count += 1
        return self.tokens.sign_in(TokenNeed(challenge or steps.AuthChallenge(), self.used))

    def _after_403(
        self, request: requests.PreparedRequest, challenge: steps.AuthChallenge
    ) -> Login | None:
        """Return the login of a step-up, which includes the missing scope.

        (basic/authorization/index#step-up-authorization-flow)
        """
        if self.used is None or self._login_count >= _MOST_LOGINS or request.method == "DELETE":
            return None
        self._login_count += 1
        self._operation = self._operation or _operation(request)
        need = TokenNeed(challenge, self.used, more_scope=True)
        return self.tokens.step_up(need, self._operation)

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
        self.sign(request, login)
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
    """Return a key for the operation of a request: equal for requests that do the same."""
    names = ("Mcp-Method", "Mcp-Name")
    words = [request.method or "", *(str(request.headers.get(name, "")) for name in names)]
    if not any(words[1:]) and request.body:
        try:
            message: Any = json.loads(request.body)
            params = message.get("params") or {}
            words += [str(message.get("method")), str(params.get("name") or params.get("uri"))]
        except (ValueError, AttributeError, RecursionError):
            pass  # no JSON-RPC message: the URL alone identifies the operation
    return " ".join([*words, request.url or ""])
