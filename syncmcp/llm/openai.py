"""OpenAI's models: the formats of Responses and Chat Completions, and sampling by either.

Many other providers support Chat Completions, too. Sampling needs the extra ``openai``:
``pip install "syncmcp-client[openai]"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Literal, get_args

from pydantic import BaseModel
from typing_extensions import Unpack

from syncmcp import types
from syncmcp.errors import InvalidOutput, UsageError
from syncmcp.llm._format import (
    ModelFormat,
    Unrepresentable,
    as_messages,
    data_url,
    file_name,
    from_data_url,
    kept_parts,
    make_answer,
    make_message,
    make_request,
    message_blocks,
    new_id,
    parse_arguments,
    provider_id,
    tool_text,
)
from syncmcp.llm._sampling import Accumulator, Model, ModelSampling, Settings, fit_arguments
from syncmcp.llm._tools import NameRule, SchemaRules

Api = Literal["responses", "chat"]
"""The API of OpenAI: Responses or Chat Completions."""

_META_KEY: Final = "syncmcp/openai"
"""The key in `_meta` of a tool use for its encrypted reasoning items, which are sent back."""

_STOP_REASONS: Final = {
    "length": "maxTokens",
    "max_output_tokens": "maxTokens",
    "stop": "endTurn",
    "tool_calls": "toolUse",
}
_AUDIO_FORMATS: Final = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
_AUDIO_TYPES: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_SYSTEM_ROLES: Final = frozenset(("developer", "system"))
_MAX_STOPS: Final = 4


class _OpenAIFormat(ModelFormat):
    """The common base of both formats of OpenAI."""

    _names: ClassVar = NameRule(64)
    _schemas: ClassVar = SchemaRules(
        None, frozenset(("$ref", "allOf", "anyOf", "enum", "not", "oneOf")), has_combinators=False
    )
    _longest_description: ClassVar = 1024

    def render_choice(self, choice: types.ToolChoice) -> str:
        return choice.mode if choice.mode in ("none", "required") else "auto"

    def _add_settings(
        self, body: dict[str, Any], request: types.CreateMessageRequestParams
    ) -> None:
        """Add the temperature, the tools and the tool choice to the body of a request."""
        if request.temperature is not None:
            body["temperature"] = min(max(request.temperature, 0.0), 2.0)
        self._add_tools(body, request)

    def _parse_settings(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a sampling request that `_add_settings` adds."""
        choice = body.get("tool_choice")
        mode: Any = choice if isinstance(choice, str) else "required"
        return {
            "temperature": body.get("temperature"),
            "tools": self.parse_tools(body.get("tools") or ()),
            "tool_choice": choice and types.ToolChoice(mode=mode),
        }


