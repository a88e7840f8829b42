"""The base class of the formats of providers, and conversions that several formats share."""

from __future__ import annotations

import functools
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Any, ClassVar, Final
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from syncmcp import types
from syncmcp._base.checks import kind_of
from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.llm._tools import NameRule, SchemaRules, ToolTable

# Conversions that several formats share.


_ID: Final = NameRule(40)
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)


# The methods that parse data of a provider; a program may pass data in another format.
_PARSED: Final = {
    "parse_answer": "the answer",
    "parse_messages": "the conversation",
    "parse_request": "the request",
    "parse_tools": "a definition of a tool",
}


class Unrepresentable(UsageError):
    """The target format cannot represent a content: a sound for a text model, for example."""


def provider_id(id: str) -> str:
    """Return the id of a tool use, changed deterministically if some provider refuses it."""
    return _ID.fit(id)


def new_id() -> str:
    return f"call_{uuid4().hex[:24]}"


def as_messages(
    given: Iterable[types.SamplingMessage | types.PromptMessage],
) -> Iterator[types.SamplingMessage | types.PromptMessage]:
    """Yield the messages of a program; raise `UsageError` for messages in a provider's format."""
    for message in given:
        if not isinstance(message, (types.SamplingMessage, types.PromptMessage)):
            raise UsageError(
                "messages must be SamplingMessage or PromptMessage objects, which parse_messages"
                f" makes from dicts, not {kind_of(message)}"
            )
        yield message


def message_blocks(message: types.SamplingMessage | types.PromptMessage) -> Sequence[BaseModel]:
    return message.content if isinstance(message.content, list) else [message.content]


def data_url(mime_type: str | None, data: str) -> str:
    return f"data:{mime_type or 'application/octet-stream'};base64,{data}"


def from_data_url(url: Any) -> tuple[str, str]:
    """Return the media type and the base64 of a `data:` URL; other URLs are `Unrepresentable`."""
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise Unrepresentable("only media inside the message can be converted, not URLs")
    return found[1], found[2]


def file_name(uri: str) -> str:
    """Return a file name for a resource: the last segment of its URI."""
    return uri.rstrip("/").rpartition("/")[2] or "file"


def resource_text(contents: types.TextResourceContents) -> str:
    """Return a text resource as text with a tag, for providers without resources."""
    kind = f' type="{escape(contents.mime_type)}"' if contents.mime_type else ""
    return f'<resource uri="{escape(contents.uri)}"{kind}>\n{contents.text}\n</resource>'


def link_text(link: types.ResourceLink) -> str:
    """Return a resource link as text with a tag: no provider has such content."""
    attributes = {"uri": link.uri, "name": link.display_name, "type": link.mime_type}
    said = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items() if value)
    return f"<resource_link{said}>{link.description or ''}</resource_link>"


def tool_text(result: types.ToolResultContent, texts: Iterable[str]) -> str:
    """Return the text of a tool result, or its structured content if it has no other."""
    said = "\n".join(text for text in texts if text)
    if not said and result.structured_content is not None and not result.content:
        return json.dumps(result.structured_content, ensure_ascii=False)
    return said


