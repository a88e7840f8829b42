"""The tools of a model, with names and schemas adapted to the rules of its provider."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from syncmcp import types
from syncmcp._base.checks import kind_of
from syncmcp.errors import UsageError

# Names: adapted to the rules of a provider, reversibly.


_DIGEST_LENGTH = 8


@dataclass(frozen=True)
class NameRule:
    """The rule of a provider for names.

    Attributes:
        max_length: The maximum length, in characters.
        extra_characters: Characters allowed besides ASCII letters and digits, ``_`` and ``-``.
        begins_with_letter: Whether the first character must be a letter or ``_``.
    """

    max_length: int
    extra_characters: str = ""
    begins_with_letter: bool = False
    _invalid: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        invalid = re.compile(f"[^A-Za-z0-9_{re.escape(self.extra_characters)}-]")
        object.__setattr__(self, "_invalid", invalid)

    def accepts(self, name: str) -> bool:
        return (
            0 < len(name) <= self.max_length
            and self._invalid.search(name) is None
            and not self._starts_invalid(name)
        )

    def fit(self, name: str, attempt: int = 0) -> str:
        """Return an accepted name itself, or a similar name with a digest that `attempt` varies."""
        if not attempt and self.accepts(name):
            return name
        seed = f"{attempt}:{name}".encode("utf-8", "surrogatepass")
        digest = hashlib.sha256(seed).hexdigest()[:_DIGEST_LENGTH]
        begin = self._invalid.sub("_", name[: self.max_length])
        if self._starts_invalid(begin):
            begin = f"_{begin}"
        return f"{begin[: self.max_length - _DIGEST_LENGTH - 1]}_{digest}"

    def _starts_invalid(self, name: str) -> bool:
        return self.begins_with_letter and not (name[:1].isalpha() or name[:1] == "_")


class NameMap:
    """A reversible mapping of names to names that a provider accepts.

    If one of `names` is accepted unchanged, no other name is mapped to it, whatever names a server
    gives to its tools.
    """

    def __init__(self, rule: NameRule, names: Iterable[str]) -> None:
        self._rule = rule
        self._to_provider: dict[str, str] = {}
        given = list(dict.fromkeys(names))
        self._from_provider = {name: name for name in given if rule.accepts(name)}
        for name in given:
            if rule.accepts(name):
                continue
            attempt = 0
            while (provider_name := rule.fit(name, attempt)) in self._from_provider:
                attempt += 1
            self._to_provider[name] = provider_name
            self._from_provider[provider_name] = name

    @property
    def has_changes(self) -> bool:
        return bool(self._to_provider)

    def to_provider(self, name: str) -> str:
        """Return the provider name of any name, known or unknown."""
        return self._to_provider.get(name) or self._rule.fit(name)

    def to_provider_if_known(self, name: str) -> str:
        """Return the provider name of a known name, else the name itself."""
        return self._to_provider.get(name, name)

    def from_provider(self, name: str) -> str:
        """Return the original of a provider name; the name itself if it is unknown."""
        return self._from_provider.get(name, name)


# JSON Schemas: adapted to the rules of a provider; arguments converted accordingly.


MAX_DEPTH: Final = 64
"""The maximum nesting of subschemas; deeper ones are replaced by ``{}``."""

MAX_GROWTH: Final = 4
"""The most that inlined references may add to a schema, as a multiple of its own size."""

WRAPPER: Final = "input"
"""The property that wraps the arguments of a schema that is not allowed at the root."""

_SUBSCHEMA_KEYWORDS: Final = frozenset(
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
_SUBSCHEMA_LISTS: Final = frozenset(("allOf", "anyOf", "oneOf", "prefixItems"))
_SUBSCHEMA_MAPS: Final = frozenset(
    ("$defs", "definitions", "dependentSchemas", "patternProperties")
)
# Keywords that do not constrain the value.
_ANNOTATIONS: Final = frozenset(
    ("$defs", "$id", "$schema", "default", "deprecated", "description", "examples", "title")
)
# Keywords about the schema document, of no use to a model.
_IDENTITY: Final = frozenset(("$schema", "$id", "$comment", "$vocabulary"))


@dataclass(frozen=True)
class SchemaRules:
    """The rules of a provider for the schema of a tool's arguments.

    Attributes:
        keys: The rule for names of properties; `None` for any name.
        not_at_root: Keywords that are allowed anywhere but at the root.
        keywords: The allowed keywords; `None` for all. Other keywords are moved into the
            description.
        has_combinators: Whether ``oneOf``, ``allOf``, ``const`` and siblings of ``$ref`` are
            allowed.
    """

    keys: NameRule | None
    not_at_root: frozenset[str]
    keywords: frozenset[str] | None = None
    has_combinators: bool = True


class AdaptedSchema:
    """The schema of a tool, adapted to the rules of a provider.

    Properties with unacceptable names are renamed; a schema that is not allowed at the root is
    wrapped as the only property of an object. Both are reversed in arguments of the model.
    """

    def __init__(self, original: dict[str, Any], rules: SchemaRules) -> None:
        self._original = original
        self._rules = rules
        # The number of values that may still be added: recursive schemas would grow without limit.
        self._left: int | None = None
        self._key_names = (
            None if rules.keys is None else NameMap(rules.keys, set(_property_names(original, 0)))
        )
        self._wrapped = original.get("type", "object") != "object" or any(
            word in original for word in rules.not_at_root
        )
        schema = self._adapt(original, 0)
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

    def to_provider(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert arguments of the tool into those of the adapted schema."""
        if self._key_names is not None and self._key_names.has_changes:
            arguments = _rename_keys(arguments, self._key_names.to_provider_if_known)
        return {WRAPPER: arguments} if self._wrapped else arguments

    def from_provider(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Convert arguments of the adapted schema into those of the tool."""
        inner = arguments.get(WRAPPER)
        if self._wrapped and isinstance(inner, dict) and len(arguments) == 1:
            arguments = inner
        if self._key_names is not None and self._key_names.has_changes:
            arguments = _rename_keys(arguments, self._key_names.from_provider)
        return arguments

    # -- the schema

    def _adapt(self, schema: Any, depth: int) -> Any:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            return {}  # `true`, too deep, or `false`, which is useless to a model
        found: dict[str, Any] = {}
        dropped: dict[str, Any] = {}
        schema = self._normalize(schema)
        alone = not self._rules.has_combinators and isinstance(schema.get("$ref"), str)
        for word, value in schema.items():
            if word in _IDENTITY or (alone and not word.startswith("$")):
                continue
            if self._rules.keywords is not None and word not in self._rules.keywords:
                dropped[word] = value
                continue
            found[word] = self._adapt_keyword(word, value, depth)
        kind = found.get("type")
        if "array" in (kind if isinstance(kind, list) else [kind]):
            found.setdefault("items", {})
        if told := {word: value for word, value in dropped.items() if word not in _SUBSCHEMA_MAPS}:
            said = json.dumps(told, ensure_ascii=False, separators=(",", ":"))
            found["description"] = f"{found.get('description', '')} {said}".strip()
        return found

    def _adapt_keyword(self, word: str, value: Any, depth: int) -> Any:
        if word == "properties" and isinstance(value, dict):
            return {self._key(key): self._adapt(sub, depth + 1) for key, sub in value.items()}
        if word in ("required", "propertyOrdering") and isinstance(value, list):
            return [self._key(key) if isinstance(key, str) else key for key in value]
        if word == "dependentRequired" and isinstance(value, dict):
            return {self._key(key): [*map(self._key, names)] for key, names in value.items()}
        if word == "$ref" and isinstance(value, str):
            return self._reference(value)
        if word == "additionalProperties" and isinstance(value, bool):
            return value
        if word in _SUBSCHEMA_KEYWORDS:
            return self._adapt(value, depth + 1)
        if word in _SUBSCHEMA_LISTS and isinstance(value, list):
            return [self._adapt(sub, depth + 1) for sub in value]
        if word in _SUBSCHEMA_MAPS and isinstance(value, dict):
            return {key: self._adapt(sub, depth + 1) for key, sub in value.items()}
        return value

    def _key(self, key: str) -> str:
        return key if self._key_names is None else self._key_names.to_provider(key)

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

    def _normalize(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with keywords of draft 2020-12 that the provider accepts."""
        if isinstance(schema.get("definitions"), dict):  # until draft 7
            newer = schema.get("$defs")
            both = {**schema["definitions"], **(newer if isinstance(newer, dict) else {})}
            schema = {**schema, "$defs": both}
            del schema["definitions"]
        if isinstance(schema.get("items"), list):  # a tuple, until 2019-09
            schema = {**schema, "prefixItems": schema["items"], "items": {}}
            if isinstance(rest := schema.pop("additionalItems", None), dict):
                schema["items"] = rest
        if self._rules.has_combinators:
            return schema
        if "const" in schema:
            schema = {**schema, "enum": [schema["const"]]}
            del schema["const"]
        schema = self._flatten_all_of(schema)
        if "oneOf" in schema:
            schema = dict(schema)
            # If there is an `anyOf`, too, it is kept and `oneOf` is dropped.
            schema.setdefault("anyOf", schema.pop("oneOf"))
        return schema

    def _flatten_all_of(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the schema with all branches of ``allOf`` merged into it, nested ones included."""
        seen: set[str] = set()
        for _ in range(MAX_DEPTH):
            branches = schema.get("allOf")
            if not isinstance(branches, list):
                break
            schema = {word: value for word, value in schema.items() if word != "allOf"}
            more = len(branches) > 1 or not _ANNOTATIONS.issuperset(schema)
            found = [branch for branch in branches if isinstance(branch, dict)]
            if more:
                found = [part for each in found for part in self._resolve_branch(each, seen)]
            schema = _merge([schema, *found])
        return {word: value for word, value in schema.items() if word != "allOf"}

    def _resolve_branch(self, branch: dict[str, Any], seen: set[str]) -> list[dict[str, Any]]:
        """Return the parts of a branch, with its ``$ref`` resolved, or removed if it was `seen`."""
        name = branch.get("$ref")
        if not isinstance(name, str):
            return [branch]
        beside = {word: value for word, value in branch.items() if word != "$ref"}
        if name in seen:
            return [beside]
        found = _resolve_pointer(self._original, name)
        if found is None or not self._may_add(found):
            return [branch]
        seen.add(name)
        return [beside, found]

    def _may_add(self, schema: dict[str, Any]) -> bool:
        """Return whether a referenced schema may be inlined; after the first refusal, none may."""
        if self._left is None:
            self._left = MAX_GROWTH * _size(self._original)
        self._left = max(self._left - _size(schema, self._left), 0)
        return self._left > 0


def _size(schema: dict[str, Any], most: float = math.inf) -> int:
    """Return the number of values of a schema, itself included; may stop above `most`."""
    found, rest = 1, list[Any]([schema])
    while rest and found <= most:
        value = rest.pop()
        if isinstance(value, dict):
            value = value.values()
        elif not isinstance(value, list):
            continue
        found += len(value)
        if found <= most:
            rest.extend(value)
    return found


def _merge(parts: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the conjunction of schemas, without ``allOf`` if possible; the first has priority.

    The time is linear in the number of their members, because a server chooses that number.
    """
    merged: dict[str, Any] = {}
    joined = set[str]()
    for part in parts:
        for word, value in part.items():
            ours = merged.setdefault(word, value)
            kind = _JOINED.get(word)
            if ours is value or kind is None:
                continue
            if not isinstance(value, kind) or not isinstance(ours, kind):
                continue
            if word not in joined:
                joined.add(word)
                ours = merged[word] = kind(ours)
            if kind is dict:
                ours |= {key: each for key, each in value.items() if key not in ours}
            else:
                ours += value
    if "required" in joined:
        names = (name for name in merged["required"] if isinstance(name, str))
        merged["required"] = list(dict.fromkeys(names))
    return merged


# The keywords whose values are joined if several schemas have them.
_JOINED: Final[Mapping[str, Any]] = {"allOf": list, "properties": dict, "required": list}


def _resolve_pointer(schema: Any, reference: str) -> dict[str, Any] | None:
    """Return the schema to which a reference into the same document points, if any."""
    if not reference.startswith("#/"):
        return None
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        schema = schema.get(name) if isinstance(schema, dict) else None
    return schema if isinstance(schema, dict) else None


def _property_names(schema: Any, depth: int) -> Iterator[str]:
    if depth > MAX_DEPTH + 1 or not isinstance(schema, dict):
        return
    for word, value in schema.items():
        if word == "properties" and isinstance(value, dict):
            yield from value
        if (word in _SUBSCHEMA_MAPS or word == "properties") and isinstance(value, dict):
            subschemas = list(value.values())
        elif word in _SUBSCHEMA_KEYWORDS or word in _SUBSCHEMA_LISTS:
            subschemas = value if isinstance(value, list) else [value]
        else:
            continue
        for subschema in subschemas:
            yield from _property_names(subschema, depth + 1)


def _rename_keys(value: Any, name: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {name(key): _rename_keys(member, name) for key, member in value.items()}
    if isinstance(value, list):
        return [_rename_keys(item, name) for item in value]
    return value


@dataclass
class RenderedTool:
    """One tool, adapted to the rules of a provider."""

    tool: types.Tool
    name: str
    description: str
    rules: SchemaRules

    @cached_property
    def adapted(self) -> AdaptedSchema:
        return AdaptedSchema(self.tool.input_schema, self.rules)


class ToolTable:
    """The tools of a request, by original and by provider name; see `ModelFormat`."""

    def __init__(
        self,
        tools: Iterable[types.Tool],
        names: NameRule,
        rules: SchemaRules,
        longest_description: int | None,
    ) -> None:
        given = list(tools)
        for tool in given:
            if not isinstance(tool, types.Tool):
                raise UsageError(f"tools must be Tool objects, not {kind_of(tool)}")
        self._names = NameMap(names, (tool.name for tool in given))
        self._tools: dict[str, RenderedTool] = {}
        for tool in given:
            if tool.name in self._tools:
                raise UsageError(
                    f"two tools are named {tool.name!r}: a model cannot tell them apart"
                )
            name = self._names.to_provider(tool.name)
            said = tool.description or tool.title or ""
            if longest_description is not None and len(said) > longest_description:
                said = said[: longest_description - 1] + "…"
            self._tools[tool.name] = RenderedTool(tool, name, said, rules)

    def __iter__(self) -> Iterator[RenderedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def to_provider(self, use: types.ToolUseContent) -> tuple[str, dict[str, Any]]:
        """Return the provider name and the arguments of a tool use, as the model sees them."""
        known = self._tools.get(use.name)
        arguments = use.input if known is None else known.adapted.to_provider(use.input)
        return self._names.to_provider(use.name), arguments

    def from_provider(self, id: str, name: str, arguments: dict[str, Any]) -> types.ToolUseContent:
        """Return a tool use of the model with the original name and arguments."""
        name = self._names.from_provider(name)
        known = self._tools.get(name)
        if known is not None:
            arguments = known.adapted.from_provider(arguments)
        return types.ToolUseContent(id=id, name=name, input=arguments)

    def tool_for(self, name: str, description: str | None, schema: dict[str, Any]) -> types.Tool:
        """Return the tool of a definition: the original tool if it is known, or else a new one."""
        known = self._tools.get(self._names.from_provider(name))
        if known is not None:
            return known.tool
        return types.Tool(name=name, description=description, input_schema=schema)
