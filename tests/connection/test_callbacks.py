"""What a program is told while a call runs: in order, in time, and at nobody else's cost."""

from __future__ import annotations

import logging
import re
import threading
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp._concurrency.pool import BACKLOG
from syncmcp.testing import ScriptedPeer, ToolContext
from syncmcp.testing import script as s
from tests.connection.questions.asking import through
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
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
    stage = Stage()
    everything: list[tuple[float, float | None]] = []
    sizes = (30, 50)

    def job(steps: int) -> list[Any]:
        mine: list[Any] = []
        for _ in range(2):
            mine.clear()
            options: Any = {"on_progress": lambda *report: mine.append(report)}
            client.call_tool("count", {"steps": steps}, **options)
            # Right after the call, without waiting.
            assert mine == [(step, steps, f"step {step}") for step in range(1, steps + 1)]
        return mine

    with wire.connect(
        stage.server, on_progress=lambda step, total, _: everything.append((step, total))
    ) as client:
        outcomes = in_threads(*(partial(job, size) for size in sizes))
    assert [len(outcome) for outcome in outcomes] == [*sizes]
    assert sorted(everything) == sorted(
        2 * [(step, total) for total in sizes for step in range(1, total + 1)]
    )


@pytest.mark.requirement("PRG-04")
def test_progress_of_nothing_that_is_open_goes_to_nobody() -> None:
    script = [
        *s.handshake(),
        s.expect("tools/call"),
        s.notify("notifications/progress", {"progressToken": 999, "progress": 1}),
        s.notify("notifications/progress", {"progressToken": "nobody", "progress": 2}),
        s.notify("notifications/progress", {"progress": 3}),
        s.notify("notifications/progress", {"progressToken": ["$token"], "progress": 3}),
        s.notify("notifications/progress", {"progressToken": None, "progress": 3}),
        s.notify("notifications/progress", {"progressToken": "$token", "progress": "four"}),
        s.notify("notifications/progress", {"progressToken": True, "progress": 5}),
        s.progress(6),
        s.reply({"content": []}),
        s.progress(7),
        s.expect("tools/call"),
        s.reply({"content": []}),
    ]
    heard: list[float] = []
    with (
        ScriptedPeer(script) as peer,
        Wire("stdio", STATEFUL).connect(
            peer, on_progress=lambda step, *_: heard.append(step)
        ) as client,
    ):
        client.call_tool("first")
        client.call_tool("second")
    assert heard == [6]


@rotated_ways
@pytest.mark.requirement("M-01", "TMO-01")
@pytest.mark.pitfall("4")
def test_a_callback_that_never_returns_delays_no_other_call_and_costs_its_own_its_time_alone(
    wire: Wire, way: str
) -> None:
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
    with stage.stats as stats:
        assert stats.cancels == []


@pytest.mark.parametrize("kind", ["progress", "log"])
@pytest.mark.requirement("M-23", "PRG-04", "LOG-01")
def test_of_what_a_slow_callback_cannot_take_the_newest_is_kept(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
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
        client.ping()  # now the last report is in the callback's queue, too
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
