"""Keys of `_meta` (spec: basic, "_meta")."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from syncmcp._protocol.trace_context import check_formats
from syncmcp.errors import UsageError

_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def check_keys(keys: Iterable[object]) -> None:
    """Check the grammar of `_meta` keys.

    Raises:
        UsageError: A key is not an optional dotted prefix with a slash, and a name.
    """
    for key in keys:
        if not isinstance(key, str) or not key or not _KEY.fullmatch(key):
            raise UsageError(f"{key!r} is not a valid _meta key")


def is_prefixed(key: object) -> bool:
    """Whether `key` has the form of a `_meta` key with a prefix."""
    return (
        isinstance(key, str) and not key.endswith("/") and "/" in key and bool(_KEY.fullmatch(key))
    )


def callers_meta(params: Mapping[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """The caller's own `_meta`: what stands in its `params`, and `meta`, checked before, over it.

    Raises:
        UsageError: The `_meta` in `params` is no mapping, or has a key that is not valid; or its
            trace context is not written as the W3C asks.
    """
    given = params.get("_meta", {})
    if not isinstance(given, Mapping):
        raise UsageError(f"_meta is a mapping, not {given!r}")
    check_keys(given)
    merged = {**given, **(meta or {})}
    if merged:
        check_formats(merged)
    return merged
