"""The workloads that are timed. Each checks its replies and returns one sample."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.sides.base import FutureSide, Reply, Side, Target

_TEXT = "a short question"
_SHORT = {"text": _TEXT}


@dataclass
class Sample:
    """The cost of one run of a workload, for one unit.

    Attributes:
        wall: Seconds.
        cpu: Seconds of processor time, of all threads of this process.
        seen: The number of units.
    """

    wall: float = 0.0
    cpu: float = 0.0
    seen: int = 0


@contextmanager
def _timed(units: int) -> Iterator[Sample]:
    """Time the block, which may correct the number of units."""
    sample = Sample(seen=units)
    gc.collect()
    cpu, wall = time.process_time(), time.perf_counter()
    yield sample
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    sample.wall, sample.cpu = wall / sample.seen, cpu / sample.seen


def _check(replies: list[Reply], text: str) -> None:
    wrong = [reply for reply in replies if reply.is_error or reply.text != text]
    assert not wrong, f"wrong reply: {wrong[0]!r:.200}"


def sequential(side: Side, target: Target, calls: int) -> Sample:
    """Time calls one after another, per call."""
    with _timed(calls) as sample:
        replies = [side.call("echo", _SHORT) for _ in range(calls)]
    _check(replies, _TEXT)
    return sample


def in_flight(side: Side, target: Target, calls: int, rounds: int) -> Sample:
    """Time rounds of `calls` calls in flight at once, per call."""
    with _timed(calls * rounds) as sample:
        replies = [reply for _ in range(rounds) for reply in side.burst("echo", _SHORT, calls)]
    assert len(replies) == calls * rounds
    _check(replies, _TEXT)
    return sample


def threads(side: Side, target: Target, threads: int, calls: int) -> Sample:
    """Time threads that each make calls one after another, per call."""
    start = threading.Barrier(threads + 1)

    def work() -> list[Reply]:
        start.wait()
        return [side.call("echo", _SHORT) for _ in range(calls)]

    with ThreadPoolExecutor(threads) as pool:
        running = [pool.submit(work) for _ in range(threads)]
        with _timed(threads * calls) as sample:
            start.wait()
            replies = [reply for run in running for reply in run.result()]
    _check(replies, _TEXT)
    return sample


def payload(side: Side, target: Target, size: int) -> Sample:
    """Time one call with `size` bytes of text in its result."""
    with _timed(1) as sample:
        reply = side.call("payload", {"size": size})
        seen = len(reply.text)
    assert (seen, reply.is_error) == (size, False)
    return sample


def structured(side: Side, target: Target, size: int) -> Sample:
    """Time one call with `size` bytes of structured content, which is checked by its schema."""
    with _timed(1) as sample:
        reply = side.call("table", {"size": size})
    assert int(reply.text) > 0
    assert not reply.is_error
    return sample


def progress(side: Side, target: Target, count: int) -> Sample:
    """Time one call that reports progress `count` times, per report that reached the callback."""
    with _timed(count) as sample:
        sample.seen = side.notified(count)
    assert sample.seen
    return sample


def change_events(side: Side, target: Target, count: int) -> Sample:
    """Time one call during which the server sends `count` change events, per event sent."""
    assert isinstance(side, FutureSide)
    with _timed(count) as sample:
        heard = side.stirred(count)
    assert heard
    return sample


def listing(side: Side, target: Target, tools: int, pages: int) -> Sample:
    """Time a list of `tools` tools on `pages` pages, per tool."""
    assert isinstance(side, FutureSide)
    stock: dict[str, Any] = {"tools": tools, "pages": pages}
    _check([side.call("stock", stock)], "stocked")
    with _timed(tools) as sample:
        sample.seen = side.listed()
    _check([side.call("stock", {**stock, "tools": 0})], "stocked")
    assert sample.seen == tools
    return sample


def sleeping(side: Side, target: Target, calls: int, seconds: float) -> Sample:
    """Time calls that each take `seconds`, all in flight at once; for all calls together."""
    with _timed(1) as sample:
        replies = side.burst("sleep", {"seconds": seconds}, calls)
    assert len(replies) == calls
    _check(replies, "rested")
    return sample


def batch(side: Side, target: Target, calls: int, seconds: float) -> Sample:
    """Time one batch of calls that each take `seconds`; for all calls together."""
    from benchmarks.sides.syncmcp_side import SyncmcpSide

    assert isinstance(side, SyncmcpSide)
    with _timed(1) as sample:
        replies = side.batch("sleep", {"seconds": seconds}, calls)
    assert len(replies) == calls
    _check(replies, "rested")
    return sample


def beside_a_busy_thread(side: Side, target: Target, calls: int) -> Sample:
    """Time calls one after another while a thread computes, per call; its CPU time counts too."""
    stop = threading.Event()
    started = threading.Event()

    def compute() -> None:
        started.set()
        while not stop.is_set():
            sum(range(100))

    busy = threading.Thread(target=compute)
    busy.start()
    started.wait()
    try:
        return sequential(side, target, calls)
    finally:
        stop.set()
        busy.join()


def questions(side: Side, target: Target, calls: int, questions: int) -> Sample:
    """Time calls whose tool asks the client's model `questions` times, per question."""
    with _timed(calls * questions) as sample:
        replies = [side.call("consult", {"count": questions}) for _ in range(calls)]
    _check(replies, str(questions))
    return sample


def connect(side: Side, target: Target, times: int) -> Sample:
    """Time the opening of the client in a running program; closing is not counted."""
    whole = Sample(seen=times)
    side.close()
    for number in range(times):
        if number:
            side.close()
        with _timed(1) as sample:
            side.open(target)
        whole.wall += sample.wall / times
        whole.cpu += sample.cpu / times
    return whole


def timed_out(side: Side, target: Target, timeout: float) -> Sample:
    """Time how long after its deadline a call without an answer returns."""
    assert isinstance(side, FutureSide)
    with _timed(1) as sample:
        side.time_out("sleep", {"seconds": timeout + 5.0}, timeout)
    sample.wall -= timeout
    return sample


def killed(side: Side, target: Target, calls: int) -> Sample:
    """Time how long after the end of a killed server the last call in flight fails."""
    assert isinstance(side, FutureSide)
    pid = int(side.call("pid", {}).text)
    futures = [side.start("sleep", {"seconds": 60.0}) for _ in range(calls)]
    # Requests arrive in order: after this answer, the server has all calls above.
    side.call("echo", _SHORT)
    with _timed(1) as sample:
        os.kill(pid, signal.SIGKILL)
        ended = wait(futures, timeout=30.0)
    sample.seen = sum(future.exception() is not None for future in ended.done)
    assert sample.seen == calls, f"only {sample.seen} of {calls} calls failed within 30 s"
    side.close()
    side.open(target)
    return sample


WORKLOADS: dict[str, Callable[..., Sample]] = {
    workload.__name__: workload
    for workload in (
        sequential,
        in_flight,
        threads,
        payload,
        structured,
        progress,
        change_events,
        listing,
        sleeping,
        batch,
        beside_a_busy_thread,
        questions,
        connect,
        timed_out,
        killed,
    )
}


def run(name: str, side: Side, target: Target, parameters: dict[str, Any]) -> Sample:
    """Run a workload once, and return its sample."""
    return WORKLOADS[name](side, target, **parameters)
