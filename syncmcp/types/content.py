"""Resources, their templates and what reading one gives (server/resources)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp.types.base import (
    Annotations,
    BaseMetadata,
    CacheableResult,
    Flag,
    Icon,
    MetaModel,
    PaginatedResult,
    TaggedModel,
    decode_base64,
    field_of,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from syncmcp.templates import UriTemplate, Value


class Resource(BaseMetadata, MetaModel):
    """Something a server offers to be read (server/resources#resource).

    Attributes:
        uri: Names the resource; kept exactly as the server wrote it.
        size: Bytes of the content, before any encoding.
        icons: Since 2025-11-25.
    """

    uri: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceTemplate(BaseMetadata, MetaModel):
    """A family of resources (server/resources#resource-templates).

    Attributes:
        uri_template: An RFC 6570 URI template.
        mime_type: Set only if all resources of the family have it.
        icons: Since 2025-11-25.
    """

    uri_template: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None

    @property
    def template(self) -> UriTemplate:
        """The template, read.

        Raises:
            syncmcp.errors.InvalidOutput: If what the server sent is none.
        """
        from syncmcp.errors import InvalidOutput
        from syncmcp.templates import BadTemplate, UriTemplate

        try:
            return UriTemplate(self.uri_template)
        except BadTemplate as error:
            raise InvalidOutput(f"the server's template {self.name!r}: {error}") from error

    def expand(
        self, values: Mapping[str, Value] | None = None, *, unchecked: Collection[str] = ()
    ) -> str:
        """Return the URI of one resource of the family; see `syncmcp.templates`.

        Args:
            values: What the variables of the template stand for.
            unchecked: Names of variables whose values may lead anywhere.

        Raises:
            syncmcp.errors.UsageError: If a value cannot be, or is refused.
            syncmcp.errors.InvalidOutput: If what the server sent is no template.
        """
        return self.template.expand(values, unchecked=unchecked)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """Return the values that give this URI; ``None`` if it is not of the family.

        Raises:
            syncmcp.errors.UsageError: If no URI of the template tells its values.
            syncmcp.errors.InvalidOutput: If what the server sent is no template.
        """
        return self.template.match(uri)


class TextResourceContents(MetaModel):
    """Text of a resource or of a part of it (server/resources#text-content)."""

    uri: str
    mime_type: str | None = None
    text: str

    def decode(self) -> bytes:
        """Return the text in UTF-8.

        Raises:
            syncmcp.errors.InvalidOutput: If it has half of a surrogate pair.
        """
        try:
            return self.text.encode()
        except UnicodeEncodeError as error:
            from syncmcp.errors import InvalidOutput

            raise InvalidOutput(f"the text of {self.uri} is not Unicode: {error}") from error


class BlobResourceContents(MetaModel):
    """Bytes of a resource or of a part of it (server/resources#binary-content).

    Attributes:
        blob: The bytes in base64; see ``decode()``.
    """

    uri: str
    mime_type: str | None = None
    blob: str

    def decode(self) -> bytes:
        """Return the bytes.

        Raises:
            syncmcp.errors.InvalidOutput: If ``blob`` is not base64.
        """
        return decode_base64(self.blob, self.uri)


def _text_or_blob(value: Any) -> str:
    return "text" if field_of(value, "blob") is None else "blob"


ResourceContents: TypeAlias = Annotated[
    Annotated[TextResourceContents, Tag("text")] | Annotated[BlobResourceContents, Tag("blob")],
    Discriminator(_text_or_blob),
]
"""Contents of a resource: text or bytes."""


class ListResourcesResult(PaginatedResult, CacheableResult):
    """Answer to ``resources/list`` (server/resources#listing-resources)."""

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult, CacheableResult):
    """Answer to ``resources/templates/list`` (server/resources#resource-templates)."""

    resource_templates: list[ResourceTemplate]


class ReadResourceResult(CacheableResult):
    """Answer to ``resources/read`` (server/resources#reading-resources).

    Attributes:
        contents: Several if the URI names a collection.
    """

    contents: list[ResourceContents]

    @property
    def text(self) -> str:
        """All texts, joined by newlines; bytes are left out."""
        texts = [part.text for part in self.contents if isinstance(part, TextResourceContents)]
        return "\n".join(texts)

    @property
    def blob(self) -> bytes:
        """The bytes of the only contents there are; of a text in UTF-8.

        Raises:
            syncmcp.errors.InvalidOutput: If there are none or several, or they are not base64.
        """
        return single_content(self).decode()


def single_content(result: ReadResourceResult) -> TextResourceContents | BlobResourceContents:
    """The only contents of a resource.

    Raises:
        InvalidOutput: There are none, or several.
    """
    if len(result.contents) == 1:
        return result.contents[0]
    from syncmcp.errors import InvalidOutput

    raise InvalidOutput(f"the resource has {len(result.contents)} contents: take one of them")


# Content blocks of tool results, prompts and sampling messages.


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
