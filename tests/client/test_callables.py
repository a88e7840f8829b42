"""Tools as functions and as iterators, and other objects that a client makes."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import threading
import traceback
from collections.abc import Callable
from typing import Any, Optional

import pytest

import syncmcp
from syncmcp import (
    Client,
    ClientGroup,
    McpError,
    Progress,
    RequestCancelled,
    ToolError,
    UsageError,
    types,
)
from syncmcp._client.background import FutureDrive
from syncmcp._client.core import core_of
from syncmcp._client.driver import run
from syncmcp._client.functions import NOT_GIVEN, ToolFunction, takes_others
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.steps import Compute, InputQuestion, InputRound, Pause, Send, Steps
from syncmcp.cli import tool_help
from syncmcp.interceptors import Message
from syncmcp.testing import RpcError, Server, ToolContext, serve_http
from syncmcp.types import (
    CallToolResult,
    ElicitResult,
    ListToolsResult,
    LoggingMessageNotificationParams,
    Tool,
)
from tests.support.hostile_text import EVIL, FORGED, check_text
from tests.support.intercepting import MEMORY, Seen
from tests.support.stage import PATIENCE, STATELESS, Stage, Wire, every_wire, in_threads, rotated

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
    """Return a server with a tool that adds, a tool that fails, and tools with odd schemas."""
    server = Server("adding")

    @server.tool()
    def add(a: int, b: int = 1) -> dict[str, int]:
        """Add two numbers."""
        return {"sum": a + b}

    @server.tool()
    def fail() -> str:
        raise ValueError("not today")

    free = {"type": "object", "additionalProperties": {"type": "integer"}, "required": "nonsense"}
    for name, schema in (("odd", ODD), ("any", {"type": "object"}), ("free", free)):
        server.add_tool(lambda **given: str(given), name=name, input_schema=schema)
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
        parameters = inspect.signature(odd).parameters
        assert list(parameters) == ["city", "days", "others", "unit", "others_"]
        days, unit = parameters["days"], parameters["unit"]
        assert (days.annotation, days.default) == (Optional[int], 3)  # noqa: UP045
        assert (unit.annotation, unit.default) == (Any, NOT_GIVEN)
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
        with pytest.raises(UsageError, match="timeout"):
            client.tool("add", timeout=-1)
        for name, words in (("", "name"), ("shout", "no tool named 'shout'")):
            with pytest.raises(UsageError, match=words):
                client.tool(name)
        assert server.stats.requests["tools/call"] == 0
        assert client.tool("odd")(city="Rome", **{"class": True}).text
        assert "x-1" in client.tool("free")(**{"x-1": 1}).text


def test_arguments_may_stand_elsewhere_in_a_schema_than_among_its_properties() -> None:
    assert not takes_others({"type": "object", "properties": {"city": {}}, "title": "x"})
    for word in ("$ref", "anyOf", "patternProperties"):
        assert takes_others({"type": "object", "properties": {"city": {}}, word: {}})


@rotated
def test_results_of_many_calls_come_in_order_few_are_in_flight_and_who_leaves_cancels_them(
    wire: Wire,
) -> None:
    stage = Stage()
    keys = [str(number) for number in range(6)]
    with wire.connect(stage.server) as client:
        hold = client.tool("hold")
        results = hold.map(({"key": key} for key in keys), max_in_flight=3)
        assert stage.stats.requests["tools/call"] == 0  # no calls before the first `next`
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
    stage, token = Stage(), syncmcp.CancelToken()
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
    calls: list[dict[str, Any]] = [{"a": 1}, {"a": "x"}, {"a": 2}]
    with syncmcp.connect(adding(), validate_input=True) as client:
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
    """A name that counts the comparisons of all such names."""

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
        assert tool_help.signature(schema).count(": ") == len(listed)
    else:
        assert sum("(required)" in line for line in tool_help.help_lines(tool)) == len(listed)
    assert Counted.compared < 20 * len(listed)  # comparing each with all others takes 125,000


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


def telling() -> Server:
    """Return a server with tools that report progress and log messages."""
    server = Server("telling")

    @server.tool()
    def cook(context: ToolContext, dishes: int) -> str:
        for dish in range(1, dishes + 1):
            context.log("info", f"cooking {dish}")
            context.report_progress(dish, dishes, f"dish {dish}")
        return "served"

    @server.tool()
    def burn(context: ToolContext) -> str:
        context.notify("notifications/message", {"level": 3})  # invalid, so the client discards it
        context.report_progress(1)
        raise RpcError(-32000, "burnt")

    return server


def told(item: Any) -> Any:
    """Return the part of an item that the tests compare."""
    if isinstance(item, LoggingMessageNotificationParams):
        return item.data
    return item.text if isinstance(item, CallToolResult) else item


EXPECTED = ["cooking 1", Progress(1, 2, "dish 1"), "cooking 2", Progress(2, 2, "dish 2"), "served"]


@every_wire
@pytest.mark.requirement("M-16", "PRG-01")
@pytest.mark.parametrize("watched", [False, True])
def test_everything_comes_in_order_the_result_or_error_last(wire: Wire, watched: bool) -> None:
    logs: list[Any] = []
    steps: list[float] = []
    options: dict[str, Any] = {
        "interceptors": [Seen()],
        "on_log": lambda record: logs.append(record.data),
        "on_progress": lambda progress, total, message: steps.append(progress),
    }
    server = telling()
    with wire.connect(server, **(options if watched else {})) as client:
        items = list(client.call_tool.stream("cook", {"dishes": 2}, log_level="info"))
        assert [told(item) for item in items] == EXPECTED
        stream = client.call_tool.stream("burn")
        assert next(stream) == Progress(1, None, None)
        with pytest.raises(syncmcp.ServerError, match="burnt"):
            next(stream)
        assert list(stream) == []
        stream.close()  # the call has ended: no cancellation is sent
        (listed,) = client.list_tools.stream()  # every operation streams
        assert listed == client.list_tools()
    assert server.stats.cancels == []
    assert logs == (["cooking 1", "cooking 2"] if watched else [])
    assert steps == ([1, 2, 1] if watched else [])


@every_wire
@pytest.mark.requirement("M-16", "M-23")
@pytest.mark.parametrize("way", ["break", "close", "with", "elsewhere"])
def test_leaving_it_cancels_the_call_and_the_server_is_told_once(wire: Wire, way: str) -> None:
    stage = Stage()

    @stage.server.tool()
    def begin(context: ToolContext) -> str:
        context.report_progress(1)
        return stage.hold(context)

    with wire.connect(stage.server) as client:
        stream: Any = client.call_tool.stream("begin")
        assert next(stream) == Progress(1, None, None)
        if way == "break":
            del stream
            gc.collect()
        elif way == "close":
            stream.close()
            stream.close()
            assert list(stream) == []
        elif way == "with":
            with stream:
                pass
        else:
            assert in_threads(lambda: list(stream), stream.close) == [[], None]
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        assert client.call_tool("echo", {"text": "x"}).text == "x"
    assert len(stage.stats.cancels) == wire.announces


def test_several_threads_share_a_stream_and_one_of_them_gets_the_result() -> None:
    stage = Stage()
    seen: list[Any] = []
    with Wire("memory", STATELESS).connect(stage.server) as client:
        stream = client.call_tool.stream("count", {"steps": 50})

        def read() -> None:
            for item in stream:
                seen.append(item)  # noqa: PERF402 - each item as soon as it arrives

        in_threads(*[read] * 4)
    steps = [item.progress for item in seen if isinstance(item, Progress)]
    assert sorted(steps) == [*range(1, 51)]
    assert [item.text for item in seen if isinstance(item, CallToolResult)] == ["counted"]


FORM = {"type": "object", "properties": {"n": {"type": "string"}}}


class Careful(Client):
    """Hides a tool, and notes the calls of tools."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.calls: list[str] = []

    def list_tools(self, **options: Any) -> ListToolsResult:  # type: ignore[override]
        listed = super().list_tools(**options)
        listed.tools = [tool for tool in listed.tools if tool.name != "danger"]
        return listed

    def iter_tools(self, **options: Any) -> Any:
        return (tool for tool in super().iter_tools(**options) if tool.name != "danger")

    def call_tool(self, name: str, *args: Any, **options: Any) -> CallToolResult:  # type: ignore[override]
        self.calls.append(name)
        return super().call_tool(name, *args, **options)


