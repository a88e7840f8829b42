"""What is refused before it is sent, and what becomes of results, good and bad ones."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import (
    Client,
    InvalidOutput,
    Mode,
    NotSupported,
    ProtocolError,
    ResourceNotFound,
    ServerError,
    UnsupportedSchema,
    UsageError,
)
from syncmcp.testing import RpcError, Server
from syncmcp.testing import script as s
from syncmcp.types import PromptReference
from tests.support.scripts import NEW, OLD, REVISIONS, WIRES, Scripted, opening

LISTED: dict[str, Any] = {"tools": [{"name": "a", "inputSchema": {"type": "object"}}]}


def offering() -> Server:
    """A server with one tool."""
    server = Server("offering")

    @server.tool()
    def add(a: int) -> int:
        return a + 1

    return server


@WIRES
@pytest.mark.parametrize("code", [-32002, -32602])
@pytest.mark.requirement("RES-01")
def test_both_codes_for_a_missing_resource_are_the_same_error(code: int, wire: str) -> None:
    script = [*opening(), s.expect("resources/read"), s.error(code, "gone", {"uri": "acme://x"})]
    with Scripted(script) as peer, syncmcp.connect(peer.on(wire), mode=OLD) as client:
        with pytest.raises(ResourceNotFound) as caught:
            client.read_resource("acme://x")
        assert caught.value.code == code
        assert caught.value.data == {"uri": "acme://x"}
        assert "gone" in str(caught.value)


@pytest.mark.requirement("RPC-18")
@pytest.mark.parametrize("code", [-32000, -32001, -32003, -32019])
def test_the_codes_that_servers_may_use_as_they_like_mean_nothing_in_particular(
    code: int,
) -> None:
    script = [*opening(), s.expect("resources/read"), s.error(code, "busy")]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(ServerError) as caught:
            client.read_resource("acme://x")
        assert type(caught.value) is ServerError
        assert caught.value.code == code


@pytest.mark.requirement("RPC-23")
def test_errors_of_our_own_making_have_no_code() -> None:
    with syncmcp.connect(offering(), mode=NEW) as client:
        with pytest.raises(NotSupported) as caught:
            client.ping()
        assert not hasattr(caught.value, "code")
        with pytest.raises(syncmcp.RequestTimeout) as late:
            client.call_tool("add", {"a": 1, "b": 2}, timeout=0)
        assert not hasattr(late.value, "code")


OPERATIONS: dict[str, Callable[[Client], object]] = {
    "tools/list": lambda client: client.list_tools(),
    "tools/call": lambda client: client.call_tool("x"),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource("acme://a"),
    "prompts/list": lambda client: client.list_prompts(),
    "prompts/get": lambda client: client.get_prompt("x"),
}
BY_OPTION: dict[str, Callable[[Client], object]] = {
    "completion/complete": lambda client: client.complete(PromptReference(name="x"), "a", "b"),
    "logging/setLevel": lambda client: client.set_log_level("info"),
    "resources/subscribe": lambda client: client.subscribe_resource("acme://a"),
    "resources/unsubscribe": lambda client: client.unsubscribe_resource("acme://a"),
}


@pytest.mark.parametrize("method", [*OPERATIONS, *BY_OPTION])
@pytest.mark.requirement("VER-06")
def test_what_the_server_does_not_offer_is_refused_and_nothing_is_sent(method: str) -> None:
    script = s.handshake(OLD, capabilities={})
    call = {**OPERATIONS, **BY_OPTION}[method]
    with Scripted(script) as peer:
        with syncmcp.connect(peer, mode=OLD) as client:
            with pytest.raises(NotSupported) as caught:
                call(client)
            assert caught.value.method == method
            assert caught.value.server == "scripted peer"
        assert peer.gone()
        assert peer.methods(2) == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize("method", OPERATIONS)
@pytest.mark.requirement("VER-06")
def test_a_future_of_what_is_not_offered_is_refused_at_once_too(method: str) -> None:
    server = Server("empty")
    with syncmcp.connect(server, mode=OLD) as client:
        with pytest.raises(NotSupported):
            client.request.future(method, undeclared="refuse")
        with server.stats as stats:
            assert stats.requests == {"initialize": 1}


def test_the_gate_does_not_guess_about_servers_older_than_the_capability() -> None:
    script = [
        *s.handshake("2024-11-05", capabilities={}),
        s.expect("completion/complete"),
        s.reply({"completion": {"values": ["x"]}}),
    ]
    with Scripted(script) as peer, syncmcp.connect(peer, mode="2024-11-05") as client:
        found = client.complete(PromptReference(name="x"), "a", "b")
        assert found.completion.values == ["x"]


BROKEN: dict[str, tuple[Callable[[Client], object], dict[str, Any]]] = {
    "tools/list": (lambda client: client.list_tools(), {"tools": {"name": "x"}}),
    "tools/call": (lambda client: client.call_tool("x"), {"content": "text"}),
    "resources/list": (lambda client: client.list_resources(), {"resources": [{"name": 1}]}),
    "resources/read": (lambda client: client.read_resource("acme://a"), {"contents": 7}),
    "prompts/list": (lambda client: client.list_prompts(), {}),
    "prompts/get": (lambda client: client.get_prompt("x"), {"messages": [{"role": "nobody"}]}),
    "completion/complete": (
        lambda client: client.complete(PromptReference(name="x"), "a", "b"),
        {"completion": {"values": [1]}},
    ),
}


@pytest.mark.parametrize("method", BROKEN)
def test_a_result_of_the_wrong_shape_is_invalid_output(method: str) -> None:
    call, result = BROKEN[method]
    script = [*opening(), s.expect(method), s.reply(result)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(InvalidOutput) as caught:
            call(client)
        assert caught.value.method == method
        assert "Result" in str(caught.value)  # the model that it does not fit


@WIRES
@pytest.mark.parametrize("revision", [OLD, NEW])
@pytest.mark.parametrize("result", ["text", 7, [1], True])
def test_a_result_that_is_no_object_is_the_servers_mistake(
    result: object, revision: Mode, wire: str
) -> None:
    script = [*opening(revision), s.expect("tools/list"), s.reply(result)]
    with (
        Scripted(script) as peer,
        syncmcp.connect(peer.on(wire), mode=revision) as client,
        pytest.raises(ProtocolError),
    ):
        client.list_tools()


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
            with pytest.raises(UnsupportedSchema) as caught:
                client.call_tool("echo", {"a": 1})
            assert caught.value.result is not None
            assert caught.value.result.data == {"a": 1}
        with pytest.raises(BlockingIOError):
            trap.accept()  # nobody has come


@pytest.mark.requirement("RPC-15")
def test_a_result_that_does_not_say_its_kind_is_a_finished_one() -> None:
    script = [*opening(NEW), s.expect("tools/list"), s.reply(LISTED)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=NEW) as client:
        assert client.list_tools().tools[0].name == "a"


@pytest.mark.parametrize("kind", ["input_required", "task", "acme.example/other", 7, None])
@pytest.mark.requirement("RPC-16")
def test_a_result_of_an_unknown_kind_fails_the_call(kind: object) -> None:
    script = [*opening(NEW), s.expect("tools/list"), s.reply({**LISTED, "resultType": kind})]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=NEW) as client:
        with pytest.raises(ProtocolError) as caught:
            client.list_tools()
        assert caught.value.method == "tools/list"


def test_the_stateful_era_knows_no_kinds_of_result() -> None:
    script = [*opening(), s.expect("tools/list"), s.reply({**LISTED, "resultType": "whatever"})]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        assert client.list_tools().tools[0].name == "a"


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.requirement("RPC-20")
def test_meta_travels_both_ways_untouched(revision: Mode) -> None:
    # Reserved or not, known or not: a value may be anything.
    odd = {
        "acme.example/odd": [1, {"x": None}],
        "modelcontextprotocol.io/later": "?",
        "io.modelcontextprotocol/later": [None],
        "io.modelcontextprotocol/related-task": 7,
        "io.modelcontextprotocol/serverInfo": "nobody",
        "com.mcp.example/x": False,
    }
    result = {**LISTED, "_meta": odd, "resultType": "complete"}
    script = [*opening(revision), s.expect("tools/list"), s.reply(result)]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=revision) as client:
        ours = {"acme.example/trace": {"a": [1]}, "io.modelcontextprotocol/later": [{"b": None}]}
        answer = client.list_tools(cursor=None, meta=ours)
        assert answer.to_wire()["_meta"] == odd
        sent = peer.requests("tools/list")[0]["params"]["_meta"]
        assert {key: sent.get(key) for key in ours} == ours


@pytest.mark.parametrize("key", ["", "/x", "a b", "acme.example/-x", "1acme/x", "acme..x/y", "x/"])
@pytest.mark.requirement("RPC-21")
def test_a_bad_meta_key_is_refused_and_nothing_is_sent(key: str) -> None:
    server = offering()
    with syncmcp.connect(server) as client:
        if key == "x/":  # an empty name is allowed
            client.list_tools(meta={key: 1})
            return
        with pytest.raises(UsageError):
            client.list_tools(meta={key: 1})
        with server.stats as stats:
            assert stats.requests["tools/list"] == 0


@WIRES
@pytest.mark.requirement("RPC-11")
def test_text_of_any_script_survives_both_directions(wire: str) -> None:
    text = "żółw 亀 🐢 \u2028 \x00 \u00e9"
    script = [
        *opening(),
        s.expect("tools/call"),
        s.reply({"content": [{"type": "text", "text": text}]}),
    ]
    with Scripted(script) as peer, syncmcp.connect(peer.on(wire), mode=OLD) as client:
        assert client.call_tool("x", {"text": text}).text == text
        assert peer.requests("tools/call")[0]["params"]["arguments"] == {"text": text}


def test_what_json_cannot_say_is_refused_and_nothing_is_sent() -> None:
    server = offering()
    with syncmcp.connect(server) as client:
        for value in (float("nan"), object(), "\ud800"):
            with pytest.raises(UsageError):
                client.call_tool("add", {"a": value})
        with server.stats as stats:
            assert stats.requests["tools/call"] == 0


def test_an_unknown_option_is_a_type_error_as_for_any_function() -> None:
    with syncmcp.connect(offering()) as client:
        call: Any = client.call_tool
        with pytest.raises(TypeError, match="retries"):
            call("add", retries=3)
        with pytest.raises(TypeError, match="retries"):
            call.future("add", retries=3)
        with pytest.raises(TypeError):
            call()


def test_the_servers_error_keeps_code_message_and_data() -> None:
    server = Server("refuses")

    @server.tool()
    def refuse() -> str:
        raise RpcError(-31999, "not today", {"until": "tomorrow"})

    with syncmcp.connect(server) as client:
        with pytest.raises(ServerError) as caught:
            client.call_tool("refuse")
        assert (caught.value.code, caught.value.message) == (-31999, "not today")
        assert caught.value.data == {"until": "tomorrow"}
        assert caught.value.method == "tools/call"
