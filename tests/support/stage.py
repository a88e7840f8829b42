"""Where behaviour is tested: a server whose tools wait at gates, on every wire and in both eras.

`Stage` is the server. `Wire` is a way to it: a transport and a revision; ``wire.connect(server)``
is an open client, and ``wire.serve(server)`` what a client that a test makes itself connects to.
There are seven wires. A test has a parameter ``wire`` and one of these decorators:

* `every_wire`, where the wire is what is tested: echo, cancel, deadline, progress, question, loss;
  `stateful_wires` for what only the revisions with sessions have. `every_wire_in_turn` gives the
  wires a ``way``, "blocking" and "future" in turn.
* `rotated`, everywhere else: three of the seven. The tests of a file take turns, so that a file
  sees each wire about equally often. `rotated_stateful`: two of the four; `rotated_stateless`: one
  of the three.
* `rotated_with`, where the test has other parameters: each of their rows runs on one wire or two,
  in turn. `rotated_ways` and `rotated_stateful_ways` are that for "blocking" and "future".

The rest is for threads and time: `in_threads`, `elsewhere`, `Clock`, `tick`, `nervous`,
`interrupted`, `is_gone`, `logged`.
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
"""Seconds after which something that should have happened counts as not happening."""

STATEFUL: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"

T = TypeVar("T")
Test = TypeVar("Test", bound=Callable[..., object])

_RELAY = str(Path(__file__).with_name("relay.py"))


class Stage:
    """A server whose tools stop at gates that a test opens.

    Attributes:
        server: The server.
        stats: What it has seen.
        gate: Lets all calls of `hold` go on once it is set; see `let_go` for one of them.
    """

    def __init__(self) -> None:
        self.server = Server("stage")
        self.stats = self.server.stats
        self.gate = threading.Event()
        # Guards the set, and tells those who wait for it.
        self._changed = threading.Condition()
        self._inside: dict[str, ToolContext] = {}
        self._free: set[str] = set()
        self.server.tool()(self.hold)
        self.server.tool()(self.echo)
        self.server.tool()(self.count)

    def hold(self, context: ToolContext, key: str = "") -> str:
        """Wait for the gate or the end of the call, then say `key`."""
        with self._changed:
            self._inside[key] = context
            self._changed.notify_all()
        while not (self.gate.wait(0.01) or key in self._free or context.cancelled.is_set()):
            pass
        return key

    def echo(self, text: str) -> str:
        """Say `text`."""
        return text

    def count(self, context: ToolContext, steps: int) -> str:
        """Report `steps` steps of progress, then answer."""
        for step in range(1, steps + 1):
            context.report_progress(step, steps, f"step {step}")
        return "counted"

    def let_go(self, key: str) -> None:
        """Let one call of `hold` go on."""
        self._free.add(key)

    def inside(self, *keys: str) -> list[ToolContext]:
        """Wait until each of these calls is held; return their contexts."""
        with self._changed:
            assert self._changed.wait_for(lambda: set(keys) <= set(self._inside), PATIENCE), (
                f"only {sorted(self._inside)} of {sorted(keys)} came"
            )
            return [self._inside[key] for key in keys]


class InterruptedLatch(Latch):
    """Ctrl-C comes as soon as the main thread waits."""

    def wait(self, seconds: float | None) -> bool:
        _thread.interrupt_main()
        return super().wait(seconds)


class GatedQueue(SimpleQueue[Any]):
    """The jobs of a pool; who takes the word to end from it is held until `gate` is set."""

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
    """One way to a server: a transport and a revision."""

    transport: str
    revision: Mode

    def __str__(self) -> str:
        return f"{self.transport}-{self.revision}"

    @property
    def announces(self) -> bool:
        """Whether a cancel is a notification; over stateless HTTP it is the end of the stream."""
        return (self.transport, self.revision) != ("http", STATELESS)

    @contextmanager
    def serve(self, server: Any) -> Iterator[Any]:
        """What a client connects to, to reach a server of this process; it is closed at the end."""
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
        """An open client of `server`; closed, and the server with it, at the end."""
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
    """Gives the tests of a file some wires each, in turn.

    Args:
        wires: In the order in which they are given; three neighbours differ in their transports.
        each: How many wires a test gets.
    """

    def __init__(self, wires: Sequence[Wire], each: int) -> None:
        self._wires, self._each = wires, each
        # The names of the tests of a file, in the order of the file.
        self._tests: dict[str, list[str]] = {}

    def __call__(self, test: Test) -> Test:
        """Give this test its wires."""
        first = self._each * self._place(test)
        wires = [self._at(first + number) for number in range(self._each)]
        given: Test = pytest.mark.parametrize("wire", wires, ids=str)(test)
        return given

    def with_rows(self, names: str, rows: Any, ids: Any = None) -> Callable[[Test], Test]:
        """Give each row of other parameters one wire, the next in turn; two where rows are few."""
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
        """The number of the test in its file; files with few tests begin at different wires."""
        tests = self._tests.setdefault(test.__module__, [])
        if test.__qualname__ not in tests:
            tests.append(test.__qualname__)
        return zlib.crc32(test.__module__.encode()) + tests.index(test.__qualname__)


def _wire_name(value: object) -> str | None:
    """The name of a wire; pytest names other values."""
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
    """`server`, which lives in this process, as a child process to be spoken to through pipes."""
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
    lock = threading.Lock()  # keeps lines whole
    # A second frame would wait for the other side to say that it has the first one.
    line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def deliver(frame: bytes) -> None:
        try:
            with lock:
                line.sendall(frame + b"\n")
        except OSError:
            return  # the relay has gone; its client says so

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
    """Run the jobs at once, each on a thread of its own; return what each returned or raised.

    Within `patience` seconds all of them must have ended. What a job asserts, the test asserts.
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
    """Run a job on a thread of its own; the future gets what it returns or raises."""
    outcome: Future[T] = Future()

    def run() -> None:
        try:
            outcome.set_result(job())
        except BaseException as error:
            outcome.set_exception(error)

    threading.Thread(target=run, name="test-elsewhere", daemon=True).start()
    return outcome


