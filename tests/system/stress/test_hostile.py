"""A program calls a server that misbehaves in every way, over stdio and HTTP.

Each call ends within its limit, memory stays bounded during and after the calls, and valid answers
arrive in between. `tests/conftest.py` finds threads, processes and sockets that are left.
"""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

import syncmcp
from syncmcp.types import CreateMessageResult, TextContent
from tests.support.stage import STATEFUL, STATELESS
from tests.system.stress.hostile import WAYS
from tests.system.stress.sizes import seeded

LATE: Final = 1.0
"""Seconds that a call may end after its limit: threads wait for each other on two cores.

The time that the longest-waiting thread has waited for a processor is subtracted.
"""

GROWTH: Final = 100 * 2**20
"""The most bytes by which resident memory may grow during the calls.

Over HTTP, four threads decode in parallel. The largest accepted frame of empty arrays takes about a
fifth of this as objects. The allocators of Python and of the system keep a part of the memory that
was freed. `malloc_trim` would return it if Python allocated all of its memory there
(`PYTHONMALLOC=malloc`).
"""

HELD: Final = 32 * 2**20
"""The most bytes by which allocated memory may have grown once the calls have ended."""

LARGEST: Final = 4 * 2**20
"""The largest frame, body or event that the program accepts, in bytes."""

MODULE: Final = "tests.system.stress.hostile"

WIRES: Final = [("stdio", STATEFUL), ("http", STATEFUL), ("http", STATELESS)]


@pytest.fixture(autouse=True)
def _discarded_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Discard log records: those that pytest stores would count as memory of the library."""
    library = logging.getLogger("syncmcp")
    monkeypatch.setattr(library, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(library, "propagate", False)


@contextmanager
def target(wire: str) -> Iterator[Any]:
    """Yield the target of the client; a server over HTTP runs until the block ends."""
    command = [sys.executable, "-m", MODULE, wire]
    if wire == "stdio":
        yield syncmcp.Stdio(*command, cwd=os.getcwd(), max_frame=LARGEST)
        return
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield syncmcp.Http(server.stdout.readline().decode().strip(), max_body=LARGEST)
        server.stdin.close()


class Memory:
    """The resident memory of this process, measured by a thread (Linux)."""

    def __init__(self) -> None:
        self.first = self.most = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, self._now())

    @staticmethod
    def _now() -> int:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of glibc: sizes in bytes, and the numbers of chunks and mappings."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


# The size of the largest objects for which Python uses its own allocator, in bytes.
_SMALL_BLOCK: Final = 512


def _allocated() -> int:
    """Return an upper bound of the bytes in use: each small object counts with the largest size.

    Free memory of the allocators does not count.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallocInfo
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd) + sys.getallocatedblocks() * _SMALL_BLOCK


def _held(before: int) -> int:
    """Return the growth of allocated memory, once it is within the bound, or after a minute.

    The client holds answers that the server does not read for half a minute.
    """
    end, pause = time.monotonic() + 60, threading.Event()
    while (more := _allocated() - before) > HELD and time.monotonic() < end:
        pause.wait(0.5)
    return more


def _starved() -> dict[str, int]:
    """Return the nanoseconds that each thread has waited for a processor so far (Linux)."""
    found: dict[str, int] = {}
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has ended
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
            found[thread] = int(text.split()[1])
    return found


class Victim:
    """The program: threads that call in every way, in a random order.

    Args:
        client: The client.
        limit: The timeout of each call, in seconds.

    Attributes:
        ends: The number of calls by way and end.
        late: The longest time between a limit and the end of its call, in seconds.
    """

    def __init__(self, client: syncmcp.Client, limit: float) -> None:
        self._client = client
        self._limit = limit
        self._lock = threading.Lock()
        self.ends: Counter[str] = Counter()
        self.late = 0.0

    def call(self, way: str) -> None:
        nonce = os.urandom(8).hex()
        before, began = _starved(), time.monotonic()
        try:
            answer = self._client.call_tool(
                "work", {"way": way, "nonce": nonce}, timeout=self._limit
            )
        except syncmcp.McpError as error:
            end = type(error).__name__
        else:
            assert answer.text in (nonce, ""), way
            end = "answered"
        late = time.monotonic() - began - self._limit
        if late > LATE:
            waited = {thread: now - before.get(thread, 0) for thread, now in _starved().items()}
            print(f"{way} ended {end} {late:.2f} s late; waited for a processor: {waited}")
            late -= max(waited.values()) / 1e9
        with self._lock:
            self.ends[f"{way}: {end}"] += 1
            if late > self.late:
                self.late = late
                print(f"{way} ended {end} {self.late:.2f} s late")

    def comes_back(self) -> None:
        """Wait until the server works again, so that the next call reaches it within its limit."""
        for _ in range(5):
            with suppress(syncmcp.McpError):  # this call may be the first to notice the failure
                honest = {"way": "honest", "nonce": "back"}
                assert self._client.call_tool("work", honest, timeout=30).text == "back"
                return
        raise AssertionError("it does not come back")

    def run(self, dice: random.Random, goes_on: Callable[[], bool], *, alone: bool) -> None:
        while goes_on():
            for way in dice.sample(list(WAYS), len(WAYS)):
                self.call(way)
                if alone and way.startswith("cut: "):
                    self.comes_back()


def _model(_request: Any, _context: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text="."), model="m")


def endure(
    wire: str, revision: Any, *, limit: float, threads: int, goes_on: Callable[[], bool]
) -> None:
    """Call in every way on `threads` threads; check time limits, memory and valid answers."""
    seed = seeded()
    roots = [Path.cwd()]
    with (
        target(wire) as server,
        syncmcp.connect(server, mode=revision, sampling=_model, roots=roots) as client,
    ):
        victim = Victim(client, limit)
        victim.call("honest")
        memory, before = Memory(), _allocated()
        try:
            with ThreadPoolExecutor(threads) as pool:
                dice = [random.Random(seed + number) for number in range(threads)]
                list(pool.map(partial(victim.run, goes_on=goes_on, alone=threads == 1), dice))
        finally:
            memory.close()
        for end, count in sorted(victim.ends.items()):
            print(f"{count:6} {end}")
        grown, held = memory.most - memory.first, _held(before)
        print(f"{grown / 2**20:.0f} MiB more at most, {held / 2**20:.0f} MiB held in the end")
        print(f"{victim.late:.2f} s late")
        victim.comes_back()
    assert {way for way in WAYS if victim.ends[f"{way}: answered"]} >= {"honest"}
    assert victim.late <= LATE
    assert grown <= GROWTH
    assert held <= HELD


@pytest.mark.parametrize(("wire", "revision"), [WIRES[0], WIRES[-1]])
def test_each_misdeed_is_endured_once(wire: str, revision: Any) -> None:
    rounds = iter((True, False))
    endure(wire, revision, limit=0.4, threads=1, goes_on=lambda: next(rounds))


@pytest.mark.stress
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("wire", "revision"), WIRES)
def test_ten_minutes_of_misdeeds_are_endured(wire: str, revision: Any) -> None:
    end = time.monotonic() + 600.0 / len(WIRES)
    endure(wire, revision, limit=1.0, threads=4, goes_on=lambda: time.monotonic() < end)
