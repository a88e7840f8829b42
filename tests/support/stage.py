"""Support for tests of behaviour: a server whose tools block, all transports, threads, and time.

`Stage` is the server. A `Wire` is a transport and a revision. ``wire.connect(server)`` gives an
open client; ``wire.serve(server)`` gives the target for a client that the test makes.
There are seven wires. A test has a parameter ``wire`` and one of these decorators:

* `every_wire`, if the test is about the transport: echo, cancel, deadline, progress, question,
  loss. `stateful_wires`, if it needs a session. `every_wire_in_turn` adds a parameter ``way``,
  which is "blocking" and "future" in turn.
* `rotated`, for all other tests: three of the seven wires. Each test of a file gets the next ones,
  so a file uses each wire about equally often. `rotated_stateful` gives two of the four wires,
  `rotated_stateless` one of the three.
* `rotated_with`, for tests with other parameters: each row of these gets the next wire; if there
  are few rows, several wires. `rotated_ways` and `rotated_stateful_ways` add a parameter ``way``.

The other helpers are about threads, signals and time: `in_threads`, `elsewhere`, `nervous`,
`interrupted`, `logged`, `is_gone`, `Clock`, `tick`.
"""

from __future__ import annotations

import _thread
import gc
import logging
import os
import socket
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final, Literal, NamedTuple, TypeVar

import pytest

import syncmcp
from syncmcp import Mode
from syncmcp._concurrency.timing import Latch, timer
from syncmcp.testing import Server, ToolContext, serve_http

PATIENCE = 10.0
"""Seconds that a test waits for an event that should come soon, before it fails."""

STATEFUL: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., object])

_RELAY = str(Path(__file__).with_name("relay.py"))


class Stage:
    """A server with the tools `hold`, which blocks until the test releases it, `echo` and `count`.

    Attributes:
        server: The server.
        stats: Its statistics.
        gate: Releases all calls of `hold` once it is set; `let_go` releases one of them.
    """

    def __init__(self) -> None:
        self.server = Server("stage")
        self.stats = self.server.stats
        self.gate = threading.Event()
        # Guards the dictionary of calls, and notifies the threads that wait for a call.
        self._changed = threading.Condition()
        self._inside: dict[str, ToolContext] = {}
        self._free: set[str] = set()
        self.server.tool()(self.hold)
        self.server.tool()(self.echo)
        self.server.tool()(self.count)

    def hold(self, context: ToolContext, key: str = "") -> str:
        """Wait for the gate, `let_go` or the cancellation of the call; then return `key`."""
        with self._changed:
            self._inside[key] = context
            self._changed.notify_all()
        while not (self.gate.wait(0.01) or key in self._free or context.cancelled.is_set()):
            pass
        return key

    def echo(self, text: str) -> str:
        """Return `text`."""
        return text

    def count(self, context: ToolContext, steps: int) -> str:
        """Report `steps` steps of progress, then answer."""
        for step in range(1, steps + 1):
            context.report_progress(step, steps, f"step {step}")
        return "counted"

    def let_go(self, key: str) -> None:
        """Release one call of `hold`."""
        self._free.add(key)

    def inside(self, *keys: str) -> list[ToolContext]:
        """Wait until a call of `hold` with each of these keys has begun; return their contexts."""
        with self._changed:
            assert self._changed.wait_for(lambda: set(keys) <= set(self._inside), PATIENCE), (
                f"only {sorted(self._inside)} of {sorted(keys)} came"
            )
            return [self._inside[key] for key in keys]


class InterruptedLatch(Latch):
    """A latch at which the main thread is interrupted, as by Ctrl-C, as soon as it waits."""

    def wait(self, seconds: float | None) -> bool:
        _thread.interrupt_main()
        return super().wait(seconds)


