"""Sign in with OAuth, with the official SDK."""

from __future__ import annotations

import asyncio
import sys
import webbrowser

import httpx2
from mcp import Client
from mcp.client.auth import (
    OAuthClientProvider,
    TokenStorage,
)
from mcp.client.streamable_http import (
    streamable_http_client,
)
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthToken,
)
from pydantic import AnyUrl

url = sys.argv[1]


class InMemory(TokenStorage):
    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(
        self, tokens: OAuthToken
    ) -> None:
        self.tokens = tokens

    async def get_client_info(
        self,
    ) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(
        self, client_info: OAuthClientInformationFull
    ) -> None:
        self.client = client_info


async def show(address: str) -> None:
    webbrowser.open(address)


async def read_answer() -> AuthorizationCodeResult:
    # Or run a web server at redirect_uris.
    line = await asyncio.to_thread(input, "Address: ")
    params = dict(httpx2.URL(line).params)
    return AuthorizationCodeResult(**params)


async def main() -> None:
    login = OAuthClientProvider(
        url,
        OAuthClientMetadata(
            client_name="Example",
            redirect_uris=[
                AnyUrl(
                    "http://127.0.0.1:51763/callback"
                )
            ],
        ),
        InMemory(),
        redirect_handler=show,
        callback_handler=read_answer,
    )
    async with httpx2.AsyncClient(auth=login) as http:
        transport = streamable_http_client(
            url, http_client=http
        )
        async with Client(transport) as client:
            tools = await client.list_tools()
            print(tools.tools[0].name)


asyncio.run(main())
