"""The format of OpenAI's Chat Completions, which many other providers support, too."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from syncmcp import types
from syncmcp.errors import InvalidOutput
from syncmcp.llm._format import (
    ModelFormat,
    Unrepresentable,
    data_url,
    file_name,
    from_data_url,
    link_text,
    make_answer,
    message_blocks,
    message_content,
    new_id,
    parse_arguments,
    provider_id,
    resource_text,
    tool_text,
)
from syncmcp.llm._tools import NameRule, SchemaRules

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syncmcp.types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        PromptMessage,
        SamplingMessage,
        Tool,
        ToolChoice,
        ToolResultContent,
    )

__all__ = ["OPENAI_SCHEMAS", "OpenAIChatAccumulator", "OpenAIChatFormat"]

OPENAI_SCHEMAS: Final = SchemaRules(
    None, frozenset(("$ref", "allOf", "anyOf", "enum", "not", "oneOf")), has_combinators=False
)
"""The rules for schemas of tools in both formats of OpenAI."""

_STOP_REASONS: Final = {"length": "maxTokens", "stop": "endTurn", "tool_calls": "toolUse"}
_AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_AUDIO_TYPES: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_SYSTEM_ROLES: Final = frozenset(("developer", "system"))
_MAX_STOPS: Final = 4


class OpenAIChatFormat(ModelFormat):
    """The format of OpenAI's Chat Completions."""

    _names: ClassVar = NameRule(64)
    _schemas: ClassVar = OPENAI_SCHEMAS
    _longest_description: ClassVar = 1024

    def render_tools(self) -> list[dict[str, Any]]:
        """See `ModelFormat.render_tools`."""
        return [
            {
                "type": "function",
                "function": {
                    "name": tool.name,
                    **({"description": tool.description} if tool.description else {}),
                    "parameters": tool.adapted.schema,
                },
            }
            for tool in self._tools
        ]

    def render_choice(self, choice: ToolChoice) -> str:
        """See `ModelFormat.render_choice`."""
        return choice.mode if choice.mode in ("none", "required") else "auto"

    def render_messages(
        self, messages: Iterable[SamplingMessage | PromptMessage]
    ) -> list[dict[str, Any]]:
        """See `ModelFormat.render_messages`."""
        rendered: list[dict[str, Any]] = []
        for message in messages:
            blocks = message_blocks(message)
            if message.role == "assistant":
                rendered.append(self._render_said(blocks))
                continue
            results = [block for block in blocks if isinstance(block, types.ToolResultContent)]
            others = [block for block in blocks if not isinstance(block, types.ToolResultContent)]
            shown: list[dict[str, Any]] = []
            for result in results:
                parts = self._render_or_placeholder(result.content)
                media = [part for part in parts if part["type"] != "text"]
                if media:  # a tool message may hold text only
                    said = f"What the tool call {provider_id(result.tool_use_id)} returned:"
                    shown += [{"type": "text", "text": said}, *media]
                rendered.append(_tool_message(result, parts))
            if parts := [*shown, *(part for block in others for part in self._render_block(block))]:
                rendered.append({"role": "user", "content": parts})
        return rendered

    def render_request(self, request: CreateMessageRequestParams, model: str) -> dict[str, Any]:
        """See `ModelFormat.render_request`."""
        messages = self.render_messages(request.messages)
        if request.system_prompt:
            messages.insert(0, {"role": "system", "content": request.system_prompt})
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "max_completion_tokens": request.max_tokens,
        }
        if request.temperature is not None:
            body["temperature"] = min(max(request.temperature, 0.0), 2.0)
        if stops := [stop for stop in request.stop_sequences or () if stop]:
            body["stop"] = stops[:_MAX_STOPS]
        self._add_tools(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[Tool]:
        """See `ModelFormat.parse_tools`."""
        functions = [tool["function"] for tool in definitions if tool["type"] == "function"]
        return [
            self._tools.tool_for(
                tool["name"], tool.get("description"), tool.get("parameters") or _EMPTY_SCHEMA
            )
            for tool in functions
        ]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[SamplingMessage]:
        """See `ModelFormat.parse_messages`."""
        parsed: list[SamplingMessage] = []
        results: list[Any] = []  # of one turn: one message in MCP
        for message in messages:
            if message["role"] == "tool":
                content = _text_blocks(message["content"])
                id = message["tool_call_id"]
                results.append(types.ToolResultContent(tool_use_id=id, content=content))
                continue
            if results:
                parsed.append(types.SamplingMessage(role="user", content=message_content(results)))
                results = []
            if message["role"] in _SYSTEM_ROLES:
                continue
            if message["role"] == "assistant":
                content = self._parse_blocks(message) or [types.TextContent(text="")]
            else:
                content = _parse_user_content(message["content"])
            parsed.append(
                types.SamplingMessage(role=message["role"], content=message_content(content))
            )
        if results:
            parsed.append(types.SamplingMessage(role="user", content=message_content(results)))
        return parsed

    def parse_request(self, body: dict[str, Any]) -> CreateMessageRequestParams:
        """See `ModelFormat.parse_request`."""
        limit = body.get("max_completion_tokens", body.get("max_tokens"))
        found = types.CreateMessageRequestParams(
            messages=self.parse_messages(body["messages"]), max_tokens=limit or 0
        )
        system = [
            block.text
            for message in body["messages"]
            if message["role"] in _SYSTEM_ROLES
            for block in _text_blocks(message["content"])
        ]
        if system:
            found.system_prompt = "\n".join(system)
        if body.get("temperature") is not None:
            found.temperature = body["temperature"]
        if stop := body.get("stop"):
            found.stop_sequences = [stop] if isinstance(stop, str) else stop
        if tools := self.parse_tools(body.get("tools") or ()):
            found.tools = tools
        if choice := body.get("tool_choice"):
            mode = choice if isinstance(choice, str) else "required"
            found.tool_choice = types.ToolChoice(mode=mode)
        return found

    def parse_answer(self, answer: dict[str, Any]) -> CreateMessageResult:
        """See `ModelFormat.parse_answer`."""
        if not answer.get("choices"):
            raise InvalidOutput("the model gave no answer")
        choice = answer["choices"][0]
        reason = choice.get("finish_reason")
        blocks = self._parse_blocks(choice["message"], cut_off=reason == "length")
        return make_answer(blocks, answer["model"], _STOP_REASONS.get(reason, reason))

    # -- content

    def _render_block(self, block: BaseModel) -> list[dict[str, Any]]:
        if isinstance(block, types.TextContent):
            return [{"type": "text", "text": block.text}]
        if isinstance(block, types.ImageContent):
            return [_render_image(block.mime_type, block.data)]
        if isinstance(block, types.AudioContent):
            kind = _AUDIO_FORMATS.get(block.mime_type)
            if kind is None:
                raise Unrepresentable(f"OpenAI's models take no sound of type {block.mime_type!r}")
            return [{"type": "input_audio", "input_audio": {"data": block.data, "format": kind}}]
        if isinstance(block, types.ResourceLink):
            return [{"type": "text", "text": link_text(block)}]
        if isinstance(block, types.EmbeddedResource):
            contents = block.resource
            if isinstance(contents, types.TextResourceContents):
                return [{"type": "text", "text": resource_text(contents)}]
            if (contents.mime_type or "").startswith("image/"):
                return [_render_image(contents.mime_type, contents.blob)]
            if contents.mime_type == "application/pdf":
                data = data_url(contents.mime_type, contents.blob)
                return [
                    {
                        "type": "file",
                        "file": {"filename": file_name(contents.uri), "file_data": data},
                    }
                ]
            raise Unrepresentable(f"OpenAI's models take no files of type {contents.mime_type!r}")
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's models take no {kind!r} content from the user")

    def _render_said(self, blocks: Iterable[BaseModel]) -> dict[str, Any]:
        """A message of the model."""
        texts: list[str] = []
        calls: list[dict[str, Any]] = []
        for block in blocks:
            if isinstance(block, types.ToolUseContent):
                name, arguments = self._tools.to_provider(block)
                function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
                calls.append(
                    {"id": provider_id(block.id), "type": "function", "function": function}
                )
            elif isinstance(block, types.TextContent):
                texts.append(block.text)
            else:
                kind = getattr(block, "type", "")
                raise Unrepresentable(f"OpenAI's models write no {kind!r} content in chat")
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
        if calls:
            message["tool_calls"] = calls
            message["content"] = message["content"] or None
        return message

    def _parse_blocks(self, message: dict[str, Any], *, cut_off: bool = False) -> list[Any]:
        """Parse a message of the model."""
        blocks: list[Any] = [block for block in _text_blocks(message.get("content")) if block.text]
        if refusal := message.get("refusal"):
            blocks.append(types.TextContent(text=refusal))
        for call in message.get("tool_calls") or ():
            function = call["function"]
            arguments = parse_arguments(function["name"], function["arguments"], cut_off=cut_off)
            if arguments is not None:
                id = call.get("id") or new_id()
                blocks.append(self._tools.from_provider(id, function["name"], arguments))
        return blocks


class OpenAIChatAccumulator:
    """Accumulates the chunks of a stream into a chat completion."""

    def __init__(self) -> None:
        self._model = ""
        self._reason: str | None = None
        self._texts: dict[str, list[str]] = {"content": [], "refusal": []}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}

    def add(self, event: dict[str, Any]) -> str:
        """Add one chunk; return the text in it."""
        self._model = event.get("model") or self._model
        for choice in event.get("choices") or ():
            self._reason = choice.get("finish_reason") or self._reason
            delta = choice.get("delta") or {}
            for call in delta.get("tool_calls") or ():
                self._append_delta(call)
            for kind, texts in self._texts.items():
                if text := delta.get(kind):
                    texts.append(text)
                    return str(text)
        return ""

    def _append_delta(self, call: dict[str, Any]) -> None:
        index, id = call.get("index") or 0, call.get("id") or ""
        place = self._places.get(index)
        # Some providers give all calls the same index, or none.
        if place is None or (id and self._calls[place]["id"] not in ("", id)):
            place = self._places[index] = len(self._calls)
            self._calls.append({"id": "", "function": {"name": "", "arguments": ""}})
        known = self._calls[place]
        known["id"] = known["id"] or id
        function = call.get("function") or {}
        for field in ("name", "arguments"):
            known["function"][field] += function.get(field) or ""

    def answer(self) -> dict[str, Any] | None:
        """The complete completion; `None` if the stream ended early."""
        if self._reason is None:
            return None
        message: dict[str, Any] = {
            kind: "".join(texts) or None for kind, texts in self._texts.items()
        }
        message["tool_calls"] = self._calls
        choice = {"message": message, "finish_reason": self._reason}
        return {"model": self._model, "choices": [choice]}


