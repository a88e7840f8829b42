"""Time limits of waiting for a server process: each wait uses its own limit."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest

from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.errors import ConnectFailed, RequestTimeout
from syncmcp.transports import _watcher, stdio
from syncmcp.transports.stdio import StdioTransport
from tests.support.moved_time import MovedTime, soonest
from tests.support.parts import raising
from tests.transports._stdio import PATIENCE, Notes, frame, pid_of, python, running
from tests.transports.test_stdio_writing import FakeOwner, FakeProcess, finish, outbox

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="another way to end a process")

LIMIT = 600.0
GRACE = (0.05, 0.1)

READY = "import os, signal, sys, time\nsys.stdout.write('{}\\n'); sys.stdout.flush()\n"
ENDS_WITH_ITS_INPUT = READY + "sys.stdin.read()"
ENDS_AT_SIGTERM = READY + "signal.pause()"
NEVER_ENDS = READY.replace("sys.stdout", "signal.signal(15, signal.SIG_IGN); sys.stdout", 1) + (
    "while True: time.sleep(60)"
)
DIES = READY + "sys.stdin.readline(); os._exit(1)"
SAYS_NO_MORE = READY + "sys.stdin.readline(); os.close(1); sys.stdin.read()"


class Waits:
    """Records the waits of a transport with their limits, by this thread and by its own threads."""

    def __init__(self, transport: StdioTransport, patch: pytest.MonkeyPatch) -> None:
        self._noted: list[tuple[bool, str, float | None]] = []
        process: Any = transport._process
        latches = {transport._output_ended: "output", transport._errors_ended: "errors"}
        latch_class = type(transport._output_ended)
        wait = latch_class.wait

        def wait_for_a_latch(latch: Any, seconds: float | None) -> bool:
            if latch in latches:
                self._note(latches[latch], seconds)
            return wait(latch, seconds)

        patch.setattr(latch_class, "wait", wait_for_a_latch)
        for name in ("wait", "tree_ended"):
            patch.setattr(process, name, self._noting(name, getattr(process, name)))
        for thread in (transport._drain, transport._reader):
            assert thread is not None
            patch.setattr(thread, "join", self._noting("join", thread.join))

    def _note(self, name: str, seconds: float | None) -> None:
        here = threading.current_thread() is threading.main_thread()
        self._noted.append((here, name, seconds and round(seconds, 6)))

    def _noting(self, name: str, wait: Callable[[float | None], Any]) -> Callable[..., Any]:
        def noting(seconds: float | None) -> Any:
            self._note(name, seconds)
            return wait(seconds)

        return noting

    def of(self, *names: str, here: bool = True) -> list[tuple[str, float | None]]:
        """Return the waits of these names, in order; polls without a wait are left out."""
        return [one[1:] for one in self._noted if one[0] is here and one[1] in names and one[2]]


Started = Callable[..., tuple[StdioTransport, Waits, Notes]]


@pytest.fixture
def start(moved: MovedTime, monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Return a function that starts a server, and records the waits of its transport."""
    opened: list[StdioTransport] = []

    def begin(code: str, **options: Any) -> tuple[StdioTransport, Waits, Notes]:
        transport, notes = StdioTransport(python(code, **{"grace": GRACE, **options})), Notes()
        opened.append(transport)
        transport.open(notes, Deadline(None))
        notes.wait_frames(1)
        return transport, Waits(transport, monkeypatch), notes

    yield begin
    for transport in opened:
        transport.close(Deadline(None))


