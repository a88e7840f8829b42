"""What a client knows of the schemas of its server's tools, as the lists that it fetched said."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from syncmcp.errors import InvalidArguments, InvalidOutput, UnsupportedSchema, UsageError, fresh

if TYPE_CHECKING:
    from syncmcp._protocol.schema import Schema
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, Tool

_log = logging.getLogger("syncmcp.schema")

OutputCheck = Literal["raise", "warn", "off"]
"""What becomes of a result that does not fit its tool's output schema."""

_MODES = ("raise", "warn", "off")


class ValidationOptions(NamedTuple):
    """What a client, or one call, wants to be checked."""

    output: OutputCheck
    input: bool

    @classmethod
    def of(cls, output: OutputCheck, input: bool) -> ValidationOptions:
        """What was given as ``validate_output`` and ``validate_input``.

        Raises:
            UsageError: It makes no sense.
        """
        if output not in _MODES:
            raise UsageError(f"validate_output is 'raise', 'warn' or 'off', not {output!r}")
        if not isinstance(input, bool):
            raise UsageError(f"validate_input is True or False, not {input!r}")
        return cls(output, input)

    def but(self, output: OutputCheck | None, input: bool | None) -> ValidationOptions:
        """The same, but for what a call brings itself.

        Raises:
            UsageError: It makes no sense.
        """
        return ValidationOptions.of(
            self.output if output is None else output, self.input if input is None else input
        )


class LazySchema:
    """One schema of a tool. Compiled when it is needed first, which may go wrong for good."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.source = source
        self._compiled: Schema | UnsupportedSchema | None = None
        self._told = False

    def compiled(self) -> Schema:
        """The compiled schema.

        Raises:
            UnsupportedSchema: It cannot be checked with.
        """
        # No lock: two threads that compile it at one time make the same.
        if self._compiled is None:
            from syncmcp._protocol.schema import compile_schema

            try:
                self._compiled = compile_schema(self.source)
            except UnsupportedSchema as error:
                self._compiled = fresh(error)  # without the frames that it came through
        if isinstance(self._compiled, UnsupportedSchema):
            raise fresh(self._compiled)
        return self._compiled

    def let_pass(self, which: str, tool: str, server: str) -> None:
        """Say, once, that nothing is checked by it: it is good, and we are not good enough."""
        if not self._told:
            self._told = True
            _log.warning(
                "[%s] the %s of the tool %r is not checked: a pattern of its schema cannot be "
                "matched without backtracking",
                server,
                which,
                tool,
            )


class ToolSchemas:
    """The schemas of one tool, as one list said, and whether it runs as a task."""

    def __init__(self, tool: Tool) -> None:
        self.name = tool.name
        self.input = LazySchema(tool.input_schema)
        self.output = None if tool.output_schema is None else LazySchema(tool.output_schema)
        self.task_support = None if tool.execution is None else tool.execution.task_support

    def says(self, tool: Tool) -> bool:
        """Whether a newer list says the same."""
        output = None if self.output is None else self.output.source
        support = None if tool.execution is None else tool.execution.task_support
        return (
            self.input.source == tool.input_schema
            and output == tool.output_schema
            and self.task_support == support
        )

    def output_error(self, result: CallToolResult, server: str) -> McpError | None:
        """Why a result is not what the tool should give; `None` if it is."""
        if self.output is None:
            return None
        facts = {"server": server, "method": "tools/call", "tool": self.name, "result": result}
        if not result.has_data:
            return InvalidOutput("there is no structured content, but an output schema", **facts)
        try:
            problem = self.output.compiled().problem(result.structured_content)
        except UnsupportedSchema as error:
            if error.backtracking:
                self.output.let_pass("result", self.name, server)
                return None
            return _useless("output", error, facts)
        if problem is None:
            return None
        return InvalidOutput(f"the structured content does not fit its schema: {problem}", **facts)

    def input_error(self, arguments: Mapping[str, Any], server: str) -> McpError | None:
        """Why the tool cannot be called with these arguments; `None` if it can."""
        facts = {"server": server, "method": "tools/call", "tool": self.name}
        try:
            problem = self.input.compiled().problem(dict(arguments))
        except UnsupportedSchema as error:
            if error.backtracking:
                self.input.let_pass("input", self.name, server)
                return None
            return _useless("input", error, facts)
        if problem is None:
            return None
        if problem.path:
            return InvalidArguments(f"argument {problem}", argument=problem.path[0], **facts)
        if problem.missing is not None:
            return InvalidArguments(
                f"an argument is missing: it {problem}", argument=problem.missing, **facts
            )
        return InvalidArguments(f"what it is given {problem}", **facts)


def _useless(which: str, error: UnsupportedSchema, facts: dict[str, Any]) -> UnsupportedSchema:
    return UnsupportedSchema(f"its {which} schema cannot be used: {error.message}", **facts)


class ToolSchemaCache:
    """The schemas of one server's tools.

    They are kept until the server says that its list has changed, or another server is started.
    """

    def __init__(self) -> None:
        # Guards what follows; held for changes only.
        self._lock = threading.RLock()
        self._tools: dict[str, ToolSchemas] = {}
        self._complete = False
        self._generation = 0

    @property
    def generation(self) -> int:
        """Grows whenever lists under way become outdated."""
        return self._generation

    @property
    def complete(self) -> bool:
        """Whether a tool that is not known is not on the server's list."""
        return self._complete

    def find(self, name: str) -> ToolSchemas | None:
        """What is known of a tool."""
        return self._tools.get(name)

    def learn(self, tools: Iterable[Tool], generation: int, *, whole: bool) -> None:
        """Keep what a list says, unless the list has changed since it was asked for.

        Args:
            tools: The tools on it.
            generation: The generation when it was asked for.
            whole: Whether it is the whole list, not one page of it.
        """
        with self._lock:
            if generation != self._generation:
                return
            # A whole table is replaced at a time: those who look things up take no lock.
            known = {} if whole else dict(self._tools)
            for tool in tools:
                before = self._tools.get(tool.name)
                same = before is not None and before.says(tool)
                known[tool.name] = before if same and before is not None else ToolSchemas(tool)
            self._tools = known
            self._complete = self._complete or whole

    def forget(self) -> None:
        """The list has changed, or there is another server."""
        with self._lock:
            self._generation += 1
            self._tools = {}
            self._complete = False
