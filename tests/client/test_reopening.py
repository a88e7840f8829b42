"""A server that ends what it has just begun is opened for listeners less and less often."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

import syncmcp
from syncmcp._client.core import ClientCore
from syncmcp._http.exchange import AbortableExchange
from syncmcp.testing import script
from tests.client.test_listening_lost import LISTEN, acknowledge, opening
from tests.support.scripts import NEW, Scripted
from tests.support.session_server import session_server
from tests.support.stage import PATIENCE
from tests.transports.http_peer import Request, serving
from tests.transports.old_peer import OldServer, connected

ENOUGH = 8


class Pauses:
    """The pauses of a client in the background: none is made, until there are enough."""

    def __init__(self) -> None:
        self.made: list[float] = []
        self.enough = threading.Event()
        self.over = threading.Event()

    def sleep(self, seconds: float, *_: Any) -> None:
        self.made.append(seconds)
        if len(self.made) >= ENOUGH:
            self.enough.set()
            assert self.over.wait(PATIENCE)

    def assert_grow(self) -> None:
        assert self.made[0] == 0  # a healthy server is opened again at once
        assert all(later > pause for pause, later in pairwise(self.made[:5]))
        assert max(self.made) <= 10
        assert self.made[ENOUGH - 1] == 10


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pauses]:
    made = Pauses()
    monkeypatch.setattr(ClientCore, "sleep", made.sleep)
    monkeypatch.setattr(
        AbortableExchange, "sleep", lambda exchange, _: exchange.wait(threading.Event(), 0.001)
    )
    yield made
    made.over.set()


def test_a_session_that_is_forgotten_at_once(pauses: Pauses) -> None:
    """Until 2025-11-25: its stream opens, ends, and is not known any more."""

    def forget(one: Request) -> bool:
        if one.method != "GET":
            return False
        session = one.headers["mcp-session-id"]
        if session in opened:
            one.connection.respond(404)
        else:
            opened.add(session)
            one.connection.start_events()
            one.connection.chunk(b"retry: 0\n\n")
            one.connection.close()
        return True

    opened: set[str] = set()
    with session_server() as server:
        server.capabilities = {"tools": {"listChanged": True}}
        server.before = forget
        with syncmcp.connect(server.url, mode="2025-11-25") as client:
            with client.listen(tools=True):
                assert pauses.enough.wait(PATIENCE)
            pauses.over.set()
    pauses.assert_grow()


def test_a_subscription_that_is_accepted_and_broken_off(pauses: Pauses) -> None:
    """2026-07-28: the server accepts each request for changes, and ends its stream."""
    accepted = [script.expect(LISTEN), acknowledge(), script.cut()]
    steps = [*opening(), *accepted * (ENOUGH + 2)]
    with Scripted(steps) as peer, syncmcp.connect(peer.url, mode=NEW) as client:
        with client.listen(tools=True):
            assert pauses.enough.wait(PATIENCE)
        pauses.over.set()
    pauses.assert_grow()


def test_an_event_stream_that_ends_after_the_handshake(
    pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP+SSE."""

    class Old(OldServer):
        def take(self, request: Request) -> None:
            super().take(request)
            if request.message.get("method") == "ping":
                self.tell({"id": request.id, "result": {}})

    def reopen(core: ClientCore, pause: float) -> None:
        reopened(core, pause)
        old.streams[-1].close()

    reopened, old = ClientCore._reopen, Old()
    monkeypatch.setattr(ClientCore, "_reopen", reopen)
    with serving(old) as old.server, connected(old, undeclared="try") as client:
        with client.listen(tools=True):
            old.streams[-1].close()
            assert pauses.enough.wait(PATIENCE)
        pauses.over.set()
    pauses.assert_grow()
