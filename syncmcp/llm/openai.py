"""OpenAI's models: the formats of Responses and Chat Completions, and sampling by them.

Sampling needs the extra ``openai``: ``pip install "syncmcp-client[openai]"``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, get_args

from typing_extensions import Unpack

from syncmcp.errors import UsageError
from syncmcp.llm._openai_chat import OpenAIChatAssembly, OpenAIChatFormat
from syncmcp.llm._openai_responses import OpenAIResponsesAssembly, OpenAIResponsesFormat
from syncmcp.llm._sampling import ModelSampling, accepted_by

if TYPE_CHECKING:
    from syncmcp.llm._format import ModelFormat
    from syncmcp.llm._sampling import Assembly, Model, Settings
    from syncmcp.types import Tool

__all__ = ["OpenAIChatFormat", "OpenAIResponsesFormat", "OpenAISampling"]

Api = Literal["responses", "chat"]
"""Which of OpenAI's two interfaces is used."""


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