_EMPTY_SCHEMA: Final[dict[str, Any]] = {"type": "object"}


def _render_image(mime_type: str | None, data: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(mime_type, data)}}


def _tool_message(result: ToolResultContent, parts: list[dict[str, Any]]) -> dict[str, Any]:
    text = tool_text(result, (part["text"] for part in parts if part["type"] == "text"))
    if not text and parts:
        text = "See the next message."
    if result.is_error:
        text = f"Error: {text}"
    return {"role": "tool", "tool_call_id": provider_id(result.tool_use_id), "content": text}


def _text_blocks(content: Any) -> list[Any]:
    if isinstance(content, str):
        return [types.TextContent(text=content)]
    return [types.TextContent(text=part["text"]) for part in content or () if "text" in part]


def _parse_user_content(content: Any) -> list[Any]:
    """Parse the content of a user message."""
    if isinstance(content, str):
        return [types.TextContent(text=content)]
    blocks: list[Any] = []
    for part in content:
        kind = part["type"]
        if kind == "text":
            blocks.append(types.TextContent(text=part["text"]))
        elif kind == "image_url":
            mime_type, data = from_data_url(part["image_url"]["url"])
            blocks.append(types.ImageContent(data=data, mime_type=mime_type))
        elif kind == "input_audio":
            sound = part["input_audio"]
            mime_type = _AUDIO_TYPES[sound["format"]]
            blocks.append(types.AudioContent(data=sound["data"], mime_type=mime_type))
        else:
            raise Unrepresentable(f"MCP has no {kind!r} content in a message")
    return blocks
