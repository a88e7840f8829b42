"""A whole schema with everything in it that a reference can name.

Every subschema is looked at here, once and before any value is: so what is found later is known to
be well-formed, and what nobody will ever reach must be, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from syncmcp._protocol.schema.dialect import Dialect, Shape, dialect_of
from syncmcp._protocol.schema.run import quoted
from syncmcp.errors import UnsupportedSchema

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
