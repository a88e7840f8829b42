"""Checks of tool results against output schemas, and of arguments against input schemas."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from pydantic import BaseModel

import syncmcp
from syncmcp import (
    CancelToken,
    ClosedError,
    InvalidArguments,
    InvalidOutput,
    InvalidParams,
    Mode,
    RequestCancelled,
    RequestFuture,
    RequestTimeout,
    ServerError,
    ToolError,
    UnsupportedSchema,
)
from syncmcp._protocol.schema import DIALECTS, Schema, compile_schema
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import CallToolResult, ElicitResult, Tool
from tests.support.scripts import opening, talk
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Wire,
    in_threads,
    rotated,
    rotated_with,
)

WEATHER = {
    "type": "object",
    "properties": {"degrees": {"type": "number"}, "sky": {"enum": ["clear", "grey"]}},
    "required": ["degrees"],
}
ROME = {"city": "Rome"}
DOCS = Path(__file__).parents[2] / "docs"


class Weather(BaseModel):
    degrees: float
    sky: str


def forecasting(given: Any = None) -> Server:
    """Return a server with a tool that returns `given`, by default a valid result."""
    server = Server("forecasting")

    @server.tool(output_schema=WEATHER)
    def weather(city: str, days: int = 1) -> Any:
        return given or {"degrees": 21.5, "sky": "clear"}

    return server


def listed(schema: Any, name: str = "weather") -> dict[str, Any]:
    tool: dict[str, Any] = {"name": name, "inputSchema": {"type": "object"}}
    return {"tools": [tool if schema is None else {**tool, "outputSchema": schema}]}


def gave(data: Any) -> dict[str, Any]:
    return {"content": [], "structuredContent": data}


def both_ways(client: syncmcp.Client, name: str, arguments: Any = None) -> list[Callable[[], Any]]:
    """Return a blocking call of a tool, and one by a future."""
    return [
        lambda: client.call_tool(name, arguments),
        lambda: client.call_tool.future(name, arguments).result(PATIENCE),
    ]


@rotated
@pytest.mark.requirement("TOOL-02", "M-15", "SCHM-01")
@pytest.mark.pitfall("29")
def test_a_result_that_does_not_fit_is_an_error_that_keeps_it(wire: Wire) -> None:
    server = forecasting()
    right, wrong = {"degrees": 21.5, "sky": "clear"}, {"degrees": "a secret", "sky": "clear"}
    server.add_tool(lambda: wrong, name="wrong", output_schema=WEATHER)
    # A schema without a dialect is of 2020-12.
    newer = {"properties": {"pair": {"prefixItems": [{}], "items": False}}}
    server.add_tool(lambda of: of, name="pair", output_schema={"type": "object", **newer})
    with wire.connect(server) as client:
        for call in both_ways(client, "weather", ROME):
            result = call()
            assert result.data == right
            assert result.parse(Weather) == Weather(degrees=21.5, sky="clear")
        for call in both_ways(client, "wrong"):
            with pytest.raises(InvalidOutput) as caught:
                call()
            error = caught.value
            assert (error.tool, error.method) == ("wrong", "tools/call")
            assert "['degrees'] is not of type number" in str(error)
            assert "a secret" not in str(error)
            assert error.result is not None
            assert error.result.data == wrong
            assert pickle.loads(pickle.dumps(error)).result == error.result
        assert client.call_tool("pair", {"of": {"pair": [1]}}).data == {"pair": [1]}
        with pytest.raises(InvalidOutput):
            client.call_tool("pair", {"of": {"pair": [1, 2]}})


@rotated
@pytest.mark.pitfall("29")
def test_a_check_can_warn_or_be_off(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.schema")
    wrong = {"degrees": "warm"}
    with wire.connect(forecasting(wrong), validate_output="warn") as client:
        assert client.call_tool("weather", ROME).data == wrong
        (record,) = caplog.records
        assert "'weather'" in record.getMessage()
        assert "is not of type number" in record.getMessage()
        caplog.clear()
        assert client.call_tool("weather", ROME, validate_output="off").data == wrong
        assert not caplog.records
        with pytest.raises(InvalidOutput):
            client.call_tool("weather", ROME, validate_output="raise")
    server = forecasting(wrong)
    with wire.connect(server, validate_output="off") as client:
        assert client.call_tool("weather", ROME).data == wrong
        assert server.stats.requests["tools/list"] == 0
    assert not caplog.records


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
@pytest.mark.requirement("TOOL-03")
@pytest.mark.pitfall("28")
def test_an_error_of_the_tool_is_not_held_against_its_schema(mode: Mode) -> None:
    server = forecasting()

    @server.tool(output_schema=WEATHER)
    def storm() -> Any:
        raise ValueError("the instrument was blown away")

    with syncmcp.connect(server, mode=mode) as client:
        client.list_tools()
        result = client.call_tool("storm")
        assert (result.is_error, result.has_data) == (True, False)
        assert result.text == "the instrument was blown away"
        with pytest.raises(ToolError, match="the instrument was blown away") as raised:
            result.raise_for_error()
        assert raised.value.result == result


@pytest.mark.parametrize("value", [None, "text", [1, [2]], {"a": None}, {}])
@pytest.mark.requirement("SCHM-09", "TOOL-02")
def test_any_json_value_is_structured_content_and_nothing_is_none(value: Any) -> None:
    server = Server("any")
    for name, allowed in (("give", value), ("other", [value]), ("nothing", value)):
        server.add_tool(lambda: value, name=name, output_schema={"enum": [allowed]})
    plain = server.features.call_tool

    def call(params: Any, context: ToolContext) -> Any:
        return {"content": []} if params["name"] == "nothing" else plain(params, context)

    server.on_request("tools/call", call)
    with syncmcp.connect(server, mode=STATELESS) as client:
        client.list_tools()
        result = client.call_tool("give")
        assert result.has_data
        assert result.data == value
        with pytest.raises(InvalidOutput):
            client.call_tool("other")
        with pytest.raises(InvalidOutput, match="no structured content"):
            client.call_tool("nothing")


NARROW = {"type": "object", "properties": {"degrees": {"type": "string"}}}


@contextmanager
def replying(*replies: tuple[str, s.Step], **options: Any) -> Iterator[syncmcp.Client]:
    """Connect to a server that answers exactly these requests, in this order."""
    script = [step for method, reply in replies for step in (s.expect(method), reply)]
    with talk([*opening(), *script], **options) as (_, client):
        yield client


@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        *((s.reply(listed(newer)), True) for newer in (WEATHER, None, {"type": "object"})),
        (s.reply(listed(NARROW)), False),
        (s.reply(listed(NARROW, "other")), False),
        (s.error(-32603, "not now"), False),
    ],
)
@pytest.mark.pitfall("29")
def test_an_outdated_schema_is_fetched_again_once(answer: s.Step, fits: bool) -> None:
    then = {"degrees": 4 if fits else "four"}
    with replying(
        ("tools/list", s.reply(listed(NARROW))),
        ("tools/call", s.reply(gave({"degrees": 3}))),
        ("tools/list", answer),
        ("tools/call", s.reply(gave(then))),
    ) as client:
        client.list_tools()
        with nullcontext() if fits else pytest.raises(InvalidOutput):
            assert client.call_tool("weather").data == {"degrees": 3}
        assert client.call_tool("weather").data == then


@rotated
def test_the_tools_are_listed_once_for_each_unlisted_one_that_gives_structured_content(
    wire: Wire,
) -> None:
    server = forecasting()
    server.add_tool(lambda: "words", name="talk")
    server.on_request("tools/list", lambda *_: listed(WEATHER))
    server.add_tool(lambda: {"a": 1}, name="hidden", output_schema=WEATHER)
    with wire.connect(server) as client:
        client.call_tool("talk")
        assert server.stats.requests["tools/list"] == 0
        for _ in range(3):
            client.call_tool("weather", ROME)
            assert client.call_tool("hidden").data == {"a": 1}
        assert server.stats.requests["tools/list"] == 2


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_a_tool_that_came_after_the_list_is_checked(mode: Mode) -> None:
    server = Server("growing")
    server.add_tool(lambda: "words", name="talk")
    with syncmcp.connect(server, mode=mode) as client:
        assert [tool.name for tool in client.list_tools().tools] == ["talk"]
        # Added without the server's knowledge: it does not notify its clients.
        late = Server("late")
        number = {"type": "object", "properties": {"n": {"type": "integer"}}}
        late.add_tool(
            lambda n=1: {"degrees": n}, name="late", input_schema=number, output_schema=NARROW
        )
        server.features.tools["late"] = late.features.tools["late"]
        with pytest.raises(InvalidArguments):
            client.call_tool("late", {"n": "one"}, validate_input=True)
        assert server.stats.requests["tools/call"] == 0
        with pytest.raises(InvalidOutput):
            client.call_tool("late")
        del server.features.tools["late"]
        for _ in range(2):
            with pytest.raises(InvalidParams):
                client.call_tool("gone", validate_input=True)
        assert server.stats.requests["tools/list"] == 4


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_a_result_is_not_lost_to_a_list_that_fails(mode: Mode) -> None:
    server = forecasting()

    def refuse(params: Any, context: Any) -> Any:
        raise RpcError(-32603, "not now")

    server.on_request("tools/list", refuse)
    with syncmcp.connect(server, mode=mode) as client:
        for call in both_ways(client, "weather", ROME) * 2:
            assert call().data["sky"] == "clear"
        with pytest.raises(ServerError):
            client.list_tools()


@pytest.mark.pitfall("29")
def test_a_changed_list_and_a_new_connection_make_the_schemas_outdated() -> None:
    server = forecasting()
    told = threading.Event()
    with syncmcp.connect(server, mode=STATEFUL) as client:
        client.on_notification("notifications/tools/list_changed", lambda _: told.set())
        client.list_tools()
        client.call_tool("weather", ROME)
        assert server.stats.requests["tools/list"] == 1
        warm = {"degrees": "warm"}
        server.add_tool(lambda city: warm, name="weather", output_schema={"type": "object"})
        assert told.wait(PATIENCE)
        assert client.call_tool("weather", ROME).data == warm
        assert server.stats.requests["tools/list"] == 2
        client.close()
        client.open()
        assert client.call_tool("weather", ROME).data == warm
        assert server.stats.requests["tools/list"] == 3


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_no_check_holds_up_the_reading_thread(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    server = forecasting()
    check = Schema.problem
    inside, gate = threading.Event(), threading.Event()

    def slow(self: Schema, value: Any, look: Callable[[], object]) -> Any:
        inside.set()
        assert gate.wait(PATIENCE)
        return check(self, value, look)

    with Wire("stdio", mode).connect(server) as client:
        client.list_tools()
        monkeypatch.setattr(Schema, "problem", slow)
        future = client.call_tool.future("weather", ROME)
        assert inside.wait(PATIENCE)
        client.list_tools()  # its response is read during the check
        gate.set()
        assert future.result(PATIENCE).data["sky"] == "clear"


# -- unusable schemas: for all kinds, see tests/protocol/schema -----------------------------------
@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"$ref": "https://example.com/other"}, "the client does not fetch it"),
        ({"allOf": [{"$ref": "#"}]}, "levels deep"),
    ],
)
@pytest.mark.requirement("SCHM-03", "SCHM-07", "SCHM-08")
def test_a_schema_that_cannot_be_used_is_an_error_that_keeps_the_result(
    schema: dict[str, Any], part: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("odd")
    server.add_tool(lambda: {"a": 1}, name="odd", output_schema={"type": "object", **schema})
    with syncmcp.connect(server) as client:
        client.list_tools()  # listing alone does not check the schema
        for _ in range(2):
            with pytest.raises(UnsupportedSchema) as caught:
                client.call_tool("odd")
            assert part in str(caught.value)
            assert caught.value.tool == "odd"
            assert caught.value.result is not None
            assert caught.value.result.data == {"a": 1}
        assert client.call_tool("odd", validate_output="warn").data == {"a": 1}
        assert part in caplog.text
        assert client.call_tool("odd", validate_output="off").data == {"a": 1}


# A pattern for e-mail addresses, as a schema generator writes it.
_EMAIL = (
    r"^(?!\.)(?!.*\.\.)([A-Za-z0-9_'+\-\.]*)[A-Za-z0-9_+-]"
    r"@([A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$"
)


def test_a_good_schema_with_a_pattern_beyond_us_costs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    to = {"to": "ann@example.com"}
    schema = {"type": "object", "properties": {"to": {"type": "string", "pattern": _EMAIL}}}
    server = Server("mail")
    server.add_tool(lambda to: {"to": to}, name="send", input_schema=schema, output_schema=schema)
    with syncmcp.connect(server, validate_input=True) as client:
        for call in both_ways(client, "send", to):
            assert call().data == to
    assert server.stats.requests["tools/list"] == 1
    said = [record.getMessage() for record in caplog.records if record.name == "syncmcp.schema"]
    for what, text in zip(("input", "result"), said, strict=True):
        assert f"the {what} of the tool 'send' is not checked" in text


@pytest.mark.requirement("SCHM-04")
def test_the_documentation_lists_the_dialects() -> None:
    page = (DOCS / "structured-output.md").read_text(encoding="utf-8")
    for uri, name in DIALECTS.items():
        assert f"`{uri}`" in page
        assert name.removeprefix("JSON Schema ") in page


@pytest.mark.requirement("SCHM-10")
def test_schemas_that_the_library_makes_are_schemas() -> None:
    server = forecasting()

    @server.tool()
    def plan(where: list[str], weather: Weather, options: dict[str, int] | None = None) -> Weather:
        return weather

    with syncmcp.connect(server) as client:
        tools = client.list_tools().tools
        assert "plan" in [tool.name for tool in tools]
        for tool in tools:
            compile_schema(tool.input_schema)
            assert tool.output_schema is not None
            compile_schema(tool.output_schema)


# -- arguments -----------------------------------------------------------------------------------
@rotated_with(
    "arguments, argument, part",
    [
        ({"city": 7}, "city", "argument 'city' is not of type string"),
        ({"city": "Rome", "days": "two"}, "days", "'days' is not of type integer"),
        ({"days": 2}, "city", "argument 'city' is missing"),
        (None, "city", "argument 'city' is missing"),
    ],
)
def test_arguments_that_do_not_fit_are_named_before_anything_is_sent(
    wire: Wire, arguments: dict[str, Any] | None, argument: str, part: str
) -> None:
    server = forecasting()
    with wire.connect(server, validate_input=True) as client:
        calls = both_ways(client, "weather", arguments)
        if wire.revision == STATELESS:
            calls.append(lambda: client.begin_tool("weather", arguments))
        for call in calls:
            with pytest.raises(InvalidArguments) as caught:
                call()
            assert (caught.value.argument, caught.value.tool) == (argument, "weather")
            assert part in str(caught.value)
        assert server.stats.requests["tools/call"] == 0
        assert client.call_tool("weather", ROME).data["sky"] == "clear"
        with pytest.raises(ServerError):  # without a listed schema the client does not check
            client.call_tool("rain", arguments)
    with wire.connect(server) as client:  # without `validate_input`, arguments are not checked
        assert client.call_tool("weather", arguments).is_error
        before = server.stats.requests["tools/call"]
        with pytest.raises(InvalidArguments):
            client.call_tool("weather", arguments, validate_input=True)
        assert server.stats.requests["tools/call"] == before


def test_arguments_that_a_newer_schema_takes_are_sent() -> None:
    older = {"name": "a", "inputSchema": {"type": "object", "required": ["b"]}}
    newer = {"name": "a", "inputSchema": {"type": "object"}}
    called = ("tools/call", s.reply({"content": []}))
    old, new, none = (("tools/list", s.reply({"tools": tools})) for tools in ([older], [newer], []))
    with replying(old, new, called, none, called, validate_input=True) as client:
        client.list_tools()
        assert not client.call_tool("a").is_error
        schemas = client._core.schemas
        schemas.learn([Tool.from_wire(older)], schemas.generation, whole=True)
        assert not client.call_tool("a").is_error


def test_arguments_that_cannot_be_checked_or_are_wrong_as_a_whole_are_not_sent() -> None:
    server = Server("odd")
    odd = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a"}}}
    server.add_tool(lambda a: a, name="odd", input_schema=odd)
    few = {"type": "object", "maxProperties": 1}
    server.add_tool(lambda **given: "", name="few", input_schema=few)
    with syncmcp.connect(server, validate_input=True) as client:
        for _ in range(2):
            with pytest.raises(UnsupportedSchema) as unchecked:
                client.call_tool("odd", {"a": 1})
            assert unchecked.value.result is None
        with pytest.raises(InvalidArguments, match="more than 1 members") as caught:
            client.call_tool("few", {"a": 1, "b": 2})
        assert caught.value.argument is None
        assert server.stats.requests["tools/call"] == 0


# -- other operations ----------------------------------------------------------------------------
def test_what_is_answered_by_hand_is_checked_too() -> None:
    server = forecasting({"degrees": "warm"})

    @server.tool(output_schema=WEATHER)
    def asked(context: ToolContext) -> Any:
        answer = context.elicit("How warm?", {"type": "object", "properties": {}})
        return {"degrees": answer["action"]}

    with syncmcp.connect(server, mode=STATELESS) as client:
        with pytest.raises(InvalidOutput):
            client.begin_tool("weather", ROME)
        pending = client.begin_tool("asked")
        assert not isinstance(pending, CallToolResult)
        (key,) = pending.questions
        with pytest.raises(InvalidOutput):
            client.resume(pending, {key: ElicitResult(action="decline")})


@pytest.mark.requirement("SCHM-08")
@rotated_with(
    "checks, end, way",
    [
        *product(("arguments", "result"), ("timeout", "token", "close"), ("blocking", "future")),
        *[("result", "cancel", "future")] * 2,  # no future exists while arguments are checked
    ],
)
def test_a_check_ends_with_its_call(
    wire: Wire, checks: str, end: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, ended = threading.Event(), threading.Event()

    def endless(_: Schema, value: Any, look: Callable[[], object]) -> None:
        inside.set()
        try:
            while True:
                look()
        finally:
            ended.set()

    monkeypatch.setattr(Schema, "problem", endless)
    server, token = Server("weather"), CancelToken()
    server.add_tool(lambda: {"a": 1}, name="weather", output_schema={"type": "object"})
    options: dict[str, Any] = {"cancel": token, "timeout": 0.3 if end == "timeout" else PATIENCE}
    futures: SimpleQueue[RequestFuture[Any]] = SimpleQueue()
    with wire.connect(server, validate_input=checks == "arguments") as client:
        client.list_tools()

        def call() -> object:
            if way == "blocking":
                return client.call_tool("weather", **options)
            future = client.call_tool.future("weather", **options)
            futures.put(future)
            return future.result(PATIENCE)

        def stop() -> None:
            assert inside.wait(PATIENCE)
            if end == "token":
                token.cancel("not wanted")
            elif end == "close":
                client.close()
            elif end == "cancel":
                assert futures.get(timeout=PATIENCE).cancel()

        error, stopped = in_threads(call, stop)
        assert stopped is None
        assert ended.wait(PATIENCE)
    kinds = {"timeout": RequestTimeout, "close": ClosedError}
    assert isinstance(error, kinds.get(end, RequestCancelled))
    if isinstance(error, RequestTimeout):
        assert error.seconds == 0.3
        assert error.delivery == ("not_sent" if checks == "arguments" else "unknown")
    elif isinstance(error, RequestCancelled):
        assert error.reason == ("not wanted" if end == "token" else None)
    assert server.stats.requests["tools/call"] == (checks == "result")