def facade() -> Server:
    made = Server("facade")

    for name in ("safe", "danger"):
        made.add_tool(lambda: "done", name=name)

    @made.tool()
    def ask(context: ToolContext) -> str:
        context.elicit("who?", FORM)
        return " ".join(root["uri"] for root in context.list_roots())

    return made


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
@pytest.mark.parametrize("way", ["blocking", "future", "kept method"])
def test_a_handler_is_given_the_client_that_only_a_call_holds(mode: Any, way: str) -> None:
    seen: list[tuple[type, list[str]]] = []

    def form(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        client: Any = context.client
        roots = [str(root.path) for root in client.roots.list()]
        seen.append((type(client), roots))
        return ElicitResult.accept({"n": "x"})

    def opened() -> Careful:
        return Careful(facade(), mode=mode, elicitation=form, roots=["/tmp"]).open()

    def text() -> str:
        if way == "blocking":
            return Client.call_tool(opened(), "ask").text
        ask = Client.call_tool.__get__(opened(), Careful)
        if way == "future":
            future = ask.future("ask")
            del ask
            return future.result(PATIENCE).text
        return ask("ask").text

    def dropped() -> str:
        said = text()
        gc.collect()
        return said

    with pytest.warns(ResourceWarning, match="never closed"):
        said = dropped()
    assert seen == [(Careful, ["/tmp"])]
    assert said == "file:///tmp"


def test_what_a_client_makes_can_be_pickled_and_copied() -> None:
    with serve_http(facade()) as http, Client(http.url) as client:
        for made in (client.tool("safe"), client.request, client.resume, client.start_task):
            other: Any = pickle.loads(pickle.dumps(made))
            assert type(other) is type(made)
            assert type(copy.deepcopy(made)) is type(made)
        assert pickle.loads(pickle.dumps(client.tool("safe")))().text == "done"
        assert pickle.loads(pickle.dumps(client.request))("tools/list")["tools"]
        pickle.loads(pickle.dumps(client)).close()  # equal data unpickles to one client


def test_what_a_subclass_has_in_the_place_of_a_method_counts() -> None:
    made = facade()
    changed = threading.Event()
    lists: list[list[str]] = []

    def note(tools: list[Any]) -> None:
        lists.append([tool.name for tool in tools])
        changed.set()

    with Careful(made) as client:
        with pytest.raises(syncmcp.UsageError, match="'danger'"):
            client.tool("danger")
        assert client.tool("safe")().text == "done"
        assert client.calls == ["safe"]
        with ClientGroup({"a": client}) as group:
            assert sorted(tool.name for tool in group.tools.values()) == ["ask", "safe"]
        client.open()
        listener = client.on_tools_changed(note, debounce=0.0)
        made.add_tool(lambda: "new", name="third")
        assert changed.wait(PATIENCE)
        listener.stop(PATIENCE)
    assert lists[-1] == ["safe", "ask", "third"]


def _at_once(callback: Callable[[], object]) -> Callable[[], object]:
    """Call `callback` at once, as an event that has already happened."""
    callback()
    return lambda: None


def _hold() -> Steps[Any]:
    yield Pause(600.0, _at_once)
    return (yield Send("tools/call", {"name": "hold", "arguments": {"key": "a"}}))


@pytest.mark.requirement("M-01", "CAN-03")
def test_a_request_after_no_pause_at_all_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    with MEMORY.connect(stage.server) as client:
        core = core_of(client)
        # The pool runs the job at once, before the thread that began the pause continues.
        monkeypatch.setattr(core.pools.workers, "run", lambda job: job())
        future = FutureDrive(_hold(), core, core.resolve({}), Deadline(None)).future
        stage.inside("a")
        monkeypatch.undo()
        assert future.cancel()
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)


def test_the_steps_of_an_interrupted_operation_are_told_what_interrupted_it() -> None:
    told: list[RequestCancelled] = []

    def interrupt(check: Callable[[], None]) -> None:
        raise KeyboardInterrupt

    def steps() -> Steps[Any]:
        try:
            yield Compute(interrupt, "not_sent")
        except RequestCancelled as error:
            told.append(error)
            raise

    with MEMORY.connect(Stage().server) as client:
        core = core_of(client)
        with pytest.raises(KeyboardInterrupt):
            run(steps(), core, core.resolve({}), Deadline(None))
    (error,) = told
    assert (error.message, error.reason) == ("interrupted", "KeyboardInterrupt")
