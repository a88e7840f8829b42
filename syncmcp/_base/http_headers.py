"""What may be sent as an HTTP header: everything else could end the head or hide what follows."""

from __future__ import annotations

import re
from collections.abc import Mapping

from syncmcp.errors import UsageError

__all__ = ["check_headers"]

# A token (RFC 9110, section 5.6.2).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NEVER_IN_VALUES = re.compile(r"[\r\n\0]")


def check_headers(headers: object, source: str) -> None:
    """Check the names and values that a user wants sent.

    Args:
        headers: What should be a mapping of strings to strings.
        source: What the error calls the place they come from.

    Raises:
        UsageError: It is none, or HTTP does not allow it. Never quotes a value: most are secrets.
    """
    if not isinstance(headers, Mapping):
        raise UsageError(
            f"{source} must be a mapping of header names to values, not {_kind(headers)}"
        )
    for name, value in headers.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise UsageError(f"{source} has the name {name!r}, which HTTP does not allow")
        if not isinstance(value, str):
            raise UsageError(f"the value of {name} in {source} must be a str, not {_kind(value)}")
        if _NEVER_IN_VALUES.search(value):
            raise UsageError(f"the value of {name} in {source} has a line end or NUL in it")
        if not _fits_latin_1(value):
            raise UsageError(f"the value of {name} in {source} has characters beyond Latin-1")


def _kind(value: object) -> str:
    return type(value).__name__


def _fits_latin_1(value: str) -> bool:
    return value.isascii() or all(character <= "\xff" for character in value)
