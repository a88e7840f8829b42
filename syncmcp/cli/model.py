"""`--model`: a provider's model that answers where a server asks for one."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from syncmcp.cli.failures import CommandError

if TYPE_CHECKING:
    from syncmcp.llm import ModelSampling

__all__ = ["PROVIDERS", "sampling_by"]


def _anthropic(name: str) -> ModelSampling:
    from syncmcp.llm import AnthropicSampling

    return AnthropicSampling(name)


def _gemini(name: str) -> ModelSampling:
    from syncmcp.llm import GeminiSampling

    return GeminiSampling(name)


def _openai(name: str, *, chat: bool = False) -> ModelSampling:
    from syncmcp.llm import OpenAISampling

    return OpenAISampling(name, api="chat" if chat else "responses")


PROVIDERS: Final[Mapping[str, Callable[[str], ModelSampling]]] = MappingProxyType(
    {
        "anthropic": _anthropic,
        "gemini": _gemini,
        "openai": _openai,
        "openai-chat": partial(_openai, chat=True),
    }
)
"""What a model is named with, and what makes it answer."""


def sampling_by(word: str) -> ModelSampling:
    """The model that ``provider:name`` means. Its key comes from the environment.

    Raises:
        CommandError: It means none.
        UsageError: The provider's package is not installed.
    """
    provider, colon, name = word.partition(":")
    make = PROVIDERS.get(provider)
    if make is None:
        close = difflib.get_close_matches(provider, PROVIDERS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(PROVIDERS)}"
        raise CommandError(f"there is no provider of models {provider!r}", hint=hint)
    if not colon or not name:
        raise CommandError(f"which model of {provider}?", hint=f"write --model {provider}:NAME")
    return make(name)
