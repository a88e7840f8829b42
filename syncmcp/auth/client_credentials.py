"""A program that signs in as itself (RFC 6749 §4.4).

(ext-auth oauth-client-credentials)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp.auth.grants import MachineAuth, MachineOptions
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from typing_extensions import Unpack

    from syncmcp.auth.client_auth import ClientAssertion
    from syncmcp.auth.discovery import Place
    from syncmcp.auth.signing import SigningKey
    from syncmcp.auth.steps import FetchSteps

__all__ = ["ClientCredentials"]


class ClientCredentials(MachineAuth):
    """Gets tokens with the client's own secret or key, for programs that nobody sits at.

    ::

        machine = ClientCredentials("a-client", client_secret=..., issuer="https://login.example")
        syncmcp.Http("https://example.com/mcp", auth=machine)

    Args:
        client_id: The client, as it was registered with the authorization server.
        client_secret: Its secret.
        private_key: Or its private key; see `SigningKey`. Needs the extra ``oauth``.
        algorithm: What to sign with; by default what the key and the server have in common.
        assertion: Or what returns a signed statement of who the client is, for the authorization
            server whose metadata it is given.
        issuer: The one authorization server that gets any of these. `None` leaves the choice to
            the MCP server, which then has to be trusted with a secret.
        **options: See `MachineOptions`.

    Raises:
        UsageError: There is not exactly one of the three ways to prove who it is.
    """

    def __init__(
        self,
        client_id: str,
        *,
        client_secret: str | None = None,
        private_key: SigningKey | str | bytes | Path | Mapping[str, Any] | None = None,
        algorithm: str | None = None,
        assertion: ClientAssertion | None = None,
        issuer: str | None,
        **options: Unpack[MachineOptions],
    ) -> None:
        ways = [way for way in (client_secret, private_key, assertion) if way is not None]
        if len(ways) != 1 or not client_id:
            raise UsageError(
                "ClientCredentials needs a client_id and one of client_secret, private_key and"
                " assertion"
            )
        if private_key is not None:
            from syncmcp.auth.assertion import PrivateKeyJwt

            assertion = PrivateKeyJwt(client_id, private_key, algorithm)
        super().__init__(
            client_id,
            client_secret,
            issuer=issuer,
            assertion=assertion,
            **options,
        )

    def _grant(self, place: Place, scope: str | None) -> FetchSteps[Mapping[str, str | None]]:
        yield from ()
        return {"grant_type": "client_credentials", "scope": scope}
