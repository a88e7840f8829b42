"""The tools that a loop uses, of a client or a group, and tool results for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from syncmcp import types
from syncmcp.errors import Denied
from syncmcp.group import ClientGroup, group_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._client.client import Client
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, Tool, ToolResultContent, ToolUseContent


class ToolLocation(NamedTuple):
    """The server of a tool.

    Attributes:
        client: The client of the server.
        name: The name of the tool at the server.
    """

    client: Client
    name: str


class ToolSource:
    """The tools of a client, for a tool loop.

    Attributes:
        client: The client; `None` for a group.
    """

    def __init__(self, client: Client) -> None:
        self.client: Client | None = client
        self._only = client

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        """List all tools, with unique names.

        Raises:
            McpError: The tools cannot be listed.
        """
        return self._only.list_tools(cancel=cancel).tools

    def find(self, name: str) -> ToolLocation:
        """Find the server of a tool.

        Raises:
            UsageError: No server has the tool any more.
            ClosedError: The server of the tool was closed or removed.
        """
        return ToolLocation(self._only, name)

    def survives_server_loss(self) -> bool:
        """Whether the loop can go on after a server was closed or refused the credentials."""
        return False


class GroupTools(ToolSource):
    """The tools of a group, by their keys."""

    client: Client | None = None

    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        """See `ToolSource`."""
        group_state(self._group).check_open()
        return self._group.tools.values()

    def find(self, name: str) -> ToolLocation:
        """See `ToolSource`."""
        client, _, tool = group_state(self._group).route(
            lambda catalog: catalog.route("tools", name)
        )
        return ToolLocation(client, tool)

    def survives_server_loss(self) -> bool:
        """See `ToolSource`."""
        return group_state(self._group).state == "open"


def tool_source(given: Client | ClientGroup) -> ToolSource:
    """The tool source for a client or a group."""
    return GroupTools(given) if isinstance(given, ClientGroup) else ToolSource(given)


# -- tool results for the model -------------------------------------------------------------------


def tool_result(use: ToolUseContent, result: CallToolResult, *, trusted: bool) -> ToolResultContent:
    """Convert the result of a call into content for the model.

    Args:
        use: The tool use that the model requested.
        result: The result of the call.
        trusted: Whether to honour the server's annotations and leave out content that is not meant
            for the assistant.
    """
    # If no content is meant for the assistant, the model gets all of it rather than nothing.
    content = (trusted and result.content_for("assistant")) or result.content
    block = types.ToolResultContent(tool_use_id=use.id, content=content)
    if result.has_data:
        block.structured_content = result.data
    if result.is_error:
        block.is_error = True
    if result.meta is not None:
        block.meta = result.meta  # servers put hints for caching there (SHOULD be preserved)
    return block


def error_result(use: ToolUseContent, why: str) -> ToolResultContent:
    """Make an error result for the model."""
    content = types.TextContent(text=why)
    return types.ToolResultContent(tool_use_id=use.id, content=[content], is_error=True)


def error_text(error: McpError) -> str:
    """Describe an error for the model, without details for the program only, such as stderr."""
    if isinstance(error, Denied):
        why = f": {error.reason}" if error.reason else ""
        return f"the call was not allowed{why}"
    words = error.message or type(error).__name__
    unknown = getattr(error, "delivery", None) == "unknown"
    return f"{words} (whether it was done is unknown)" if unknown else words
