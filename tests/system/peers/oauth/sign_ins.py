"""The rows of the table of sign-ins: authorization servers, and MCP servers for their tokens."""

from __future__ import annotations

from dataclasses import dataclass

from tests.system.peers.peers import Limit

ITSELF = "itself"


@dataclass(frozen=True)
class SignIn:
    """A row of the table.

    Attributes:
        issuer: The name of the authorization server.
        server: The name of the MCP server that accepts its tokens.
        limits: The features that the two do not support.
    """

    issuer: str
    server: str
    limits: tuple[Limit, ...] = ()

    @property
    def title(self) -> tuple[str, str]:
        """The first cells of the row."""
        return self.issuer, self.server

    @property
    def name(self) -> str:
        """The name of the two in notes below the table."""
        return self.issuer if self.server == ITSELF else self.server

    def limit(self, cell: str) -> Limit | None:
        """Return the limit that applies to this cell, if there is one."""
        return next((limit for limit in self.limits if limit.cell == cell), None)


CELLS = ("login", "renewal", "more scope", "logout", "document", "DPoP", "as itself")

_OIDC_PROVIDER = "oidc-provider 9.13.3"
_PEOPLE_ALONE = (
    Limit("DPoP", "tokens are not bound to keys"),
    Limit("as itself", "only people can sign in"),
)
_ABOVE = "tested with syncmcp.testing, which checks each token separately"

JUDGING = SignIn(_OIDC_PROVIDER, "syncmcp.testing")
ASKING = SignIn(
    _OIDC_PROVIDER,
    "mcp 2.3.0",
    (
        Limit("more scope", "the refusal does not name the missing scope"),
        *(Limit(cell, _ABOVE) for cell in ("document", "DPoP", "as itself")),
    ),
)
FASTMCP = SignIn(
    "fastmcp 4.1.2",
    ITSELF,
    (
        Limit("more scope", "all tools need the same scope"),
        Limit("document", "the in-memory provider accepts only registered clients"),
        *_PEOPLE_ALONE,
    ),
)
MCP_1_9 = SignIn(
    "mcp 1.9.4",
    ITSELF,
    (
        Limit("more scope", "the refusal does not name the missing scope"),
        Limit("document", "only registered clients are accepted"),
        *_PEOPLE_ALONE,
    ),
)
DEMO = SignIn(
    "TypeScript SDK 1.32.2, demo",
    ITSELF,
    (
        Limit("renewal", "the server issues no refresh tokens"),
        Limit("more scope", "all tools need the same scope"),
        Limit("logout", "the server does not revoke tokens"),
        Limit("document", "only registered clients are accepted"),
        *_PEOPLE_ALONE,
    ),
)

SIGN_INS = (JUDGING, ASKING, FASTMCP, MCP_1_9, DEMO)
