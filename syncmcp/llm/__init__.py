"""Any model: what MCP says, in the words of the providers of models, and sampling by them.

The formats need no package of a provider; the handlers do, one extra each. Nothing of a provider's
is loaded before it is used.
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
