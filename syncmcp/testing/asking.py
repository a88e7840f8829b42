"""Tools of the demo server that ask the client something."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from typing_extensions import TypedDict

from syncmcp.testing.server.context import ToolContext
from syncmcp.testing.server.revisions import since
from syncmcp.testing.server.server import Server
from syncmcp.testing.server.wire import Message

_ASKS = {"readOnlyHint": True, "openWorldHint": False}
_TUTOR = (
    "You are a patient maths tutor. Explain the way to the answer step by step, in words a "
    "twelve-year-old understands, and end with the answer on a line of its own."
)


class FileCount(TypedDict):
    """How many files there are, if the path is inside the roots."""

    path: str
    inside: bool
    files: int | None


def add_asking_tools(server: Server) -> None:
    """Register the tools of this module with `server`."""
    _add_sampling(server)
    _add_forms(server)

    @server.tool(title="Count files", annotations=_ASKS)
    def count_files(context: ToolContext, path: str) -> FileCount:
        """Count the files below a directory, if it is inside the client's roots.

        A relative path starts at the first root.
        """
        roots = [_path_of(root["uri"]) for root in context.list_roots()]
        place = (roots[0] / path if roots else Path(path)).resolve()
        inside = any(place.is_relative_to(root) for root in roots)
        return {
            "path": str(place),
            "inside": inside,
            "files": _count(place) if inside else None,
        }

    @server.tool(title="Connect an account")
    def connect_account(context: ToolContext, service: str = "example") -> str:
        """Send a person to a page of the service; what they do there stays there."""
        identifier = str(uuid.uuid4())
        answer = context.elicit_url(
            f"Sign in to {service}, so that this server may read your calendar.",
            f"https://{service}.com/connect?ticket={identifier}",
            identifier,
        )
        if answer.get("action") != "accept":
            return f"not connected: {answer.get('action')}"
        context.complete_elicitation(identifier)
        return f"connected to {service}"


def _add_sampling(server: Server) -> None:
    @server.tool(title="Ask a model", annotations=_ASKS)
    def request_llm_help(context: ToolContext, question: str) -> str:
        """Ask the client's model a question; the answer has at most 500 tokens."""
        return _text(context.sample(question, max_tokens=500))

    @server.tool(title="Explain maths", annotations=_ASKS)
    def explain_math(context: ToolContext, problem: str) -> str:
        """Have the client's model explain a problem as a maths tutor would."""
        answer = context.sample(
            f"Explain how to solve this: {problem}",
            max_tokens=800,
            system_prompt=_TUTOR,
            temperature=0.3,
            modelPreferences={"intelligencePriority": 0.8, "costPriority": 0.2},
        )
        return _text(answer)


def _add_forms(server: Server) -> None:
    @server.tool(title="Preferences", annotations=_ASKS)
    def ask_user_preferences(context: ToolContext) -> dict[str, Any]:
        """Ask how answers should look."""
        verbosity = {"low": "Just the facts", "medium": "Some context", "high": "Everything"}
        fields: Message = {
            "outputFormat": {
                "type": "string",
                "title": "Output format",
                "description": "How answers are written",
                "enum": ["json", "markdown", "plain"],
            },
            "verbosity": _titled(context, verbosity, title="Verbosity"),
            "includeTimestamps": {
                "type": "boolean",
                "title": "Include timestamps",
                "default": True,
            },
        }
        return _fill_in(context, "How should answers look?", fields, ["outputFormat"])

    @server.tool(title="Sign up for maths facts")
    def signup_math_facts(context: ToolContext) -> dict[str, Any]:
        """Sign a person up for a maths fact a day."""
        fields: Message = {
            "name": {"type": "string", "title": "Name", "minLength": 1},
            "email": {
                "type": "string",
                "title": "E-mail",
                "description": "Where the facts go",
                "format": "email",
            },
            "favouriteNumber": {"type": "integer", "title": "Favourite number"},
        }
        return _fill_in(context, "Sign up for a maths fact a day.", fields, ["name", "email"])

    @server.tool(title="All fields", annotations=_ASKS)
    def all_fields(context: ToolContext) -> dict[str, Any]:
        """Ask with a form that has a field of every kind the revision knows."""
        fields = _simple_fields(context)
        if since(context.revision, "2025-11-25"):
            fields |= _NEWER_FIELDS
        return _fill_in(context, "One field of every kind.", fields, ["text", "choice"])


def _fill_in(
    context: ToolContext, message: str, fields: Message, required: list[str]
) -> dict[str, Any]:
    schema: Message = {"type": "object", "properties": fields, "required": required}
    return context.elicit(message, schema)


def _titled(
    context: ToolContext, titles: Mapping[str, str], *, title: str, default: str | None = None
) -> Message:
    """Return a choice whose options have titles, as the revision writes it."""
    field: Message = {"type": "string", "title": title}
    if since(context.revision, "2025-11-25"):
        field["oneOf"] = [{"const": value, "title": text} for value, text in titles.items()]
        return field if default is None else {**field, "default": default}
    return {**field, "enum": list(titles), "enumNames": list(titles.values())}


def _simple_fields(context: ToolContext) -> Message:
    colours = {"r": "Red", "g": "Green", "b": "Blue"}
    return {
        "text": {"type": "string", "title": "Text", "minLength": 1, "maxLength": 40},
        "email": {"type": "string", "title": "E-mail", "format": "email"},
        "link": {"type": "string", "title": "Web page", "format": "uri"},
        "day": {"type": "string", "title": "Day", "format": "date"},
        "moment": {"type": "string", "title": "Moment", "format": "date-time"},
        "whole": {"type": "integer", "title": "Whole number", "minimum": 0, "maximum": 10},
        "number": {"type": "number", "title": "Number", "minimum": -1.5, "maximum": 1.5},
        "flag": {"type": "boolean", "title": "Yes or no", "default": False},
        "choice": {"type": "string", "title": "Choice", "enum": ["one", "two", "three"]},
        "titled": _titled(context, colours, title="Choice with titles", default="g"),
    }


_NEWER_FIELDS: Message = {
    "oldTitled": {
        "type": "string",
        "title": "Choice with titles, as 2025-06-18 wrote it",
        "enum": ["s", "l"],
        "enumNames": ["Small", "Large"],
    },
    "choices": {
        "type": "array",
        "title": "Choices",
        "items": {"type": "string", "enum": ["a", "b", "c"]},
        "minItems": 1,
        "maxItems": 2,
        "default": ["a"],
    },
    "titledChoices": {
        "type": "array",
        "title": "Choices with titles",
        "items": {
            "anyOf": [{"const": "n", "title": "North"}, {"const": "s", "title": "South"}],
        },
        "default": ["n", "s"],
    },
    "textDefault": {"type": "string", "title": "Text with a default", "default": "hello"},
    "wholeDefault": {"type": "integer", "title": "Whole number with a default", "default": 7},
    "numberDefault": {"type": "number", "title": "Number with a default", "default": 0.5},
    "choiceDefault": {
        "type": "string",
        "title": "Choice with a default",
        "enum": ["tea", "coffee"],
        "default": "tea",
    },
}


def _text(answer: Message) -> str:
    """Return the text of a model's answer."""
    content = answer["content"]
    blocks = content if isinstance(content, list) else [content]
    return "\n".join(block["text"] for block in blocks if block["type"] == "text")


def _path_of(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path)).resolve()


def _count(place: Path) -> int:
    """Count the files at or below `place`, following no links, which may lead outside."""
    if place.is_file():
        return 1
    return sum(
        not os.path.islink(os.path.join(directory, name))
        for directory, _, names in os.walk(place)
        for name in names
    )
