"""Fixtures: a server to which each test adds its own tools, and connections to that server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from syncmcp.testing import Server
from tests.testing.talks import EVERYTHING, Open, Talk
from tests.testing.wires import Memory


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()
    assert server.stats.wait_for(lambda seen: (seen.running, seen.paused) == (0, 0))


@pytest.fixture
def talk(server: Server) -> Iterator[Open]:
    with ExitStack() as stack:

        def start(revision: str, capabilities: Any = EVERYTHING) -> Talk:
            return Talk(stack.enter_context(Memory(server)), revision, capabilities)

        yield start


@pytest.fixture
def line(server: Server) -> Iterator[Memory]:
    with Memory(server) as line:
        yield line
