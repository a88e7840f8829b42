"""Change events of real servers."""

from __future__ import annotations

import pytest

from syncmcp import ChangeEvent
from tests.system.peers.launch import client_of
from tests.system.peers.peers import EVERYTHING, HTTP, STDIO, own_server

pytestmark = pytest.mark.peer

PATIENCE = 30.0
FRUIT = "stock://fruit"
TEXT = "demo://resource/dynamic/text/1"


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("M-12")
def test_server_everything_tells_of_a_resource_until_nobody_listens(transport: str) -> None:
    with client_of(EVERYTHING.programs[transport]) as client:
        with client.listen(uris=[TEXT], timeout=PATIENCE, stop_after=1) as events:
            client.call_tool("toggle-subscriber-updates")
            assert list(events) == [ChangeEvent("resource", TEXT)]
        client.call_tool("toggle-subscriber-updates")


@pytest.mark.parametrize("transport", [STDIO, HTTP])
@pytest.mark.requirement("SUB-01")
def test_the_official_sdk_tells_of_changes(transport: str) -> None:
    with client_of(own_server("changing")[transport]) as client:
        assert client.server.revision == "2026-07-28"
        with client.listen(tools=True, uris=[FRUIT], timeout=PATIENCE, stop_after=2) as events:
            assert (events.lists, events.uris) == (("tools",), (FRUIT,))
            assert client.call_tool("stir").text == "stirred"
            assert list(events) == [ChangeEvent("tools"), ChangeEvent("resource", FRUIT)]
        with client.listen(uris=[FRUIT], timeout=PATIENCE) as events:
            client.call_tool("stir")
            assert next(events) == ChangeEvent("resource", FRUIT)
