"""Which URLs that a server named may be used, and at which addresses.

A server that sends us somewhere must not make us reach what it cannot reach itself: the user's own
machine and network (RFC 9728 §7.7). `UrlGuard.check` looks at a URL as it is written;
`UrlGuard.pin` looks at the addresses behind its host, in the moment of connecting, and the wire
connects to nothing else. So a name cannot lead elsewhere between the check and the use.

Through a proxy only the first half is possible: it is the proxy that looks names up, and that has
to refuse addresses.
"""

from __future__ import annotations

import enum
import ipaddress
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.connections import look_up, resolve
from syncmcp._http.exchange import AbortableExchange, Resolve, current
from syncmcp.errors import AuthError, Delivery
from syncmcp.handlers.links import Link, UnsafeLink

if TYPE_CHECKING:
    import requests

__all__ = ["UnsafeUrl", "UrlGuard"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses of IPv6 whose last four bytes are one of IPv4 (RFC 6052 §2.1), and those of RFC 8215.
_EMBEDDING: Final = ipaddress.IPv6Network("64:ff9b::/96")
_EMBEDDING_AT_HOME: Final = ipaddress.IPv6Network("64:ff9b:1::/48")

# Where clouds tell a machine its secrets beside 169.254.0.0/16: Alibaba, Azure, Oracle, AWS, Google
# and Scaleway. To `ipaddress` they are private, or public, like any other.
_CLOUDS: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd20:ce::254",
            "fd00:42::42",
        ),
    )
)

# "This network" (RFC 6890 §2.2.2); `ipaddress` takes all of it but the first for private.
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")

_LOOK_UP_SECONDS: Final = 30.0
_SHOWN: Final = 200


class UnsafeUrl(AuthError):
    """A server named a URL that must not be used; nothing was sent there.

    Attributes:
        reason: What is wrong with it.
    """

    reason: str = ""
    delivery: Delivery = "not_sent"


class _AddressClass(enum.Enum):
    """Whose an address is; the value is what a message calls it."""

    PUBLIC = "a public address"
    PRIVATE = "an address of a private network"
    HERE = "an address of this computer"
    LINK = "an address of the local link or of cloud metadata"
    NOBODY = "an address that is nobody's"


class UrlGuard:
    """Judges the URLs that one MCP server, and what it led to, names.

    It has to be ``https``, or ``http`` to this computer. A server on this computer or in a private
    network may name others there, a public one may not. Used from any thread.

    Args:
        server: The URL of the MCP server, which the user chose.
        allow_private: Whether private addresses may be named by whomever, also with ``http``.
        look_up: What finds the addresses of a host, as `socket.getaddrinfo` returns them.
    """

    def __init__(
        self, server: str, *, allow_private: bool = False, look_up: Resolve = look_up
    ) -> None:
        self._server = (urlsplit(server).hostname or "").rstrip(".")
        self._allow_private = allow_private
        self._look_up = look_up
        self._found: frozenset[_AddressClass] = frozenset()
        self._met: set[_AddressClass] = set()

    def meet(self, response: requests.Response) -> None:
        """Note where an answer of the server came from, if it came over our own connections.

        A name could lead to a private address when we ask whose the server is, only then.
        """
        address = getattr(getattr(response.raw, "connection", None), "peer", None)
        if address is not None:
            self._met.add(_place(address))

    def check(self, url: str) -> str:
        """Return the host of `url`, if the URL may be used as far as it tells by itself.

        Nothing is looked up but the server's own name, once, if it matters whose the server is.

        Raises:
            UnsafeUrl: It may not be fetched, and not be opened in a browser either.
            Cut: The exchange on this thread was cut.
        """
        try:
            host = Link.read(self._secured(url)).host
        except UnsafeLink as error:
            raise _unsafe(url, error.reason) from error
        place = _written_place(host)
        if place is not None:
            self._agree(url, place)
        return host

    def pin(self, url: str) -> Resolve:
        """Return what finds the addresses to connect to for `url`, and none that may not be used.

        Raises:
            UnsafeUrl: See `check`. What is returned raises it when no address is left.
        """
        host = self.check(url)
        plain = urlsplit(url).scheme.lower() == "http"
        here = _written_place(host) is _AddressClass.HERE

        def find(name: str, port: int) -> list[Any]:
            refused: UnsafeUrl | None = None
            agreed: list[Any] = []
            answers = self._look_up(name, port)
            if host == self._server:
                # What the name leads to the next time is up to whoever owns it.
                self._met.update(_place(one[4][0]) for one in answers)
            for found in answers:
                place = _place(found[4][0])
                try:
                    if place is not _AddressClass.HERE and here:
                        raise _unsafe(url, f"the name of this computer leads to {place.value}")
                    if place is _AddressClass.PUBLIC and plain:
                        raise _unsafe(url, "it is not encrypted, and leads to a public address")
                    self._agree(url, place)
                except UnsafeUrl as error:
                    refused = error
                else:
                    agreed.append(found)
            if refused is not None and not agreed:
                raise refused
            return agreed

        return find

    def _secured(self, url: str) -> str:
        # `Link` has http for this computer only.
        if self._allow_private and url[:5].lower() == "http:":
            return f"https:{url[5:]}"
        return url

    def _agree(self, url: str, place: _AddressClass) -> None:
        if place is _AddressClass.PUBLIC:
            return
        if place is _AddressClass.NOBODY:
            raise _unsafe(url, f"it leads to {place.value}")
        if self._allow_private:
            return
        if place is _AddressClass.LINK or self._server_is_public():
            raise _unsafe(url, f"it leads to {place.value} (allow_private would allow that)")

    def _server_is_public(self) -> bool:
        if not self._found:
            self._found = self._look_up_server()
        places = self._found | self._met
        return _AddressClass.PUBLIC in places or not places

    def _look_up_server(self) -> frozenset[_AddressClass]:
        place = _written_place(self._server)
        if place is not None:
            return frozenset({place})
        exchange = current() or AbortableExchange(Deadline(_LOOK_UP_SECONDS))
        try:
            found = resolve(self._server, 0, exchange, self._look_up)
        except (OSError, UnicodeError):  # perhaps only a proxy knows it
            return frozenset()
        return frozenset(_place(one[4][0]) for one in found)


def _written_place(host: str) -> _AddressClass | None:
    """Whose a host is that tells it by itself."""
    if host == "localhost":
        return _AddressClass.HERE
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return _place(host)


def _place(written: str) -> _AddressClass:
    try:
        address = _innermost(ipaddress.ip_address(written))
    except ValueError:
        return _AddressClass.NOBODY
    if address.is_loopback:
        return _AddressClass.HERE
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return _AddressClass.NOBODY
    if address in _THIS_NETWORK:
        return _AddressClass.NOBODY
    if address.is_link_local or address in _CLOUDS:
        return _AddressClass.LINK
    if not address.is_global or getattr(address, "is_site_local", False):
        return _AddressClass.PRIVATE
    return _AddressClass.PUBLIC


def _innermost(address: _Address) -> _Address:
    """The address of IPv4 that one of IPv6 stands for, if it does."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _EMBEDDING:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _EMBEDDING_AT_HOME:
        return ipaddress.IPv6Address("fd00::")
    return address.ipv4_mapped or address.sixtofour or address


def _unsafe(url: object, reason: str) -> UnsafeUrl:
    shown = ascii(redact(str(url)[:_SHOWN]))
    return UnsafeUrl(f"the server named a URL that is not used: {reason}: {shown}", reason=reason)
