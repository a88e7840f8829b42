"""When a call ends by its limits: not before, and not a second after, by a clock that stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import Empty
from typing import Any

import pytest

import syncmcp
from syncmcp.testing import ToolContext
from tests.support.moved_time import MovedTime
from tests.support.shops import known
from tests.support.stage import PATIENCE, STATEFUL, Stage, Wire, every_wire, rotated, rotated_ways

LIMIT = 600.0


def calling(client: syncmcp.Client, way: str, name: str, **options: Any) -> Callable[[], Any]:
    """A call of a tool, for a thread that waits until it ends."""
    if way == "blocking":
        return partial(client.call_tool, name, {}, **options)
    return lambda: client.call_tool.future(name, {}, **options).exception()


def told_once(stage: Stage, wire: Wire) -> None:
    """The server has heard once that a call is over, and the next one is answered."""
    assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
    assert len(stage.stats.cancels) == (1 if wire.announces else 0)


@every_wire
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("TMO-01", "TMO-02", "CAN-01", "M-01")
@pytest.mark.pitfall("4", "14")
def test_a_call_ends_at_its_limit_and_the_server_is_told_once(
    wire: Wire, way: str, moved: MovedTime
) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        call = calling(client, way, "hold", timeout=LIMIT)
        error = moved.ending(LIMIT, call, partial(stage.inside, ""))
        told_once(stage, wire)
        assert client.call_tool("echo", {"text": "still here"}).text == "still here"
        told_once(stage, wire)
    assert isinstance(error, syncmcp.RequestTimeout)
    assert isinstance(error, TimeoutError)
    assert (error.kind, error.seconds, error.delivery) == ("total", LIMIT, "unknown")
    assert error.method == "tools/call"
    assert error.server


@rotated
@pytest.mark.requirement("TMO-01")
def test_the_limit_of_the_client_counts_where_a_call_has_none(wire: Wire, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server, timeout=LIMIT) as client:
        error = moved.ending(LIMIT, calling(client, "blocking", "hold"), partial(stage.inside, ""))
        assert isinstance(error, syncmcp.RequestTimeout)
        unlimited = client.call_tool.future("hold", {"key": "b"}, timeout=None)
        stage.inside("b")
        moved.advance(10 * LIMIT)
        stage.let_go("b")
        assert unlimited.result(PATIENCE).text == "b"


@rotated_ways
@pytest.mark.requirement("TMO-01", "TMO-02")
@pytest.mark.pitfall("4", "20")
def test_silence_ends_a_call_at_its_limit(wire: Wire, way: str, moved: MovedTime) -> None:
    stage = Stage()

    @stage.server.tool()
    def begin(context: ToolContext) -> str:
        """Report once, then say nothing."""
        context.report_progress(1)
        context.cancelled.wait(PATIENCE)
        return "late"

    heard = threading.Event()
    options: dict[str, Any] = {"timeout": None, "idle_timeout": LIMIT}
    with wire.connect(stage.server) as client:
        call = calling(client, way, "begin", on_progress=lambda *_: heard.set(), **options)
        error = moved.ending(LIMIT, call, lambda: heard.wait(PATIENCE))
        told_once(stage, wire)
    assert isinstance(error, syncmcp.RequestTimeout)
    assert (error.kind, error.seconds) == ("idle", LIMIT)


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_silence_before_the_first_sign_of_life_is_not_idleness(
    wire: Wire, way: str, moved: MovedTime
) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        # A future's outcome is its exception, which is none.
        ended = moved.start(calling(client, way, "hold", timeout=None, idle_timeout=LIMIT))
        stage.inside("")
        moved.advance(10 * LIMIT)
        with pytest.raises(Empty):
            ended.get(timeout=0.05)
        stage.gate.set()
        outcome = ended.get(timeout=PATIENCE)
    assert outcome is None if way == "future" else outcome.text == ""


@rotated_ways
@pytest.mark.requirement("TMO-03", "PRG-01")
@pytest.mark.pitfall("4", "20")
def test_progress_keeps_a_call_alive_without_a_callback_but_not_beyond_its_limit(
    wire: Wire, way: str, moved: MovedTime
) -> None:
    stage, silence = Stage(), LIMIT / 2
    with wire.connect(stage.server) as client:
        call = calling(client, way, "hold", timeout=LIMIT, idle_timeout=silence)

        def report_in_time() -> None:
            (context,) = stage.inside("")
            assert "progressToken" in context.meta
            for step in range(3):
                if step:
                    moved.advance(silence - 100)
                context.report_progress(step)
                known(lambda: client.dump().facts["calls"][0]["silent"] == 0)

        error = moved.ending(LIMIT, call, report_in_time, passed=2 * (silence - 100))
        told_once(stage, wire)
    assert isinstance(error, syncmcp.RequestTimeout)
    assert (error.kind, error.seconds) == ("total", LIMIT)


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_a_call_in_line_ends_at_its_limit_and_was_not_sent(
    wire: Wire, way: str, moved: MovedTime
) -> None:
    stage = Stage()
    with wire.connect(stage.server, max_in_flight=1, timeout=None, idle_timeout=None) as client:
        first = client.call_tool.future("hold", {"key": "first"})
        stage.inside("first")
        call = calling(client, way, "hold", timeout=LIMIT)
        error = moved.ending(LIMIT, call, partial(moved.waits_for, LIMIT))
        stage.gate.set()
        assert first.result(PATIENCE).text == "first"
        assert client.call_tool("echo", {"text": "y"}).text == "y"
    assert isinstance(error, syncmcp.RequestTimeout)
    assert error.delivery == "not_sent"
    with stage.stats as stats:
        assert (stats.requests["tools/call"], stats.cancels) == (2, [])


@pytest.mark.requirement("TMO-01")
def test_the_limit_of_a_list_is_for_all_its_pages(moved: MovedTime) -> None:
    stage, pages = Stage(), 0

    def page(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        nonlocal pages
        pages += 1
        moved.advance(100.0)
        return {"tools": [], "nextCursor": str(pages)}

    stage.server.on_request("tools/list", page)
    with Wire("memory", STATEFUL).connect(stage.server) as client:
        with pytest.raises(syncmcp.RequestTimeout) as caught:
            client.list_tools(timeout=LIMIT)
        assert caught.value.seconds == LIMIT
    assert pages == 6
