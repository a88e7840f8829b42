"""Writing to a server: whole frames in order, without blocking senders while the server is slow."""

from __future__ import annotations

import os
import shutil
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from syncmcp._concurrency.budget import Budget
from syncmcp.auth import Deadline
from syncmcp.config import Stdio
from syncmcp.errors import ClosedError, ConnectionLost, LimitExceeded
from syncmcp.testing.leaks import Footprint
from syncmcp.transports._pipes import StdinWriter
from syncmcp.transports.stdio import StdioTransport
from tests.client.test_lifecycle import struck
from tests.support.parts import raising
from tests.support.stage import Clock, in_threads, nervous, tick
from tests.transports._stdio import ECHO, PATIENCE, Notes, frame, python, running, threads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from syncmcp.errors import Delivery, McpError
    from syncmcp.transports.base import Outgoing

MEGABYTE = 1_000_000


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """Make a named pipe: a server that opens it waits until `release` opens it, too."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def release(gate: Path) -> None:
    gate.write_bytes(b"")


def reads_after(gate: Path) -> str:
    """Return a server that reads nothing before the gate opens."""
    return f"open({str(gate)!r}).read()\n" + ECHO


def big(number: int) -> bytes:
    return b'{"id":%d,"text":"%s"}' % (number, b"x" * MEGABYTE)


@pytest.mark.requirement("STD-01", "STD-02")
def test_a_server_gets_a_line_for_each_message_that_stays(tmp_path: Path) -> None:
    file = tmp_path / "stdin"
    code = f"import sys\nopen({str(file)!r}, 'wb').write(sys.stdin.buffer.read())"
    with running(python(code)) as (transport, _):
        transport.send(frame(b'{"id":1}'))
        out = frame(b'{"id":2}')
        assert transport.cancel(out) == "not_sent"
        transport.send(out)
        transport.post(frame(b'{"method":"x"}', None))
    assert file.read_bytes() == b'{"id":1}\n{"method":"x"}\n'


@pytest.mark.requirement("STD-02")
@pytest.mark.pitfall("H13")
def test_a_frame_half_written_when_it_is_withdrawn_is_completed(gate: Path) -> None:
    with running(python(reads_after(gate))) as (transport, notes):
        begun, waiting, last = frame(big(1) * 2), frame(big(2)), frame(b'{"id":3}')
        for out in (begun, waiting, last):
            transport.send(out)
        assert transport.cancel(begun) == "unknown"
        assert transport.cancel(waiting) == "not_sent"
        release(gate)
        assert notes.wait_frames(2) == [begun.body, last.body]
        assert transport.cancel(last) == "unknown"


@pytest.mark.pitfall("H13")
def test_frames_of_many_threads_neither_mix_nor_change_places(gate: Path) -> None:
    senders, each = 8, 40

    def send(sender: int) -> None:
        for number in range(each):
            size = (number * 7919 * (sender + 1)) % 70_000
            transport.send(frame(b'{"s":%d,"n":%d,"x":"%s"}' % (sender, number, b"x" * size)))

    with nervous(), running(python(reads_after(gate))) as (transport, notes):
        sending = [partial(send, number) for number in range(senders)]
        assert in_threads(*sending, partial(release, gate)) == [None] * (senders + 1)
        got = notes.wait_frames(senders * each)
        assert transport.noise == 0
    for sender in range(senders):
        mine = [line for line in got if line.startswith(b'{"s":%d,' % sender)]
        assert [int(line.split(b",")[1][4:]) for line in mine] == list(range(each))
        assert all(line.endswith(b'"}') for line in mine)


@pytest.mark.pitfall("H13")
@pytest.mark.parametrize(
    ("begun", "body", "least", "most"),
    [([], big(1), 4, 8), ([big(1) * 2], b"{}", 1, 4999)],
    ids=["bytes", "what a frame takes beside them"],
)
def test_what_waits_for_a_server_that_does_not_read_is_bounded(
    begun: list[bytes], body: bytes, least: int, most: int, gate: Path
) -> None:
    with running(python(reads_after(gate), max_frame=MEGABYTE)) as (transport, _):
        for first in begun:
            transport.send(frame(first))  # fills the pipe
        sent = []

        def fill() -> None:
            for number in range(5000):
                out = frame(body, number)
                transport.send(out)
                sent.append(out)

        with pytest.raises(LimitExceeded, match="4 times max_frame") as caught:
            fill()
        assert caught.value.delivery == "not_sent"
        assert least <= len(sent) <= most
        transport.cancel(sent[-1])
        transport.send(frame(b"{}"))
        release(gate)


@pytest.mark.pitfall("5")
def test_a_frame_for_a_server_that_closed_its_stdin_was_not_sent() -> None:
    code = "import os, signal\nos.close(0)\nos.write(1, b'{}\\n')\nsignal.pause()"
    with running(python(code)) as (transport, notes):
        notes.wait_frames(1)
        for _ in range(2):
            with pytest.raises(ConnectionLost) as caught:
                transport.send(frame())
            assert caught.value.delivery == "not_sent"
            assert isinstance(caught.value.__cause__, BrokenPipeError)
        assert notes.losses == []


@pytest.mark.pitfall("5")
def test_requests_that_waited_are_told_when_the_server_closes_its_stdin(gate: Path) -> None:
    code = f"import os, signal\nopen({str(gate)!r}).read()\nos.close(0)\nsignal.pause()"
    ledger = Budget(10 * MEGABYTE, None, "")
    with running(python(code)) as (transport, notes):
        begun, waiting, answer = frame(big(1) * 2), frame(big(2)), owed(b"{}", ledger)
        for out in (begun, waiting, answer):
            transport.send(out)
        assert ledger.items == 1
        release(gate)
        notes.until(lambda: len(notes.failures) == 2)
        told: Any = [(out, error.delivery) for out, error in notes.failures]  # type: ignore[attr-defined]
        assert told == [(begun, "unknown"), (waiting, "not_sent")]
        assert [transport.cancel(out) for out in (begun, waiting)] == ["unknown", "not_sent"]
        assert ledger.items == 0  # frames that are discarded with the pipe leave the budget


def test_a_send_to_a_dead_server_says_how_it_died() -> None:
    with running(python("import sys\nsys.exit('bye')")) as (transport, notes):
        notes.wait_lost()
        with pytest.raises(ConnectionLost) as caught:
            transport.send(frame())
        assert (caught.value.exit_code, caught.value.stderr_tail) == (1, "bye")
        assert caught.value.delivery == "not_sent"


def test_nothing_is_sent_before_opening_or_after_closing() -> None:
    transport, out = StdioTransport(python(ECHO)), frame()
    with pytest.raises(ClosedError):
        transport.send(out)
    with running(python(ECHO)) as (transport, _):
        pass
    with pytest.raises(ClosedError):
        transport.send(out)
    assert transport.cancel(out) == "not_sent"
    with pytest.raises(ClosedError):
        transport.open(Notes(), Deadline(1))


@pytest.mark.pitfall("H8")
def test_a_thread_that_cannot_be_started_fails_the_send_and_not_the_close(
    gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_thread = RuntimeError("can't create new thread at interpreter shutdown")
    with running(python(reads_after(gate))) as (transport, _):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", raising(no_thread))
            errors = []
            for body in (big(1) * 2, b"{}"):
                with pytest.raises(ConnectionLost) as caught:
                    transport.send(frame(body))
                errors.append(caught.value.delivery)
        assert errors == ["unknown", "not_sent"]
        release(gate)


@pytest.mark.requirement("STD-11")
def test_a_fast_server_needs_no_writer_thread() -> None:
    with running(python(ECHO)) as (transport, notes):
        for number in range(1, 50):
            transport.send(frame())
            assert notes.wait_frames(number) == [b'{"id":1}'] * number
        names = sorted(thread.name.split("[")[0] for thread in threads())
        assert names == ["syncmcp-read", "syncmcp-stderr"]
        assert transport.describe() == ""
    assert notes.losses == []


class FakeProcess:
    """A process whose writes accept `sizes` bytes in turn, and then everything."""

    def __init__(self, *sizes: int, writes_block: bool = False) -> None:
        self.writes_block = writes_block
        self.sizes = deque(sizes)
        self.taken = b""
        self.changed = threading.Condition()
        self.writers: list[str] = []
        self.waits = self.closed = 0
        self.on_write: Callable[[], None] = lambda: None
        self.writable = threading.Event()
        self.writable.set()
        self.ended = False

    def wait_for(self, reached: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(reached, PATIENCE)

    def write(self, data: bytes | memoryview, taken: list[int]) -> None:
        self.writers.append(threading.current_thread().name)
        action, self.on_write = self.on_write, lambda: None
        action()
        assert not self.closed
        size = min(self.sizes.popleft(), len(data)) if self.sizes else len(data)
        with self.changed:
            self.taken += bytes(data[:size])
            self.changed.notify_all()
        if size:
            taken.append(size)

    def wait_writable(self) -> bool:
        with self.changed:
            self.waits += 1
            self.changed.notify_all()
        assert self.writable.wait(PATIENCE)
        return not self.ended

    def end_input(self) -> None:
        self.ended = True
        self.writable.set()

    def close_input(self) -> None:
        self.closed += 1


class FakeOwner:
    label = "fake"

    def __init__(self) -> None:
        self.stalls: list[float] = []
        self.ends = 0

    def start_thread(self, role: str, target: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"syncmcp-{role}[fake]", daemon=True)
        thread.start()
        return thread

    def broken_pipe(self, delivery: Delivery, wait: float) -> ConnectionLost:
        return ConnectionLost("broken", delivery=delivery)

    def failed(self, out: Outgoing, error: McpError) -> None:
        raise AssertionError(error)

    def input_closed(self) -> None:
        self.ends += 1

    def stalled(self, seconds: float) -> None:
        self.stalls.append(seconds)


def outbox(process: FakeProcess, owner: FakeOwner | None = None) -> StdinWriter:
    box = StdinWriter(owner or FakeOwner(), MEGABYTE)
    box.open(process)  # type: ignore[arg-type]
    return box


def finish(box: StdinWriter) -> None:
    box.close()
    if box.writer is not None:
        box.writer.join(PATIENCE)


@pytest.mark.pitfall("H13")
def test_a_signal_handler_that_sends_in_mid_write_does_not_cut_the_frame() -> None:
    process = FakeProcess(3)
    process.writable.clear()
    box = outbox(process)
    process.on_write = lambda: box.send(frame(b"{inner}"))
    box.send(frame(b"{outer}"))
    assert process.taken == b"{ou"
    process.writable.set()
    process.wait_for(lambda: process.taken == b"{outer}\n{inner}\n")
    finish(box)


def test_a_signal_handler_that_closes_in_mid_write_leaves_the_pipe_to_the_writer() -> None:
    process = FakeProcess()
    box = outbox(process)

    def interrupt() -> None:
        box.close()
        assert process.closed == 0

    process.on_write = interrupt
    box.send(frame(b"{}"))
    assert (process.taken, process.closed) == (b"{}\n", 1)
    with pytest.raises(ClosedError):
        box.send(frame(b"{}"))
    finish(box)
    assert process.closed == 1


@pytest.mark.pitfall("4", "H13")
def test_where_writes_block_only_the_writer_thread_writes() -> None:
    process = FakeProcess(writes_block=True)
    entered, go_on = threading.Event(), threading.Event()

    def block() -> None:
        entered.set()
        assert go_on.wait(PATIENCE)

    process.on_write = block
    box = outbox(process)
    box.send(frame(b"{1}"))
    assert entered.wait(PATIENCE)
    second, third = frame(b"{2}"), frame(b"{3}")
    box.send(second)
    box.send(third)
    assert box.cancel(second) == "not_sent"
    box.close()
    assert process.closed == 0
    go_on.set()
    finish(box)
    assert set(process.writers) == {"syncmcp-write[fake]"}
    assert (process.taken, process.closed) == (b"{1}\n", 1)


@pytest.mark.skipif(shutil.which("sleep") is None, reason="needs a server that never reads")
@pytest.mark.pitfall("9")
def test_ctrl_c_while_the_writer_thread_is_started_leaves_one_writer_and_no_descriptor() -> None:
    def writers() -> list[threading.Thread]:
        return [thread for thread in threads() if "syncmcp-write" in thread.name]

    body, number, more, before = b"x" * 3 * 1024 * 1024, 1, True, Footprint()
    while more:
        with running(Stdio("sleep", "600"), close=0) as (transport, _):
            more = struck(partial(transport.send, frame(body)), number, everywhere=True)
            transport.send(frame(body))
            deadline = Deadline(PATIENCE)
            # A thread that was interrupted early ends when it finds another writer. It cannot be
            # joined, because it may not have started yet.
            while (found := writers()) != [transport._stdin_writer.writer]:
                assert not deadline.expired, found
        assert before.left_behind() == [], f"after the interrupt at moment {number}"
        number += 1
    assert number > 20


# Answers of the library that the server has not read


def owed(body: bytes = b"{}", ledger: Budget | None = None) -> Outgoing:
    """Return an answer of the library that is counted in a budget, as a connection does."""
    out = frame(body, None)
    out.enter(ledger or Budget(MEGABYTE, None, ""))
    return out


class Stalled:
    """A writer whose server has read three bytes of the first frame, and then stops reading."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        modules = ("_concurrency.timing", "transports._pipes", "transports.base")
        names = [f"syncmcp.{module}" for module in modules]
        self.clock = Clock(monkeypatch, *names, stands=True)
        self.owner, self.process = FakeOwner(), FakeProcess(3)
        self.process.writable.clear()
        self.box = outbox(self.process, self.owner)

    def after(self, seconds: float) -> list[float]:
        """Move the clock; return the limits, in seconds, at which the server was given up."""
        self.clock.advance(seconds)
        tick()
        return self.owner.stalls

    def read(self, size: int) -> None:
        """Make the server read once more; wait until the writer waits again."""
        process = self.process
        process.wait_for(lambda: process.waits > 0)
        waits = process.waits
        process.sizes.append(size)
        process.on_write = process.writable.clear
        process.writable.set()
        process.wait_for(lambda: process.waits > waits)


