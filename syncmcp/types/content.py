"""Content blocks of tool results, prompts and sampling messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp.types.base import Annotations, Flag, MetaModel, TaggedModel, decode_base64, field_of
from syncmcp.types.resource import Resource, ResourceContents


class TextContent(TaggedModel, MetaModel):
    """Text (server/tools#text-content)."""

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None


class _MediaContent(TaggedModel, MetaModel):
    data: str
    mime_type: str
    annotations: Annotations | None = None

    def decode(self) -> bytes:
        """Return the bytes of the medium.

        Raises:
            syncmcp.errors.InvalidOutput: If ``data`` is not base64.
        """
        return decode_base64(self.data, type(self).__name__)


class ImageContent(_MediaContent):
    """An image (server/tools#image-content).

    Attributes:
        data: The bytes in base64; see ``decode()``.
    """

    type: Literal["image"] = "image"


class AudioContent(_MediaContent):
    """A sound (server/tools#audio-content). Since 2025-03-26.

    Attributes:
        data: The bytes in base64; see ``decode()``.
    """

    type: Literal["audio"] = "audio"


class EmbeddedResource(TaggedModel, MetaModel):
    """A resource with its contents (server/tools#embedded-resources)."""

    type: Literal["resource"] = "resource"
    resource: ResourceContents
    annotations: Annotations | None = None


class ResourceLink(TaggedModel, Resource):
    """A resource to be read if wanted (server/tools#resource-links). Since 2025-06-18.

    It need not be in the list of resources.
    """

    type: Literal["resource_link"] = "resource_link"


class ToolUseContent(TaggedModel, MetaModel):
    """A model's wish to call a tool (client/sampling#tool-use). Since 2025-11-25."""

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class UnknownContent(MetaModel):
    """A block of a type that no revision has where it stands; its fields are kept as they came."""

    type: str


_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})
_SAMPLING_BLOCKS = frozenset({"text", "image", "audio", "tool_use", "tool_result"})


def _block_tag(value: Any) -> str:
    kind = field_of(value, "type")
    return kind if isinstance(kind, str) and kind in _BLOCKS else "unknown"


def _sampling_tag(value: Any) -> str:
    kind = field_of(value, "type")
    return kind if isinstance(kind, str) and kind in _SAMPLING_BLOCKS else "unknown"


ContentBlock: TypeAlias = Annotated[
    Annotated[TextContent, Tag("text")]
    | Annotated[ImageContent, Tag("image")]
    | Annotated[AudioContent, Tag("audio")]
    | Annotated[EmbeddedResource, Tag("resource")]
    | Annotated[ResourceLink, Tag("resource_link")]
    | Annotated[UnknownContent, Tag("unknown")],
    Discriminator(_block_tag),
]
"""A block of a tool result or of a prompt message."""


class ToolResultContent(TaggedModel, MetaModel):
    """What a tool gave, told to a model (client/sampling#tool-use). Since 2025-11-25.

    Attributes:
        tool_use_id: The ``id`` of the ``ToolUseContent`` it answers.
        structured_content: An object in 2025-11-25, any JSON value since 2026-07-28.
    """

    type: Literal["tool_result"] = "tool_result"
    tool_use_id: str
    content: list[ContentBlock]
    structured_content: Any = None
    is_error: Flag = False


SamplingMessageContentBlock: TypeAlias = Annotated[
    Annotated[TextContent, Tag("text")]
    | Annotated[ImageContent, Tag("image")]
    | Annotated[AudioContent, Tag("audio")]
    | Annotated[ToolUseContent, Tag("tool_use")]
    | Annotated[ToolResultContent, Tag("tool_result")]
    | Annotated[UnknownContent, Tag("unknown")],
    Discriminator(_sampling_tag),
]
"""A block of a sampling message."""
