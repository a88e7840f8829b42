"""What servers have: capabilities, tools, prompts, completion of arguments, and log messages."""

from __future__ import annotations

import json
import math
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar, overload

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import Self

from syncmcp._base.text import MOST_PROBLEMS, counted, first_problem, shorten, visible
from syncmcp.errors import InvalidOutput, ToolError, UsageError
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

T = TypeVar("T")

# The most characters of a text that the repr of a result shows.
_SHOWN = 200


class TasksCapability(WireModel):
    """Declares which requests a server can run as tasks. Only 2025-11-25.

    See basic/utilities/tasks#capability-negotiation.

    Attributes:
        list: Present if the server supports ``tasks/list``.
        cancel: Present if the server supports ``tasks/cancel``.
        requests: The requests, as nested objects: ``{"tools": {"call": {}}}``.
    """

    list: dict[str, Any] | None = None
    cancel: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class PromptsCapability(WireModel):
    """Declares that the server has prompts (server/prompts#capabilities).

    Attributes:
        list_changed: The server sends a notification when the list changes.
    """

    list_changed: Flag = False


class ResourcesCapability(WireModel):
    """Declares that the server has resources (server/resources#capabilities).

    Attributes:
        subscribe: The server notifies subscribers when a single resource changes.
        list_changed: The server sends a notification when the list changes.
    """

    subscribe: Flag = False
    list_changed: Flag = False


class ToolsCapability(WireModel):
    """Declares that the server has tools (server/tools#capabilities).

    Attributes:
        list_changed: The server sends a notification when the list changes.
    """

    list_changed: Flag = False


class ServerCapabilities(WireModel):
    """The capabilities of a server (basic/lifecycle#capability-negotiation, server/discover).

    ``None`` means that the server does not have the capability.

    Attributes:
        experimental: Settings of capabilities outside of the specification, by name.
        logging: The server sends log messages.
        completions: The server completes arguments. Since 2025-03-26; in 2024-11-05, servers may
            complete arguments without declaring it.
        prompts: The server has prompts.
        resources: The server has resources.
        tools: The server has tools.
        tasks: The server runs requests as tasks. Only 2025-11-25.
        extensions: Settings of extensions, by identifier. Since 2026-07-28.
    """

    experimental: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    completions: dict[str, Any] | None = None
    prompts: PromptsCapability | None = None
    resources: ResourcesCapability | None = None
    tools: ToolsCapability | None = None
    tasks: TasksCapability | None = None
    extensions: dict[str, Any] | None = None


# Tools (server/tools).


class ToolAnnotations(WireModel):
    """Untrusted hints on what a tool does (server/tools#tool). Since 2025-03-26.

    Attributes:
        title: The name of the tool for people; see `Tool.display_name`.
        read_only_hint: The tool changes nothing. Absent means false.
        destructive_hint: The tool may delete or overwrite, not only add. Absent means true. The
            hint has no meaning for a read-only tool.
        idempotent_hint: Repeating a call with the same arguments changes nothing more. Absent means
            false. The hint has no meaning for a read-only tool.
        open_world_hint: The tool interacts with systems outside of the server. Absent means true.
    """

    title: str | None = None
    read_only_hint: bool | None = None
    destructive_hint: bool | None = None
    idempotent_hint: bool | None = None
    open_world_hint: bool | None = None


class ToolExecution(WireModel):
    """How a tool may be called (basic/utilities/tasks#tool-level-negotiation). Only 2025-11-25.

    Attributes:
        task_support: Whether a call may or must run as a task; absent means forbidden.
    """

    task_support: Literal["forbidden", "optional", "required"] | str | None = None


class Tool(BaseMetadata, MetaModel):
    """A tool that a server offers (server/tools#tool).

    Attributes:
        description: What the tool does, for a model.
        input_schema: The JSON Schema of the arguments, exactly as the server sent it. Its dialect
            is 2020-12 unless the schema names another.
        output_schema: The JSON Schema of the structured content. Since 2025-06-18. The content is
            an object before 2026-07-28, and any value since 2026-07-28.
        annotations: Hints on what the tool does. Since 2025-03-26.
        execution: How the tool may be called. Only 2025-11-25.
        icons: Icons to show. Since 2025-11-25.
    """

    description: str | None = None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None = None
    annotations: ToolAnnotations | None = None
    execution: ToolExecution | None = None
    icons: list[Icon] | None = None

    @property
    def display_name(self) -> str:
        """The name to show to people: the title, that of the annotations, or the name."""
        hint = self.annotations.title if self.annotations else None
        return self.title or hint or self.name


class ListToolsResult(PaginatedResult[Tool], CacheableResult):
    """The result of ``tools/list`` (server/tools#listing-tools).

    Attributes:
        tools: The tools of all pages, or of one.
    """

    _field: ClassVar[str] = "tools"

    tools: list[Tool]


