"""A call as an iterator: what it sends while it runs, and its result at the end."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

import syncmcp
from syncmcp import Interceptor, Progress
from syncmcp._client.operation import StreamBuffer
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.types import CallToolResult, LoggingMessageNotificationParams
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, Wire, every_wire, in_threads

BACKLOG = 1024


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
        context.report_progress(1)
        raise RpcError(-32000, "burnt")

    return server


def told(item: Any) -> Any:
    """An item as a test writes it."""
    if isinstance(item, LoggingMessageNotificationParams):
        return item.data
    return item.text if isinstance(item, CallToolResult) else item


EXPECTED = [
    "cooking 1",
    Progress(1, 2, "dish 1"),
    "cooking 2",
    Progress(2, 2, "dish 2"),
    "served",
]


@every_wire
@pytest.mark.requirement("M-16", "PRG-01")
def test_everything_comes_in_order_and_the_result_last(wire: Wire) -> None:
    with wire.connect(telling()) as client:
        items = list(client.call_tool.stream("cook", {"dishes": 2}, log_level="info"))
    assert [told(item) for item in items] == EXPECTED


@every_wire
@pytest.mark.requirement("M-16")
def test_interceptors_and_callbacks_see_it_too_and_the_order_stays(wire: Wire) -> None:
    logs: list[Any] = []
    steps: list[float] = []

    class Quiet(Interceptor):
        """Looks and does nothing."""

    with wire.connect(
        telling(),
        interceptors=[Quiet()],
        on_log=lambda record: logs.append(record.data),
        on_progress=lambda progress, total, message: steps.append(progress),
    ) as client:
        items = list(client.call_tool.stream("cook", {"dishes": 2}, log_level="info"))
    assert [told(item) for item in items] == EXPECTED
    assert logs == ["cooking 1", "cooking 2"]
    assert steps == [1, 2]


@every_wire
@pytest.mark.requirement("M-16")
def test_the_error_of_a_call_comes_after_what_it_sent(wire: Wire) -> None:
    with wire.connect(telling()) as client:
        stream = client.call_tool.stream("burn")
        assert next(stream) == Progress(1, None, None)
        with pytest.raises(syncmcp.ServerError, match="burnt"):
            next(stream)
        assert list(stream) == []


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
        if way == "break":
            for _ in client.call_tool.stream("begin"):
                break
            gc.collect()
        elif way == "close":
            stream = client.call_tool.stream("begin")
            next(stream)
            stream.close()
            stream.close()
            assert list(stream) == []
        elif way == "with":
            with client.call_tool.stream("begin") as stream:
                next(stream)
        else:
            stream = client.call_tool.stream("begin")
            next(stream)

            def wait() -> None:
                assert list(stream) == []

            in_threads(wait, stream.close)
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        assert client.call_tool("echo", {"text": "x"}).text == "x"
    assert len(stage.stats.cancels) <= 1


def test_a_stream_that_was_read_to_its_end_cancels_nothing() -> None:
    stage = Stage()
    with Wire("stdio", STATEFUL).connect(stage.server) as client:
        with client.call_tool.stream("count", {"steps": 3}) as stream:
            assert len(list(stream)) == 4
        stream.close()
        client.call_tool("echo", {"text": "x"})
    assert stage.stats.cancels == []


@every_wire
@pytest.mark.requirement("M-16")
def test_a_stream_ends_with_the_limit_of_its_call_and_with_its_client(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        with pytest.raises(syncmcp.RequestTimeout):
            list(client.call_tool.stream("hold", {"key": "a"}, timeout=0.05))
        stream = client.call_tool.stream("hold", {"key": "b"})
        stage.inside("b")
        client.close()
        with pytest.raises(syncmcp.ClosedError):
            next(stream)


def test_a_mistake_is_raised_before_anything_is_sent() -> None:
    stage = Stage()
    with Wire("memory", STATELESS).connect(stage.server) as client:
        with pytest.raises(syncmcp.UsageError):
            client.call_tool.stream("", {})
        with pytest.raises(TypeError):
            client.call_tool.stream("echo", timeuot=3)  # type: ignore[call-arg]
    assert stage.stats.requests["tools/call"] == 0


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


def test_every_operation_streams() -> None:
    with Wire("memory", STATELESS).connect(Stage().server) as client:
        (result,) = client.list_tools.stream()
        assert not isinstance(result, (Progress, LoggingMessageNotificationParams))
        assert len(result.tools) == 3


def test_what_nobody_reads_is_dropped_and_counted_the_oldest_first() -> None:
    items = StreamBuffer()
    for number in range(BACKLOG + 3):
        items.put(Progress(number, None, None))
    items.close()
    assert items.dropped == 3
    assert items.next() == Progress(3, None, None)


def test_a_log_message_that_is_none_is_left_out() -> None:
    server = Server("odd")

    @server.tool()
    def murmur(context: ToolContext) -> str:
        context.notify("notifications/message", {"level": 3})
        context.report_progress(1)
        return "done"

    with Wire("memory", STATEFUL).connect(server) as client:
        items = list(client.call_tool.stream("murmur"))
    assert [told(item) for item in items] == [Progress(1, None, None), "done"]


def test_a_reader_that_waits_is_woken_by_each_item() -> None:
    items, ready = StreamBuffer(), threading.Event()
    got: list[Any] = []

    def read() -> None:
        ready.set()
        while (item := items.next()) is not None:
            got.append(item)

    def write() -> None:
        assert ready.wait(PATIENCE)
        items.put(Progress(1, None, None))
        items.put({"data": "x"})
        items.close()

    in_threads(read, write)
    assert got == [Progress(1, None, None), {"data": "x"}]
