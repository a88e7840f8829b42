"""Batches at real servers: who answers them, and how the others refuse them."""

from __future__ import annotations

from typing import Final

import pytest

import syncmcp
from tests.system.peers.launch import client_of
from tests.system.peers.peers import (
    EVERYTHING,
    EVERYTHING_2025_03,
    FASTMCP,
    HTTP,
    HTTP_JSON,
    HTTP_SSE,
    MCP_1_9,
    MCP_1_12,
    OFFICIAL,
    OLD_HTTP,
    PEERS,
    TYPESCRIPT,
    Peer,
)
from tests.system.peers.test_peers import PATIENCE

pytestmark = pytest.mark.peer

BATCHING: Final = "2025-03-26"
COUNT = 3


@pytest.mark.parametrize(
    "peer", [TYPESCRIPT, EVERYTHING, EVERYTHING_2025_03], ids=lambda peer: peer.name
)
@pytest.mark.requirement("M-24", "RPC-12")
def test_a_frame_of_calls_is_answered(peer: Peer) -> None:
    with client_of(peer.programs[HTTP], mode=BATCHING) as client:
        with client.batch() as batch:
            call = peer.call
            calls = [batch.call_tool(call.tool, call.arguments) for _ in range(COUNT)]
            wrong = batch.request("acme/no-such-method")
            tools = batch.list_tools()
        for future in calls:
            assert call.text in future.result(PATIENCE).text
        assert isinstance(wrong.exception(PATIENCE), syncmcp.ServerError)
        assert call.tool in [tool.name for tool in tools.result(PATIENCE).tools]


REFUSING = [
    *((peer, HTTP_JSON) for peer in (MCP_1_9, MCP_1_12, OFFICIAL, FASTMCP)),
    (OFFICIAL, HTTP_SSE),
    *((peer, OLD_HTTP) for peer in PEERS if OLD_HTTP in peer.programs),
]


@pytest.mark.parametrize(
    ("peer", "wire"),
    [(peer, wire) for peer, wire in REFUSING if BATCHING in peer.revisions],
    ids=lambda value: getattr(value, "name", value),
)
@pytest.mark.requirement("M-24")
def test_who_knows_no_batches_refuses_every_call_and_goes_on(peer: Peer, wire: str) -> None:
    with client_of(peer.programs[wire], mode=BATCHING) as client:
        call = peer.call
        with client.batch() as batch:
            calls = [batch.call_tool(call.tool, call.arguments) for _ in range(COUNT)]
        errors = [future.exception(PATIENCE) for future in calls]
        assert {type(error) for error in errors} <= {syncmcp.HttpError, syncmcp.InvalidParams}
        assert len({id(error) for error in errors}) == COUNT
        alone = client.call_tool(call.tool, call.arguments, timeout=PATIENCE)
        assert call.text in alone.text
