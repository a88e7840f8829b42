"""Futures of requests with all functions that accept a `concurrent.futures.Future`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import gc
import threading
import weakref
from collections.abc import Iterator, Mapping
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp._concurrency.futures import RequestFuture
from syncmcp.testing import Server
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Stage,
    Wire,
    in_threads,
    nervous,
    rotated,
)

MEMORY = Wire("memory", STATEFUL)


@rotated
@pytest.mark.requirement("M-01")
def test_wait_and_as_completed_see_results_errors_and_cancels(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        held = client.call_tool.future("hold", {"key": "a"})
        dropped = client.call_tool.future("hold", {"key": "b"})
        good = client.call_tool.future("echo", {"text": "x"})
        bad = client.call_tool.future("no such tool")
        stage.inside("a", "b")
        first = concurrent.futures.wait([good, bad], PATIENCE)
        assert not first.not_done
        with pytest.raises(concurrent.futures.TimeoutError):
            held.result(0)
        assert not held.done()
        assert not dropped.done()
        dropped.cancel()
        stage.gate.set()
        every = list(concurrent.futures.as_completed([held, dropped, good, bad], PATIENCE))
        assert set(every) == {held, dropped, good, bad}
        assert held.result(0).text == "a"
        assert dropped.cancelled()
        assert isinstance(bad.exception(0), syncmcp.ServerError)
        assert isinstance(good, RequestFuture)
        assert isinstance(good, concurrent.futures.Future)


@pytest.mark.requirement("M-01")
def test_an_event_loop_can_await_a_future_and_cancel_it() -> None:
    stage = Stage()

    async def use(client: syncmcp.Client) -> None:
        answer = await asyncio.wrap_future(client.call_tool.future("echo", {"text": "x"}))
        assert answer.text == "x"
        with pytest.raises(syncmcp.ServerError):
            await asyncio.wrap_future(client.call_tool.future("no such tool"))
        source = client.call_tool.future("hold", {"key": "a"})
        waiting = asyncio.wrap_future(source)
        await asyncio.to_thread(stage.inside, "a")
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await asyncio.to_thread(concurrent.futures.wait, [source], PATIENCE)
        assert source.cancelled()

    with MEMORY.connect(stage.server) as client:
        asyncio.run(use(client))
        assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)


@rotated
@pytest.mark.requirement("M-01")
def test_done_callbacks_run_in_order_on_a_pool_thread_and_may_call_the_client(wire: Wire) -> None:
    stage, variable = Stage(), contextvars.ContextVar[str]("variable")
    heard, said = SimpleQueue[tuple[str, str, bool]](), SimpleQueue[str | None]()

    def listen(future: concurrent.futures.Future[Any]) -> None:
        heard.put((variable.get(), threading.current_thread().name, future.done()))

    def again(future: concurrent.futures.Future[Any]) -> None:
        said.put(client.call_tool("echo", {"text": "blocking"}).text)
        said.put(client.call_tool.future("echo", {"text": "future"}).result(PATIENCE).text)

    with wire.connect(stage.server) as client:
        future = client.call_tool.future("hold", {"key": "a"})
        for number in range(5):
            variable.set(str(number))
            future.add_done_callback(listen)
        future.add_done_callback(again)
        stage.inside("a")
        stage.gate.set()
        concurrent.futures.wait([future], PATIENCE)
        variable.set("5")
        future.add_done_callback(listen)
        came = [heard.get(timeout=PATIENCE) for _ in range(6)]
        assert [said.get(timeout=PATIENCE) for _ in range(2)] == ["blocking", "future"]
    assert [value for value, _, _ in came] == ["0", "1", "2", "3", "4", "5"]
    assert all(done and name.startswith("syncmcp-worker") for _, name, done in came)


def test_done_callbacks_run_on_a_pool_thread_when_a_clock_or_a_token_ends_the_call() -> None:
    stage, token = Stage(), syncmcp.CancelToken()
    names: SimpleQueue[str] = SimpleQueue()
    with MEMORY.connect(stage.server) as client:
        late = client.call_tool.future("hold", {"key": "a"}, timeout=0.05)
        dropped = client.call_tool.future("hold", {"key": "b"}, cancel=token)
        for future in (late, dropped):
            future.add_done_callback(lambda _: names.put(threading.current_thread().name))
        assert isinstance(late.exception(PATIENCE), syncmcp.RequestTimeout)
        stage.inside("b")
        token.cancel()
        assert isinstance(dropped.exception(PATIENCE), syncmcp.RequestCancelled)
        for _ in range(2):
            assert names.get(timeout=PATIENCE).startswith("syncmcp-worker")


@pytest.mark.requirement("M-16")
@pytest.mark.parametrize("wire", [MEMORY, Wire("http", STATELESS)], ids=str)
def test_the_iterator_of_progress_waits_and_gives_up_by_its_own_limit(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        future = client.call_tool.future("hold", {"key": "a"})
        [context] = stage.inside("a")
        with pytest.raises(TimeoutError):
            next(future.progress(timeout=0.01))
        assert not future.done()
        reports = future.progress(timeout=PATIENCE)
        context.report_progress(1)
        assert next(reports) == (1, None, None)
        context.report_progress(2, 3, "two")
        assert next(reports) == (2, 3, "two")
        stage.gate.set()
        assert list(reports) == []
        assert future.result(PATIENCE).text == "a"


@pytest.mark.requirement("M-16")
@pytest.mark.parametrize("how", ["cancel", "timeout", "close"])
def test_the_iterator_of_progress_ends_however_the_call_ends(how: str) -> None:
    stage, limit = Stage(), 1.0 if how == "timeout" else PATIENCE
    with MEMORY.connect(stage.server) as client:
        future = client.call_tool.future("hold", {"key": "a"}, timeout=limit)
        stage.inside("a")
        ways: dict[str, Any] = {"cancel": future.cancel, "close": client.close, "timeout": bool}
        reports, _ = in_threads(lambda: list(future.progress(timeout=PATIENCE)), ways[how])
        assert reports == []
        assert future.done()


@rotated
@pytest.mark.requirement("M-01")
def test_close_ends_every_call_in_flight_and_in_line_and_each_has_its_own_error(wire: Wire) -> None:
    stage = Stage()
    keys = [str(number) for number in range(25)]
    in_line: list[syncmcp.RequestFuture[Any]] = []
    with wire.connect(stage.server, max_in_flight=25) as client:
        futures = [client.call_tool.future("hold", {"key": key}) for key in keys[:20]]

        def close() -> None:
            stage.inside(*keys)
            in_line.extend(client.call_tool.future("echo", {"text": "x"}) for _ in range(20))
            client.close()

        def block(key: str) -> object:
            return client.call_tool("hold", {"key": key})

        outcomes = in_threads(*(partial(block, key) for key in keys[20:]), close)[:-1]
        errors = outcomes + [future.exception(PATIENCE) for future in (*futures, *in_line)]
        assert {type(error) for error in errors} == {syncmcp.ClosedError}
        assert len({id(error) for error in errors}) == 45
        assert [error.delivery for error in errors] == ["unknown"] * 25 + ["not_sent"] * 20
        with pytest.raises(syncmcp.ClosedError):
            client.call_tool("echo", {"text": "x"})
        with pytest.raises(syncmcp.ClosedError):
            client.call_tool.future("echo", {"text": "x"})
        assert client.open() is client.open() is client
        assert client.call_tool("echo", {"text": "again"}).text == "again"


@pytest.mark.requirement("M-01")
def test_a_future_whose_next_page_meets_a_close_still_ends() -> None:
    stage = Stage()
    asked, answer = threading.Event(), threading.Event()

    def page(params: dict[str, object], context: object) -> dict[str, object]:
        if "cursor" not in params:
            asked.set()
            assert answer.wait(PATIENCE)
            return {"resultType": "complete", "tools": [], "nextCursor": "more"}
        return {"resultType": "complete", "tools": []}

    stage.server.on_request("tools/list", page)
    with MEMORY.connect(stage.server) as client:
        for _ in range(20):
            asked.clear()
            answer.clear()
            client.open()
            future = client.list_tools.future()
            assert asked.wait(PATIENCE)
            with nervous():
                in_threads(answer.set, client.close)
            error = future.exception(PATIENCE)
            assert error is None or isinstance(error, syncmcp.ClosedError)


@rotated
@pytest.mark.requirement("M-01")
def test_futures_made_while_the_client_closes_all_end(wire: Wire) -> None:
    made, enough = list[syncmcp.RequestFuture[Any]](), threading.Semaphore(0)

    def make() -> str:
        try:
            while True:
                made.append(client.call_tool.future("echo", {"text": "x"}))
                enough.release()
        except syncmcp.ClosedError:
            return "refused"

    def close() -> None:
        assert all(enough.acquire(timeout=PATIENCE) for _ in range(5))
        client.close()

    with wire.connect(Stage().server) as client:
        for _ in range(5):
            client.open()
            with nervous():
                assert in_threads(make, close) == ["refused", None]
            concurrent.futures.wait(made, PATIENCE)
            assert all(future.done() for future in made)
            while enough.acquire(blocking=False):
                pass


@pytest.mark.parametrize("complete", ["set_result", "set_exception"])
def test_a_future_the_program_completes(complete: str, caplog: pytest.LogCaptureFixture) -> None:
    with syncmcp.connect(Stage().server) as client:
        future = client.call_tool.future("hold")
        getattr(future, complete)(ValueError("mine"))
    value = future.exception(0) if complete == "set_exception" else future.result(0)
    assert isinstance(value, ValueError)
    assert "was completed by the program" in caplog.text


def test_a_future_that_is_done_keeps_no_client() -> None:
    client: Any = syncmcp.connect(Stage().server)
    future = client.call_tool.future("echo", {"text": "x"})
    assert future.result(PATIENCE).text == "x"
    alive = weakref.ref(client)
    client.close()
    client = None
    gc.collect()
    assert alive() is None


@rotated
def test_a_result_is_freed_with_its_future_and_not_by_the_garbage_collector(wire: Wire) -> None:
    freed = threading.Event()
    with wire.connect(Stage().server) as client:
        gc.disable()
        try:
            future = client.call_tool.future("echo", {"text": "x"})
            weakref.finalize(future.result(PATIENCE), freed.set)
            del future
            assert freed.wait(PATIENCE)
        finally:
            gc.enable()


class _Fragile(Mapping[str, Any]):
    """Metadata that only the thread that made it can iterate over."""

    def __init__(self) -> None:
        self._owner = threading.get_ident()

    def __getitem__(self, key: str) -> Any:
        return 1

    def __iter__(self) -> Iterator[str]:
        if threading.get_ident() != self._owner:
            raise ZeroDivisionError
        return iter(("acme.example/x",))

    def __len__(self) -> int:
        return 1


def test_an_error_of_the_callers_in_a_later_request_ends_the_future_and_nothing_else() -> None:
    server = Server("pages", page_size=1)
    for name in ("one", "two", "three"):
        server.add_tool(lambda: "", name=name)
    with syncmcp.connect(server, mode=STATEFUL) as client:
        future = client.list_tools.future(meta=_Fragile())
        assert isinstance(future.exception(PATIENCE), ZeroDivisionError)
        assert len(client.list_tools().tools) == 3
