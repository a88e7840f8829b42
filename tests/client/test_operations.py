"""Every operation in each revision: checks before sending, and the handling of results."""

from __future__ import annotations

import copy
import gc
import pickle
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    Client,
    Interceptor,
    InvalidOutput,
    InvalidParams,
    Message,
    Mode,
    NotSupported,
    ResourceNotFound,
    ServerError,
    ToolError,
    UsageError,
)
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import (
    GetPromptResult,
    LoggingMessageNotificationParams,
    Prompt,
    PromptArgument,
    PromptReference,
)
from syncmcp.types.server_features import set_origin
from tests.support.intercepting import Seen
from tests.support.scripts import NEW, OLD, REVISIONS, STATEFUL, WIRES, opening, talk
from tests.support.stage import PATIENCE, Stage, Wire, rotated

LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


def full_server() -> Server:
    """Return a server with every kind of feature."""
    server = Server("full", capabilities={"resources": {"subscribe": True}})

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def fail() -> str:
        raise ValueError("no luck")

    @server.tool()
    def speak(context: ToolContext) -> str:
        for number, level in enumerate(LEVELS):
            context.log(level, {"number": number}, f"acme.{level}")
        return "spoken"

    server.resource("acme://a", mime_type="text/plain")(lambda: "text of a")
    server.resource("acme://bytes")(lambda: b"\x00\xff")
    server.resource_template("acme://of/{name}", name="of")(lambda name: f"of {name}")
    server.prompt(name="greet")(lambda who="you": f"Greet {who}!")
    server.completion(prompt="greet", argument="who")(lambda value, context: ["ann", "anton"])
    return server


@pytest.mark.parametrize("transport", ["memory", "stdio"])
@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-28", "M-01", "M-35")
def test_every_operation_works_everywhere(revision: Mode, transport: str) -> None:
    with Wire(transport, revision).connect(full_server()) as client:
        assert client.server.revision == revision

        def both(operation: Any, *arguments: Any) -> Any:
            """Return the result of the call; check that its future has an equal one."""
            result = operation(*arguments)
            assert operation.future(*arguments).result(PATIENCE) == result
            return result

        for kind, attribute, expected in (
            ("tools", "name", ["add", "fail", "speak"]),
            ("resources", "uri", ["acme://a", "acme://bytes"]),
            ("resource_templates", "uri_template", ["acme://of/{name}"]),
            ("prompts", "name", ["greet"]),
        ):
            listed = getattr(both(getattr(client, f"list_{kind}")), kind)
            for items in (listed, getattr(client, f"iter_{kind}")()):
                assert [getattr(item, attribute) for item in items] == expected
        assert both(client.call_tool, "add", {"a": 1, "b": 2}).raise_for_error().text == "3"
        failed = both(client.call_tool, "fail")
        assert (failed.is_error, failed.text) == (True, "no luck")
        assert both(client.read_resource, "acme://of/x").text == "of x"
        assert both(client.read_resource, "acme://bytes").blob == b"\x00\xff"
        prompt = both(client.get_prompt, "greet", {"who": "Ann"})
        assert prompt.messages[0].to_wire()["content"] == {"type": "text", "text": "Greet Ann!"}
        found = both(client.complete, PromptReference(name="greet"), "who", "an", {"country": "no"})
        assert found.completion.values == ["ann", "anton"]
        assert len(both(client.request, "tools/list")["tools"]) == 3
        if revision in STATEFUL:
            assert both(client.ping) is None
            assert both(client.subscribe_resource, "acme://a") is None
            assert both(client.unsubscribe_resource, "acme://a") is None


def test_a_tool_error_names_tool_and_server_also_from_a_pickle() -> None:
    with syncmcp.connect(full_server(), name="mine") as client:
        result = client.call_tool("fail")
    copies = copy.copy(result), result.model_copy(), pickle.loads(pickle.dumps(result))
    for kept in (result, *copies):
        with pytest.raises(ToolError) as caught:
            kept.raise_for_error()
        for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
            assert (error.tool, error.server) == ("fail", "mine")
            assert str(error) == "tool 'fail' [mine]: no luck"
            assert error.result == result
    # The origin of a result is not part of its value.
    alone = type(result).from_wire(result.to_wire())
    kept = copies[-1]
    set_origin(kept, "another", "server")
    assert result == kept == alone
    for view in (repr, type(alone).model_dump, type(alone).to_wire):
        assert view(result) == view(kept) == view(alone)


