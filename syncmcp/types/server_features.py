"""Tools and their results (server/tools)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, overload

from pydantic import Field, TypeAdapter, ValidationError

from syncmcp.types.base import (
    Annotations,
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
from syncmcp.types.content import ContentBlock, ResourceLink, TextContent, UnknownContent

if TYPE_CHECKING:
    from typing_extensions import Self


T = TypeVar("T")


class ToolAnnotations(WireModel):
    """Untrusted hints on what a tool does (server/tools#tool). Since 2025-03-26.

    Attributes:
        read_only_hint: It changes nothing; absent means false.
        destructive_hint: It may destroy, not only add; absent means true. Without meaning on a
            read-only tool.
        idempotent_hint: The same call again changes nothing more; absent means false. Without
            meaning on a read-only tool.
        open_world_hint: It deals with things outside of the server; absent means true.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(WireModel):
    """How a tool may be run (basic/utilities/tasks#tool-level-negotiation). Only 2025-11-25.

    Attributes:
        task_support: Whether a call may or must be run as a task; absent means forbidden.
    """

    task_support: Literal["forbidden", "optional", "required"] | str | None = None


class Tool(BaseMetadata, MetaModel):
    """A tool that a server offers (server/tools#tool).

    Attributes:
        input_schema: JSON Schema of the arguments, exactly as it came; 2020-12 if it names no
            dialect.
        output_schema: JSON Schema of the structured content. Since 2025-06-18; of an object
            until 2025-11-25, of any value since 2026-07-28.
        annotations: Since 2025-03-26.
        execution: Only 2025-11-25.
        icons: Since 2025-11-25.
    """

    description: str | None = None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: list[Icon] | None = None

    @property
    def display_name(self) -> str:
        """The name to show to people."""
        hint = self.annotations.title if self.annotations else None
        return self.title or hint or self.name


class ListToolsResult(PaginatedResult, CacheableResult):
    """Answer to ``tools/list`` (server/tools#listing-tools)."""

    tools: list[Tool]


def _hints(block: ContentBlock) -> Annotations:
    given = None if isinstance(block, UnknownContent) else block.annotations
    return given or Annotations()


def _is_for(audience: Role, block: ContentBlock) -> bool:
    meant = _hints(block).audience
    return meant is None or audience in meant


def _unimportance(block: ContentBlock) -> float:
    priority = _hints(block).priority
    return math.inf if priority is None else -priority


class CallToolResult(Result):
    """Answer to ``tools/call`` (server/tools#calling-tools).

    Attributes:
        content: Blocks for a model or a person. The protocol requires the field; where a server
            leaves it out, as some do beside structured content, it is empty.
        structured_content: An object in 2025-06-18 and 2025-11-25, any JSON value, null
            included, since 2026-07-28. ``has_data`` tells null from absent.
        is_error: The tool ran and failed; ``content`` says how.
    """

    content: list[ContentBlock] = Field(default=[])
    structured_content: Any = None
    is_error: Flag = False

    # The names of tool and server. An instance keeps its own beside the fields, where cached
    # properties are, too: it is pickled and copied, but neither compared nor dumped nor shown.
    _origin: ClassVar[tuple[str, str] | None] = None

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def links(self) -> list[ResourceLink]:
        """The links to resources; ``Client.read_resource`` takes them, if they are wanted."""
        return [block for block in self.content if isinstance(block, ResourceLink)]

    def content_for(self, audience: Role) -> list[ContentBlock]:
        """The blocks that are meant for the user or the assistant, the most important ones first.

        A hint of the server (server/resources#annotations). What names no audience is for both;
        what has no priority comes after what has one, in the server's order.
        """
        meant = [block for block in self.content if _is_for(audience, block)]
        return sorted(meant, key=_unimportance)

    @property
    def data(self) -> Any:
        """The structured content, ``None`` if there is none."""
        return self.structured_content

    @property
    def has_data(self) -> bool:
        """Whether there is structured content, be it null."""
        # An unknown field that is spelt like the attribute counts as set too.
        name = "structured_content"
        was_set = name in self.model_fields_set and name not in (self.model_extra or {})
        return was_set or self.structured_content is not None

    def raise_for_error(self) -> Self:
        """Return the result itself if the tool succeeded.

        Raises:
            syncmcp.errors.ToolError: If the tool reported an error; it holds this result, and
                names the tool and the server if a client made the call.
        """
        if self.is_error:
            from syncmcp.errors import ToolError

            tool, server = self._origin or (None, None)
            raise ToolError(self, tool=tool, server=server)
        return self

    @overload
    def parse(self, target: type[T]) -> T: ...
    @overload
    def parse(self, target: Any) -> Any: ...
    def parse(self, target: Any) -> Any:
        """Return the structured content as a pydantic model or any other type.

        Args:
            target: A model class, or any type pydantic can validate, such as ``list[int]``.

        Raises:
            syncmcp.errors.InvalidOutput: If there is no structured content, or it does not fit;
                then the ``pydantic.ValidationError`` is the cause.
        """
        from syncmcp.errors import InvalidOutput

        if not self.has_data:
            raise InvalidOutput("the tool result has no structured content")
        try:
            return TypeAdapter(target).validate_python(self.structured_content)
        except ValidationError as error:
            raise InvalidOutput(f"the structured content does not fit: {error}") from error


def set_origin(result: CallToolResult, tool: str, server: str) -> None:
    """Note which tool of which server the result is from, for `Client.read_resource` and errors."""
    vars(result)["_origin"] = (tool, server)


# Prompts (server/prompts), and completion of arguments (server/utilities/completion).


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