class _Said(logging.Handler):
    """Keeps what a logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(f"{record.levelname}: {record.getMessage()}")


@contextmanager
def logged(name: str) -> Iterator[SimpleQueue[str]]:
    """What a logger says within the block, for who waits for it."""
    logger, said = logging.getLogger(name), _Said()
    logger.addHandler(said)
    try:
        yield said.messages
    finally:
        logger.removeHandler(said)


@contextmanager
def nervous() -> Iterator[None]:
    """Switch threads as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


class Clock:
    """A clock that a test moves, in the place of `time.monotonic` in the library.

    Real waits of the library (for a lock, for a condition) stay real, so a test moves the clock
    before somebody looks at it.

    Args:
        monkeypatch: Puts it there, and takes it away.
        modules: Those that see it.
        stands: Whether it moves by nothing but `advance`.
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
        """The time, in seconds."""
        return self._real() + self._ahead

    def advance(self, seconds: float) -> None:
        """Go forward."""
        self._ahead += seconds


def tick() -> None:
    """Have the timer look at its clock, and wait until what was due has been done."""
    looked = threading.Event()
    timer.after(0.0, looked.set)  # after everything that is due
    timer.at(0.0, lambda: None)  # wakes it
    assert looked.wait(PATIENCE)


def is_gone(thing: object) -> Callable[[], bool]:
    """What tells, once nobody else has `thing`, whether that is so.

    It collects, and waits: threads may hold on to what they did last, for a moment.
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
    """Whether a file of source code is the library's, its tools for tests left out."""
    return path.startswith(_LIBRARY) and not path.startswith(_TOOLS)


def interrupted(
    job: Callable[[], object],
    number: int,
    action: Callable[[], object],
    event: Literal["line", "call"] = "line",
) -> bool:
    """Run `job`, with `action` in the middle: at the `number`th line or call in the library's code.

    So does a signal handler run, or a finalizer: in a thread that may hold any lock. What raises
    does it at a call: between a lock's last line and its release no interpreter looks for signals.

    Returns:
        Whether there were so many.
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
            pass  # what becomes of the job is not what is looked at
        finally:
            sys.settrace(before)

    in_threads(run, patience=PATIENCE)
    return lines >= number
