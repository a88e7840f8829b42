"""Clients that prove who they are by a signature (RFC 7523 §2.2, §3).

Needs the extra ``oauth``: ``pip install "syncmcp-client[oauth]"``.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from syncmcp.auth.signing import SigningKey
from syncmcp.errors import RegistrationFailed

if TYPE_CHECKING:
    from syncmcp.types.auth import AuthorizationServerMetadata

__all__ = ["PrivateKeyJwt"]

# How long a statement is good for, in seconds: servers allow a minute or more, and it is made for
# one request that follows at once.
_LIFE: Final = 60


class PrivateKeyJwt:
    """Signs who the client is, anew for each request (``private_key_jwt``).

    Pass it as ``assertion=`` of `OAuth` or of one of the other grants. Used from any thread.

    Args:
        client_id: The client, or the address of its metadata document.
        key: Its private key; see `SigningKey`.
        algorithm: What to sign with; by default what the key and the server have in common.
        audience: Whom the statement is made for, instead of the issuer, for servers that want
            something else, such as their token endpoint.
        key_id: How the server tells this key from others of the client.

    Raises:
        UsageError: It is no key that can sign, or the packages of the extra are not installed.
    """

    def __init__(
        self,
        client_id: str,
        key: SigningKey | str | bytes | Path | Mapping[str, Any],
        algorithm: str | None = None,
        *,
        audience: str | None = None,
        key_id: str | None = None,
    ) -> None:
        self._client_id = client_id
        given = key if isinstance(key, SigningKey) else SigningKey(key, algorithm, key_id=key_id)
        self._key = given
        self._audience = audience

    def __call__(self, server: AuthorizationServerMetadata) -> str:
        """Return a statement for one request to an authorization server.

        Raises:
            RegistrationFailed: The server takes no algorithm that the key is made for.
        """
        accepted = server.token_endpoint_auth_signing_alg_values_supported
        algorithm = self._key.choose(accepted)
        if algorithm is None:
            raise RegistrationFailed(
                f"the authorization server {server.issuer[:200]!r} takes signatures with"
                f" {', '.join(accepted or ())[:200]}, which this key cannot make"
            )
        now = int(time.time())
        claims = {
            "iss": self._client_id,
            "sub": self._client_id,
            "aud": self._audience or server.issuer,
            "iat": now,
            "exp": now + _LIFE,
            "jti": secrets.token_urlsafe(16),
        }
        return self._key.sign(claims, algorithm)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._client_id!r}>"
