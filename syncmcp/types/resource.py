"""Resources, their templates and what reading one gives (server/resources)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Discriminator, Tag

from syncmcp.types.base import (
    Annotations,
    BaseMetadata,
    CacheableResult,
    Icon,
    MetaModel,
    PaginatedResult,
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
        return self._single().decode()

    def _single(self) -> TextResourceContents | BlobResourceContents:
        if len(self.contents) == 1:
            return self.contents[0]
        from syncmcp.errors import InvalidOutput

        raise InvalidOutput(f"the resource has {len(self.contents)} contents: take one of them")