class OpenAIResponsesFormat(_OpenAIFormat):
    """The format of OpenAI's Responses; OpenAI stores nothing (``store`` is false)."""

    def render_tools(self) -> list[dict[str, Any]]:
        # Strict schemas do not allow optional arguments.
        return [
            {"type": "function", **tool, "strict": False}
            for tool in self._definitions("parameters")
        ]

    def render_messages(
        self, messages: Iterable[types.SamplingMessage | types.PromptMessage]
    ) -> list[dict[str, Any]]:
        """Return the items of ``input``; see `ModelFormat.render_messages`."""
        rendered: list[dict[str, Any]] = []
        for message in as_messages(messages):
            parts: list[dict[str, Any]] = []
            of_user = message.role == "user"
            for block in message_blocks(message):
                if isinstance(block, types.ToolUseContent):
                    items = self._render_call(block)
                elif isinstance(block, types.ToolResultContent):
                    items = [self._render_output(block)]
                else:
                    parts += self._render_block(block) if of_user else self._render_said(block)
                    continue
                rendered += [*_message_items(message.role, parts), *items]
                parts = []
            rendered += _message_items(message.role, parts)
        return rendered

    def render_request(
        self, request: types.CreateMessageRequestParams, model: str
    ) -> dict[str, Any]:
        """See `ModelFormat.render_request`. The API has no stop sequences."""
        body: dict[str, Any] = {
            "model": model,
            "input": self.render_messages(request.messages),
            "max_output_tokens": request.max_tokens,
            "store": False,
        }
        if request.system_prompt:
            body["instructions"] = request.system_prompt
        self._add_settings(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[types.Tool]:
        return [
            self._parse_tool(tool, tool.get("parameters"))
            for tool in definitions
            if tool["type"] == "function"
        ]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[types.SamplingMessage]:
        # For each turn: its role and whether it has results of tools, and its content.
        turns: list[tuple[tuple[str, bool], list[Any]]] = []
        reasoning: list[dict[str, Any]] = []
        for item in messages:
            kind = item.get("type", "message")
            if kind == "message" and item["role"] in _SYSTEM_ROLES:
                continue
            if kind == "reasoning":
                reasoning.append(item)
                continue
            role = "user" if kind == "function_call_output" else item.get("role", "assistant")
            blocks = self._parse_blocks(item, reasoning)
            reasoning = []
            turn = (role, kind == "function_call_output")
            if turns and turns[-1][0] == turn:
                turns[-1][1].extend(blocks)
            else:
                turns.append((turn, blocks))
        return [make_message(role, blocks) for (role, _), blocks in turns]

    def parse_request(self, body: dict[str, Any]) -> types.CreateMessageRequestParams:
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        system = [body["instructions"]] if body.get("instructions") else []
        for item in items:
            if item.get("role") in _SYSTEM_ROLES:
                system += [block.text for block in _parse_content(item["content"])]
        return make_request(
            messages=self.parse_messages(items),
            max_tokens=body.get("max_output_tokens") or 0,
            system_prompt="\n".join(system),
            **self._parse_settings(body),
        )

    def parse_answer(self, answer: dict[str, Any]) -> types.CreateMessageResult:
        status = answer["status"]
        if status not in ("completed", "incomplete"):
            said = (answer.get("error") or {}).get("message") or f"its status is {status!r}"
            raise InvalidOutput(f"the model gave no answer: {said}")
        why = (answer.get("incomplete_details") or {}).get("reason")
        blocks: list[Any] = []
        reasoning: list[dict[str, Any]] = []
        for item in answer["output"]:
            if item["type"] == "reasoning":
                reasoning.append(item)
            elif item["type"] in ("function_call", "message"):
                blocks += self._parse_blocks(item, reasoning, cut_off=status == "incomplete")
                reasoning = []
        if status == "incomplete":
            reason = _STOP_REASONS.get(why, why) if why is not None else "incomplete"
        else:
            used = any(isinstance(block, types.ToolUseContent) for block in blocks)
            reason = "toolUse" if used else "endTurn"
        return make_answer(blocks, answer["model"], reason)

    # -- content

    def _render_text(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "input_text", "text": text}]

    def _render_media(self, mime_type: str, data: str, uri: str | None) -> dict[str, Any]:
        url = data_url(mime_type, data)
        if mime_type.startswith("image/"):
            return {"type": "input_image", "image_url": url, "detail": "auto"}
        if uri is not None:
            return {"type": "input_file", "filename": file_name(uri), "file_data": url}
        raise Unrepresentable(f"OpenAI's Responses do not accept data of type {mime_type!r}")

    def _render_said(self, block: BaseModel) -> list[dict[str, Any]]:
        """Render a content block of a message of the model."""
        if isinstance(block, types.TextContent):
            return [{"type": "output_text", "text": block.text}]
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's models do not write {kind!r} content")

    def _render_call(self, use: types.ToolUseContent) -> list[dict[str, Any]]:
        name, arguments = self._tools.to_provider(use)
        call = {
            "type": "function_call",
            "call_id": provider_id(use.id),
            "name": name,
            "arguments": json.dumps(arguments, ensure_ascii=False),
        }
        return [*_encrypted(kept_parts(use, _META_KEY, ("reasoning",))), call]

    def _render_output(self, result: types.ToolResultContent) -> dict[str, Any]:
        parts = self._render_or_placeholder(result.content)
        output: Any = parts
        if all(part["type"] == "input_text" for part in parts):
            output = tool_text(result, (part["text"] for part in parts))
            if result.is_error:
                output = f"Error: {output}"
        elif result.is_error:
            output = [{"type": "input_text", "text": "Error:"}, *parts]
        id = provider_id(result.tool_use_id)
        return {"type": "function_call_output", "call_id": id, "output": output}

    def _parse_blocks(
        self, item: dict[str, Any], reasoning: list[dict[str, Any]], *, cut_off: bool = False
    ) -> list[Any]:
        kind = item.get("type", "message")
        if kind == "function_call":
            arguments = parse_arguments(item["name"], item["arguments"], cut_off=cut_off)
            if arguments is None:
                return []
            use = self._tools.from_provider(item["call_id"], item["name"], arguments)
            if kept := _encrypted(reasoning):
                use.meta = {_META_KEY: kept}
            return [use]
        if kind == "function_call_output":
            content = _parse_content(item["output"])
            return [types.ToolResultContent(tool_use_id=item["call_id"], content=content)]
        if kind == "message":
            return _parse_content(item["content"])
        raise Unrepresentable(f"MCP has no {kind!r} in a conversation")


