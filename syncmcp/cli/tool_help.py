"""The help of a tool: its arguments as they are written, from its schema and annotations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from syncmcp import types
from syncmcp._client.functions import required_names
from syncmcp.ui import shorten, visible

_MAX_CHOICES = 12


def signature(schema: Mapping[str, Any]) -> str:
    """Return the arguments in one line: ``a: integer, b?: string``."""
    required = required_names(schema)
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {type_name(details)}{_of_items(details)}"
        for name, details in schema_properties(schema).items()
    )


def describe_claims(annotations: Mapping[str, Any] | None) -> str:
    """Return the annotations of a tool in a few words: unverified claims of the server."""
    said = annotations or {}
    claims = []
    if said.get("readOnlyHint") is True:
        claims.append("read-only")
    elif said.get("destructiveHint") is True:
        claims.append("destructive")
    elif said.get("destructiveHint") is False:
        claims.append("additive")
    if said.get("idempotentHint") is True:
        claims.append("idempotent")
    if said.get("openWorldHint") is True:
        claims.append("open-world")
    return ", ".join(claims)


def schema_properties(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the properties of a schema, by name; an invalid one as an empty schema."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: one if isinstance(one, dict) else {} for name, one in found.items()}


def argument_syntax(name: str, details: Mapping[str, Any]) -> str:
    """Return how an argument is written on the command line, such as ``count=INTEGER``."""
    kind = "TEXT" if type_name(details) == "string" else type_name(details).upper()
    choices = "|".join(value_choices(details))
    return f"{name}{':=' if needs_json(details) else '='}{choices or kind}"


def needs_json(details: Mapping[str, Any]) -> bool:
    """Return whether an argument is written ``name:=json``, rather than ``name=...``."""
    return type_name(details) not in ("string", "integer", "number", "boolean")


def value_choices(details: Mapping[str, Any]) -> list[str]:
    """Return the values of an ``enum`` or boolean as they are written; empty if they are many."""
    details = _without_null(details)
    choices = details.get("enum", [True, False] if type_name(details) == "boolean" else None)
    if not isinstance(choices, list) or len(choices) > _MAX_CHOICES:
        return []
    if type_name(details) == "string":
        return [one for one in choices if isinstance(one, str)]
    return [json.dumps(one, ensure_ascii=False) for one in choices]


def help_lines(tool: types.Tool, usage: str = "syncmcp call TARGET") -> Iterator[str]:
    """Yield the text of `syncmcp call TARGET TOOL --help`.

    The arguments come first, then the server's description. Texts of the server have a bar before
    each line, and names are within a line, so that none looks like a line of this program.
    """
    required = required_names(tool.input_schema)
    properties = schema_properties(tool.input_schema)
    items = [
        argument_syntax(name, details)
        if name in required
        else f"[{argument_syntax(name, details)}]"
        for name, details in properties.items()
    ]
    yield visible(" ".join(["Usage:", usage, tool.name, *items]))
    if properties:
        yield "\nArguments:"
    for name, details in properties.items():
        facts = ["required"] if name in required else []
        facts += filter(None, [_of_items(details).strip()])
        if "default" in details:
            facts.append(f"default {json.dumps(details['default'], ensure_ascii=False)}")
        facts.extend(_constraints(details))
        about = f"  ({', '.join(facts)})" if facts else ""
        yield visible(f"  {argument_syntax(name, details)}{about}")
        if details.get("description"):
            yield barred(str(details["description"]), "      ")
    if tool.output_schema is not None:
        has = signature(tool.output_schema) or "structured content"
        yield "\n" + visible(f"Its result has: {has}")
    said = [tool.display_name] if tool.display_name != tool.name else []
    said += [tool.description] if tool.description else []
    if said:
        yield "\nWhat the server says about it:"
        yield from (barred(text) for text in said)
    stated = tool.annotations.to_wire() if tool.annotations is not None else {}
    yield f"\nThe server claims that it is: {describe_claims(stated) or '(nothing)'}"


def barred(text: str, indent: str = "") -> str:
    """Return a text of a server with a bar before each line."""
    lines = visible(text.strip(), lines=True).split("\n")
    return "\n".join(f"{indent}│ {line}" for line in lines)


def type_name(details: Mapping[str, Any]) -> str:
    """Return the JSON types of an argument, such as ``integer``; ``json`` if none are stated."""
    if kinds := json_types(details):
        return "|".join(kinds)
    choices = _without_null(details).get("enum")
    if isinstance(choices, list) and all(isinstance(one, str) for one in choices):
        return "string"
    return "json"


def json_types(schema: Mapping[str, Any]) -> list[str]:
    """Return the JSON types of the values that a schema allows, without ``null``.

    Empty if the schema, or one of its alternatives, states no type.
    """
    found: list[str] = []
    for one in _alternatives(schema):
        stated = one.get("type")
        kinds: list[Any] = stated if isinstance(stated, list) else [stated]
        if not all(isinstance(kind, str) for kind in kinds):
            return []
        found += kinds
    return [kind for kind in dict.fromkeys(found) if kind != "null"]


def _alternatives(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the schemas of ``anyOf`` or ``oneOf``, such as for an optional value, or `schema`."""
    stated = schema.get("anyOf", schema.get("oneOf"))
    if "type" in schema or not isinstance(stated, list):
        return [schema]
    return [one if isinstance(one, dict) else {} for one in stated]


def _without_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the only alternative that is not ``null``, or else `schema`."""
    others = [one for one in _alternatives(schema) if one.get("type") != "null"]
    return others[0] if len(others) == 1 else schema


def _of_items(details: Mapping[str, Any]) -> str:
    """Return the types of the items of an array, such as `` of integer``; empty if not stated."""
    items = _without_null(details).get("items")
    kinds = json_types(items) if isinstance(items, dict) else []
    return f" of {'|'.join(kinds)}" if kinds else ""


def _constraints(details: Mapping[str, Any]) -> Iterator[str]:
    details = _without_null(details)
    for word in ("minimum", "maximum", "minLength", "maxLength", "format", "pattern"):
        if word in details:
            yield f"{word} {shorten(str(details[word]), 60)}"
