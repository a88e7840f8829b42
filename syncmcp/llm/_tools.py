"""The tools that a model is told of: under names, and with schemas, that its provider accepts."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from syncmcp import types
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.types import Tool, ToolUseContent

__all__ = ["AdaptedSchema", "NameRule", "Names", "RenderedTool", "SchemaRules", "ToolTable"]


# Names that a provider accepts, in the place of names that it may not.


_DIGEST = 8


@dataclass(frozen=True)
class NameRule:
    """What a provider accepts as a name.

    Attributes:
        longest: In characters.
        others: Characters besides ASCII letters and digits, ``_`` and ``-``.
        begins_with_letter: Whether the first must be a letter or ``_``.
    """

    longest: int
    others: str = ""
    begins_with_letter: bool = False
    _foreign: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        foreign = re.compile(f"[^A-Za-z0-9_{re.escape(self.others)}-]")
        object.__setattr__(self, "_foreign", foreign)

    def accepts(self, name: str) -> bool:
        """Whether the provider takes this name as it is."""
        return (
            0 < len(name) <= self.longest
            and self._foreign.search(name) is None
            and not self._begins_badly(name)
        )

    def fitted(self, name: str, attempt: int = 0) -> str:
        """The name itself, or one for it: the same for the same name, and recognisable.

        Args:
            name: Any string.
            attempt: Another number gives another name, where the first is taken.
        """
        if not attempt and self.accepts(name):
            return name
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(seed).hexdigest()[:_DIGEST]
        begin = self._foreign.sub("_", name[: self.longest])
        if self._begins_badly(begin):
            begin = f"_{begin}"
        return f"{begin[: self.longest - _DIGEST - 1]}_{digest}"

    def _begins_badly(self, name: str) -> bool:
        return self.begins_with_letter and not (name[:1].isalpha() or name[:1] == "_")


class Names:
    """A translation of names that can be undone.

    Args:
        rule: What is accepted.
        names: All names there are. A name that needs no change is never taken by another one,
            whatever a server calls its tools.
    """

    def __init__(self, rule: NameRule, names: Iterable[str]) -> None:
        self._rule = rule
        self._out: dict[str, str] = {}
        given = list(dict.fromkeys(names))
        self._back = {name: name for name in given if rule.accepts(name)}
        for name in given:
            if rule.accepts(name):
                continue
            attempt = 0
            while (fitted := rule.fitted(name, attempt)) in self._back:
                attempt += 1
            self._out[name] = fitted
            self._back[fitted] = name

    @property
    def changes(self) -> bool:
        """Whether any name is changed."""
        return bool(self._out)

    def out(self, name: str) -> str:
        """The name for the provider; also of one that was not announced."""
        return self._out.get(name) or self._rule.fitted(name)

    def changed(self, name: str) -> str:
        """The name for the provider if it was announced, else the name itself."""
        return self._out.get(name, name)

    def back(self, name: str) -> str:
        """The name that the provider's stands for; itself if it stands for none."""
        return self._back.get(name, name)


# JSON Schemas that a provider accepts, and arguments translated between the two.


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


class RenderedTool:
    """One tool as a provider is to see it.

    Attributes:
        tool: The tool.
        name: What the model calls it.
        description: What the model is told; cut where the provider sets a limit.
    """

    def __init__(self, tool: Tool, name: str, rules: SchemaRules, longest: int | None) -> None:
        self.tool = tool
        self.name = name
        self._rules = rules
        said = tool.description or tool.title or ""
        self.description = (
            said if longest is None or len(said) <= longest else said[: longest - 1] + "…"
        )

    @cached_property
    def adapted(self) -> AdaptedSchema:
        """Its schema."""
        return AdaptedSchema(self.tool.input_schema, self._rules)


class ToolTable:
    """All tools of a request.

    Args:
        tools: The tools.
        names: How a tool may be called.
        rules: What a schema may be.
        longest_description: In characters; `None` for any length.

    Raises:
        UsageError: Two tools have one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        names: NameRule,
        rules: SchemaRules,
        longest_description: int | None = None,
    ) -> None:
        given = list(tools)
        self._names = Names(names, (tool.name for tool in given))
        self._tools: dict[str, RenderedTool] = {}
        for tool in given:
            if tool.name in self._tools:
                raise UsageError(f"two tools are called {tool.name!r}: a model could not tell them")
            name = self._names.out(tool.name)
            self._tools[tool.name] = RenderedTool(tool, name, rules, longest_description)

    def __iter__(self) -> Iterator[RenderedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def out(self, use: ToolUseContent) -> tuple[str, dict[str, Any]]:
        """What the model calls a tool, and its arguments as the model knows them."""
        known = self._tools.get(use.name)
        return self._names.out(use.name), use.input if known is None else known.adapted.out(
            use.input
        )

    def name_of(self, name: str) -> str:
        """The name of the tool that the model calls so."""
        return self._names.back(name)

    def back(self, id: str, name: str, arguments: dict[str, Any]) -> ToolUseContent:
        """What the model wants, in the tool's own words."""
        name = self._names.back(name)
        known = self._tools.get(name)
        if known is not None:
            arguments = known.adapted.back(arguments)
        return types.ToolUseContent(id=id, name=name, input=arguments)

    def tool(self, name: str, description: str | None, schema: dict[str, Any]) -> Tool:
        """The tool that a definition is of: the one it was made from, or a new one."""
        known = self._tools.get(self._names.back(name))
        if known is not None:
            return known.tool
        return types.Tool(name=name, description=description, input_schema=schema)
