"""Prompts (server/prompts), and completion of arguments (server/utilities/completion)."""

from __future__ import annotations

from typing import Literal, TypeAlias

from syncmcp.types.base import (
    BaseMetadata,
    CacheableResult,
    Flag,
    Icon,
    MetaModel,
    PaginatedResult,
    Result,
    Role,
    TaggedModel,
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


# Completion of arguments (server/utilities/completion).


class PromptReference(TaggedModel, BaseMetadata):
    """Names the prompt whose argument is completed (server/utilities/completion#reference-types).

    Attributes:
        title: Since 2025-06-18.
    """

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(TaggedModel):
    """Names the template whose variable is completed.

    See server/utilities/completion#reference-types.

    Attributes:
        uri: A URI or the URI template itself.
    """

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference
"""What a completion is for."""


class Completion(WireModel):
    """Suggested values, best first (server/utilities/completion#completion-results).

    Attributes:
        values: At most 100.
        total: How many there are; may be more than ``values`` holds.
        has_more: Whether there are more than ``values`` holds; ``None`` if the server does not say.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """Answer to ``completion/complete`` (server/utilities/completion)."""

    completion: Completion
