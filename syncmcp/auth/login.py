"""A login: a token, and what it takes to get the next one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pydantic

from syncmcp.auth.token import Registration, Token
from syncmcp.errors import AuthError
from syncmcp.types.auth import AuthorizationServerMetadata

__all__ = ["Login"]


@dataclass(frozen=True)
class Login:
    """All that belongs to one token, of one authorization server, and to none other.

    Attributes:
        token: The token.
        registration: The client that it was issued to.
        server: The authorization server that issued it.
    """

    token: Token
    registration: Registration
    server: AuthorizationServerMetadata

    def to_json(self) -> dict[str, Any]:
        """The JSON object to store."""
        return {
            "token": self.token.to_json(),
            "registration": self.registration.to_json(),
            "server": self.server.to_wire(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Login:
        """Make it from a stored JSON object.

        Raises:
            AuthError: It is none.
        """
        try:
            login = cls(
                Token.from_json(value["token"]),
                Registration.from_json(value["registration"]),
                AuthorizationServerMetadata.from_wire(value["server"]),
            )
        except (KeyError, TypeError, AttributeError, pydantic.ValidationError) as error:
            raise AuthError("what the token store holds is no login: log in again") from error
        issuers = {login.token.issuer, login.registration.issuer, login.server.issuer}
        if len(issuers) != 1:
            raise AuthError("what the token store holds is of several servers: log in again")
        return login

    def same_token(self, other: Login | None) -> bool:
        """Whether `other` has this access token."""
        return other is not None and self.token.access_token == other.token.access_token

    def without_refresh(self) -> Login:
        """The same without its refresh token, which is spent."""
        return replace(self, token=replace(self.token, refresh_token=None))
