"""Google's Gemini models: the format of their API, and sampling by them.

Sampling needs the extra ``gemini``: ``pip install "syncmcp-client[gemini]"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from syncmcp import types
from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.llm._format import (
    ModelFormat,
    Unrepresentable,
    as_messages,
    make_answer,
    make_message,
    make_request,
    merge_text,
    message_blocks,
    new_id,
    parse_arguments,
    provider_id,
    tool_text,
)
from syncmcp.llm._sampling import ModelSampling
from syncmcp.llm._tools import NameRule, SchemaRules

_META_KEY: Final = "syncmcp/gemini"
"""The key in `_meta` of a tool use for its thought signature, which must be sent back."""
_SIGNATURE: Final = "thoughtSignature"

_ANSWER_PARTS: Final = frozenset(("functionCall", "inlineData", "text"))
_STOP_REASONS: Final = {"STOP": "endTurn", "MAX_TOKENS": "maxTokens"}
_CHOICES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_MEDIA: Final = ("application/pdf", "audio/", "image/", "text/", "video/")
_MAX_STOPS: Final = 5

_KEYWORDS: Final = frozenset(
    (
        "$anchor",
        "$defs",
        "$ref",
        "additionalProperties",
        "anyOf",
        "description",
        "enum",
        "format",
        "items",
        "maxItems",
        "maximum",
        "minItems",
        "minimum",
        "prefixItems",
        "properties",
        "propertyOrdering",
        "required",
        "title",
        "type",
    )
)


class GeminiFormat(ModelFormat):
    """The format of Google's Gemini API."""

    _names: ClassVar = NameRule(64, begins_with_letter=True)
    _schemas: ClassVar = SchemaRules(
        NameRule(64),
        frozenset(("$ref", "allOf", "anyOf", "enum", "not", "oneOf")),
        _KEYWORDS,
        has_combinators=False,
    )

    def render_tools(self) -> list[dict[str, Any]]:
        """Return one tool, with the functions in it; see `ModelFormat.render_tools`."""
        functions = self._definitions("parametersJsonSchema")
        return [{"functionDeclarations": functions}] if functions else []

    def render_choice(self, choice: types.ToolChoice) -> dict[str, Any]:
        mode = _CHOICES.get(choice.mode or "auto", "AUTO")
        return {"functionCallingConfig": {"mode": mode}}

    def render_messages(
        self, messages: Iterable[types.SamplingMessage | types.PromptMessage]
    ) -> list[dict[str, Any]]:
        """Return the contents; see `ModelFormat.render_messages`."""
        rendered: list[dict[str, Any]] = []
        names: dict[str, str] = {}
        for message in as_messages(messages):
            parts: list[dict[str, Any]] = []
            media: list[dict[str, Any]] = []
            for block in message_blocks(message):
                if isinstance(block, types.ToolUseContent):
                    call = self._render_call(block)
                    names[block.id] = call["functionCall"]["name"]
                    parts.append(call)
                elif isinstance(block, types.ToolResultContent):
                    shown = self._render_or_placeholder(block.content)
                    parts.append(_render_response(block, names, shown))
                    media += [part for part in shown if "inlineData" in part]
                else:
                    parts += self._render_block(block)
            if parts:  # media of function responses follow after all parts
                role = "user" if message.role == "user" else "model"
                rendered.append({"role": role, "parts": parts + media})
        return rendered

    def render_request(
        self, request: types.CreateMessageRequestParams, model: str
    ) -> dict[str, Any]:
        """See `ModelFormat.render_request`. Over HTTP, the model is a part of the address."""
        settings: dict[str, Any] = {"maxOutputTokens": request.max_tokens}
        if request.temperature is not None:
            settings["temperature"] = min(max(request.temperature, 0.0), 2.0)
        if stops := [stop for stop in request.stop_sequences or () if stop]:
            settings["stopSequences"] = stops[:_MAX_STOPS]
        body: dict[str, Any] = {
            "model": model,
            "contents": self.render_messages(request.messages),
            "generationConfig": settings,
        }
        if request.system_prompt:
            body["systemInstruction"] = {"parts": [{"text": request.system_prompt}]}
        self._add_tools(body, request, "toolConfig")
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[types.Tool]:
        return [
            self._parse_tool(
                function,
                function.get("parametersJsonSchema") or _lower_types(function.get("parameters")),
            )
            for tool in definitions
            for function in tool.get("functionDeclarations") or ()
        ]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[types.SamplingMessage]:
        # New ids for calls without an id, by function: the responses to these have no id either.
        open_calls: dict[str, list[str]] = {}
        return [
            make_message(
                "assistant" if message.get("role") == "model" else "user",
                self._parse_blocks(message.get("parts") or (), open_calls),
            )
            for message in messages
        ]

    def parse_request(self, body: dict[str, Any]) -> types.CreateMessageRequestParams:
        settings = body.get("generationConfig") or {}
        system = (body.get("systemInstruction") or {}).get("parts") or ()
        choice = (body.get("toolConfig") or {}).get("functionCallingConfig")
        modes = {kind: mode for mode, kind in _CHOICES.items()}
        return make_request(
            messages=self.parse_messages(body["contents"]),
            max_tokens=settings.get("maxOutputTokens") or 0,
            system_prompt="\n".join(part["text"] for part in system),
            temperature=settings.get("temperature"),
            stop_sequences=settings.get("stopSequences"),
            tools=self.parse_tools(body.get("tools") or ()),
            tool_choice=choice and types.ToolChoice(mode=modes.get(choice["mode"], "auto")),
        )

    def parse_answer(self, answer: dict[str, Any]) -> types.CreateMessageResult:
        model = answer.get("modelVersion") or "gemini"
        candidates = answer.get("candidates")
        if not candidates:
            if candidates is None and "promptFeedback" not in answer:
                raise KeyError("candidates")
            why = (answer.get("promptFeedback") or {}).get("blockReason")
            raise InvalidOutput(f"the model gave no answer: {why or 'it has no candidates'}")
        candidate = candidates[0]
        reason = candidate.get("finishReason")
        parts = (candidate.get("content") or {}).get("parts") or ()
        if "finish_reason" in candidate or any("function_call" in part for part in parts):
            raise UsageError(
                "the answer has names in snake_case: pass the body of the response, or"
                " model_dump(mode='json', by_alias=True, exclude_none=True)"
            )
        # Parts about tools that the provider itself ran are dropped: the text has their results.
        known = [part for part in parts if not _ANSWER_PARTS.isdisjoint(part)]
        blocks = merge_text(self._parse_blocks(known, {}))
        stop = _STOP_REASONS.get(reason, (reason or "").lower()) or None
        if reason == "STOP" and any(isinstance(block, types.ToolUseContent) for block in blocks):
            stop = "toolUse"
        return make_answer(blocks, model, stop)

    # -- content

    def _render_text(self, text: str) -> list[dict[str, Any]]:
        return [{"text": text}]

    def _render_media(self, mime_type: str, data: str, uri: str | None) -> dict[str, Any]:
        if not mime_type.startswith(_MEDIA):
            raise Unrepresentable(f"Gemini does not accept data of type {mime_type!r}")
        return {"inlineData": {"mimeType": mime_type, "data": data}}

    def _render_call(self, use: types.ToolUseContent) -> dict[str, Any]:
        name, arguments = self._tools.to_provider(use)
        call = {"functionCall": {"id": provider_id(use.id), "name": name, "args": arguments}}
        kept = (use.meta or {}).get(_META_KEY)
        signature = kept.get(_SIGNATURE) if isinstance(kept, dict) else None
        # Only the signature of `_meta`, because a conversation may come from a server.
        return {**call, _SIGNATURE: signature} if isinstance(signature, str) else call

    def _parse_blocks(
        self, parts: Iterable[dict[str, Any]], open_calls: dict[str, list[str]]
    ) -> list[Any]:
        blocks: list[Any] = []
        for part in parts:
            if part.get("thought"):
                continue
            if call := part.get("functionCall"):
                id = call.get("id")
                if not id:
                    id = new_id()
                    open_calls.setdefault(call["name"], []).append(id)
                use = self._tools.from_provider(
                    id, call["name"], parse_arguments(call["name"], call.get("args") or {}) or {}
                )
                if signature := part.get(_SIGNATURE):
                    use.meta = {_META_KEY: {_SIGNATURE: signature}}
                blocks.append(use)
            elif response := part.get("functionResponse"):
                blocks.append(_parse_response(response, open_calls))
            elif media := part.get("inlineData"):
                blocks.append(_parse_media(media))
            elif "text" in part:
                blocks.append(types.TextContent(text=part["text"]))
            else:
                kinds = ", ".join(part)
                raise Unrepresentable(f"MCP has no content for a part with {kinds}")
        return blocks


