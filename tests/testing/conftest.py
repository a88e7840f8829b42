"""A server that each test gives its tools, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from syncmcp.testing import Server, serve_http
from tests.testing.talks import EVERYTHING, Open, Talk
from tests.testing.wires import Http, Memory


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
    assert server.stats.wait_for(lambda seen: (seen.running, seen.paused) == (0, 0))


@pytest.fixture(params=["memory", "http"])
def talk(request: pytest.FixtureRequest, server: Server) -> Iterator[Open]:
    with ExitStack() as stack:

        def start(revision: str, capabilities: Any = EVERYTHING) -> Talk:
            wire: Memory | Http
            if request.param == "memory":
                wire = Memory(server)
            else:
                wire = Http(stack.enter_context(serve_http(server)).url)
            stack.callback(wire.close)
            return Talk(wire, revision, capabilities)

        yield start


@pytest.fixture
def line(server: Server) -> Iterator[Memory]:
    line = Memory(server)
    yield line
    line.close()
