"""Anthropic's models: the format of its Messages API, and sampling by them.

Sampling needs the extra ``anthropic``: ``pip install "syncmcp-client[anthropic]"``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final

from pydantic import BaseModel

from syncmcp import types
from syncmcp.llm._format import (
    ModelFormat,
    Unrepresentable,
    as_messages,
    kept_parts,
    make_answer,
    make_message,
    make_request,
    message_blocks,
    parse_arguments,
    provider_id,
    resource_text,
    tool_text,
)
from syncmcp.llm._sampling import ModelSampling, fit_arguments
from syncmcp.llm._tools import NameRule, SchemaRules

_META_KEY: Final = "syncmcp/anthropic"
"""The key in `_meta` of a tool use for its thinking blocks, which must be sent back."""

_DEFAULT_URI: Final = "document:"
_PDF: Final = "application/pdf"
_IMAGES: Final = frozenset(("image/gif", "image/jpeg", "image/png", "image/webp"))
_THINKING_TYPES: Final = frozenset(("redacted_thinking", "thinking"))
_ANSWER_PARTS: Final = _THINKING_TYPES | {"text", "tool_use"}
_STOP_REASONS: Final = {
    "end_turn": "endTurn",
    "max_tokens": "maxTokens",
    "stop_sequence": "stopSequence",
    "tool_use": "toolUse",
}
_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_DELTAS: Final = {
    "signature_delta": "signature",
    "text_delta": "text",
    "thinking_delta": "thinking",
}


class AnthropicFormat(ModelFormat):
    """The format of Anthropic's Messages API."""

    _names: ClassVar = NameRule(64)
    _schemas: ClassVar = SchemaRules(
        NameRule(64, "."), frozenset(("$ref", "allOf", "anyOf", "oneOf"))
    )

    def render_tools(self) -> list[dict[str, Any]]:
        return self._definitions("input_schema")

    def render_choice(self, choice: types.ToolChoice) -> dict[str, Any]:
        return {"type": _CHOICES.get(choice.mode or "auto", "auto")}

    def render_messages(
        self, messages: Iterable[types.SamplingMessage | types.PromptMessage]
    ) -> list[dict[str, Any]]:
        rendered: list[dict[str, Any]] = []
        for message in as_messages(messages):
            of_user = message.role == "user"
            content = [
                part
                for block in message_blocks(message)
                for part in (self._render_block(block) if of_user else self._render_said(block))
            ]
            if content:
                rendered.append({"role": message.role, "content": content})
        return rendered

    def render_request(
        self, request: types.CreateMessageRequestParams, model: str
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": model,
            "max_tokens": request.max_tokens,
            "messages": self.render_messages(request.messages),
        }
        if request.system_prompt:
            body["system"] = request.system_prompt
        if request.temperature is not None:
            body["temperature"] = min(max(request.temperature, 0.0), 1.0)
        # The API rejects stop sequences of white space only.
        if stops := [stop for stop in request.stop_sequences or () if stop.strip()]:
            body["stop_sequences"] = stops
        self._add_tools(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[types.Tool]:
        return [
            self._parse_tool(tool, tool["input_schema"])
            for tool in definitions
            if "input_schema" in tool  # other tools are run by the provider
        ]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[types.SamplingMessage]:
        return [
            make_message(message["role"], self._parse_blocks(message["content"]))
            for message in messages
        ]

    def parse_request(self, body: dict[str, Any]) -> types.CreateMessageRequestParams:
        system, choice = body.get("system"), body.get("tool_choice")
        if isinstance(system, list):
            system = "\n".join(block["text"] for block in system)
        modes = {kind: mode for mode, kind in _CHOICES.items()}
        return make_request(
            messages=self.parse_messages(body["messages"]),
            max_tokens=body["max_tokens"],
            system_prompt=system,
            temperature=body.get("temperature"),
            stop_sequences=body.get("stop_sequences"),
            tools=self.parse_tools(body.get("tools") or ()),
            tool_choice=choice and types.ToolChoice(mode=modes.get(choice["type"], "required")),
        )

    def parse_answer(self, answer: dict[str, Any]) -> types.CreateMessageResult:
        reason: Any = answer.get("stop_reason")
        # Blocks about tools that the provider itself ran are dropped: the text has their results.
        content = [part for part in answer["content"] if part["type"] in _ANSWER_PARTS]
        blocks = self._parse_blocks(content, cut_off=reason == "max_tokens")
        return make_answer(blocks, answer["model"], _STOP_REASONS.get(reason, reason))

    # -- content

    def _render_block(self, block: BaseModel) -> list[dict[str, Any]]:
        if isinstance(block, types.ToolResultContent):
            return [self._render_tool_result(block)]
        return super()._render_block(block)

    def _render_text(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text}] if text else []

    def _render_media(self, mime_type: str, data: str, uri: str | None) -> dict[str, Any]:
        source = {"type": "base64", "media_type": mime_type, "data": data}
        if mime_type in _IMAGES:
            return {"type": "image", "source": source}
        if mime_type == _PDF and uri is not None:
            return {"type": "document", "source": source, "title": uri}
        raise Unrepresentable(f"Anthropic's models do not accept data of type {mime_type!r}")

    def _render_document(self, contents: types.TextResourceContents) -> list[dict[str, Any]]:
        source = {"type": "text", "media_type": "text/plain", "data": contents.text}
        return [{"type": "document", "source": source, "title": contents.uri}]

    def _render_said(self, block: BaseModel) -> list[dict[str, Any]]:
        """Render a content block of a message of the model."""
        if isinstance(block, types.ToolUseContent):
            name, arguments = self._tools.to_provider(block)
            use = {
                "type": "tool_use",
                "id": provider_id(block.id),
                "name": name,
                "input": arguments,
            }
            return [*kept_parts(block, _META_KEY, _THINKING_TYPES), use]
        if isinstance(block, types.TextContent):
            return self._render_block(block)
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"Anthropic's models do not write {kind!r} content")

    def _render_tool_result(self, block: types.ToolResultContent) -> dict[str, Any]:
        content = self._render_or_placeholder(block.content)
        content = content or self._render_text(tool_text(block, ()))
        result: dict[str, Any] = {
            "type": "tool_result",
            "tool_use_id": provider_id(block.tool_use_id),
        }
        if content:
            result["content"] = content
        if block.is_error:
            result["is_error"] = True
        return result

    def _parse_blocks(self, content: Any, *, cut_off: bool = False) -> list[Any]:
        if isinstance(content, str):
            return [types.TextContent(text=content)]
        blocks: list[Any] = []
        thoughts: list[dict[str, Any]] = []
        for part in content:
            kind = part["type"]
            if kind in _THINKING_TYPES:
                thoughts.append(part)
            elif kind == "tool_use":
                arguments = parse_arguments(part["name"], part["input"], cut_off=cut_off)
                if arguments is None:
                    continue
                use = self._tools.from_provider(part["id"], part["name"], arguments)
                if thoughts:
                    use.meta = {_META_KEY: thoughts}
                    thoughts = []
                blocks.append(use)
            elif kind == "tool_result":
                blocks.append(_parse_tool_result(part))
            else:
                blocks.append(_parse_content(part))
        return blocks


