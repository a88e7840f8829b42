"""A server on the official SDK 1.9 that is its own authorization server: ``official_1 PORT``.

Its newest revision is 2025-03-26, in which no metadata of the server names the issuer.
"""

from __future__ import annotations

import secrets
import sys
import time
from typing import Any

from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.fastmcp import FastMCP  # type: ignore[attr-defined]  # gone from 2.x
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

AN_HOUR = 3600


class Logins:
    """An authorization server in memory, which authorizes every registered client."""

    def __init__(self) -> None:
        self.clients: dict[str | None, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: Any, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(32)
        facts: dict[str, Any] = {**params.model_dump(exclude={"state", "scopes"})}
        facts.update(client_id=client.client_id or "", expires_at=time.time() + AN_HOUR)
        self.codes[code] = AuthorizationCode(code=code, scopes=params.scopes or [], **facts)
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    async def exchange_authorization_code(
        self, client: Any, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(authorization_code.client_id, authorization_code.scopes)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: Any, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refresh[refresh_token.token]
        return self._issue(refresh_token.client_id, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _issue(self, client: str, scopes: list[str]) -> OAuthToken:
        facts: dict[str, Any] = {"client_id": client, "scopes": scopes}
        access, refresh = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        until = int(time.time()) + AN_HOUR
        self.access[access] = AccessToken(token=access, expires_at=until, **facts)
        self.refresh[refresh] = RefreshToken(token=refresh, **facts)
        return OAuthToken(
            access_token=access,
            token_type="bearer",  # type: ignore[arg-type]  # another spelling in 2.x
            expires_in=AN_HOUR,
            refresh_token=refresh,
        )


port = int(sys.argv[1])
logins = Logins()
server = FastMCP(
    "official",
    port=port,
    log_level="WARNING",
    auth_server_provider=logins,
    auth=AuthSettings(  # type: ignore[call-arg]  # 2.x requires more arguments
        issuer_url=f"http://127.0.0.1:{port}",  # type: ignore[arg-type]
        client_registration_options=ClientRegistrationOptions(enabled=True),
        revocation_options=RevocationOptions(enabled=True),
        required_scopes=[],
    ),
)


def read() -> str:
    """Return a line."""
    return "a line"


def expire() -> int:
    """Expire all access tokens; return their number."""
    for token in logins.access.values():
        token.expires_at = 1
    return len(logins.access)


for tool in (read, expire):
    server.tool()(tool)
server.run("streamable-http")
