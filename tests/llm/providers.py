"""The four interfaces, each with its real package: the client, and the streamed events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from syncmcp import llm
from syncmcp.llm import ModelFormat, ModelSampling


class Call(NamedTuple):
    """A tool call of a model; arguments that are a text are sent unchanged."""

    id: str
    name: str
    arguments: dict[str, Any] | str

    @property
    def written(self) -> str:
        """The arguments as the JSON text that a model writes."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


class Provider:
    """One interface of a provider."""

    name: str
    format: ClassVar[type[ModelFormat]]
    reasons: ClassVar[dict[str, str]]
    """The provider's name of each stop reason of MCP."""

    @contextmanager
    def client(self, url: str) -> Iterator[Any]:
        """Yield the client of the package."""
        raise NotImplementedError
        yield

    @contextmanager
    def sampling(
        self, url: str, model: Any = "model-1", **settings: Any
    ) -> Iterator[ModelSampling]:
        """Yield a handler with its own client."""
        with self.client(url) as client:
            yield self.handler(model, client, **settings)

    def handler(self, model: Any, client: Any, **settings: Any) -> ModelSampling:
        raise NotImplementedError

    def turn(self, *texts: str, calls: Sequence[Call] = (), reason: str = "endTurn") -> list[str]:
        """Return the events that the provider streams."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.name


def sse(data: Any, event: str | None = None) -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data)}\n\n"


class Anthropic(Provider):
    name = "anthropic"
    format: ClassVar[type[ModelFormat]] = llm.AnthropicFormat
    reasons: ClassVar = {"endTurn": "end_turn", "maxTokens": "max_tokens", "toolUse": "tool_use"}
    reasons |= {"stopSequence": "stop_sequence", "refusal": "refusal"}

    @contextmanager
    def client(self, url: str) -> Iterator[Any]:
        import anthropic

        # A client without certificates is created faster; the tests use no TLS.
        http = anthropic.DefaultHttpxClient(verify=False)
        with anthropic.Anthropic(base_url=url, api_key="key", http_client=http) as client:
            yield client

    def handler(self, model: Any, client: Any, **settings: Any) -> ModelSampling:
        return llm.AnthropicSampling(model, client, **settings)

    def turn(self, *texts: str, calls: Sequence[Call] = (), reason: str = "endTurn") -> list[str]:
        blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
        if texts:
            deltas = [{"type": "text_delta", "text": text} for text in texts]
            blocks.append(({"type": "text", "text": ""}, deltas))
        for call in calls:
            halves = call.written[:5], call.written[5:]
            start = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
            blocks.append((start, deltas))
        return self.events(blocks, reason)

    def events(
        self, blocks: list[tuple[dict[str, Any], list[dict[str, Any]]]], reason: str
    ) -> list[str]:
        usage = {"input_tokens": 3, "output_tokens": 1}
        message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant"}
        message |= {"model": "model-1-dated", "stop_reason": None, "usage": usage, "content": []}
        end = {"stop_reason": self.reasons[reason], "stop_sequence": None}
        events: list[tuple[str, dict[str, Any]]] = [("message_start", {"message": message})]
        events.append(("ping", {}))
        for index, (start, deltas) in enumerate(blocks):
            pieces = [("delta", {"delta": delta}) for delta in deltas]
            events += [
                (f"content_block_{kind}", {"index": index, **more})
                for kind, more in [("start", {"content_block": start}), *pieces, ("stop", {})]
            ]
        events.append(("message_delta", {"delta": end, "usage": {"output_tokens": 9}}))
        events.append(("message_stop", {}))
        return [sse({"type": kind, **more}, kind) for kind, more in events]


class OpenAIChat(Provider):
    name = "openai-chat"
    format: ClassVar[type[ModelFormat]] = llm.OpenAIChatFormat
    reasons: ClassVar = {"endTurn": "stop", "maxTokens": "length", "toolUse": "tool_calls"}
    reasons |= {"content_filter": "content_filter"}
    api = "chat"

    @contextmanager
    def client(self, url: str) -> Iterator[Any]:
        import openai

        http = openai.DefaultHttpxClient(verify=False)
        with openai.OpenAI(base_url=f"{url}/v1", api_key="key", http_client=http) as client:
            yield client

    def handler(self, model: Any, client: Any, **settings: Any) -> ModelSampling:
        given: dict[str, Any] = {"api": self.api, **settings}
        return llm.OpenAISampling(model, client, **given)

    def turn(self, *texts: str, calls: Sequence[Call] = (), reason: str = "endTurn") -> list[str]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
        deltas += [{"content": text} for text in texts]
        for index, call in enumerate(calls):
            function = {"name": call.name, "arguments": ""}
            start = {"index": index, "id": call.id, "type": "function", "function": function}
            halves = [{"arguments": half} for half in (call.written[:5], call.written[5:])]
            more = [{"index": index, "function": half} for half in halves]
            deltas += [{"tool_calls": [piece]} for piece in (start, *more)]
        base = {"id": "c1", "object": "chat.completion.chunk", "created": 1}
        base |= {"model": "model-1-dated"}
        ends = [*((delta, None) for delta in deltas), ({}, self.reasons[reason])]
        chunks = [{"index": 0, "delta": delta, "finish_reason": end} for delta, end in ends]
        return [*(sse({**base, "choices": [chunk]}) for chunk in chunks), "data: [DONE]\n\n"]


class OpenAIResponses(OpenAIChat):
    name = "openai-responses"
    format: ClassVar[type[ModelFormat]] = llm.OpenAIResponsesFormat
    reasons: ClassVar = {
        "endTurn": "completed",
        "maxTokens": "max_output_tokens",
        "toolUse": "completed",
    }
    reasons |= {"content_filter": "content_filter"}
    api = "responses"

    def turn(self, *texts: str, calls: Sequence[Call] = (), reason: str = "endTurn") -> list[str]:
        output: list[dict[str, Any]] = []
        if texts:
            part = {"type": "output_text", "text": "".join(texts), "annotations": []}
            said = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
            output.append({**said, "content": [part]})
        for call in calls:
            item = {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id}
            item |= {"name": call.name, "arguments": call.written}
            output.append({**item, "status": "completed"})
        return self.events(output, texts, reason)

    def events(self, output: list[dict[str, Any]], texts: Sequence[str], reason: str) -> list[str]:
        word = self.reasons[reason]
        status = "completed" if word == "completed" else "incomplete"
        why = None if status == "completed" else {"reason": word}
        response = {"id": "resp_1", "object": "response", "created_at": 1, "error": None}
        response |= {"model": "model-1-dated", "parallel_tool_calls": True, "tool_choice": "auto"}
        response |= {"tools": []}
        begun = {**response, "output": [], "status": "in_progress"}
        ended = {**response, "output": output, "status": status, "incomplete_details": why}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": begun}]
        place = {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": []}
        events += [{"type": "response.output_text.delta", "delta": text, **place} for text in texts]
        events.append({"type": f"response.{status}", "response": ended})
        return [
            sse({**event, "sequence_number": number}, event["type"])
            for number, event in enumerate(events)
        ]


class Gemini(Provider):
    name = "gemini"
    format: ClassVar[type[ModelFormat]] = llm.GeminiFormat
    reasons: ClassVar = {"endTurn": "STOP", "maxTokens": "MAX_TOKENS", "toolUse": "STOP"}
    reasons |= {"safety": "SAFETY"}

    @contextmanager
    def client(self, url: str) -> Iterator[Any]:
        from google import genai

        options = genai.types.HttpOptions(base_url=url, client_args={"verify": False})
        client = genai.Client(api_key="key", http_options=options)
        try:
            yield client
        finally:
            client.close()

    def handler(self, model: Any, client: Any, **settings: Any) -> ModelSampling:
        return llm.GeminiSampling(model, client, **settings)

    def turn(self, *texts: str, calls: Sequence[Call] = (), reason: str = "endTurn") -> list[str]:
        parts: list[dict[str, Any]] = [{"text": text} for text in texts]
        for call in calls:
            function = {"id": call.id, "name": call.name, "args": call.arguments}
            parts.append({"functionCall": function})
        return self.events(parts, reason)

    def events(self, parts: list[dict[str, Any]], reason: str) -> list[str]:
        chunks: list[dict[str, Any]] = [
            {"content": {"parts": [part], "role": "model"}, "index": 0} for part in parts
        ]
        chunks.append({"finishReason": self.reasons[reason], "index": 0})
        about = {"modelVersion": "model-1-dated", "responseId": "r1"}
        return [f"data: {json.dumps({'candidates': [chunk], **about})}\r\n\r\n" for chunk in chunks]


ANTHROPIC, CHAT, RESPONSES, GEMINI = Anthropic(), OpenAIChat(), OpenAIResponses(), Gemini()
PROVIDERS: list[Provider] = [ANTHROPIC, CHAT, RESPONSES, GEMINI]
