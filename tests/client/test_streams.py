"""A call as an iterator: what it sends while it runs, and its result at the end."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import syncmcp
from syncmcp import Progress
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.types import CallToolResult, LoggingMessageNotificationParams
from tests.support.intercepting import Seen
from tests.support.stage import PATIENCE, STATELESS, Stage, Wire, every_wire, in_threads, rotated


def telling() -> Server:
    """A server with a tool that tells what it does."""
    server = Server("telling")

    @server.tool()
    def cook(context: ToolContext, dishes: int) -> str:
        for dish in range(1, dishes + 1):
            context.log("info", f"cooking {dish}")
            context.report_progress(dish, dishes, f"dish {dish}")
        return "served"

    @server.tool()
    def burn(context: ToolContext) -> str:
        context.notify("notifications/message", {"level": 3})  # no log message
        context.report_progress(1)
        raise RpcError(-32000, "burnt")

    return server


def told(item: Any) -> Any:
    """An item as a test writes it."""
    if isinstance(item, LoggingMessageNotificationParams):
        return item.data
    return item.text if isinstance(item, CallToolResult) else item


EXPECTED = ["cooking 1", Progress(1, 2, "dish 1"), "cooking 2", Progress(2, 2, "dish 2"), "served"]


@every_wire
@pytest.mark.requirement("M-16", "PRG-01")
@pytest.mark.parametrize("watched", [False, True])
def test_everything_comes_in_order_the_result_or_error_last(wire: Wire, watched: bool) -> None:
    logs: list[Any] = []
    steps: list[float] = []
    options: dict[str, Any] = {}
    if watched:
        options = {
            "interceptors": [Seen()],
            "on_log": lambda record: logs.append(record.data),
            "on_progress": lambda progress, total, message: steps.append(progress),
        }
    server = telling()
    with wire.connect(server, **options) as client:
        items = list(client.call_tool.stream("cook", {"dishes": 2}, log_level="info"))
        assert [told(item) for item in items] == EXPECTED
        stream = client.call_tool.stream("burn")
        assert next(stream) == Progress(1, None, None)
        with pytest.raises(syncmcp.ServerError, match="burnt"):
            next(stream)
        assert list(stream) == []
        stream.close()  # too late to cancel anything
        (listed,) = client.list_tools.stream()  # every operation streams
        assert listed == client.list_tools()
    assert server.stats.cancels == []
    assert logs == (["cooking 1", "cooking 2"] if watched else [])
    assert steps == ([1, 2, 1] if watched else [])


@every_wire
@pytest.mark.requirement("M-16", "M-23")
@pytest.mark.parametrize("way", ["break", "close", "with", "elsewhere"])
def test_leaving_it_cancels_the_call_and_the_server_is_told_once(wire: Wire, way: str) -> None:
    stage = Stage()

    @stage.server.tool()
    def begin(context: ToolContext) -> str:
        context.report_progress(1)
        return stage.hold(context)

    with wire.connect(stage.server) as client:
        stream: Any = client.call_tool.stream("begin")
        assert next(stream) == Progress(1, None, None)
        if way == "break":
            del stream
            gc.collect()
        elif way == "close":
            stream.close()
            stream.close()
            assert list(stream) == []
        elif way == "with":
            with stream:
                pass
        else:
            assert in_threads(lambda: list(stream), stream.close) == [[], None]
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        assert client.call_tool("echo", {"text": "x"}).text == "x"
    assert len(stage.stats.cancels) == wire.announces


@rotated
@pytest.mark.requirement("M-16")
def test_a_stream_ends_with_its_client(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        stream = client.call_tool.stream("hold", {"key": "b"})
        stage.inside("b")
        client.close()
        with pytest.raises(syncmcp.ClosedError):
            next(stream)


def test_several_threads_share_a_stream_and_one_of_them_gets_the_result() -> None:
    stage = Stage()
    seen: list[Any] = []
    with Wire("memory", STATELESS).connect(stage.server) as client:
        stream = client.call_tool.stream("count", {"steps": 50})

        def read() -> None:
            for item in stream:
                seen.append(item)  # noqa: PERF402 - one at a time, as it comes

        in_threads(*[read] * 4)
    assert sorted(item.progress for item in seen if isinstance(item, Progress)) == list(
        range(1, 51)
    )
    assert [item.text for item in seen if isinstance(item, CallToolResult)] == ["counted"]
