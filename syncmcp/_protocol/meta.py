"""Keys of `_meta` (spec: basic, "_meta")."""

from __future__ import annotations

import re
from collections.abc import Iterable

from syncmcp.errors import UsageError

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def check_keys(keys: Iterable[str]) -> None:
    """Check the grammar of `_meta` keys.

    Raises:
        UsageError: A key is not an optional dotted prefix with a slash, and a name.
    """
    for key in keys:
        if not key or not _KEY.fullmatch(key):
            raise UsageError(f"{key!r} is not a valid _meta key")
