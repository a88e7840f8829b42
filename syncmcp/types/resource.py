"""Resources, their templates and what reading one gives (server/resources)."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp.types._binary import decode_base64
from syncmcp.types.base import (
    Annotations,
    BaseMetadata,
    CacheableResult,
    Icon,
    MetaModel,
    PaginatedResult,
    field_of,
)


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


class TextResourceContents(MetaModel):
    """Text of a resource or of a part of it (server/resources#text-content)."""

    uri: str
    mime_type: str | None = None
    text: str


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
