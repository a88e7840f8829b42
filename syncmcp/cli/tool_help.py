"""A tool's schema as the help of a command: what to write, and what the server says of it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from syncmcp.ui.text import shorten

if TYPE_CHECKING:
    from syncmcp.types import Tool

__all__ = ["choices_of", "claims_of", "help_of", "properties_of", "signature_of", "written"]

_MOST_CHOICES = 12


def help_of(tool: Tool) -> str:
    """What `syncmcp call TARGET TOOL --help` prints. Words of the server are not yet made safe."""
    return "\n".join(_lines(tool))


def signature_of(schema: Mapping[str, Any]) -> str:
    """The arguments in one line: ``a: integer, b?: string``."""
    required = _required(schema)
    return ", ".join(
        f"{name}{'' if name in required else '?'}: {_kind(details)}"
        for name, details in properties_of(schema).items()
    )


def claims_of(annotations: Mapping[str, Any] | None) -> str:
    """What a server says of a tool, in a few words. Nobody has checked it."""
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


def properties_of(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The arguments that a schema names, and what it says of each."""
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: one if isinstance(one, dict) else {} for name, one in found.items()}


def written(name: str, details: Mapping[str, Any]) -> str:
    """How an argument is written on the command line."""
    if _kind(details) == "string":
        return f"{name}={'|'.join(choices_of(details)) or 'TEXT'}"
    return f"{name}:={'|'.join(choices_of(details)) or _kind(details).upper()}"


def choices_of(details: Mapping[str, Any]) -> list[str]:
    """The few values that an argument may have; none where there are others."""
    choices = details.get("enum")
    if not isinstance(choices, list) or len(choices) > _MOST_CHOICES:
        return []
    return [one if isinstance(one, str) else json.dumps(one) for one in choices]


def _lines(tool: Tool) -> Iterator[str]:
    required = _required(tool.input_schema)
    properties = properties_of(tool.input_schema)
    items = [
        written(name, details) if name in required else f"[{written(name, details)}]"
        for name, details in properties.items()
    ]
    yield " ".join(["Usage: syncmcp call TARGET", tool.name, *items])
    if tool.display_name != tool.name:
        yield f"\n{tool.display_name}"
    if tool.description:
        yield f"\n{tool.description.strip()}"
    if properties:
        yield "\nArguments:"
    for name, details in properties.items():
        facts = ["required"] if name in required else []
        if "default" in details:
            facts.append(f"default {json.dumps(details['default'], ensure_ascii=False)}")
        facts.extend(_bounds(details))
        yield f"  {written(name, details)}{'  (' + ', '.join(facts) + ')' if facts else ''}"
        if details.get("description"):
            yield f"      {str(details['description']).strip()}"
    if tool.output_schema is not None:
        yield f"\nIts result has: {signature_of(tool.output_schema) or 'structured content'}"
    stated = tool.annotations.to_wire() if tool.annotations is not None else {}
    yield f"\nThe server claims that it is: {claims_of(stated) or '(nothing)'}"


def _required(schema: Mapping[str, Any]) -> list[Any]:
    found = schema.get("required")
    return found if isinstance(found, list) else []


def _kind(details: Mapping[str, Any]) -> str:
    kind = details.get("type")
    if isinstance(kind, str):
        return kind
    if isinstance(kind, list):
        return "|".join(str(one) for one in kind)
    choices = details.get("enum")
    if isinstance(choices, list) and all(isinstance(one, str) for one in choices):
        return "string"
    return "json"


def _bounds(details: Mapping[str, Any]) -> Iterator[str]:
    for word in ("minimum", "maximum", "minLength", "maxLength", "format", "pattern"):
        if word in details:
            yield f"{word} {shorten(str(details[word]), 60)}"
