"""Whose tools a loop uses: one client's, or those of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from syncmcp import types
from syncmcp.errors import Denied
from syncmcp.group import ClientGroup, group_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._client.client import Client
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, Tool, ToolResultContent, ToolUseContent

__all__ = ["ToolLocation", "ToolSource", "error_result", "error_text", "tool_result", "tool_source"]


class ToolLocation(NamedTuple):
    """Where a tool is.

    Attributes:
        client: The client of its server.
        name: What that server calls it.
    """

    client: Client
    name: str


class ToolSource(Protocol):
    """What a loop needs of whose tools it uses."""

    client: Client | None
    """The one client, if there is only one."""

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        """All tools, under names of which each stands for one.

        Raises:
            McpError: They cannot be listed.
        """
        ...

    def find(self, name: str) -> ToolLocation:
        """Who has the tool of that name.

        Raises:
            UsageError: Nobody has it any more.
            ClosedError: Its server was closed or removed.
        """
        ...

    def survives_server_loss(self) -> bool:
        """Whether a server that is gone, or lets nobody in, leaves others to work with."""
        ...


def tool_source(given: Client | ClientGroup) -> ToolSource:
    """A client or a group as that."""
    return _GroupTools(given) if isinstance(given, ClientGroup) else _ClientTools(given)


class _ClientTools:
    def __init__(self, client: Client) -> None:
        self.client: Client | None = client
        self._only = client

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        return self._only.list_tools(cancel=cancel).tools

    def find(self, name: str) -> ToolLocation:
        return ToolLocation(self._only, name)

    def survives_server_loss(self) -> bool:
        return False


class _GroupTools:
    client: Client | None = None

    def __init__(self, group: ClientGroup) -> None:
        self._group = group

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        group_state(self._group).check_open()
        return self._group.tools.values()

    def find(self, name: str) -> ToolLocation:
        client, _, tool = group_state(self._group).route(
            lambda catalog: catalog.route("tools", name)
        )
        return ToolLocation(client, tool)

    def survives_server_loss(self) -> bool:
        return group_state(self._group).state == "open"


# What a model is told of a tool that it asked for.


def tool_result(use: ToolUseContent, result: CallToolResult, *, trusted: bool) -> ToolResultContent:
    """What the tool gave.

    Args:
        use: What the model asked for.
        result: The whole result.
        trusted: Whether the server is believed, which may say what is of no use to a model.
    """
    # Nothing at all is of less.
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
    """The tool gave nothing, in words."""
    content = types.TextContent(text=why)
    return types.ToolResultContent(tool_use_id=use.id, content=[content], is_error=True)


def error_text(error: McpError) -> str:
    """An error for a model: without what only the program should see, stderr for example."""
    if isinstance(error, Denied):
        why = f": {error.reason}" if error.reason else ""
        return f"the call was not allowed{why}"
    words = error.message or type(error).__name__
    unknown = getattr(error, "delivery", None) == "unknown"
    return f"{words} (whether it was done is unknown)" if unknown else words
