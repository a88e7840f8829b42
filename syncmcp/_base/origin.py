"""The parts of a URL, and its origin: scheme, host and port, normalized for comparison."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit

LONGEST_HOST: Final = 253
"""The longest name that a host can have, in characters."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]")
# No URL has this character, and none of its parts ends at it.
_REPLACED: Final = "\x7f"


class Origin(NamedTuple):
    """Scheme, host and port of a URL, which identify a server."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" if usual else f"{self.scheme}://{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Return scheme, host and port of a URL; `ValueError` if it is invalid."""
    parts = split_url(url)
    scheme = parts.scheme.lower()
    return Origin(scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(scheme))


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL; `ValueError` if it is invalid. All URLs are split here.

    `urlsplit` normalizes a host that is not ASCII. This takes time quadratic in the number of
    combining marks, and holds the GIL. So such a host of more than 253 characters is invalid.
    """
    if not url.isascii():
        host = urlsplit(_BEYOND_ASCII.sub(_REPLACED, url)).netloc  # maybe with user and port
        if _REPLACED in host and len(host) > LONGEST_HOST:
            raise ValueError("its host name is too long")
    return urlsplit(url)


def join_url(base: str, reference: str) -> str:
    """Return the absolute URL of a reference; `ValueError` if it or `base` is invalid."""
    for one in (base, reference):
        split_url(one)
    return urljoin(base, reference)
