"""Protection against SSRF: which URLs named by a server may be used, and at which addresses.

A server that names a URL must not make this client reach hosts that the server cannot reach itself:
the user's own computer and network (RFC 9728 §7.7). `UrlGuard.check` checks a URL as it is written.
`UrlGuard.pin` checks the addresses of its host at the moment of connecting, and the connection uses
no other address. So the name cannot resolve to another address between the check and the use (DNS
rebinding).

Through a proxy only the first check is possible: the proxy looks up names, and has to refuse
addresses.
"""

from __future__ import annotations

import enum
import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from syncmcp._base.origin import split_url
from syncmcp._base.text import redact
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.connecting import look_up, resolve
from syncmcp._http.exchange import AbortableExchange, Resolve, current
from syncmcp.errors import AuthError, Delivery
from syncmcp.handlers.links import Link, UnsafeLink

if TYPE_CHECKING:
    import requests

__all__ = ["UnsafeUrl", "UrlGuard"]

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

# NAT64: IPv6 addresses whose last four bytes are an IPv4 address (RFC 6052 §2.1), and the prefix
# for local use (RFC 8215).
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = ipaddress.IPv6Network("64:ff9b:1::/48")

# Addresses of cloud metadata services outside of 169.254.0.0/16: Alibaba, Azure, Oracle, Google,
# Scaleway, and AWS, which has several in one network (metadata, credentials of pods, names).
# `ipaddress` classifies them as ordinary private or public addresses.
_CLOUD_METADATA: Final = frozenset(
    map(
        ipaddress.ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:c1::a9fe:a9fe",
            "fd20:ce::254",
            "fd00:42::42",
        ),
    )
)
_CLOUD_NETWORK: Final = ipaddress.IPv6Network("fd00:ec2::/32")

# "This network" (RFC 6890 §2.2.2); to `ipaddress` all of it but the first address is private.
_THIS_NETWORK: Final = ipaddress.IPv4Network("0.0.0.0/8")

_HTTPS_PORT: Final = 443
_LOOK_UP_SECONDS: Final = 30.0
_SHOWN: Final = 200


class UnsafeUrl(AuthError):
    """A URL, usually named by a server, must not be used; nothing was sent there."""

    reason: str = ""
    delivery: Delivery = "not_sent"


class _AddressClass(enum.Enum):
    """The kinds of addresses; the value is the name in error messages."""

    PUBLIC = "a public address"
    PRIVATE = "an address of a private network"
    LOOPBACK = "an address of this computer"
    LINK_LOCAL = "an address of the local link or of cloud metadata"
    UNUSABLE = "a reserved, multicast or invalid address"


class UrlGuard:
    """Checks the URLs named by one MCP server, and by the servers that these URLs lead to.

    A URL has to be ``https``, or ``http`` to this computer. A server on this computer may name
    hosts on it and in private networks, a server in a private network only hosts in such networks,
    a public server neither. A server counts as public unless its URL has another address, or all
    its responses came from other addresses: the owner of a name may change its address at any time.
    Thread-safe.

    Args:
        server: The URL of the MCP server, which the user chose.
        allow_private: Whether any server may name addresses of private networks and of this
            computer, also with plain ``http``; never those of the local link and of cloud metadata.
        look_up: Looks up the addresses of a host.
    """

    def __init__(
        self, server: str, *, allow_private: bool = False, look_up: Resolve = look_up
    ) -> None:
        self._server = _host(server)
        self._origin = _origin(server)
        self._allow_private = allow_private
        self._look_up = look_up
        own = _literal_class(self._server)
        self._server_kinds = set() if own is None else {own}

    def record_peer(self, response: requests.Response) -> None:
        """Record the address that a response of the server came from, if that is known."""
        address = getattr(getattr(response.raw, "connection", None), "peer", None)
        if address is not None:
            self._server_kinds.add(_address_class(address))

    def is_own(self, url: str) -> bool:
        """Whether a URL has the scheme, host and port of the server."""
        return _origin(url) == self._origin

    def check(self, url: str) -> str:
        """Return the host of `url` if the URL, as it is written, may be used.

        Raises:
            UnsafeUrl: The URL may be neither fetched nor opened in a browser.
        """
        try:
            host = Link.read(self._with_https(url)).host
        except UnsafeLink as error:
            raise _unsafe(url, error.reason) from error
        kind = _literal_class(host)
        if kind is not None:
            if kind is _AddressClass.PUBLIC and _is_plain(url):
                raise _unsafe(url, "it is not encrypted, and leads to a public address")
            self._check_kind(url, kind)
        return host

    def check_page(self, url: str) -> None:
        """Check a URL that a browser is to open; for plain ``http`` also its addresses.

        Raises:
            UnsafeUrl: It may not be opened.
            ExchangeAborted: The exchange on this thread was aborted.
        """
        host = self.check(url)
        if not _is_plain(url) or _literal_class(host) is not None:
            return
        exchange = current() or AbortableExchange(Deadline(_LOOK_UP_SECONDS))
        try:
            found = resolve(host, 0, exchange, self._look_up)
        except (OSError, UnicodeError) as error:
            raise _unsafe(url, "it is not encrypted, and its address is unknown") from error
        for one in found:
            kind = _address_class(one[4][0])
            if kind not in (_AddressClass.PRIVATE, _AddressClass.LOOPBACK):
                raise _unsafe(url, f"it is not encrypted, and leads to {kind.value}")

    def pin(self, url: str) -> Resolve:
        """Return a look-up function for `url` that finds only addresses that may be used.

        The user chose the server, so its own origin may be at a private address.

        Raises:
            UnsafeUrl: See `check`. The returned function raises it if no address may be used.
        """
        host = self.check(url)
        plain = _is_plain(url)
        loopback = _literal_class(host) is _AddressClass.LOOPBACK
        own = self.is_own(url)

        def find(name: str, port: int) -> list[Any]:
            refused: UnsafeUrl | None = None
            allowed: list[Any] = []
            for found in self._look_up(name, port):
                kind = _address_class(found[4][0])
                if kind is _AddressClass.PUBLIC and host == self._server:
                    # It stays public: the name may resolve to another address the next time.
                    self._server_kinds.add(kind)
                try:
                    if kind is not _AddressClass.LOOPBACK and loopback:
                        raise _unsafe(url, f"the name of this computer leads to {kind.value}")
                    if kind is _AddressClass.PUBLIC and plain:
                        raise _unsafe(url, "it is not encrypted, and leads to a public address")
                    self._check_kind(url, kind, own=own)
                except UnsafeUrl as error:
                    refused = error
                else:
                    allowed.append(found)
            if refused is not None and not allowed:
                raise refused
            return allowed

        return find

    def _with_https(self, url: str) -> str:
        # `Link` accepts http for this computer only.
        if self._allow_private and url[:5].lower() == "http:":
            return f"https:{url[5:]}"
        return url

    def _check_kind(self, url: str, kind: _AddressClass, *, own: bool = False) -> None:
        if kind is _AddressClass.PUBLIC:
            return
        if kind in (_AddressClass.UNUSABLE, _AddressClass.LINK_LOCAL):
            raise _unsafe(url, f"it leads to {kind.value}")
        if not (own or self._allow_private or self._server_reaches(kind)):
            raise _unsafe(url, f"it leads to {kind.value} (allow_private allows it)")

    def _server_reaches(self, kind: _AddressClass) -> bool:
        """Whether the server is where it can reach addresses of a kind that is not public."""
        kinds = self._server_kinds
        if kind is _AddressClass.LOOPBACK:
            return kinds == {kind}
        return bool(kinds) and _AddressClass.PUBLIC not in kinds


