"""Agreement to sign in at an issuer: the request, and the issuers that a program allows; no I/O.

The MCP server itself names the authorization server. So no person is sent to that server, and no
client is registered there, before the program or a person has agreed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeAlias

from syncmcp._base.checks import check_callable, program_failed
from syncmcp._base.origin import origin_of
from syncmcp._base.text import redact, redact_url
from syncmcp.auth.discovery import is_wider
from syncmcp.errors import LoginRequired, UsageError
from syncmcp.handlers.links import Link, UnsafeLink
from syncmcp.types.extensions import AuthorizationServerMetadata

Allow: TypeAlias = str | Collection[str] | Callable[[str, str], bool]
"""One or several allowed issuers, or a function that decides on an MCP server and an issuer."""

_MOST_SHOWN = 300

# A host name with more parts than this may begin with the name of another host.
_MOST_PARTS = 3

_ORIGIN = re.compile(r"[^/?#]*//[^/?#]*")
_HTTP = re.compile("^http:", re.IGNORECASE)


@dataclass(frozen=True)
class SignInRequest:
    """A sign-in that the program or a person has to agree to before it begins.

    Attributes:
        server: The URL of the MCP server, with the values of its query removed.
        issuer: The issuer of the authorization server that the MCP server names, unchanged. If the
            MCP server names none, this is the origin of the MCP server.
        page: The origin of the sign-in page, if it belongs to another site than the issuer;
            otherwise `None`. It is also `None` if the issuer advertises the parameter ``iss`` of
            the redirect (RFC 9207). Without ``iss``, such a page may be that of another
            authorization server, whose code the issuer would get (mix-up, RFC 9700 §4.4).
        resource: The resource that the token is for, unchanged, if that is the origin or a parent
            path of the MCP server (RFC 9728 §3.3). All servers there accept the token, and each of
            them can use the token at the others. `None` otherwise.
        assumed: Whether `issuer` is only assumed to be an authorization server, because the MCP
            server has no metadata. Servers of 2025-03-26 may have none. Such a server may want a
            token of another kind.
    """

    server: str
    issuer: str
    page: str | None = None
    resource: str | None = None
    assumed: bool = field(default=False, compare=False)

    @classmethod
    def of(
        cls,
        url: str,
        metadata: AuthorizationServerMetadata,
        resource: str | None,
        *,
        assumed: bool = False,
    ) -> SignInRequest:
        """Make the request of the MCP server at `url`, for an issuer with these metadata.

        `resource` is the resource that the token is for; `None` if a stored token does not name it.
        """
        endpoint = metadata.authorization_endpoint
        page = None
        if endpoint is not None and not metadata.authorization_response_iss_parameter_supported:
            origin = origin_of(endpoint)
            page = None if origin == origin_of(metadata.issuer) else str(origin)
        wider = resource if resource is not None and is_wider(resource, url) else None
        return cls(redact(url), metadata.issuer, page, wider, assumed)

    @property
    def text(self) -> str:
        """The text for a person who is to agree, in ASCII, with escapes for the rest."""
        text = f"The server {_shown(self.server)}\nwants you to sign in at {_shown(self.issuer)}\n"
        if self.assumed:
            text += "The server does not say where: the address is the server's own.\n"
        text += _warnings(self.issuer)
        if self.resource is not None:
            text += (
                f"The token will be for {_shown(self.resource)}, which is more than this server\n"
                "The server can use it at all other servers there: agree only if you trust this"
                " server with all of them.\n"
            )
        if self.page is not None:
            text += (
                f"The sign-in page belongs to another site, {_shown(self.page)}\n"
                "The issuer gets what you grant on that page: agree only if you know that the two "
                "belong together.\n"
            )
            text += _warnings(self.page)
        return text


class Allowed:
    """The issuers at which a program allows to sign in: the argument ``allow`` of `OAuth`.

    `issuers` are the URLs in `given`. It is empty if `given` is a function.

    Raises:
        UsageError: `given` is neither a function nor one or several URLs.
    """

    def __init__(self, given: Allow) -> None:
        self.issuers: tuple[str, ...] = ()
        self._decide: Callable[[str, str], bool] | None = None
        if isinstance(given, str):
            self.issuers = (given,)
        elif isinstance(given, Collection):
            self.issuers = tuple(given)
        elif callable(given):
            check_callable(given, "allow", ("server", "issuer"))
            self._decide = given
        else:
            raise UsageError(
                f"allow must be an issuer, several issuers or a function, not {given!r}"
            )
        for issuer in self.issuers:
            if not str(issuer).lower().startswith(("https://", "http://")):
                raise UsageError(
                    f"allow must name issuers by their URLs, not {redact_url(str(issuer))!r}"
                )

    def includes(self, request: SignInRequest) -> bool:
        """Return whether the program allows the sign-in.

        Raises `UsageError` if the program's function fails.
        """
        if self._decide is not None:
            try:
                return self._decide(request.server, request.issuer) is True
            except Exception as error:
                raise program_failed("allow", error) from error
        return request.issuer in self.issuers


def not_agreed(request: SignInRequest, why: str) -> LoginRequired:
    """Return the error of a sign-in without an agreement; its hint names the option that agrees.

    `why` is the beginning of the message.
    """
    option, more = "allow", ""
    if request.page is not None:
        option, more = "issuer", f" on a page of {_shown(request.page)}"
    if request.resource is not None:
        more += f" for a token for {_shown(request.resource)}"
    server = _shown(request.server)
    whose = f"because {server} does not say where" if request.assumed else f"which {server} names"
    return LoginRequired(
        f"{why} to sign in at {_shown(request.issuer)!r}{more}, {whose}",
        hint=f"if you trust this issuer, pass it to OAuth as {option}=",
    )


def _warnings(url: str) -> str:
    """Return warnings about a host that a person could mistake for another one."""
    try:
        # Plain http is refused elsewhere, or allowed by the program.
        link = Link.read(_HTTP.sub("https:", url))
    except UnsafeLink as error:
        return f"Warning: {error.reason}.\n"
    notes = list(link.warnings)
    parts = link.host.split(".")
    if len(parts) > _MOST_PARTS and not parts[-1].isdigit():
        notes.append(f"Its host ends with {'.'.join(parts[-3:])}: that end shows who owns it.")
    return "".join(f"Warning: {ascii(note)[1:-1]}\n" for note in notes)


def _shown(url: str) -> str:
    """Return a URL in ASCII; if it is long, only its origin: part of a secret is not masked."""
    text = ascii(url)[1:-1]
    if len(text) <= _MOST_SHOWN:
        return text
    origin = _ORIGIN.match(text)
    if origin is None or origin.end() > _MOST_SHOWN:
        return "(too long to be shown)"
    return f"{origin[0]}... ({len(text) - origin.end():,} more characters)"
