"""Links: checked URLs to which a server sends a person (spec: "Elicitation").

`Link.read` decides whether a URL may be shown as a link, and lists what is suspicious about the
URL. This module opens no URL, fetches no URL and resolves no host. Servers send links since
2025-11-25.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import idna

from syncmcp.errors import UsageError

__all__ = ["Link", "UnsafeLink"]

MAX_LINK: Final = 8_192
"""The longest URL, in characters."""

_Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{0,30}):")
_WEB = re.compile(r"(https?)://([^/?#]*)", re.IGNORECASE)
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
# Browsers read a host with such a last label as an address: 127.1, 0x7f.0.0.1, 2130706433.
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Characters that no URL contains; the program that opens a URL may interpret them.
_FORBIDDEN: Final = frozenset('\\<>"`')
_USUAL_PORT: Final = {"http": 80, "https": 443}
_THIS_COMPUTER: Final = "localhost"
# Names that hosts files give to the loopback addresses, besides `localhost` and its subdomains.
_ITS_NAMES: Final = frozenset(
    {"localhost6", "ip6-localhost", "ip6-loopback", "localhost.localdomain", "localhost4"}
    | {"localhost4.localdomain4", "localhost6.localdomain6", "loopback"}
)

# Scripts that are legitimately mixed; any other mixture within a label is suspicious.
_TOGETHER: Final = (
    frozenset({"LATIN", "CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"LATIN", "CJK", "HANGUL"}),
    frozenset({"LATIN", "CJK", "BOPOMOFO"}),
)


class UnsafeLink(UsageError):
    """A URL that must neither be shown as a link nor opened.

    Attributes:
        reason: The reason why the URL is refused.
    """

    reason: str = ""


@dataclass(frozen=True)
class Link:
    """A URL that may be shown to a person, and opened once the person has agreed.

    >>> from syncmcp.handlers.links import Link
    >>> link = Link.read("https://login.example.com:8443/pay?id=7")
    >>> link.host, *link.warnings
    ('login.example.com', 'The address leads to an unusual port: 8443.')

    Attributes:
        url: The whole URL, unchanged. It has no spaces, and no control or invisible characters.
            Non-ASCII characters are only in the host.
        host: The host as the network sees it: lower case, Punycode, no brackets, no port.
        parts: The URL in three parts, before, in and after the host, so that a user interface can
            highlight the host.
        warnings: What a person should know before agreeing, in sentences.
    """

    url: str
    host: str
    parts: tuple[str, str, str]
    warnings: tuple[str, ...] = ()

    @classmethod
    def read(cls, url: str) -> Link:
        """Parse a URL: ``https``, or ``http`` to this computer (``localhost``, loopback addresses).

        Raises:
            UnsafeLink: The text is not such a URL, or is written in a misleading way.
        """
        _check_characters(url)
        web = _match_web_url(url)
        found = _HOST_AND_PORT.fullmatch(web[2])
        if found is None:
            raise _unsafe("its host and port cannot be parsed")
        scheme, written = web[1].lower(), found[1]
        port = None if found[2] is None else int(found[2])
        if port is not None and not 0 < port < 65_536:
            raise _unsafe("its port is out of range")
        start = web.start(2)
        end = start + len(written)
        if not url[:start].isascii() or not url[end:].isascii():
            raise _unsafe("it has non-ASCII characters that are not percent-encoded")
        host = _Host.read(written)
        if scheme == "http" and not (host.text == _THIS_COMPUTER or host.is_loopback):
            raise _unsafe("it is not encrypted: http is for this computer only")
        warnings = host.warnings()
        if host.is_local:
            warnings.append("The address leads to a program on this computer.")
        elif port not in (None, _USUAL_PORT[scheme]):
            warnings.append(f"The address leads to an unusual port: {port}.")
        return cls(url, host.text, (url[:start], url[start:end], url[end:]), tuple(warnings))


def host_warnings(host: str) -> list[str]:
    """Return warnings for a person about the host of a URL, in sentences.

    Args:
        host: A name or an address. An address of IPv6 is in brackets.
    """
    try:
        return _Host.read(host).warnings()
    except UnsafeLink as error:
        return [f"The address is written in a misleading way: {error.reason}."]


class _Label(NamedTuple):
    """One label of a host name, in ASCII (Punycode) and in Unicode."""

    ascii: str
    read: str

    @classmethod
    def of(cls, label: str) -> _Label:
        lower = label.lower()
        if label.isascii():
            if not _LABEL.fullmatch(lower):
                raise _unsafe("its host is not a valid host name")
            if not lower.startswith("xn--"):
                return cls(lower, lower)
        elif len(lower) > 63:
            raise _unsafe("a part of its host name is too long")
        try:
            read = idna.ulabel(lower)
            found = cls(idna.alabel(read).decode("ascii"), read)
        except idna.IDNAError as error:
            raise _unsafe("a part of its host is not a valid international name (IDNA)") from error
        not_canonical = label.isascii() and found.ascii != lower
        # `lower` turns the Kelvin sign into an ASCII letter; joiners are invisible.
        if not_canonical or read.isascii() or not read.isprintable():
            raise _unsafe("its host has misleading characters")
        return found

    def warning(self) -> str | None:
        """Return a warning if the label mixes letters of several scripts, else `None`."""
        scripts = {_script(letter) for letter in self.read if letter.isalpha()}
        if len(scripts) > 1 and not any(scripts <= together for together in _TOGETHER):
            mixture = " and ".join(sorted(map(str.capitalize, scripts)))
            return f"'{self.read}' in its host mixes letters of several scripts: {mixture}."
        return None


class _Host(NamedTuple):
    """A host name or address."""

    text: str
    labels: tuple[_Label, ...] = ()
    address: _Address | None = None

    @classmethod
    def read(cls, written: str) -> _Host:
        if written.startswith("["):
            if "%" in written:
                raise _unsafe("its address names a network interface of this computer")
            try:
                address = ipaddress.IPv6Address(written[1:-1])
            except ValueError as error:
                raise _unsafe("its address is not an IPv6 address") from error
            return cls(str(address), address=address)
        name = written.removesuffix(".")
        if not name:
            raise _unsafe("it has no host")
        labels = tuple(_Label.of(label) for label in name.split("."))
        text = ".".join(label.ascii for label in labels)
        if len(text) > 253:
            raise _unsafe("its host name is too long")
        if _NUMBER.fullmatch(labels[-1].ascii):
            try:
                return cls(text, address=ipaddress.IPv4Address(text))
            except ValueError as error:
                raise _unsafe("its host is an address in an unusual notation") from error
        return cls(text, labels)

    @property
    def is_loopback(self) -> bool:
        """Whether the host is a loopback address."""
        return self.address is not None and bool(_unmapped(self.address).is_loopback)

    @property
    def is_local(self) -> bool:
        """Whether programs resolve the host to this computer, under any name or address."""
        if self.address is not None:
            return self.is_loopback or bool(_unmapped(self.address).is_unspecified)
        return self.labels[-1].ascii == _THIS_COMPUTER or self.text in _ITS_NAMES

    def warnings(self) -> list[str]:
        """Return what is suspicious about the host, in sentences."""
        if self.address is not None:
            return [] if self.is_local else [f"The host is a bare address: {self.text}."]
        found: list[str] = []
        read = ".".join(label.read for label in self.labels)
        if read != self.text:
            found.append(
                f"The host has non-ASCII letters, which can look like others: {self.text} reads"
                f" '{read}'."
            )
        found.extend(warning for label in self.labels if (warning := label.warning()) is not None)
        first, *others = [label.ascii for label in self.labels]
        digits = len(others) > 3 and all(map(str.isdigit, (first, *others[:3])))
        if not self.is_local and others and (first == _THIS_COMPUTER or digits):
            found.append(f"The host only begins like an address; it is {self.text}.")
        return found


def _unmapped(address: _Address) -> _Address:
    return getattr(address, "ipv4_mapped", None) or address


def _check_characters(url: object) -> None:
    if not isinstance(url, str):
        raise _unsafe("it is not a string")
    if len(url) > MAX_LINK:
        raise _unsafe(f"it has more than {MAX_LINK} characters")
    if not url.isprintable() or " " in url:  # invisible and bidirectional marks are not printable
        raise _unsafe("it has spaces, control characters or invisible characters")
    if not _FORBIDDEN.isdisjoint(url):
        raise _unsafe("it has characters that URLs cannot contain")


def _match_web_url(url: str) -> re.Match[str]:
    web = _WEB.match(url)
    if web is None:
        scheme = _SCHEME.match(url)
        if scheme is None:
            raise _unsafe("it is not a full URL")
        if scheme[1].lower() in _USUAL_PORT:
            raise _unsafe("it has no host after its scheme")
        raise _unsafe(f"its scheme is {scheme[1].lower()!r}, but only https is allowed")
    if "@" in web[2]:
        raise _unsafe("it has a user name before its host, which hides where it leads")
    if "%" in web[2] and not web[2].startswith("["):
        raise _unsafe("its host is percent-encoded")
    return web


def _script(letter: str) -> str:
    """The script of a letter: the first word of its Unicode name."""
    return unicodedata.name(letter, "unknown").replace("-", " ").split()[0]


def _unsafe(reason: str) -> UnsafeLink:
    return UnsafeLink(f"the link cannot be opened: {reason}", reason=reason)
