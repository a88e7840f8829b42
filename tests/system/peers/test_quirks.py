"""What single peers do that a client has to live with."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
import requests

import syncmcp
from syncmcp import Elicitation
from syncmcp.types import ElicitResult
from tests.system.peers.answers import AGREEABLE, PLACES
from tests.system.peers.launch import http_server
from tests.system.peers.peers import (
    EVERYTHING,
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
from tests.system.peers.test_peers import PATIENCE, ask, ask_until_it_says_so, start_waiting

if TYPE_CHECKING:
    from syncmcp import HandlerContext
    from syncmcp.types import ElicitRequestURLParams

pytestmark = pytest.mark.peer


def stdio(peer: Peer, stderr: list[str]) -> syncmcp.Stdio:
    """The peer as a child process whose stderr is kept."""
    return syncmcp.Stdio(*peer.programs[STDIO].ready().command, cwd=ROOT, stderr=stderr.append)


class Sent:
    """Notes what a client has sent."""

    def __init__(self) -> None:
        self.methods: list[str] = []

    def outgoing(self, message: syncmcp.Message) -> None:
        self.methods.append(message.method)

    def incoming(self, message: syncmcp.Message) -> None:
        pass

    def ended(self, answer: syncmcp.Message) -> None:
        pass


@pytest.mark.pitfall("18")
@pytest.mark.requirement("VER-14", "VER-16")
def test_a_server_that_dies_of_the_probe_is_reached_all_the_same() -> None:
    stderr: list[str] = []
    sent = Sent()
    options: dict[str, Any] = {"mode": "auto", "interceptors": [sent]}
    with syncmcp.connect(stdio(MCP_1_8, stderr), **options) as client:
        assert client.server.revision == "2024-11-05"
        assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text
    assert any("Traceback" in line for line in stderr), "it did not die: this shows nothing"
    opening = ["initialize", "notifications/initialized", "tools/call"]
    assert sent.methods == ["server/discover", "server/discover", *opening]

    sent.methods.clear()
    with syncmcp.connect(stdio(MCP_1_8, stderr), **options) as client:
        assert MCP_1_8.call.text in ask(client, MCP_1_8.call).text
    assert sent.methods == opening


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


@pytest.mark.requirement("M-03", "ROOT-03")
@pytest.mark.parametrize("peer", [EVERYTHING, FILESYSTEM], ids=lambda peer: peer.name)
def test_a_server_learns_of_a_root_added_later(peer: Peer) -> None:
    first, second = PLACES
    question = peer.questions["roots"]
    with syncmcp.connect(stdio(peer, []), roots=[first]) as client:
        ask_until_it_says_so(client, Call(question.tool, {}, str(first)))
        assert question.text not in ask(client, question).text
        client.roots.add(second)
        ask_until_it_says_so(client, question)


@pytest.mark.requirement("M-07", "ELI-18")
def test_a_call_that_a_person_has_to_visit_a_url_for_is_made_again() -> None:
    visited: list[str] = []

    def visit(request: ElicitRequestURLParams, context: HandlerContext) -> ElicitResult:
        visited.append(request.url)
        # This server never tells that a visit is over.
        context.completed()
        return ElicitResult.accept()

    call = Call("trigger-url-elicitation", {"url": AGREEABLE, "errorPath": True}, "completed the")
    with syncmcp.connect(stdio(EVERYTHING, []), elicitation=Elicitation(url=visit)) as client:
        assert call.text in ask(client, call).text
    # The error names a URL of its own; the call that is made again asks for the one it was given.
    assert visited == ["https://modelcontextprotocol.io", AGREEABLE]
