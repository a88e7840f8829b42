"""Getting tokens without a person: client credentials, enterprise-managed, workload identity."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from syncmcp.auth import flow
from syncmcp.auth.discovery import AuthServer, discover, find_server, missing_scopes, select_scope
from syncmcp.auth.fetch import Driver
from syncmcp.auth.flow import token_request
from syncmcp.auth.token_auth import SecretSource, SourceLike, TokenAuth
from syncmcp.auth.tokens import Login, Registration, Token
from syncmcp.auth.unauthorized import scope_insufficient
from syncmcp.errors import AuthError, DiscoveryFailed, UsageError
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types.extensions import AuthorizationServerMetadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import requests
    from typing_extensions import Unpack

    from syncmcp.auth.flow import ClientAssertion, TokenNeed
    from syncmcp.auth.signing import SigningKey
    from syncmcp.auth.single_flight import SharedAttempt
    from syncmcp.auth.steps import FetchSteps, HttpResponse
    from syncmcp.auth.store import TokenStore
    from syncmcp.auth.token_manager import CachedLogin

__all__ = [
    "JWT_BEARER",
    "ClientCredentials",
    "EnterpriseManaged",
    "MachineAuth",
    "MachineOptions",
    "WorkloadIdentity",
]


JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
"""The grant that trades a signed statement for a token (RFC 7523 §2.1)."""


class MachineOptions(TypedDict, total=False):
    """What every grant without a person takes.

    Attributes:
        url: The MCP server; by default that of the first request.
        scopes: What to ask for instead of what the server's metadata list.
        store: Where tokens are kept; by default in memory.
        session: Where proxies and certificates for the authorization server come from.
        allow_private: Whether a public server may name private addresses.
        dpop: Whether tokens are bound to a key, as with `OAuth`.
    """

    url: str | None
    scopes: Iterable[str] | None
    store: TokenStore | None
    session: requests.Session | None
    allow_private: bool
    dpop: bool | SigningKey


class MachineAuth(TokenAuth):
    """Base of the grants that need nobody: what proves the right to a token is there already.

    What was refused is not tried in another way, nor again for the same request.

    Args:
        client_id: The client, as the authorization server knows it; empty if it need not.
        client_secret: Its secret.
        issuer: The one authorization server that gets what proves the right to a token. `None`
            leaves the choice to the MCP server, which then has to be trusted with it.
        assertion: Signs for a client that proves itself by a key.
        **options: See `MachineOptions`.
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
            raise UsageError("a client proves itself by a secret or by a key, not by both")
        self._client_id = client_id
        self._client_secret = client_secret
        super().__init__(issuer=issuer, assertion=assertion, **options)

    @property
    def _client_label(self) -> str:
        # Others may have a login of the same client with a person.
        return f"{type(self).__name__} {self._client_id}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("credentials are not pickled: make the object again where it is needed")

    @abstractmethod
    def _grant_fields(
        self, auth_server: AuthServer, scope: str | None
    ) -> FetchSteps[Mapping[str, str | None]]:
        """What proves the right to a token: fields of the token request.

        Raises:
            AuthError: It cannot be had.
        """

    def _obtain(self, need: TokenNeed, attempt: SharedAttempt[CachedLogin]) -> Login:
        manager = self._bound_manager()
        earlier = None if need.refused is None else need.refused.server.issuer
        hint = need.challenge.resource_metadata
        auth_server = manager.driver.run(
            discover(manager.url, hint, issuer=self._issuer, known=earlier)
        )
        issuer = auth_server.metadata.issuer
        if earlier not in (None, issuer):
            raise AuthError(
                f"the server now takes tokens of {issuer[:200]!r}; these credentials belong to"
                f" {earlier!r}"
            )
        scope = select_scope(
            auth_server,
            challenged=need.challenge.scope,
            configured=self._scopes,
            earlier=need.earlier_scope,
            offline=False,
        )
        if need.more_scope and not missing_scopes(scope, need.earlier_scope):
            raise scope_insufficient(
                "the server wants more scope without naming any that was not asked for already"
            )
        method = None if self._client_secret or self._assertion else "none"
        # Without the secret, which the store has no need to know.
        registration = Registration(self._client_id, auth_method=method, issuer=issuer)
        token = manager.driver.run(
            self._request_token(auth_server, self._with_credentials(registration), scope)
        )
        return Login(token, registration, auth_server.metadata)

    def _with_credentials(self, registration: Registration) -> Registration:
        return replace(registration, client_secret=self._client_secret)

    def _request_token(
        self, auth_server: AuthServer, registration: Registration, scope: str | None
    ) -> FetchSteps[Token]:
        fields = yield from self._grant_fields(auth_server, scope)
        asked = {**fields, "resource": auth_server.resource}
        response = yield token_request(auth_server.metadata, registration, asked, self._assertion)
        base = Token(
            access_token="",
            requested=scope,
            issuer=auth_server.metadata.issuer,
            resource=auth_server.resource,
            client_id=self._client_id or None,
        )
        token = flow.read_token(response, base, time.time())
        # What got this one gets the next one (RFC 6749 §4.4.3).
        return replace(token, refresh_token=None)


