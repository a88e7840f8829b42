"""A program that goes on calling a server that misbehaves in every way, over each wire.

No call ends later than its limit, memory stays within its bound, almost nothing is held afterwards,
and an honest call in between is answered. What is left at the end is found by `tests/conftest.py`.
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
"""A call may end so many seconds after its limit: threads wait for each other on two cores.

What the thread that waited longest for a processor has waited meanwhile does not count.
"""

GROWTH: Final = 100 * 2**20
"""Memory may grow by so many bytes, at any moment.

Over HTTP each of four threads decodes by itself. A frame that is full of as many empty arrays as
are accepted takes about a fifth of this as objects. What is free afterwards, the allocators of
Python and of the system keep in part; `malloc_trim` returns it if Python has all of its memory from
there (`PYTHONMALLOC=malloc`).
"""

HELD: Final = 32 * 2**20
"""So many bytes more may be allocated once the calls have ended, whatever the allocators keep."""

LARGEST: Final = 4 * 2**20
"""The largest frame, body or event that the program accepts, in bytes."""

MODULE: Final = "tests.system.stress.hostile"

WIRES: Final = [("stdio", STATEFUL), ("http", STATEFUL), ("http", STATELESS)]


@pytest.fixture(autouse=True)
def _discarded_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """What pytest would keep of a log counts as memory."""
    library = logging.getLogger("syncmcp")
    monkeypatch.setattr(library, "handlers", [logging.NullHandler()])
    monkeypatch.setattr(library, "propagate", False)


@contextmanager
def target(wire: str) -> Iterator[Any]:
    """What to connect to; the server over HTTP runs as long as the block."""
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
    """The resident memory of this process, watched by a thread (Linux)."""

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
    """`struct mallinfo2` of glibc: sizes in bytes, but for the number of chunks and mappings."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


# Python allocates objects of at most so many bytes by itself.
_SMALL_BLOCK: Final = 512


def _allocated() -> int:
    """How many bytes are in use, or more: each small object counts as if it had the largest size.

    Free memory that the allocators keep does not count.
    """
    gc.collect()
    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = _MallocInfo
    info = libc.mallinfo2()
    return int(info.uordblks + info.hblkhd) + sys.getallocatedblocks() * _SMALL_BLOCK


def _held(before: int) -> int:
    """How many bytes more are allocated than before, once they are few, or after a minute.

    Answers that the server did not take are held for half a minute.
    """
    end, pause = time.monotonic() + 60, threading.Event()
    while (more := _allocated() - before) > HELD and time.monotonic() < end:
        pause.wait(0.5)
    return more


def _starved() -> dict[str, int]:
    """How long each thread of this process has waited for a processor, in nanoseconds (Linux)."""
    found: dict[str, int] = {}
    for thread in os.listdir("/proc/self/task"):
        with suppress(OSError):  # it has ended
            text = Path(f"/proc/self/task/{thread}/schedstat").read_text()
            found[thread] = int(text.split()[1])
    return found


class Victim:
    """The program: threads that call in every way, in an order of chance.

    Args:
        client: The client.
        limit: The timeout of each call, in seconds.

    Attributes:
        ends: How the calls ended, by way.
        late: The most that a call was late, in seconds.
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
        """Wait until the server is there again: what follows has to reach it within the limit."""
        for _ in range(5):
            with suppress(syncmcp.McpError):  # what broke before may be noticed here
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
    """Call in every way on so many threads, and check what the module promises."""
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
