"""Messages to and from a model, as a page shows and edits them.

What a person sees is what is sent: a text that is left alone goes on unchanged to the last
character; a text that is edited goes on as it stood on the page, hidden characters written out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from syncmcp.types import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)
from syncmcp.ui.browser.images import data_url
from syncmcp.ui.browser.markup import markdown
from syncmcp.ui.text import shorten, visible

if TYPE_CHECKING:
    from markupsafe import Markup

    from syncmcp.types import (
        ContentBlock,
        CreateMessageResult,
        SamplingMessage,
        SamplingMessageContentBlock,
    )
    from syncmcp.ui.browser.questions import Answers

# A page must stay usable, whatever a server sends: longer texts are cut, and cannot be edited.
_LONGEST_TEXT = 50_000
MOST_MESSAGES = 100
_MOST_BLOCKS = 50
# How much of a message stands beside its role, in characters.
_BEGINNING = 90


class Part(NamedTuple):
    """A part of a message on a page."""

    html: Markup | None = None
    """Text."""
    edit: str | None = None
    """The name of the field in which the text can be edited."""
    text: str = ""
    """What that field holds."""
    image: str | None = None
    """A picture, as a `data:` URL."""
    note: str | None = None
    """Words of ours on what is shown or left out."""
    code: str | None = None
    """Data, as JSON."""


class Shown(NamedTuple):
    """A message on a page."""

    role: str
    beginning: str
    parts: list[Part]


def editable(text: str) -> str:
    """What a field to edit `text` holds."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"), lines=True)


def edited(name: str, original: str, answers: Answers) -> str:
    """What became of `original` in the field `name`; itself if it was left alone."""
    sent = answers.get(name)
    if sent is None:
        return original
    # Browsers send CR LF, whatever they were given.
    sent = sent.replace("\r\n", "\n")
    return original if sent == editable(original) else sent


def show(message: SamplingMessage | CreateMessageResult, name: str) -> Shown:
    """Prepare a message for a page; the fields of its texts are called `name` and a number."""
    parts = [
        part
        for number, block in enumerate(message.blocks[:_MOST_BLOCKS])
        for part in _parts(block, f"{name}-{number}")
    ]
    left_out = len(message.blocks) - _MOST_BLOCKS
    if left_out > 0:
        parts.append(Part(note=f"{left_out} more parts are not shown."))
    beginning = " ".join(message.text[: 2 * _BEGINNING].split())
    if len(beginning) > _BEGINNING:
        beginning = f"{beginning[:_BEGINNING]}…"
    return Shown(message.role, beginning or "no text", parts)


def edit(message: dict[str, Any], name: str, answers: Answers) -> None:
    """Put what was edited into a message as it goes over the wire."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    for number, block in enumerate(blocks):
        if block.get("type") == "text":
            block["text"] = edited(f"{name}-{number}", block["text"], answers)


def as_json(value: Any) -> str:
    """Data for a person to read, cut where it is very long."""
    return shorten(json.dumps(value, indent=2, ensure_ascii=False, default=str), _LONGEST_TEXT)


def _parts(block: SamplingMessageContentBlock | ContentBlock, name: str) -> Iterator[Part]:
    match block:
        case TextContent():
            yield _text(block.text, name)
        case ImageContent():
            picture = data_url(block.data)
            if picture is None:
                yield Part(note=f"A picture ({block.mime_type}) that cannot be shown safely.")
            else:
                yield Part(image=picture)
        case AudioContent():
            yield Part(note=f"A sound ({block.mime_type}), not played here.")
        case ToolUseContent():
            yield Part(note=f"The model calls the tool {block.name} with:")
            yield Part(code=as_json(block.input))
        case ToolResultContent():
            failed = "failed and" if block.is_error else "has"
            yield Part(note=f"A tool {failed} answered:")
            for number, inner in enumerate(block.content[:_MOST_BLOCKS]):
                for part in _parts(inner, f"{name}-{number}"):
                    yield part._replace(edit=None)
            if len(block.content) > _MOST_BLOCKS:
                yield Part(note=f"{len(block.content) - _MOST_BLOCKS} more parts are not shown.")
            if block.structured_content is not None:
                yield Part(code=as_json(block.structured_content))
        case ResourceLink():
            yield Part(note=f"A link to the resource {block.uri}")
        case EmbeddedResource():
            yield Part(note=f"The resource {block.resource.uri}:")
            yield Part(code=as_json(block.resource.to_wire()))
        case UnknownContent():
            yield Part(note="Something of an unknown kind:")
            yield Part(code=as_json(block.to_wire()))


def _text(text: str, name: str) -> Part:
    if len(text) > _LONGEST_TEXT:
        return Part(html=markdown(shorten(text, _LONGEST_TEXT)), note="Too long to edit here.")
    return Part(html=markdown(text), edit=name, text=editable(text))
