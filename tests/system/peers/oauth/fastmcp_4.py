"""A server on FastMCP 4 that is its own authorization server: ``fastmcp_4 PORT``."""

from __future__ import annotations

import sys

from fastmcp import FastMCP  # type: ignore[import-not-found]  # in its own environment
from fastmcp.server.auth.auth import (  # type: ignore[import-not-found]
    ClientRegistrationOptions,
    RevocationOptions,
)
from fastmcp.server.auth.providers.in_memory import (  # type: ignore[import-not-found]
    InMemoryOAuthProvider,
)

port = int(sys.argv[1])
logins = InMemoryOAuthProvider(
    base_url=f"http://127.0.0.1:{port}",
    client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=["notes"]),
    revocation_options=RevocationOptions(enabled=True),
    required_scopes=["notes"],
)
server = FastMCP("fastmcp", auth=logins)


@server.tool  # type: ignore[untyped-decorator]
def read() -> str:
    """Return a line."""
    return "a line"


@server.tool  # type: ignore[untyped-decorator]
def expire() -> int:
    """Expire all access tokens; return their number."""
    for token in logins.access_tokens.values():
        token.expires_at = 1
    return len(logins.access_tokens)


server.run("http", port=port, show_banner=False, log_level="WARNING")
