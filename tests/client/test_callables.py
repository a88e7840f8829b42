"""Tools as functions, and many calls of one with a bound on those in flight."""

from __future__ import annotations

import inspect
import traceback
from typing import Any, Optional

import pytest

import syncmcp
from syncmcp import Client, McpError, RequestCancelled, ToolError, UsageError, types
from syncmcp._client.functions import NOT_GIVEN, ToolFunction
from syncmcp._protocol.steps import InputQuestion, InputRound
from syncmcp.cli import calls
from syncmcp.interceptors import Message
from syncmcp.testing import Server
from syncmcp.types import Tool
from tests.observe.test_hostile_text import EVIL, FORGED, check_text
from tests.support.stage import PATIENCE, Stage, Wire, rotated

ODD = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "Where."},
        "days": {"type": ["integer", "null"], "default": 3},
        "class": {"type": "boolean"},
        "others": {},
        "unit": True,
    },
    "required": ["city"],
}


def adding() -> Server:
    """A server with a tool that adds, and one that fails."""
    server = Server("adding")

    @server.tool()
    def add(a: int, b: int = 1) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @server.tool()
    def fail() -> str:
        raise ValueError("not today")

    server.add_tool(lambda **given: given, name="odd", input_schema=ODD)
    server.add_tool(lambda **given: str(given), name="any", input_schema={"type": "object"})
    free = {"type": "object", "additionalProperties": {"type": "integer"}, "required": "nonsense"}
    server.add_tool(lambda **given: str(given), name="free", input_schema=free)
    return server


@rotated
def test_a_tool_is_a_function(wire: Wire) -> None:
    server = adding()
    with wire.connect(server) as client:
        add = client.tool("add")
        assert add(a=1, b=2).data == {"sum": 3}
        assert add(a=1).data == {"sum": 2}
        assert add.future(a=5).result(PATIENCE).data == {"sum": 6}
        with pytest.raises(ToolError, match="not today"):
            client.tool("fail")()
        assert client.tool("fail").future().result(PATIENCE).is_error


def test_a_function_has_the_signature_and_the_words_of_its_tool() -> None:
    with syncmcp.connect(adding()) as client:
        add = client.tool("add")
        assert add.__name__ == "add"
        assert add.__doc__ == "Add two numbers."
        assert str(inspect.signature(add)) == "(*, a: int, b: int = 1) -> 'CallToolResult'"
        assert repr(add).startswith("<tool add(*, a: int")
        odd = client.tool("odd")
        signature = inspect.signature(odd)
        assert list(signature.parameters) == ["city", "days", "others", "unit", "others_"]
        assert signature.parameters["days"].annotation == Optional[int]  # noqa: UP045
        assert signature.parameters["days"].default == 3
        assert signature.parameters["unit"].annotation is Any
        assert signature.parameters["unit"].default is NOT_GIVEN
        assert "not given" in repr(NOT_GIVEN)
        assert odd.__doc__ == "odd\n\nArgs:\n    city: Where."
        assert str(inspect.signature(client.tool("free"))) == "(**others) -> 'CallToolResult'"
        assert str(inspect.signature(client.tool("any"))) == "() -> 'CallToolResult'"


def test_arguments_that_the_tool_does_not_have_or_lacks_are_mistakes_of_the_call() -> None:
    server = adding()
    with syncmcp.connect(server) as client:
        add = client.tool("add")
        with pytest.raises(TypeError, match="unexpected keyword argument 'c'"):
            add(a=1, c=2)
        with pytest.raises(TypeError, match="missing a required argument: 'a'"):
            add.future()
        with pytest.raises(UsageError):
            client.tool("add", timeout=-1)
        with pytest.raises(UsageError):
            client.tool("")
        with pytest.raises(UsageError, match="no tool named 'shout'"):
            client.tool("shout")
        assert server.stats.requests["tools/call"] == 0
        assert client.tool("odd")(city="Rome", **{"class": True}).text
        assert "x-1" in client.tool("free")(**{"x-1": 1}).text


@pytest.mark.parametrize(
    "words",
    [
        {"$ref": "#/$defs/where", "$defs": {"where": {"properties": {"city": {}}}}},
        {"anyOf": [{"properties": {"city": {}}}, {"properties": {"river": {}}}]},
        {"properties": {"days": {}}, "patternProperties": {"^c": {}}},
    ],
    ids=["$ref", "anyOf", "patternProperties"],
)
def test_arguments_may_stand_elsewhere_in_a_schema_than_among_its_properties(words: Any) -> None:
    server = Server("elsewhere")
    server.add_tool(lambda **given: str(given), name="t", input_schema={"type": "object", **words})
    with syncmcp.connect(server) as client:
        function = client.tool("t")
        assert "Rome" in function(city="Rome").text
        assert "**others" in str(inspect.signature(function))


