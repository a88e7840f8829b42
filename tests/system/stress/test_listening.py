"""Ten thousand subscriptions, one after another and beside each other."""

from __future__ import annotations

import gc
import tracemalloc

import pytest

import syncmcp
from syncmcp.testing import Server
from tests.client.test_listening import held, let_go, shop, updated
from tests.support.stage import PATIENCE, WIRES, Wire, in_threads

pytestmark = pytest.mark.stress

CYCLES = {"memory": 10_000, "stdio": 2_500, "http": 2_500, "sse": 2_500}
THREADS = 4


def cycle(client: syncmcp.Client, server: Server, uri: str, cycles: int) -> None:
    for number in range(cycles):
        events = client.listen(tools=True, uris=[uri], timeout=PATIENCE)
        server.resource_updated(uri)
        assert next(events) == updated(uri)
        if number % 2:
            events.close()


@pytest.mark.requirement("M-12")
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_after_ten_thousand_cycles_neither_side_holds_anything(wire: Wire) -> None:
    server = shop()
    count = CYCLES[wire.transport]
    with wire.connect(server) as client:
        cycle(client, server, "a:1", 200)
        gc.collect()
        tracemalloc.start()
        try:
            before = tracemalloc.take_snapshot()
            cycle(client, server, "a:1", count)
            assert let_go(server)
            client.listen(uris=["a:1"]).close()
            server.stats.cancels.clear()  # a record of everything, kept on purpose
            gc.collect()
            grown = sum(
                line.size_diff for line in tracemalloc.take_snapshot().compare_to(before, "lineno")
            )
        finally:
            tracemalloc.stop()
        assert grown < 500_000, f"{grown} bytes after {count} cycles"
        assert let_go(server)
        assert client._core.session_state.listeners == []
        assert len(client._core.session_state.resources) == 0
        assert client._core.connection is not None
        assert client._core.connection._table.open_calls() == []


@pytest.mark.requirement("M-12")
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_threads_that_come_and_go_share_what_they_listen_to(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        jobs = [
            lambda uri=uri: cycle(client, server, uri, 150)
            for uri in ("a:1", "a:2")
            for _ in range(THREADS // 2)
        ]
        assert in_threads(*jobs, patience=30 * PATIENCE) == [None] * THREADS
        assert let_go(server)
        assert held(server) == 0