class AnthropicAccumulator:
    """Accumulates the events of a stream into a message."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {}
        self._json: dict[int, list[str]] = {}

    def add(self, event: dict[str, Any]) -> str:
        kind = event["type"]
        if kind == "message_start":
            self._message = {**event["message"], "content": []}
        elif kind == "content_block_start":
            self._message["content"].append(dict(event["content_block"]))
            return str(event["content_block"].get("text", ""))
        elif kind == "content_block_delta":
            return self._append_delta(event["index"], event["delta"])
        elif kind == "message_delta":
            self._message["stop_reason"] = event["delta"].get("stop_reason")
        return ""

    def _append_delta(self, index: int, delta: dict[str, Any]) -> str:
        block = self._message["content"][index]
        kind = delta["type"]
        if kind == "input_json_delta":
            self._json.setdefault(index, []).append(delta["partial_json"])
        elif kind in _DELTAS:
            name = _DELTAS[kind]
            block[name] = block.get(name, "") + delta[name]
            return str(delta[name]) if kind == "text_delta" else ""
        return ""

    def answer(self) -> dict[str, Any] | None:
        if self._message.get("stop_reason") is None:
            return None
        for index, pieces in self._json.items():
            self._message["content"][index]["input"] = "".join(pieces)
        return self._message


class AnthropicSampling(ModelSampling):
    """Lets an Anthropic model answer for a server, or be the model of a `ToolLoop`.

    See `ModelSampling`. `client` is an `anthropic.Anthropic`, or a client of the same package for
    another cloud. The default has the key of the environment (``ANTHROPIC_API_KEY``).
    """

    _package = "anthropic"
    _extra = "anthropic"
    _required_attribute = "messages"
    _format = AnthropicFormat
    _accumulator = AnthropicAccumulator

    def _new_client(self) -> Any:
        import anthropic

        return anthropic.Anthropic()

    def _open_stream(self, client: Any, body: dict[str, Any]) -> Any:
        create = client.messages.create
        return create(**fit_arguments(create, body), stream=True)


def _parse_tool_result(part: dict[str, Any]) -> types.ToolResultContent:
    content = part.get("content") or []
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    blocks = [
        _parse_resource(inner) if inner["type"] == "document" else _parse_content(inner)
        for inner in content
    ]
    result = types.ToolResultContent(tool_use_id=part["tool_use_id"], content=blocks)
    if part.get("is_error"):
        result.is_error = True
    return result


def _parse_content(part: dict[str, Any]) -> Any:
    """Parse a part that is allowed in any message."""
    kind = part["type"]
    if kind == "text":
        return types.TextContent(text=part["text"])
    if kind == "image" and part["source"]["type"] == "base64":
        source = part["source"]
        return types.ImageContent(data=source["data"], mime_type=source["media_type"])
    if kind == "document" and part["source"]["type"] == "text":
        source, uri = part["source"], part.get("title") or _DEFAULT_URI
        said = types.TextResourceContents(uri=uri, text=source["data"])
        return types.TextContent(text=resource_text(said))
    raise Unrepresentable(f"MCP has no {kind!r} content of this kind in a message")


def _parse_resource(part: dict[str, Any]) -> types.EmbeddedResource:
    source, uri = part["source"], part.get("title") or _DEFAULT_URI
    contents: types.ResourceContents
    if source["type"] == "text":
        contents = types.TextResourceContents(uri=uri, text=source["data"])
    elif source["type"] == "base64":
        kind = source["media_type"]
        contents = types.BlobResourceContents(uri=uri, mime_type=kind, blob=source["data"])
    else:
        raise Unrepresentable("only documents inside the message can be converted, not URLs")
    return types.EmbeddedResource(resource=contents)
