"""The frames of the bundled server, in memory, in every revision."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pydantic import BaseModel

import syncmcp
from syncmcp.testing import RpcError, Server, demo_server, serve_http
from syncmcp.testing.server.wire import REVISIONS
from syncmcp.types import CallToolResult, ImageContent, PromptMessage, TextContent, ToolAnnotations
from tests.testing.talks import text_of
from tests.testing.wires import PATIENCE, Memory, initialize, modern

STATEFUL = REVISIONS[:-1]


class Point(BaseModel):
    x: int
    y: int = 0


@dataclasses.dataclass
class Size:
    width: int


@pytest.fixture
def server() -> Iterator[Server]:
    server = demo_server()
    yield server
    server.close()


@pytest.fixture
def client(server: Server) -> Iterator[Memory]:
    client = Memory(server)
    yield client
    client.close()


@pytest.mark.parametrize("offered", ["2024-11-05", "2025-11-25", "1999-01-01"])
def test_a_known_revision_is_agreed_to_and_another_countered_with_the_newest(
    client: Memory, offered: str
) -> None:
    # Before `initialize`, the server answers only a ping.
    assert client.call("ping")["result"] == {}
    assert client.call("tools/list")["error"]["code"] == -32600
    result = client.start(offered)
    assert result["protocolVersion"] == (offered if offered in STATEFUL else "2025-11-25")
    assert result["serverInfo"]["name"] == "syncmcp-demo"
    assert ("completions" in result["capabilities"]) == (offered != "2024-11-05")
    assert client.call("initialize", initialize())["error"]["code"] == -32600
    # Stateful and stateless requests can share one connection.
    assert "resultType" not in client.call("tools/list")["result"]
    assert client.call("tools/list", modern())["result"]["resultType"] == "complete"


def test_discover_tells_what_the_server_is_and_only_the_revisions_given_are_spoken(
    client: Memory,
) -> None:
    result = client.call("server/discover", modern())["result"]
    assert result["resultType"] == "complete"
    assert result["supportedVersions"] == list(REVISIONS)
    assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "syncmcp-demo"
    version = "io.modelcontextprotocol/protocolVersion"
    for params in (None, {"_meta": {version: "2026-07-28"}}):  # without the required metadata
        assert client.call("server/discover", params)["error"]["code"] == -32602
    error = client.call("tools/list", modern(None, **{version: "2099-01-01"}))["error"]
    assert error["code"] == -32022
    assert error["data"] == {"supported": list(REVISIONS), "requested": "2099-01-01"}
    with Memory(Server(revisions=["2025-03-26", "2024-11-05"])) as old:
        assert old.call("server/discover", modern())["error"]["code"] == -32601
        assert old.start("2025-11-25")["protocolVersion"] == "2025-03-26"
    with Memory(Server(revisions=["2026-07-28"])) as new:
        error = new.call("initialize", initialize())["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2025-11-25"}


def test_what_is_no_message_or_unknown_is_an_error_and_no_notification_is_answered(
    client: Memory,
) -> None:
    not_json = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":NaN}}'
    for frame in (b"{", b"\xff", b"[1", not_json):
        client.session.receive(frame)
        answer = client.next()
        assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    wrong = ({"jsonrpc": "1.0"}, {"id": None}, {"id": True}, {"id": 1.5}, {"method": 2})
    for message in (7, {}, [ping], *({**ping, **change} for change in wrong)):
        client.send(message)
        assert client.next()["error"]["code"] == -32600
    client.notify("no/such")
    client.notify("notifications/cancelled", {"requestId": None})
    client.send({"jsonrpc": "2.0", "method": 7})
    for method in ("ping", "logging/setLevel", "resources/subscribe", "no/such"):
        assert client.call(method, modern())["error"]["code"] == -32601
    assert client.call("subscriptions/listen", modern())["error"]["code"] == -32602
    client.start()
    for method in ("server/discover", "subscriptions/listen", "no/such"):
        assert client.call(method)["error"]["code"] == -32601


@pytest.mark.parametrize("revision", REVISIONS)
def test_each_revision_sees_only_the_fields_it_knows(client: Memory, revision: str) -> None:
    params = modern()
    if revision in STATEFUL:
        client.start(revision)
        params = {}
    tools = client.call("tools/list", params)["result"]["tools"]
    [tool] = [tool for tool in tools if tool["name"] == "weather"]
    assert ("annotations" in tool) == (revision != "2024-11-05")
    answer = client.tool("weather", {"city": "Cairo"}, **params)
    known = revision not in REVISIONS[:2]
    assert ("title" in tool, "outputSchema" in tool) == (known, known)
    assert ("structuredContent" in answer["result"]) == known


def _returning(value: Any, **options: Any) -> dict[str, Any]:
    server = Server()
    server.add_tool(lambda: value, name="tool", **options)
    with Memory(server) as client:
        client.start()
        result: dict[str, Any] = client.tool("tool")["result"]
        return result


def test_any_value_becomes_text_and_content_stays_what_it_is() -> None:
    for value, text in (
        ("hi", "hi"),
        (1.5, "1.5"),
        (True, "true"),
        ({"a": [1]}, '{"a":[1]}'),
        ([1, 2], "[1,2]"),
        (Point(x=1), '{"x":1,"y":0}'),
        (Size(2), '{"width":2}'),
    ):
        assert _returning(value) == {"content": [{"type": "text", "text": text}]}
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    assert _returning([image]) == _returning(image) == {"content": [image]}
    block = ImageContent(data="", mime_type="image/png")
    assert _returning((block, block)) == {"content": [image, image]}
    assert _returning(CallToolResult(content=[block])) == _returning(block) == {"content": [image]}
    assert _returning(None) == {"content": []}
    whole = {"content": [], "structuredContent": {"a": 1}, "isError": True}
    assert _returning(whole) == whole
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    assert _returning({"x": 1}, output_schema=schema)["structuredContent"] == {"x": 1}


@pytest.mark.parametrize("mode", ["2025-11-25", "2026-07-28"])
def test_functions_of_a_server_may_return_models_of_the_protocol(mode: syncmcp.Mode) -> None:
    server = Server()
    told = CallToolResult(content=[TextContent(text="no")], is_error=True)

    @server.tool()
    def refuse() -> CallToolResult:
        return told

    @server.prompt()
    def greet() -> list[PromptMessage]:
        return [PromptMessage(role="assistant", content=TextContent(text="Hello."))]

    with syncmcp.connect(server, mode=mode) as client:
        assert client.list_tools().tools[0].output_schema is None
        result = client.call_tool("refuse")
        assert (result.text, result.is_error) == ("no", True)
        assert client.get_prompt("greet").messages == greet()


def test_parameters_may_be_called_anything_and_a_coroutine_is_no_tool() -> None:
    server = Server()

    @server.tool()
    def odd(schema: str, _private: int, model_config: int = 3, **more: int) -> list[Any]:
        return [schema, _private, model_config, more]

    with Memory(server) as client:
        client.start()
        answer = client.tool("odd", {"schema": "s", "_private": 1, "z": 9})
        assert text_of(answer) == '["s",1,3,{"z":9}]'

    async def tool() -> None: ...

    with pytest.raises(TypeError, match="coroutine"):
        server.add_tool(tool)


def test_annotations_of_a_tool_are_json_or_a_model_and_are_sent_by_their_names_in_json() -> None:
    server = Server()
    for name, given in (
        ("json", {"readOnlyHint": True}),
        ("model", ToolAnnotations(read_only_hint=True)),
    ):
        server.tool(name=name, annotations=given)(lambda: 1)
    with Memory(server) as client:
        client.start()
        tools = client.call("tools/list")["result"]["tools"]
    assert [tool["annotations"] for tool in tools] == [{"readOnlyHint": True}] * 2
    wrong: Any = 3
    with pytest.raises(TypeError, match="annotations must be a mapping, such as"):
        server.add_tool(lambda: 1, name="wrong", annotations=wrong)


@pytest.mark.parametrize("option", ["input_schema", "output_schema", "meta"])
def test_schemas_and_metadata_of_a_tool_must_be_mappings(option: str) -> None:
    with pytest.raises(TypeError, match=f"^{option} must be a mapping, not str$"):
        Server().add_tool(lambda: 1, name="wrong", **{option: "{}"})


def test_functions_for_requests_and_notifications_are_checked_when_they_are_registered() -> None:
    server, wrong = Server(), cast("Any", 3)
    with pytest.raises(ValueError, match="function must be callable, not int"):
        server.on_request("a/b", wrong)
    with pytest.raises(ValueError, match=r"accept the arguments \(params, context\)"):
        server.on_request("a/b", cast("Any", lambda params: {}))
    with pytest.raises(ValueError, match="method must be a non-empty string, not builtin"):
        server.on_notification(cast("Any", print), wrong)
    with pytest.raises(TypeError, match=r"write @server.completion\(\) with parentheses"):
        cast("Any", server.completion)(lambda value, arguments: [])
    server.on_request("a/b", lambda params, context: cast("Any", [1]))
    with syncmcp.connect(server) as client, pytest.raises(syncmcp.ServerError) as caught:
        client.request("a/b")
    assert "the function for a/b returned list, not a dict" in str(caught.value)


def test_an_unknown_kind_of_response_is_refused() -> None:
    wrong: Any = "xml"
    with pytest.raises(ValueError, match="response must be one of auto, json, sse, not 'xml'"):
        serve_http(Server(), response=wrong)


def test_bad_arguments_and_failures_are_results_and_other_errors_are_errors(
    server: Server, client: Memory
) -> None:
    @server.tool()
    def refuse() -> None:
        raise RpcError(-7, "no", {"why": 1})

    @server.tool()
    def leave() -> None:
        raise SystemExit(2)

    @server.prompt()
    def left() -> str:
        raise SystemExit("gone")

    client.start()
    assert text_of(client.tool("leave")) == "2"
    assert "gone" in client.call("prompts/get", {"name": "left"})["error"]["message"]
    bad = client.tool("add", {"a": "x"})
    assert bad["result"]["isError"] is True
    assert "a: " in text_of(bad)
    assert "b: " in text_of(bad)
    failed = client.tool("fail", {"message": "broken"})["result"]
    assert failed == {"content": [{"type": "text", "text": "broken"}], "isError": True}
    for name in ("none", 1):
        assert client.call("tools/call", {"name": name})["error"]["code"] == -32602
    for name in ("translate", "none"):  # the first lacks an argument
        assert client.call("prompts/get", {"name": name})["error"]["code"] == -32602
    assert client.tool("refuse")["error"] == {"code": -7, "message": "no", "data": {"why": 1}}


@pytest.mark.requirement("M-22", "M-23")
def test_progress_and_logs_go_only_to_who_asked(client: Memory) -> None:
    countdown = {"name": "countdown", "arguments": {"steps": 1, "delay": 0}}
    level = "io.modelcontextprotocol/logLevel"
    assert "result" in client.call("tools/call", modern(countdown))
    client.ask("tools/call", modern(countdown, **{level: "info"}))
    assert client.next()["params"]["level"] == "info"
    assert "result" in client.next()
    bad = modern(countdown, **{level: "loud"})
    assert client.call("tools/call", bad)["error"]["code"] == -32602

    client.start()
    assert client.call("logging/setLevel", {"level": "loud"})["error"]["code"] == -32602
    assert client.call("logging/setLevel", {"level": "error"})["result"] == {}
    client.ask("tools/call", {**countdown, "_meta": {"progressToken": "t"}})
    progress = {"progressToken": "t", "progress": 1, "total": 1, "message": "0 left"}
    assert client.next()["params"] == progress
    assert "result" in client.next()


def test_an_id_in_use_is_refused_and_one_of_another_type_is_another(
    client: Memory, server: Server
) -> None:
    client.start()
    client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 30}}, identifier=7)
    client.ask("tools/list", identifier=7)
    assert client.next()["error"]["code"] == -32600
    client.notify("notifications/cancelled", {"requestId": "7"})
    assert server.stats.running == 1
    client.notify("notifications/cancelled", {"requestId": 7})
    assert server.stats.running == 0
    # If the cancel arrives before its call, the call does not start.
    client.notify("notifications/cancelled", {"requestId": 8})
    client.ask("tools/call", {"name": "sleep", "arguments": {"seconds": 30}}, identifier=8)
    assert client.call("tools/list")["result"]
    assert server.stats.running == 0


def test_what_changes_before_a_session_is_initialized_is_told_then(
    client: Memory, server: Server
) -> None:
    client.call("initialize", initialize())
    server.list_changed("tools")
    assert client.quiet()
    client.notify("notifications/initialized")
    assert client.next()["method"] == "notifications/tools/list_changed"


def test_lists_take_only_their_own_cursors() -> None:
    with Memory(demo_server(page_size=2)) as paged:
        paged.start()
        first = paged.call("tools/list")["result"]
        for bad in ("nonsense", "", 7, "\xe9"):
            assert paged.call("tools/list", {"cursor": bad})["error"]["code"] == -32602
        other = {"cursor": first["nextCursor"]}
        assert paged.call("prompts/list", other)["error"]["code"] == -32602


def test_a_completion_has_a_hundred_values_at_most(client: Memory, server: Server) -> None:
    client.start()

    def complete(kind: str, name: str) -> Any:
        params = {"ref": {"type": f"ref/{kind}", "name": name}}
        params["argument"] = {"name": "many", "value": ""}
        return client.call("completion/complete", params)

    server.completion(prompt="hello", argument="many")(lambda *_: [*map(str, range(150))])
    found = complete("prompt", "hello")["result"]["completion"]
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 150, True)
    assert complete("prompt", "translate")["result"]["completion"]["values"] == []
    assert complete("prompt", "no")["error"]["code"] == -32602
    assert complete("other", "hello")["error"]["code"] == -32602


def test_batches_are_answered_as_arrays_in_order(client: Memory) -> None:
    def ask(number: Any, method: str, params: Any = None) -> Any:
        return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}

    client.start("2025-03-26")
    note = {"jsonrpc": "2.0", "method": "notifications/whatever"}
    asked = [ask(1, "tools/list"), note, ask("2", "ping")]
    client.send([*asked, ask(3, "no/such"), ask(4, "initialize", initialize()), 5])
    answers = client.next()
    assert [answer["id"] for answer in answers] == [1, "2", 3, 4, None]
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [None, None, -32601, -32600, -32600]
    for bad in ([], [ask(1, "ping")] * 101):
        client.send(bad)
        assert client.next()["error"]["code"] == -32600
    client.send([note])  # gets no answer
    client.send([ask(number, "ping") for number in range(100)])
    assert [answer["id"] for answer in client.next()] == list(range(100))


def test_a_ping_to_the_client_is_answered_or_times_out(client: Memory) -> None:
    client.start()
    with pytest.raises(TimeoutError):
        client.session.ping(timeout=0.01)
    given_up, withdrawal = client.next(), client.next()
    assert given_up["method"] == "ping"
    assert withdrawal["method"] == "notifications/cancelled"
    assert withdrawal["params"]["requestId"] == given_up["id"]
    answering = threading.Thread(target=lambda: client.session.ping(PATIENCE))
    answering.start()
    client.answer(client.next(), {})
    answering.join(PATIENCE)
    assert not answering.is_alive()
    client.close()
    with pytest.raises(ConnectionError):
        client.session.ping()


def test_run_of_other_servers_is_named() -> None:
    with pytest.raises(AttributeError, match=r"write run_stdio\(\), or serve_http\(server\)"):
        Server("x").run()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'walk'$"):
        Server("x").walk()  # type: ignore[attr-defined]
