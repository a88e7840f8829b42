"""Forms that a server asks a person to fill in (spec: "Elicitation").

The schema of a form is a flat object of texts, numbers, booleans and choices. `Form.read` parses
that whole subset of JSON Schema, in the variants of all revisions, and refuses any other schema. A
form that is shown in part would ask another question than the server asked.

All texts of a form come from a server. Show them as data; do not rely on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, cast, get_args

from typing_extensions import Self

from syncmcp._base.numbers import is_number
from syncmcp._base.text import cut
from syncmcp.errors import UnsupportedSchema, UsageError
from syncmcp.handlers.form_fields import (
    ABSENT,
    Absent,
    Bounds,
    Field,
    Format,
    Kind,
    Option,
    Value,
    is_unicode,
    read_pattern,
)

__all__ = [
    "ABSENT",
    "Absent",
    "Bounds",
    "Field",
    "Form",
    "Format",
    "InvalidAnswer",
    "Kind",
    "Option",
    "UnsupportedForm",
    "Value",
]

MAX_FIELDS: Final = 200
MAX_OPTIONS: Final = 1_000
MAX_TEXT: Final = 10_000
"""The longest name, title, description or option, in characters."""
MAX_PATTERNS: Final = 20
MAX_PATTERN: Final = 500
"""The longest pattern, in characters."""
MAX_PATTERN_SIZES: Final = 10_000
"""The maximum size of all patterns together, with their repetitions written out."""
_FORMATS: Final = frozenset(get_args(Format))
_BOUNDS: Final[Mapping[str, tuple[str, str]]] = {
    "string": ("minLength", "maxLength"),
    "choices": ("minItems", "maxItems"),
    "number": ("minimum", "maximum"),
    "integer": ("minimum", "maximum"),
}

# The keywords of JSON Schema that restrict a value. Other keywords (`examples`, `$comment`,
# `x-...`) cannot make an answer invalid, and are ignored.
# fmt: off
_RESTRICTIONS: Final = frozenset({
    "$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "additionalProperties",
    "allOf", "anyOf", "const", "contains", "contentEncoding", "contentMediaType",
    "contentSchema", "dependencies", "dependentRequired", "dependentSchemas", "else", "enum",
    "exclusiveMaximum", "exclusiveMinimum", "format", "if", "items", "maxContains",
    "maxItems", "maxLength", "maxProperties", "maximum", "minContains", "minItems",
    "minLength", "minProperties", "minimum", "multipleOf", "not", "oneOf", "pattern",
    "patternProperties", "prefixItems", "properties", "propertyNames", "required", "then",
    "type", "unevaluatedItems", "unevaluatedProperties", "uniqueItems",
})
# fmt: on
_TAKEN: Final[Mapping[str, frozenset[str]]] = {
    # `Form.problems` rejects unknown fields, so restrictions of these are always fulfilled.
    "form": frozenset(
        {"type", "properties", "required", "additionalProperties", "unevaluatedProperties"}
    ),
    "string": frozenset({"type", "minLength", "maxLength", "pattern", "format"}),
    "number": frozenset({"type", "minimum", "maximum"}),
    "integer": frozenset({"type", "minimum", "maximum"}),
    "boolean": frozenset({"type"}),
    "choice": frozenset({"type", "enum", "oneOf"}),
    # `Field.problem` rejects repeated options, so `uniqueItems` is always fulfilled.
    "choices": frozenset({"type", "items", "minItems", "maxItems", "uniqueItems"}),
    "items": frozenset({"type", "enum", "anyOf"}),
    "option": frozenset({"type", "const"}),
}


class UnsupportedForm(UsageError):
    """A schema outside of the subset that forms can use.

    Attributes:
        field: The name of the field concerned; `None` if the error concerns the form as a whole.
        reason: The part of the schema that is outside of the subset.
    """

    field: str | None = None
    reason: str = ""


class InvalidAnswer(UsageError):
    """An answer is not valid for its question or its form, and was not sent.

    If a handler gave the answer, the error is passed to `on_handler_error`; in 2026-07-28, the call
    that the server interrupted raises the error, too. If the program answers itself,
    `Client.resume` raises the error.

    Attributes:
        problems: The problems, in sentences for a person, by the names of the fields.
    """

    problems: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Form:
    """A form to fill in.

    ::

        from syncmcp.handlers.forms import Form

        form = Form.read(request.requested_schema)
        answer = {field.name: field.parse(input(field.label)) for field in form.fields}
        print(form.problems(answer))

    Attributes:
        fields: The fields, in the order to show them.
    """

    fields: tuple[Field, ...]

    @classmethod
    def read(cls, requested_schema: Mapping[str, Any]) -> Self:
        """Parse the schema of a form.

        Raises:
            UnsupportedForm: The schema is outside of the subset, or exceeds a limit.
        """
        schema = _object(requested_schema, None, "the form")
        _check_keywords(schema, "form", None)
        if schema.get("type") != "object":
            raise _unsupported(None, "its type is not 'object'")
        properties = _object(schema.get("properties"), None, "'properties'")
        if len(properties) > MAX_FIELDS:
            raise _unsupported(None, f"it has more than {MAX_FIELDS} fields")
        required = _texts(schema.get("required", []), None, "'required'", MAX_FIELDS)
        for name in required:
            if name not in properties:
                raise _unsupported(name, "it is required but missing")
        if sum("pattern" in part for part in properties.values() if isinstance(part, Mapping)) > (
            MAX_PATTERNS
        ):
            raise _unsupported(None, f"it has more than {MAX_PATTERNS} patterns")
        bare = [_field(name, properties[name], name in required) for name in properties]
        _check_patterns(bare)  # before any default is matched
        return cls(tuple(_with_default(field, properties[field.name]) for field in bare))

    def defaults(self) -> dict[str, Value]:
        """Return the defaults of the fields that have a default."""
        return {
            field.name: list(field.default) if isinstance(field.default, list) else field.default
            for field in self.fields
            if field.default is not ABSENT
        }

    def with_defaults(self, content: Mapping[str, Value]) -> dict[str, Value]:
        """Return `content` with the defaults of the fields that `content` lacks."""
        return {**self.defaults(), **content}

    def problems(self, content: Mapping[str, object]) -> dict[str, str]:
        """Return the problems of an answer, in sentences for a person, by field.

        The result is empty if the answer is valid.
        """
        found: dict[str, str] = {}
        for field in self.fields:
            if field.name in content:
                problem = field.problem(content[field.name])
                if problem is not None:
                    found[field.name] = problem
            elif field.required:
                found[field.name] = "This field needs an answer."
        known = {field.name for field in self.fields}
        return found | {
            name: "The form has no such field." for name in content if name not in known
        }


def _field(name: str, value: object, required: bool) -> Field:
    """Parse a field, without its default."""
    if not name:
        raise _unsupported(name, "it has no name")
    _text(name, name, "its name")
    schema = _object(value, name, "it")
    kind = _kind(schema, name)
    _check_keywords(schema, kind, name)
    field = Field(
        name=name,
        label=_optional_text(schema, "title", name) or name,
        kind=kind,
        description=_optional_text(schema, "description", name),
        required=required,
        format=_format(schema, name) if kind == "string" else None,
        pattern=_pattern(schema, name) if kind == "string" else None,
        options=_options(schema, kind, name),
        bounds=_bounds(schema, kind, name),
    )
    least = field.bounds.minimum
    if kind == "choices" and least is not None and least > len(field.options):
        raise _unsupported(name, f"it requires {least} of {len(field.options)} options")
    return field


def _with_default(field: Field, schema: Mapping[str, Any]) -> Field:
    default = schema.get("default")
    if default is None or field.problem(default) is not None:
        return field
    return replace(field, default=default)


def _kind(schema: Mapping[str, Any], name: str) -> Kind:
    match schema.get("type"):
        case "string" if "enum" in schema or "oneOf" in schema:
            return "choice"
        case "array":
            return "choices"
        case "string" | "number" | "integer" | "boolean" as kind:
            return cast("Kind", kind)
        case "object":
            raise _unsupported(name, "it is an object, but forms must be flat")
        case None:
            words = sorted(_RESTRICTIONS & schema.keys())
            instead = f" but {', '.join(map(repr, words))}" if words else ""
            raise _unsupported(name, f"it has no type{instead}")
        case other:
            raise _unsupported(name, f"its type is {_quoted(other)}")


def _check_keywords(schema: Mapping[str, Any], part: str, name: str | None) -> None:
    foreign = sorted((_RESTRICTIONS & schema.keys()) - _TAKEN[part])
    if foreign:
        what = {"form": "a form", "items": "'items'", "option": "an option"}.get(
            part, f"a field of type {part!r}"
        )
        raise _unsupported(name, f"{what} cannot have {', '.join(map(repr, foreign))}")


def _options(schema: Mapping[str, Any], kind: Kind, name: str) -> tuple[Option, ...]:
    """Parse the options, in all variants of SEP-1330 and in the older one."""
    if kind == "choice":
        source, titled = schema, "oneOf"
    elif kind == "choices":
        source, titled = _object(schema.get("items"), name, "'items'"), "anyOf"
        _check_keywords(source, "items", name)
        if source.get("type", "string" if titled in source else None) != "string":
            raise _unsupported(name, "its items are not of type 'string'")
    else:
        return ()
    if ("enum" in source) == (titled in source):
        raise _unsupported(name, f"it must have its options in either 'enum' or {titled!r}")
    if titled in source:
        options = [
            _titled_option(option, name)
            for option in _list(source[titled], name, f"{titled!r}", MAX_OPTIONS)
        ]
    else:
        values = _texts(source["enum"], name, "'enum'", MAX_OPTIONS)
        titles = values
        if kind == "choice" and source.get("enumNames") is not None:
            titles = _texts(source["enumNames"], name, "'enumNames'", MAX_OPTIONS)
        if len(titles) != len(values):
            raise _unsupported(name, f"it has {len(titles)} names for {len(values)} options")
        options = [Option(*pair) for pair in zip(values, titles, strict=True)]
    if not options:
        raise _unsupported(name, "it has no options")
    if len({option.value for option in options}) < len(options):
        raise _unsupported(name, "it has the same option more than once")
    return tuple(options)


def _titled_option(value: object, name: str) -> Option:
    option = _object(value, name, "an option")
    _check_keywords(option, "option", name)
    return Option(
        _text(option.get("const"), name, "the 'const' of an option"),
        _text(option.get("title"), name, "the 'title' of an option"),
    )


def _bounds(schema: Mapping[str, Any], kind: Kind, name: str) -> Bounds:
    if kind not in _BOUNDS:
        return Bounds()
    counts = kind in ("string", "choices")
    least, most = (_bound(schema, keyword, name, counts) for keyword in _BOUNDS[kind])
    if least is not None and most is not None and least > most:
        raise _unsupported(name, f"its minimum, {least}, is above its maximum, {most}")
    return Bounds(least, most)


def _bound(schema: Mapping[str, Any], keyword: str, name: str, counts: bool) -> int | float | None:
    value = schema.get(keyword)
    if value is None:
        return None
    if not is_number(value) or (counts and (value < 0 or value != value // 1)):
        raise _unsupported(name, f"{keyword!r} is not a {'count' if counts else 'number'}")
    return int(value) if counts else value


def _format(schema: Mapping[str, Any], name: str) -> Format | None:
    value = schema.get("format")
    if value is None or (isinstance(value, str) and value in _FORMATS):
        return cast("Format | None", value)
    raise _unsupported(name, f"its format is {_quoted(value)}")


def _pattern(schema: Mapping[str, Any], name: str) -> str | None:
    pattern = _optional_text(schema, "pattern", name)
    if pattern is not None and len(pattern) > MAX_PATTERN:
        raise _unsupported(name, f"'pattern' has more than {MAX_PATTERN} characters")
    return pattern


def _check_patterns(fields: Iterable[Field]) -> None:
    """Refuse patterns that cannot be matched in linear time, or are too large together."""
    size = 0
    for field in fields:
        if field.pattern is not None:
            try:
                size += read_pattern(field.pattern).size
            except UnsupportedSchema as error:
                raise _unsupported(field.name, f"its 'pattern': {error.message}") from error
            if size > MAX_PATTERN_SIZES:
                raise _unsupported(field.name, "the patterns of the form are too large in total")


def _object(value: object, name: str | None, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _unsupported(name, f"{what} is not an object")
    return cast("Mapping[str, Any]", value)


def _list(value: object, name: str | None, what: str, most: int) -> list[Any]:
    if not isinstance(value, list):
        raise _unsupported(name, f"{what} is not a list")
    items: list[Any] = value
    if len(items) > most:
        raise _unsupported(name, f"{what} has more than {most} entries")
    return items


def _texts(value: object, name: str | None, what: str, most: int) -> list[str]:
    return [_text(item, name, f"an entry of {what}") for item in _list(value, name, what, most)]


def _optional_text(schema: Mapping[str, Any], keyword: str, name: str) -> str | None:
    value = schema.get(keyword)
    return None if value is None else _text(value, name, repr(keyword))


def _text(value: object, name: str | None, what: str) -> str:
    if not isinstance(value, str):
        raise _unsupported(name, f"{what} is not a string")
    if len(value) > MAX_TEXT:
        raise _unsupported(name, f"{what} has more than {MAX_TEXT} characters")
    if not is_unicode(value):
        raise _unsupported(name, f"{what} has a lone surrogate")
    return value


def _unsupported(name: str | None, reason: str) -> UnsupportedForm:
    where = "the form cannot be shown" if name is None else f"field {_quoted(name)}"
    return UnsupportedForm(f"{where}: {reason}", field=name, reason=reason)


def _quoted(value: object) -> str:
    """Return a server's string for a message, on one short line; for other values the type."""
    if not isinstance(value, str):
        return f"a value of type {type(value).__name__!r}"
    return repr(cut(value))
