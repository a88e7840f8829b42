"""Messages to and from a model: rendered on a page, and edited there.

An unedited text is forwarded exactly as it was received. An edited text is sent as it was on the
page, with hidden characters in their visible notation.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

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
from syncmcp.ui import shorten, visible

if TYPE_CHECKING:
    from markdown_it.token import Token

    from syncmcp.approval import Question
    from syncmcp.types import (
        ContentBlock,
        CreateMessageResult,
        SamplingMessage,
        SamplingMessageContentBlock,
    )


# Markdown as HTML, for untrusted text.
#
# A person who approves a text must see all of it. So all notation that would hide, replace or load
# something is shown literally: HTML, links, pictures, references, entities, escapes.


# The depth of nested blocks: markdown-it omits deeper ones.
_MAX_NESTING: Final = 20
# The longest text to render, in characters: emphasis takes quadratic time in markdown-it-py 3.
_MAX_MARKDOWN: Final = 20_000

_MARKDOWN: Final = MarkdownIt("zero", {"breaks": True, "maxNesting": _MAX_NESTING}).enable(
    ["backticks", "blockquote", "emphasis", "fence", "heading", "list", "newline"]
)
# The first text compiles the tables of rules, which several threads must not do at the same time.
_MARKDOWN.parse("text")


def markdown(text: str) -> Markup:
    """Return `text` as safe HTML, with control and hidden characters made visible.

    A text that is too long, or whose blocks are nested too deep, is shown literally.
    """
    text = visible(text, lines=True)
    tokens = _MARKDOWN.parse(text) if len(text) <= _MAX_MARKDOWN else []
    if not tokens or any(token.level >= _MAX_NESTING - 1 for token in tokens):
        return Markup("<p>{}</p>").format(Markup("<br>\n").join(text.split("\n")))
    for token in tokens:
        _adapt(token)
    # The renderer escapes the text, and writes only the tags of the rules above.
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))  # noqa: S704


def _adapt(token: Token) -> None:
    match token.type:
        case "heading_open":  # not an HTML heading, which would look like one of the page itself
            token.tag = "p"
            token.attrSet("class", "heading")
        case "heading_close":
            token.tag = "p"
        case "fence":  # shows the words after the fence, too
            token.content = f"{token.markup}{token.info}\n{token.content}"
            token.info = ""
        case "list_item_open" if token.info:  # the number as it was written
            token.attrSet("value", token.info)
        case _:
            pass


class Answers(Protocol):
    """The submitted fields of a page, by name."""

    def get(self, name: str, /) -> str | None:
        """The value of a field."""
        ...

    def getlist(self, name: str, /) -> list[str]:
        """All values of a field."""
        ...


_SLASHES: Final = re.compile(r"([/\\]+)")


# Pictures in messages: shown only if their first bytes identify a raster image.


# The longest picture to show, in characters of base64 (2 MiB of bytes).
_MAX_IMAGE: Final = 4 * 2**21 // 3

_SIGNATURES: Final = (
    ("image/png", 0, b"\x89PNG\r\n\x1a\n"),
    ("image/jpeg", 0, b"\xff\xd8\xff"),
    ("image/gif", 0, b"GIF87a"),
    ("image/gif", 0, b"GIF89a"),
    ("image/webp", 8, b"WEBP"),
)


def data_url(data: str) -> str | None:
    """Return a `data:` URL of a raster picture in base64; `None` if it may not be shown.

    The type is detected from the first bytes; the declared type is ignored. SVG drawings are
    documents of their own, and are never shown.
    """
    if len(data) > _MAX_IMAGE:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    for kind, offset, signature in _SIGNATURES:
        if content.startswith(signature, offset) and (offset == 0 or content.startswith(b"RIFF")):
            return f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    return None


# Limits that keep a page usable. Longer texts are cut, and cannot be edited.
_MAX_TEXT = 50_000
MOST_MESSAGES = 100
_MAX_BLOCKS = 50
# The longest name in a sentence of the program, in characters.
_MAX_NAME = 100
# The most characters of the beginning of a message, which is shown next to its role.
_MAX_BEGINNING = 90


class Part(NamedTuple):
    """A part of a message on a page."""

    html: Markup | None = None
    """Text."""
    edit: str | None = None
    """The name of the field in which the text can be edited."""
    text: str = ""
    """The initial value of that field."""
    image: str | None = None
    """A picture, as a `data:` URL."""
    note: str | None = None
    """Text of the program about content that is shown or omitted."""
    code: str | None = None
    """Data, as JSON."""


class MessageView(NamedTuple):
    """A message on a page."""

    role: str
    beginning: str
    parts: list[Part]


def editable_text(text: str) -> str:
    """Return the initial value of a field to edit `text`."""
    return visible(text.replace("\r\n", "\n").replace("\r", "\n"), lines=True)


def edited_text(name: str, original: str, answers: Answers) -> str:
    """Return the text of the field `name`; `original` if the person did not edit it."""
    sent = answers.get(name)
    if sent is None:
        return original
    # Browsers submit line breaks as CR LF.
    sent = sent.replace("\r\n", "\n")
    return original if sent == editable_text(original) else sent


def render_message(message: SamplingMessage | CreateMessageResult, name: str) -> MessageView:
    """Render a message for a page; the fields of its texts are named `name` and a number."""
    parts = [
        part
        for number, block in enumerate(message.blocks[:_MAX_BLOCKS])
        for part in _render_block(block, f"{name}-{number}")
    ]
    left_out = len(message.blocks) - _MAX_BLOCKS
    if left_out > 0:
        parts.append(Part(note=f"{left_out} more parts are not shown."))
    beginning = " ".join(message.text[: 2 * _MAX_BEGINNING].split())
    if len(beginning) > _MAX_BEGINNING:
        beginning = f"{beginning[:_MAX_BEGINNING]}…"
    return MessageView(message.role, beginning or "no text", parts)


def apply_edits(message: dict[str, Any], name: str, answers: Answers) -> None:
    """Insert the edited texts into a message in wire format."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [content]
    for number, block in enumerate(blocks):
        if block.get("type") == "text":
            block["text"] = edited_text(f"{name}-{number}", block["text"], answers)