# Employees whose company decides: its identity provider vouches for them, and nobody is asked.
#
# (ext-auth enterprise-managed-authorization; RFC 8693, RFC 7523, Identity Assertion JWT
# Authorization Grant)


_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a word of the protocol
_ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"


class EnterpriseManaged(MachineAuth):
    """Gets tokens for an employee from the company's identity provider, without asking them.

    The ID token of their sign-in is exchanged there for a statement that the authorization server
    of the MCP server takes (ID-JAG); that one is used once, and kept nowhere.

    Args:
        id_token: The ID token of the employee; the path of the file that has it; or what returns
            it, on the thread that needs it. The last two are asked each time.
        idp_issuer: The identity provider, whose metadata say the rest; or
        idp_token_endpoint: its token endpoint.
        idp_client_id: The client, as the identity provider knows it.
        idp_client_secret: Its secret there, or
        idp_assertion: what signs for it there: a `PrivateKeyJwt`.
        client_id: The client, as the authorization server of the MCP server knows it.
        client_secret: Its secret there, or
        assertion: what signs for it there.
        issuer: The authorization server that is acceptable. `None` leaves the choice to the MCP
            server, which then has to be trusted with what the identity provider hands out.
        **options: See `MachineOptions`. The `store` is for one employee; the `session` says how
            both servers are reached.

    Raises:
        UsageError: An argument is not what it should be.
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
            raise UsageError("a client proves itself by a secret or by a key, not by both")
        self._id_token = SecretSource(id_token, "the ID token")
        self._idp_issuer = idp_issuer
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_assertion = idp_assertion
        self._idp_client = Registration(
            idp_client_id,
            idp_client_secret,
            None if idp_client_secret or idp_assertion else "none",
        )
        # The user names it, so it may be private whatever the MCP server is.
        self._idp_driver = Driver(
            _provider_url(idp_issuer, idp_token_endpoint), session=options.get("session")
        )
        super().__init__(
            client_id,
            client_secret,
            issuer=issuer,
            assertion=assertion,
            **options,
        )

    def _grant_fields(
        self, auth_server: AuthServer, scope: str | None
    ) -> FetchSteps[Mapping[str, str | None]]:
        profiles = auth_server.metadata.authorization_grant_profiles_supported
        if profiles is not None and _ID_JAG_PROFILE not in profiles:
            raise DiscoveryFailed(
                f"the authorization server {auth_server.metadata.issuer[:200]!r} does not take what"
                " identity providers hand out (authorization_grant_profiles_supported)"
            )
        yield from ()
        # By a driver of its own: its proofs and private addresses are not those of the other.
        return {
            "grant_type": JWT_BEARER,
            "assertion": self._idp_driver.run(self._exchange_id_token(auth_server, scope)),
        }

    def _exchange_id_token(self, auth_server: AuthServer, scope: str | None) -> FetchSteps[str]:
        """What the identity provider says to the authorization server (RFC 8693 §2)."""
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
        return _read_id_jag(
            (yield token_request(idp, self._idp_client, fields, self._idp_assertion))
        )

    def _provider_metadata(self) -> FetchSteps[AuthorizationServerMetadata]:
        endpoint, issuer = self._idp_token_endpoint, self._idp_issuer
        if issuer is None:
            return AuthorizationServerMetadata(issuer=endpoint or "", token_endpoint=endpoint)
        found = yield from find_server(issuer)
        if found is None:
            raise DiscoveryFailed(f"the identity provider {issuer!r} has no metadata")
        return found


def _provider_url(issuer: str | None, endpoint: str | None) -> str:
    """Where the identity provider is.

    Raises:
        UsageError: It is not said, or said twice, or not encrypted.
    """
    url = issuer or endpoint
    if url is None or (issuer and endpoint):
        raise UsageError("give one of idp_issuer and idp_token_endpoint")
    try:
        Link.read(url)
    except UnsafeLink as error:
        raise UsageError(f"the identity provider cannot be at {url!r}: {error.reason}") from None
    return url


def _read_id_jag(response: HttpResponse) -> str:
    """The statement in an answer of the identity provider (RFC 8693 §2.2.1).

    Raises:
        TokenRefused: The answer is an error.
        AuthError: It is something else than was asked for.
    """
    if response.status != 200:
        raise flow.token_refused(
            "the identity provider does not vouch for this sign-in",
            flow.string_member(response, "error"),
            flow.string_member(response, "error_description"),
            status=response.status,
        )
    statement = flow.string_member(response, "access_token")
    kind = flow.string_member(response, "token_type") or ""
    # Anything else would be a token of the identity provider, which is nobody else's business.
    if not statement or flow.string_member(response, "issued_token_type") != _ID_JAG:
        raise AuthError("the identity provider answered with something else than an ID-JAG")
    if kind.lower() != "n_a":
        raise AuthError("the identity provider answered with a token to use, not with an ID-JAG")
    return statement


# A program that signs in as itself (RFC 6749 §4.4).
#
# (ext-auth oauth-client-credentials)


class ClientCredentials(MachineAuth):
    """Gets tokens with the client's own secret or key, for programs that nobody sits at.

    ::

        machine = ClientCredentials("a-client", client_secret=..., issuer="https://login.example")
        syncmcp.Http("https://example.com/mcp", auth=machine)

    Args:
        client_id: The client, as it was registered with the authorization server.
        client_secret: Its secret.
        private_key: Or its private key; see `SigningKey`. Needs the extra ``oauth``.
        algorithm: What to sign with; by default what the key and the server have in common.
        assertion: Or what returns a signed statement of who the client is, for the authorization
            server whose metadata it is given.
        issuer: The one authorization server that gets any of these. `None` leaves the choice to
            the MCP server, which then has to be trusted with a secret.
        **options: See `MachineOptions`.

    Raises:
        UsageError: There is not exactly one of the three ways to prove who it is.
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
            from syncmcp.auth.signing import PrivateKeyJwt

            assertion = PrivateKeyJwt(client_id, private_key, algorithm)
        super().__init__(
            client_id,
            client_secret,
            issuer=issuer,
            assertion=assertion,
            **options,
        )

    def _grant_fields(
        self, auth_server: AuthServer, scope: str | None
    ) -> FetchSteps[Mapping[str, str | None]]:
        yield from ()
        return {"grant_type": "client_credentials", "scope": scope}


# A workload that its platform vouches for: a signed identity is traded for a token (RFC 7523).
#
# (ext-auth workload-identity-federation)


class WorkloadIdentity(MachineAuth):
    """Gets tokens with the identity that the platform gives a program, such as a cluster or a CI.

    ::

        WorkloadIdentity(Path("/var/run/secrets/tokens/mcp"), issuer="https://login.example")

    Whom the identity is made out to is the platform's business; it is passed on as it is.

    Args:
        assertion: The signed identity; the path of the file that has it; or what returns it, on
            the thread that needs it. The last two are asked each time, as identities expire.
        issuer: The one authorization server that gets it. `None` leaves the choice to the MCP
            server, which then has to be trusted with the identity.
        client_id: A client id, where the authorization server wants one.
        **options: See `MachineOptions`.

    Raises:
        UsageError: The identity can be none.
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

    def _grant_fields(
        self, auth_server: AuthServer, scope: str | None
    ) -> FetchSteps[Mapping[str, str | None]]:
        yield from ()
        return {"grant_type": JWT_BEARER, "assertion": self._identity.read(), "scope": scope}
