"""Where behaviour is tested: a server whose tools wait at gates, on every wire and in both eras."""

from __future__ import annotations

import _thread
import gc
import logging
import os
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final, Literal, NamedTuple

import pytest

import syncmcp
from syncmcp import Mode
from syncmcp._concurrency.timing import Latch, timer
from syncmcp.testing import Server, ToolContext, serve_http

PATIENCE = 10.0
"""Seconds after which something that should have happened counts as not happening."""

STATEFUL: Final = "2025-11-25"
STATELESS: Final = "2026-07-28"

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
    def connect(self, server: Any, **options: Any) -> Iterator[syncmcp.Client]:
        """An open client of `server`; closed, and the server with it, at the end."""
        options = {"mode": self.revision, **options}
        if self.transport == "http":
            with serve_http(server) as http, syncmcp.connect(http.url, **options) as client:
                yield client
        elif self.transport == "sse":
            with serve_http(server) as http:
                old = syncmcp.Http(http.sse_url, transport="sse")
                with syncmcp.connect(old, **options) as client:
                    yield client
        elif self.transport == "stdio":
            with relayed(server) as target, syncmcp.connect(target, **options) as client:
                yield client
        else:
            with syncmcp.connect(server, **options) as client:
                yield client


WIRES = [
    Wire(transport, revision)
    for transport in ("memory", "stdio", "http")
    for revision in (STATEFUL, STATELESS)
] + [Wire("sse", STATEFUL)]

every_wire = pytest.mark.parametrize("wire", WIRES, ids=str)
stateful_wires = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.revision == STATEFUL], ids=str
)


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

    Within `patience` seconds all of them must have ended.
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
    return outcomes


class _Said(logging.Handler):
    """Keeps what a logger says."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: SimpleQueue[str] = SimpleQueue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put(record.getMessage())


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