@pytest.mark.parametrize(
    ("code", "grace", "limit", "waits"),
    [
        (ENDS_WITH_ITS_INPUT, (20.0, 0.1), None, "wait 20.0, tree_ended 10.0, wait 1.0"),
        (ENDS_AT_SIGTERM, (0.05, 20.0), None, "wait 0.05, wait 20.0, tree_ended 20.0, wait 1.0"),
        (NEVER_ENDS, GRACE, None, "wait 0.05, wait 0.1, wait 1.0"),
        (NEVER_ENDS, GRACE, 0.08, "wait 0.04, wait 0.04, wait 1.0"),
    ],
    ids=["input", "SIGTERM", "SIGKILL", "in a hurry"],
)
def test_servers_have_time_to_end(
    code: str,
    grace: tuple[float, float],
    limit: float | None,
    waits: str,
    start: Started,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if limit is None:  # on a busy machine, a process that ends may take longer than this
        monkeypatch.setattr("syncmcp.transports.stdio._EXIT_WAIT", 10.0)
    transport, noted, _ = start(code, grace=grace)
    transport.close(Deadline(limit))
    assert (
        ", ".join(f"{name} {seconds}" for name, seconds in noted.of("wait", "tree_ended")) == waits
    )
    assert noted.of("join") == [("join", 1.0 if limit is None else limit)] * 2
    output = {ENDS_WITH_ITS_INPUT: 10.0, ENDS_AT_SIGTERM: 20.0}.get(code)
    assert noted.of("output") == ([("output", output)] if output else [])


def test_those_killed_with_a_server_have_a_second(
    start: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport, _, _ = start(NEVER_ENDS)
    wait = Mock(return_value=True)
    monkeypatch.setattr(_watcher, "wait", wait)
    transport.close(Deadline(0))
    assert wait.call_args.args[1] == 1.0


@pytest.mark.parametrize(
    ("code", "errors"), [(DIES, 0.25), (SAYS_NO_MORE, 0.02)], ids=["dies", "says no more"]
)
def test_last_words_of_a_server_are_waited_for(code: str, errors: float, start: Started) -> None:
    transport, noted, notes = start(code)
    transport.send(frame())
    notes.wait_lost()
    assert noted.of("wait", "errors", here=False)[:2] == [("wait", 0.5), ("errors", errors)]


def test_who_closes_second_waits_until_their_own_limit(start: Started, moved: MovedTime) -> None:
    transport, _, _ = start(ENDS_WITH_ITS_INPUT)
    closing, gate = threading.Event(), threading.Event()
    process: Any = transport._process
    hold = process.hold_tree

    def hold_tree() -> None:
        closing.set()
        gate.wait(3 * PATIENCE)
        hold()

    process.hold_tree = hold_tree
    first = moved.start(partial(transport.close, Deadline(None)))
    assert closing.wait(PATIENCE)

    second = partial(transport.close, Deadline(LIMIT))
    assert moved.ending(LIMIT, second, partial(moved.waits_for, LIMIT)) is None
    gate.set()
    assert first.get(timeout=PATIENCE) is None


def test_a_held_up_start_ends_at_its_limit(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()

    def held_up(*args: Any) -> Any:
        gate.wait(3 * PATIENCE)
        raise OSError("too late")

    monkeypatch.setattr(stdio, "start", held_up)
    begin = partial(StdioTransport(python("pass")).open, Notes(), Deadline(LIMIT))
    error = moved.ending(LIMIT, begin, partial(moved.waits_for, LIMIT))
    gate.set()
    assert isinstance(error, RequestTimeout)


def test_what_did_not_start_is_closed_at_once(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float | None] = []
    join = threading.Thread.join

    def closed(transport: StdioTransport, deadline: Deadline) -> None:
        limits.append(deadline.remaining())

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        limits.append(timeout)
        join(thread, timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stdio, "start_thread", raising(RuntimeError))
        patch.setattr(StdioTransport, "close", closed)
        with pytest.raises(ConnectFailed):
            StdioTransport(python("pass")).open(Notes(), Deadline(LIMIT))
    monkeypatch.setattr(threading.Thread, "join", joined)
    with pytest.raises(ConnectFailed):
        StdioTransport(Stdio("/no/such/command")).open(Notes(), Deadline(LIMIT))
    assert limits == [1.0, 1.0]


def test_a_server_that_takes_no_frame_any_more_is_given_a_moment_to_end() -> None:
    waits: list[float] = []
    failed = threading.Event()

    class Owner(FakeOwner):
        def broken_pipe(self, delivery: Any, wait: float) -> Any:
            waits.append(wait)
            return super().broken_pipe(delivery, wait)

        def failed(self, out: Any, error: Any) -> None:
            if len(waits) == 2:
                failed.set()

    process = FakeProcess(3)
    process.writable.clear()
    box = outbox(process, Owner())
    for _ in range(2):
        box.send(frame())
    process.on_write = raising(BrokenPipeError)
    process.writable.set()
    assert failed.wait(PATIENCE)
    finish(box)
    assert waits == [0.5, 0.0]


# -- in real time


@pytest.mark.alone
@pytest.mark.parametrize("way", ["pidfd", "without"])
def test_a_process_is_waited_for_as_long_as_is_said(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "without":
        monkeypatch.setattr(_watcher, "open_pidfd", lambda pid: None)
    own = _watcher.Member(os.getpid())
    assert 0.1 <= soonest(lambda: own.wait(0.1)) < 0.25
    assert 0.1 <= soonest(lambda: _watcher.wait([own, own], 0.1)) < 0.25
    own.close()


@pytest.mark.alone
@pytest.mark.parametrize("way", ["pidfd", "without"])
def test_a_server_that_goes_on_is_waited_for_as_long_as_is_said(way: str) -> None:
    with running(python(ENDS_WITH_ITS_INPUT)) as (transport, notes):
        notes.wait_frames(1)
        process: Any = transport._process
        kept = process._exit
        if way == "without":
            process._exit = None
        assert 0.1 <= soonest(lambda: process.wait(0.1)) < 0.25
        process._exit = kept
        assert 0.1 <= soonest(lambda: process.tree_ended(0.1)) < 0.25
        process._held.append(_watcher.Member(pid_of(transport)))
        process._marks, marks = {}, process._marks
        assert 0.1 <= soonest(lambda: process.tree_ended(0.1)) < 0.25
        process._marks = marks


class Survivor(_watcher.Member):
    """Records its waits, and ignores signals."""

    waits: list[float]

    def signal(self, number: int) -> None:
        """Do nothing."""

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return False

    def close(self) -> None:
        """Do nothing."""


def test_the_watcher_gives_a_second_a_step(
    moved: MovedTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, now = Survivor(os.getpid()), [100.0]
    one.waits = []

    class Clock:
        @staticmethod
        def monotonic() -> float:
            now[0] += 0.5
            return now[0]

    monkeypatch.setattr(_watcher, "find", lambda servers: [one])
    # Descendants of this process may be servers of other tests.
    monkeypatch.setattr(_watcher, "add_descendants", lambda members: None)
    monkeypatch.setattr(_watcher, "time", Clock)
    _watcher.end_all({})
    # Each reading of the fake clock takes half a second, which each wait loses.
    assert one.waits == [0.5, 0.5, 0.0]
    super(Survivor, one).close()
