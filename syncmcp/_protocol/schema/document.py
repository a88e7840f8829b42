"""A whole schema with everything in it that a reference can name.

Every subschema is looked at here, once and before any value is: so what is found later is known to
be well-formed, and what nobody will ever reach must be, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from syncmcp._protocol.schema.run import TYPES, is_integer, is_number, quoted
from syncmcp.errors import UnsupportedSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# The dialects of JSON Schema: which words each has, and of what shape their values are.


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


MAX_DEPTH: Final = 200
"""How deep the JSON of a schema may be nested."""
MAX_SIZE: Final = 500_000
"""How many values, names of members not counted, there may be in it."""
MAX_SUBSCHEMAS: Final = 20_000
"""How many schemas there may be in it."""
MAX_REFERENCE: Final = 2_000
"""The longest reference, in characters."""


class Target(NamedTuple):
    """Where a reference leads."""

    schema: Any
    base: str
    """The URI that its own references are relative to."""


class Document:
    """A schema, its subschemas, and the metaschemas that it refers to.

    Raises:
        UnsupportedSchema: It is no schema of its dialect, or there is too much of anything.
    """

    def __init__(self, schema: Any, dialect: Dialect) -> None:
        self.dialect = dialect
        self._resources: dict[str, Any] = {}
        self._anchors: dict[tuple[str, str], Any] = {}
        self._dynamic: dict[str, list[Target]] = {}
        self._recursive: list[Target] = []
        # By identity: two schemas that say the same may stand in two resources.
        self._bases: dict[int, str] = {}
        measure(schema)
        self.root = Target(schema, self._add(schema, ""))

    def base_of(self, schema: Any, outer: str) -> str:
        """The URI that references in `schema` are relative to, which stands in `outer`."""
        return self._bases.get(id(schema), outer)

    def resolve(self, reference: str, base: str) -> Target:
        """Find what a reference names, in this document or among the metaschemas.

        Raises:
            UnsupportedSchema: It is not there. Nothing is ever fetched.
        """
        if len(reference) > MAX_REFERENCE:
            raise UnsupportedSchema(f"a reference has more than {MAX_REFERENCE:,} characters")
        uri, fragment = _split(base, reference)
        if uri not in self._resources:
            self._add_metaschema(uri, reference)
        if not fragment:
            return Target(self._resources[uri], self.base_of(self._resources[uri], uri))
        fragment = unquote(fragment)
        if fragment.startswith("/"):
            return self._pointer(fragment, uri, reference)
        found = self._anchors.get((uri, fragment))
        if found is None:
            raise _dangling(reference)
        return Target(found, self.base_of(found, uri))

    def dynamic_targets(self, name: str) -> list[Target]:
        """Every schema with this ``$dynamicAnchor``."""
        return self._dynamic.get(name, [])

    def recursive_targets(self) -> list[Target]:
        """Every resource with a ``$recursiveAnchor``."""
        return self._recursive

    def _pointer(self, fragment: str, uri: str, reference: str) -> Target:
        base = uri
        found = self._resources[uri]
        for token in fragment[1:].split("/"):
            name = token.replace("~1", "/").replace("~0", "~")
            if isinstance(found, dict) and name in found:
                found = found[name]
            elif isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            else:
                raise _dangling(reference)
            base = self.base_of(found, base)
        if isinstance(found, dict) and id(found) not in self._bases:
            base = self._add(found, base)  # nobody took it for a schema before
        elif not isinstance(found, (dict, bool)):
            raise UnsupportedSchema(f"the reference {quoted(reference)} leads to no schema")
        return Target(found, base)

    def _add_metaschema(self, uri: str, reference: str) -> None:
        # Loaded late: hardly any schema refers to one.
        from jsonschema_specifications import REGISTRY

        if uri not in REGISTRY:
            raise UnsupportedSchema(
                f"the reference {quoted(reference)} leads out of the schema; nothing is fetched"
            )
        metaschema: Any = REGISTRY.contents(uri)
        self._add(metaschema, uri)

    def _add(self, schema: Any, base: str) -> str:
        """Take in a schema and all of its subschemas; return its own base URI."""
        self._resources.setdefault(base, schema)
        waiting = [(schema, base)]
        while waiting:
            found, outer = waiting.pop()
            if isinstance(found, bool):
                continue
            if len(self._bases) >= MAX_SUBSCHEMAS:
                raise UnsupportedSchema(f"it consists of more than {MAX_SUBSCHEMAS:,} schemas")
            inner = self._identify(found, outer)
            self._bases[id(found)] = inner
            waiting += [(part, inner) for part in self._parts(found)]
        return self.base_of(schema, base)

    def _identify(self, schema: dict[str, Any], outer: str) -> str:
        """Note what a schema is called; return its base URI."""
        if self.dialect.lone_ref and "$ref" in schema:
            return outer
        said = schema.get(self.dialect.id_word, "")
        self.dialect.check(self.dialect.id_word, said)
        base = outer
        if self.dialect.lone_ref and said.startswith("#"):
            self._anchors[outer, said[1:]] = schema
        elif said:
            base, _ = _split(outer, said)
            self._resources[base] = schema
            if "$schema" in schema and dialect_of(schema) is not self.dialect:
                raise UnsupportedSchema("there are schemas of two dialects in it")
        if "$anchor" in self.dialect.words and "$anchor" in schema:
            self.dialect.check("$anchor", schema["$anchor"])
            self._anchors[base, schema["$anchor"]] = schema
        if "$dynamicAnchor" in self.dialect.words and "$dynamicAnchor" in schema:
            name = schema["$dynamicAnchor"]
            self.dialect.check("$dynamicAnchor", name)
            self._anchors[base, name] = schema
            self._dynamic.setdefault(name, []).append(Target(schema, base))
        if schema.get("$recursiveAnchor") is True and self._resources[base] is schema:
            self._recursive.append(Target(schema, base))
        return base

    def _parts(self, schema: dict[str, Any]) -> Iterator[Any]:
        """The schemas that a schema is made of."""
        words = self.dialect.words
        alone = self.dialect.lone_ref and "$ref" in schema
        for word, value in schema.items():
            if word not in words or (alone and word != "$ref"):
                continue
            self.dialect.check(word, value)
            match words[word]:
                case Shape.SCHEMA:
                    yield value
                case Shape.SCHEMAS:
                    yield from _schemas(word, value)
                case Shape.SCHEMAS_BY_NAME:
                    yield from _schemas(word, value.values())
                case Shape.SCHEMA_OR_SCHEMAS:
                    yield from _schemas(word, value if isinstance(value, list) else [value])
                case Shape.SCHEMAS_OR_NAMES:
                    for part in value.values():
                        if not isinstance(part, list):
                            yield from _schemas(word, [part])
                        else:
                            _check_names(word, part)
                case _:
                    pass


def measure(schema: Any) -> None:
    """Bound a schema before anything else is done with it.

    Raises:
        UnsupportedSchema: It is too deep, or too large.
    """
    level: list[Any] = [schema]
    size = depth = 0
    while level:
        size += len(level)
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsupportedSchema(f"it is nested more than {MAX_DEPTH} levels deep")
        if size > MAX_SIZE:
            raise UnsupportedSchema(f"it has more than {MAX_SIZE:,} values in it")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below


def _schemas(word: str, values: Any) -> Iterator[Any]:
    for value in values:
        if not isinstance(value, (dict, bool)):
            raise UnsupportedSchema(f"there is something in {quoted(word)} that is no schema")
        yield value


def _check_names(word: str, value: list[Any]) -> None:
    if not all(isinstance(name, str) for name in value):
        raise UnsupportedSchema(f"there is something in {quoted(word)} that is no name")


def _split(base: str, reference: str) -> tuple[str, str]:
    if reference.startswith("#"):  # also where the base is none that anything can be joined to
        return base, reference[1:]
    try:
        uri, fragment = urldefrag(urljoin(base, reference))
    except ValueError as error:
        raise UnsupportedSchema(f"{quoted(reference)} is no URI") from error
    return uri, fragment


def _dangling(reference: str) -> UnsupportedSchema:
    return UnsupportedSchema(f"the reference {quoted(reference)} leads nowhere")
