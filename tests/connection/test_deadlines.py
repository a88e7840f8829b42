"""Every call ends at its limits, whatever the server does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

import pytest

import syncmcp
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.pending_request import TimeoutWatcher
from syncmcp.testing import ScriptedPeer, ToolContext, serve_http
from syncmcp.testing import script as s
from syncmcp.testing.script import Step
from syncmcp.transports.memory import MemoryTransport
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    Clock,
    Stage,
    Wire,
    in_threads,
    relayed,
    rotated,
    tick,
)

# A limit in real time. For exact limits, see `test_call_limits.py`.
LIMIT = 0.2
CEILING = PATIENCE

both_ways = pytest.mark.parametrize("way", ["blocking", "future"])


def call(client: syncmcp.Client, way: str, name: str, arguments: Any, **options: Any) -> Any:
    """Call a tool; return its result or error."""
    if way == "future":
        future = client.call_tool.future(name, arguments, **options)
        return future.exception(2 * PATIENCE) or future.result(0)
    try:
        return client.call_tool(name, arguments, **options)
    except syncmcp.McpError as error:
        return error


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < seconds


@both_ways
@pytest.mark.parametrize("pause", [0.02, None])
@pytest.mark.requirement("TMO-01", "CAN-01")
def test_the_server_is_told_of_a_deadline_that_the_exchange_noticed_first(
    way: str, pause: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without the timer, which expires calls, the reading thread notices the deadline, or the
    # transport aborts the exchange.
    monkeypatch.setattr(TimeoutWatcher, "watch", lambda *_: None)
    stage = Stage()

    @stage.server.tool()
    def work(context: ToolContext) -> str:
        while not context.cancelled.wait(pause):
            context.report_progress(1)
        return "late"

    with Wire("http", STATEFUL).connect(stage.server) as client:
        error = call(client, way, "work", {}, timeout=0.3)
        assert isinstance(error, syncmcp.RequestTimeout)
        assert (error.kind, error.seconds, error.delivery) == ("total", 0.3, "unknown")
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)


ANSWER = s.reply({"content": [{"type": "text", "text": "late"}]})
STUCK: dict[str, list[Step]] = {
    "silent": [s.silence()],
    "dripping": [s.drip(ANSWER, 0.05)],
    "chattering": [s.repeat([s.progress(1), s.delay(0.02)])],
}
COMMENTS = [s.head(), s.repeat([s.comment("still here"), s.delay(0.02)])]
# Blocking calls and futures, each on both transports.
STANDSTILLS = [
    ("silent", "blocking", "stdio"),
    ("silent", "future", "http"),
    ("dripping", "future", "stdio"),
    ("dripping", "blocking", "http"),
    ("chattering", "blocking", "stdio"),
    ("chattering", "future", "http"),
    ("commenting", "blocking", "http"),
]


@pytest.mark.parametrize(("fault", "way", "transport"), STANDSTILLS)
@pytest.mark.requirement("TMO-01", "TMO-03")
@pytest.mark.pitfall("4", "H5")
def test_no_way_of_not_answering_holds_any_call(fault: str, way: str, transport: str) -> None:
    steps = STUCK.get(fault, COMMENTS)
    script = [*s.handshake(), s.expect("tools/call"), *steps]
    with ScriptedPeer(script) as peer, relayed(peer) as target:
        place: Any = target if transport == "stdio" else peer.url
        with syncmcp.connect(place, mode=STATEFUL, close_timeout=0.2) as client:
            for _ in range(2):
                with at_most(CEILING):
                    error = call(client, way, "stuck", {}, timeout=LIMIT, idle_timeout=PATIENCE)
                assert isinstance(error, syncmcp.RequestTimeout)
                assert error.kind == "total"


@pytest.mark.parametrize("end", ["timeout", "token", "close", "blocking"])
@pytest.mark.requirement("TMO-01")
@pytest.mark.pitfall("4", "H5")
def test_a_headers_function_holds_no_future(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, token = Stage(), syncmcp.CancelToken()
    gate, ready, inside = (threading.Event() for _ in range(3))
    clock = Clock(monkeypatch, "syncmcp._concurrency.timing")

    def pass_time(seconds: float) -> None:
        clock.advance(seconds)
        tick()

    def headers() -> dict[str, str]:
        if ready.is_set() and not inside.is_set():  # only the first call is slow
            inside.set()
            if end == "blocking":
                pass_time(600)
            else:
                assert gate.wait(6 * PATIENCE)
        return {}

    error: Any
    with (
        serve_http(stage.server) as http,
        syncmcp.connect(syncmcp.Http(http.url, headers=headers)) as client,
    ):
        ready.set()
        if end == "blocking":
            error = call(client, end, "echo", {"text": "x"}, timeout=600)
        else:
            future = client.call_tool.future("echo", {"text": "x"}, timeout=600, cancel=token)
            assert inside.wait(PATIENCE)
            ways: dict[str, Callable[[], object]] = {
                "token": token.cancel,
                "close": client.close,
                "timeout": partial(pass_time, 600),
            }
            try:
                ways[end]()
                pass_time(1)
                error = future.exception(PATIENCE)
            finally:
                gate.set()
    ends: Any = {"token": syncmcp.RequestCancelled, "close": syncmcp.ClosedError}
    assert type(error) is ends.get(end, syncmcp.RequestTimeout)
    assert (error.delivery, stage.stats.requests["tools/call"]) == ("not_sent", 0)


@both_ways
@pytest.mark.requirement("TMO-01")
@pytest.mark.pitfall("4", "H13")
def test_a_server_that_stops_reading_holds_neither_a_big_nor_a_small_call(way: str) -> None:
    # The server answers the ping after it has stopped reading.
    script = [*s.handshake(), s.expect("ping"), s.stop_reading(), s.reply({}), s.silence()]
    with ScriptedPeer(script) as peer:
        target = syncmcp.Stdio(*peer.command)
        with syncmcp.connect(target, mode=STATEFUL, close_timeout=0.2) as client:
            client.ping()
            for size, delivery in ((4_000_000, "unknown"), (0, "not_sent")):
                with at_most(CEILING):
                    error = call(client, way, "big", {"text": "x" * size}, timeout=LIMIT)
                assert isinstance(error, syncmcp.RequestTimeout)
                assert error.delivery == delivery


@rotated
@pytest.mark.pitfall("H11")
def test_threads_in_line_take_their_turn_and_run_only_their_own_calls(wire: Wire) -> None:
    stage, back = Stage(), threading.Event()

    def first() -> Any:
        result = client.call_tool("hold", {"key": "a"}, timeout=2 * PATIENCE)
        back.set()
        return result.text

    def second() -> Any:
        stage.inside("a")
        return client.call_tool("hold", {"key": "b"}, timeout=2 * PATIENCE).text

    def direct() -> None:
        stage.inside("a")
        stage.let_go("a")
        stage.inside("b")
        # The first call returns while the second is still in flight.
        assert back.wait(PATIENCE)
        stage.let_go("b")

    with wire.connect(stage.server, max_in_flight=1) as client:
        assert in_threads(first, second, direct) == ["a", "b", None]


class _SlowMeta(Mapping[str, Any]):
    """Metadata whose value is slow to read, which happens when the frame is written."""

    def __init__(self) -> None:
        self.reading, self.gate = threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[str]:
        return iter(["slow"])

    def __len__(self) -> int:
        return 1

    def __getitem__(self, key: str) -> Any:
        self.reading.set()
        assert self.gate.wait(PATIENCE)
        return True


@rotated
def test_a_call_whose_turn_comes_while_its_frame_is_being_written_is_sent(wire: Wire) -> None:
    stage = Stage()
    meta = _SlowMeta()

    def second() -> Any:
        return client.call_tool("echo", {"text": "x"}, meta=meta, timeout=PATIENCE).text

    def direct() -> None:
        assert meta.reading.wait(PATIENCE)
        stage.gate.set()
        first.result(PATIENCE)
        meta.gate.set()

    with wire.connect(stage.server, max_in_flight=1) as client:
        first = client.call_tool.future("hold", {"key": "first"})
        stage.inside("first")
        assert in_threads(second, direct) == ["x", None]


def test_a_long_line_that_cannot_be_sent_ends_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()

    def refuse(out: Any) -> None:
        raise syncmcp.LimitExceeded("full", delivery="not_sent")

    with Wire("memory", STATEFUL).connect(stage.server, max_in_flight=1) as client:
        first = client.call_tool.future("hold", {"key": "first"})
        stage.inside("first")
        line = [client.call_tool.future("echo", {"text": "x"}) for _ in range(1500)]
        assert client._core.connection is not None
        with monkeypatch.context() as patch:
            patch.setattr(client._core.connection.transport, "send", refuse)
            stage.gate.set()
            assert first.result(PATIENCE).text == "first"
            errors = [future.exception(PATIENCE) for future in line]
        assert {type(error) for error in errors} == {syncmcp.LimitExceeded}
        assert client.call_tool("echo", {"text": "y"}, timeout=PATIENCE).text == "y"


def test_a_clock_that_strikes_in_a_close_finds_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    gate, closing = threading.Event(), threading.Event()
    original = MemoryTransport.cancel

    def withdraw(self: MemoryTransport, out: Any) -> Any:
        closing.set()
        assert gate.wait(PATIENCE)
        return original(self, out)

    def blocking() -> Any:
        try:
            return client.call_tool("hold", {"key": "a"}, timeout=LIMIT)
        finally:
            gate.set()

    with Wire("memory", STATEFUL).connect(stage.server) as client:
        # `close` has taken the call, but not yet ended it, when its timeout passes.
        monkeypatch.setattr(MemoryTransport, "cancel", withdraw)

        def close() -> None:
            stage.inside("a")
            client.close()

        outcome, _ = in_threads(blocking, close)
        assert closing.is_set()
        assert isinstance(outcome, syncmcp.ClosedError)


def _at_instruction(number: int, job: Callable[[], object], action: Callable[[], object]) -> bool:
    """Run `job`, and `action` before the `number`th instruction of `job` and its callees.

    `action` stands for another thread. Return whether there are that many instructions.
    """
    seen = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal seen
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == number:
                sys.settrace(None)
                action()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        job()
    finally:
        sys.settrace(before)
    return seen >= number


@pytest.mark.parametrize("held_before", [False, True])
def test_a_deadline_may_be_held_or_released_in_the_middle_of_being_read(held_before: bool) -> None:
    reads: list[Callable[[Deadline], object]]
    reads = [lambda d: d.expired, lambda d: d.remaining(), lambda d: d.sooner(5.0)]
    for read in reads:
        number, more = 1, True
        while more:
            deadline = Deadline(100.0)
            if held_before:
                deadline.hold()
            action = deadline.release if held_before else deadline.hold
            more = _at_instruction(number, partial(read, deadline), action)
            assert deadline.held == (held_before != more)
            number += 1
        assert number > 10
