"""A server on the official SDK, which introspects each token at the authorization server.

``official PORT ISSUER``
"""

from __future__ import annotations

import sys

import requests
from anyio import to_thread
from mcp.server.auth.provider import AccessToken, TokenVerifier
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

PATIENCE = 30.0
PATH = "/notebook"
SCOPES = ["mcp:read", "mcp:write"]


class Introspection(TokenVerifier):
    """Validates tokens by introspection at the authorization server (RFC 7662)."""

    def __init__(self, issuer: str) -> None:
        self._url = f"{issuer}/token/introspection"

    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the facts about a token; `None` if it is not active."""
        return await to_thread.run_sync(self._ask, token)

    def _ask(self, token: str) -> AccessToken | None:
        credentials = ("resource-server", "secret-of-the-tests")
        answer = requests.post(
            self._url, data={"token": token}, auth=credentials, timeout=PATIENCE
        ).json()
        if not answer["active"]:
            return None
        return AccessToken(
            token=token,
            client_id=answer["client_id"],
            scopes=answer["scope"].split(),
            expires_at=answer["exp"],
            resource=answer["aud"],
            subject=answer["sub"],
        )


def read() -> str:
    """Return a line."""
    return "a line"


port, issuer = int(sys.argv[1]), sys.argv[2]
server = MCPServer(
    "official",
    token_verifier=Introspection(issuer),
    auth=AuthSettings(
        # Not a URL object: it would add a slash at the end, which names another issuer.
        issuer_url=issuer,  # type: ignore[arg-type]
        resource_server_url=AnyHttpUrl(f"http://127.0.0.1:{port}{PATH}"),
        required_scopes=SCOPES,
        validate_token_resource=True,
    ),
    log_level="WARNING",
)
server.tool()(read)
server.run("streamable-http", port=port, streamable_http_path=PATH)
