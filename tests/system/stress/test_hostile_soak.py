"""During floods of a hostile server, the memory of a client is bounded (by `tracemalloc`)."""

from __future__ import annotations

import gc
import json
import logging
import threading
import tracemalloc
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import LimitExceeded
from syncmcp.auth import Deadline
from tests.connection.puppet import Puppet
from tests.connection.test_callbacks import note
from tests.support.session_server import session_server
from tests.support.stage import PATIENCE, STATEFUL
from tests.transports.http_peer import Connection, Request

MIB = 2**20

# The most bytes by which memory may have grown after a flood, since `Memory` measured it.
GROWTH = MIB


class Memory:
    """The memory of Python objects, in bytes."""

    def __init__(self) -> None:
        gc.collect()
        self.before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()

    def grows_no_more(self) -> bool:
        """Return True if it has grown by less than `GROWTH`, now or within `PATIENCE` seconds.

        Threads of a closed client need a moment to release queued objects.
        """
        deadline, pause = Deadline(PATIENCE), threading.Event()
        while not deadline.expired:
            gc.collect()
            if tracemalloc.get_traced_memory()[0] - self.before < GROWTH:
                return True
            pause.wait(0.05)
        return False


@pytest.fixture(autouse=True)
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def ping(id: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": "ping"}


def event(message: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(message).encode() + b"\n\n"


def test_pings_whose_answers_nobody_takes_cost_no_more_than_the_bound() -> None:
    streams: SimpleQueue[Connection] = SimpleQueue()
    over = threading.Event()

    def take(one: Request) -> bool:
        if one.method == "GET":
            one.connection.start_events()
            streams.put(one.connection)
            return True
        is_answer = bool(one.body) and b'"method"' not in one.body
        if is_answer:
            over.wait(PATIENCE)
        return is_answer

    with session_server() as server:
        server.before = take
        with syncmcp.connect(server.url, mode=STATEFUL) as client:
            connection = client._core.connection
            assert connection is not None
            stream = streams.get(timeout=PATIENCE)
            memory = Memory()
            for number in range(0, 30_000, 100):
                stream.chunk(b"".join(event(ping(number + each)) for each in range(100)))
            assert connection.wait_closed(PATIENCE)
            assert isinstance(connection.close_error, LimitExceeded)
            assert tracemalloc.get_traced_memory()[1] - memory.before < 16 * MIB
            over.set()
            del connection
        assert memory.grows_no_more()


class Flood(Puppet):
    """Answers the client like any server, and does not record messages."""

    def receive(self, frame: bytes) -> None:
        self._session.receive(frame)


def test_floods_of_pings_and_of_what_is_no_message_leave_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "syncmcp")
    server, read = Flood(), threading.Event()
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
            server.say(ping(number), *odd)
            if number % 100 == 99:
                server.say(note("acme/end"))
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
        assert memory.grows_no_more()
        assert client.dump().facts["queues"]["owed"] == 0
    # The floods had 4,800 odd messages.
    assert len(caplog.records) - logged < 400
