"""The cached schemas of a server's tools, from the lists that the client has fetched."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from syncmcp._base.text import cut, logger
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._protocol.jsonrpc import size_of
from syncmcp.errors import InvalidArguments, InvalidOutput, UnsupportedSchema, UsageError, fresh

if TYPE_CHECKING:
    from syncmcp._protocol.schema import Schema
    from syncmcp.errors import McpError
    from syncmcp.types import CallToolResult, Tool

_log = logger("syncmcp.schema")

OutputCheck = Literal["raise", "warn", "off"]
"""What to do with a result that does not fit its tool's output schema."""

_MODES = ("raise", "warn", "off")

_MAX_ABSENT = 1_000

MAX_SINGLE_PAGES = 64 * 1024 * 1024
"""The most memory, in bytes, of the schemas of pages that were fetched one by one.

A single page may need more: the size of a message is bounded, too.
"""


class ValidationOptions(NamedTuple):
    """The schema checks of a client or a call."""

    output: OutputCheck
    input: bool

    @classmethod
    def of(cls, output: OutputCheck, input: bool) -> ValidationOptions:
        """Check the two options of the same names; `UsageError` if a value is invalid."""
        if output not in _MODES:
            raise UsageError(f"validate_output must be 'raise', 'warn' or 'off', not {output!r}")
        if not isinstance(input, bool):
            raise UsageError(f"validate_input must be True or False, not {input!r}")
        return cls(output, input)

    def but(self, output: OutputCheck | None, input: bool | None) -> ValidationOptions:
        """A copy with the values that a call gives; see `of`."""
        return ValidationOptions.of(
            self.output if output is None else output, self.input if input is None else input
        )


class LazySchema:
    """One schema of a tool, compiled at its first use; a failure is cached, too."""

    def __init__(self, source: Mapping[str, Any]) -> None:
        self.source = source
        self._compiled: Schema | UnsupportedSchema | None = None
        self._warned = False

    def compiled(self, look: Callable[[], object] = lambda: None) -> Schema:
        """Return the compiled schema; `look` is called regularly, and its exceptions end the work.

        Raises:
            UnsupportedSchema: The library cannot check values by this schema.
        """
        # No lock: threads that compile it at the same time get equal results.
        if self._compiled is None:
            with delaying_forks():
                from syncmcp._protocol.schema import compile_schema

            try:
                self._compiled = compile_schema(self.source, look)
            except UnsupportedSchema as error:
                self._compiled = fresh(error)  # without its traceback, which refers to frames
        if isinstance(self._compiled, UnsupportedSchema):
            raise fresh(self._compiled)
        return self._compiled

    def warn_unchecked(self, which: str, tool: str, server: str) -> None:
        """Log, once, that values are not checked: the schema is valid, but not supported."""
        if not self._warned:
            self._warned = True
            _log.warning(
                "[%s] the %s of the tool %r is not checked: a pattern of its schema has flags, or "
                "cannot be matched without backtracking",
                server,
                which,
                tool,
            )


