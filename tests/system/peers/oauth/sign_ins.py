"""The lines of the table of sign-ins: who issues tokens, and who takes them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.system.peers.peers import Limit

ITSELF = "itself"


@dataclass(frozen=True)
class SignIn:
    """A line of the table.

    Attributes:
        issuer: The authorization server.
        server: The MCP server that takes its tokens.
        limits: What the two cannot do.
    """

    issuer: str
    server: str
    limits: tuple[Limit, ...] = ()

    @property
    def title(self) -> tuple[str, str]:
        """What the line begins with."""
        return self.issuer, self.server

    @property
    def name(self) -> str:
        """What to call the two."""
        return self.issuer if self.server == ITSELF else self.server

    def limit(self, cell: str) -> Limit | None:
        """Returns what keeps this cell from being tried."""
        return next((limit for limit in self.limits if limit.cell == cell), None)


CELLS = ("login", "renewal", "more scope", "logout", "document", "DPoP", "as itself")

_OIDC_PROVIDER = "oidc-provider 9.13.3"
_PEOPLE_ALONE = (
    Limit("DPoP", "its tokens are not bound to keys"),
    Limit("as itself", "it signs in people alone"),
)
_ABOVE = "tried with syncmcp.testing, where each token is judged by itself"

JUDGING = SignIn(_OIDC_PROVIDER, "syncmcp.testing")
ASKING = SignIn(
    _OIDC_PROVIDER,
    "mcp 2.3.0",
    (
        Limit("more scope", "it does not name the scope that is missing; that is an error"),
        *(Limit(cell, _ABOVE) for cell in ("document", "DPoP", "as itself")),
    ),
)
FASTMCP = SignIn(
    "fastmcp 4.1.2",
    ITSELF,
    (
        Limit("more scope", "all its tools need the same scope"),
        Limit("document", "the kind that keeps everything in memory knows registered clients only"),
        *_PEOPLE_ALONE,
    ),
)
MCP_1_9 = SignIn(
    "mcp 1.9.4",
    ITSELF,
    (
        Limit("more scope", "its refusal does not say what is missing"),
        Limit("document", "it knows registered clients only"),
        *_PEOPLE_ALONE,
    ),
)
DEMO = SignIn(
    "TypeScript SDK 1.32.2, demo",
    ITSELF,
    (
        Limit("renewal", "it issues no refresh tokens"),
        Limit("more scope", "all its tools need the same scope"),
        Limit("logout", "it takes no token back"),
        Limit("document", "it knows registered clients only"),
        *_PEOPLE_ALONE,
    ),
)

SIGN_INS = (JUDGING, ASKING, FASTMCP, MCP_1_9, DEMO)
