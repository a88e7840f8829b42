"""The values that stores contain: tokens, client registrations, logins. Frozen; secrets masked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from syncmcp._base.numbers import is_number
from syncmcp._base.text import MASK, redact
from syncmcp.errors import AuthError
from syncmcp.types.extensions import AuthorizationServerMetadata

AuthMethod: TypeAlias = Literal[
    "client_secret_basic", "client_secret_post", "none", "private_key_jwt"
]
"""How a client authenticates at the token endpoint (OAuth 2.1 §2.4)."""

R = TypeVar("R", bound="_Record")


@dataclass(frozen=True)
class _Record:
    """A value that can be stored as a JSON object, and whose `repr` masks its secrets."""

    _secret: ClassVar[frozenset[str]] = frozenset()

    def to_json(self) -> dict[str, Any]:
        """The JSON object to store."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls: type[R], value: Mapping[str, Any]) -> R:
        """Read a stored JSON object; ignore unknown members, which later versions may have added.

        Raises:
            TypeError: A required member is missing.
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
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        shown = ", ".join(
            f"{name}={MASK if name in self._secret else repr(value)}"
            for name, value in given.items()
            if value is not None
        )
        # The server may repeat a secret in another member.
        secrets = [given[name] for name in self._secret if given[name] is not None]
        return f"{type(self).__name__}({redact(shown, secrets)})"


@dataclass(frozen=True, repr=False)
class Token(_Record):
    """A token that an authorization server issued (RFC 6749 §5.1).

    Attributes:
        access_token: The secret that is sent in the header of each request.
        token_type: ``"Bearer"`` or ``"DPoP"``, in the server's spelling.
        expires_at: When the token expires, in seconds since the epoch; `None` if unknown.
        refresh_token: The secret that obtains the next token; `None` if the server issued none.
        scope: The granted scope as the server names it, or else the requested scope.
        requested: The requested scope, which a step-up extends.
        issuer: The issuer of the token: the authorization server's identifier.
        resource: The MCP server that the token is for (RFC 8707), as in the requests for it.
        client_id: The client that the token was issued to.
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

    def expired(self, now: float) -> bool:
        """Return whether the token has expired at `now`, in seconds since the epoch.

        A token without a known expiry never expires.
        """
        return self.expires_at is not None and now >= self.expires_at


@dataclass(frozen=True, repr=False)
class Registration(_Record):
    """A client as it is registered with one authorization server (RFC 7591 §3.2.1).

    Attributes:
        client_id: The client id, valid at this authorization server only.
        auth_method: How the client authenticates at the token endpoint; `None` to choose a method
            from the authorization server's metadata.
        redirect_uris: The registered redirect URIs; empty if unknown.
        expires_at: When the secret expires, in seconds since the epoch; `None` if it never expires.
    """

    _secret = frozenset({"client_secret"})

    client_id: str
    client_secret: str | None = None
    auth_method: str | None = None
    issuer: str = ""
    redirect_uris: tuple[str, ...] = ()
    expires_at: float | None = None


@dataclass(frozen=True)
class Login:
    """A token, and the client and authorization server that refresh or revoke it."""

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
        """Read a stored JSON object.

        Raises:
            AuthError: The object is not a login, or mixes several authorization servers.
        """
        try:
            login = cls(
                Token.from_json(value["token"]),
                Registration.from_json(value["registration"]),
                AuthorizationServerMetadata.from_wire(value["server"]),
            )
            for moment in (login.token.expires_at, login.registration.expires_at):
                if moment is not None and not is_number(moment):
                    raise TypeError("expires_at is not a number of seconds")
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise AuthError("the token store contains an invalid login: sign in again") from error
        issuers = {login.token.issuer, login.registration.issuer, login.server.issuer}
        if len(issuers) != 1:
            raise AuthError("the stored login mixes several authorization servers: sign in again")
        return login

    def same_token(self, other: Login | None) -> bool:
        """Return whether `other` has the same access token."""
        return other is not None and self.token.access_token == other.token.access_token
