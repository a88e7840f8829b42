"""The same things many times over: nothing grows, nothing stays behind, nothing spins.

`make stress` runs the full sizes. Memory, threads and descriptors are compared after a warm-up;
what is left at the end of a test is found by `tests/conftest.py`.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import resource
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Stdio
from syncmcp._connection.connection import Connection
from tests.connection.puppet import Puppet
from tests.connection.test_callbacks import note
from tests.support.shops import known
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Stage,
    Wire,
    in_threads,
    rotated,
)
from tests.system.stress.crowd import shuffling_server
from tests.system.stress.sizes import sizes

# No call may take longer, in seconds.
LIMIT = 60.0

# Warm enough: what is made once has been made after this share of the work.
WARM_UP = 0.3

# Memory may grow by so many bytes: far less than a leak of one object a call, more than chance.
GROWTH = 12 * 2**20

# Threads and descriptors of pools come and go; a leak is one for each call.
CHANCE = 8

# A server that starts fast. It answers each call with its process id; `die` ends it.


class Size:
    """What this process holds now."""

    def __init__(self) -> None:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory = pages * resource.getpagesize()
        self.threads = threading.active_count()
        self.descriptors = len(os.listdir("/proc/self/fd"))

    def assert_like(self, before: Size) -> None:
        """Nothing grew but by chance."""
        print(
            f"memory {(self.memory - before.memory) / 2**20:+.1f} MiB, "
            f"threads {self.threads - before.threads:+}, "
            f"descriptors {self.descriptors - before.descriptors:+}"
        )
        assert self.threads <= before.threads + CHANCE
        assert self.descriptors <= before.descriptors + CHANCE
        assert self.memory <= before.memory + GROWTH


def assert_gone(things: Iterable[object]) -> None:
    """Nobody holds these weakly referenced things any more.

    They must not live as long as an idle thread of a pool does.
    """
    deadline = time.monotonic() + PATIENCE / 2
    gc.collect()
    while left := len(list(things)):
        assert time.monotonic() < deadline, f"{left} are still held"
        # A thread that is done with the last of them cannot be waited for from here.
        threading.Event().wait(0.01)
        gc.collect()


def idle(client: syncmcp.Client) -> Connection:
    """The connection of a client, which no call uses."""
    connection = client._core.connection
    assert connection is not None
    assert len(connection._table) == 0
    return connection


@contextlib.contextmanager
def allocations() -> Iterator[Callable[[], int]]:
    """How many bytes the objects take that were made since."""

    def allocated() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        yield allocated
    finally:
        tracemalloc.stop()


# Floods


class Flood(Puppet):
    """Answers the client as any server does, and keeps nothing."""

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
            server.say({"jsonrpc": "2.0", "id": number, "method": "ping"}, *odd)
            if number % 100 == 99:
                server.say(note("acme/end"))
                assert read.wait(PATIENCE)
                read.clear()

    options: dict[str, Any] = {"on_notification": on_notification, "on_log": lambda message: None}
    with syncmcp.connect(server, mode=STATEFUL, **options) as client, allocations() as allocated:
        flood()
        client.ping()
        before, logged = allocated(), len(caplog.records)
        for _ in range(4):
            flood()
            client.ping()
        known(lambda: allocated() - before < 2**20)
        assert client.dump().facts["queues"]["owed"] == 0
    # Of 4,800 odd messages.
    assert len(caplog.records) - logged < 400


# Talkative calls


@contextlib.contextmanager
def talkative(wire: Wire, **options: Any) -> Iterator[syncmcp.Client]:
    """A client of a server with the tool `talk`; over stdio the server has its own process."""
    if wire.transport == "stdio":
        target = Stdio(sys.executable, "-m", "tests.system.stress.crowd", "0", cwd=os.getcwd())
        with syncmcp.connect(target, mode=wire.revision, **options) as client:
            yield client
    else:
        with wire.connect(shuffling_server(0, together=1), **options) as client:
            yield client


def _note(steps: list[float], progress: float, total: object, message: object) -> None:
    steps.append(progress)


@pytest.mark.parametrize("wire", [Wire("stdio", STATELESS), Wire("http", STATEFUL)], ids=str)
@sizes(80, 10_000, 900)
def test_talkative_calls_leave_nothing_behind(wire: Wire, size: int) -> None:
    callers = 4
    heard = threading.Semaphore(0)

    def speak(client: syncmcp.Client, caller: int, share: int) -> None:
        for number in range(share):
            text = f"{caller}/{number}"
            steps: list[float] = []
            options: dict[str, Any] = {
                "timeout": LIMIT,
                "log_level": "info" if wire.revision == STATELESS else None,
                "on_progress": partial(_note, steps),
            }
            if number % 2:
                answer = client.call_tool.future("talk", {"nonce": text}, **options).result(LIMIT)
            else:
                answer = client.call_tool("talk", {"nonce": text}, **options)
            assert answer.text == text
            assert steps == [1, 2]

    with talkative(wire, on_log=lambda _: heard.release()) as client:

        def run(share: int) -> None:
            jobs = [partial(speak, client, caller, share // callers) for caller in range(callers)]
            assert in_threads(*jobs, patience=600.0) == [None] * callers
            for _ in range(share // callers * callers * 2):
                assert heard.acquire(timeout=PATIENCE)

        run(int(size * WARM_UP))
        before = Size()
        run(size - int(size * WARM_UP))
        Size().assert_like(before)
        assert not idle(client)._timeouts.finishing_calls


# A server that dies again and again


# Cancelled futures


class Marker:
    """Something a call holds on to, for others to see whether it still does."""

    def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        """Ignore progress."""


@rotated
@sizes(100, 2000, 600)
def test_cancelled_futures_are_held_by_nobody(wire: Wire, size: int) -> None:
    stage = Stage()
    futures: weakref.WeakSet[Any] = weakref.WeakSet()
    markers: weakref.WeakSet[Marker] = weakref.WeakSet()
    with wire.connect(stage.server) as client:

        def submit(number: int) -> Any:
            marker = Marker()
            markers.add(marker)
            future = client.call_tool.future(
                "hold", {"key": str(number)}, timeout=LIMIT, on_progress=marker
            )
            futures.add(future)
            return future

        step = 50
        for start in range(0, size, step):
            batch = [submit(number) for number in range(start, start + step)]
            if start % (2 * step):
                # These are with the server; the others may not have left yet.
                stage.inside(*map(str, range(start, start + step)))
            assert all(future.cancel() for future in batch)
            while batch:
                with pytest.raises(CancelledError):
                    batch.pop().result(LIMIT)
        assert client.call_tool("echo", {"text": "still there"}).text == "still there"
        assert_gone(futures)
        assert_gone(markers)
        idle(client)
        assert stage.stats.wait_for(lambda stats: stats.running == 0)