def kept_parts(use: types.ToolUseContent, key: str, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """Return the parts of these types that a format has stored under `key` of the `_meta`.

    A conversation may come from a server. Other parts that it has stored there would reach the
    model with any role and type, and so bypass the system prompt and the rules for content.
    """
    kept = (use.meta or {}).get(key)
    parts = [part for part in kept if isinstance(part, dict)] if isinstance(kept, list) else []
    return [part for part in parts if part.get("type") in tuple(kinds)]


def merge_text(blocks: Iterable[Any]) -> list[Any]:
    """Merge adjacent text blocks, as streams split text."""
    merged: list[Any] = []
    for block in blocks:
        last = merged[-1] if merged else None
        if isinstance(block, types.TextContent) and isinstance(last, types.TextContent):
            merged[-1] = types.TextContent(text=last.text + block.text)
        else:
            merged.append(block)
    return merged


def parse_arguments(tool: str, given: Any, *, cut_off: bool = False) -> dict[str, Any] | None:
    """Return the arguments of a tool call, as a model wrote them in JSON, or parsed already.

    The result is `None` for incomplete JSON, if the answer was `cut_off` at its token limit.

    Raises `InvalidOutput` if the arguments are not a JSON object.
    """
    if isinstance(given, str):
        try:
            given = json.loads(given or "{}")
        except (ValueError, RecursionError):
            if cut_off:
                return None
    if not isinstance(given, dict):
        raise InvalidOutput(f"the model's arguments for the tool {tool!r} are not a JSON object")
    return given


def _of_provider(parse: Callable[[Any, Any], Any], what: str) -> Callable[[Any, Any], Any]:
    """Wrap a parser: data that are not in the format raise a `UsageError`."""

    @functools.wraps(parse)
    def checked(self: ModelFormat, given: Any) -> Any:
        try:
            return parse(self, given)
        except (AttributeError, IndexError, KeyError, TypeError, ValidationError) as error:
            text = f"{what} is not in the format {type(self).__name__}"
            if hasattr(given, "model_dump"):
                text += f": pass a dict made of {kind_of(given)}, not the object"
            elif isinstance(error, KeyError):
                text += f": {error.args[0]!r} is missing"
            raise UsageError(text) from error

    return checked


class ModelFormat(ABC):
    """Converts MCP data into the format of a provider, and back.

    Data of the provider are plain dicts, as in its HTTP API: no package of the provider is needed.
    Requests have adapted schemas, and adapted names of tools and arguments that the provider does
    not accept. The changes are reversed in answers, so use one format object for a request and its
    answer. The only state of the object is the tools. Its methods may be called from any thread.
    Use one of the subclasses in this package: the base class is not meant for subclasses of your
    own.

    Args:
        tools: The tools that the model gets.

    Raises:
        UsageError: Two tools have the same name.
    """

    # The rules of the provider for tool names and schemas, and the maximal length of descriptions
    # in characters; a longer description is cut.
    _names: ClassVar[NameRule]
    _schemas: ClassVar[SchemaRules]
    _longest_description: ClassVar[int | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, what in _PARSED.items():
            if name in vars(cls):
                setattr(cls, name, _of_provider(vars(cls)[name], what))

    def __init__(self, tools: Iterable[types.Tool] = ()) -> None:
        self._tools = ToolTable(tools, self._names, self._schemas, self._longest_description)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    # -- from MCP

    @abstractmethod
    def render_tools(self) -> list[dict[str, Any]]:
        """Return the tools as definitions of the provider."""

    @abstractmethod
    def render_choice(self, choice: types.ToolChoice) -> Any:
        """Return the tool choice: whether the model may or must use tools."""

    @abstractmethod
    def render_messages(
        self, messages: Iterable[types.SamplingMessage | types.PromptMessage]
    ) -> list[dict[str, Any]]:
        """Return the messages of a sampling request, or of a prompt.

        Raises:
            Unrepresentable: The provider's format cannot represent a content. In the result of a
                tool, a text takes its place instead.
        """

    @abstractmethod
    def render_request(
        self, request: types.CreateMessageRequestParams, model: str
    ) -> dict[str, Any]:
        """Return the body of a request. `request.tools` is ignored: the format has its own tools.

        Args:
            request: The sampling request.
            model: The provider's name of the model.

        Raises:
            Unrepresentable: See `render_messages`.
        """

    def render_result(
        self, use: types.ToolUseContent, result: types.CallToolResult
    ) -> list[dict[str, Any]]:
        """Return the messages that pass the result of a tool to the model.

        Args:
            use: The tool use of the model, from `parse_answer`.
            result: The result of `call_tool`.

        Raises:
            UsageError: An argument has another type.
        """
        if not isinstance(use, types.ToolUseContent):
            raise UsageError(f"use must be a ToolUseContent, not {kind_of(use)}")
        if not isinstance(result, types.CallToolResult):
            raise UsageError(f"result must be a CallToolResult, not {kind_of(result)}")
        block = types.ToolResultContent(tool_use_id=use.id, content=result.content)
        if result.has_data:
            block.structured_content = result.data
        block.is_error = result.is_error
        asked = types.SamplingMessage(role="assistant", content=use)
        told = types.SamplingMessage(role="user", content=block)
        before = len(self.render_messages([asked]))
        return self.render_messages([asked, told])[before:]

    def render_contents(self, contents: Iterable[types.ResourceContents]) -> list[dict[str, Any]]:
        """Return contents of a resource as content of a user message.

        Raises:
            Unrepresentable: The provider accepts no data of that type.
        """
        blocks = [types.EmbeddedResource(resource=part) for part in contents]
        return [part for block in blocks for part in self._render_block(block)]

    # -- to MCP

    @abstractmethod
    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[types.Tool]:
        """Return the tools of definitions: for tools of this format, the original objects."""

    @abstractmethod
    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[types.SamplingMessage]:
        """Return the messages of a conversation, without system and developer messages.

        Raises:
            Unrepresentable: MCP has no such content, or the provider's data have only the URL of
                the content.
            InvalidOutput: The arguments of a tool call are not a JSON object.
        """

    @abstractmethod
    def parse_request(self, body: dict[str, Any]) -> types.CreateMessageRequestParams:
        """Return a request as a sampling request, without fields that MCP does not have."""

    @abstractmethod
    def parse_answer(self, answer: dict[str, Any]) -> types.CreateMessageResult:
        """Return the answer of a model as a sampling result.

        Raises:
            InvalidOutput: The arguments of a tool call are not a JSON object, or the data contain
                no answer.
        """

    def parse_calls(self, answer: dict[str, Any]) -> list[types.ToolUseContent]:
        """Return the tool calls in the answer of a model: ``call_tool(use.name, use.input)``."""
        blocks = self.parse_answer(answer).blocks
        return [block for block in blocks if isinstance(block, types.ToolUseContent)]

    # -- for subclasses

    def _definitions(self, schema: str) -> list[dict[str, Any]]:
        """Return name and description of each tool, and in the field `schema` its schema."""
        return [
            {
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                schema: tool.adapted.schema,
            }
            for tool in self._tools
        ]

    def _parse_tool(self, definition: dict[str, Any], schema: dict[str, Any] | None) -> types.Tool:
        """The tool of a definition with a name and a description."""
        return self._tools.tool_for(
            definition["name"], definition.get("description"), schema or {"type": "object"}
        )

    def _render_block(self, block: BaseModel) -> list[dict[str, Any]]:
        """A content block of a user message."""
        match block:
            case types.TextContent():
                return self._render_text(block.text)
            case types.ResourceLink():
                return self._render_text(link_text(block))
            case types.ImageContent() | types.AudioContent():
                # A person has seen only the length of a picture: it must not be a text.
                if not block.mime_type.startswith(f"{block.type}/"):
                    raise Unrepresentable(
                        f"{block.mime_type!r} is not a type of {block.type} content"
                    )
                return [self._render_media(block.mime_type, block.data, None)]
            case types.EmbeddedResource(resource=types.BlobResourceContents() as blob):
                return [self._render_media(blob.mime_type or "", blob.blob, blob.uri)]
            case types.EmbeddedResource(resource=types.TextResourceContents() as text):
                return self._render_document(text)
            case _:
                kind = getattr(block, "type", "")
                raise Unrepresentable(f"this model does not accept {kind!r} content from the user")

    @abstractmethod
    def _render_text(self, text: str) -> list[dict[str, Any]]:
        """A text in a user message."""

    @abstractmethod
    def _render_media(self, mime_type: str, data: str, uri: str | None) -> dict[str, Any]:
        """Bytes in a user message.

        Args:
            mime_type: Their type; empty if unknown.
            data: The bytes in base64.
            uri: The URI, if they are a resource.

        Raises:
            Unrepresentable: The provider accepts no data of that type.
        """

    def _render_document(self, contents: types.TextResourceContents) -> list[dict[str, Any]]:
        """A text resource in a user message."""
        return self._render_text(resource_text(contents))

    def _render_or_placeholder(self, blocks: Iterable[types.ContentBlock]) -> list[dict[str, Any]]:
        """Content blocks of a tool result, with a text in place of each unrepresentable one."""
        parts: list[dict[str, Any]] = []
        for block in blocks:
            try:
                parts += self._render_block(block)
            except Unrepresentable:
                media = getattr(block, "resource", block)
                kind = getattr(media, "mime_type", None) or getattr(block, "type", "content")
                parts += self._render_text(
                    f"[{kind}: left out because this model does not accept it]"
                )
        return parts

    def _add_tools(
        self,
        body: dict[str, Any],
        request: types.CreateMessageRequestParams,
        choice: str = "tool_choice",
    ) -> None:
        """Add the tools, and in the field `choice` the tool choice, to the body of a request."""
        if tools := self._declared_or_used_tools(request.messages):
            body["tools"] = tools
            may_use = request.tool_choice if len(self._tools) else types.ToolChoice(mode="none")
            if may_use is not None:
                body[choice] = self.render_choice(may_use)

    def _declared_or_used_tools(
        self, messages: Iterable[types.SamplingMessage]
    ) -> list[dict[str, Any]]:
        """Return definitions of the tools; without tools, stubs of those that the messages use.

        Providers reject messages with calls of tools that the request does not define.
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


def make_answer(blocks: Sequence[Any], model: str, reason: str | None) -> types.CreateMessageResult:
    """Return a sampling result with these blocks, or with an empty text for no blocks."""
    return types.CreateMessageResult(
        role="assistant",
        content=message_content(blocks or [types.TextContent(text="")]),
        model=model,
        stop_reason=reason,
    )


def make_message(role: str, blocks: Sequence[Any]) -> types.SamplingMessage:
    return types.SamplingMessage.model_validate({"role": role, "content": message_content(blocks)})


def make_request(**fields: Any) -> types.CreateMessageRequestParams:
    """Return a sampling request with these fields, except empty ones."""
    return types.CreateMessageRequestParams(
        **{name: value for name, value in fields.items() if value not in (None, "", [])}
    )


def message_content(blocks: Sequence[Any]) -> Any:
    """Return the content of a message; one block not as a list, because of older revisions."""
    return blocks[0] if len(blocks) == 1 else list(blocks)
