"""The dialects of JSON Schema: which words each has, and of what shape their values are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from syncmcp._protocol.schema.run import quoted
from syncmcp._protocol.schema.value import TYPES, is_integer, is_number
from syncmcp.errors import UnsupportedSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Shape(Enum):
    """What the value of a word is."""

    SCHEMA = auto()
    SCHEMAS = auto()
    """A list of them, not empty."""
    SCHEMAS_BY_NAME = auto()
    SCHEMA_OR_SCHEMAS = auto()
    SCHEMAS_OR_NAMES = auto()
    """By name, a schema or a list of names."""
    TEXT = auto()
    TYPES = auto()
    ANYTHING = auto()
    VALUES = auto()
    NUMBER = auto()
    NUMBER_OR_FLAG = auto()
    POSITIVE = auto()
    COUNT = auto()
    FLAG = auto()
    NAMES = auto()
    NAMES_BY_NAME = auto()


@dataclass(frozen=True)
class Dialect:
    """One dialect.

    Attributes:
        name: What it is called.
        uri: What ``$schema`` says, without an empty fragment.
        words: The words that say something of a value, and the shapes of their own values.
        id_word: How a schema says its URI.
        lone_ref: Whether a ``$ref`` has nothing beside it that counts.
    """

    name: str
    uri: str
    words: Mapping[str, Shape]
    id_word: str = "$id"
    lone_ref: bool = False

    def check(self, word: str, value: Any) -> None:
        """Check the value of a word, but for schemas in it.

        Raises:
            UnsupportedSchema: A schema of this dialect cannot have it.
        """
        shape = self.words[word]
        if not _HAS_SHAPE[shape](value):
            raise UnsupportedSchema(f"{quoted(word)} is not what {self.name} wants it to be")
        if word == "type":
            for name in _list(value):
                if name not in TYPES:
                    raise UnsupportedSchema(f"there is no type {quoted(name)}")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_schema(value: Any) -> bool:
    return isinstance(value, (dict, bool))


def _are_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


# Schemas are looked at one by one, when they are reached.
_HAS_SHAPE: Final[dict[Shape, Callable[[Any], bool]]] = {
    Shape.SCHEMA: _is_schema,
    Shape.SCHEMAS: lambda value: isinstance(value, list) and bool(value),
    Shape.SCHEMAS_BY_NAME: _is_object,
    Shape.SCHEMA_OR_SCHEMAS: lambda value: isinstance(value, (dict, bool, list)),
    Shape.SCHEMAS_OR_NAMES: _is_object,
    Shape.TEXT: _is_text,
    Shape.TYPES: lambda value: _is_text(value) or (_are_names(value) and bool(value)),
    Shape.ANYTHING: lambda _: True,
    Shape.VALUES: lambda value: isinstance(value, list),
    Shape.NUMBER: is_number,
    Shape.NUMBER_OR_FLAG: lambda value: is_number(value) or _is_flag(value),
    Shape.POSITIVE: lambda value: is_number(value) and value > 0,
    Shape.COUNT: lambda value: is_integer(value) and value >= 0,
    Shape.FLAG: _is_flag,
    Shape.NAMES: _are_names,
    Shape.NAMES_BY_NAME: lambda value: (
        isinstance(value, dict) and all(map(_are_names, value.values()))
    ),
}

_DRAFT_4: Final[dict[str, Shape]] = {
    "id": Shape.TEXT,
    "$ref": Shape.TEXT,
    "definitions": Shape.SCHEMAS_BY_NAME,
    "multipleOf": Shape.POSITIVE,
    "maximum": Shape.NUMBER,
    "exclusiveMaximum": Shape.NUMBER_OR_FLAG,
    "minimum": Shape.NUMBER,
    "exclusiveMinimum": Shape.NUMBER_OR_FLAG,
    "maxLength": Shape.COUNT,
    "minLength": Shape.COUNT,
    "pattern": Shape.TEXT,
    "additionalItems": Shape.SCHEMA,
    "items": Shape.SCHEMA_OR_SCHEMAS,
    "maxItems": Shape.COUNT,
    "minItems": Shape.COUNT,
    "uniqueItems": Shape.FLAG,
    "maxProperties": Shape.COUNT,
    "minProperties": Shape.COUNT,
    "required": Shape.NAMES,
    "additionalProperties": Shape.SCHEMA,
    "properties": Shape.SCHEMAS_BY_NAME,
    "patternProperties": Shape.SCHEMAS_BY_NAME,
    "dependencies": Shape.SCHEMAS_OR_NAMES,
    "enum": Shape.VALUES,
    "type": Shape.TYPES,
    "allOf": Shape.SCHEMAS,
    "anyOf": Shape.SCHEMAS,
    "oneOf": Shape.SCHEMAS,
    "not": Shape.SCHEMA,
}
_DRAFT_6: Final[dict[str, Shape]] = {
    **{word: shape for word, shape in _DRAFT_4.items() if word != "id"},
    "$id": Shape.TEXT,
    "const": Shape.ANYTHING,
    "contains": Shape.SCHEMA,
    "exclusiveMaximum": Shape.NUMBER,
    "exclusiveMinimum": Shape.NUMBER,
    "propertyNames": Shape.SCHEMA,
}
_DRAFT_7: Final[dict[str, Shape]] = {
    **_DRAFT_6,
    "if": Shape.SCHEMA,
    "then": Shape.SCHEMA,
    "else": Shape.SCHEMA,
}
_DRAFT_2019: Final[dict[str, Shape]] = {
    **{word: shape for word, shape in _DRAFT_7.items() if word != "dependencies"},
    "$anchor": Shape.TEXT,
    "$defs": Shape.SCHEMAS_BY_NAME,
    "$recursiveAnchor": Shape.FLAG,
    "$recursiveRef": Shape.TEXT,
    "contentSchema": Shape.SCHEMA,
    "dependentRequired": Shape.NAMES_BY_NAME,
    "dependentSchemas": Shape.SCHEMAS_BY_NAME,
    "maxContains": Shape.COUNT,
    "minContains": Shape.COUNT,
    "unevaluatedItems": Shape.SCHEMA,
    "unevaluatedProperties": Shape.SCHEMA,
}
_DRAFT_2020: Final[dict[str, Shape]] = {
    **{
        word: shape
        for word, shape in _DRAFT_2019.items()
        if word not in {"$recursiveAnchor", "$recursiveRef", "additionalItems"}
    },
    "$dynamicAnchor": Shape.TEXT,
    "$dynamicRef": Shape.TEXT,
    "items": Shape.SCHEMA,
    "prefixItems": Shape.SCHEMAS,
}

DEFAULT: Final = Dialect(
    "JSON Schema 2020-12", "https://json-schema.org/draft/2020-12/schema", _DRAFT_2020
)
"""What a schema is read as that does not say (spec: basic, "Schema Dialect")."""

DIALECTS: Final[Mapping[str, Dialect]] = {
    dialect.uri: dialect
    for dialect in (
        DEFAULT,
        Dialect("JSON Schema 2019-09", "https://json-schema.org/draft/2019-09/schema", _DRAFT_2019),
        Dialect(
            "JSON Schema draft-07",
            "http://json-schema.org/draft-07/schema",
            _DRAFT_7,
            lone_ref=True,
        ),
        Dialect(
            "JSON Schema draft-06",
            "http://json-schema.org/draft-06/schema",
            _DRAFT_6,
            lone_ref=True,
        ),
        Dialect(
            "JSON Schema draft-04",
            "http://json-schema.org/draft-04/schema",
            _DRAFT_4,
            id_word="id",
            lone_ref=True,
        ),
    )
}
"""By what ``$schema`` says."""


def dialect_of(schema: Any) -> Dialect:
    """The dialect that a schema says it is written in, or the default.

    Raises:
        UnsupportedSchema: It is another one than those here.
    """
    said = schema.get("$schema", DEFAULT.uri) if isinstance(schema, dict) else DEFAULT.uri
    if not isinstance(said, str):
        raise UnsupportedSchema("'$schema' is no text")
    uri = said.removesuffix("#")
    dialect = DIALECTS.get(uri) or DIALECTS.get(uri.replace("https:", "http:", 1))
    if dialect is None:
        raise UnsupportedSchema(f"its dialect is {quoted(said)}, which is not known here")
    return dialect
