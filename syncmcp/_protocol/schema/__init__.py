"""Compiles the JSON Schemas of servers, and checks values with bounded time and memory.

Both sides of a check come from a server: the schema and the value. So nothing is ever fetched, no
pattern backtracks, and depth, size and steps are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Any, Final

from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing import Resource, Specification
from referencing.jsonschema import specification_with

from syncmcp._base.origin import join_url
from syncmcp._protocol.metadata import direct_subschemas
from syncmcp._protocol.patterns import MAX_PATTERNS, Pattern
from syncmcp._protocol.schema.place import (
    MAX_REFERENCE,
    Dialect,
    Knowledge,
    Place,
    Problem,
    Run,
    quoted,
    resolve,
    segment_beyond_ascii,
    too_deep,
)
from syncmcp._protocol.schema.words import REFERENCES, words_of
from syncmcp.errors import UnsupportedSchema

__all__ = ["DIALECTS", "Problem", "Schema", "compile_schema"]

MAX_DEPTH: Final = 200
"""The deepest nesting of the JSON of a schema."""
MAX_SIZE: Final = 500_000
"""The most values in a schema, without the names of members."""
MAX_SUBSCHEMAS: Final = 20_000
"""The most subschemas in a schema."""

DEFAULT: Final = "https://json-schema.org/draft/2020-12/schema"
"""The dialect of a schema without ``$schema`` (spec: basic, "Schema Dialect")."""

DIALECTS: Final[Mapping[str, str]] = {
    DEFAULT: "JSON Schema 2020-12",
    "https://json-schema.org/draft/2019-09/schema": "JSON Schema 2019-09",
    "http://json-schema.org/draft-07/schema": "JSON Schema draft-07",
    "http://json-schema.org/draft-06/schema": "JSON Schema draft-06",
    "http://json-schema.org/draft-04/schema": "JSON Schema draft-04",
}
"""The names of the dialects, by the URI in ``$schema`` without an empty fragment."""

# The base URI of a schema without an identifier.
_HERE: Final = "schema:"

# The number of types, and so the most names in a list of types.
_TYPES: Final = 7
# The least size that a pattern counts as.
_SMALLEST: Final = 10

# References whose target depends on the enclosing schemas in a check: it may be any anchor.
_DYNAMIC: Final = frozenset(("$dynamicRef", "$recursiveRef"))
# Keywords whose schemas are applied by references only.
_KEPT: Final = frozenset(("$defs", "contentSchema", "definitions"))
# Annotations. They restrict no value, and servers write anything into them.
_REMARKS: Final = frozenset(
    (
        *("$comment", "$schema", "contentEncoding", "contentMediaType", "default", "deprecated"),
        *("description", "examples", "format", "readOnly", "title", "writeOnly"),
    )
)
# Lists that must not be empty in old metaschemas, but that some generators leave empty.
_MAY_BE_EMPTY: Final = frozenset(("items", "required"))


class Schema:
    """A compiled schema. Any thread may use it."""

    def __init__(self, schema: Any, resolver: Any, knowledge: Knowledge) -> None:
        self._schema = schema
        self._resolver = resolver
        self._knowledge = knowledge
        self.dialect = knowledge.dialect.name

    def problem(self, value: Any, look: Callable[[], object] = lambda: None) -> Problem | None:
        """Return the first problem of `value`, any JSON value; `None` if it fits.

        `look` is called every few thousand steps, on this thread; its exception ends the check.
        `UnsupportedSchema` if the check takes too many steps, or is nested too deeply.
        """
        try:
            place = Place(self._schema, self._resolver, self._knowledge, Run(look))
            return next(place.iter_errors(value), None)
        except RecursionError:
            # The caller's stack may leave less room than the allowed levels need.
            raise too_deep() from None


def compile_schema(schema: Any, look: Callable[[], object] = lambda: None) -> Schema:
    """Compile a schema, as the server sent it, in the dialect of its ``$schema``.

    `look` is called every few thousand steps, on this thread; its exception ends the compilation.
    `UnsupportedSchema` if `schema` is not a schema, or cannot be used to check values.
    """
    uri = dialect_of(schema)
    if not isinstance(schema, (dict, bool)):
        raise UnsupportedSchema("it is neither an object nor a boolean")
    measure(schema)
    try:
        return _Compiler(uri, Run(look)).compile(schema)
    except RecursionError:
        raise too_deep() from None


def dialect_of(schema: Any) -> str:
    """Return the dialect's URI: the one in ``$schema``, which must be supported, or the default."""
    said = schema.get("$schema", DEFAULT) if isinstance(schema, dict) else DEFAULT
    if not isinstance(said, str):
        raise UnsupportedSchema("'$schema' is not a string")
    uri = said.removesuffix("#")
    for known in (uri, uri.replace("https:", "http:")):
        if known in DIALECTS:
            return known
    raise UnsupportedSchema(f"its dialect {quoted(said)} is not supported")


