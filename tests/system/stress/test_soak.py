"""The same operations many times: memory does not grow, nothing leaks, no thread spins.

`make stress` runs the full sizes. The tests compare memory, threads and descriptors after a
warm-up with those at the end. `tests/conftest.py` finds leaks after each test.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import signal
import sys
import threading
import time
import tracemalloc
import weakref
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, Stdio
from syncmcp._concurrency.timing import timer
from syncmcp._connection.connection import Connection
from syncmcp.testing import Server
from tests.client.test_listening import held, let_go, shop, updated
from tests.support.programs import server_processes
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    WIRES,
    Stage,
    Wire,
    in_threads,
    rotated,
)
from tests.system.stress.crowd import shuffling_server
from tests.system.stress.sizes import sizes

# The timeout of a call, in seconds.
LIMIT = 60.0

# The share of the work for the warm-up: one-time objects exist afterwards.
WARM_UP = 0.3

# The most bytes by which memory may grow: less than a leak of one object per call, more than noise.
GROWTH = 12 * 2**20

# The most by which threads and descriptors may grow: pools vary, but a leak has one per call.
CHANCE = 8

# A server that starts fast. It answers each call with its process id; `die` ends it.
SMALL = """
import json, os, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        result = {"protocolVersion": asked["params"]["protocolVersion"],
                  "capabilities": {"tools": {}}, "serverInfo": {"name": "small", "version": "1"}}
    elif asked["method"] == "tools/call":
        if asked["params"]["name"] == "die":
            os._exit(3)
        if asked["params"]["name"] == "hold":
            continue
        result = {"content": [{"type": "text", "text": str(os.getpid())}]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def small() -> Stdio:
    return Stdio(sys.executable, "-I", "-S", "-c", SMALL)


class Size:
    """The current memory, threads and descriptors of this process."""

    def __init__(self) -> None:
        gc.collect()
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        self.memory = pages * resource.getpagesize()
        self.threads = threading.active_count()
        self.descriptors = len(os.listdir("/proc/self/fd"))

    def assert_like(self, before: Size) -> None:
        """Assert that nothing has grown by more than noise."""
        print(
            f"memory {(self.memory - before.memory) / 2**20:+.1f} MiB, "
            f"threads {self.threads - before.threads:+}, "
            f"descriptors {self.descriptors - before.descriptors:+}"
        )
        assert self.threads <= before.threads + CHANCE
        assert self.descriptors <= before.descriptors + CHANCE
        assert self.memory <= before.memory + GROWTH


def assert_gone(things: Iterable[object]) -> None:
    """Assert that these weakly referenced objects are collected.

    They must not live as long as an idle pool thread.
    """
    deadline = time.monotonic() + PATIENCE / 2
    gc.collect()
    while left := len(list(things)):
        assert time.monotonic() < deadline, f"{left} are still held"
        # There is no event for the thread that drops the last reference.
        threading.Event().wait(0.01)
        gc.collect()


def idle(client: syncmcp.Client) -> Connection:
    """Return the connection of a client; assert that it has no open requests."""
    connection = client._core.connection
    assert connection is not None
    assert len(connection._table) == 0
    return connection


# Connecting, and killing the server


@pytest.mark.pitfall("2")
@sizes(8, 500, 600)
def test_connects_and_kills_leave_nothing_and_nothing_spins(size: int) -> None:
    idle = 0.5 if size < 100 else 5.0
    others = server_processes()

    def cycle(number: int) -> None:
        with syncmcp.connect(small(), mode=STATEFUL) as client:
            victim = int(client.call_tool("pid", timeout=LIMIT).text)
            assert server_processes() - others == {victim}
            if number % 2:
                os.kill(victim, signal.SIGKILL)
                return
            # Kill the server during a call.
            future = client.call_tool.future("hold", timeout=LIMIT)
            os.kill(victim, signal.SIGKILL)
            with pytest.raises(syncmcp.ConnectionLost):
                future.result(LIMIT)

    warm = max(1, int(size * WARM_UP))
    for number in range(warm):
        cycle(number)
    before = Size()
    for number in range(warm, size):
        cycle(number)
    after = Size()
    after.assert_like(before)
    assert after.threads <= before.threads
    assert after.descriptors <= before.descriptors
    assert server_processes() == others
    # Measure the processor time of an idle process.
    spent = time.process_time()
    threading.Event().wait(idle)
    assert time.process_time() - spent < 0.01 * idle


# Calls with progress and log messages


@contextlib.contextmanager
def talkative(wire: Wire, **options: Any) -> Iterator[syncmcp.Client]:
    """Yield a client of a server with the tool `talk`; over stdio, it has its own process."""
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


# A server that exits again and again


@sizes(5, 200, 600)
def test_a_server_that_dies_is_there_again(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The limit of the growing delays between starts; the real one would make this half an hour.
    monkeypatch.setattr("syncmcp._concurrency.timing._LONGEST_BACKOFF", 0.0)
    seen = set()
    with syncmcp.connect(small(), mode=STATEFUL) as client:
        before = None
        for number in range(size):
            seen.add(client.call_tool("pid", timeout=LIMIT).text)
            with pytest.raises(syncmcp.ConnectionLost) as caught:
                client.call_tool("die", timeout=LIMIT)
            assert caught.value.exit_code == 3
            if number == int(size * WARM_UP):
                before = Size()
        assert before is not None
        Size().assert_like(before)
        seen.add(client.call_tool("pid", timeout=LIMIT).text)
    assert len(seen) == size + 1


# Cancelled futures


class Marker:
    """An argument of a call; the test checks that the library drops its references to it."""

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
                # The calls of this batch have reached the server; those of others may be unsent.
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


# Tokens with a time limit


@pytest.mark.parametrize("wire", [Wire("memory", STATEFUL), Wire("http", STATELESS)], ids=str)
@sizes(20, 1000, 300)
def test_timed_tokens_are_held_by_nobody(wire: Wire, size: int) -> None:
    stage = Stage()
    tokens: weakref.WeakSet[CancelToken] = weakref.WeakSet()
    with wire.connect(stage.server) as client:

        def call(number: int) -> None:
            # Alternately, the call ends before the limit of its token, or the token cancels it.
            token = CancelToken.after(0.005 if number % 2 else 3600.0)
            tokens.add(token)
            with contextlib.suppress(syncmcp.RequestCancelled):
                tool = "hold" if number % 2 else "echo"
                key = "key" if number % 2 else "text"
                result = client.call_tool(tool, {key: str(number)}, timeout=LIMIT, cancel=token)
                assert not number % 2
                assert result.text == str(number)

        for number in range(size):
            call(number)
        assert_gone(tokens)
        idle(client)
    # The timer removes cancelled entries, but many at a time.
    assert len(timer._heap) < 200


# Subscriptions, one after another and at the same time

CYCLES = {"memory": 10_000, "stdio": 2_500, "http": 2_500, "sse": 2_500}
THREADS = 4


def listen(client: syncmcp.Client, server: Server, uri: str, cycles: int) -> None:
    for number in range(cycles):
        events = client.listen(tools=True, uris=[uri], timeout=PATIENCE)
        server.resource_updated(uri)
        assert next(events) == updated(uri)
        if number % 2:
            events.close()


@pytest.mark.stress
@pytest.mark.requirement("M-12")
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_after_ten_thousand_cycles_neither_side_holds_anything(wire: Wire) -> None:
    server = shop()
    count = CYCLES[wire.transport]
    with wire.connect(server) as client:
        listen(client, server, "a:1", 200)
        gc.collect()
        tracemalloc.start()
        try:
            listen(client, server, "a:1", count)
            assert let_go(server)
            client.listen(uris=["a:1"]).close()
            server.stats.cancels.clear()  # this record grows by design
            gc.collect()
            grown, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert grown < 500_000, f"{grown} bytes after {count} cycles"
        assert let_go(server)
        assert client._core.session_state.listeners == []
        assert len(client._core.session_state.resources) == 0
        assert idle(client)._table.open_calls() == []


@pytest.mark.stress
@pytest.mark.requirement("M-12")
@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_threads_that_come_and_go_share_what_they_listen_to(wire: Wire) -> None:
    server = shop()
    with wire.connect(server) as client:
        jobs = [
            lambda uri=uri: listen(client, server, uri, 150)
            for uri in ("a:1", "a:2")
            for _ in range(THREADS // 2)
        ]
        assert in_threads(*jobs, patience=30 * PATIENCE) == [None] * THREADS
        assert let_go(server)
        assert held(server) == 0