# -- logging -------------------------------------------------------------------------------------
@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.requirement("M-32", "M-25")
def test_the_log_level_is_asked_for_in_the_way_of_the_era(revision: Mode) -> None:
    heard: list[tuple[str, str | None, object]] = []
    server = full_server()

    def hear(record: LoggingMessageNotificationParams) -> None:
        heard.append((record.level, record.logger, record.data))

    with syncmcp.connect(server, mode=revision, on_log=hear) as client:
        for level in LEVELS:
            client.set_log_level(level)  # type: ignore[arg-type]
            heard.clear()
            client.call_tool("speak")
            assert heard == [
                (other, f"acme.{other}", {"number": number})
                for number, other in enumerate(LEVELS)
                if number >= LEVELS.index(level)
            ]
        asked = len(LEVELS) if revision in STATEFUL else 0
        assert server.stats.requests["logging/setLevel"] == asked


# -- subscriptions, progress, completion --------------------------------------------------------
@pytest.mark.requirement("M-32")
def test_the_client_reports_progress_of_a_request_of_the_servers() -> None:
    server = Server("asks")
    seen: list[dict[str, Any]] = []
    server.on_notification("notifications/progress", seen.append)

    @server.tool()
    def ask(context: ToolContext) -> str:
        context.request("acme/work", {"_meta": {"progressToken": "t-1"}})
        return "asked"

    def work(params: dict[str, Any], context: syncmcp.HandlerContext) -> None:
        token = params["_meta"]["progressToken"]
        context.client.report_progress(token, 1)
        context.client.report_progress(token, 2, 2, "done")

    client = Client(server, mode=OLD)
    client.on_request("acme/work", work)
    with client:
        client.call_tool("ask")
    assert seen == [
        {"progressToken": "t-1", "progress": 1},
        {"progressToken": "t-1", "progress": 2, "total": 2, "message": "done"},
    ]


@pytest.mark.requirement("RES-01", "RPC-18")
@pytest.mark.parametrize(
    ("code", "kind"),
    [(-32002, ResourceNotFound), (-32602, ResourceNotFound), (-32019, ServerError)],
)
def test_the_servers_error_keeps_code_message_and_data(code: int, kind: type[ServerError]) -> None:
    script = [*opening(), s.expect("resources/read"), s.error(code, "gone", {"uri": "acme://x"})]
    seen = Seen()
    with (
        talk(script, interceptors=[seen]) as (_, client),
        pytest.raises(ServerError) as caught,
    ):
        client.read_resource("acme://x")
    error = caught.value
    assert type(error) is kind
    assert [
        type(answer.error) for hook, answer in seen.of("resources/read") if hook == "ended"
    ] == [kind]
    assert (error.code, error.message, error.data) == (code, "gone", {"uri": "acme://x"})
    assert error.method == "resources/read"


@pytest.mark.requirement("RPC-23")
def test_errors_of_our_own_making_have_no_code() -> None:
    with syncmcp.connect(full_server(), mode=NEW) as client:
        with pytest.raises(NotSupported) as caught:
            client.ping()
        assert not hasattr(caught.value, "code")
        with pytest.raises(syncmcp.RequestTimeout) as late:
            client.call_tool("add", {"a": 1, "b": 2}, timeout=0)
        assert not hasattr(late.value, "code")


FAILING: dict[str, Callable[[Client], object]] = {
    "refused": lambda client: client.call_tool("nope"),
    "late": lambda client: client.call_tool("hold", timeout=0.05),
    "not sent": lambda client: client.call_tool("hold", timeout=0),
    "not declared": lambda client: client.list_prompts(),
    "future": lambda client: client.call_tool.future("nope").result(PATIENCE),
    "late future": lambda client: client.call_tool.future("hold", timeout=0.05).result(PATIENCE),
    "stream": lambda client: list(client.call_tool.stream("nope")),
}


class Owner:
    """An object that only the caller's frame refers to."""


@contextmanager
def forgotten(what: str) -> Iterator[Owner]:
    """Check that an object is released by the end of the block without a garbage collection."""
    owner, gone = Owner(), threading.Event()
    weakref.finalize(owner, gone.set)
    gc.disable()
    try:
        yield owner
        del owner
        # With interceptors, another thread may still hold it for a moment.
        assert gone.wait(PATIENCE), what
    finally:
        gc.enable()


def fail(failing: Callable[[Client], object], client: Client, owner: Owner) -> None:
    with pytest.raises(syncmcp.McpError):
        failing(client)