def measure(schema: Any) -> None:
    """Raise `UnsupportedSchema` if a schema is nested too deeply or too large."""
    level: list[Any] = [schema]
    size = depth = 0
    while level:
        size += len(level)
        depth += 1
        if depth > MAX_DEPTH:
            raise UnsupportedSchema(f"it is nested more than {MAX_DEPTH} levels deep")
        if size > MAX_SIZE:
            raise UnsupportedSchema(f"it has more than {MAX_SIZE:,} values")
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below


class _Compiler:
    """Checks every subschema once at compilation, even if no reference leads to it."""

    def __init__(self, uri: str, run: Run) -> None:
        dialect, shallow, self._metaschema = _dialect(uri)
        self._uri = uri
        self._run = run
        self._examined: set[int] = set()
        self._knowledge = Knowledge(dialect, self._examined)
        self._shallow = Knowledge(shallow, None)
        self._shapes: dict[str, Place] = {}
        self._pattern_size = 0
        self._dynamic = False

    def compile(self, schema: Any) -> Schema:
        try:
            waiting = [(schema, _HERE)]
            while waiting:
                part, base = waiting.pop()
                self._examine(part)
                self._dynamic |= isinstance(part, dict) and not _DYNAMIC.isdisjoint(part)
                base = self._join(base, part)
                waiting += [(inner, base) for inner in _parts(self._metaschema, part)]
            registry = REGISTRY.with_resource(_HERE, self._resource(schema)).crawl()
            resolver = registry.resolver(_HERE).in_subresource(self._resource(schema))
            self._follow_references(schema, resolver)
        except ValueError:
            raise UnsupportedSchema("it contains an invalid URI") from None
        return Schema(schema, resolver, self._knowledge)

    def _resource(self, schema: Any) -> Resource[Any]:
        return self._knowledge.dialect.specification.create_resource(schema)

    def _examine(self, schema: Any) -> None:
        """Check one subschema, without those inside it."""
        if isinstance(schema, bool) or id(schema) in self._examined:
            return
        self._examined.add(id(schema))
        if len(self._examined) > MAX_SUBSCHEMAS:
            raise UnsupportedSchema(f"it consists of more than {MAX_SUBSCHEMAS:,} schemas")
        empty = {word for word in _MAY_BE_EMPTY if schema.get(word) == []}
        for word in (self._metaschema.keys() & schema.keys()) - empty:
            shape = self._shapes.get(word)
            if shape is None:
                shape = Place(*self._metaschema[word], self._shallow, self._run)
                self._shapes[word] = shape
            for problem in shape.iter_errors(schema[word], word):
                raise UnsupportedSchema(f"it is not valid {DIALECTS[self._uri]}: {problem}")
        types = schema.get("type")
        if isinstance(types, list) and len(types) > _TYPES:  # a check compares each of them
            raise UnsupportedSchema(f"it is not valid {DIALECTS[self._uri]}: it repeats a type")
        if schema.get("multipleOf") == math.inf:
            raise UnsupportedSchema("a number in it is too large")
        named = "$schema" in schema and self._knowledge.dialect.specification.id_of(schema)
        if named and dialect_of(schema) != self._uri:
            raise UnsupportedSchema("it mixes schemas of two dialects")

    def _join(self, base: str, schema: Any) -> str:
        """Return the base URI within a subschema; `referencing` joins each of them, too."""
        id = self._resource(schema).id()
        if id is None:
            return base
        self._measure(len(id), id)
        self._run.spend(2 * self._knowledge.joining)
        joined = join_url(base, id)
        self._measure(len(joined), id)
        return joined

    def _measure(self, joined: int, id: str) -> None:
        """Check the length of an identifier joined to the enclosing ones, in characters."""
        if joined > MAX_REFERENCE:
            raise UnsupportedSchema(f"an identifier has more than {MAX_REFERENCE:,} characters")
        self._knowledge.longest = max(self._knowledge.longest, joined)
        self._knowledge.segment = max(self._knowledge.segment, segment_beyond_ascii(id))

    def _add_pattern(self, pattern: str) -> None:
        if pattern not in self._knowledge.patterns:
            read = self._knowledge.patterns[pattern] = Pattern(pattern)
            self._run.spend(read.compiling)
            self._pattern_size += max(read.size, _SMALLEST)
            if self._pattern_size > MAX_PATTERNS:
                raise UnsupportedSchema("its patterns are too large in total")

    def _follow_references(self, schema: Any, resolver: Any) -> None:
        """Check that all applied references lead to schemas, and compile the patterns of these."""
        dialect = self._knowledge.dialect
        words = self._metaschema.keys() - (() if self._dynamic else _KEPT)
        # The last member is the number of references that lead there, one after the other.
        waiting, followed = [(schema, resolver, 0)], set()
        while waiting:
            part, resolver, before = waiting.pop()
            if isinstance(part, bool) or id(part) in followed:
                continue
            followed.add(id(part))
            applied = dialect.applied(part)
            for word in REFERENCES & applied.keys() & dialect.words.keys():
                self._run.spend(self._knowledge.looking_up(word, applied[word], before))
                found = resolve(word, applied[word], resolver)
                self._examine_further(found.contents)
                waiting.append((found.contents, found.resolver, before + 1))
            for pattern in (*applied.get("patternProperties", ()), applied.get("pattern")):
                if pattern is not None:
                    self._add_pattern(pattern)
            for inner in _parts(words, applied):
                self._examine_further(inner)
                inside = resolver.in_subresource(self._resource(inner))
                waiting.append((inner, inside, before))

    def _examine_further(self, schema: Any) -> None:
        """Check a subschema that a reference leads to, which may be in the value of any keyword."""
        if id(schema) in self._examined:
            return
        self._examine(schema)
        identifier = self._resource(schema).id() or ""
        # The URI that it is joined to is unknown here: the longest one is assumed.
        self._measure(self._knowledge.longest + len(identifier), identifier)


