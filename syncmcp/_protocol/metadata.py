"""Metadata of requests: `_meta` with the trace context, and HTTP headers that mirror arguments.

A server annotates properties of a tool's input schema with ``x-mcp-header``, so that proxies can
route a call without parsing its body (2026-07-28, "Custom Headers from Tool Parameters").
"""

from __future__ import annotations

import base64
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias

from syncmcp._base.checks import kind_of
from syncmcp._base.text import cut
from syncmcp.errors import UsageError

# Trace context in `_meta` (spec: 2026-07-28, basic, "OpenTelemetry trace context"; SEP-414).


PARENT = "traceparent"
STATE = "tracestate"
BAGGAGE = "baggage"
KEYS = (PARENT, STATE, BAGGAGE)
"""The keys of `_meta` without a prefix that the specification reserves."""

# W3C Trace Context, 3.2: version, trace id, parent id, flags. Only the shape is checked, because
# propagators apply the whole grammar.
_PARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# No control characters except tabs; at most the length that all must support (Baggage, 3.3.2).
_TEXT = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f-\x9f]{0,8192}")


def has_trace_shape(key: str, value: object) -> bool:
    """Return True if a value looks like trace context; `key` is one of `KEYS`.

    A ``traceparent`` has four fields of hexadecimal digits. The others are texts of at most 8192
    characters without control characters except tabs.
    """
    shape = _PARENT if key == PARENT else _TEXT
    return isinstance(value, str) and shape.fullmatch(value) is not None


def check_trace_context(meta: Mapping[str, Any]) -> None:
    """Raise `UsageError` if trace context in a `_meta` object has an invalid shape."""
    for key in KEYS:
        if key in meta and not has_trace_shape(key, meta[key]):
            # The error does not contain the value, because baggage may contain secrets.
            raise UsageError(f"the {key} in _meta is not valid trace context")


_LABEL = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def check_keys(keys: Iterable[object]) -> None:
    """Check that `_meta` keys are an optional dotted prefix with a slash, and a name."""
    for key in keys:
        if not isinstance(key, str) or not key or not _KEY.fullmatch(key):
            raise UsageError(f"{key!r} is not a valid _meta key")


def is_prefixed(key: object) -> bool:
    """Return True if `key` is a valid `_meta` key with a prefix."""
    return (
        isinstance(key, str) and not key.endswith("/") and "/" in key and bool(_KEY.fullmatch(key))
    )


