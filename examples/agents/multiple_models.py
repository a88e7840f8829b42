"""One tool in the formats of several providers, and a conversation that changes its model.

``python examples/agents/multiple_models.py``  shows the tool in each format
``python examples/agents/multiple_models.py "How is the weather in Bergen?"``
    also asks each model whose key is set

Keys come from ``ANTHROPIC_API_KEY``, ``OPENAI_API_KEY`` and ``GEMINI_API_KEY``. Each model
continues the conversation of the previous one, with the same client.
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
    """Ask each model whose key is set, in one conversation."""
    messages: list[SamplingMessage] = []
    for key, model in MODELS.items():
        if key not in os.environ:
            print(f"no {key}")
            continue
        messages.append(SamplingMessage(role="user", content=TextContent(text=question)))
        result = syncmcp.ToolLoop(model(), client).run(messages, tools=["weather"])
        print(f"{result.result.model}: {result.text}")
        messages = result.messages
        question = "Do you agree? Look again."
    print(f"{len(messages)} messages")


def main() -> None:
    """Print a tool in each format; if there is a question, ask the models."""
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