class ToolSchemas:
    """The schemas of one tool, and whether it runs as a task."""

    def __init__(self, tool: Tool) -> None:
        self.name = tool.name
        self.input = LazySchema(tool.input_schema)
        self.output = None if tool.output_schema is None else LazySchema(tool.output_schema)
        self.task_support = None if tool.execution is None else tool.execution.task_support

    def matches(self, tool: Tool) -> bool:
        """Whether the tool on a newer list has the same schemas."""
        output = None if self.output is None else self.output.source
        support = None if tool.execution is None else tool.execution.task_support
        return (
            self.input.source == tool.input_schema
            and output == tool.output_schema
            and self.task_support == support
        )

    def size(self) -> int:
        """Return the memory of the name and the schemas, in bytes."""
        output = None if self.output is None else self.output.source
        return size_of({"input": self.input.source, "output": output}, self.name)

    def output_error(
        self, result: CallToolResult, server: str, look: Callable[[], object]
    ) -> McpError | None:
        """The error of a result that does not fit the output schema; `None` if it fits.

        `look` is called regularly; its exceptions end the check.
        """
        if self.output is None:
            return None
        facts = {"server": server, "method": "tools/call", "tool": self.name, "result": result}
        if not result.has_data:
            return InvalidOutput(
                "the tool has an output schema, but its result has no structured content", **facts
            )
        try:
            problem = self.output.compiled(look).problem(result.structured_content, look)
        except UnsupportedSchema as error:
            if error.backtracking:
                self.output.warn_unchecked("result", self.name, server)
                return None
            return _useless("output", error, facts)
        if problem is None:
            return None
        return InvalidOutput(f"the structured content does not fit its schema: {problem}", **facts)

    def input_error(
        self,
        arguments: Mapping[str, Any],
        server: str,
        look: Callable[[], object] = lambda: None,
    ) -> McpError | None:
        """The error of arguments that do not fit the input schema; `None` if they fit.

        `look` is called regularly; its exceptions end the check.
        """
        facts = {"server": server, "method": "tools/call", "tool": self.name}
        try:
            problem = self.input.compiled(look).problem(dict(arguments), look)
        except UnsupportedSchema as error:
            if error.backtracking:
                self.input.warn_unchecked("input", self.name, server)
                return None
            return _useless("input", error, facts)
        if problem is None:
            return None
        if problem.path:
            name = problem.path[0]
            shown = repr(cut(str(name)))
            text = f"argument {shown}{str(problem).removeprefix(f'[{shown}]')}"
            return InvalidArguments(text, argument=name, **facts)
        if problem.missing is not None:
            return InvalidArguments(
                f"the required argument {cut(str(problem.missing))!r} is missing",
                argument=problem.missing,
                **facts,
            )
        return InvalidArguments(f"the arguments object {problem}", **facts)


def _useless(which: str, error: UnsupportedSchema, facts: dict[str, Any]) -> UnsupportedSchema:
    return UnsupportedSchema(f"its {which} schema cannot be used: {error.message}", **facts)


class ToolSchemaCache:
    """The schemas of one server's tools.

    They are cached until the server notifies that its list has changed, or is started again.

    Attributes:
        by_name: The cached schemas; replaced, never changed, so that it is read without a lock.
        complete: Whether the whole list is cached.
        absent: Names that were not in the list when it was fetched for their sake.
        generation: A counter that grows when lists that are being fetched become outdated.
    """

    def __init__(self) -> None:
        # Guards the attributes below; held for changes only.
        self._lock = threading.RLock()
        self.by_name: Mapping[str, ToolSchemas] = {}
        self.complete = False
        self.absent: frozenset[str] = frozenset()
        self.generation = 0
        # The memory of the schemas that single pages have added, in bytes.
        self._added = 0

    def learn(self, tools: Iterable[Tool], generation: int, *, whole: bool) -> None:
        """Cache the schemas of a list, unless the list has changed since it was requested.

        `generation` is the counter at the time of the request. `whole` says whether this is the
        whole list, whose size `PageGuard` limits, or one page, which is added to the cache. If
        pages add more than `MAX_SINGLE_PAGES`, only the newest page stays cached: a server may list
        new tools without end.
        """
        known = self.by_name
        listed = {tool.name: _known_or_new(known, tool) for tool in tools}
        # Not under the lock: the reader thread needs it when the list has changed.
        added = (
            0
            if whole
            else sum(
                schemas.size() for name, schemas in listed.items() if known.get(name) is not schemas
            )
        )
        with self._lock:
            if generation != self.generation:
                return
            self._added += added
            if whole:
                self.by_name, self.complete, self._added = listed, True, 0
            elif self._added > MAX_SINGLE_PAGES:
                self.by_name, self.complete, self._added = listed, False, 0
            else:
                self.by_name = {**self.by_name, **listed}

    def note_absent(self, name: str) -> None:
        """Remember that a list that was fetched for a tool does not have it, if that is so."""
        with self._lock:
            if self.complete and name not in self.by_name:
                kept = self.absent if len(self.absent) < _MAX_ABSENT else frozenset()
                self.absent = kept | {name}

    def forget(self) -> None:
        """Clear the cache: the list has changed, or the server was started again."""
        with self._lock:
            self.generation += 1
            self.by_name, self.complete, self._added = {}, False, 0
            self.absent = frozenset()


def _known_or_new(known: Mapping[str, ToolSchemas], tool: Tool) -> ToolSchemas:
    """The cached schemas of a tool, which may be compiled; new ones if it has changed."""
    cached = known.get(tool.name)
    return cached if cached is not None and cached.matches(tool) else ToolSchemas(tool)
