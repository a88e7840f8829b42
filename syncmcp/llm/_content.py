"""What the formats of several providers say in the same way."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from syncmcp import types
from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.llm._names import NameRule

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syncmcp.types import (
        PromptMessage,
        ResourceLink,
        SamplingMessage,
        TextResourceContents,
        ToolResultContent,
    )

__all__ = [
    "Unrepresentable",
    "arguments_of",
    "blocks_of",
    "data_url",
    "file_name",
    "fitted_id",
    "from_data_url",
    "link_text",
    "merged_text",
    "new_id",
    "placeholder",
    "resource_text",
    "tool_text",
]

_ID: Final = NameRule(40)
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


class Unrepresentable(UsageError):
    """A provider's format has no way to say this: a sound to a model that only reads."""


def fitted_id(id: str) -> str:
    """The id of a tool use as every provider takes it; the conversation may have been another's."""
    return _ID.fitted(id)


def new_id() -> str:
    """An id for a tool use that the provider gave none."""
    return f"call_{uuid4().hex[:24]}"


def blocks_of(message: SamplingMessage | PromptMessage) -> Sequence[BaseModel]:
    """The content of a message as a list."""
    return message.content if isinstance(message.content, list) else [message.content]


def data_url(mime_type: str | None, data: str) -> str:
    """A URL that holds base64."""
    return f"data:{mime_type or 'application/octet-stream'};base64,{data}"


def from_data_url(url: Any) -> tuple[str, str]:
    """The media type and the base64 of such a URL.

    Raises:
        Unrepresentable: It is another URL; nothing is fetched.
    """
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise Unrepresentable("only media within the message can be taken over, no addresses")
    return found[1], found[2]


def file_name(uri: str) -> str:
    """What a resource would be called as a file."""
    return uri.rstrip("/").rpartition("/")[2] or "file"


def resource_text(contents: TextResourceContents) -> str:
    """A text resource where the provider has text only."""
    kind = f' type="{escape(contents.mime_type)}"' if contents.mime_type else ""
    return f'<resource uri="{escape(contents.uri)}"{kind}>\n{contents.text}\n</resource>'


def link_text(link: ResourceLink) -> str:
    """A link to a resource, in words: no provider has it."""
    attributes = {"uri": link.uri, "name": link.display_name, "type": link.mime_type}
    said = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<resource_link{said}>{link.description or ''}</resource_link>"


def placeholder(block: Any) -> str:
    """Words for a part of a tool's result that this model cannot take."""
    media = getattr(block, "resource", block)
    kind = getattr(media, "mime_type", None) or getattr(block, "type", "content")
    return f"[{kind}: left out, as this model does not take it]"


def tool_text(result: ToolResultContent, texts: Iterable[str]) -> str:
    """The text of a tool's result; structured content where it has no other."""
    said = "\n".join(text for text in texts if text)
    if not said and result.structured_content is not None and not result.content:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return said


def merged_text(blocks: Iterable[Any]) -> list[Any]:
    """Blocks with neighbouring pieces of text put together, as streams bring them."""
    merged: list[Any] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if isinstance(block, types.TextContent) and isinstance(last, types.TextContent):
            merged[-1] = types.TextContent(text=last.text + block.text)
        else:
            merged.append(block)
    return merged


def arguments_of(tool: str, given: Any, *, cut_off: bool = False) -> dict[str, Any] | None:
    """The arguments that a model wrote as JSON.

    Args:
        tool: Named in the error.
        given: The text, or what has been read from it.
        cut_off: The message ends where its limit of tokens was: half a text is no fault then.

    Returns:
        `None` if the text was cut off.

    Raises:
        InvalidOutput: They are no JSON object.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            if cut_off:
                return None
    if not isinstance(given, dict):
        raise InvalidOutput(f"the model's arguments for the tool {tool!r} are no JSON object")
    return given