@cache
def _dialect(uri: str) -> tuple[Dialect, Dialect, dict[str, tuple[Any, Any]]]:
    """Return a dialect, its variant for metaschemas, and its metaschema by keyword.

    The variant does not descend into subschemas. Each keyword has its part of the metaschema and
    the resolver of references in that part.
    """
    root: Any = REGISTRY.resolver().lookup(uri)
    parts = [root.resolver.lookup(part["$ref"]) for part in root.contents.get("allOf", ())]
    metaschema = {
        word: (said, part.resolver)
        for part in parts or [root]
        for word, said in part.contents["properties"].items()
        if word not in _REMARKS
    }
    metaschema["definitions"] = root.contents["properties"]["definitions"], root.resolver
    validator = validator_for({"$schema": uri})
    theirs = specification_with(uri)
    specification: Specification[Any] = Specification(  # type: ignore[call-arg]
        name=theirs.name,
        id_of=partial(_id_of, theirs),
        subresources_of=lambda schema: map(_without_dialect, _parts(metaschema, schema)),
        anchors_in=lambda _, contents: theirs.anchors_in(contents),
        maybe_in_subresource=theirs.maybe_in_subresource,
    )
    words = words_of(validator)
    dialect = Dialect(DIALECTS[uri], words, validator.TYPE_CHECKER, specification)
    shallow = {**words, "$ref": _to_shape, "$dynamicRef": _is_schema, "$recursiveRef": _is_schema}
    del shallow["uniqueItems"]  # a duplicate name in `required` is harmless
    return dialect, dialect._replace(words=shallow), metaschema


def _id_of(specification: Specification[Any], schema: Any) -> str | None:
    """Return the identifier of a schema, which `referencing` joins to the enclosing ones."""
    found = specification.id_of(schema) if isinstance(schema, dict) else None
    if not isinstance(found, str):  # in a subschema, the metaschema reports an invalid identifier
        return None
    segment_beyond_ascii(found)
    return found or None


def _parts(words: Container[str], schema: Any) -> Iterator[Any]:
    """Yield the subschemas of a schema, in the values of these keywords."""
    for word, _, part in direct_subschemas(schema) if isinstance(schema, dict) else ():
        if word in words and isinstance(part, dict):
            yield part


def _without_dialect(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without ``$schema``: `referencing` then uses the enclosing dialect."""
    if "$schema" not in schema:
        return schema
    return {word: said for word, said in schema.items() if word != "$schema"}


def _to_shape(place: Place, said: str, value: Any, schema: Any) -> Iterable[Problem]:
    if said == "#":
        return _is_schema(place, said, value, schema)
    return place.refer("$ref", said).iter_errors(value)


def _is_schema(_place: Place, _said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    return () if isinstance(value, (dict, bool)) else (Problem("is not a schema"),)
