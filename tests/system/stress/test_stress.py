"""Many threads use one client: shuffled answers, cancellations, timeouts, and a killed server.

Every call has a nonce, which its answer must contain. `tests/conftest.py` finds leaked threads,
processes and sockets after each test.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken
from tests.support.programs import server_processes
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Wire, in_threads, nervous
from tests.system.stress.sizes import seeded, sizes

KILLS = 3
CROWD = "tests.system.stress.crowd"

# The timeout of a call, in seconds: it detects calls that hang.
LIMIT = 60.0

WIRES = [Wire("stdio", STATEFUL), Wire("http", STATELESS), Wire("http", STATEFUL)]


class Host:
    """The server process over HTTP; `kill` restarts it on the same port."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._start(0)

    def _start(self, port: int) -> None:
        command = [sys.executable, "-m", CROWD, str(self._seed), str(port)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()

    def kill(self) -> None:
        """Kill the server and start another."""
        before = self.url
        self.end(signal.SIGKILL)
        self._start(int(before.rsplit(":", 1)[1].split("/")[0]))
        assert self.url == before

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.communicate(timeout=PATIENCE)


class Crowd:
    """Threads that call, cancel, and use short timeouts; `ends` counts the calls by outcome."""

    def __init__(self, client: syncmcp.Client, seed: int, threads: int, calls: int) -> None:
        self.ends: Counter[str] = Counter()
        self._client = client
        self._seed = seed
        self._threads = threads
        self._calls = calls
        self._total = threads * calls
        # Guards the counters, and notifies the killing thread of each ended call.
        self._changed = threading.Condition()
        self._done = 0
        self._up = threading.Event()
        self._up.set()

    def run(self, kill: Callable[[], None]) -> None:
        """Make all calls; `kill` kills the server, and restarts it before it returns."""
        jobs = [partial(self._member, thread) for thread in range(self._threads)]
        outcomes = in_threads(*jobs, lambda: self._kill(kill), patience=60 * LIMIT)
        assert outcomes == [None] * len(outcomes)

    def _kill(self, kill: Callable[[], None]) -> None:
        for number in range(1, KILLS + 1):
            self._wait(self._total * number // (KILLS + 1))
            lost = self.ends["lost in flight"]
            self._up.clear()
            kill()
            self._up.set()
            self._wait(self._total, lost)
            self.ends["kills with calls in flight"] += self.ends["lost in flight"] > lost

    def _wait(self, done: int, lost: int = sys.maxsize) -> None:
        """Wait until `done` calls have ended, or more than `lost` calls were lost in flight."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: self._done >= done or self.ends["lost in flight"] > lost, 60 * LIMIT
            )

    def _member(self, thread: int) -> None:
        dice = random.Random(f"{self._seed}/{thread}")
        for number in range(self._calls):
            nonce = f"{thread}/{number}"
            end = self._call(dice, nonce)
            with self._changed:
                self.ends[end] += 1
                self._done += 1
                self._changed.notify_all()
            if end == "not connected":
                # Otherwise all further calls could fail while the server is starting.
                assert self._up.wait(LIMIT)

    def _call(self, dice: random.Random, nonce: str) -> str:
        kinds = ("blocking", "future", "cancel", "token", "given up", "timeout")
        [kind] = dice.choices(kinds, (40, 40, 8, 6, 3, 3))
        arguments = {"nonce": nonce}
        call = self._client.call_tool
        try:
            if kind == "blocking":
                return self._answered(call("shuffle", arguments, timeout=LIMIT), nonce)
            if kind == "future":
                future = call.future("shuffle", arguments, timeout=LIMIT)
                return self._answered(future.result(2 * LIMIT), nonce)
            if kind == "cancel":
                return self._cancel(dice, nonce)
            if kind == "token":
                token = CancelToken.after(dice.uniform(0.0, 0.03))
                result = call("shuffle", arguments, timeout=LIMIT, cancel=token)
                return self._answered(result, nonce)
            if kind == "given up":
                future = call.future("hold", arguments, timeout=LIMIT)
                assert future.cancel()
                return "cancel won"
            call("hold", arguments, timeout=dice.uniform(0.0, 0.05))
            raise AssertionError("a call that is held was answered")
        except (syncmcp.RequestTimeout, syncmcp.RequestCancelled):
            if kind not in ("timeout", "token"):
                raise
            return "timeout" if kind == "timeout" else "token won"
        except syncmcp.TransportError as error:
            return "lost in flight" if error.delivery == "unknown" else "not connected"

    def _cancel(self, dice: random.Random, nonce: str) -> str:
        future = self._client.call_tool.future("shuffle", {"nonce": nonce}, timeout=LIMIT)
        for _ in range(dice.randrange(4)):
            future.done()
        if dice.random() < 0.5:
            # Cancel at about the time of the answer, so that either may come first.
            settled = threading.Event()
            future.add_done_callback(lambda _: settled.set())
            settled.wait(dice.uniform(0.0, 0.1))
        won = future.cancel()
        assert won == future.cancelled()
        if won:
            return "cancel won"
        self._answered(future.result(LIMIT), nonce)
        return "cancel lost"

    @staticmethod
    def _answered(result: Any, nonce: str) -> str:
        assert result.text == nonce, f"{nonce} got {result.text}"
        return "answered"


@contextmanager
def served(wire: Wire, seed: int) -> Iterator[tuple[Any, Callable[[], None]]]:
    """Run a server; yield its target, and a function that kills it (over HTTP: restarts it)."""
    if wire.transport == "stdio":
        command = (sys.executable, "-m", CROWD, str(seed))
        others = server_processes()

        def kill() -> None:
            for process in server_processes() - others:
                os.kill(process, signal.SIGKILL)

        yield syncmcp.Stdio(*command, cwd=os.getcwd()), kill
        return
    host = Host(seed)
    try:
        yield host.url, host.kill
    finally:
        host.end()


def overtaken(client: syncmcp.Client) -> int:
    """Ask the server how many answers it sent out of order."""
    for _ in range(2):
        try:
            return int(client.call_tool("overtaken").text or "0")
        except syncmcp.OutcomeUnknown:
            continue  # no call came after the kill, so this one is the first to notice it
    raise AssertionError("the server died twice")


ALL_WAYS = (
    *("answered", "cancel lost", "cancel won", "kills with calls in flight"),
    *("lost in flight", "out of order", "timeout", "token won"),
)


@pytest.mark.pitfall("23", "4", "14", "H10")
@pytest.mark.parametrize("wire", WIRES, ids=str)
@sizes(960, 64_000, 1800)
def test_a_crowd_survives_everything(wire: Wire, size: int) -> None:
    # In a small test, the rarer outcomes may not occur.
    threads, ways_to_end = (16, ("answered",)) if size < 1000 else (64, ALL_WAYS)
    calls, seed = size // threads, seeded()
    with served(wire, seed) as (target, kill):
        with syncmcp.connect(target, mode=wire.revision) as client:
            crowd = Crowd(client, seed, threads, calls)
            with nervous():
                crowd.run(kill)
            crowd.ends["out of order"] = overtaken(client)
            connection = client._core.connection
            assert connection is not None
            assert len(connection._table) == 0
            assert len(connection.questions) == 0
        print(", ".join(f"{count} {end}" for end, count in sorted(crowd.ends.items())))
    ended = sum(crowd.ends.values()) - crowd.ends["out of order"]
    ended -= crowd.ends["kills with calls in flight"]
    assert ended == size
    for end in ways_to_end:
        assert crowd.ends[end] > 0, f"no call ended as: {end} (seed {seed})"