def _encrypted(reasoning: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items that can be sent again: OpenAI stores none, so others are useless."""
    return [item for item in reasoning if item.get("encrypted_content")]


class OpenAIChatFormat(_OpenAIFormat):
    """The format of OpenAI's Chat Completions, which many other providers support, too."""

    def render_tools(self) -> list[dict[str, Any]]:
        return [{"type": "function", "function": tool} for tool in self._definitions("parameters")]

    def render_messages(
        self, messages: Iterable[types.SamplingMessage | types.PromptMessage]
    ) -> list[dict[str, Any]]:
        rendered: list[dict[str, Any]] = []
        for message in as_messages(messages):
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

    def render_request(
        self, request: types.CreateMessageRequestParams, model: str
    ) -> dict[str, Any]:
        messages = self.render_messages(request.messages)
        if request.system_prompt:
            messages.insert(0, {"role": "system", "content": request.system_prompt})
        body: dict[str, Any] = {
            "model": model,
            "messages": messages,
            "max_completion_tokens": request.max_tokens,
        }
        if stops := [stop for stop in request.stop_sequences or () if stop]:
            body["stop"] = stops[:_MAX_STOPS]
        self._add_settings(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[types.Tool]:
        functions = [tool["function"] for tool in definitions if tool["type"] == "function"]
        return [self._parse_tool(function, function.get("parameters")) for function in functions]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[types.SamplingMessage]:
        parsed: list[types.SamplingMessage] = []
        results: list[Any] = []  # those of one turn are one message in MCP
        for message in messages:
            if message["role"] == "tool":
                content = _text_blocks(message["content"])
                id = message["tool_call_id"]
                results.append(types.ToolResultContent(tool_use_id=id, content=content))
                continue
            if results:
                parsed.append(make_message("user", results))
                results = []
            if message["role"] == "assistant":
                content = self._parse_blocks(message) or [types.TextContent(text="")]
                parsed.append(make_message("assistant", content))
            elif message["role"] not in _SYSTEM_ROLES:
                parsed.append(make_message(message["role"], _parse_content(message["content"])))
        return [*parsed, make_message("user", results)] if results else parsed

    def parse_request(self, body: dict[str, Any]) -> types.CreateMessageRequestParams:
        system = [
            block.text
            for message in body["messages"]
            if message["role"] in _SYSTEM_ROLES
            for block in _text_blocks(message["content"])
        ]
        stop = body.get("stop")
        return make_request(
            messages=self.parse_messages(body["messages"]),
            max_tokens=body.get("max_completion_tokens", body.get("max_tokens")) or 0,
            system_prompt="\n".join(system),
            stop_sequences=[stop] if isinstance(stop, str) else stop,
            **self._parse_settings(body),
        )

    def parse_answer(self, answer: dict[str, Any]) -> types.CreateMessageResult:
        if not answer["choices"]:
            raise InvalidOutput("the model gave no answer")
        choice = answer["choices"][0]
        reason = choice.get("finish_reason")
        blocks = self._parse_blocks(choice["message"], cut_off=reason == "length")
        return make_answer(blocks, answer["model"], _STOP_REASONS.get(reason, reason))

    # -- content

    def _render_text(self, text: str) -> list[dict[str, Any]]:
        return [{"type": "text", "text": text}]

    def _render_media(self, mime_type: str, data: str, uri: str | None) -> dict[str, Any]:
        url = data_url(mime_type, data)
        if mime_type.startswith("image/"):
            return {"type": "image_url", "image_url": {"url": url}}
        if kind := _AUDIO_FORMATS.get(mime_type):
            return {"type": "input_audio", "input_audio": {"data": data, "format": kind}}
        if mime_type == "application/pdf" and uri is not None:
            return {"type": "file", "file": {"filename": file_name(uri), "file_data": url}}
        raise Unrepresentable(f"OpenAI's models do not accept data of type {mime_type!r} in chat")

    def _render_said(self, blocks: Iterable[BaseModel]) -> dict[str, Any]:
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
                raise Unrepresentable(f"OpenAI's models do not write {kind!r} content in chat")
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts)}
        if calls:
            message["tool_calls"] = calls
            message["content"] = message["content"] or None
        return message

    def _parse_blocks(self, message: dict[str, Any], *, cut_off: bool = False) -> list[Any]:
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


