"""Getting tokens without a person: what the grants for machines share."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from syncmcp.auth import flow
from syncmcp.auth.client_auth import token_request
from syncmcp.auth.discovery import discover
from syncmcp.auth.login import Login
from syncmcp.auth.scope import missing, select
from syncmcp.auth.step_up import pointless
from syncmcp.auth.token import Registration, Token
from syncmcp.auth.token_auth import TokenAuth
from syncmcp.errors import AuthError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import requests
    from typing_extensions import Unpack

    from syncmcp.auth.client_auth import ClientAssertion
    from syncmcp.auth.discovery import Place
    from syncmcp.auth.keeper import Held
    from syncmcp.auth.need import Need
    from syncmcp.auth.signing import SigningKey
    from syncmcp.auth.single_flight import Flight
    from syncmcp.auth.steps import FetchSteps
    from syncmcp.auth.store import TokenStore

__all__ = ["JWT_BEARER", "MachineAuth", "MachineOptions"]

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
    def _client(self) -> str:
        # Others may have a login of the same client with a person.
        return f"{type(self).__name__} {self._client_id}"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("credentials are not pickled: make the object again where it is needed")

    @abstractmethod
    def _grant(self, place: Place, scope: str | None) -> FetchSteps[Mapping[str, str | None]]:
        """What proves the right to a token: fields of the token request.

        Raises:
            AuthError: It cannot be had.
        """

    def _obtain(self, need: Need, flight: Flight[Held]) -> Login:
        site = self._bound()
        earlier = None if need.refused is None else need.refused.server.issuer
        hint = need.demand.resource_metadata
        place = site.driver.run(discover(site.url, hint, issuer=self._issuer, known=earlier))
        issuer = place.server.issuer
        if earlier not in (None, issuer):
            raise AuthError(
                f"the server now takes tokens of {issuer[:200]!r}; these credentials belong to"
                f" {earlier!r}"
            )
        scope = select(
            place,
            challenged=need.demand.scope,
            configured=self._scopes,
            earlier=need.earlier,
            offline=False,
        )
        if need.more and not missing(scope, need.earlier):
            raise pointless(
                "the server wants more scope without naming any that was not asked for already"
            )
        method = None if self._client_secret or self._assertion else "none"
        # Without the secret, which the store has no need to know.
        registration = Registration(self._client_id, auth_method=method, issuer=issuer)
        token = site.driver.run(self._token(place, self._proving(registration), scope))
        return Login(token, registration, place.server)

    def _proving(self, registration: Registration) -> Registration:
        return replace(registration, client_secret=self._client_secret)

    def _token(
        self, place: Place, registration: Registration, scope: str | None
    ) -> FetchSteps[Token]:
        fields = yield from self._grant(place, scope)
        asked = {**fields, "resource": place.resource}
        fetched = yield token_request(place.server, registration, asked, self._assertion)
        base = Token(
            access_token="",
            requested=scope,
            issuer=place.server.issuer,
            resource=place.resource,
            client_id=self._client_id or None,
        )
        token = flow.read_token(fetched, base, time.time())
        # What got this one gets the next one (RFC 6749 §4.4.3).
        return replace(token, refresh_token=None)
