"""What the test server says to clients that take its tasks the wrong way."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import InvalidParams, MethodNotFound, Mode, ServerError
from syncmcp.testing import Server, ToolContext
from tests.support.stage import PATIENCE, STATEFUL, STATELESS

ON: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
both_eras = pytest.mark.parametrize("revision", [STATEFUL, STATELESS])


def server() -> Server:
    made = Server("studio")

    @made.tool(task_support="optional")
    def draw() -> str:
        return "drawn"

    @made.tool(task_support="optional")
    def ask(context: ToolContext) -> str:
        return str(context.list_roots())

    @made.tool(task_support="forbidden")
    def keep() -> str:
        return "kept"

    return made


def test_tools_say_whether_they_run_as_tasks_where_that_is_asked() -> None:
    made = server()
    made.skill("skill://refunds", {"name": "refunds", "description": "Pays back."})
    for revision, support in ((STATEFUL, ["optional", "optional", "forbidden"]), (STATELESS, [])):
        with syncmcp.connect(made, mode=revision, **ON) as client:  # type: ignore[arg-type]
            tools = client.list_tools().tools
            assert [one.execution.task_support for one in tools if one.execution] == support
            if revision == STATELESS:
                assert sorted(client.server.capabilities.extensions or ()) == [
                    "io.modelcontextprotocol/skills",
                    "io.modelcontextprotocol/tasks",
                ]


def test_what_is_asked_of_tasks_in_the_wrong_way_is_blamed() -> None:
    made = server()
    with (
        syncmcp.connect(made, mode=STATEFUL) as client,
        pytest.raises(MethodNotFound, match="does not run as a task"),
    ):
        client.request("tools/call", {"name": "keep", "task": {}})
    with syncmcp.connect(made, mode=STATELESS, **ON) as client:
        client.request("tools/call", {"name": "draw", "task": {}})
        task = client.start_task("draw")
        update: dict[str, Any] = {"taskId": task.id, "inputResponses": {"x": {}}}
        client.request("tasks/update", update)
        with pytest.raises(InvalidParams, match="inputResponses must be an object"):
            client.request("tasks/update", {"taskId": task.id})
    assert made.stats.violations == [
        "keep was called as a task",
        "tools/call: task, which the extension does not have",
        "tasks/update answers 'x', which was not asked",
    ]


def test_requests_about_tasks_need_the_extension_each_time() -> None:
    made = server()
    made.tasks.notify = True
    wanted = {"notifications": {"taskIds": ["any"]}}
    with (
        syncmcp.connect(made, mode=STATELESS, **ON) as client,
        syncmcp.connect(made, mode=STATELESS) as other,
    ):
        task = client.start_task("draw")
        # Past the gate of the client, which has not switched it on.
        connection = other._core.live_connection()
        assert connection is not None
        connection.agreed.unavailable = {}
        for method, params in (
            ("tasks/get", {"taskId": task.id}),
            ("subscriptions/listen", wanted),
        ):
            with pytest.raises(ServerError, match="did not declare") as caught:
                other.request(method, params, timeout=PATIENCE)
            assert caught.value.code == -32021
    assert made.stats.listeners == 0


@both_eras
def test_a_task_is_described_and_thrown_away(revision: Mode) -> None:
    made = server()
    made.tasks.ttl_ms = None
    made.tasks.poll_interval_ms = None
    with syncmcp.connect(made, mode=revision, **ON) as client:
        task = client.start_task("draw")
        assert made.stats.wait_for(lambda stats: stats.tasks == 0, PATIENCE)
        (kept,) = made.tasks.all
        assert task.refresh() == "completed"
        assert kept.polls == 1
        assert task.state is not None
        assert (task.state.ttl, task.state.ttl_ms) == (None, None)
        made.tasks.forget(kept)
        with pytest.raises(InvalidParams):
            task.refresh()


def test_answers_that_belong_to_a_task_must_name_it() -> None:
    made = server()
    with (
        syncmcp.connect(made, mode=STATEFUL, roots=[]) as client,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(
            "syncmcp._connection.server_requests.with_related_task", lambda message, task: message
        )
        assert client.start_task("ask").result(PATIENCE).text == "[]"
    assert made.stats.violations == ["roots/list: the answer does not name its task"]


def test_those_who_listen_to_a_task_are_told_of_it() -> None:
    made = server()
    made.tasks.notify = True
    told: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/tasks" and params["status"] == "cancelled":
            told.put(params)

    with syncmcp.connect(made, mode=STATELESS, roots=[], on_notification=hear, **ON) as client:
        task = client.start_task("ask")
        wanted = {"notifications": {"taskIds": [task.id]}}
        listening = client.request.future("subscriptions/listen", wanted, timeout=None)
        assert made.stats.wait_for(lambda stats: stats.listeners == 1, PATIENCE)
        task.cancel()
        assert told.get(timeout=PATIENCE)["taskId"] == task.id
        listening.cancel()
        assert made.stats.wait_for(lambda stats: stats.listeners == 0, PATIENCE)
