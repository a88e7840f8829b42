"""Hostile servers at small scale, some ten seconds in all: what they make a client hold is bounded.

Memory is counted by `tracemalloc`, and so are threads and descriptors; no time is measured.
"""

from __future__ import annotations

import gc
import json
import logging
import threading
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import syncmcp
from syncmcp import LimitExceeded
from syncmcp._concurrency.timing import Deadline
from syncmcp._http.exchange import AbortableExchange
from tests.connection.test_log_floods import Shouting, note
from tests.support.session_server import SessionServer, session_server
from tests.support.stage import PATIENCE, STATEFUL
from tests.system.stress.test_soak import Size
from tests.transports.http_peer import Connection, Request

MIB = 2**20

# What a client may hold after a flood that it did not hold after the first part of it.
GROWTH = MIB


class Memory:
    """The memory of Python objects, in bytes."""

    def __init__(self) -> None:
        gc.collect()
        self.before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()

    def growth(self) -> int:
        """What has grown once it is no more than `GROWTH`, or after `PATIENCE` seconds.

        Threads of a client that was closed need a moment to let go of what was queued.
        """
        deadline, pause = Deadline(PATIENCE), threading.Event()
        while True:
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - self.before
            if grown < GROWTH or deadline.expired:
                return grown
            pause.wait(0.05)

    def peak(self) -> int:
        return tracemalloc.get_traced_memory()[1] - self.before


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between streams, in seconds, which are over at once."""
    wanted: list[float] = []

    def sleep(exchange: AbortableExchange, seconds: float) -> None:
        wanted.append(seconds)
        exchange.wait(threading.Event(), 0.001)

    monkeypatch.setattr(AbortableExchange, "sleep", sleep)
    return wanted


def ping(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


class Streaming:
    """A server over HTTP with a stream for notifications, which a test writes to.

    Attributes:
        takes: Whether the answers to its pings are taken; else they wait for a response.
        answered: How many answers came.
    """

    def __init__(self, server: SessionServer) -> None:
        self.server = server
        self.takes = True
        self.answered = 0
        self._changed = threading.Condition()
        self._streams: list[Connection] = []
        self.over = threading.Event()
        server.before = self._take

    def _take(self, one: Request) -> bool:
        if one.method == "GET":
            one.connection.start_events()
            with self._changed:
                self._streams.append(one.connection)
                self._changed.notify_all()
            return True
        if one.body and b'"method"' not in one.body:
            if not self.takes:
                self.over.wait(PATIENCE)
                return True
            one.connection.respond(202)
            with self._changed:
                self.answered += 1
                self._changed.notify_all()
            return True
        return False

    def stream(self, number: int) -> Connection:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._streams) > number, PATIENCE)
            return self._streams[number]

    def wait_answered(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.answered >= count, 3 * PATIENCE)


@contextmanager
def streaming() -> Iterator[tuple[Streaming, syncmcp.Client]]:
    with session_server() as server:
        side = Streaming(server)
        try:
            with syncmcp.connect(server.url, mode=STATEFUL) as client:
                yield side, client
        finally:
            side.over.set()


def event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def test_pings_whose_answers_nobody_takes_cost_no_more_than_the_bound() -> None:
    with streaming() as (side, client):
        side.takes = False
        connection = client._core.connection
        assert connection is not None
        stream = side.stream(0)
        memory = Memory()
        for number in range(0, 30_000, 100):
            stream.chunk(b"".join(event(ping(number + each)) for each in range(100)))
        assert connection.wait_closed(PATIENCE)
        assert isinstance(connection.close_error, LimitExceeded)
        assert memory.peak() < 16 * MIB
        side.over.set()
        del connection
    assert memory.growth() < GROWTH


def test_floods_of_pings_and_of_what_is_no_message_leave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "syncmcp")
    server, read = Shouting(), threading.Event()
    odd = (
        b"[garbage",
        {"jsonrpc": "2.0", "id": "nobody's", "result": {}},
        {"jsonrpc": "2.0", "id": None, "error": {"code": 1, "message": "no"}},
        note("notifications/message", level=7),
        note("notifications/progress", progressToken="x", progress=1),
        {"jsonrpc": "2.0", "id": 7, "method": "acme/unknown"},
    )

    def on_notification(method: str, params: object) -> None:
        if method == "acme/end":
            read.set()

    def flood() -> None:
        for number in range(200):
            server.tell(ping(number), *odd)
            if number % 100 == 99:
                server.tell(note("acme/end"))
                assert read.wait(PATIENCE)
                read.clear()

    options: dict[str, Any] = {"on_notification": on_notification, "on_log": lambda message: None}
    with syncmcp.connect(server, mode=STATEFUL, **options) as client:
        flood()
        client.ping()
        memory, logged = Memory(), len(caplog.records)
        for _ in range(4):
            flood()
            client.ping()
        assert memory.growth() < GROWTH
        assert client.dump().facts["queues"]["owed"] == 0
    # Of 4,800 odd messages.
    assert len(caplog.records) - logged < 400


def test_drips_and_cut_streams_leave_nothing(pauses: list[float]) -> None:
    def drip_and_cut(side: Streaming, numbers: range) -> None:
        """Each stream brings a ping byte by byte, and breaks in the middle of the next one."""
        for number in numbers:
            stream = side.stream(number)
            for byte in b"retry: 0\nid: %d\n\n" % number + event(ping(number)):
                stream.chunk(bytes((byte,)))
            stream.chunk(b"data: {")
            side.wait_answered(number + 1)
            stream.close()

    with streaming() as (side, client):
        drip_and_cut(side, range(10))
        side.stream(10)
        memory, size = Memory(), Size()
        drip_and_cut(side, range(10, 30))
        side.stream(30)
        assert memory.growth() < GROWTH
        after = Size()
        # The server of this test keeps its connections, and a thread for each until it ends.
        assert after.threads <= size.threads + 8
        assert client.dump().facts["queues"]["owed"] == 0
        client.ping()
    assert min(pauses) >= 0.5  # a message came each time, and yet nobody is hurried


def test_streams_that_are_cut_at_once_are_opened_ever_more_slowly(pauses: list[float]) -> None:
    with streaming() as (side, _):
        memory: Memory | None = None
        for number in range(60):
            if number == 20:
                memory = Memory()
            stream = side.stream(number)
            stream.chunk(b"retry: 0\n\n: nothing\n\n")
            stream.close()
        side.stream(60)
        assert memory is not None
        assert memory.growth() < GROWTH
    assert len(pauses) == 60
    assert min(pauses[10:]) >= 30