def merge_meta(params: Mapping[str, Any], meta: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the `_meta` in `params`, updated with `meta`, whose keys were checked before.

    `UsageError` if the one in `params` is not a mapping or has an invalid key, or if the trace
    context has an invalid shape.
    """
    given = params.get("_meta", {})
    if not isinstance(given, Mapping):
        raise UsageError(f"_meta must be a mapping, not {kind_of(given)}")
    check_keys(given)
    merged = {**given, **(meta or {})}
    if merged:
        check_trace_context(merged)
    return merged


# HTTP headers that mirror parts of a message (2026-07-28, "Value Encoding").


_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?|")


def encode_value(text: str) -> str:
    """Return `text` as an HTTP header value.

    Unchanged if it is printable ASCII without leading or trailing blanks and does not look encoded;
    otherwise Base64 of its UTF-8 bytes between two markers. So no line break reaches the HTTP
    layer. `UsageError` for a lone surrogate, which UTF-8 cannot encode.
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

MAX_TOOLS = 10_000
"""The most tools whose annotated arguments are stored."""

MAX_NAMES = 4_096
"""The most characters in the name of such a tool, and in all names of its arguments and headers."""

MAX_PARTS = 128
"""The most such names of a tool: each header, and each property in the path to its argument. The
path to a property deep in a schema takes a kilobyte."""

# Servers may parse numbers as doubles, which cannot represent larger integers exactly.
_LARGEST = 2**53 - 1

# The keywords whose values are a schema, a list of schemas, or a mapping to schemas. Other values
# are data, in which `_KEYWORD` has no meaning.
_ONE_SCHEMA = (
    "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
    "not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_SCHEMA_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_SCHEMA_MAPS = (
    *("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties"),
    "properties",
)


class ParamHeader(NamedTuple):
    """An annotated argument: the path of property names to it, and its header."""

    path: tuple[str, ...]
    header: str


class InvalidParamHeader(ValueError):
    """An invalid ``x-mcp-header`` annotation: the tool cannot be used over HTTP."""


def param_headers(schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """Return the annotated arguments of an input schema; may raise `InvalidParamHeader`."""
    found: dict[str, ParamHeader] = {}
    size = parts = 0
    for steps, subschema in _subschemas(schema):
        if _KEYWORD not in subschema:
            continue
        param_header = _read(_path(steps), subschema)
        size += len(param_header.header) + sum(map(len, param_header.path))
        parts += 1 + len(param_header.path)
        if size > MAX_NAMES:
            raise InvalidParamHeader(f"its x-mcp-header names have over {MAX_NAMES} characters")
        if parts > MAX_PARTS:
            raise InvalidParamHeader(f"its x-mcp-header properties have over {MAX_PARTS} names")
        key = param_header.header.lower()
        if key in found:
            raise InvalidParamHeader(f"two properties have the header name {subschema[_KEYWORD]!r}")
        found[key] = param_header
    return tuple(found.values())


# A linked path to a subschema: the path to the enclosing schema, and the name of a property in it.
# Empty for the outermost schema; `None` if a keyword other than ``properties`` leads to it. Whole
# paths to a million properties, 90 levels deep, would take a gigabyte.
_Steps: TypeAlias = "tuple[_Steps, str] | tuple[()] | None"


def _path(steps: _Steps) -> tuple[str, ...] | None:
    if steps is None:
        return None
    names: list[str] = []
    rest: Any = steps
    while rest:
        rest, name = rest
        names.append(name)
    return tuple(reversed(names))


def _subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[_Steps, Mapping[str, Any]]]:
    """Yield `schema` and all its subschemas, each with the path to it."""
    # No recursion, because the server decides how deep a schema is.
    waiting: list[tuple[_Steps, Any]] = [((), schema)]
    while waiting:
        steps, one = waiting.pop()
        if isinstance(one, Mapping):
            yield steps, one
            for keyword, name, inner in direct_subschemas(one):
                named = steps is not None and keyword == "properties"
                waiting.append(((steps, name) if named else None, inner))


def direct_subschemas(schema: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the values in `schema` that are schemas, each with keyword and name (or ``""``)."""
    for keyword, value in schema.items():
        if isinstance(value, list) and keyword in _SCHEMA_LISTS:
            yield from ((keyword, "", inner) for inner in value)
        elif isinstance(value, Mapping) and keyword in _SCHEMA_MAPS:
            yield from ((keyword, name, inner) for name, inner in value.items())
        elif keyword in _ONE_SCHEMA:
            yield keyword, "", value


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _read(path: tuple[str, ...] | None, schema: Mapping[str, Any]) -> ParamHeader:
    name = schema[_KEYWORD]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidParamHeader(f"the header name {_shown(name)} is not an HTTP token")
    if not path:
        raise InvalidParamHeader(f"the x-mcp-header {name!r} is not on a property of the arguments")
    if schema.get("type") not in _TYPES:
        raise InvalidParamHeader(
            f"the property {'.'.join(path)!r} has an x-mcp-header, but is not a string, integer or"
            " boolean"
        )
    return ParamHeader(path, _PREFIX + name)


def _shown(name: object) -> str:
    return cut(repr(name), 80)


def header_values(
    marked: Iterable[ParamHeader], arguments: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the headers that mirror arguments; `UsageError` if a header cannot have a value."""
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
            f"the argument {name!r} is repeated in a header: an integer there must be within "
            f"2**53 - 1 of zero"
        )
    return str(value)


class ParamHeaders:
    """The annotated arguments of the tools listed so far; thread-safe.

    `on_excluded` is called with the name of each tool that cannot be called over HTTP, and why.
    """

    def __init__(self, on_excluded: Callable[[str, str], object]) -> None:
        self._on_excluded = on_excluded
        # By tool name, from the latest list, the oldest first; tools without such arguments are not
        # in it. Each operation on it is one step in C, so no lock is needed.
        self._tools: OrderedDict[str, tuple[ParamHeader, ...]] = OrderedDict()

    def filter_tools(self, tools: list[Any]) -> list[Any]:
        """Record the annotations in a page of tools; return the tools with valid annotations."""
        return [tool for tool in tools if self._record_tool(tool)]

    def _record_tool(self, tool: Any) -> bool:
        schema, name = _mapping(tool).get("inputSchema"), _mapping(tool).get("name")
        if not isinstance(name, str) or not isinstance(schema, Mapping):
            return True  # not a tool: the validation of the result reports that
        self._tools.pop(name, None)
        try:
            marked = param_headers(schema)
            if marked and len(name) > MAX_NAMES:
                raise InvalidParamHeader(f"its name has over {MAX_NAMES} characters")
        except InvalidParamHeader as problem:
            self._on_excluded(name, str(problem))
            return False
        if marked:
            self._tools[name] = marked
            if len(self._tools) > MAX_TOOLS:  # a server may list new tools each time
                with suppress(KeyError):  # another thread was faster
                    self._tools.popitem(last=False)
        return True

    def headers(self, params: Mapping[str, Any]) -> dict[str, str]:
        """Return the headers of a call with these parameters; empty for an unlisted tool."""
        name = params.get("name")
        marked = self._tools.get(name, ()) if isinstance(name, str) else ()
        arguments = params.get("arguments")
        return header_values(marked, arguments if isinstance(arguments, Mapping) else None)
