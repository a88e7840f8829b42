"""Adapters to providers of models: MCP data in the format of each, and sampling handlers.

The formats need no package of a provider. Each handler needs one, which an extra installs. No such
package is imported before it is used.
"""

from __future__ import annotations

from syncmcp.llm._format import ModelFormat, Unrepresentable
from syncmcp.llm._sampling import Model, ModelSampling
from syncmcp.llm.anthropic import AnthropicFormat, AnthropicSampling
from syncmcp.llm.gemini import GeminiFormat, GeminiSampling
from syncmcp.llm.openai import OpenAIChatFormat, OpenAIResponsesFormat, OpenAISampling

__all__ = [
    "AnthropicFormat",
    "AnthropicSampling",
    "GeminiFormat",
    "GeminiSampling",
    "Model",
    "ModelFormat",
    "ModelSampling",
    "OpenAIChatFormat",
    "OpenAIResponsesFormat",
    "OpenAISampling",
    "Unrepresentable",
]
