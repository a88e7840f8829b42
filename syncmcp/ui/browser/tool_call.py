"""A tool call on a page: the tool, the server's claims about it, and the arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from syncmcp.ui.browser.message import breakable, whole
from syncmcp.ui.calls import arguments_text, both_ends, overview_pairs, server_words

if TYPE_CHECKING:
    from syncmcp.approval import ToolCall

# Longer arguments are shown as an overview, and whole below it, in characters.
_MAX_ARGUMENTS = 4_000
# A longer title or description is shown in part, and whole below it, in characters.
_MAX_TITLE = 200
_MAX_DESCRIPTION = 1_000


class ShownCall(NamedTuple):
    """A call for display. Only the name of the tool and the arguments are facts."""

    tool: Markup
    title: str
    description: str
    whole_description: str
    """Title and description, if they are shown in part."""
    claims: str
    """What the tool does, according to the server; empty if the server does not say."""
    arguments: list[tuple[Markup, Markup]]
    number: int
    """The number of arguments, of which `arguments` may have the first ones only."""
    cut: str
    """A note that the arguments are shown in part; empty if they are shown whole."""
    text: Markup
    """All arguments as JSON."""

    @classmethod
    def of(cls, call: ToolCall) -> ShownCall:
        """Make the display of a call."""
        text = arguments_text(call)
        fits = len(text) <= _MAX_ARGUMENTS
        pairs = (
            [(_write(name), _write(value)) for name, value in call.arguments.items()]
            if fits
            else list(overview_pairs(call, _write))
        )
        claims, title, description = server_words(call)
        shown = both_ends(title, _MAX_TITLE), both_ends(description, _MAX_DESCRIPTION)
        return cls(
            breakable(call.tool),
            shown[0],
            shown[1],
            "" if shown == (title, description) else f"{title}\n{description}",
            claims,
            [(breakable(name), breakable(value)) for name, value in pairs],
            len(call.arguments),
            "" if fits else f"{len(text):,} characters; both ends of each",
            whole(text),
        )


def _write(value: Any) -> str:
    """Return a plain text unchanged; other values, and texts that look like these, as JSON."""
    if isinstance(value, str):
        plain = "\n" in value or value == value.strip() != ""
        if plain and not _reads_as_json(value):
            return value
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _reads_as_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
