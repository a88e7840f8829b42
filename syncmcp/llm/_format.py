"""What a format of a provider is, and what several say in the same way."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

from syncmcp import types
from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.llm._tools import NameRule, ToolTable

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syncmcp.llm._tools import SchemaRules
    from syncmcp.types import (
        CallToolResult,
        ContentBlock,
        CreateMessageRequestParams,
        CreateMessageResult,
        PromptMessage,
        ResourceContents,
        ResourceLink,
        SamplingMessage,
        TextResourceContents,
        Tool,
        ToolChoice,
        ToolResultContent,
        ToolUseContent,
    )

__all__ = [
    "ModelFormat",
    "Unrepresentable",
    "data_url",
    "file_name",
    "from_data_url",
    "link_text",
    "make_answer",
    "merge_text",
    "message_blocks",
    "message_content",
    "new_id",
    "parse_arguments",
    "placeholder_text",
    "provider_id",
    "resource_text",
    "tool_text",
]


# What the formats of several providers say in the same way.


_ID: Final = NameRule(40)
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


class Unrepresentable(UsageError):
    """A provider's format has no way to say this: a sound to a model that only reads."""


def provider_id(id: str) -> str:
    """The id of a tool use as every provider takes it; the conversation may have been another's."""
    return _ID.fit(id)


def new_id() -> str:
    """An id for a tool use that the provider gave none."""
    return f"call_{uuid4().hex[:24]}"


def message_blocks(message: SamplingMessage | PromptMessage) -> Sequence[BaseModel]:
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


def placeholder_text(block: Any) -> str:
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


def merge_text(blocks: Iterable[Any]) -> list[Any]:
    """Blocks with neighbouring pieces of text put together, as streams bring them."""
    merged: list[Any] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if isinstance(block, types.TextContent) and isinstance(last, types.TextContent):
            merged[-1] = types.TextContent(text=last.text + block.text)
        else:
            merged.append(block)
    return merged


def parse_arguments(tool: str, given: Any, *, cut_off: bool = False) -> dict[str, Any] | None:
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