def as_json(value: Any) -> str:
    """Return data as JSON for a person, cut if very long."""
    return shorten(json.dumps(value, indent=2, ensure_ascii=False, default=str), _MAX_TEXT)


def _render_block(block: SamplingMessageContentBlock | ContentBlock, name: str) -> Iterator[Part]:
    match block:
        case TextContent():
            yield _render_text(block.text, name)
        case ImageContent():
            picture = data_url(block.data)
            if picture is None:
                yield Part(note=f"An image ({named(block.mime_type)}) that cannot be shown safely.")
            else:
                yield Part(image=picture)
        case AudioContent():
            yield Part(note=f"Audio ({named(block.mime_type)}), not played here.")
        case ToolUseContent():
            yield Part(note=f"The model calls the tool {named(block.name)} with:")
            yield Part(code=as_json(block.input))
        case ToolResultContent():
            failed = "failed and" if block.is_error else "has"
            yield Part(note=f"A tool {failed} answered:")
            for number, inner in enumerate(block.content[:_MAX_BLOCKS]):
                for part in _render_block(inner, f"{name}-{number}"):
                    yield part._replace(edit=None)
            if len(block.content) > _MAX_BLOCKS:
                yield Part(note=f"{len(block.content) - _MAX_BLOCKS} more parts are not shown.")
            if block.structured_content is not None:
                yield Part(code=as_json(block.structured_content))
        case ResourceLink():
            yield Part(note=f"A link to the resource {named(block.uri)}")
        case EmbeddedResource():
            yield Part(note=f"The resource {named(block.resource.uri)}:")
            yield Part(code=as_json(block.resource.to_wire()))
        case UnknownContent():
            yield Part(note="Content of an unknown type:")
            yield Part(code=as_json(block.to_wire()))


def whole(text: str) -> Markup:
    """Return a text of any length as safe HTML.

    Cards store the result, because it may take long to make.
    """
    return escape(visible(text, lines=True))


def breakable(text: str) -> Markup:
    """Return a text whose lines may break after slashes, for paths and addresses."""
    # As a `str`: Python 3.10 joins the parts with a method of the text; `Markup` would escape them.
    return Markup(_SLASHES.sub(r"\1<wbr>", str(whole(text))))  # noqa: S704


def named(words: str) -> str:
    """Return an untrusted word in quotation marks: it must not look like text of the program."""
    return f"“{visible(shorten(words, _MAX_NAME))}”"


_CAUSES = {
    "tools/call": "called the tool",
    "resources/read": "read the resource",
    "prompts/get": "got the prompt",
}


def cause_of(question: Question) -> str:
    """Return a sentence about the program's call that led to the server's question, or ``""``."""
    context = question.context
    if context is None or question.kind == "tool":
        return ""
    if context.call is None:
        return "This program cannot tell which of its calls led to it."
    method, params = context.call
    about = (params or {}).get("name") or (params or {}).get("uri")
    if not about:
        return f"It asks because this program sent {method}."
    return (
        f"It asks because this program {_CAUSES.get(method, f'sent {method}')} {named(str(about))}."
    )


def _render_text(text: str, name: str) -> Part:
    if len(text) > _MAX_TEXT:
        return Part(html=markdown(shorten(text, _MAX_TEXT)), note="Too long to edit here.")
    return Part(html=markdown(text), edit=name, text=editable_text(text))