class GatedQueue(SimpleQueue[Any]):
    """The queue of a pool thread. `get` returns the `None` that ends it only once `gate` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.told, self.gate = threading.Event(), threading.Event()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        item = super().get(block, timeout)
        if item is None:
            self.told.set()
            assert self.gate.wait(PATIENCE)
        return item


class Wire(NamedTuple):
    """A transport and a revision."""

    transport: str
    revision: Mode

    def __str__(self) -> str:
        return f"{self.transport}-{self.revision}"

    @property
    def announces(self) -> bool:
        """True if a cancellation is a notification; over stateless HTTP it closes the stream."""
        return (self.transport, self.revision) != ("http", STATELESS)

    @contextmanager
    def serve(self, server: Any) -> Iterator[Any]:
        """Serve `server`, which runs in this process; yield the target for a client of it."""
        if self.transport == "memory":
            yield server
        elif self.transport == "stdio":
            with relayed(server) as target:
                yield target
        else:
            with serve_http(server) as http:
                old = self.transport == "sse"
                yield syncmcp.Http(http.sse_url, transport="sse") if old else http.url

    @contextmanager
    def connect(self, server: Any, **options: Any) -> Iterator[syncmcp.Client]:
        """Serve `server`, and yield an open client of it, which is closed at the end."""
        options = {"mode": self.revision, **options}
        with self.serve(server) as target, syncmcp.connect(target, **options) as client:
            yield client


WIRES = [
    Wire(transport, revision)
    for transport in ("memory", "stdio", "http")
    for revision in (STATEFUL, STATELESS)
] + [Wire("sse", STATEFUL)]
STATEFUL_WIRES = [wire for wire in WIRES if wire.revision == STATEFUL]
STATELESS_WIRES = [wire for wire in WIRES if wire.revision == STATELESS]

every_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
stateful_wires = pytest.mark.parametrize("wire", STATEFUL_WIRES, ids=str)


class Rotation:
    """A decorator that gives each test of a file the next few wires of a cycle.

    Args:
        wires: The cycle; three neighbours have different transports.
        each: The number of wires of a test.
    """

    def __init__(self, wires: Sequence[Wire], each: int) -> None:
        self._wires, self._each = wires, each
        # The names of the tests by module, in the order of the file.
        self._tests: dict[str, list[str]] = {}

    def __call__(self, test: Test) -> Test:
        """Parametrize a test with its wires."""
        first = self._each * self._place(test)
        wires = [self._at(first + number) for number in range(self._each)]
        given: Test = pytest.mark.parametrize("wire", wires, ids=str)(test)
        return given

    def with_rows(self, names: str, rows: Any, ids: Any = None) -> Callable[[Test], Test]:
        """Return a decorator: each row of other parameters gets the next wire; few rows several."""
        keyed = rows.items() if isinstance(rows, Mapping) else ((None, row) for row in rows)
        table = [
            row
            if hasattr(row, "marks")
            else pytest.param(*(row if "," in names else (row,)), id=key)
            for key, row in keyed
        ]
        each = -(-self._each // len(table))

        def give(test: Test) -> Test:
            first = each * len(table) * self._place(test)
            cases = []
            for number, row in enumerate(table):
                name = ids(*row.values) if ids else row.id
                for wire in [self._at(first + each * number + more) for more in range(each)]:
                    id = f"{wire}-{name}" if name else None
                    cases.append(pytest.param(wire, *row.values, marks=row.marks, id=id))
            given: Test = pytest.mark.parametrize(f"wire, {names}", cases, ids=_wire_name)(test)
            return given

        return give

    def _at(self, place: int) -> Wire:
        return self._wires[place % len(self._wires)]

    def _place(self, test: Any) -> int:
        """Return the place of a test in the cycle; different files begin at different wires."""
        tests = self._tests.setdefault(test.__module__, [])
        if test.__qualname__ not in tests:
            tests.append(test.__qualname__)
        return zlib.crc32(test.__module__.encode()) + tests.index(test.__qualname__)


def _wire_name(value: object) -> str | None:
    """Return the id of a wire; `None` for other values, which pytest names."""
    return str(value) if isinstance(value, Wire) else None


rotated = Rotation([WIRES[place] for place in (0, 5, 2, 1, 6, 3, 4)], each=3)
rotated_stateful = Rotation(STATEFUL_WIRES, each=2)
rotated_stateless = Rotation(STATELESS_WIRES, each=1)
rotated_with = rotated.with_rows
rotated_ways = rotated_with("way", ["blocking", "future"])
rotated_stateful_ways = rotated_stateful.with_rows("way", ["blocking", "future"])
every_wire_in_turn = pytest.mark.parametrize(
    ("wire", "way"),
    [*((wire, ("blocking", "future")[number % 2]) for number, wire in enumerate(WIRES)),
     (WIRES[4], "future")],
    ids=str,
)  # fmt: skip


@contextmanager
def relayed(server: Any) -> Iterator[syncmcp.Stdio]:
    """Yield a stdio target whose child process relays all messages to `server` in this process."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    served: list[threading.Thread] = []

    stopping = threading.Event()

    def take() -> None:
        while True:
            line, _ = listener.accept()
            if stopping.is_set():
                line.close()
                return
            thread = threading.Thread(
                target=_serve, args=(server, line), name="syncmcp-testing-relay", daemon=True
            )
            served.append(thread)
            thread.start()

    taker = threading.Thread(target=take, name="syncmcp-testing-relay", daemon=True)
    taker.start()
    try:
        yield syncmcp.Stdio(sys.executable, "-S", "-E", _RELAY, str(port))
    finally:
        stopping.set()
        socket.create_connection(("127.0.0.1", port)).close()
        taker.join(PATIENCE)
        listener.close()
        for thread in served:
            thread.join(PATIENCE)


