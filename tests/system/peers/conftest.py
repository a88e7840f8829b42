"""Fixtures of real servers; each server that listens on a port is started once."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

import syncmcp
from tests.system.peers.launch import HttpServer, http_server
from tests.system.peers.peers import ROOT, STDIO, Row

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


class Peers:
    """Gives the target for each row; starts its server, unless the client does."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, HttpServer] = {}

    def target(self, row: Row) -> syncmcp.Stdio | str:
        """Return the target of a client for this row."""
        program = row.peer.programs[row.transport]
        if row.transport == STDIO:
            program = program.ready()
            return syncmcp.Stdio(*program.command, cwd=ROOT, env=program.env)
        key = f"{row.peer.name}, {row.transport}"
        if row.peer.one_session:
            key += f", {row.mode}"
        if key not in self._running:
            self._running[key] = self._stack.enter_context(http_server(program))
        return self._running[key].url

    def output(self) -> str:
        """Return the output of the running servers."""
        return "\n".join(f"{key}:\n{server.output()}" for key, server in self._running.items())


@pytest.fixture(scope="session")
def peers() -> Iterator[Peers]:
    """Provide the servers; each is started when it is first needed."""
    with ExitStack() as stack:
        yield Peers(stack)


@pytest.fixture(scope="module")
def target(row: Row, peers: Peers) -> syncmcp.Stdio | str:
    """Return the target of a client for a row; start its server if it listens on a port."""
    return peers.target(row)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the output of the servers to the report of a failed test."""
    report = yield
    running = getattr(item, "funcargs", {}).get("peers")
    if report.failed and isinstance(running, Peers):
        report.sections.append(("what the servers wrote", running.output()[-20_000:]))
    return report