class ModelFormat(ABC):
    """Says what MCP says in the words of a model's provider, and the other way round.

    Everything of the provider's is a plain dict, as its HTTP interface has it: no package of the
    provider is needed. Names of tools and of their arguments that the provider does not accept are
    changed on the way out and restored on the way back, as are schemas; so use one format for a
    request and its answer. A format keeps nothing but its tools; threads may share it.

    Args:
        tools: The tools that the model is told of.

    Raises:
        UsageError: Two of them have one name.
    """

    # What the provider accepts as the name of a tool, as its schema, and as its description in
    # characters; a longer one is cut.
    _names: ClassVar[NameRule]
    _schemas: ClassVar[SchemaRules]
    _longest_description: ClassVar[int | None] = None

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools = ToolTable(tools, self._names, self._schemas, self._longest_description)

    # -- from MCP

    @abstractmethod
    def render_tools(self) -> list[dict[str, Any]]:
        """The definitions of the tools."""

    @abstractmethod
    def render_choice(self, choice: ToolChoice) -> Any:
        """Whether the model may or must use tools."""

    @abstractmethod
    def render_messages(
        self, messages: Iterable[SamplingMessage | PromptMessage]
    ) -> list[dict[str, Any]]:
        """A conversation: of sampling, or what a prompt of a server gives.

        Raises:
            Unrepresentable: The provider's format has no such content. In the result of a tool,
                words stand in its place instead.
        """

    @abstractmethod
    def render_request(self, request: CreateMessageRequestParams, model: str) -> dict[str, Any]:
        """The body of a whole request; `request.tools` is not looked at, the format has its own.

        Args:
            request: What is to be asked.
            model: The provider's name of the model.

        Raises:
            Unrepresentable: See `render_messages`.
        """

    def render_result(self, use: ToolUseContent, result: CallToolResult) -> list[dict[str, Any]]:
        """The messages that tell the model what a tool gave.

        Args:
            use: What the model asked for, from `parse_answer`.
            result: What `call_tool` returned.
        """
        block = types.ToolResultContent(tool_use_id=use.id, content=result.content)
        if result.has_data:
            block.structured_content = result.data
        block.is_error = result.is_error
        asked = types.SamplingMessage(role="assistant", content=use)
        told = types.SamplingMessage(role="user", content=block)
        before = len(self.render_messages([asked]))
        return self.render_messages([asked, told])[before:]

    def render_contents(self, contents: Iterable[ResourceContents]) -> list[dict[str, Any]]:
        """Contents of a resource as the content of a message of the user.

        Raises:
            Unrepresentable: The provider takes no data of that type.
        """
        blocks = [types.EmbeddedResource(resource=part) for part in contents]
        return [part for block in blocks for part in self._render_block(block)]

    # -- to MCP

    @abstractmethod
    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[Tool]:
        """The tools that definitions are of; those of the format's own tools are these."""

    @abstractmethod
    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[SamplingMessage]:
        """A conversation, without what instructs the model.

        Raises:
            Unrepresentable: MCP has no such content, or it is an address and not the thing.
            InvalidOutput: Arguments of a tool are no JSON object.
        """

    @abstractmethod
    def parse_request(self, body: dict[str, Any]) -> CreateMessageRequestParams:
        """What a whole request asks for; fields that MCP does not have are left out."""

    @abstractmethod
    def parse_answer(self, answer: dict[str, Any]) -> CreateMessageResult:
        """The model's answer.

        Raises:
            InvalidOutput: Arguments of a tool are no JSON object, or there is no answer in it.
        """

    def parse_calls(self, answer: dict[str, Any]) -> list[ToolUseContent]:
        """The tools that the model's answer asks for: ``call_tool(use.name, use.input)``."""
        blocks = self.parse_answer(answer).blocks
        return [block for block in blocks if isinstance(block, types.ToolUseContent)]

    # -- for those that stand on this

    @abstractmethod
    def _render_block(self, block: BaseModel) -> list[dict[str, Any]]:
        """A block of content in a message of the user."""

    def _render_or_placeholder(self, blocks: Iterable[ContentBlock]) -> list[dict[str, Any]]:
        """Blocks of a tool's result: words stand for what the model cannot take."""
        parts: list[dict[str, Any]] = []
        for block in blocks:
            try:
                parts += self._render_block(block)
            except Unrepresentable:
                parts += self._render_block(types.TextContent(text=placeholder_text(block)))
        return parts

    def _add_tools(
        self, body: dict[str, Any], request: CreateMessageRequestParams, choice: str = "tool_choice"
    ) -> None:
        """Put into the body of a request what tools there are, and whether they may be used.

        Args:
            body: The body.
            request: What is to be asked.
            choice: The field that says whether.
        """
        if tools := self._declared_or_used_tools(request.messages):
            body["tools"] = tools
            may_use = request.tool_choice if len(self._tools) else types.ToolChoice(mode="none")
            if may_use is not None:
                body[choice] = self.render_choice(may_use)

    def _declared_or_used_tools(self, messages: Iterable[SamplingMessage]) -> list[dict[str, Any]]:
        """The definitions; without any, those of what the conversation has used before.

        Providers refuse a conversation with tools that they were not told of.
        """
        if len(self._tools):
            return self.render_tools()
        names = {
            block.name: None
            for message in messages
            for block in message_blocks(message)
            if isinstance(block, types.ToolUseContent)
        }
        used = [types.Tool(name=name, input_schema={"type": "object"}) for name in names]
        return type(self)(used).render_tools()


def make_answer(blocks: Sequence[Any], model: str, reason: str | None) -> CreateMessageResult:
    """The answer of a model that has written these blocks, of which there may be none."""
    return types.CreateMessageResult(
        role="assistant",
        content=message_content(blocks or [types.TextContent(text="")]),
        model=model,
        stop_reason=reason,
    )


def message_content(blocks: Sequence[Any]) -> Any:
    """Blocks as the content of a message: one of them alone, as every revision has it."""
    return blocks[0] if len(blocks) == 1 else list(blocks)
