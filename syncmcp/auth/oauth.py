"""Signing in with a person: the authorization code flow with PKCE (OAuth 2.1 §4.1)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import requests

from syncmcp._base.checks import check_object, finite_seconds, text
from syncmcp._base.text import redact
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.single_flight import SharedAttempt
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import current
from syncmcp.auth import flow
from syncmcp.auth.agreement import Allow, Allowed, SignInRequest, not_agreed
from syncmcp.auth.discovery import AuthServer, require_pkce, same_but_slash
from syncmcp.auth.flow import ClientAssertion, TokenNeed
from syncmcp.auth.registration import (
    ClientIdentity,
    check_redirect_uri,
    client_metadata,
    identify,
    is_usable,
    register,
)
from syncmcp.auth.store import TokenStore
from syncmcp.auth.token_auth import TokenAuth
from syncmcp.auth.token_manager import CachedLogin
from syncmcp.auth.tokens import Login, Registration
from syncmcp.errors import LoginRequired, RequestTimeout, TokenRefused, UsageError

if TYPE_CHECKING:
    from syncmcp.auth.receiver import Receiver, Waiting
    from syncmcp.auth.signing import SigningKey


class OAuth(TokenAuth):
    """Signs a person in when a server demands a token, and refreshes the token.

    >>> from syncmcp.auth import FileStore, OAuth
    >>> login = OAuth(store=FileStore("tokens.json"))
    >>> syncmcp.Http("https://example.com/mcp", auth=login)  # for `syncmcp.connect`
    Http('https://example.com/mcp', auth=***)

    By default, the first request that needs a token asks the person at the terminal whether to sign
    in at the issuer that the server names. Then the browser opens. A `receiver` replaces both
    steps, and ``receiver=None`` forbids them. The agreement is stored with the token. A
    person's time does not count against the timeout of a call.

    One object is for one server. All threads that share it sign in once; so do all processes that
    share a `store`.

    Args:
        url: The MCP server; by default that of the first request.
        client_id: A client id that the authorization server has issued.
        client_secret: The secret of `client_id`.
        client_metadata_url: The URL at which you publish the document of `client_metadata`. The URL
            is the client id at authorization servers that support such documents.
        client_name: The name that the authorization server shows to the person.
        redirect_uri: The URL of this computer to which the browser returns, if the client id was
            registered with a fixed one.
        receiver: Asks the person, sends them to the authorization server, and receives the
            callback, on the thread of the call that needs the login. ``"browser"`` stands for a
            `LoopbackReceiver`. With `None`, no person can be asked.
        scopes: The scopes to request instead of those in the server's metadata.
        store: Where tokens and registrations are stored; by default in memory.
        issuer: The issuer of the only acceptable authorization server. The program agrees to this
            issuer, so no person is asked. Pass it with a `client_id`; it is required with a
            `client_secret`, and with a `PrivateKeyJwt` that has an audience.
        allow: The issuers at which to sign in without asking the person; no other one is used. Pass
            one, several, or a function that is called as ``(server_url, issuer)``, on the thread of
            the call that needs the login or its refresh. A timeout does not interrupt the function.
        login_timeout: The seconds that a person has to agree, and then again to sign in.
        session: Supplies proxies and certificates for the authorization server.
        allow_private: Whether any server may name addresses of private networks and of this
            computer, also with plain ``http``. Link-local addresses and those of cloud metadata
            are always refused.
        dpop: Whether tokens are bound to a key, so that a stolen token is useless (RFC 9449; extra
            ``oauth``). With `True`, the key is generated and kept in the store. Or pass your own
            `SigningKey`.
        assertion: A `PrivateKeyJwt`, which signs for a client that authenticates by a key.

    Raises:
        UsageError: An argument is invalid, or contradicts another one.

    Notes:
        With `issuer` or `allow`, a stored login at another issuer is not used.

        With `issuer`, no person is asked. With `allow`, a person is asked only about an issuer
        whose sign-in page belongs to another site (`SignInRequest.page`), unless the issuer
        advertises the parameter ``iss``. With either, the token may be for a parent path of the MCP
        server (`SignInRequest.resource`).
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "syncmcp",
        redirect_uri: str | None = None,
        receiver: Receiver | Literal["browser"] | None = "browser",
        scopes: Iterable[str] | None = None,
        store: TokenStore | None = None,
        issuer: str | None = None,
        allow: Allow | None = None,
        login_timeout: float = 300.0,
        session: requests.Session | None = None,
        allow_private: bool = False,
        dpop: bool | SigningKey = False,
        assertion: ClientAssertion | None = None,
    ) -> None:
        text(client_name, "client_name")
        self._identity = ClientIdentity(
            client_id, client_secret, client_metadata_url, client_name, assertion is not None
        )
        self._identity.check()
        if client_secret is not None and issuer is None:
            raise UsageError("client_secret needs issuer=: no other server may get the secret")
        if issuer is None and getattr(assertion, "audience", None) is not None:
            raise UsageError(
                "an assertion with an audience needs issuer=: another server could use it there"
            )
        self._receiver = _make_receiver(receiver, redirect_uri)
        self._allowed = None if allow is None else Allowed(allow)
        self._agreed: SignInRequest | None = None
        self._login_timeout = finite_seconds(login_timeout, "login_timeout", positive=True)
        super().__init__(
            url,
            store=store,
            issuer=issuer,
            scopes=scopes,
            session=session,
            allow_private=allow_private,
            dpop=dpop,
            assertion=assertion,
        )

    def __getstate__(self) -> dict[str, Any]:
        if self._identity.client_secret is not None:
            raise TypeError(
                "credentials cannot be pickled: create the object again in the other process"
            )
        return super().__getstate__()

    @property
    def _client_label(self) -> str:
        return self._identity.client_id or self._identity.metadata_url or ""

    def client_metadata(self, redirect_uris: Sequence[str]) -> dict[str, Any]:
        """Make the document to publish as JSON at `client_metadata_url`.

        The specification describes the document in "Client Registration", "Implementation
        Requirements".

        Args:
            redirect_uris: The URLs to which the browser may return, at least one.

        Raises:
            UsageError: There is no `client_metadata_url`, `redirect_uris` is empty, or a redirect
                URI is invalid.
        """
        url = self._identity.metadata_url
        if url is None or not redirect_uris:
            raise UsageError("a client metadata document needs its URL and redirect URIs")
        for uri in redirect_uris:
            check_redirect_uri(uri)
        method = "private_key_jwt" if self._identity.has_key else "none"
        return {"client_id": url, **client_metadata(self._identity.name, redirect_uris, method)}

    def _obtain(self, need: TokenNeed, attempt: SharedAttempt[CachedLogin]) -> Login:
        if self._receiver is None:
            raise LoginRequired(
                "a person has to sign in first",
                hint="receiver=None forbids a sign-in: call login() on an OAuth with a"
                " receiver and the"
                " same store, where a person can sign in",
            )
        manager = self._bound_manager()
        manager.limits.check()
        bound = self._identity.client_id is not None
        auth_server, scope = self._choose_server(
            need, bound=bound, offline=True, preferred=self._preferred_issuers()
        )
        require_pkce(auth_server)
        if auth_server.metadata.authorization_endpoint is not None:
            manager.driver.guard.check_page(auth_server.metadata.authorization_endpoint)
        self._require_agreement(auth_server, attempt)
        known = self._stored_registration(auth_server.metadata.issuer)
        with self._receiver.start(() if known is None else known.redirect_uris) as waiting:
            check_redirect_uri(waiting.redirect_uri)
            registration = self._registration_at(auth_server, known, waiting.redirect_uri, scope)
            pending = flow.PendingAuthorization(
                auth_server, registration, waiting.redirect_uri, scope
            )
            try:
                callback = self._authorize(pending, waiting, attempt)
            except RequestTimeout:
                # Perhaps the page showed an error, because the server does not know the client.
                self._client_rejected(registration)
                raise
        steps = flow.redeem(pending, callback, time.time(), self._assertion)
        try:
            token = manager.driver.run(steps)
        except TokenRefused as error:
            if error.error == "invalid_client":
                self._client_rejected(registration)
            raise
        return Login(token, registration, auth_server.metadata)

    def _accepts(self, issuer: str) -> bool:
        if not super()._accepts(issuer):
            return False
        request = SignInRequest(redact(self._bound_manager().url), issuer)
        return self._allowed is None or self._allowed.includes(request)

    def _preferred_issuers(self) -> list[str]:
        agreed = [] if self._agreed is None else [self._agreed.issuer]
        return agreed if self._allowed is None else [*agreed, *self._allowed.issuers]

    def _require_agreement(
        self, auth_server: AuthServer, attempt: SharedAttempt[CachedLogin]
    ) -> None:
        """Have the program or the person agree to sign in at this issuer, once.

        Raises:
            LoginRequired: The program or the person does not agree, or no person can be asked.
        """
        if self._issuer is not None:  # discovery accepted no other issuer
            return
        manager = self._bound_manager()
        request = SignInRequest.of(
            manager.url,
            auth_server.metadata,
            auth_server.resource,
            assumed=not auth_server.published,
        )
        if self._allowed is not None and not self._allowed.includes(request):
            slash = any(same_but_slash(one, request.issuer) for one in self._allowed.issuers)
            why = "allow= (which differs by the / at the end)" if slash else "allow="
            raise not_agreed(request, f"{why} does not permit")
        if (self._allowed is None or request.page is not None) and request not in self._agreements:
            assert self._receiver is not None
            try:
                with self._stopped_clocks(attempt):
                    agreed = self._receiver.agree(request, Deadline(self._login_timeout))
            except RequestTimeout:
                manager.limits.record_login()
                raise
            if agreed is not True:  # a coroutine, or any other true value, is not a yes
                manager.limits.record_login()
                raise not_agreed(request, "permission was denied")
        self._agreed = request

    @property
    def _agreements(self) -> list[SignInRequest]:
        """The sign-ins that were agreed to before.

        A stored login shows that there was an agreement, but not whether the person or another
        program agreed. So it does not count if this program has `allow`.
        """
        found = [] if self._agreed is None else [self._agreed]
        manager = self._bound_manager()
        cached = manager.cache.current() if self._allowed is None else None
        if cached is not None:
            login = cached.login
            found.append(SignInRequest.of(manager.url, login.server, login.token.resource))
        return found

    def _logged_out(self) -> None:
        self._agreed = None

    def _client_rejected(self, registration: Registration) -> None:
        if self._stored_registration(registration.issuer) == registration:
            self._store.save(_client_key(registration.issuer), None)

    def _authorize(
        self,
        pending: flow.PendingAuthorization,
        waiting: Waiting,
        attempt: SharedAttempt[CachedLogin],
    ) -> dict[str, str]:
        redirect = pending.redirect
        self._bound_manager().limits.record_login()
        with self._stopped_clocks(attempt):
            return dict(waiting.receive(redirect, Deadline(self._login_timeout)))

    def _stopped_clocks(self, attempt: SharedAttempt[CachedLogin]) -> AbstractContextManager[None]:
        exchange = current()
        return attempt.paused_deadlines(None if exchange is None else exchange.deadline)

    def _stored_registration(self, issuer: str) -> Registration | None:
        value = self._store.load(_client_key(issuer))
        try:
            return None if value is None else Registration.from_json(value)
        except TypeError:  # damaged: the client is registered again
            return None

    def _registration_at(
        self,
        auth_server: AuthServer,
        known: Registration | None,
        redirect_uri: str,
        scope: str | None,
    ) -> Registration:
        """The client at an authorization server, registered there if necessary.

        A registration is stored under its issuer, and is used with no other issuer.
        (basic/authorization/client-registration#authorization-server-binding)
        """
        issuer = auth_server.metadata.issuer
        given = identify(auth_server, self._identity)
        if given is not None:
            return given
        if known is not None and is_usable(known, issuer, redirect_uri, time.time()):
            return known
        registration = self._bound_manager().driver.run(
            register(auth_server, self._identity, redirect_uri, scope)
        )
        self._store.save(_client_key(issuer), registration.to_json())
        return registration


def _make_receiver(
    given: Receiver | Literal["browser"] | None, redirect_uri: str | None
) -> Receiver | None:
    if given == "browser":
        with delaying_forks():
            from syncmcp.auth.loopback import LoopbackReceiver

        return LoopbackReceiver() if redirect_uri is None else LoopbackReceiver.at(redirect_uri)
    check_object(given, "receiver")
    if given is not None and not callable(getattr(given, "start", None)):
        raise UsageError(f"receiver must be 'browser', a receiver or None, not {given!r}")
    if redirect_uri is not None:
        raise UsageError(
            "pass either receiver or redirect_uri: a receiver has its own redirect URI"
        )
    return given


def _client_key(issuer: str) -> str:
    return f"client {issuer}"
