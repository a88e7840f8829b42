"""Completion of arguments (server/utilities/completion)."""

from __future__ import annotations

from typing import Literal, TypeAlias

from syncmcp.types.base import BaseMetadata, Result, TaggedModel, WireModel


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
