"""The examples of the TypeScript SDK that speak HTTP+SSE, alone or beside Streamable HTTP."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

import syncmcp
from tests.system.peers.launch import http_server
from tests.system.peers.peers import MCP_1_12, OLD_HTTP, PEERS, SERVERS, Call, Peer, Program
from tests.system.peers.setup_peers import NODE_MODULES
from tests.system.peers.test_peers import PATIENCE, ask, start_waiting

if TYPE_CHECKING:
    from syncmcp.types import LoggingMessageNotificationParams

pytestmark = pytest.mark.peer

_EXAMPLES = NODE_MODULES / "@modelcontextprotocol" / "sdk" / "dist" / "esm" / "examples" / "server"


def example(script: str) -> Program:
    """An example, on a port of our choice."""
    loader = str(SERVERS / "on_port.mjs")
    command = ("{node}", "--import", loader, str(_EXAMPLES / script))
    return Program(command, {"PORT": "{port}"}, path="")


@pytest.mark.parametrize(
    ("script", "path", "opened"),
    [
        ("simpleSseServer.js", "/mcp", "GET request to /sse"),
        ("sseAndStreamableHttpCompatibleServer.js", "/sse", "GET request to /sse"),
        ("sseAndStreamableHttpCompatibleServer.js", "/mcp", "POST request to /mcp"),
    ],
)
@pytest.mark.requirement("HTL-16", "SSE-01", "SSE-02")
@pytest.mark.pitfall("18")
def test_the_transport_of_a_url_is_found_out(script: str, path: str, opened: str) -> None:
    told: list[LoggingMessageNotificationParams] = []
    with http_server(example(script)) as server:
        with syncmcp.connect(server.url + path, on_log=told.append) as client:
            assert [tool.name for tool in client.list_tools().tools] == [
                "start-notification-stream"
            ]
            arguments = {"interval": 10, "count": 3}
            answer = client.call_tool("start-notification-stream", arguments, timeout=PATIENCE)
            assert "notifications every 10ms" in answer.text
            assert told
        assert opened in server.output()


def test_by_option_no_post_goes_to_the_stream() -> None:
    with http_server(example("simpleSseServer.js")) as server:
        target = syncmcp.Http(server.url + "/mcp", transport="sse")
        with syncmcp.connect(target) as client:
            assert client.list_tools().tools
        assert "GET request to /sse" in server.output()
        assert "POST request to /mcp" not in server.output()


def _over_old_http(name: str) -> Peer:
    [peer] = [one for one in PEERS if one.name == name and OLD_HTTP in one.programs]
    return peer


@pytest.mark.requirement("SSE-02")
def test_a_server_that_dies_ends_its_calls() -> None:
    peer = _over_old_http(MCP_1_12.name)
    with http_server(peer.programs[OLD_HTTP]) as first:
        client = syncmcp.Client(first.url, retry=None)
        with client:
            future = start_waiting(peer, client, uuid.uuid4().hex)
            first.stop()
            error = future.exception(PATIENCE)
            assert isinstance(error, syncmcp.ConnectionLost)
            assert error.delivery == "unknown"
            with pytest.raises(syncmcp.TransportError):
                ask(client, Call("add", {"a": 1, "b": 1}, ""))
