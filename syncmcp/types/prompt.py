"""Prompts (server/prompts)."""

from __future__ import annotations

from syncmcp.types.base import (
    BaseMetadata,
    CacheableResult,
    Flag,
    Icon,
    MetaModel,
    PaginatedResult,
    Result,
    Role,
    WireModel,
)
from syncmcp.types.content import ContentBlock


class PromptArgument(BaseMetadata):
    """An argument of a prompt; its value is always a string (server/prompts#prompt)."""

    description: str | None = None
    required: Flag = False


class Prompt(BaseMetadata, MetaModel):
    """A prompt, or template of one, that a server offers (server/prompts#prompt).

    Attributes:
        icons: Since 2025-11-25.
    """

    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None


class PromptMessage(WireModel):
    """One message of a prompt (server/prompts#promptmessage)."""

    role: Role
    content: ContentBlock


class ListPromptsResult(PaginatedResult, CacheableResult):
    """Answer to ``prompts/list`` (server/prompts#listing-prompts)."""

    prompts: list[Prompt]


class GetPromptResult(Result):
    """Answer to ``prompts/get`` (server/prompts#getting-a-prompt)."""

    description: str | None = None
    messages: list[PromptMessage]
