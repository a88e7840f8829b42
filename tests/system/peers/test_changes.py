"""Change events of real servers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

import syncmcp
from syncmcp import ChangeEvent
from tests.system.peers.launch import http_server
from tests.system.peers.peers import EVERYTHING, HTTP, ROOT, STDIO, Program, Row

if TYPE_CHECKING:
    from tests.system.peers.conftest import Peers

pytestmark = pytest.mark.peer

PATIENCE = 30.0
FRUIT = "stock://fruit"
TEXT = "demo://resource/dynamic/text/1"
CHANGING = (sys.executable, "-m", "tests.system.peers.servers.changing")


@pytest.fixture(scope="module", params=[STDIO, HTTP])
def everything(request: pytest.FixtureRequest, peers: Peers) -> syncmcp.Stdio | str:
    """What to open a client on; a server that listens runs from here on."""
    return peers.target(Row(EVERYTHING, request.param, "auto"))


@pytest.mark.requirement("M-12")
def test_server_everything_tells_of_a_resource_until_nobody_listens(
    everything: syncmcp.Stdio | str,
) -> None:
    with syncmcp.connect(everything) as client:
        with client.listen(uris=[TEXT], timeout=PATIENCE, stop_after=1) as events:
            client.call_tool("toggle-subscriber-updates")
            assert list(events) == [ChangeEvent("resource", TEXT)]
        client.call_tool("toggle-subscriber-updates")


@pytest.mark.requirement("SUB-01")
def test_the_official_sdk_tells_of_changes_over_stdio() -> None:
    with syncmcp.connect(syncmcp.Stdio(*CHANGING, "stdio", cwd=ROOT)) as client:
        listens_and_stirs(client)


@pytest.mark.requirement("SUB-01")
def test_the_official_sdk_tells_of_changes_over_http() -> None:
    with (
        http_server(Program((*CHANGING, "{port}"))) as server,
        syncmcp.connect(server.url) as client,
    ):
        listens_and_stirs(client)


def listens_and_stirs(client: syncmcp.Client) -> None:
    assert client.server.revision == "2026-07-28"
    with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
        assert (events.lists, events.uris) == (("tools",), (FRUIT,))
        assert client.call_tool("stir").text == "stirred"
        assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
    with client.listen(uris=[FRUIT], timeout=PATIENCE) as events:
        client.call_tool("stir")
        assert next(events) == ChangeEvent("resource", FRUIT)