def _serve(server: Any, line: socket.socket) -> None:
    lock = threading.Lock()  # two threads must not mix their lines
    # Otherwise a second frame would wait until the other side acknowledges the first one.
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def deliver(frame: bytes) -> None:
        try:
            with lock:
                line.sendall(frame + b"\n")
        except OSError:
            return  # the relay has ended, which its client notices

    with line, line.makefile("rb") as frames:
        session = server.connect(deliver)
        try:
            for frame in frames:
                session.receive(frame)
        except ConnectionError:
            pass  # the relay was killed
        finally:
            session.close()


def in_threads(*jobs: Callable[[], object], patience: float = 6 * PATIENCE) -> list[Any]:
    """Run the jobs at the same time, each on its own thread; return their results or exceptions.

    Fails if a job takes longer than `patience` seconds. Raises the `AssertionError` of a job.
    """
    outcomes: list[Any] = [None] * len(jobs)
    barrier = threading.Barrier(len(jobs))

    def run(index: int, job: Callable[[], object]) -> None:
        barrier.wait(PATIENCE)
        try:
            outcomes[index] = job()
        except BaseException as error:
            outcomes[index] = error

    threads = [
        threading.Thread(target=run, args=pair, name=f"test-{pair[0]}") for pair in enumerate(jobs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience)
        assert not thread.is_alive(), "a call did not come back"
    for outcome in outcomes:
        if isinstance(outcome, AssertionError):
            raise outcome
    return outcomes


def elsewhere(job: Callable[[], T]) -> Future[T]:
    """Run a job on another thread; return a future of its result or exception."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(job())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="test-elsewhere", daemon=True).start()
    return outcome


class _Said(logging.Handler):
    """Stores the messages of a logger."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(f"{record.levelname}: {record.getMessage()}")


@contextmanager
def logged(name: str) -> Iterator[SimpleQueue[str]]:
    """Yield a queue of the messages that a logger writes within the block."""
    logger, said = logging.getLogger(name), _Said()
    logger.addHandler(said)
    try:
        yield said.messages
    finally:
        logger.removeHandler(said)


@contextmanager
def nervous() -> Iterator[None]:
    """Let the interpreter switch threads as often as it can within the block."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Clock:
    """A clock that a test moves; it replaces `time.monotonic` in modules of the library.

    The library still waits for locks and conditions in real time, so a test must move the clock
    before the library reads it.

    Args:
        monkeypatch: Installs the clock, and restores the real one.
        modules: The modules in which it replaces the real one.
        stands: True if only `advance` moves it; otherwise it also moves with the real clock.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *modules: str, stands: bool = False
    ) -> None:
        from syncmcp._concurrency import timing

        self._real: Callable[[], float] = timing.monotonic
        if stands:
            now = self._real()
            self._real = lambda: now
        self._ahead = 0.0
        for module in modules:
            monkeypatch.setattr(f"{module}.monotonic", self.now)

    def now(self) -> float:
        """Return the time, in seconds."""
        return self._real() + self._ahead

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._ahead += seconds


def tick() -> None:
    """Let the timer read its clock, and wait until it has run all actions that are due."""
    looked = threading.Event()
    timer.after(0.0, looked.set)  # runs after all other actions that are due
    timer.at(0.0, lambda: None)  # wakes the timer
    assert looked.wait(PATIENCE)


def is_gone(thing: object) -> Callable[[], bool]:
    """Return a function that waits until `thing` is collected; it returns False if it never is.

    The caller must drop its own references first. Idle threads may keep some for a moment.
    """
    gone = threading.Event()
    weakref.finalize(thing, gone.set)

    def look() -> bool:
        for _ in range(100):
            gc.collect()
            if gone.wait(PATIENCE / 100):
                return True
        return False

    return look


_LIBRARY = os.path.join(os.path.dirname(os.path.abspath(syncmcp.__file__)), "")
_TOOLS = os.path.join(_LIBRARY, "testing", "")


def is_library(path: str) -> bool:
    """Return True if a source file belongs to the library, except `syncmcp.testing`."""
    return path.startswith(_LIBRARY) and not path.startswith(_TOOLS)


def interrupted(
    job: Callable[[], object],
    number: int,
    action: Callable[[], object],
    event: Literal["line", "call"] = "line",
) -> bool:
    """Run `job`, and run `action` in it before the `number`th line or call of the library's code.

    Signal handlers and finalizers run like this, in a thread that may hold any lock. If `action`
    raises, pass "call": no signal handler runs between the last line of a `with` block and the
    release of its lock, but a line event could raise there.

    Returns True if the job had that many lines or calls.
    """
    lines = 0

    def trace(frame: FrameType, what: str, arg: object) -> Any:
        nonlocal lines
        if not is_library(frame.f_code.co_filename):
            return None
        if what == event:
            lines += 1
            if lines == number:
                sys.settrace(None)
                action()
        return trace

    def run() -> None:
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            job()
        except syncmcp.McpError:
            pass  # the outcome of the job does not matter
        finally:
            sys.settrace(before)

    in_threads(run, patience=PATIENCE)
    return lines >= number
