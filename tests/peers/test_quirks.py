"""What single peers do that a client has to live with."""

from __future__ import annotations

import uuid

import pytest
import requests

import syncmcp
from tests.peers.launch import http_server
from tests.peers.peers import (
    FILES,
    FILESYSTEM,
    HTTP_JSON,
    MCP_1_8,
    MCP_1_9,
    ROOT,
    STDIO,
    Call,
    Peer,
)
from tests.peers.test_peers import PATIENCE, ask, start_waiting

pytestmark = pytest.mark.peer


def stdio(peer: Peer, stderr: list[str]) -> syncmcp.Stdio:
    """The peer as a child process whose stderr is kept."""
    return syncmcp.Stdio(*peer.programs[STDIO].ready().command, cwd=ROOT, stderr=stderr.append)


@pytest.mark.pitfall("18")
def test_a_server_that_dies_of_the_probe_is_reached_all_the_same() -> None:
    stderr: list[str] = []
    with syncmcp.connect(stdio(MCP_1_8, stderr), mode="auto", probe_timeout=3.0) as client:
        assert client.server.revision == "2024-11-05"
        assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text
    assert any("Traceback" in line for line in stderr), "it did not die: this shows nothing"


def test_an_endpoint_that_redirects_to_itself_with_a_slash_is_followed() -> None:
    with http_server(MCP_1_8.programs[HTTP_JSON]) as server:
        answer = requests.post(server.url, json={}, timeout=PATIENCE, allow_redirects=False)
        assert (answer.status_code, answer.headers["Location"]) == (307, f"{server.url}/")
        with syncmcp.connect(server.url) as client:
            assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text


@pytest.mark.requirement("STD-07")
def test_a_server_that_dies_of_a_cancel_is_started_again_by_a_later_call() -> None:
    stderr: list[str] = []
    with syncmcp.connect(stdio(MCP_1_9, stderr), mode="legacy") as client:
        future = start_waiting(MCP_1_9, client, uuid.uuid4().hex)
        assert future.cancel()
        # The dying server may still take a request, and a new one may be there for it already.
        between = client.call_tool.future("started", {"nonce": "unknown"}, timeout=PATIENCE)
        assert isinstance(between.exception(PATIENCE), syncmcp.ConnectionLost | None)
        assert MCP_1_9.call.text in ask(client, MCP_1_9.call).text
    assert any("Traceback" in line for line in stderr), "it did not die: this shows nothing"


def test_a_server_that_would_ask_for_roots_keeps_the_directories_of_its_command_line() -> None:
    with syncmcp.connect(stdio(FILESYSTEM, [])) as client:
        answer = ask(client, Call("list_allowed_directories", {}, ""))
        assert str(FILES) in answer.text
