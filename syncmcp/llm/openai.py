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
    answer_of,
    arguments_of,
    blocks_of,
    content_of,
    data_url,
    file_name,
    fitted_id,
    from_data_url,
    link_text,
    resource_text,
    tool_text,
)
from syncmcp.llm._openai_chat import OPENAI_SCHEMAS, OpenAIChatAssembly, OpenAIChatFormat
from syncmcp.llm._sampling import ModelSampling, accepted_by
from syncmcp.llm._tools import NameRule

if TYPE_CHECKING:
    from pydantic import BaseModel

    from syncmcp.llm._sampling import Assembly, Model, Settings
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
"""Which of OpenAI's two interfaces is used."""

_KEPT: Final = "syncmcp/openai"
"""Where the `_meta` of a tool use keeps the reasoning that led to it, if OpenAI gave it away."""

_REASONS: Final = {"max_output_tokens": "maxTokens"}
_INSTRUCTS: Final = frozenset(("developer", "system"))


class OpenAIResponsesFormat(ModelFormat):
    """The format of OpenAI's Responses; nothing is left there for later (``store`` is false)."""

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
                # Strict schemas have no optional arguments.
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
            for block in blocks_of(message):
                item: list[dict[str, Any]] = []
                if isinstance(block, types.ToolUseContent):
                    item = self._call(block)
                elif isinstance(block, types.ToolResultContent):
                    item = [self._output(block)]
                else:
                    parts += self._parts(block) if of_user else self._said(block)
                    continue
                rendered += _spoken(message.role, parts)
                rendered += item
                parts = []
            rendered += _spoken(message.role, parts)
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
        self._offer_tools(body, request)
        return body

    def parse_tools(self, definitions: Iterable[dict[str, Any]]) -> list[Tool]:
        """See `ModelFormat.parse_tools`."""
        return [
            self._tools.tool(
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
            if kind == "message" and item["role"] in _INSTRUCTS:
                continue
            if kind == "reasoning":
                reasoning.append(item)
                continue
            role = "user" if kind == "function_call_output" else item.get("role", "assistant")
            blocks = self._blocks(item, reasoning)
            reasoning = []
            of_results = kind == "function_call_output"
            if turns and turns[-1][0] == role and of_results == _has_results(turns[-1][1]):
                turns[-1][1].extend(blocks)
            else:
                turns.append((role, blocks))
        return [
            types.SamplingMessage.model_validate({"role": role, "content": content_of(blocks)})
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
            if item.get("role") in _INSTRUCTS:
                system += [block.text for block in _shown(item["content"])]
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
                blocks += self._blocks(item, reasoning, cut_off=status == "incomplete")
                reasoning = []
        if status == "incomplete":
            reason = _REASONS.get(why, why) if why is not None else "incomplete"
        else:
            used = any(isinstance(block, types.ToolUseContent) for block in blocks)
            reason = "toolUse" if used else "endTurn"
        return answer_of(blocks, answer["model"], reason)

    # -- content

    def _parts(self, block: BaseModel) -> list[dict[str, Any]]:
        if isinstance(block, types.TextContent):
            return [{"type": "input_text", "text": block.text}]
        if isinstance(block, types.ImageContent):
            return [_image(block.mime_type, block.data)]
        if isinstance(block, types.ResourceLink):
            return [{"type": "input_text", "text": link_text(block)}]
        if isinstance(block, types.EmbeddedResource):
            contents = block.resource
            if isinstance(contents, types.TextResourceContents):
                return [{"type": "input_text", "text": resource_text(contents)}]
            if (contents.mime_type or "").startswith("image/"):
                return [_image(contents.mime_type, contents.blob)]
            data = data_url(contents.mime_type, contents.blob)
            return [{"type": "input_file", "filename": file_name(contents.uri), "file_data": data}]
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's Responses take no {kind!r} content from the user")

    def _said(self, block: BaseModel) -> list[dict[str, Any]]:
        """A block of content in a message of the model."""
        if isinstance(block, types.TextContent):
            return [{"type": "output_text", "text": block.text}]
        kind = getattr(block, "type", "")
        raise Unrepresentable(f"OpenAI's models write no {kind!r} content")

    def _call(self, use: types.ToolUseContent) -> list[dict[str, Any]]:
        name, arguments = self._tools.out(use)
        call = {
            "type": "function_call",
            "call_id": fitted_id(use.id),
            "name": name,
            "arguments": json.dumps(arguments, ensure_ascii=False),
        }
        return [*(use.meta or {}).get(_KEPT, ()), call]

    def _output(self, result: ToolResultContent) -> dict[str, Any]:
        parts = self._parts_or_words(result.content)
        output: Any = parts
        if all(part["type"] == "input_text" for part in parts):
            output = tool_text(result, (part["text"] for part in parts))
            if result.is_error:
                output = f"Error: {output}"
        elif result.is_error:
            output = [{"type": "input_text", "text": "Error:"}, *parts]
        id = fitted_id(result.tool_use_id)
        return {"type": "function_call_output", "call_id": id, "output": output}

    def _blocks(
        self, item: dict[str, Any], reasoning: list[dict[str, Any]], *, cut_off: bool = False
    ) -> list[Any]:
        kind = item.get("type", "message")
        if kind == "function_call":
            arguments = arguments_of(item["name"], item["arguments"], cut_off=cut_off)
            if arguments is None:
                return []
            use = self._tools.back(item["call_id"], item["name"], arguments)
            # Without its encrypted contents, OpenAI knows nothing of an earlier thought.
            if kept := [thought for thought in reasoning if thought.get("encrypted_content")]:
                use.meta = {_KEPT: kept}
            return [use]
        if kind == "function_call_output":
            content = _shown(item["output"])
            return [types.ToolResultContent(tool_use_id=item["call_id"], content=content)]
        if kind == "message":
            return _shown(item["content"])
        raise Unrepresentable(f"MCP has no {kind!r} in a conversation")


class OpenAISampling(ModelSampling):
    """Lets a model of OpenAI's answer for a server, or be the model of a `ToolLoop`.

    See `ModelSampling` for what is not said here. Other providers with OpenAI's interface are
    reached by a client with their `base_url`; most have ``api="chat"`` alone.

    Args:
        model: See `ModelSampling`.
        client: An `openai.OpenAI`; by default one that finds its key in the environment
            (``OPENAI_API_KEY``).
        api: Responses, or Chat Completions.
        settings: See `ModelSampling`.

    Raises:
        UsageError: See `ModelSampling`.
    """

    _package = "openai"
    _extra = "openai"
    _needs = "chat"

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

    def _open(self, client: Any, body: dict[str, Any]) -> Any:
        create = client.chat.completions.create if self._in_chat else client.responses.create
        return create(**accepted_by(create, body), stream=True)

    def _assembly(self) -> Assembly:
        return OpenAIChatAssembly() if self._in_chat else OpenAIResponsesAssembly()


class OpenAIResponsesAssembly:
    """A response from the events of its stream."""

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None

    def add(self, event: dict[str, Any]) -> str:
        """Take one event; return the text that it brings."""
        kind = event["type"]
        if kind in ("response.completed", "response.failed", "response.incomplete"):
            self._response = event["response"]
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(event["delta"])
        elif kind == "error":
            raise InvalidOutput(f"the model gave no answer: {event.get('message')}")
        return ""

    def answer(self) -> dict[str, Any] | None:
        """The whole response; `None` if the stream ended before it."""
        return self._response


def _has_results(blocks: list[Any]) -> bool:
    return any(isinstance(block, types.ToolResultContent) for block in blocks)


def _spoken(role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _image(mime_type: str | None, data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": data_url(mime_type, data), "detail": "auto"}


def _shown(content: Any) -> list[Any]:
    """What a message, or the output of a tool, holds."""
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