class GeminiAccumulator:
    """Accumulates the chunks of a stream into an answer."""

    def __init__(self) -> None:
        self._answer: dict[str, Any] = {}
        self._parts: list[dict[str, Any]] = []
        self._reason: str | None = None

    def add(self, event: dict[str, Any]) -> str:
        self._answer.update(event)
        text = ""
        for candidate in event.get("candidates") or ():
            self._reason = candidate.get("finishReason") or self._reason
            parts = (candidate.get("content") or {}).get("parts") or ()
            self._parts += parts
            text += "".join(part.get("text", "") for part in parts if not part.get("thought"))
        return text

    def answer(self) -> dict[str, Any] | None:
        if self._answer.get("promptFeedback", {}).get("blockReason"):
            return {**self._answer, "candidates": []}
        if self._reason is None:
            return None
        candidate = {"content": {"parts": self._parts}, "finishReason": self._reason}
        return {**self._answer, "candidates": [candidate]}


class GeminiSampling(ModelSampling):
    """Lets a Gemini model answer for a server, or be the model of a `ToolLoop`.

    See `ModelSampling`. `client` is a `google.genai.Client`. The default finds its key in the
    environment (``GEMINI_API_KEY``). `options` are fields of its `GenerateContentConfig`.
    """

    _package = "google.genai"
    _extra = "gemini"
    _required_attribute = "models"
    _format = GeminiFormat
    _accumulator = GeminiAccumulator

    def _new_client(self) -> Any:
        from google import genai

        return genai.Client()

    def _provider_fields(self, body: dict[str, Any]) -> dict[str, Any]:
        # In the package, these settings are fields of the same object as all others.
        return {**body.pop("generationConfig"), **body}

    def _open_stream(self, client: Any, body: dict[str, Any]) -> Any:
        from google.genai import types as of_google

        config = {"automaticFunctionCalling": {"disable": True}, **body}
        model, contents = config.pop("model"), config.pop("contents")
        # Validated as JSON, because base64 in Python objects would be taken for the raw bytes.
        return client.models.generate_content_stream(
            model=model,
            contents=[of_google.Content.model_validate_json(json.dumps(it)) for it in contents],
            config=of_google.GenerateContentConfig.model_validate_json(json.dumps(config)),
        )

    def _event_dict(self, event: Any) -> dict[str, Any]:
        found: dict[str, Any] = event.model_dump(
            mode="json", by_alias=True, exclude_none=True, warnings=False
        )
        return found