def _hints(block: ContentBlock) -> Annotations:
    given = None if isinstance(block, UnknownContent) else block.annotations
    return given or Annotations()


def _is_for(audience: Role, block: ContentBlock) -> bool:
    meant = _hints(block).audience
    return meant is None or audience in meant


def _priority_order(block: ContentBlock) -> float:
    priority = _hints(block).priority
    return math.inf if priority is None else -priority


class CallToolResult(Result):
    """The result of ``tools/call`` (server/tools#calling-tools).

    >>> result = client.call_tool("weather", {"city": "Bergen"})
    >>> result.ok, result.data["sky"]
    (True, 'rain')
    >>> client.call_tool("fail").raise_for_error()
    Traceback (most recent call last):
      ...
    syncmcp.errors.ToolError: tool 'fail' [syncmcp-demo]: as you wish

    Attributes:
        content: Content blocks for a model or a person. The protocol requires the field, but some
            servers omit it if there is structured content. Then the list is empty.
        structured_content: An object in 2025-06-18 and 2025-11-25, any JSON value (also null) since
            2026-07-28. ``has_data`` distinguishes null from absent.
        is_error: True if the tool ran and failed; ``content`` describes the error.
    """

    content: list[ContentBlock] = Field(default=[])
    structured_content: Any = None
    is_error: Flag = False

    # The names of tool and server. An instance has its own in ``__dict__``, like its fields: they
    # are pickled and copied, but not part of comparisons, dumps and the repr.
    _origin: ClassVar[tuple[str, str] | None] = None

    def __repr__(self) -> str:
        text = self.text or ("" if self.data is None else str(self.data))
        shown = [repr(shorten(text, _SHOWN))] if text else []
        others = [block.type for block in self.content if not isinstance(block, TextContent)]
        shown += [visible(shorten(kind, _SHOWN)) for kind in others]
        return " ".join(["<CallToolResult", *["failed:"] * self.is_error, ", ".join(shown)]) + ">"

    __str__ = __repr__

    @property
    def ok(self) -> bool:
        """True if the tool succeeded: the opposite of ``is_error``."""
        return not self.is_error

    def json(self) -> Any:  # type: ignore[override]  # a deprecated method of pydantic's
        """Return the structured content or, if there is none, the text decoded as JSON.

        Raises:
            syncmcp.errors.InvalidOutput: There is no structured content, and the text is not JSON.
        """
        if self.has_data:
            return self.data
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            self._check_success()
            text = "the result of the tool has no structured content, and its text is not JSON: see"
            raise self._invalid(f"{text} text and content") from error

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextContent))

    @property
    def links(self) -> list[ResourceLink]:
        """The links to resources, which can be passed to ``Client.read_resource``."""
        return [block for block in self.content if isinstance(block, ResourceLink)]

    def content_for(self, audience: Role) -> list[ContentBlock]:
        """Return the blocks for the user or the assistant, the most important blocks first.

        Audience and priority are hints of the server (server/resources#annotations). Blocks without
        an audience are for both. Blocks without a priority come last, in the server's order.
        """
        meant = [block for block in self.content if _is_for(audience, block)]
        return sorted(meant, key=_priority_order)

    @property
    def data(self) -> Any:
        """The structured content; ``None`` if absent or null."""
        return self.structured_content

    @property
    def has_data(self) -> bool:
        """True if there is structured content, even if it is null."""
        # An unknown field with the name of the attribute is also in `model_fields_set`.
        name = "structured_content"
        was_set = name in self.model_fields_set and name not in (self.model_extra or {})
        return was_set or self.structured_content is not None

    def raise_for_error(self) -> Self:
        """Return the result itself if the tool succeeded.

        Raises:
            syncmcp.errors.ToolError: The tool failed. The error has this result, and the names of
                the tool and the server if a client made the call.
        """
        if self.is_error:
            tool, server = self._origin or (None, None)
            raise ToolError(self, tool=tool, server=server)
        return self

    def _check_success(self) -> None:
        """Raise `InvalidOutput` if the tool failed, which explains why data is missing."""
        try:
            self.raise_for_error()
        except ToolError as error:
            text = f"the tool failed, and returned no data; raise_for_error() says why: {error}"
            raise InvalidOutput(text) from error

    def _invalid(self, text: str) -> InvalidOutput:
        tool, server = self._origin or (None, None)
        method = tool and "tools/call"
        return InvalidOutput(text, method=method, server=server, tool=tool, result=self)

    @overload
    def parse(self, target: type[T]) -> T: ...
    @overload
    def parse(self, target: Any) -> Any: ...
    def parse(self, target: Any) -> Any:
        """Return the structured content, validated as a pydantic model or any other type.

        Args:
            target: A model class, or any type that pydantic can validate, such as ``list[int]``.

        Raises:
            syncmcp.errors.InvalidOutput: There is no structured content, or the content does not
                fit. In the second case the cause is the ``pydantic.ValidationError``.
            syncmcp.UsageError: `target` is a string.
        """
        if isinstance(target, str):  # pydantic would look it up as a name
            raise UsageError(f"target must be a model or another type, not the string {target!r}")
        if not self.has_data:
            self._check_success()
            text = "the tool result has no structured content; json() decodes its text as JSON"
            raise self._invalid(text)
        try:
            return TypeAdapter(target).validate_python(self.structured_content)
        except ValidationError as error:
            many = error.error_count() > MOST_PROBLEMS
            problem = first_problem(error) if many else error
            raise self._invalid(f"the structured content does not fit: {problem}") from error


