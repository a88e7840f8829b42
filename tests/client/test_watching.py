"""A connection that is watched with pings ends when two of them in a row have no answer."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import syncmcp
from syncmcp import ClosedError, ConnectionLost, Http, OutcomeUnknown, RequestTimeout
from syncmcp.testing import Server
from tests.support.session_server import SessionServer, on, refuse, session_server
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, Wire, stateful_wires
from tests.transports.http_peer import Request

MODE: Any = STATEFUL

# Long enough for an answer that comes, short enough to wait for one that does not.
INTERVAL = 5.0
SHORT = 0.05


class FakeTimer:
    """A clock whose appointments a test keeps when it likes."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.entries: list[FakeEntry] = []

    def after(self, seconds: float, action: Callable[[], object]) -> FakeEntry:
        with self.changed:
            entry = FakeEntry(seconds, action)
            self.entries.append(entry)
            self.changed.notify_all()
            return entry

    def next(self, number: int) -> FakeEntry:
        """Wait for this appointment, counted from one; return it."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.entries) >= number, PATIENCE)
            return self.entries[number - 1]

    def start(self) -> None:
        """There is no thread to be started."""

    def ring(self, number: int) -> None:
        """Keep this appointment, on this thread, as the timer would on its own."""
        entry = self.next(number)
        assert not entry.cancelled
        entry.action()


class FakeEntry:
    def __init__(self, seconds: float, action: Callable[[], object]) -> None:
        self.seconds = seconds
        self.action = action
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTimer:
    """The clock of pings."""
    timer = FakeTimer()
    monkeypatch.setattr("syncmcp._client.lifetime.timer", timer)
    return timer


silent = on(b'"ping"', act=lambda one: None)
"""Answers no ping."""


def watched(server: SessionServer, interval: float = INTERVAL, **options: Any) -> syncmcp.Client:
    return syncmcp.connect(server.url, mode=MODE, ping_interval=interval, **options)


@pytest.mark.requirement("RPC-25")
@stateful_wires
def test_a_ping_is_sent_in_each_interval_until_the_client_is_closed(
    wire: Wire, clock: FakeTimer
) -> None:
    stage = Stage()
    with wire.connect(stage.server, ping_interval=INTERVAL) as client:
        for number in (1, 2, 3):
            clock.ring(number)
            clock.next(number + 1)
            with stage.stats as stats:
                assert stats.requests["ping"] == number
        last = clock.next(4)
        client.close()
        assert last.cancelled
        last.action()  # as if it had come at that very moment
        assert len(clock.entries) == 4
        with stage.stats as stats:
            assert stats.requests["ping"] == 3
    assert [entry.seconds for entry in clock.entries] == [INTERVAL] * 4


@pytest.mark.requirement("RPC-25")
@pytest.mark.parametrize(
    "options",
    [{"mode": STATEFUL}, {"mode": STATELESS, "ping_interval": INTERVAL}],
    ids=["not asked for", "an era without pings"],
)
def test_no_pings_are_sent(options: Any, clock: FakeTimer) -> None:
    with syncmcp.connect(Server(), **options):
        assert clock.entries == []


@pytest.mark.requirement("RPC-25")
@pytest.mark.pitfall("5")
def test_two_misses_in_a_row_end_the_connection_and_every_call(
    clock: FakeTimer, caplog: pytest.LogCaptureFixture
) -> None:
    held = threading.Event()

    def hold(one: Request) -> bool:
        if b'"slow"' in one.body or b'"a:slow"' in one.body:
            if server.count("tools/call") and server.count("resources/read"):
                held.set()
            return True
        return silent(one)

    with session_server() as server:
        server.before = hold
        with watched(server, SHORT, retry=None) as client:
            tool = client.call_tool.future("slow")
            read = client.read_resource.future("a:slow")
            assert held.wait(PATIENCE)
            clock.ring(1)
            clock.next(2)
            assert not tool.done()
            clock.ring(2)
            assert isinstance(tool.exception(PATIENCE), OutcomeUnknown)
            error = read.exception(PATIENCE)
            assert type(error) is ConnectionLost
            assert "ping_interval" in str(error)
            assert caplog.text.count("no answer to a ping") == 2
            server.before = lambda one: False
            assert client.call_tool("fast").text == "session-2"
            assert len(clock.entries) == 3  # two of the first connection, one of the next


@pytest.mark.requirement("RPC-25")
def test_an_answer_between_two_misses_forgives_the_first(
    clock: FakeTimer, caplog: pytest.LogCaptureFixture
) -> None:
    with session_server() as server, watched(server, SHORT) as client:
        for number, before in enumerate([silent, lambda one: False, silent], start=1):
            # An answer has all the time in the world: only silence is measured.
            client._core._heartbeat._interval = SHORT if before is silent else PATIENCE  # type: ignore[union-attr]
            server.before = before
            clock.ring(number)
            clock.next(number + 1)
        assert client.call_tool("pid").text == "session-1"
        assert caplog.text.count("no answer to a ping (1)") == 2


@pytest.mark.requirement("RPC-25")
@pytest.mark.pitfall("15")
def test_a_refusal_of_a_ping_is_an_answer_and_a_lost_session_begun_again(clock: FakeTimer) -> None:
    with session_server() as server, watched(server) as client:
        server.before = on(b'"ping"', act=refuse)
        for number in (1, 2, 3):
            clock.ring(number)
            clock.next(number + 1)
        assert client.call_tool("pid").text == "session-1"
        server.before = lambda one: False
        server.forget()
        clock.ring(4)
        clock.next(5)  # of the new connection
        assert server.count("initialize") == 2
        assert client.call_tool("pid").text == "session-2"
        assert len(clock.entries) == 5


@pytest.mark.requirement("RPC-25")
@pytest.mark.pitfall("4")
def test_a_ping_waits_in_no_line_and_is_no_sign_of_life_of_a_call(clock: FakeTimer) -> None:
    reported = threading.Event()
    stage = Stage()
    with syncmcp.connect(
        stage.server, mode=MODE, ping_interval=INTERVAL, max_in_flight=1
    ) as client:
        future = client.call_tool.future(
            "hold", {"key": "a"}, idle_timeout=0.5, on_progress=lambda *_: reported.set()
        )
        [context] = stage.inside("a")
        context.report_progress(1)
        assert reported.wait(PATIENCE)
        number = 0
        while not future.done():
            number += 1
            clock.ring(number)
            clock.next(number + 1)
        error = future.exception(PATIENCE)
        assert isinstance(error, RequestTimeout)
        assert error.kind == "idle"
        assert stage.stats.requests["ping"] == number > 0


@pytest.mark.requirement("RPC-25")
def test_pings_run_on_threads_of_the_pool(clock: FakeTimer) -> None:
    names: list[str] = []

    def headers() -> dict[str, str]:
        names.append(threading.current_thread().name)
        return {}

    with session_server() as server:
        target = Http(server.url, headers=headers)
        with syncmcp.connect(target, mode=MODE, ping_interval=INTERVAL):
            server.wait_for(lambda: server.count("GET") == 1)
            del names[:]
            clock.ring(1)
            clock.next(2)
            assert names[0].startswith("syncmcp-worker[")


@pytest.mark.requirement("RPC-25")
def test_closing_ends_a_ping_that_is_under_way(
    clock: FakeTimer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.connection")
    with session_server() as server:
        server.before = silent
        client = watched(server, 60.0)
        clock.ring(1)
        server.wait_for(lambda: server.count("ping") == 1)
        client.close()
        with pytest.raises(ClosedError):
            client.ping()
        assert len(clock.entries) == 1
    assert "no answer" not in caplog.text
