"""Whose a URL is: scheme, host and port, normalized for comparison."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    """Scheme, host and port of a URL, as servers are told apart by them."""

    scheme: str
    host: str
    port: int | None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        usual = self.port == _DEFAULT_PORTS.get(self.scheme)
        return f"{self.scheme}://{host}" if usual else f"{self.scheme}://{host}:{self.port}"


def origin_of(url: str) -> Origin:
    """Scheme, host and port of a URL; `ValueError` if it is invalid."""
    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return Origin(scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(scheme))