def _is_plain(url: str) -> bool:
    return split_url(url).scheme.lower() == "http"


def _host(url: str) -> str:
    return (split_url(url).hostname or "").rstrip(".")


def _origin(url: str) -> tuple[str, str, int]:
    parts = split_url(url)
    # With http only addresses and `localhost` may be used, whose origin does not matter.
    return parts.scheme.lower(), _host(url), parts.port or _HTTPS_PORT


def _literal_class(host: str) -> _AddressClass | None:
    """Return the kind of a host that is an address or `localhost`; `None` for other names."""
    if host == "localhost":
        return _AddressClass.LOOPBACK
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return None
    return _address_class(host)


def _address_class(written: str) -> _AddressClass:
    try:
        address = _embedded_ipv4(ipaddress.ip_address(written))
    except ValueError:
        return _AddressClass.UNUSABLE
    if address.is_loopback:
        return _AddressClass.LOOPBACK
    if address.is_multicast or address.is_unspecified or address.is_reserved:
        return _AddressClass.UNUSABLE
    if address in _THIS_NETWORK:
        return _AddressClass.UNUSABLE
    if _is_link_local(address):
        return _AddressClass.LINK_LOCAL
    if not address.is_global or getattr(address, "is_site_local", False):
        return _AddressClass.PRIVATE
    return _AddressClass.PUBLIC


def _is_link_local(address: _Address) -> bool:
    return address.is_link_local or address in _CLOUD_METADATA or address in _CLOUD_NETWORK


def _embedding_places(packed: bytes) -> Iterator[bytes]:
    """The four bytes of the IPv4 address, for each length of a prefix from 48 bits on.

    Only the local network knows the length. Byte 8 is always zero (RFC 6052 §2.2).
    """
    around = packed[:8] + packed[9:]
    for start in (6, 7, 8):
        yield around[start : start + 4]
    yield packed[12:]


def _embedded_ipv4(address: _Address) -> _Address:
    """Return the IPv4 address embedded in an IPv6 address, or the address itself."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    if address in _NAT64_LOCAL:
        places = map(ipaddress.IPv4Address, _embedding_places(address.packed))
        return next(filter(_is_link_local, places), ipaddress.IPv6Address("fd00::"))
    return address.ipv4_mapped or address.sixtofour or address


def _unsafe(url: object, reason: str) -> UnsafeUrl:
    text = redact(str(url))
    # Not cut: secrets in it are masked later, by their whole values.
    shown = ascii(text) if len(text) <= _SHOWN else "(too long to be shown)"
    return UnsafeUrl(f"the client refuses to use a URL: {reason}: {shown}", reason=reason)
