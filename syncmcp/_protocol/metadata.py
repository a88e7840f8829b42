"""Metadata of requests: `_meta` with the trace context, and HTTP headers that repeat arguments.

A server marks properties of a tool's input schema, so that what stands between it and the client
can route a call without reading its body (2026-07-28, "Custom Headers from Tool Parameters").
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

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


def has_w3c_format(key: str, value: object) -> bool:
    """Whether a value has the format that its key, one of `KEYS`, asks for."""
    return isinstance(value, str) and _FORMATS[key](value)


def check_trace_context(meta: Mapping[str, Any]) -> None:
    """Check the trace context in a `_meta` that is to be sent.

    Raises:
        UsageError: It is not written as W3C Trace Context and W3C Baggage ask.
    """
    for key in KEYS:
        if key in meta and not has_w3c_format(key, meta[key]):
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


def merge_meta(params: Mapping[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
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
        check_trace_context(merged)
    return merged


# Values for the HTTP headers that repeat parts of a message (2026-07-28, "Value Encoding").


_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?|")


def encode_value(text: str) -> str:
    """Return `text` as a header value that no intermediary can misread.

    Plain if it is printable ASCII without blanks at its ends and does not look encoded itself;
    otherwise Base64 of its UTF-8 bytes between two markers. A line break can therefore never reach
    the HTTP layer.

    Raises:
        UsageError: `text` has half of a surrogate pair, which UTF-8 cannot express.
    """
    if _PLAIN.fullmatch(text) and not (text.startswith("=?base64?") and text.endswith("?=")):
        return text
    try:
        encoded = base64.b64encode(text.encode())
    except UnicodeEncodeError as error:
        raise UsageError(f"{text!r} cannot be sent: {error}") from error
    return f"=?base64?{encoded.decode()}?="


_KEYWORD = "x-mcp-header"
_PREFIX = "Mcp-Param-"

# A token (RFC 9110, section 5.6.2).
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

_TYPES = ("string", "integer", "boolean")

# A server may read numbers as doubles, which hold no larger integer exactly.
_LARGEST = 2**53 - 1

# Where schemas stand inside of a schema. What stands elsewhere is data, marks or not.
_ONE = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties")


class ParamHeader(NamedTuple):
    """One marked argument: the properties that lead to it, and the header that repeats it."""

    path: tuple[str, ...]
    header: str


class InvalidParamHeader(ValueError):
    """A tool's schema is marked in a way that the specification forbids."""


def param_headers(schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """The marked arguments of a tool with this input schema.

    Raises:
        InvalidMark: One mark is not valid, which spoils the tool.
    """
    found: dict[str, ParamHeader] = {}
    for path, subschema in _subschemas(schema):
        if _KEYWORD not in subschema:
            continue
        mirror = _read(path, subschema)
        key = mirror.header.lower()
        if key in found:
            raise InvalidParamHeader(f"two properties are marked {subschema[_KEYWORD]!r}")
        found[key] = mirror
    return tuple(found.values())


def _subschemas(
    schema: Mapping[str, Any],
) -> Iterator[tuple[tuple[str, ...] | None, Mapping[str, Any]]]:
    """Every schema inside of this one, itself first.

    Each comes with the properties that lead to it; `None` where something else leads there, too.
    """
    # No recursion: a schema may be as deep as its server likes.
    waiting: list[tuple[tuple[str, ...] | None, Any]] = [((), schema)]
    while waiting:
        path, one = waiting.pop()
        if not isinstance(one, Mapping):
            continue
        yield path, one
        for name, inner in _mapping(one.get("properties")).items():
            waiting.append((None if path is None else (*path, name), inner))
        waiting.extend((None, one.get(keyword)) for keyword in _ONE)
        for keyword in _LISTS:
            members = one.get(keyword)
            if isinstance(members, list):
                waiting.extend((None, inner) for inner in members)
        for keyword in _MAPS:
            waiting.extend((None, inner) for inner in _mapping(one.get(keyword)).values())


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read(path: tuple[str, ...] | None, schema: Mapping[str, Any]) -> ParamHeader:
    name = schema[_KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidParamHeader(f"the header name {_shown(name)} is no HTTP token")
    if not path:
        raise InvalidParamHeader(f"the mark {name!r} is not on a property of the arguments")
    if schema.get("type") not in _TYPES:
        raise InvalidParamHeader(
            f"the property {'.'.join(path)!r} is marked, but is no string, integer or boolean"
        )
    return ParamHeader(path, _PREFIX + name)


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= 80 else text[:80] + "..."


def header_values(
    marked: Iterable[ParamHeader], arguments: Mapping[str, Any] | None
) -> dict[str, str]:
    """The headers that repeat these arguments: one for each that is given and not null.

    Raises:
        UsageError: A marked argument is nothing that a header can repeat.
    """
    headers: dict[str, str] = {}
    for path, header in marked:
        value: Any = arguments
        for name in path:
            value = value.get(name) if isinstance(value, Mapping) else None
        if value is not None:
            headers[header] = encode_value(_spelled(value, ".".join(path)))
    return headers


def _spelled(value: object, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int):
        raise UsageError(
            f"the argument {name!r} is repeated in a header: it must be a string, an integer or a "
            f"boolean, not {type(value).__name__}"
        )
    if abs(value) > _LARGEST:
        raise UsageError(
            f"the argument {name!r} is repeated in a header, where an integer must lie within "
            f"2**53 - 1 of zero"
        )
    return str(value)


class ParamHeaders:
    """What the tools listed so far have marked; any thread may use it.

    Args:
        left_out: Told the name of a tool that nobody can call over HTTP, and the reason.
    """

    def __init__(self, on_excluded: Callable[[str, str], object]) -> None:
        self._on_excluded = on_excluded
        # What the newest list said; a whole entry is replaced at a time.
        self._tools: dict[str, tuple[ParamHeader, ...]] = {}

    def filter_tools(self, tools: list[Any]) -> list[Any]:
        """Learn from a page of tools, and leave out those whose marks are not valid."""
        return [tool for tool in tools if self._record_tool(tool)]

    def _record_tool(self, tool: Any) -> bool:
        schema, name = _mapping(tool).get("inputSchema"), _mapping(tool).get("name")
        if not isinstance(name, str) or not isinstance(schema, Mapping):
            return True  # it is no tool at all, which is for others to say
        try:
            self._tools[name] = param_headers(schema)
        except InvalidParamHeader as problem:
            self._tools.pop(name, None)
            self._on_excluded(name, str(problem))
            return False
        return True

    def headers(self, params: Mapping[str, Any]) -> dict[str, str]:
        """The headers of a call with these parameters; none for a tool that was never listed.

        Raises:
            UsageError: A marked argument is nothing that a header can repeat.
        """
        name = params.get("name")
        marked = self._tools.get(name, ()) if isinstance(name, str) else ()
        arguments = params.get("arguments")
        return header_values(marked, arguments if isinstance(arguments, Mapping) else None)