@pytest.mark.parametrize("intercepted", [False, True])
@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
def test_the_error_of_a_call_keeps_no_frame_of_its_caller(
    transport: str, intercepted: bool
) -> None:
    class Looks(Interceptor):
        def incoming(self, message: Message) -> Message:
            return message

    options: dict[str, Any] = {"mode": NEW, "interceptors": [Looks()] * intercepted}
    with Wire(transport, NEW).serve(Stage().server) as target:
        client = syncmcp.connect(target, retry=None, **options)
        for name, failing in FAILING.items():
            with forgotten(name) as owner:
                fail(failing, client, owner)
                del owner
        if transport != "http":
            client.close()
            return
    with client, forgotten("the server is gone") as owner:
        fail(lambda client: client.call_tool("echo", {"text": "x"}), client, owner)
        del owner


def test_an_error_that_is_settled_after_it_was_raised_keeps_no_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, token, returned = Stage(), syncmcp.CancelToken(), threading.Event()
    with Wire("memory", NEW).connect(stage.server) as client, ThreadPoolExecutor() as pool:
        connection = client._core.connection
        assert connection is not None

        def cancelled(*_given: object) -> None:
            """Wait: the caller returns at its own limit before this cancellation is finished."""
            assert returned.wait(PATIENCE)

        monkeypatch.setattr(connection.notifier, "cancelled", cancelled)
        with forgotten("settled late") as owner:
            cancelling = pool.submit(lambda: (stage.inside("late"), token.cancel()))
            late = {"key": "late"}
            fail(
                lambda client: client.call_tool("hold", late, timeout=0.5, cancel=token),
                client,
                owner,
            )
            returned.set()
            cancelling.result(PATIENCE)
            del owner
        stage.gate.set()


TEXT = {"type": "text", "text": "x"}
# For the fields of each model, see tests/types/test_models.py.
BROKEN: list[tuple[str, Callable[[Client], object], dict[str, Any]]] = [
    ("tools/list", lambda client: client.list_tools(), {"tools": {"name": "x"}}),
    ("tools/call", lambda client: client.call_tool("x"), {"content": "text"}),
    ("resources/list", lambda client: client.list_resources(), {"resources": [{"name": 1}]}),
    ("resources/read", lambda client: client.read_resource("acme://a"), {"contents": 7}),
    ("prompts/list", lambda client: client.list_prompts(), {}),
    (
        "completion/complete",
        lambda client: client.complete(PromptReference(name="x"), "a", "b"),
        {"completion": {"values": [1]}},
    ),
    (
        "prompts/get",
        lambda client: client.get_prompt("x"),
        {"messages": [{"role": "system", "content": TEXT}]},
    ),
]


@pytest.mark.requirement("PMT-01")
@pytest.mark.parametrize(("method", "call", "result"), BROKEN)
def test_a_result_of_the_wrong_shape_is_invalid_output(
    method: str, call: Callable[[Client], object], result: dict[str, Any]
) -> None:
    script = [*opening(NEW), s.expect(method), s.reply({"resultType": "complete", **result})]
    with talk(script, mode=NEW) as (_, client), pytest.raises(InvalidOutput) as caught:
        call(client)
    assert caught.value.method == method
    assert "Result" in str(caught.value)  # the name of the model
    if method == "prompts/get":
        assert "messages" in str(caught.value)


@pytest.mark.requirement("SCHM-05")
def test_no_reference_in_a_servers_schema_opens_a_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.setblocking(False)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/schema.json"
        schema = {"type": "object", "$ref": url, "properties": {"a": {"$ref": f"{url}#/x"}}}
        server = Server("refers")
        server.add_tool(lambda a: {"a": a}, name="echo", input_schema=schema, output_schema=schema)
        with syncmcp.connect(server) as client:
            (tool,) = client.list_tools().tools
            assert tool.input_schema == tool.output_schema == schema
            with pytest.raises(syncmcp.UnsupportedSchema) as caught:
                client.call_tool("echo", {"a": 1})
            assert caught.value.result is not None
            assert caught.value.result.data == {"a": 1}
        with pytest.raises(BlockingIOError):
            trap.accept()  # nobody has connected


