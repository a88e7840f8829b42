"""OpenAI's models: the format of Responses, and sampling by Responses or Chat Completions.

Sampling needs the extra ``openai``: ``pip install "syncmcp-client[openai]"``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, get_args

from typing_extensions import Unpack

from syncmcp import types
from syncmcp.errors import InvalidOutput, UsageError
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
    parse_arguments,
    provider_id,
    resource_text,
    tool_text,
)
from syncmcp.llm._openai_chat import OPENAI_SCHEMAS, OpenAIChatAccumulator, OpenAIChatFormat
from syncmcp.llm._sampling import ModelSampling, fit_arguments
from syncmcp.llm._tools import NameRule

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syncmcp.llm._sampling import Accumulator, Model, Settings
    from syncmcp.types import (
        CreateMessageRequestParams,
        CreateMessageResult,
        PromptMessage,
        SamplingMessage,
        Tool,
        ToolChoice,
        ToolResultContent,
    )

__all__ = ["OpenAIChatFormat", "OpenAIResponsesFormat", "OpenAISampling"]

Api = Literal["responses", "chat"]
"""The API of OpenAI: Responses or Chat Completions."""

_META_KEY: Final = "syncmcp/openai"
"""The key in `_meta` of a tool use for its encrypted reasoning items, which are sent back."""

_STOP_REASONS: Final = {"max_output_tokens": "maxTokens"}
_SYSTEM_ROLES: Final = frozenset(("developer", "system"))


class OpenAIResponsesFormat(ModelFormat):
    """The format of OpenAI's Responses; OpenAI stores nothing (``store`` is false)."""

    _names: ClassVar = NameRule(64)
    _schemas: ClassVar = OPENAI_SCHEMAS
    _longest_description: ClassVar = 1024

    def render_tools(self) -> list[dict[str, Any]]:
        """See `ModelFormat.render_tools`."""
        return [
            {
                "type": "function",
                "name": tool.name,
                **({"description": tool.description} if tool.description else {}),
                "parameters": tool.adapted.schema,
                # Strict schemas do not allow optional arguments.
                "strict": False,
            }
            for tool in self._tools
        ]

    def render_choice(self, choice: ToolChoice) -> str:
        """See `ModelFormat.render_choice`."""
        return choice.mode if choice.mode in ("none", "required") else "auto"

    def render_messages(
        self, messages: Iterable[SamplingMessage | PromptMessage]
    ) -> list[dict[str, Any]]:
        """See `ModelFormat.render_messages`: the items of ``input``."""
        rendered: list[dict[str, Any]] = []
        for message in messages:
            parts: list[dict[str, Any]] = []
            of_user = message.role == "user"
            for block in message_blocks(message):
                item: list[dict[str, Any]] = []
                if isinstance(block, types.ToolUseContent):
                    item = self._render_call(block)
                elif isinstance(block, types.ToolResultContent):
                    item = [self._render_output(block)]
                else:
                    parts += self._render_block(block) if of_user else self._render_said(block)
                    continue
                rendered += _message_items(message.role, parts)
                rendered += item
                parts = []
            rendered += _message_items(message.role, parts)
        return rendered

    def render_request(self, request: CreateMessageRequestParams, model: str) -> dict[str, Any]:
        """See `ModelFormat.render_request`. There are no stop sequences."""
        body: dict[str, Any] = {
            "model": model,
            "input": self.render_messages(request.messages),
            "max_output_tokens": request.max_tokens,
            "store": False,
        }
        if request.system_prompt:
            body["instructions"] = request.system_prompt
        if request.temperature is not None:
            body["temperature"] = min(max(request.temperature, 0.0), 2.0)
        self._add_tools(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[Tool]:
        """See `ModelFormat.parse_tools`."""
        return [
            self._tools.tool_for(
                tool["name"], tool.get("description"), tool.get("parameters") or {"type": "object"}
            )
            for tool in definitions
            if tool["type"] == "function"
        ]

    def parse_messages(self, messages: Iterable[dict[str, Any]]) -> list[SamplingMessage]:
        """See `ModelFormat.parse_messages`."""
        turns: list[tuple[str, list[Any]]] = []
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
            of_results = kind == "function_call_output"
            if turns and turns[-1][0] == role and of_results == _has_results(turns[-1][1]):
                turns[-1][1].extend(blocks)
            else:
                turns.append((role, blocks))
        return [
            types.SamplingMessage.model_validate({"role": role, "content": message_content(blocks)})
            for role, blocks in turns
        ]

    def parse_request(self, body: dict[str, Any]) -> CreateMessageRequestParams:
        """See `ModelFormat.parse_request`."""
        given = body["input"]
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        found = types.CreateMessageRequestParams(
            messages=self.parse_messages(items), max_tokens=body.get("max_output_tokens") or 0
        )
        system = [body["instructions"]] if body.get("instructions") else []
        for item in items:
            if item.get("role") in _SYSTEM_ROLES:
                system += [block.text for block in _parse_content(item["content"])]
        if system:
            found.system_prompt = "\n".join(system)
        if body.get("temperature") is not None:
            found.temperature = body["temperature"]
        if tools := self.parse_tools(body.get("tools") or ()):
            found.tools = tools
        if choice := body.get("tool_choice"):
            mode = choice if isinstance(choice, str) else "required"
            found.tool_choice = types.ToolChoice(mode=mode)
        return found

    def parse_answer(self, answer: dict[str, Any]) -> CreateMessageResult:
        """See `ModelFormat.parse_answer`."""
        status = answer.get("status")
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

    def _render_block(self, block: BaseModel) -> list[dict[str, Any]]:
        if isinstance(block, types.TextContent):
            return [{"type": "input_text", "text": block.text}]
        if isinstance(block, types.ImageContent):
            return [_render_image(block.mime_type, block.data)]
        if isinstance(block, types.ResourceLink):
            return [{"type": "input_text", "text": link_text(block)}]
        if isinstance(block, types.EmbeddedResource):
            contents = block.resource
            if isinstance(contents, types.TextResourceContents):
                return [{"type": "input_text", "text": resource_text(contents)}]
            if (contents.mime_type or "").startswith("image/"):
                return [_render_image(contents.mime_type, contents.blob)]
            data = data_url(contents.mime_type, contents.blob)
            return [{"type": "input_file", "filename": file_name(contents.uri), "file_data": data}]
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's Responses take no {kind!r} content from the user")

    def _render_said(self, block: BaseModel) -> list[dict[str, Any]]:
        """A content block of a message of the model."""
        if isinstance(block, types.TextContent):
            return [{"type": "output_text", "text": block.text}]
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's models write no {kind!r} content")

    def _render_call(self, use: types.ToolUseContent) -> list[dict[str, Any]]:
        name, arguments = self._tools.to_provider(use)
        call = {
            "type": "function_call",
            "call_id": provider_id(use.id),
            "name": name,
            "arguments": json.dumps(arguments, ensure_ascii=False),
        }
        return [*(use.meta or {}).get(_META_KEY, ()), call]

    def _render_output(self, result: ToolResultContent) -> dict[str, Any]:
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
            # Reasoning without encrypted content cannot be sent back: OpenAI has not stored it.
            if kept := [thought for thought in reasoning if thought.get("encrypted_content")]:
                use.meta = {_META_KEY: kept}
            return [use]
        if kind == "function_call_output":
            content = _parse_content(item["output"])
            return [types.ToolResultContent(tool_use_id=item["call_id"], content=content)]
        if kind == "message":
            return _parse_content(item["content"])
        raise Unrepresentable(f"MCP has no {kind!r} in a conversation")


class OpenAISampling(ModelSampling):
    """Lets a model of OpenAI's answer for a server, or be the model of a `ToolLoop`.

    See `ModelSampling` for the other arguments. For other providers with an API like OpenAI's, pass
    a client with their `base_url`; most support only ``api="chat"``.

    Args:
        model: See `ModelSampling`.
        client: An `openai.OpenAI`; by default one with the key of the environment
            (``OPENAI_API_KEY``).
        api: Responses, or Chat Completions.
        settings: See `ModelSampling`.

    Raises:
        UsageError: See `ModelSampling`.
    """

    _package = "openai"
    _extra = "openai"
    _required_attribute = "chat"

    def __init__(
        self,
        model: str | Model | Iterable[str | Model],
        client: Any = None,
        *,
        api: Api = "responses",
        **settings: Unpack[Settings],
    ) -> None:
        if api not in get_args(Api):
            raise UsageError(f'api is "responses" or "chat", not {api!r}')
        self._in_chat = api == "chat"
        super().__init__(model, client, **settings)

    def _new_client(self) -> Any:
        import openai

        return openai.OpenAI()

    def _format(self, tools: Iterable[Tool]) -> ModelFormat:
        return OpenAIChatFormat(tools) if self._in_chat else OpenAIResponsesFormat(tools)

    def _open_stream(self, client: Any, body: dict[str, Any]) -> Any:
        create = client.chat.completions.create if self._in_chat else client.responses.create
        return create(**fit_arguments(create, body), stream=True)

    def _new_accumulator(self) -> Accumulator:
        return OpenAIChatAccumulator() if self._in_chat else OpenAIResponsesAccumulator()


class OpenAIResponsesAccumulator:
    """Accumulates the events of a stream into a response."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> str:
        """Add one event; return the text in it."""
        kind = event["type"]
        if kind in ("response.completed", "response.failed", "response.incomplete"):
            self._response = event["response"]
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(event["delta"])
        elif kind == "error":
            raise InvalidOutput(f"the model gave no answer: {event.get('message')}")
        return ""

    def answer(self) -> dict[str, Any] | None:
        """The complete response; `None` if the stream ended early."""
        return self._response


def _has_results(blocks: list[Any]) -> bool:
    return any(isinstance(block, types.ToolResultContent) for block in blocks)


def _message_items(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _render_image(mime_type: str | None, data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_url(mime_type, data), "detail": "auto"}


def _parse_content(content: Any) -> list[Any]:
    """Parse the content of a message, or the output of a tool."""
    if isinstance(content, str):
        return [types.TextContent(text=content)]
    blocks: list[Any] = []
    for part in content:
        kind = part["type"]
        if kind in ("input_text", "output_text"):
            blocks.append(types.TextContent(text=part["text"]))
        elif kind == "refusal":
            blocks.append(types.TextContent(text=part["refusal"]))
        elif kind == "input_image":
            mime_type, data = from_data_url(part.get("image_url"))
            blocks.append(types.ImageContent(data=data, mime_type=mime_type))
        else:
            raise Unrepresentable(f"MCP has no {kind!r} content in a message")
    return blocks
