"""Getting tokens without a person: client credentials, enterprise-managed, workload identity."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import requests
from typing_extensions import Unpack

from syncmcp._base.text import redact_url
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.single_flight import SharedAttempt
from syncmcp._http.url_guard import UrlGuard
from syncmcp.auth import flow
from syncmcp.auth.bearer import SecretSource, SourceLike
from syncmcp.auth.discovery import AuthServer, find_server, named
from syncmcp.auth.fetch import Driver
from syncmcp.auth.flow import ClientAssertion, TokenNeed, token_request
from syncmcp.auth.steps import FetchSteps, HttpResponse
from syncmcp.auth.store import TokenStore
from syncmcp.auth.token_auth import TokenAuth
from syncmcp.auth.token_manager import CachedLogin
from syncmcp.auth.tokens import Login, Registration
from syncmcp.errors import AuthError, DiscoveryFailed, UsageError
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types.extensions import AuthorizationServerMetadata

if TYPE_CHECKING:
    from syncmcp.auth.signing import SigningKey

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
"""The grant that exchanges a signed assertion for a token (RFC 7523 §2.1)."""


class MachineOptions(TypedDict, total=False):
    """The options of every grant without a person.

    Attributes:
        url: The MCP server; by default that of the first request.
        scopes: The scopes to request instead of those in the server's metadata. After a 403 that
            demands more scopes, the scopes that the 403 names are requested as well.
        store: Where tokens are stored; by default in memory.
        session: Supplies proxies and certificates for the authorization server.
        allow_private: Whether any server may name addresses of private networks and of this
            computer, also with plain ``http``. Link-local addresses and those of cloud metadata
            are always refused.
        dpop: Whether tokens are bound to a key, as with `OAuth`.
    """

    url: str | None
    scopes: Iterable[str] | None
    store: TokenStore | None
    session: requests.Session | None
    allow_private: bool
    dpop: bool | SigningKey


class MachineAuth(TokenAuth):
    """Base class of the grants without a person: the program has the credentials for a token.

    A refused grant is not tried in another way, nor repeated for the same request. `client_id` is
    empty if the authorization server needs no client id.
    """

    def __init__(
        self,
        client_id: str,
        client_secret: str | None = None,
        *,
        issuer: str | None,
        assertion: ClientAssertion | None = None,
        **options: Unpack[MachineOptions],
    ) -> None:
        if client_secret is not None and assertion is not None:
            raise UsageError("a client authenticates with a secret or a key, not with both")
        self._client_id = client_id
        self._client_secret = client_secret
        super().__init__(issuer=issuer, assertion=assertion, **options)

    @property
    def _client_label(self) -> str:
        # An `OAuth` with the same client id and store has logins of its own.
        return f"{type(self).__name__} {self._client_id}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError(
            "credentials cannot be pickled: create the object again in the other process"
        )

    @abstractmethod
    def _grant_fields(self, auth_server: AuthServer, scope: str | None) -> Mapping[str, str | None]:
        """The fields of the token request that contain the grant."""

    def _obtain(self, need: TokenNeed, attempt: SharedAttempt[CachedLogin]) -> Login:
        auth_server, scope = self._choose_server(need, bound=True, offline=False)
        method = None if self._client_secret or self._assertion else "none"
        # Without the secret, which must not be stored.
        registration = Registration(
            self._client_id, auth_method=method, issuer=auth_server.metadata.issuer
        )
        client = self._with_credentials(registration)
        fields = self._grant_fields(auth_server, scope)
        steps = flow.request_token(auth_server, client, fields, scope, time.time(), self._assertion)
        token = self._bound_manager().driver.run(steps)
        # The same grant obtains the next token (RFC 6749 §4.4.3).
        token = replace(token, refresh_token=None)
        return Login(token, registration, auth_server.metadata)

    def _with_credentials(self, registration: Registration) -> Registration:
        return replace(registration, client_secret=self._client_secret)


_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a word of the protocol
_ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"


class EnterpriseManaged(MachineAuth):
    """Obtains tokens for an employee from the company's identity provider, without asking them.

    The object exchanges the ID token of the employee's sign-in at the identity provider for an
    ID-JAG (an Identity Assertion JWT Authorization Grant). The authorization server of the MCP
    server accepts the ID-JAG, which is used once and not stored. (ext-auth
    enterprise-managed-authorization; RFC 8693, RFC 7523)

    Args:
        id_token: The ID token of the employee, the path of a file that contains it, or a function
            that returns it. The file is read, or the function called, for each exchange. The
            function runs on the thread that needs the token.
        idp_issuer: The issuer of the identity provider, whose metadata are fetched. Pass either
            this or `idp_token_endpoint`.
        idp_token_endpoint: The token endpoint of the identity provider.
        idp_client_id: The client id at the identity provider.
        idp_client_secret: The client's secret at the identity provider.
        idp_assertion: A `PrivateKeyJwt` that signs for the client at the identity provider, instead
            of `idp_client_secret`.
        client_id: The client id at the authorization server of the MCP server.
        client_secret: The client's secret at the authorization server.
        assertion: A `PrivateKeyJwt` that signs for the client at the authorization server, instead
            of `client_secret`.
        issuer: The issuer of the only acceptable authorization server. `None` leaves the choice to
            the MCP server: you then have to trust it with the ID-JAG.
        **options: See `MachineOptions`. The `store` is for one employee; the `session` applies to
            both servers.

    Raises:
        UsageError: An argument is invalid, or contradicts another one.
    """

    def __init__(
        self,
        id_token: SourceLike,
        *,
        idp_issuer: str | None = None,
        idp_token_endpoint: str | None = None,
        idp_client_id: str,
        idp_client_secret: str | None = None,
        idp_assertion: ClientAssertion | None = None,
        client_id: str,
        client_secret: str | None = None,
        assertion: ClientAssertion | None = None,
        issuer: str | None,
        **options: Unpack[MachineOptions],
    ) -> None:
        if idp_client_secret is not None and idp_assertion is not None:
            raise UsageError("a client authenticates with a secret or a key, not with both")
        self._id_token = SecretSource(id_token, "the ID token")
        self._idp_issuer = idp_issuer
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_assertion = idp_assertion
        self._idp_client = Registration(
            idp_client_id,
            idp_client_secret,
            None if idp_client_secret or idp_assertion else "none",
        )
        # The user names this URL, so it may be private even if the MCP server is public.
        guard = UrlGuard(_provider_url(idp_issuer, idp_token_endpoint))
        self._idp_driver = Driver(guard, session=options.get("session"))
        super().__init__(client_id, client_secret, issuer=issuer, assertion=assertion, **options)
        self.secrets.include(self._idp_driver.secrets)

    def _grant_fields(self, auth_server: AuthServer, scope: str | None) -> Mapping[str, str | None]:
        profiles = auth_server.metadata.authorization_grant_profiles_supported
        if profiles is not None and _ID_JAG_PROFILE not in profiles:
            raise DiscoveryFailed(
                f"{named(auth_server.metadata)} does not accept ID-JAGs from identity providers"
                " (authorization_grant_profiles_supported)"
            )
        # The identity provider has its own driver, without DPoP proofs and with another URL guard.
        return {
            "grant_type": JWT_BEARER,
            "assertion": self._idp_driver.run(self._exchange_id_token(auth_server, scope)),
        }

    def _exchange_id_token(self, auth_server: AuthServer, scope: str | None) -> FetchSteps[str]:
        """Exchange the ID token for an ID-JAG at the identity provider (RFC 8693 §2)."""
        idp = yield from self._provider_metadata()
        fields = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": auth_server.metadata.issuer,
            "resource": auth_server.resource,
            "scope": scope,
            "subject_token": self._id_token.read(),
            "subject_token_type": _ID_TOKEN,
        }
        response = yield token_request(idp, self._idp_client, fields, self._idp_assertion)
        return _read_id_jag(response)

    def _provider_metadata(self) -> FetchSteps[AuthorizationServerMetadata]:
        endpoint, issuer = self._idp_token_endpoint, self._idp_issuer
        if issuer is None:
            return AuthorizationServerMetadata(issuer=endpoint or "", token_endpoint=endpoint)
        found = yield from find_server(issuer)
        if found is None:
            raise DiscoveryFailed(f"the identity provider {issuer!r} has no metadata")
        return found


def _provider_url(issuer: str | None, endpoint: str | None) -> str:
    """Return the URL of the identity provider; `UsageError` unless it is valid and encrypted."""
    url = issuer or endpoint
    if url is None or (issuer and endpoint):
        raise UsageError("pass either idp_issuer or idp_token_endpoint")
    try:
        Link.read(url)
    except UnsafeLink as error:
        raise UsageError(
            f"cannot use the identity provider {redact_url(url)!r}: {error.reason}"
        ) from None
    return url


def _read_id_jag(response: HttpResponse) -> str:
    """Return the ID-JAG in a response of the identity provider (RFC 8693 §2.2.1)."""
    if response.status != 200:
        raise flow.request_refused("the identity provider refused this sign-in", response)
    statement = flow.string_member(response, "access_token")
    kind = flow.string_member(response, "token_type") or ""
    # A token of another type would be for the identity provider, and must not be sent elsewhere.
    if not statement or flow.string_member(response, "issued_token_type") != _ID_JAG:
        raise AuthError("the identity provider returned no ID-JAG")
    if kind.lower() != "n_a":
        raise AuthError("the identity provider returned an access token, not an ID-JAG")
    return statement


class ClientCredentials(MachineAuth):
    """Obtains tokens with the client's own secret or key, for programs without a user.

    (RFC 6749 §4.4; ext-auth oauth-client-credentials)

    ::

        from syncmcp.auth import ClientCredentials

        machine = ClientCredentials("a-client", client_secret=..., issuer="https://login.example")
        syncmcp.Http("https://example.com/mcp", auth=machine)

    Args:
        client_id: The client id that was registered with the authorization server.
        client_secret: The client's secret. Pass exactly one of `client_secret`, `private_key` and
            `assertion`.
        private_key: The client's private key; see `SigningKey` (extra ``oauth``).
        assertion: A function that gets the authorization server's metadata, and returns a signed
            client assertion (RFC 7523), such as a `PrivateKeyJwt`.
        algorithm: The signature algorithm for `private_key`; by default the first that both the key
            and the authorization server support.
        issuer: The issuer of the only authorization server that receives the credentials. `None`
            leaves the choice to the MCP server: you then have to trust it with the credentials.
        **options: See `MachineOptions`.

    Raises:
        UsageError: Not exactly one of secret, key and assertion is passed, or the key is invalid.
    """

    def __init__(
        self,
        client_id: str,
        *,
        client_secret: str | None = None,
        private_key: SigningKey | str | bytes | Path | Mapping[str, Any] | None = None,
        algorithm: str | None = None,
        assertion: ClientAssertion | None = None,
        issuer: str | None,
        **options: Unpack[MachineOptions],
    ) -> None:
        ways = [way for way in (client_secret, private_key, assertion) if way is not None]
        if len(ways) != 1 or not client_id:
            raise UsageError(
                "ClientCredentials needs a client_id and one of client_secret, private_key and"
                " assertion"
            )
        if private_key is not None:
            with delaying_forks():
                from syncmcp.auth.signing import PrivateKeyJwt

            assertion = PrivateKeyJwt(client_id, private_key, algorithm)
        super().__init__(client_id, client_secret, issuer=issuer, assertion=assertion, **options)

    def _grant_fields(self, auth_server: AuthServer, scope: str | None) -> Mapping[str, str | None]:
        return {"grant_type": "client_credentials", "scope": scope}


class WorkloadIdentity(MachineAuth):
    """Obtains tokens with the signed identity that a platform issues, such as a cluster or a CI.

    (RFC 7523; ext-auth workload-identity-federation)

    ::

        from pathlib import Path
        from syncmcp.auth import WorkloadIdentity

        WorkloadIdentity(Path("/var/run/secrets/tokens/mcp"), issuer="https://login.example")

    The identity is sent unchanged. Configure its audience at the platform.

    Args:
        assertion: The signed identity, the path of a file that contains it, or a function that
            returns it. The file is read, or the function called, for each token, because identities
            expire. The function runs on the thread that needs the token.
        issuer: The issuer of the only authorization server that receives the identity. `None`
            leaves the choice to the MCP server: you then have to trust it with the identity.
        client_id: A client id, if the authorization server requires one.
        **options: See `MachineOptions`.

    Raises:
        UsageError: `assertion` is of another type, or a text that is not one word of visible ASCII.
    """

    def __init__(
        self,
        assertion: SourceLike,
        *,
        issuer: str | None,
        client_id: str = "",
        **options: Unpack[MachineOptions],
    ) -> None:
        self._identity = SecretSource(assertion, "the identity of the workload")
        super().__init__(client_id, issuer=issuer, **options)

    def _grant_fields(self, auth_server: AuthServer, scope: str | None) -> Mapping[str, str | None]:
        return {"grant_type": JWT_BEARER, "assertion": self._identity.read(), "scope": scope}