def _parse_media(media: dict[str, Any]) -> Any:
    kind = media["mimeType"]
    data = media["data"].replace("-", "+").replace("_", "/")  # it may be URL-safe base64
    if kind.startswith("image/"):
        return types.ImageContent(data=data, mime_type=kind)
    if kind.startswith("audio/"):
        return types.AudioContent(data=data, mime_type=kind)
    raise Unrepresentable(f"MCP has no {kind!r} content in a message")


def _render_response(
    block: types.ToolResultContent, names: dict[str, str], shown: list[dict[str, Any]]
) -> dict[str, Any]:
    name = names.get(block.tool_use_id)
    if name is None:
        raise Unrepresentable(f"the result {block.tool_use_id!r} belongs to no earlier tool use")
    text = tool_text(block, (part["text"] for part in shown if "text" in part))
    said = {"error" if block.is_error else "output": text}
    return {
        "functionResponse": {"id": provider_id(block.tool_use_id), "name": name, "response": said}
    }


def _parse_response(
    response: dict[str, Any], open_calls: dict[str, list[str]]
) -> types.ToolResultContent:
    name = response["name"]
    ids = open_calls.get(name) or []
    id = response.get("id") or (ids.pop(0) if ids else name)
    said = response.get("response") or {}
    failed = "error" in said and "output" not in said
    told = said.get("error") if failed else said.get("output", said)
    text = told if isinstance(told, str) else json.dumps(told, ensure_ascii=False)
    result = types.ToolResultContent(tool_use_id=id, content=[types.TextContent(text=text)])
    if failed:
        result.is_error = True
    return result


def _lower_types(schema: Any) -> Any:
    """Convert a schema in Gemini's notation, with types in upper case, to JSON Schema."""
    if isinstance(schema, list):
        return [_lower_types(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: value.lower() if word == "type" and isinstance(value, str) else _lower_types(value)
        for word, value in schema.items()
    }
