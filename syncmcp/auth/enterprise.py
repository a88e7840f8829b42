"""Employees whose company decides: its identity provider vouches for them, and nobody is asked.

(ext-auth enterprise-managed-authorization; RFC 8693, RFC 7523, Identity Assertion JWT
Authorization Grant)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp.auth import flow
from syncmcp.auth.client_auth import token_request
from syncmcp.auth.discovery import Place, find_server
from syncmcp.auth.driver import Driver
from syncmcp.auth.grants import JWT_BEARER, MachineAuth, MachineOptions
from syncmcp.auth.source import Source, SourceLike
from syncmcp.auth.token import Registration
from syncmcp.errors import AuthError, DiscoveryFailed, UsageError
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types.auth import AuthorizationServerMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from syncmcp.auth.client_auth import ClientAssertion
    from syncmcp.auth.steps import Fetched, FetchSteps

__all__ = ["EnterpriseManaged"]

_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - a word of the protocol
_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"


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
        self._id_token = Source(id_token, "the ID token")
        self._idp_issuer = idp_issuer
        self._idp_token_endpoint = idp_token_endpoint
        self._idp_assertion = idp_assertion
        self._idp_client = Registration(
            idp_client_id,
            idp_client_secret,
            None if idp_client_secret or idp_assertion else "none",
        )
        # The user names it, so it may be private whatever the MCP server is.
        self._idp = Driver(
            _place_of(idp_issuer, idp_token_endpoint), session=options.get("session")
        )
        super().__init__(
            client_id,
            client_secret,
            issuer=issuer,
            assertion=assertion,
            **options,
        )

    def _grant(self, place: Place, scope: str | None) -> FetchSteps[Mapping[str, str | None]]:
        profiles = place.server.authorization_grant_profiles_supported
        if profiles is not None and _PROFILE not in profiles:
            raise DiscoveryFailed(
                f"the authorization server {place.server.issuer[:200]!r} does not take what"
                " identity providers hand out (authorization_grant_profiles_supported)"
            )
        yield from ()
        # By a driver of its own: its proofs and private addresses are not those of the other.
        return {"grant_type": JWT_BEARER, "assertion": self._idp.run(self._exchange(place, scope))}

    def _exchange(self, place: Place, scope: str | None) -> FetchSteps[str]:
        """What the identity provider says to the authorization server (RFC 8693 §2)."""
        idp = yield from self._provider()
        fields = {
            "grant_type": _EXCHANGE,
            "requested_token_type": _ID_JAG,
            "audience": place.server.issuer,
            "resource": place.resource,
            "scope": scope,
            "subject_token": self._id_token.read(),
            "subject_token_type": _ID_TOKEN,
        }
        return _statement((yield token_request(idp, self._idp_client, fields, self._idp_assertion)))

    def _provider(self) -> FetchSteps[AuthorizationServerMetadata]:
        endpoint, issuer = self._idp_token_endpoint, self._idp_issuer
        if issuer is None:
            return AuthorizationServerMetadata(issuer=endpoint or "", token_endpoint=endpoint)
        found = yield from find_server(issuer)
        if found is None:
            raise DiscoveryFailed(f"the identity provider {issuer!r} has no metadata")
        return found


def _place_of(issuer: str | None, endpoint: str | None) -> str:
    """Where the identity provider is.

    Raises:
        UsageError: It is not said, or said twice, or not encrypted.
    """
    place = issuer or endpoint
    if place is None or (issuer and endpoint):
        raise UsageError("give one of idp_issuer and idp_token_endpoint")
    try:
        Link.read(place)
    except UnsafeLink as error:
        raise UsageError(f"the identity provider cannot be at {place!r}: {error.reason}") from None
    return place


def _statement(fetched: Fetched) -> str:
    """The statement in an answer of the identity provider (RFC 8693 §2.2.1).

    Raises:
        TokenRefused: The answer is an error.
        AuthError: It is something else than was asked for.
    """
    if fetched.status != 200:
        raise flow.refused(
            "the identity provider does not vouch for this sign-in",
            flow.field_of(fetched, "error"),
            flow.field_of(fetched, "error_description"),
            status=fetched.status,
        )
    statement = flow.field_of(fetched, "access_token")
    kind = flow.field_of(fetched, "token_type") or ""
    # Anything else would be a token of the identity provider, which is nobody else's business.
    if not statement or flow.field_of(fetched, "issued_token_type") != _ID_JAG:
        raise AuthError("the identity provider answered with something else than an ID-JAG")
    if kind.lower() != "n_a":
        raise AuthError("the identity provider answered with a token to use, not with an ID-JAG")
    return statement
