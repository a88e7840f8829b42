"""What a model is told of a tool that it asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncmcp import types
from syncmcp.errors import Denied

if TYPE_CHECKING:
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, ToolResultContent, ToolUseContent

__all__ = ["failure", "told", "words_for"]


def told(use: ToolUseContent, result: CallToolResult, *, trusted: bool) -> ToolResultContent:
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


def failure(use: ToolUseContent, why: str) -> ToolResultContent:
    """The tool gave nothing, in words."""
    content = types.TextContent(text=why)
    return types.ToolResultContent(tool_use_id=use.id, content=[content], is_error=True)


def words_for(error: McpError) -> str:
    """An error for a model: without what only the program should see, stderr for example."""
    if isinstance(error, Denied):
        why = f": {error.reason}" if error.reason else ""
        return f"the call was not allowed{why}"
    words = error.message or type(error).__name__
    unknown = getattr(error, "delivery", None) == "unknown"
    return f"{words} (whether it was done is unknown)" if unknown else words