class OpenAIResponsesAccumulator:
    """Accumulates the events of a stream into a response."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> str:
        kind = event["type"]
        if kind in ("response.completed", "response.failed", "response.incomplete"):
            self._response = event["response"]
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(event["delta"])
        elif kind == "error":
            raise InvalidOutput(f"the model gave no answer: {event.get('message')}")
        return ""

    def answer(self) -> dict[str, Any] | None:
        return self._response


class OpenAIChatAccumulator:
    """Accumulates the chunks of a stream into a chat completion."""

    def __init__(self) -> None:
        self._model = ""
        self._reason: str | None = None
        self._texts: dict[str, list[str]] = {"content": [], "refusal": []}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}

    def add(self, event: dict[str, Any]) -> str:
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
        if self._reason is None:
            return None
        message: dict[str, Any] = {
            kind: "".join(texts) or None for kind, texts in self._texts.items()
        }
        message["tool_calls"] = self._calls
        choice = {"message": message, "finish_reason": self._reason}
        return {"model": self._model, "choices": [choice]}


class OpenAISampling(ModelSampling):
    """Lets an OpenAI model answer for a server, or be the model of a `ToolLoop`.

    For other providers with an API like OpenAI's, pass a client with their `base_url`; most such
    providers support only ``api="chat"``.

    Args:
        model: See `ModelSampling`.
        client: An `openai.OpenAI`. The default has the key of the environment (``OPENAI_API_KEY``).
        api: ``"responses"`` for Responses, or ``"chat"`` for Chat Completions.
        settings: The other arguments of `ModelSampling`.

    Raises:
        UsageError: See `ModelSampling`.
    """

    _package = "openai"
    _extra = "openai"
    _required_attribute = "chat"
    _format: type[ModelFormat] = OpenAIResponsesFormat
    _accumulator: type[Accumulator] = OpenAIResponsesAccumulator

    def __init__(
        self,
        model: str | Model | Iterable[str | Model],
        client: Any = None,
        *,
        api: Api = "responses",
        **settings: Unpack[Settings],
    ) -> None:
        if api not in get_args(Api):
            raise UsageError(f'api must be "responses" or "chat", not {api!r}')
        self._in_chat = api == "chat"
        if self._in_chat:
            self._format, self._accumulator = OpenAIChatFormat, OpenAIChatAccumulator
        super().__init__(model, client, **settings)

    def _new_client(self) -> Any:
        import openai

        return openai.OpenAI()

    def _open_stream(self, client: Any, body: dict[str, Any]) -> Any:
        create = client.chat.completions.create if self._in_chat else client.responses.create
        return create(**fit_arguments(create, body), stream=True)


def _message_items(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _tool_message(result: types.ToolResultContent, parts: list[dict[str, Any]]) -> dict[str, Any]:
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


def _parse_content(content: Any) -> list[Any]:
    """Parse the content of a message, or the output of a tool, in either API."""
    if isinstance(content, str):
        return [types.TextContent(text=content)]
    return [_parse_part(part) for part in content]


def _parse_part(part: dict[str, Any]) -> Any:
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": text}:
            return types.TextContent(text=text)
        case {"type": "refusal", "refusal": text}:
            return types.TextContent(text=text)
        case {"type": "image_url", "image_url": {"url": url}} | {
            "type": "input_image",
            "image_url": url,
        }:
            mime_type, data = from_data_url(url)
            return types.ImageContent(data=data, mime_type=mime_type)
        case {
            "type": "input_audio",
            "input_audio": {"data": data, "format": "wav" | "mp3" as kind},
        }:
            return types.AudioContent(data=data, mime_type=_AUDIO_TYPES[kind])
        case _:
            raise Unrepresentable(f"MCP has no {part['type']!r} content in a message")