@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.requirement("RPC-20")
def test_meta_travels_both_ways_untouched(revision: Mode) -> None:
    # Any value is allowed, under reserved and unknown names, too.
    odd = {
        "acme.example/odd": [1, {"x": None}],
        "modelcontextprotocol.io/later": "?",
        "io.modelcontextprotocol/later": [None],
        "io.modelcontextprotocol/related-task": 7,
        "io.modelcontextprotocol/serverInfo": "nobody",
        "com.mcp.example/x": False,
    }
    result = {"tools": [], "_meta": odd, "resultType": "complete"}
    script = [*opening(revision), s.expect("tools/list"), s.reply(result)]
    with talk(script, mode=revision) as (peer, client):
        ours = {"acme.example/trace": {"a": [1]}, "io.modelcontextprotocol/later": [{"b": None}]}
        answer = client.list_tools(cursor=None, meta=ours)
        assert answer.to_wire()["_meta"] == odd
        sent = peer.requests("tools/list")[0]["params"]["_meta"]
        assert {key: sent.get(key) for key in ours} == ours


@WIRES
@pytest.mark.requirement("RPC-11")
def test_text_of_any_script_survives_both_directions(wire: str) -> None:
    text = "żółw 亀 🐢 \u2028 \x00 \u00e9"
    said = s.reply({"content": [{**TEXT, "text": text}]})
    with talk([*opening(), s.expect("tools/call"), said], wire) as (peer, client):
        assert client.call_tool("x", {"text": text}).text == text
        assert peer.requests("tools/call")[0]["params"]["arguments"] == {"text": text}


def letters() -> Server:
    """Return a server with prompts."""
    server = Server("letters")

    @server.prompt()
    def reply(to: str, tone: str = "friendly") -> str:
        return f"Reply to {to}, {tone}."

    server.prompt(name="hello")(lambda: "Say hello.")
    return server


@rotated
@pytest.mark.requirement("PMT-01")
def test_arguments_are_checked_against_the_prompt_before_anything_is_sent(wire: Wire) -> None:
    server = letters()
    with wire.connect(server) as client:
        reply, hello = client.list_prompts().prompts
        result = client.get_prompt(reply, {"to": "Ann", "tone": "curt"})
        assert result.messages[0].to_wire()["content"]["text"] == "Reply to Ann, curt."
        assert client.get_prompt(hello).messages
        before = server.stats.requests["prompts/get"]
        for arguments, problem in (
            (None, "needs 'to'"),
            ({"tone": "curt"}, "needs 'to'"),
            ({"to": "Ann", "tune": "curt"}, "no argument 'tune'; it has 'to', 'tone'"),
        ):
            with pytest.raises(UsageError, match=problem):
                client.get_prompt(reply, arguments)
            with pytest.raises(UsageError, match=problem):
                client.get_prompt.future(reply, arguments).result()
        assert server.stats.requests["prompts/get"] == before


def test_by_its_name_alone_or_without_its_arguments_a_prompt_is_the_servers_business() -> None:
    with syncmcp.connect(letters(), mode=NEW) as client:
        for name in ("reply", "none"):
            with pytest.raises(InvalidParams):
                client.get_prompt(name)
        for described in (Prompt(name="reply"), Prompt(name="reply", arguments=None)):
            assert client.get_prompt(described, {"to": "Ann"}).messages
        known = Prompt(name="reply", arguments=[PromptArgument(name="to")])
        assert isinstance(client.begin_prompt(known, {"to": "Ann"}), GetPromptResult)


MAPS: dict[str, Any] = {"com.example/maps": {"scale": 3}}
THEIRS: dict[str, Any] = {"com.example/maps": {"tiles": True}, "com.example/songs": {}}


def extended() -> Server:
    made = Server("extended", capabilities={"extensions": THEIRS})

    def declared(context: ToolContext) -> dict[str, Any]:
        return {"extensions": context.client_capabilities.get("extensions", {})}

    made.add_tool(declared)
    return made


@rotated
@pytest.mark.requirement("VER-18", "VER-20")
def test_an_extension_counts_where_both_sides_have_it(wire: Wire) -> None:
    with wire.connect(extended(), extensions={**MAPS, "com.example/films": {}}) as client:
        seen = client.call_tool("declared").data
        assert seen == {"extensions": {**MAPS, "com.example/films": {}}}
        assert client.server.extensions == {"com.example/maps": {"tiles": True}}
        assert client.server.extension("com.example/maps") == {"tiles": True}
        with pytest.raises(NotSupported, match="the server has no extension com"):
            client.server.extension("com.example/films")
        with pytest.raises(NotSupported, match="not enabled: see extensions="):
            client.server.extension("com.example/songs")


@pytest.mark.parametrize("stated", [None, [], "x", {"com.example/maps": None}])
def test_a_server_that_states_nonsense_has_no_extension(stated: Any) -> None:
    strange = Server("strange", capabilities={"extensions": stated})
    with syncmcp.connect(strange, extensions=MAPS) as client:
        assert client.server.extensions == {}
