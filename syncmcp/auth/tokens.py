"""Tokens, and logins, which are a token and what gets the next one; frozen, masked, storable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import pydantic

from syncmcp._base.text import MASK
from syncmcp.errors import AuthError
from syncmcp.types.extensions import AuthorizationServerMetadata

__all__ = ["AuthMethod", "Login", "Registration", "Token"]


AuthMethod: TypeAlias = Literal[
    "client_secret_basic", "client_secret_post", "none", "private_key_jwt"
]
"""How a client proves itself at the token endpoint (OAuth 2.1 §2.4)."""

R = TypeVar("R", bound="_Record")


@dataclass(frozen=True)
class _Record:
    """What can be stored as a JSON object, and keeps its secrets to itself."""

    _secret: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The JSON object to store."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls: type[R], value: Mapping[str, Any]) -> R:
        """Make it from a stored JSON object; members that a later version wrote are dropped.

        Raises:
            TypeError: A member that is needed is missing.
        """
        known = {one.name for one in fields(cls)}
        return cls(
            **{
                name: tuple(member) if isinstance(member, list) else member
                for name, member in value.items()
                if name in known
            }
        )

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{one.name}={MASK if one.name in self._secret else getattr(self, one.name)!r}"
            for one in fields(self)
            if getattr(self, one.name) is not None
        )
        return f"{type(self).__name__}({shown})"


@dataclass(frozen=True, repr=False)
class Token(_Record):
    """What an authorization server issued (RFC 6749 §5.1), and for what.

    Attributes:
        access_token: The secret that goes into the header of each request.
        token_type: ``"Bearer"`` or ``"DPoP"``, as the server wrote it.
        expires_at: When it expires, in seconds since the epoch; `None` if nobody said.
        refresh_token: What gets the next one, if there is anything.
        scope: The scope granted: as the server says, else what was asked for.
        requested: The scope asked for, which a step-up adds to.
        issuer: The authorization server.
        resource: The MCP server that it is for, as both requests named it (RFC 8707).
        client_id: The client that it was issued to.
    """

    _secret = frozenset({"access_token", "refresh_token"})

    access_token: str
    token_type: str = "Bearer"  # noqa: S105 - a word of the protocol
    expires_at: float | None = None
    refresh_token: str | None = None
    scope: str | None = None
    requested: str | None = None
    issuer: str = ""
    resource: str | None = None
    client_id: str | None = None

    def expired(self, now: float, early: float = 0.0) -> bool:
        """Whether it has expired at `now`, or will within `early` seconds."""
        return self.expires_at is not None and now + early >= self.expires_at


@dataclass(frozen=True, repr=False)
class Registration(_Record):
    """A client as one authorization server knows it (RFC 7591 §3.2.1), and no other does.

    Attributes:
        client_id: Its name there.
        client_secret: Its secret, if it has one.
        auth_method: How it proves itself at the token endpoint; `None`: as the metadata has it.
        issuer: The authorization server.
        redirect_uris: Where answers may go; empty if that is not known here.
        expires_at: When the secret expires, in seconds since the epoch; `None`: never.
    """

    _secret = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None
    issuer: str = ""
    redirect_uris: tuple[str, ...] = ()
    expires_at: float | None = None


# A login: a token, and what it takes to get the next one.


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
