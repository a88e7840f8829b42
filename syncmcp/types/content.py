"""Resources and resource templates (server/resources), and the content blocks of messages."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp._base.text import shorten, visible
from syncmcp.errors import InvalidOutput
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
    from syncmcp.templates import UriTemplate, Value

# The most characters of a text that the repr of a result shows.
_SHOWN = 200


class Resource(BaseMetadata, MetaModel):
    """A resource that a server offers (server/resources#resource).

    Attributes:
        uri: The URI of the resource, exactly as the server wrote it.
        description: What the resource contains. A model may see this text.
        mime_type: The media type of the content.
        annotations: Hints on the use of the resource.
        size: The size of the content in bytes, before any encoding.
        icons: Icons to show. Since 2025-11-25.
    """

    uri: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    size: int | None = None
    icons: list[Icon] | None = None


class ResourceTemplate(BaseMetadata, MetaModel):
    """A template for the URIs of many resources (server/resources#resource-templates).

    Attributes:
        uri_template: An RFC 6570 URI template.
        description: What the resources contain. A model may see this text.
        mime_type: The media type, set only if all resources of the template have the same.
        annotations: Hints on the use of the resources.
        icons: Icons to show. Since 2025-11-25.
    """

    uri_template: str
    description: str | None = None
    mime_type: str | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None

    @property
    def template(self) -> UriTemplate:
        """The parsed template.

        Raises:
            syncmcp.errors.InvalidOutput: ``uri_template`` is not a valid URI template.
        """
        from syncmcp.templates import BadTemplate, UriTemplate

        try:
            return UriTemplate(self.uri_template)
        except BadTemplate as error:
            raise InvalidOutput(f"the server's template {self.name!r}: {error}") from error

    def expand(
        self, values: Mapping[str, Value] | None = None, *, unchecked: Collection[str] = ()
    ) -> str:
        """Return the URI of one resource of the template; see `syncmcp.templates`.

        Args:
            values: The values of the template's variables, by name.
            unchecked: The names of variables whose values may change the structure of the URI; see
                `UriTemplate.expand`.

        Raises:
            syncmcp.errors.UsageError: A value is of a wrong type or is refused, or there is no such
                variable.
            syncmcp.errors.InvalidOutput: ``uri_template`` is not a valid URI template.
        """
        return self.template.expand(values, unchecked=unchecked)

    def match(self, uri: str, *, unchecked: Collection[str] = ()) -> dict[str, str] | None:
        """Return the values of the variables in this URI; ``None`` if the URI does not match.

        Args:
            uri: The URI.
            unchecked: The same as for `expand`.

        Raises:
            syncmcp.errors.UsageError: URIs of this template cannot be matched; see
                `UriTemplate.match`.
            syncmcp.errors.InvalidOutput: ``uri_template`` is not a valid URI template.
        """
        return self.template.match(uri, unchecked=unchecked)


class TextResourceContents(MetaModel):
    """The text of a resource or of a part of it (server/resources#text-content).

    Attributes:
        uri: The URI of the resource or the part.
        mime_type: The media type of the text.
        text: The text.
    """

    uri: str
    mime_type: str | None = None
    text: str

    def decode(self) -> bytes:
        """Return the text encoded as UTF-8.

        Raises:
            syncmcp.errors.InvalidOutput: The text has a lone surrogate.
        """
        try:
            return self.text.encode()
        except UnicodeEncodeError as error:
            raise InvalidOutput(f"the text of {self.uri} is not Unicode: {error}") from error


class BlobResourceContents(MetaModel):
    """The bytes of a resource or of a part of it (server/resources#binary-content).

    Attributes:
        uri: The URI of the resource or the part.
        mime_type: The media type of the bytes.
        blob: The bytes in base64; see ``decode()``.
    """

    uri: str
    mime_type: str | None = None
    blob: str

    def decode(self) -> bytes:
        """Return the decoded bytes.

        Raises:
            syncmcp.errors.InvalidOutput: ``blob`` is not base64.
        """
        return decode_base64(self.blob, self.uri)


def _text_or_blob(value: Any) -> str:
    return "text" if field_of(value, "blob") is None else "blob"


ResourceContents: TypeAlias = Annotated[
    Annotated[TextResourceContents, Tag("text")] | Annotated[BlobResourceContents, Tag("blob")],
    Discriminator(_text_or_blob),
]
"""The contents of a resource: text or bytes."""


class ListResourcesResult(PaginatedResult[Resource], CacheableResult):
    """The result of ``resources/list`` (server/resources#listing-resources).

    Attributes:
        resources: The resources of all pages, or of one.
    """

    _field: ClassVar[str] = "resources"

    resources: list[Resource]


class ListResourceTemplatesResult(PaginatedResult[ResourceTemplate], CacheableResult):
    """The result of ``resources/templates/list`` (server/resources#resource-templates).

    Attributes:
        resource_templates: The resource templates of all pages, or of one.
    """

    _field: ClassVar[str] = "resource_templates"

    resource_templates: list[ResourceTemplate]


class ReadResourceResult(CacheableResult):
    """The result of ``resources/read`` (server/resources#reading-resources).

    Attributes:
        contents: The contents; there may be several, for example for a directory.
    """

    contents: list[ResourceContents]

    def __repr__(self) -> str:
        # One line, even for megabytes.
        shown = [repr(shorten(self.text, _SHOWN))] if self.text else []
        blobs = (part for part in self.contents if isinstance(part, BlobResourceContents))
        shown += [visible(shorten(part.mime_type or "bytes", _SHOWN)) for part in blobs]
        return f"<ReadResourceResult {', '.join(shown)}>"

    __str__ = __repr__

    @property
    def text(self) -> str:
        """The texts of all contents, joined by newlines; binary contents are omitted."""
        texts = [part.text for part in self.contents if isinstance(part, TextResourceContents)]
        return "\n".join(texts)

    @property
    def blob(self) -> bytes:
        """The bytes of the contents, if there is exactly one; text is encoded as UTF-8.

        Raises:
            syncmcp.errors.InvalidOutput: There are no contents or several, or they are not valid
                base64 or not valid Unicode.
        """
        return single_content(self).decode()

    def json(self) -> Any:  # type: ignore[override]  # a deprecated method of pydantic's
        """Return the contents, decoded as JSON.

        Raises:
            syncmcp.errors.InvalidOutput: There are no contents or several, or they are not JSON.
        """
        try:
            return json.loads(self.blob)
        except (ValueError, RecursionError) as error:
            raise InvalidOutput("the contents are not JSON: see text and blob") from error


def single_content(result: ReadResourceResult) -> TextResourceContents | BlobResourceContents:
    """Return the only contents of a resource; raise `InvalidOutput` for none or several."""
    if len(result.contents) == 1:
        return result.contents[0]
    raise InvalidOutput(f"the resource has {len(result.contents)} contents: take one of them")


# Content blocks of tool results, prompts and sampling messages.


class TextContent(TaggedModel, MetaModel):
    """A block of text (server/tools#text-content).

    >>> syncmcp.types.TextContent(text="Hello.")
    TextContent(type='text', text='Hello.')

    Attributes:
        text: The text.
        annotations: Hints on how to use the block.
    """

    type: Literal["text"] = "text"
    text: str
    annotations: Annotations | None = None


class _MediaContent(TaggedModel, MetaModel):
    data: str
    mime_type: str
    annotations: Annotations | None = None

    def decode(self) -> bytes:
        """Return the decoded bytes of the image or sound.

        Raises:
            syncmcp.errors.InvalidOutput: ``data`` is not base64.
        """
        return decode_base64(self.data, type(self).__name__)


class ImageContent(_MediaContent):
    """An image (server/tools#image-content).

    Attributes:
        data: The bytes in base64; see ``decode()``.
        mime_type: The media type, such as ``image/png``.
        annotations: Hints on how to use the block.
    """

    type: Literal["image"] = "image"


class AudioContent(_MediaContent):
    """A sound (server/tools#audio-content). Since 2025-03-26.

    Attributes:
        data: The bytes in base64; see ``decode()``.
        mime_type: The media type, such as ``audio/wav``.
        annotations: Hints on how to use the block.
    """

    type: Literal["audio"] = "audio"


class EmbeddedResource(TaggedModel, MetaModel):
    """A block with the contents of a resource (server/tools#embedded-resources).

    Attributes:
        resource: The contents: text or bytes.
        annotations: Hints on how to use the block.
    """

    type: Literal["resource"] = "resource"
    resource: ResourceContents
    annotations: Annotations | None = None


class ResourceLink(TaggedModel, Resource):
    """A link to a resource, without contents (server/tools#resource-links). Since 2025-06-18.

    The resource need not be in the server's list of resources.
    """

    type: Literal["resource_link"] = "resource_link"


class ToolUseContent(TaggedModel, MetaModel):
    """A tool call that a model asks for (client/sampling#tool-use). Since 2025-11-25.

    Attributes:
        id: The id of the call; its `ToolResultContent` has the id as ``tool_use_id``.
        name: The name of the tool.
        input: The arguments of the call.
    """

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: dict[str, Any]


class UnknownContent(MetaModel):
    """A block of a type that no revision has in this place. All its fields are kept unchanged."""

    type: str


_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})
_SAMPLING_BLOCKS = frozenset({"text", "image", "audio", "tool_use", "tool_result"})


def _block_tag(value: Any) -> str:
    kind = value.get("type") if type(value) is dict else field_of(value, "type")
    return kind if isinstance(kind, str) and kind in _BLOCKS else "unknown"


def _sampling_tag(value: Any) -> str:
    kind = value.get("type") if type(value) is dict else field_of(value, "type")
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
"""A content block of a tool result or a prompt message."""


class ToolResultContent(TaggedModel, MetaModel):
    """The result of a tool call, for a model (client/sampling#tool-use). Since 2025-11-25.

    Attributes:
        tool_use_id: The ``id`` of the ``ToolUseContent`` that asked for the call.
        content: The content blocks of the result.
        structured_content: An object in 2025-11-25, any JSON value since 2026-07-28.
        is_error: True if the tool failed.
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
"""A content block of a sampling message."""
