"""The tools that a model is told of: under names, and with schemas, that its provider accepts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from syncmcp import types
from syncmcp.errors import UsageError
from syncmcp.llm._names import NameRule, Names
from syncmcp.llm._schemas import AdaptedSchema, SchemaRules

if TYPE_CHECKING:
    from syncmcp.types import Tool, ToolUseContent

__all__ = ["RenderedTool", "ToolTable"]


class RenderedTool:
    """One tool as a provider is to see it.

    Attributes:
        tool: The tool.
        name: What the model calls it.
        description: What the model is told; cut where the provider sets a limit.
    """

    def __init__(self, tool: Tool, name: str, rules: SchemaRules, longest: int | None) -> None:
        self.tool = tool
        self.name = name
        self._rules = rules
        said = tool.description or tool.title or ""
        self.description = (
            said if longest is None or len(said) <= longest else said[: longest - 1] + "…"
        )

    @cached_property
    def adapted(self) -> AdaptedSchema:
        """Its schema."""
        return AdaptedSchema(self.tool.input_schema, self._rules)


class ToolTable:
    """All tools of a request.

    Args:
        tools: The tools.
        names: How a tool may be called.
        rules: What a schema may be.
        longest_description: In characters; `None` for any length.

    Raises:
        UsageError: Two tools have one name.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        names: NameRule,
        rules: SchemaRules,
        longest_description: int | None = None,
    ) -> None:
        given = list(tools)
        self._names = Names(names, (tool.name for tool in given))
        self._tools: dict[str, RenderedTool] = {}
        for tool in given:
            if tool.name in self._tools:
                raise UsageError(f"two tools are called {tool.name!r}: a model could not tell them")
            name = self._names.out(tool.name)
            self._tools[tool.name] = RenderedTool(tool, name, rules, longest_description)

    def __iter__(self) -> Iterator[RenderedTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def out(self, use: ToolUseContent) -> tuple[str, dict[str, Any]]:
        """What the model calls a tool, and its arguments as the model knows them."""
        known = self._tools.get(use.name)
        return self._names.out(use.name), use.input if known is None else known.adapted.out(
            use.input
        )

    def name_of(self, name: str) -> str:
        """The name of the tool that the model calls so."""
        return self._names.back(name)

    def back(self, id: str, name: str, arguments: dict[str, Any]) -> ToolUseContent:
        """What the model wants, in the tool's own words."""
        name = self._names.back(name)
        known = self._tools.get(name)
        if known is not None:
            arguments = known.adapted.back(arguments)
        return types.ToolUseContent(id=id, name=name, input=arguments)

    def tool(self, name: str, description: str | None, schema: dict[str, Any]) -> Tool:
        """The tool that a definition is of: the one it was made from, or a new one."""
        known = self._tools.get(self._names.back(name))
        if known is not None:
            return known.tool
        return types.Tool(name=name, description=description, input_schema=schema)
