"""What is refused before it is sent, and what becomes of results, good and bad ones."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, InvalidOutput, Mode, NotSupported, ResourceNotFound, ServerError
from syncmcp.testing import Server
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


@pytest.mark.requirement("RES-01", "RPC-18")
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        *((code, ResourceNotFound) for code in (-32002, -32602)),  # of both eras
        *((code, ServerError) for code in (-32000, -32001, -32003, -32019, -31999)),
    ],
)
def test_the_servers_error_keeps_code_message_and_data(code: int, kind: type[ServerError]) -> None:
    script = [*opening(), s.expect("resources/read"), s.error(code, "gone", {"uri": "acme://x"})]
    with Scripted(script) as peer, syncmcp.connect(peer, mode=OLD) as client:
        with pytest.raises(ServerError) as caught:
            client.read_resource("acme://x")
        assert type(caught.value) is kind
        assert (caught.value.code, caught.value.message) == (code, "gone")
        assert caught.value.data == {"uri": "acme://x"}
        assert caught.value.method == "resources/read"


@pytest.mark.requirement("RPC-23")
def test_errors_of_our_own_making_have_no_code() -> None:
    with syncmcp.connect(offering(), mode=NEW) as client:
        with pytest.raises(NotSupported) as caught:
            client.ping()
        assert not hasattr(caught.value, "code")
        with pytest.raises(syncmcp.RequestTimeout) as late:
            client.call_tool("add", {"a": 1, "b": 2}, timeout=0)
        assert not hasattr(late.value, "code")


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
            trap.accept()  # nobody has come


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
