"""Tools as functions: `add = client.tool("add")`, then `add(a=1, b=2)`."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Union

from typing_extensions import Never, Unpack

from syncmcp import types
from syncmcp._base.checks import flag, kind_of, text, whole_number
from syncmcp._base.similar import did_you_mean
from syncmcp._base.text import visible
from syncmcp._client.core import HasCore
from syncmcp._client.operation import BoundOperation, ResultStream
from syncmcp._concurrency.futures import RequestFuture, fan_out
from syncmcp._connection.options import CallOptions, unknown_tool
from syncmcp.errors import UsageError

__all__ = ["NOT_GIVEN", "ToolFunction"]

_TYPES: Final[Mapping[str, Any]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": None,
    "number": float,
    "object": dict,
    "string": str,
}


# Keywords of a schema that may define arguments outside of its `properties`.
# fmt: off
_ELSEWHERE: Final = frozenset((
    "$dynamicRef", "$ref", "allOf", "anyOf", "dependentSchemas", "if", "oneOf", "patternProperties",
))
# fmt: on


class NotGiven:
    """The type of `NOT_GIVEN`."""

    def __repr__(self) -> str:
        return "<not given>"


NOT_GIVEN: Final = NotGiven()
"""The default, in a signature, of an optional argument whose schema has no default."""


class ToolFunction:
    """A tool as a function. Its signature and docstring come from the tool's definition.

    Arguments are keyword-only: a schema has no order. A name that is not a Python identifier is
    passed as ``function(**{"some-name": 1})``. Omitted arguments are not sent, so that the defaults
    of the server apply.

    Attributes:
        tool: The tool, as the server listed it.
    """

    def __init__(self, client: HasCore, tool: types.Tool, options: CallOptions) -> None:
        self.tool = tool
        self._client: Any = client
        self._options = options
        self.__name__ = self.__qualname__ = tool.name
        self.__doc__ = _docstring(tool)
        self.__signature__ = _signature(tool)

    @property
    def _call(self) -> BoundOperation[..., types.CallToolResult]:
        # Looked up on the client, so that an override in a subclass is called.
        call: BoundOperation[..., types.CallToolResult] = self._client.call_tool
        return call

    def __call__(self, *unnamed: Never, **arguments: Any) -> types.CallToolResult:
        """Call the tool and block until its result has arrived.

        Raises:
            TypeError: An argument is missing or unknown; nothing was sent.
            ToolError: The tool ran and reported an error.
            McpError: See `Client.call_tool`.
        """
        self._check(arguments, unnamed)
        return self._call(self.tool.name, arguments, **self._options).raise_for_error()

    def future(self, *unnamed: Never, **arguments: Any) -> RequestFuture[types.CallToolResult]:
        """Call the tool and return a future at once. A failed tool is a result with `is_error`.

        Raises:
            TypeError: An argument is missing or unknown; nothing was sent.
        """
        self._check(arguments, unnamed)
        return self._call.future(self.tool.name, arguments, **self._options)

    def stream(self, *unnamed: Never, **arguments: Any) -> ResultStream[types.CallToolResult]:
        """Call the tool and return a stream of its progress, log messages and, last, its result.

        Raises:
            TypeError: An argument is missing or unknown; nothing was sent.
        """
        self._check(arguments, unnamed)
        return self._call.stream(self.tool.name, arguments, **self._options)

    def map(
        self,
        calls: Iterable[Mapping[str, Any]],
        *,
        max_in_flight: int = 16,
        ordered: bool = True,
        return_errors: bool = False,
    ) -> Iterator[Any]:
        """Call the tool many times, several calls at one time, and iterate over the results.

        Nothing is sent before the first result is requested. Leaving the loop cancels the calls in
        flight, if no name refers to the iterator.

        Args:
            calls: The arguments of each call, which are taken when the call starts.
            max_in_flight: The maximum number of calls in flight at one time.
            ordered: Whether results are returned in the order of the calls, or as they arrive.
            return_errors: Whether the `McpError` of a failed call is returned in place of its
                result, while the other calls go on.

        Returns:
            An iterator over `CallToolResult`; a failed tool is a result with `is_error`.

        Raises:
            UsageError: An argument is invalid.
            TypeError: An argument of a call is missing or unknown; also with `return_errors`.
            McpError: A call failed, and `return_errors` is false.
        """
        limit = whole_number(max_in_flight, "max_in_flight")
        starts = (partial(self.future, **_named(arguments)) for arguments in calls)
        flag(ordered, "ordered")
        flag(return_errors, "return_errors")
        return fan_out(starts, limit, ordered=ordered, return_errors=return_errors)

    def __repr__(self) -> str:
        return f"<tool {visible(self.__name__)}{self.__signature__}>"

    def _check(self, arguments: Mapping[str, Any], unnamed: tuple[Never, ...]) -> None:
        schema = self.tool.input_schema
        known = _properties(schema)
        others = takes_others(schema)
        shown = visible(self.__name__)
        if unnamed:
            raise TypeError(f"{shown}() takes its arguments by name: {visible(repr(self))}")
        for name in arguments:
            if name not in known and not others:
                hint = did_you_mean(name, known)
                text = f"{shown}() got an unexpected keyword argument {name!r}"
                raise TypeError(f"{text}: {hint}" if hint else text)
        for name in required_names(schema):
            if name not in arguments:
                raise TypeError(f"{shown}() missing a required argument: {name!r}")


# The options of a function that also apply when the tools are listed to find its tool.
_OF_THE_LIST: Final = frozenset(("cancel", "timeout", "undeclared"))


def tool(self: HasCore, name: str, **options: Unpack[CallOptions]) -> ToolFunction:
    """List the tools, and make a function of one of them.

    >>> add = client.tool("add")
    >>> add(a=1, b=2).text
    '3'
    >>> [result.text for result in add.map([{"a": 1, "b": 1}, {"a": 2, "b": 2}])]
    ['2', '4']

    Args:
        name: The tool's name.
        options: The options of each call of the function; see `CallOptions`. `timeout`, `cancel`
            and `undeclared` also apply to the list, with all of its pages.

    Returns:
        A function whose keyword arguments are the tool's arguments. It returns a `CallToolResult`,
        or raises `ToolError` if the tool failed. It has the tool's docstring and signature, and the
        methods ``.future(...)``, ``.stream(...)`` and ``.map(calls, max_in_flight=16)``, which
        calls the tool many times.

    Raises:
        UsageError: The server lists no such tool, or an option is invalid.
        McpError: The tools cannot be listed.
    """
    text(name, "name")
    core = self._core
    core.resolve(options)  # checks the options now, not at the first call
    client: Any = self  # so that an override of `list_tools` in a subclass is called
    listed = client.list_tools(**{key: options.get(key) for key in _OF_THE_LIST & options.keys()})
    for found in listed:
        if found.name == name:
            return ToolFunction(self, found, options)
    raise unknown_tool(name, [found.name for found in listed], core.label)


def _named(arguments: object) -> Mapping[str, Any]:
    if not isinstance(arguments, Mapping):
        raise UsageError(
            "the arguments of each call must be a mapping, {'name': value},"
            f" not {kind_of(arguments)}"
        )
    return arguments


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def required_names(schema: Mapping[str, Any]) -> Collection[str]:
    """The arguments that a tool requires, in the order of its schema."""
    # A dict: a server may require any number of names, and each property is looked up in them.
    found = schema.get("required")
    names = found if isinstance(found, list) else ()
    return dict.fromkeys(name for name in names if isinstance(name, str))


def takes_others(schema: Mapping[str, Any]) -> bool:
    """True if the tool may take arguments that are not among the properties of its schema."""
    return schema.get("additionalProperties", False) is not False or not _ELSEWHERE.isdisjoint(
        schema
    )


def _signature(tool: types.Tool) -> inspect.Signature:
    schema = tool.input_schema
    required = required_names(schema)
    parameters: list[inspect.Parameter] = []
    others = takes_others(schema)
    for name, property in _properties(schema).items():
        if not name.isidentifier() or keyword.iskeyword(name):
            others = True
            continue
        details = property if isinstance(property, dict) else {}
        default: Any = inspect.Parameter.empty
        if name not in required:
            default = details.get("default", NOT_GIVEN)
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=default,
                annotation=_annotation(details.get("type")),
            )
        )
    if others:
        name = "others"
        while name in _properties(schema):
            name += "_"
        parameters.append(inspect.Parameter(name, inspect.Parameter.VAR_KEYWORD))
    return inspect.Signature(parameters, return_annotation="CallToolResult")


def _annotation(kind: Any) -> Any:
    names = kind if isinstance(kind, list) else [kind]
    found = tuple(_TYPES.get(name, Any) if isinstance(name, str) else Any for name in names)
    return Union[found] if found else Any  # noqa: UP007 - made at run time


def _docstring(tool: types.Tool) -> str:
    lines = [tool.description or tool.display_name]
    described = [
        f"    {name}: {details['description']}"
        for name, details in _properties(tool.input_schema).items()
        if isinstance(details, dict) and isinstance(details.get("description"), str)
    ]
    return "\n".join([*lines, "", "Args:", *described] if described else lines)
