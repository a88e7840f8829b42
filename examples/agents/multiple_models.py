"""One tool for the models of several providers, and a host that changes its model in between.

``python examples/agents/multiple_models.py``  show the tool in each format
``python examples/agents/multiple_models.py "How is the weather in Bergen?"``
    and ask whoever has a key

Keys come from ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY`` and ``GEMINI_API_KEY``. Each model goes on
with the conversation that the one before it has had; the client notices nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable

import syncmcp
from syncmcp.llm import (
    AnthropicFormat,
    AnthropicSampling,
    GeminiFormat,
    GeminiSampling,
    ModelFormat,
    ModelSampling,
    OpenAIChatFormat,
    OpenAIResponsesFormat,
    OpenAISampling,
)
from syncmcp.testing import demo_server
from syncmcp.types import SamplingMessage, TextContent

FORMATS: list[type[ModelFormat]] = [
    AnthropicFormat,
    OpenAIResponsesFormat,
    OpenAIChatFormat,
    GeminiFormat,
]

MODELS: dict[str, Callable[[], ModelSampling]] = {
    "ANTHROPIC_API_KEY": lambda: AnthropicSampling("claude-sonnet-5"),
    "OPENAI_API_KEY": lambda: OpenAISampling("gpt-5.6-terra"),
    "GEMINI_API_KEY": lambda: GeminiSampling("gemini-3.8-flash"),
}


def converse(client: syncmcp.Client, question: str) -> None:
    """Ask each model that there is a key for, in one conversation."""
    said: list[SamplingMessage] = []
    for key, model in MODELS.items():
        if key not in os.environ:
            print(f"no {key}")
            continue
        said.append(SamplingMessage(role="user", content=TextContent(text=question)))
        result = syncmcp.ToolLoop(model(), client).run(said, tools=["weather"])
        print(f"{result.result.model}: {result.text}")
        said = result.messages
        question = "Do you agree? Look again."
    print(f"{len(said)} messages")


def main() -> None:
    """Render a tool, and have it used."""
    parser = argparse.ArgumentParser(description="One tool for several models.")
    parser.add_argument("question", nargs="?")
    options = parser.parse_args()
    with syncmcp.connect(demo_server()) as client:
        weather = next(tool for tool in client.iter_tools() if tool.name == "weather")
        for format in FORMATS:
            print(f"{format.__name__}: {json.dumps(format([weather]).render_tools())}")
        if options.question:
            converse(client, options.question)


if __name__ == "__main__":
    main()
