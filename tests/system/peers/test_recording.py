"""Sessions with real servers are recorded, and played with the same result."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import syncmcp
from syncmcp.testing import Recording, Replay
from tests.system.peers.answers import ANSWERS
from tests.system.peers.peers import EVERYTHING, HTTP, HTTP_SSE, OFFICIAL, STDIO, Row

if TYPE_CHECKING:
    from pathlib import Path

    from tests.system.peers.conftest import Peers

pytestmark = pytest.mark.peer

ROWS = [
    Row(OFFICIAL, STDIO, "2025-11-25"),
    Row(OFFICIAL, STDIO, "2026-07-28"),
    Row(OFFICIAL, HTTP_SSE, "2025-11-25"),
    Row(OFFICIAL, HTTP_SSE, "2026-07-28"),
    Row(EVERYTHING, STDIO, "2025-11-25"),
    Row(EVERYTHING, HTTP, "2025-11-25"),
]


def talk(target: Any, row: Row) -> list[Any]:
    """A conversation that has lists, calls, progress and questions in it."""
    seen: list[Any] = []
    peer = row.peer
    assert peer.progress
    with syncmcp.connect(target, mode=row.mode, **ANSWERS) as client:
        seen.append(client.server.revision)
        seen.append([tool.name for tool in client.list_tools().tools])
        seen.append([str(resource.uri) for resource in client.list_resources().resources])
        seen.append(client.call_tool(peer.call.tool, peer.call.arguments).text)
        steps: list[float] = []
        call = client.call_tool(
            peer.progress.tool,
            peer.progress.arguments,
            on_progress=lambda step, *_: steps.append(step),
        )
        seen += [call.text, steps]
        for cell, question in peer.questions.items():
            # The address of a link is masked, and so nobody consents to it any more.
            if cell != "url" and not row.limit(cell):
                seen.append(client.call_tool(question.tool, question.arguments).text)
    return seen


@pytest.fixture(scope="module")
def target(row: Row, peers: Peers) -> syncmcp.Stdio | str:
    """What to record; a server that listens runs from here on."""
    return peers.target(row)


@pytest.mark.parametrize("row", ROWS, ids=str, scope="module")
def test_a_session_with_a_real_server_is_the_same_without_it(
    row: Row, target: syncmcp.Stdio | str, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    seen = talk(Recording(target, path), row)
    assert len(seen) > 7
    recording = Replay(path)
    assert talk(recording, row) == seen
    assert recording.unplayed == []
    assert recording.unexpected == []
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert {"sent", "got", "closed"} <= {kind for line in lines for kind in line}
