"""What a program is told while a call runs: in order, in time, and at nobody else's cost."""

from __future__ import annotations

import logging
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from syncmcp._concurrency.pool import BACKLOG
from syncmcp.testing import ScriptedPeer, ToolContext
from syncmcp.testing import script as s
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    Stage,
    Wire,
    every_wire,
    in_threads,
    rotated,
    rotated_stateful,
    rotated_with,
)

MEMORY = Wire("memory", STATEFUL)


@every_wire
@pytest.mark.requirement("PRG-01", "M-23")
@pytest.mark.pitfall("30")
def test_progress_comes_in_order_and_before_the_result(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        for _ in range(3):
            heard: list[Any] = []
            client.call_tool(
                "count",
                {"steps": 100},
                on_progress=lambda *report, heard=heard: heard.append(report),
            )
            # Right after the call, without waiting.
            assert heard == [(step, 100, f"step {step}") for step in range(1, 101)]


@rotated
@pytest.mark.requirement("M-23")
def test_each_call_hears_its_own_progress_and_the_client_hears_all(wire: Wire) -> None:
    stage = Stage()
    everything: list[tuple[float, float | None]] = []
    mine: dict[int, list[float]] = {3: [], 5: []}

    def job(steps: int) -> Any:
        return lambda: client.call_tool(
            "count", {"steps": steps}, on_progress=lambda step, *_: mine[steps].append(step)
        )

    with wire.connect(
        stage.server, on_progress=lambda step, total, _: everything.append((step, total))
    ) as client:
        in_threads(job(3), job(5))
    assert mine == {3: [1, 2, 3], 5: [1, 2, 3, 4, 5]}
    assert sorted(everything) == sorted(
        (step, total) for total in (3, 5) for step in range(1, total + 1)
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


@rotated
@pytest.mark.requirement("M-01")
def test_a_blocked_callback_of_one_call_delays_no_other_call(wire: Wire) -> None:
    stage = Stage()
    inside, gate = threading.Event(), threading.Event()

    def block(*_: object) -> None:
        inside.set()
        assert gate.wait(2 * PATIENCE)

    heard: list[float] = []
    with wire.connect(stage.server) as client:
        slow = client.call_tool.future("count", {"steps": 2}, on_progress=block)
        assert inside.wait(PATIENCE)
        quick = client.call_tool(
            "count", {"steps": 2}, timeout=PATIENCE, on_progress=lambda n, *_: heard.append(n)
        )
        assert quick.text == "counted"
        assert heard == [1, 2]
        assert not slow.done()
        gate.set()
        assert slow.result(PATIENCE).text == "counted"


@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("TMO-01")
@pytest.mark.pitfall("4")
def test_a_callback_that_never_returns_costs_the_call_its_time_but_not_its_result(way: str) -> None:
    stage = Stage()
    gate = threading.Event()

    def block(*_: object) -> None:
        gate.wait(2 * PATIENCE)

    with MEMORY.connect(stage.server) as client:
        if way == "future":
            result = client.call_tool.future(
                "count", {"steps": 3}, timeout=1.0, on_progress=block
            ).result(PATIENCE)
        else:
            result = client.call_tool("count", {"steps": 3}, timeout=1.0, on_progress=block)
        assert result.text == "counted"
        assert not gate.is_set()
        gate.set()
    with stage.stats as stats:
        assert stats.cancels == []


@pytest.mark.requirement("M-23", "PRG-04")
def test_newer_progress_replaces_older_when_a_callback_is_slow() -> None:
    stage = Stage()
    inside, gate = threading.Event(), threading.Event()
    last = BACKLOG + 500
    heard: list[float] = []

    def slow(step: float, *_: object) -> None:
        heard.append(step)
        inside.set()
        assert gate.wait(2 * PATIENCE)

    @stage.server.tool()
    def flood(context: ToolContext) -> str:
        """Report once, and then much more than may wait."""
        context.report_progress(1)
        assert inside.wait(PATIENCE)
        for step in range(2, last + 1):
            context.report_progress(step)
        return "flooded"

    with MEMORY.connect(stage.server) as client:
        future = client.call_tool.future("flood", on_progress=slow)
        for report in future.progress(timeout=PATIENCE):
            if report.progress == last:
                break
        client.ping()  # now the last report is in the callback's queue, too
        gate.set()
        assert future.result(PATIENCE).text == "flooded"
    assert heard == [1, *range(last - BACKLOG + 1, last + 1)]


@pytest.mark.requirement("LOG-01")
def test_log_messages_that_do_not_fit_are_counted_in_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stage = Stage()
    inside, gate = threading.Event(), threading.Event()
    heard: list[Any] = []

    def slow(message: Any) -> None:
        heard.append(message.data)
        inside.set()
        assert gate.wait(2 * PATIENCE)

    @stage.server.tool()
    def chat(context: ToolContext) -> str:
        """Log once, and then much more than may wait."""
        context.log("info", 0)
        assert inside.wait(PATIENCE)
        for number in range(1, BACKLOG + 501):
            context.log("info", number)
        context.report_progress(1)
        return "chatted"

    with (
        caplog.at_level(logging.WARNING, "syncmcp"),
        MEMORY.connect(stage.server, on_log=slow) as client,
    ):
        future = client.call_tool.future("chat")
        assert next(future.progress(timeout=PATIENCE)).progress == 1
        gate.set()
        assert future.result(PATIENCE).text == "chatted"
    assert heard == [0, *range(501, BACKLOG + 501)]
    warnings = [record.getMessage() for record in caplog.records]
    assert [text for text in warnings if "dropped" in text] == [
        "500 notifications were dropped: a callback is too slow"
    ]


@rotated
def test_a_progress_callback_may_call_the_client_and_wait(wire: Wire) -> None:
    stage = Stage()
    heard: list[str | None] = []
    with wire.connect(stage.server) as client:

        def again(*_: object) -> None:
            heard.append(client.call_tool("echo", {"text": "inner"}, timeout=PATIENCE).text)

        assert client.call_tool("count", {"steps": 2}, on_progress=again).text == "counted"
    assert heard == ["inner", "inner"]


@rotated_with("error", {"error": RuntimeError("broken"), "exit": SystemExit(3)})
def test_a_callback_that_fails_is_logged_and_the_call_goes_on(
    wire: Wire, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage()
    heard: list[float] = []

    def fail(step: float, *_: object) -> None:
        heard.append(step)
        raise error

    with wire.connect(stage.server) as client:
        assert client.call_tool("count", {"steps": 3}, on_progress=fail).text == "counted"
    assert heard == [1, 2, 3]
    assert "a callback failed" in caplog.text


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
