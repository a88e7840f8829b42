"""Processes that share one login: each token is refreshed once, by whichever comes first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from syncmcp.auth import FileStore, OAuth
from tests.auth.authorization_server import Person, call, world

PEER = Path(__file__).with_name("signing_peer.py")
ROOT = Path(__file__).parents[2]
PROCESSES = 3


class Peer:
    """A running `signing_peer.py`."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen

    def say(self, command: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{command}\n")
        self.popen.stdin.flush()

    def line(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@contextmanager
def peer(url: str, path: Path, threads: int, offset: float = 0.0) -> Iterator[Peer]:
    command = [sys.executable, str(PEER), url, str(path), str(threads), str(offset)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as popen:
        try:
            yield Peer(popen)
        finally:
            popen.kill()


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
        peers = [stack.enter_context(peer(resource.url, path, threads, off)) for off in offsets]
        assert [one.line() for one in peers] == ["ready"] * PROCESSES

        def all_call(callers: list[Peer]) -> None:
            for one in callers:
                one.say("call")
            for one in callers:
                assert json.loads(one.line()) == {"200": threads}

        server.expires_in = 20  # not long, by any of the clocks
        for count in range(1, expiries + 1):
            server.expire()
            all_call(peers)
            assert len(server.grants("refresh_token")) == count
        victim, *others = peers
        victim.say("hold")
        assert victim.line() == "held"
        server.expire()
        for one in others:
            one.say("call")
        victim.popen.kill()
        for one in others:
            assert json.loads(one.line()) == {"200": threads}
        assert len(server.grants("refresh_token")) == expiries + 1
        assert (server.reused, len(server.authorizations)) == (0, 1)
