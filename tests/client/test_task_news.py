"""Tasks of 2026-07-28 whose server tells of their changes, or does not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest

import syncmcp
from syncmcp.testing import Server, ToolContext, serve_http
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, WIRES, Wire, is_gone

TASKS = "io.modelcontextprotocol/tasks"
ON: dict[str, Any] = {"extensions": {TASKS: {}}}
LISTEN = "subscriptions/listen"
NEVER = 3_600_000
"""Milliseconds between two looks: nobody looks by itself as long as a test may take."""

stateless_wires = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.revision == STATELESS], ids=str
)


class Oven(Server):
    """Bakes until it is opened, and tells how that goes."""

    def __init__(self, *, notify: bool = True, pause: int = NEVER) -> None:
        super().__init__("oven")
        self.tasks.poll_interval_ms = pause
        self.tasks.notify = notify
        self.doors: dict[str, threading.Event] = {}
        self.looks = 0
        self.add_tool(self.bake, task_support="required")
        self.on_request("tasks/get", self.look)

    def bake(self, context: ToolContext, bread: str = "rye") -> str:
        door = self.doors.setdefault(bread, threading.Event())
        while not (door.wait(0.01) or context.cancelled.is_set()):
            pass
        return f"{bread} is done"

    def look(self, params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        """Say where a task stands; what happens after it was counted is none of that."""
        found = self.tasks.get(params, context)
        with self.stats:
            self.looks += 1
        return found

    def open(self, bread: str = "rye") -> None:
        self.doors.setdefault(bread, threading.Event()).set()

    def until(self, condition: Callable[[Any], bool]) -> None:
        assert self.stats.wait_for(condition, PATIENCE)

    def listened(self, times: int, looks: int) -> None:
        """Wait until so many requests have listened, and so many looks followed."""
        self.until(lambda stats: stats.requests[LISTEN] >= times and self.looks >= looks)


@stateless_wires
@pytest.mark.requirement("TSX-07")
def test_news_of_a_task_ends_the_wait_for_the_next_look(wire: Wire) -> None:
    oven = Oven()
    with wire.connect(oven, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.listened(1, 1)
        oven.open()
        assert task.result(PATIENCE).text == "rye is done"
        assert oven.looks == 2
        oven.until(lambda stats: stats.listeners == 0)
    assert oven.stats.violations == []


@stateless_wires
@pytest.mark.parametrize("way", ["call", "future"])
def test_a_call_that_became_a_task_hears_of_its_end(wire: Wire, way: str) -> None:
    oven = Oven()

    def bake_through() -> None:
        oven.listened(1, 1)
        oven.open()

    with wire.connect(oven, **ON) as client:
        baker = threading.Thread(target=bake_through)
        baker.start()
        if way == "future":
            result = client.call_tool.future("bake").result(PATIENCE)
        else:
            result = client.call_tool("bake")
        baker.join(PATIENCE)
        assert result.text == "rye is done"
        oven.until(lambda stats: stats.listeners == 0)


@pytest.mark.parametrize("revision", [STATEFUL, STATELESS])
def test_news_that_finds_nobody_waiting_yet_is_not_lost(
    revision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    oven = Oven(notify=False)
    with syncmcp.connect(oven, mode=revision, **ON) as client:
        naps = client._core.pools.waits
        begin = naps.begin

        def late(pause: Any, *rest: Any) -> Any:
            """The task ends, and that is told, between a look at it and the wait for the next."""
            monkeypatch.setattr(naps, "begin", begin)
            oven.open()
            oven.until(lambda stats: stats.tasks == 0)
            naps.notify_task(pause.task)
            return begin(pause, *rest)

        monkeypatch.setattr(naps, "begin", late)
        assert client.call_tool("bake").text == "rye is done"
        assert (naps._followers, naps._unseen) == ({}, {})


def watcher_of(client: syncmcp.Client) -> Any:
    """What has the server tell of tasks."""
    return client._core.task_watcher


def test_who_waits_for_a_task_that_others_hear_of_hears_what_they_were_told_just_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    oven = Oven()
    told, claimed = threading.Event(), threading.Event()
    with Wire("http", STATELESS).connect(oven, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.listened(1, 1)
        watcher, waits = watcher_of(client), client._core.pools.waits
        watch, news = watcher.watch, waits.notify_task

        def tell(id: str) -> None:
            news(id)
            told.set()

        def late(id: str) -> Any:
            """The task ends, and that is told, between a look at it and the wait for news."""
            oven.open()
            assert told.wait(PATIENCE)
            hear_no_more = watch(id)
            claimed.set()
            return hear_no_more

        def look(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
            found = oven.look(params, context)
            if told.is_set():  # who heard it waits for the task as long as nobody else does
                assert claimed.wait(PATIENCE)
            return found

        monkeypatch.setattr(waits, "notify_task", tell)
        monkeypatch.setattr(watcher, "watch", late)
        oven.on_request("tasks/get", look)
        assert client.task(task.id or "", "bake").result(PATIENCE).text == "rye is done"
        assert task.result(PATIENCE).text == "rye is done"
    assert oven.stats.requests[LISTEN] == 1


@stateless_wires
def test_tasks_share_one_request_that_listens(wire: Wire) -> None:
    oven = Oven()
    breads = ("rye", "oat", "malt")
    with wire.connect(oven, **ON) as client:
        tasks = []
        for looks, bread in enumerate(breads, 1):
            tasks.append(client.start_task("bake", {"bread": bread}))
            assert tasks[-1].wait(0) is False
            oven.listened(looks, looks)
        oven.until(lambda stats: stats.listeners == 1)
        again = client.task(tasks[0].id or "", "bake")
        assert again.wait(0) is False
        for bread, task in zip(breads, tasks, strict=True):
            oven.open(bread)
            assert task.result(PATIENCE).text == f"{bread} is done"
        assert again.result(PATIENCE).text == "rye is done"
        oven.until(lambda stats: stats.listeners == 0)
        assert oven.stats.requests[LISTEN] == 3
        assert client._core.session_state.listeners == []


@stateless_wires
def test_a_handle_that_nobody_has_any_more_listens_no_more(wire: Wire) -> None:
    oven = Oven()
    with wire.connect(oven, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.listened(1, 1)
        gone = is_gone(task)
        del task
        assert gone()
        oven.until(lambda stats: stats.listeners == 0)
        assert oven.stats.tasks == 1
    oven.tasks.close()


def test_where_tasks_are_looked_at_often_nobody_listens() -> None:
    oven = Oven(pause=20)
    with syncmcp.connect(oven, mode=STATELESS, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.until(lambda _: oven.looks >= 2)
        oven.open()
        assert task.result(PATIENCE).text == "rye is done"
    assert oven.stats.requests[LISTEN] == 0


def test_a_server_that_tells_nothing_of_tasks_is_asked_once() -> None:
    oven = Oven(notify=False, pause=500)
    with syncmcp.connect(oven, mode=STATELESS, **ON) as client:
        for bread in ("rye", "oat"):
            task = client.start_task("bake", {"bread": bread})
            assert task.wait(0) is False
            oven.until(lambda stats: stats.requests[LISTEN] == 1 and stats.listeners == 0)
            oven.until(lambda stats: not watcher_of(client)._adjusting)
            oven.open(bread)
            assert task.result(PATIENCE).text == f"{bread} is done"
    assert oven.stats.requests[LISTEN] == 1


def test_a_stream_that_the_server_ends_is_not_asked_for_again_for_the_same_task() -> None:
    oven = Oven(pause=500)
    with syncmcp.connect(oven, mode=STATELESS, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.listened(1, 1)
        oven.listeners.end()
        oven.until(lambda stats: stats.listeners == 0)
        other = client.start_task("bake", {"bread": "oat"})
        assert other.wait(0) is False
        oven.until(lambda stats: stats.requests[LISTEN] == 2 and stats.listeners == 1)
        oven.open()
        oven.open("oat")
        assert task.result(PATIENCE).text == "rye is done"
        assert other.result(PATIENCE).text == "oat is done"
    assert oven.stats.requests[LISTEN] == 2


def test_a_stream_that_breaks_is_asked_for_again_and_every_task_looked_at() -> None:
    oven = Oven()
    with serve_http(oven) as http, syncmcp.connect(http.url, mode=STATELESS, **ON) as client:
        task = client.start_task("bake")
        assert task.wait(0) is False
        oven.listened(1, 1)
        http.drop_connections()
        oven.listened(2, 2)
        oven.open()
        assert task.result(PATIENCE).text == "rye is done"


@stateless_wires
def test_a_call_that_is_given_up_listens_no_more_and_so_does_a_closed_client(wire: Wire) -> None:
    oven = Oven()
    with wire.connect(oven, **ON) as client:
        future = client.call_tool.future("bake")
        oven.listened(1, 1)
        future.cancel()
        with pytest.raises(CancelledError):
            future.result(PATIENCE)
        oven.until(lambda stats: stats.listeners == 0 and stats.tasks == 0)
        future = client.call_tool.future("bake", {"bread": "oat"})
        oven.listened(2, 2)
        client.close()
        with pytest.raises(syncmcp.McpError):
            future.result(PATIENCE)
        oven.until(lambda stats: stats.listeners == 0)
        assert not watcher_of(client)._watch_counts
    oven.tasks.close()
