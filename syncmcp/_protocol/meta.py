"""Keys of `_meta`, and the trace context in it (spec: basic, "_meta")."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from syncmcp.errors import UsageError

# Trace context in `_meta` (spec: 2026-07-28, basic, "OpenTelemetry trace context"; SEP-414).


PARENT = "traceparent"
STATE = "tracestate"
BAGGAGE = "baggage"
KEYS = (PARENT, STATE, BAGGAGE)
"""The keys without a prefix that the specification reserves."""

# W3C Trace Context, 3.2: version, trace id, parent id, flags; a later version may add to them.
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?")
_NOTHING = frozenset("0")

# W3C Trace Context, 3.3.
_VENDOR = re.compile(
    r"[a-z0-9][a-z0-9_*/@-]{0,255}="
    r"[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_MOST_VENDORS = 32

# W3C Baggage, 3.2: a name, a value, and properties.
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_VALUE = r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]*"
_ENTRY = re.compile(
    rf"{_NAME}[ \t]*=[ \t]*{_VALUE}(?:[ \t]*;[ \t]*{_NAME}(?:[ \t]*=[ \t]*{_VALUE})?)*"
)
_MOST_ENTRIES = 180
_MOST_BAGGAGE = 8192


def follows_w3c(key: str, value: object) -> bool:
    """Whether a value has the format that its key, one of `KEYS`, asks for."""
    return isinstance(value, str) and _FORMATS[key](value)


def check_formats(meta: Mapping[str, Any]) -> None:
    """Check the trace context in a `_meta` that is to be sent.

    Raises:
        UsageError: It is not written as W3C Trace Context and W3C Baggage ask.
    """
    for key in KEYS:
        if key in meta and not follows_w3c(key, meta[key]):
            # Without the value: baggage may hold anything.
            raise UsageError(f"the {key} in _meta does not have the format of the W3C")


def _is_parent(value: str) -> bool:
    found = _PARENT.fullmatch(value)
    if found is None:
        return False
    version, trace, parent, more = found.groups()
    if version == "ff" or (version == "00" and more is not None):
        return False
    return not (_NOTHING.issuperset(trace) or _NOTHING.issuperset(parent))


def _is_state(value: str) -> bool:
    members = [member for each in value.split(",") if (member := each.strip(" \t"))]
    vendors = {member.partition("=")[0] for member in members}
    return len(vendors) == len(members) <= _MOST_VENDORS and all(
        _VENDOR.fullmatch(member) for member in members
    )


def _is_baggage(value: str) -> bool:
    if len(value) > _MOST_BAGGAGE:
        return False
    entries = value.split(",")
    return len(entries) <= _MOST_ENTRIES and all(
        _ENTRY.fullmatch(entry.strip(" \t")) for entry in entries
    )


_FORMATS: Mapping[str, Callable[[str], bool]] = {
    PARENT: _is_parent,
    STATE: _is_state,
    BAGGAGE: _is_baggage,
}


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
