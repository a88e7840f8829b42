"""Callbacks during a call: their order, their timing, and their independence of each other."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.pool import BACKLOG
from syncmcp.testing import ScriptedPeer, ToolContext
from syncmcp.testing import script as s
from tests.connection.puppet import Puppet
from tests.connection.questions.asking import through
from tests.support.people import Person
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Clock,
    Stage,
    Wire,
    elsewhere,
    every_wire,
    in_threads,
    rotated_stateful,
    rotated_ways,
    rotated_with,
)

MEMORY = Wire("memory", STATEFUL)


@every_wire
@pytest.mark.requirement("PRG-01", "M-23")
@pytest.mark.pitfall("30")
def test_progress_of_each_call_comes_in_order_and_before_its_result(wire: Wire) -> None:
    everything: list[tuple[float, ...]] = []

    def job(steps: int) -> None:
        mine: list[Any] = []
        options: Any = {"on_progress": lambda *report: mine.append(report)}
        for _ in range(2):
            mine.clear()
            client.call_tool("count", {"steps": steps}, **options)
            # At once: the callbacks end before the call returns.
            assert mine == [(step, steps, f"step {step}") for step in range(1, steps + 1)]

    options: Any = {"on_progress": lambda *report: everything.append(report[:2])}
    with wire.connect(Stage().server, **options) as client:
        assert in_threads(partial(job, 30), partial(job, 50)) == [None] * 2
    all_steps = [(step, total) for total in (30, 50) for step in range(1, total + 1)]
    assert sorted(everything) == sorted(2 * all_steps)


@pytest.mark.requirement("PRG-04")
def test_progress_of_nothing_that_is_open_goes_to_nobody() -> None:
    tokens: list[Any] = [999, "nobody", ["$token"], None, True]
    odd: list[dict[str, Any]] = [{"progressToken": token, "progress": 1} for token in tokens]
    odd += [{"progress": 3}, {"progressToken": "$token", "progress": "four"}]
    news = [s.notify("notifications/progress", params) for params in odd]
    call, reply = s.expect("tools/call"), s.reply({"content": []})
    script = [*s.handshake(), call, *news, s.progress(6), reply, s.progress(7), call, reply]
    heard: list[float] = []
    options: Any = {"on_progress": lambda step, *_: heard.append(step)}
    with ScriptedPeer(script) as peer, Wire("stdio", STATEFUL).connect(peer, **options) as client:
        client.call_tool("first")
        client.call_tool("second")
    assert heard == [6]


@rotated_ways
@pytest.mark.requirement("M-01", "TMO-01")
@pytest.mark.pitfall("4")
def test_a_callback_that_never_returns_costs_its_own_call_its_time(wire: Wire, way: str) -> None:
    stage = Stage()
    inside, gate = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        inside.set()
        gate.wait(2 * PATIENCE)

    heard: list[float] = []
    counting: Any = ("count", {"steps": 2})
    options: dict[str, Any] = {"timeout": 1.0, "on_progress": block}
    with wire.connect(stage.server) as client:
        slow = elsewhere(lambda: through(client, way, *counting, **options))
        assert inside.wait(PATIENCE)
        quick = client.call_tool(
            *counting, timeout=PATIENCE, on_progress=lambda step, *_: heard.append(step)
        )
        assert (quick.text, heard) == ("counted", [1, 2])
        assert slow.result(PATIENCE).text == "counted"
        assert not gate.is_set()
        gate.set()
    assert stage.stats.cancels == []


@pytest.mark.parametrize("kind", ["progress", "log"])
@pytest.mark.requirement("M-23", "PRG-04", "LOG-01")
def test_what_a_slow_callback_keeps_is_newest(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    inside, gate = threading.Event(), threading.Event()
    last = BACKLOG + 500
    heard: list[Any] = []

    def slow(news: Any, *_: object) -> None:
        heard.append(news.data if kind == "log" else news)
        inside.set()
        assert gate.wait(2 * PATIENCE)

    @stage.server.tool()
    def flood(context: ToolContext) -> str:
        tell: Any = context.report_progress if kind == "progress" else partial(context.log, "info")
        for number in range(1, last):
            tell(number)
            assert inside.wait(PATIENCE)
        context.report_progress(last)
        return "flooded"

    options: Any = {f"on_{kind}": slow}
    with (
        caplog.at_level(logging.WARNING, "syncmcp"),
        MEMORY.connect(stage.server, **options) as client,
    ):
        future = client.call_tool.future("flood")
        assert any(report.progress == last for report in future.progress(timeout=PATIENCE))
        client.ping()  # now the last report is also in the callback's queue
        gate.set()
        assert future.result(PATIENCE).text == "flooded"
    if kind == "progress":
        assert heard == [1, *range(last - BACKLOG + 1, last + 1)]
    else:
        assert heard == [1, *range(last - BACKLOG, last)]
        assert [text for text in caplog.messages if "dropped" in text] == [
            "[stage] 498 notifications were dropped: a callback is too slow"
        ]


@rotated_with("error", {"error": RuntimeError("broken"), "exit": SystemExit(3)})
def test_a_callback_may_call_the_client_and_when_it_fails_the_call_goes_on(
    wire: Wire, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    heard: list[str | None] = []
    with wire.connect(stage.server) as client:

        def again(*_: object) -> None:
            heard.append(client.call_tool("echo", {"text": "inner"}, timeout=PATIENCE).text)
            raise error

        assert client.call_tool("count", {"steps": 3}, on_progress=again).text == "counted"
    assert heard == ["inner"] * 3
    (logged,) = {text for text in caplog.messages if text.endswith(repr(error))}
    assert re.fullmatch(r"\[.+\] a callback failed: .+", logged)


@rotated_stateful
@pytest.mark.pitfall("30")
def test_notifications_between_calls_come_in_order(wire: Wire) -> None:
    stage = Stage()
    heard: SimpleQueue[int] = SimpleQueue()
    with wire.connect(stage.server) as client:
        client.on_notification("notifications/news", lambda params: heard.put(params["number"]))
        assert client.call_tool("echo", {"text": "x"}).text == "x"
        if wire.transport == "http":
            assert stage.stats.wait_for(lambda stats: stats.streams >= 1, PATIENCE)
        for number in range(200):
            stage.server.broadcast("notifications/news", {"number": number})
        assert [heard.get(timeout=PATIENCE) for _ in range(200)] == list(range(200))


TIMES = 500

LIMITED = "syncmcp._concurrency.limited_log"
TOKEN = "t0ken-aaaa-bbbb-cccc"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch, LIMITED, stands=True)


@pytest.fixture
def logger(caplog: pytest.LogCaptureFixture) -> logging.Logger:
    caplog.set_level(logging.INFO, "syncmcp.test")
    return logging.getLogger("syncmcp.test")


def test_each_kind_is_logged_once_a_second_with_the_number_of_the_others(
    clock: Clock, logger: logging.Logger, caplog: pytest.LogCaptureFixture
) -> None:
    log = LimitedLog()
    for number in range(100):
        log.log(logger, logging.WARNING, "odd: %d", number)
        log.log(logger, logging.ERROR, "worse: %d", number)
    clock.advance(0.9)
    log.log(logger, logging.WARNING, "odd: %d", 100)
    assert caplog.messages == ["odd: 0", "worse: 0"]
    clock.advance(0.2)
    log.log(logger, logging.WARNING, "odd: %d", 101)
    clock.advance(1)
    log.log(logger, logging.WARNING, "odd: %d", 102)
    told = "odd: 101 (and 100 more like it since the last record)"
    assert caplog.messages[2:] == [told, "odd: 102"]


# Messages of a server


def note(method: str, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": method, "params": params}


FLOODS: dict[str, Callable[[int], Any]] = {
    "malformed": lambda number: b"[garbage",
    "unknown id": lambda number: {"jsonrpc": "2.0", "id": f"n{number}", "result": {}},
    "error without an id": lambda number: {
        "jsonrpc": "2.0", "id": None, "error": {"code": number, "message": "no"}
    },
    "progress of nothing": lambda number: note(
        "notifications/progress", progressToken=f"t{number}", progress=1
    ),
    "progress without a number": lambda number: note("notifications/progress", progressToken=1),
    "cancels of nothing": lambda number: note("notifications/cancelled", requestId=number),
    "visits of nobody": lambda number: note(
        "notifications/elicitation/complete", elicitationId=f"e{number}"
    ),
    "invalid log level": lambda number: note(
        "notifications/message", level=7, data=number
    ),
    "failing callback": lambda number: note("acme/fail"),
    # In 2026-07-28 servers send no requests.
    "requests where there are none": lambda number: {
        "jsonrpc": "2.0", "id": number, "method": "ping"
    },
}  # fmt: skip


@pytest.mark.parametrize("flood", FLOODS)
def test_a_flood_is_few_records(flood: str, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "syncmcp.wire")
    caplog.set_level(logging.DEBUG, "syncmcp")
    read = threading.Event()

    def on_notification(method: str, params: object) -> None:
        if method == "acme/fail":
            raise ZeroDivisionError("in a callback")
        if method == "acme/end":
            read.set()

    def on_log(message: object) -> None:
        """Stand for a callback that is never called: the level is invalid."""

    options: dict[str, Any] = {"on_notification": on_notification, "on_log": on_log}
    revision: Any = STATELESS if "none" in flood else STATEFUL
    with syncmcp.connect(server := Puppet(), mode=revision, **options):
        caplog.clear()
        for start in range(0, TIMES, 100):  # fewer than a callback's queue holds
            server.say(*map(FLOODS[flood], range(start, start + 100)), note("acme/end"))
            assert read.wait(PATIENCE)
            read.clear()
    by_message: dict[str, list[str]] = {}
    for record in caplog.records:
        if record.name.startswith("syncmcp."):
            kind = str(record.msg).partition(" (and")[0]
            by_message.setdefault(kind, []).append(record.getMessage())
    numbered = [few[-1] for few in by_message.values() if len(few) > 1]
    assert numbered
    assert [text for text in numbered if f"(and {TIMES - 2} more" not in text] == []
    assert {len(few) for few in by_message.values()} <= {1, 2}


def test_failing_handlers_flood_no_log(clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    left = threading.Semaphore(0)

    def failed(error: BaseException, context: object) -> None:
        left.release()
        raise LookupError("in on_handler_error")

    client = syncmcp.Client(server := Puppet(), mode=STATEFUL, on_handler_error=failed)
    client.on_request("acme/question", Person(ZeroDivisionError("in a handler")))
    with client:
        for number in range(50):
            server.say({"jsonrpc": "2.0", "id": f"q{number}", "method": "acme/question"})
            assert left.acquire(timeout=PATIENCE)
    assert sum("the handler of" in text for text in caplog.messages) <= 2
    assert sum("on_handler_error failed" in text for text in caplog.messages) <= 2
    assert sum(record.exc_info is not None for record in caplog.records) == 2


def test_the_log_keeps_no_secrets(logger: logging.Logger, caplog: pytest.LogCaptureFixture) -> None:
    log, text = LimitedLog(Secrets([TOKEN])), f"{'x' * (1000 - len(TOKEN) // 2)}{TOKEN}"
    for number in range(3):
        log.log(logger, logging.INFO, "%s, %r, %s, %d", ValueError(TOKEN), TOKEN, text, number)
    log.flush()
    log.log(logger, logging.WARNING, "%s and %r", ValueError("x" * 10**6), "y" * 10**6)
    assert len(caplog.records) == 3
    assert len(caplog.messages[2]) < 2100
    assert TOKEN[:6] not in caplog.text
