"""The tools that a loop uses, of a client or a group, and tool results for the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp import types
from syncmcp.errors import Denied
from syncmcp.group import ClientGroup, group_state

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._client.client import Client
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, Tool, ToolResultContent, ToolUseContent


class ToolSource:
    """The tools of a client, or of a group by their keys, for a tool loop.

    Attributes:
        client: The client; `None` for a group.
    """

    def __init__(self, given: Client | ClientGroup) -> None:
        self._given = given
        self.client = None if isinstance(given, ClientGroup) else given

    def tools(self, cancel: CancelToken) -> Iterable[Tool]:
        """List all tools, with unique names."""
        if isinstance(self._given, ClientGroup):
            group_state(self._given).check_open()
            return self._given.tools.values()
        return self._given.list_tools(cancel=cancel).tools

    def find(self, name: str) -> tuple[Client, str]:
        """Find the client of a tool, and the tool's name at the server.

        Raises:
            UsageError: No server has the tool any more.
            ClosedError: The server of the tool was closed or removed.
        """
        if isinstance(self._given, ClientGroup):
            state = group_state(self._given)
            client, _, name = state.route(lambda catalog: catalog.route("tools", name))
            return client, name
        return self._given, name

    def survives_server_loss(self) -> bool:
        """Whether the loop can go on after a server was closed or refused the credentials."""
        return isinstance(self._given, ClientGroup) and group_state(self._given).state == "open"


# -- tool results for the model -------------------------------------------------------------------


def tool_result(use: ToolUseContent, result: CallToolResult, *, trusted: bool) -> ToolResultContent:
    """Convert the result of a call into content for the model.

    Content that is not meant for the assistant is left out if the server is `trusted`.
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
