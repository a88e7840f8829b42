"""JSON Schemas that a provider accepts, and arguments translated between the two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from syncmcp.llm._names import NameRule, Names

__all__ = ["AdaptedSchema", "SchemaRules"]

MAX_DEPTH: Final = 64
"""Subschemas within each other; what lies deeper may be anything."""

# Schemas that contain themselves would be written out without end.
_MOST_FOLLOWED: Final = 100

WRAPPER: Final = "input"
"""The property that holds all arguments, where a schema may not stand at the root."""

_SCHEMAS: Final = frozenset(
    (
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_MAPS: Final = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties"))
# What says nothing of the value.
_ANNOTATIONS: Final = frozenset(
    ("$defs", "$id", "$schema", "default", "deprecated", "description", "examples", "title")
)
# Of no use to a model, or about the document.
_IDENTITY: Final = frozenset(("$schema", "$id", "$comment", "$vocabulary"))


@dataclass(frozen=True)
class SchemaRules:
    """What a provider accepts as the schema of a tool's arguments.

    Attributes:
        keys: How properties may be called; `None` for anything.
        not_at_root: Keywords that may stand anywhere but at the root.
        keywords: The only ones there are; `None` for all. What others say is told in the
            description.
        combines: Whether ``oneOf``, ``allOf`` and ``const`` exist, and anything beside ``$ref``.
    """

    keys: NameRule | None
    not_at_root: frozenset[str]
    keywords: frozenset[str] | None = None
    combines: bool = True


class AdaptedSchema:
    """A tool's schema in the form that a provider accepts.

    Properties whose names it refuses have others; a schema that may not stand at the root is the
    only property of one that may. Both are undone in arguments that come back.

    Args:
        original: The schema, left as it is.
        rules: What the provider accepts.
    """

    def __init__(self, original: dict[str, Any], rules: SchemaRules) -> None:
        self._original = original
        self._rules = rules
        self._followed = 0
        self._keys = None if rules.keys is None else Names(rules.keys, set(_keys(original, 0)))
        self._wrapped = original.get("type", "object") != "object" or any(
            word in original for word in rules.not_at_root
        )
        schema = self._adapted(original, 0)
        if self._wrapped:
            definitions = {"$defs": schema.pop("$defs")} if "$defs" in schema else {}
            schema = {
                "type": "object",
                "properties": {WRAPPER: schema},
                "required": [WRAPPER],
                **definitions,
            }
        schema["type"] = "object"
        schema.setdefault("properties", {})
        self.schema: dict[str, Any] = schema

    def out(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Arguments as the model knows them."""
        if self._keys is not None and self._keys.changes:
            arguments = _renamed(arguments, self._keys.changed)
        return {WRAPPER: arguments} if self._wrapped else arguments

    def back(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The model's arguments as the tool knows them."""
        inner = arguments.get(WRAPPER)
        if self._wrapped and isinstance(inner, dict) and len(arguments) == 1:
            arguments = inner
        if self._keys is not None and self._keys.changes:
            arguments = _renamed(arguments, self._keys.back)
        return arguments

    # -- the schema

    def _adapted(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}  # `true`; nothing a model should be told says `false`
        found: dict[str, Any] = {}
        dropped: dict[str, Any] = {}
        schema = self._combined(schema)
        alone = not self._rules.combines and isinstance(schema.get("$ref"), str)
        for word, value in schema.items():
            if word in _IDENTITY or (alone and not word.startswith("$")):
                continue
            if self._rules.keywords is not None and word not in self._rules.keywords:
                dropped[word] = value
                continue
            found[word] = self._keyword(word, value, depth)
        if "array" in _types(found):
            found.setdefault("items", {})
        if told := {word: value for word, value in dropped.items() if word not in _MAPS}:
            said = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
            found["description"] = f"{found.get('description', '')} {said}".strip()
        return found

    def _keyword(self, word: str, value: Any, depth: int) -> Any:
        if word == "properties" and isinstance(value, dict):
            return {self._key(key): self._adapted(sub, depth + 1) for key, sub in value.items()}
        if word in ("required", "propertyOrdering") and isinstance(value, list):
            return [self._key(key) if isinstance(key, str) else key for key in value]
        if word == "dependentRequired" and isinstance(value, dict):
            return {self._key(key): [*map(self._key, names)] for key, names in value.items()}
        if word == "$ref" and isinstance(value, str):
            return self._reference(value)
        if word == "additionalProperties" and isinstance(value, bool):
            return value
        if word in _SCHEMAS:
            return self._adapted(value, depth + 1)
        if word in _LISTS and isinstance(value, list):
            return [self._adapted(sub, depth + 1) for sub in value]
        if word in _MAPS and isinstance(value, dict):
            return {key: self._adapted(sub, depth + 1) for key, sub in value.items()}
        return value

    def _key(self, key: str) -> str:
        return key if self._keys is None else self._keys.out(key)

    def _reference(self, reference: str) -> str:
        path = [part.replace("~1", "/").replace("~0", "~") for part in reference.split("/")]
        if path[0] != "#":
            return reference
        if path[1:2] == ["definitions"]:
            path[1] = "$defs"
        if self._wrapped and path[1:2] != ["$defs"]:
            path[1:1] = ["properties", WRAPPER]
        named = [
            self._key(part) if path[index] == "properties" else part
            for index, part in enumerate(path[1:])
        ]
        return "/".join(["#", *(part.replace("~", "~0").replace("/", "~1") for part in named)])

    def _combined(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The same schema with the keywords of 2020-12, and those the provider has."""
        if isinstance(schema.get("definitions"), dict):  # until draft 7
            schema = {**schema, "$defs": {**schema["definitions"], **schema.get("$defs", {})}}
            del schema["definitions"]
        if isinstance(schema.get("items"), list):  # a tuple, until 2019-09
            schema = {**schema, "prefixItems": schema["items"], "items": {}}
            if isinstance(rest := schema.pop("additionalItems", None), dict):
                schema["items"] = rest
        if self._rules.combines:
            return schema
        if "const" in schema:
            schema = {**schema, "enum": [schema["const"]]}
            del schema["const"]
        schema = self._one_of_all(schema)
        if "oneOf" in schema:
            schema = dict(schema)
            # Where there is an `anyOf` too, what that says is enough.
            schema.setdefault("anyOf", schema.pop("oneOf"))
        return schema

    def _one_of_all(self, schema: dict[str, Any]) -> dict[str, Any]:
        """The same schema with what ``allOf`` says in it, those within each other included."""
        seen: set[str] = set()
        for _ in range(MAX_DEPTH):
            branches = schema.get("allOf")
            if not isinstance(branches, list):
                break
            schema = {word: value for word, value in schema.items() if word != "allOf"}
            more = len(branches) > 1 or not _ANNOTATIONS.issuperset(schema)
            for branch in branches:
                if isinstance(branch, dict):
                    schema = _merged(schema, self._resolved(branch, seen) if more else branch)
        return {word: value for word, value in schema.items() if word != "allOf"}

    def _resolved(self, branch: dict[str, Any], seen: set[str]) -> dict[str, Any]:
        """What a branch refers to, as nothing may stand beside a reference.

        Args:
            branch: One of an ``allOf``.
            seen: The references that were followed there.
        """
        name = branch.get("$ref")
        if not isinstance(name, str) or self._followed >= _MOST_FOLLOWED:
            return branch
        beside = {word: value for word, value in branch.items() if word != "$ref"}
        if name in seen:
            return beside
        found = _found(self._original, name)
        if found is None:
            return branch
        seen.add(name)
        self._followed += 1
        return _merged(beside, found)


def _merged(schema: dict[str, Any], branch: dict[str, Any]) -> dict[str, Any]:
    """Both at once, as far as that can be said without ``allOf``."""
    merged = {**branch, **schema}
    ours, theirs = schema.get("allOf"), branch.get("allOf")
    if isinstance(ours, list) and isinstance(theirs, list):
        merged["allOf"] = [*ours, *theirs]
    ours, theirs = schema.get("properties"), branch.get("properties")
    if isinstance(ours, dict) and isinstance(theirs, dict):
        merged["properties"] = {**theirs, **ours}
    ours, theirs = schema.get("required"), branch.get("required")
    if isinstance(ours, list) and isinstance(theirs, list):
        merged["required"] = list(dict.fromkeys([*ours, *theirs]))
    return merged


def _found(schema: Any, reference: str) -> dict[str, Any] | None:
    """What a reference into the same document leads to, if that is a schema."""
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        schema = schema.get(name) if isinstance(schema, dict) else None
    return schema if isinstance(schema, dict) else None


def _types(schema: dict[str, Any]) -> list[Any]:
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def _keys(schema: Any, depth: int) -> Iterator[str]:
    """The names of all properties in a schema."""
    if depth > MAX_DEPTH + 1 or not isinstance(schema, dict):
        return
    for word, value in schema.items():
        if word == "properties" and isinstance(value, dict):
            yield from value
        if (word in _MAPS or word == "properties") and isinstance(value, dict):
            subschemas = list(value.values())
        elif word in _SCHEMAS or word in _LISTS:
            subschemas = value if isinstance(value, list) else [value]
        else:
            continue
        for subschema in subschemas:
            yield from _keys(subschema, depth + 1)


def _renamed(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name(key): _renamed(member, name) for key, member in value.items()}
    if isinstance(value, list):
        return [_renamed(item, name) for item in value]
    return value