@pytest.fixture
def stalled(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stalled]:
    stall = Stalled(monkeypatch)
    yield stall
    finish(stall.box)


def test_a_server_that_reads_nothing_while_answers_wait_is_given_up(stalled: Stalled) -> None:
    stalled.box.send(frame(b"{request}"))
    stalled.box.send(frame(b"{another}"))
    assert stalled.after(3600) == []  # requests end at their own deadlines
    stalled.box.send(owed())
    assert stalled.after(29.5) == []
    assert stalled.after(0.6) == [30]
    with pytest.raises(ConnectionLost):
        stalled.box.send(owed())
    assert stalled.after(60) == [30]  # only once


def test_a_server_that_reads_slowly_is_not_given_up(stalled: Stalled) -> None:
    stalled.box.send(frame(b"{a long request}"))
    stalled.box.send(owed(b"{an answer}"))
    for _ in range(5):
        assert stalled.after(20) == []
        stalled.read(2)
    assert stalled.after(30.1) == [30]


def test_an_answer_half_written_is_owed_as_well(stalled: Stalled) -> None:
    stalled.box.send(owed(b"{answer}"))
    assert stalled.after(30.1) == [30]


def test_a_server_that_has_read_all_of_it_is_left_alone(stalled: Stalled) -> None:
    ledger = Budget(MEGABYTE, 10, "")
    bodies = [b"{request}", b"{answer}", b"{another answer}"]
    stalled.box.send(frame(bodies[0]))
    for body in bodies[1:]:
        stalled.box.send(owed(body, ledger))
    assert ledger.items == 2
    stalled.box.send(frame(b"{unread}"))
    for body in (bodies[0][3:], *bodies[1:]):
        stalled.read(len(body) + 1)
    assert stalled.process.taken == b"\n".join(bodies) + b"\n"
    assert (ledger.items, ledger.used) == (0, 0)
    assert stalled.after(3600) == []


def test_last_answers_of_a_closed_stdin_come_within_a_second(stalled: Stalled) -> None:
    process = stalled.process
    process.on_write, process.sizes = raising(BrokenPipeError), deque()
    with pytest.raises(ConnectionLost):
        stalled.box.send(frame(b"{request}"))
    stalled.after(0.5)
    assert stalled.owner.ends == 0
    stalled.after(0.6)
    assert stalled.owner.ends == 1


def test_where_writes_block_a_long_frame_is_written_in_pieces() -> None:
    process = FakeProcess(writes_block=True)
    box, answer = outbox(process), owed(b"x" * MEGABYTE, Budget(MEGABYTE, None, ""))
    box.send(answer)
    process.wait_for(lambda: len(process.taken) == MEGABYTE + 1)
    finish(box)
    assert len(process.writers) == 16
