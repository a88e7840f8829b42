"""A workload that its platform vouches for: a signed identity is traded for a token (RFC 7523).

(ext-auth workload-identity-federation)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp.auth.grants import JWT_BEARER, MachineAuth
from syncmcp.auth.source import Source, SourceLike

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import requests

    from syncmcp.auth.discovery import Place
    from syncmcp.auth.signing import SigningKey
    from syncmcp.auth.steps import FetchSteps
    from syncmcp.auth.store import TokenStore

__all__ = ["WorkloadIdentity"]


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
        url: The MCP server; by default that of the first request.
        scopes: What to ask for instead of what the server's metadata list.
        store: Where tokens are kept; by default in memory.
        session: Where proxies and certificates for the authorization server come from.
        allow_private: Whether a public server may name private addresses.
        dpop: Whether tokens are bound to a key, as with `OAuth`.

    Raises:
        UsageError: The identity can be none.
    """

    def __init__(
        self,
        assertion: SourceLike,
        *,
        issuer: str | None,
        client_id: str = "",
        url: str | None = None,
        scopes: Iterable[str] | None = None,
        store: TokenStore | None = None,
        session: requests.Session | None = None,
        allow_private: bool = False,
        dpop: bool | SigningKey = False,
    ) -> None:
        self._identity = Source(assertion, "the identity of the workload")
        super().__init__(
            client_id,
            url=url,
            issuer=issuer,
            scopes=scopes,
            store=store,
            session=session,
            allow_private=allow_private,
            dpop=dpop,
        )

    def _grant(self, place: Place, scope: str | None) -> FetchSteps[Mapping[str, str | None]]:
        yield from ()
        return {"grant_type": JWT_BEARER, "assertion": self._identity.read(), "scope": scope}