@rotated
def test_results_of_many_calls_come_in_order_few_are_in_flight_and_who_leaves_cancels_them(
    wire: Wire,
) -> None:
    stage = Stage()
    keys = [str(number) for number in range(6)]
    with wire.connect(stage.server) as client:
        hold = client.tool("hold")
        results = hold.map(({"key": key} for key in keys), max_in_flight=3)
        assert stage.stats.requests["tools/call"] == 0  # nobody wants a result yet
        stage.let_go("0")
        assert next(results).text == "0"
        stage.inside("1", "2")
        assert stage.stats.requests["tools/call"] == 3
        stage.gate.set()
        assert [result.text for result in results] == keys[1:]
        stage.gate.clear()
        results = hold.map([{"key": "a"}, {"key": "b"}, {"key": "c"}])
        stage.let_go("a")
        assert next(results).text == "a"
        contexts = stage.inside("b", "c")
        results.close()  # type: ignore[attr-defined]  # it is a generator
        for context in contexts:
            assert context.cancelled.wait(PATIENCE)


def test_results_may_come_as_they_are_there_and_cancelled_ones_are_errors_like_others() -> None:
    stage = Stage()
    token = syncmcp.CancelToken()
    with syncmcp.connect(stage.server) as client:
        calls = [{"key": "slow"}, {"key": "quick"}, {"key": "never"}]
        stage.let_go("quick")
        results = client.tool("hold", cancel=token).map(calls, ordered=False)
        assert next(results).text == "quick"
        stage.let_go("slow")
        assert next(results).text == "slow"
        stage.inside("never")
        token.cancel()
        with pytest.raises(RequestCancelled):
            next(results)
        assert next(results, None) is None


def test_an_error_ends_the_results_or_is_one_of_them() -> None:
    server = adding()
    calls: list[dict[str, Any]] = [{"a": 1}, {"a": "x"}, {"a": 2}]
    with syncmcp.connect(server, validate_input=True) as client:
        add = client.tool("add")
        first, error, last = add.map(calls, return_errors=True)
        assert (first.data, last.data) == ({"sum": 2}, {"sum": 3})
        assert isinstance(error, McpError)
        results = add.map(calls, max_in_flight=2)
        assert next(results).data == {"sum": 2}
        with pytest.raises(syncmcp.InvalidArguments):
            next(results)
        with pytest.raises(UsageError):
            add.map(calls, max_in_flight=0)


class Counted(str):
    """A name that counts how often one is compared with another."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("shown", ["function", "signature", "help"])
def test_a_signature_takes_no_more_time_than_its_schema_is_long(shown: str) -> None:
    listed, required = ([Counted(f"a{number}") for number in range(500)] for _ in range(2))
    schema = {"type": "object", "properties": {name: {} for name in listed}, "required": required}
    tool = Tool.model_construct(name="many", input_schema=schema)
    Counted.compared = 0
    if shown == "function":
        client: Any = None
        function = ToolFunction(client, tool, {})
        assert len(function.__signature__.parameters) == len(listed)
    elif shown == "signature":
        assert calls.signature(schema).count(": ") == len(listed)
    else:
        assert sum("(required)" in line for line in calls._help_lines(tool)) == len(listed)
    assert Counted.compared < 20 * len(listed)  # each with each other one were 125,000


def test_what_objects_show_of_a_server() -> None:
    result = types.CallToolResult.from_wire({"content": [{"type": EVIL}]})
    question = InputQuestion("roots/list", {})
    schema = {"required": ["a"], "additionalProperties": False}
    tool = types.Tool.from_wire({"name": EVIL, "inputSchema": schema})
    function = ToolFunction(Client(Server()), tool, {})
    texts = [repr(result), repr(InputRound({EVIL: question}, None)), repr(function)]
    texts.append(repr(Message("a server", "incoming", "request", EVIL)))
    for given in ({}, {"a": 1, "b": 1}):
        with pytest.raises(TypeError, match="forged") as caught:
            function(**given)
        texts += [str(caught.value), traceback.format_exception_only(caught.value)[0].rstrip()]
    for text in texts:
        assert FORGED in text
        check_text(text, one_line=True)
