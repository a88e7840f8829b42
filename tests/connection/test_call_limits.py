"""When a call ends by its limits: not before, and not a second after, by a clock that stands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp.testing import ToolContext
from tests.support.moved_time import MovedTime
from tests.support.stage import PATIENCE, Stage, Wire, every_wire, rotated_ways

LIMIT = 600.0

both_ways = pytest.mark.parametrize("way", ["blocking", "future"])


def calling(client: syncmcp.Client, way: str, name: str, **options: Any) -> Callable[[], Any]:
    """A call of a tool, for a thread that waits until it ends."""
    if way == "blocking":
        return partial(client.call_tool, name, {}, **options)
    return lambda: client.call_tool.future(name, {}, **options).exception()


@every_wire
@both_ways
@pytest.mark.requirement("TMO-01", "M-01")
@pytest.mark.pitfall("4")
def test_a_call_ends_at_its_limit(wire: Wire, way: str, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        call = calling(client, way, "hold", timeout=LIMIT)
        error = moved.ending(LIMIT, call, partial(stage.inside, ""))
    assert isinstance(error, syncmcp.RequestTimeout)
    assert (error.kind, error.seconds, error.delivery) == ("total", LIMIT, "unknown")


@rotated_ways
@pytest.mark.requirement("TMO-01")
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
    with wire.connect(stage.server) as client:
        call = calling(
            client,
            way,
            "begin",
            timeout=None,
            idle_timeout=LIMIT,
            on_progress=lambda *_: heard.set(),
        )
        error = moved.ending(LIMIT, call, lambda: heard.wait(PATIENCE))
    assert isinstance(error, syncmcp.RequestTimeout)
    assert (error.kind, error.seconds) == ("idle", LIMIT)


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_a_call_in_line_ends_at_its_limit(wire: Wire, way: str, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server, max_in_flight=1, timeout=None, idle_timeout=None) as client:
        first = client.call_tool.future("hold", {"key": "first"})
        stage.inside("first")
        call = calling(client, way, "hold", timeout=LIMIT)
        error = moved.ending(LIMIT, call, partial(moved.waits_for, LIMIT))
        stage.gate.set()
        assert first.result(PATIENCE).text == "first"
    assert isinstance(error, syncmcp.RequestTimeout)
    assert error.delivery == "not_sent"