def set_origin(result: CallToolResult, tool: str, server: str) -> None:
    """Store the tool and server of the result, for `Client.read_resource` and errors."""
    vars(result)["_origin"] = (tool, server)


# Prompts (server/prompts), and completion of arguments (server/utilities/completion).


class PromptArgument(BaseMetadata):
    """An argument of a prompt, whose value is always a string (server/prompts#prompt).

    Attributes:
        description: What the argument means.
        required: True if the prompt cannot be used without it.
    """

    description: str | None = None
    required: Flag = False


class Prompt(BaseMetadata, MetaModel):
    """A prompt, or a template of one, that a server offers (server/prompts#prompt).

    Attributes:
        description: What the prompt is for.
        arguments: The arguments of the template.
        icons: Icons to show. Since 2025-11-25.
    """

    description: str | None = None
    arguments: list[PromptArgument] | None = None
    icons: list[Icon] | None = None


class PromptMessage(WireModel):
    """One message of a prompt (server/prompts#promptmessage).

    Attributes:
        role: The author of the message.
        content: One content block.
    """

    role: Role
    content: ContentBlock


class ListPromptsResult(PaginatedResult[Prompt], CacheableResult):
    """The result of ``prompts/list`` (server/prompts#listing-prompts).

    Attributes:
        prompts: The prompts of all pages, or of one.
    """

    _field: ClassVar[str] = "prompts"

    prompts: list[Prompt]


class GetPromptResult(Result):
    """The result of ``prompts/get`` (server/prompts#getting-a-prompt).

    Attributes:
        description: What the prompt is for.
        messages: The messages of the prompt, in order.
    """

    description: str | None = None
    messages: list[PromptMessage]

    def __repr__(self) -> str:
        said = [block for each in self.messages if isinstance(block := each.content, TextContent)]
        shown = [repr(shorten(block.text, _SHOWN)) for block in said[:1]]
        count = counted(len(self.messages), "messages")
        return ": ".join((f"<GetPromptResult of {count}", *shown)) + ">"

    __str__ = __repr__


# Completion of arguments (server/utilities/completion).


class PromptReference(TaggedModel, BaseMetadata):
    """The prompt whose argument is completed (server/utilities/completion#reference-types).

    Attributes:
        name: The name of the prompt.
        title: The name of the prompt for people. Since 2025-06-18.
    """

    type: Literal["ref/prompt"] = "ref/prompt"


class ResourceTemplateReference(TaggedModel):
    """The resource template whose variable is completed.

    See server/utilities/completion#reference-types.

    Attributes:
        uri: A URI or the URI template itself.
    """

    type: Literal["ref/resource"] = "ref/resource"
    uri: str


CompletionReference: TypeAlias = PromptReference | ResourceTemplateReference
"""What an argument is completed for: a prompt or a resource template."""


class Completion(WireModel):
    """Suggested values, best first (server/utilities/completion#completion-results).

    Attributes:
        values: At most 100 values.
        total: The number of all values, including those that are not in ``values``.
        has_more: True if there are more values than in ``values``; ``None`` if the server does not
            say whether there are.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result):
    """The result of ``completion/complete`` (server/utilities/completion).

    Attributes:
        completion: The suggested values.
    """

    completion: Completion


# Log messages of servers (server/utilities/logging).


LoggingLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""The severity of a log message as in RFC 5424, least severe first.

See server/utilities/logging#log-levels.
"""


class LoggingMessageNotificationParams(MetaModel):
    """Parameters of ``notifications/message``.

    See server/utilities/logging#log-message-notifications.

    Attributes:
        level: A ``LoggingLevel``, or another string that the server sent instead.
        logger: The name of the logger, which is a part of the server.
        data: The message: any JSON value, often a string. The message is untrusted.
    """

    level: LoggingLevel | str
    logger: str | None = None
    data: Any
