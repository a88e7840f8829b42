"""Processes that share one login: each token is refreshed once, by whichever comes first."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from syncmcp.auth import FileStore, OAuth
from tests.auth.authorization_server import Person, call, world
from tests.auth.peers import Peer, peer

PROCESSES = 3


@pytest.mark.pitfall("17")
@pytest.mark.parametrize(
    ("threads", "expiries"), [(4, 2), pytest.param(32, 20, marks=pytest.mark.stress)]
)
def test_each_expiry_leads_to_one_refresh_over_all_processes(
    tmp_path: Path, threads: int, expiries: int
) -> None:
    path = tmp_path / "tokens.json"
    with world() as resource, ExitStack() as stack:
        server = resource.authorization_server
        assert call(resource, OAuth(receiver=Person(), store=FileStore(path))).status_code == 200
        # One has a clock that is a minute ahead, and another one's is a minute behind.
        offsets = (0.0, 60.0, -60.0)
        peers = [
            stack.enter_context(peer("login", resource.url, path, threads, off))
            for off in offsets
        ]
        assert [one.heard() for one in peers] == ["ready"] * PROCESSES

        def all_call(callers: list[Peer]) -> None:
            for one in callers:
                one.tell("call")
            for one in callers:
                assert json.loads(one.heard()) == {"200": threads}

        server.expires_in = 20  # not long, by any of the clocks
        for count in range(1, expiries + 1):
            server.expire()
            all_call(peers)
            assert len(server.grants("refresh_token")) == count
        victim, *others = peers
        victim.tell("hold")
        assert victim.heard() == "held"
        server.expire()
        for one in others:
            one.tell("call")
        victim.popen.kill()
        for one in others:
            assert json.loads(one.heard()) == {"200": threads}
        assert len(server.grants("refresh_token")) == expiries + 1
        assert (server.reused, len(server.authorizations)) == (0, 1)
