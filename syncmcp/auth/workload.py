"""A workload that its platform vouches for: a signed identity is traded for a token (RFC 7523).

(ext-auth workload-identity-federation)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp.auth.grants import JWT_BEARER, MachineAuth, MachineOptions
from syncmcp.auth.source import Source, SourceLike

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from syncmcp.auth.discovery import Place
    from syncmcp.auth.steps import FetchSteps

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
        self._identity = Source(assertion, "the identity of the workload")
        super().__init__(client_id, issuer=issuer, **options)

    def _grant(self, place: Place, scope: str | None) -> FetchSteps[Mapping[str, str | None]]:
        yield from ()
        return {"grant_type": JWT_BEARER, "assertion": self._identity.read(), "scope": scope}
