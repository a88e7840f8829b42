"""A connection that is watched with pings ends when two of them in a row have no answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import ClosedError, ConnectionLost, OutcomeUnknown, RequestTimeout
from syncmcp.testing import Server
from tests.support.moved_time import MovedTime
from tests.support.session_server import SessionServer, on, refuse, session_server
from tests.support.shops import known
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, Wire, rotated_stateful
from tests.transports.http_peer import Request

MODE: Any = STATEFUL
INTERVAL = 600.0
PATIENT: dict[str, Any] = {"ping_interval": INTERVAL, "timeout": None, "idle_timeout": None}

pytestmark = pytest.mark.requirement("RPC-25")

silent = on(b'"ping"', act=lambda one: None)
"""Answers no ping."""


class Pings:
    """The pings of a client, which come when the test says so.

    Attributes:
        sent: How many came to the server.
    """

    def __init__(self, client: syncmcp.Client, moved: MovedTime, count: Callable[[], int]) -> None:
        self.sent = 0
        self._client, self._moved, self._count = client, moved, count
        self._last: object = None

    def send(self) -> None:
        """Let the interval pass, and wait until the server has the next ping."""
        self._moved.waits_for(INTERVAL)
        self._last = self._entry()
        self._moved.advance(INTERVAL)
        self.sent += 1
        known(lambda: self._count() == self.sent)

    def answered(self) -> None:
        """One with an answer, after which the next one is due in an interval."""
        self.send()
        known(lambda: self._entry() is not self._last)

    def missed(self) -> None:
        """One whose answer does not come within an interval."""
        self.send()
        self._moved.waits_for(INTERVAL)
        self._moved.advance(INTERVAL)

    def _entry(self) -> object:
        heartbeat = self._client._core._heartbeat
        return heartbeat and heartbeat._entry


def watched(server: SessionServer, **options: Any) -> syncmcp.Client:
    return syncmcp.connect(server.url, mode=MODE, **PATIENT, **options)


@rotated_stateful
def test_a_ping_is_sent_in_each_interval_until_the_close(wire: Wire, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server, **PATIENT) as client:
        pings = Pings(client, moved, lambda: stage.stats.requests["ping"])
        for _ in range(3):
            pings.answered()
        heartbeat = client._core._heartbeat
        assert heartbeat is not None
        client.close()
        moved.advance(10 * INTERVAL)
        heartbeat._check()  # as if one had been due at that very moment
        assert stage.stats.requests["ping"] == 3


@pytest.mark.parametrize(
    "options",
    [{"mode": STATEFUL}, {"mode": STATELESS, "ping_interval": INTERVAL}],
    ids=["not asked for", "an era without pings"],
)
def test_no_pings_are_sent(options: Any, moved: MovedTime) -> None:
    server = Server()
    with syncmcp.connect(server, **options) as client:
        assert client._core._heartbeat is None
        moved.advance(10 * INTERVAL)
        assert server.stats.requests["ping"] == 0


@pytest.mark.pitfall("5")
def test_two_misses_in_a_row_end_every_call(
    moved: MovedTime, caplog: pytest.LogCaptureFixture
) -> None:
    def hold(one: Request) -> bool:
        return b'"slow"' in one.body or b'"a:slow"' in one.body or silent(one)

    with session_server() as server:
        server.before = hold
        with watched(server, retry=None) as client:
            pings = Pings(client, moved, lambda: server.count("ping"))
            tool = client.call_tool.future("slow")
            read = client.read_resource.future("a:slow")
            for method in ("tools/call", "resources/read"):  # else it was not sent
                server.wait_for(lambda method=method: server.count(method) == 1)  # type: ignore[misc]
            pings.missed()
            assert not tool.done()
            pings.missed()
            assert isinstance(tool.exception(PATIENCE), OutcomeUnknown)
            error = read.exception(PATIENCE)
            assert type(error) is ConnectionLost
            assert "ping_interval" in str(error)
            assert caplog.text.count("no answer to a ping") == 2
            server.before = lambda one: False
            assert client.call_tool("fast").text == "session-2"
            pings.answered()  # of the new connection


def test_an_answer_forgives_the_miss_before(
    moved: MovedTime, caplog: pytest.LogCaptureFixture
) -> None:
    with session_server() as server, watched(server) as client:
        pings = Pings(client, moved, lambda: server.count("ping"))
        server.before = silent
        pings.missed()
        server.before = lambda one: False
        pings.answered()
        server.before = silent
        pings.missed()
        moved.waits_for(INTERVAL)  # for the next one
        assert client.call_tool("pid").text == "session-1"
        assert caplog.text.count("no answer to a ping (1)") == 2


@pytest.mark.pitfall("15")
def test_a_refusal_of_a_ping_is_an_answer_and_a_lost_session_begun_again(moved: MovedTime) -> None:
    with session_server() as server, watched(server) as client:
        pings = Pings(client, moved, lambda: server.count("ping"))
        server.before = on(b'"ping"', act=refuse)
        for _ in range(3):
            pings.answered()
        assert client.call_tool("pid").text == "session-1"
        server.before = lambda one: False
        server.forget()
        pings.send()
        known(lambda: server.count("initialize") == 2)
        assert client.call_tool("pid").text == "session-2"


@pytest.mark.pitfall("4")
def test_a_ping_waits_in_no_line_and_is_no_sign_of_life_of_a_call(moved: MovedTime) -> None:
    reported, stage = threading.Event(), Stage()
    with syncmcp.connect(stage.server, mode=MODE, max_in_flight=1, **PATIENT) as client:
        pings = Pings(client, moved, lambda: stage.stats.requests["ping"])
        future = client.call_tool.future(
            "hold",
            {"key": "a"},
            idle_timeout=2.5 * INTERVAL,
            on_progress=lambda *_: reported.set(),
        )
        [context] = stage.inside("a")
        context.report_progress(1)
        assert reported.wait(PATIENCE)
        for _ in range(2):
            pings.answered()
        assert not future.done()
        moved.advance(0.5 * INTERVAL)
        error = future.exception(PATIENCE)
        assert isinstance(error, RequestTimeout)
        assert error.kind == "idle"


def test_closing_ends_a_ping_under_way(moved: MovedTime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.connection")
    with session_server() as server:
        server.before = silent
        client = watched(server)
        Pings(client, moved, lambda: server.count("ping")).send()
        client.close()
        with pytest.raises(ClosedError):
            client.ping()
        moved.advance(10 * INTERVAL)
        assert server.count("ping") == 1
    assert "no answer" not in caplog.text
