"""The violations of the protocol that the server records, also of tasks."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import InvalidParams, MethodNotFound, ServerError
from syncmcp.testing import Server, ToolContext
from syncmcp.testing.server.wire import REVISIONS
from tests.testing.talks import FORM, MODEL, NEWEST_STATEFUL, ROOTS, Open, both_eras, text_of
from tests.testing.wires import MODERN, PATIENCE, Memory

ELICITATION, SAMPLING = "elicitation/create", "sampling/createMessage"


def _model(**changes: Any) -> tuple[str, dict[str, Any]]:
    return SAMPLING, {**MODEL, **changes}


def _form(action: str, **content: Any) -> tuple[str, dict[str, Any]]:
    return ELICITATION, {"action": action, "content": content}


TEXT = {"type": "text", "text": "x"}
USE = {"type": "tool_use", "id": "1", "name": "t", "input": {}}

BREACHES: list[tuple[tuple[str, Any], str]] = [
    (_model(role="system"), "role is 'system'"),
    (_model(model=None), "model is not a string"),
    (_model(stopReason=1), "stopReason is not a string"),
    (_model(content="x"), "a content block of type None"),
    (_model(content=[TEXT, USE]), "a content block of type 'tool_use'"),
    (_model(resultType="complete"), "resultType in an answer"),
    ((ELICITATION, {"action": "yes"}), "action is 'yes'"),
    (_form("decline", name="x"), "unrequested content"),
    (_form("accept"), "content: 'name' is a required property"),
    (_form("accept", name="x", mail="no"), "content.mail: 'no' is not a 'email'"),
    (
        _form("accept", name="x", unasked=1),
        "content: Additional properties are not allowed ('unasked' was unexpected)",
    ),
    (("roots/list", {}), "roots is not an array"),
    (("roots/list", {"roots": [{"uri": "file://host/x"}]}), "a root with the uri 'file://host/x'"),
    (("roots/list", ["x"]), "the answer is not an object"),
]
MAIL_FORM = {
    **FORM,
    "properties": {"name": {"type": "string"}, "mail": {"type": "string", "format": "email"}},
}
PARAMS: dict[str, Any] = {
    SAMPLING: {"messages": [], "maxTokens": 1},
    ELICITATION: {"message": "?", "requestedSchema": MAIL_FORM},
    "roots/list": None,
}


@both_eras
def test_wrong_answers_are_recorded(server: Server, talk: Open, revision: str) -> None:
    @server.tool()
    def ask(context: ToolContext, method: str) -> str:
        context.ask_all({"a": (method, PARAMS[method])})
        return "done"

    client = talk(revision)
    for (method, result), _ in BREACHES:
        told = client.tool("ask", {"method": method}, lambda *_: result)  # noqa: B023
        assert text_of(told) == "done"
    assert server.stats.violations == [f"{method}: {breach}" for (method, _), breach in BREACHES]


@pytest.mark.parametrize("revision", REVISIONS)
def test_arrays_of_content_and_tools_of_a_model_came_with_2025_11_25(
    server: Server, talk: Open, revision: str
) -> None:
    known = revision in (NEWEST_STATEFUL, MODERN)

    @server.tool()
    def ask(context: ToolContext) -> None:
        context.sample("?", max_tokens=1)
        if known:
            tools = [{"name": "t", "inputSchema": {"type": "object"}}]
            context.sample("?", max_tokens=1, tools=tools, tool_choice={"mode": "auto"})

    client = talk(revision)
    client.tool(
        "ask",
        answer=lambda _, params: {**MODEL, "content": [USE if "tools" in params else TEXT]},
    )
    expected = f"sampling/createMessage: content is an array, which {revision} does not have"
    assert server.stats.violations == ([] if known else [expected])
    choices = [params.get("toolChoice") for _, params in client.asked[1:]]
    assert choices == [{"mode": "auto"}] * known


def test_answers_nobody_waits_for_are_recorded(server: Server, line: Memory) -> None:
    @server.tool()
    def ask(context: ToolContext) -> int:
        return len(context.list_roots())

    line.start(roots={})
    for number in (7, "1", None):
        line.answer({"id": number}, {})
    assert len(server.stats.violations) == 3
    assert (server.stats.responses, server.stats.late_answers) == (3, 0)
    # A second answer to one question, and a `requestState` in a stateful revision.
    line.ask("tools/call", {"name": "ask", "arguments": {}, "requestState": "x"})
    question = line.next()
    line.answer(question, ROOTS)
    line.answer(question, ROOTS)
    assert text_of(line.next()) == "1"
    assert len(server.stats.violations) == 5
    late = f"an answer to request {question['id']!r}, which is not waiting for one"
    assert server.stats.violations[-1] == late


@pytest.mark.parametrize("declared", [True, False])
def test_roots_that_change_unannounced_are_recorded(
    server: Server, line: Memory, declared: bool
) -> None:
    line.start(roots={"listChanged": declared})
    line.notify("notifications/roots/list_changed")
    assert bool(server.stats.violations) is not declared


# Tasks


ON: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}


def studio() -> Server:
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


def test_what_is_asked_of_tasks_in_the_wrong_way_is_blamed() -> None:
    made = studio()
    with (
        syncmcp.connect(made, mode=NEWEST_STATEFUL) as client,
        pytest.raises(MethodNotFound, match="does not run as a task"),
    ):
        client.request("tools/call", {"name": "keep", "task": {}})
    with syncmcp.connect(made, mode=MODERN, **ON) as client:
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
    made = studio()
    made.tasks.notify = True
    with (
        syncmcp.connect(made, mode=MODERN, **ON) as client,
        syncmcp.connect(made, mode=MODERN) as other,
    ):
        task = client.start_task("draw")
        # Bypass the check of the client, which has not enabled the extension.
        connection = other._core.live_connection()
        assert connection is not None
        connection.agreed.unavailable = {}
        wanted = {"notifications": {"taskIds": ["any"]}}
        for method, params in (
            ("tasks/get", {"taskId": task.id}),
            ("subscriptions/listen", wanted),
        ):
            with pytest.raises(ServerError, match="did not declare") as caught:
                other.request(method, params, timeout=PATIENCE)
            assert caught.value.code == -32021
    assert made.stats.listeners == 0


def test_a_task_is_thrown_away_and_those_who_listen_to_it_are_told() -> None:
    made = studio()
    made.tasks.notify = True
    told: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def hear(method: str, params: dict[str, Any]) -> None:
        if method == "notifications/tasks" and params["status"] == "cancelled":
            told.put(params)

    with syncmcp.connect(made, mode=MODERN, roots=[], on_notification=hear, **ON) as client:
        task = client.start_task("ask")
        wanted = {"notifications": {"taskIds": [task.id]}}
        listening = client.request.future("subscriptions/listen", wanted, timeout=None)
        assert made.stats.wait_for(lambda stats: stats.listeners == 1, PATIENCE)
        (kept,) = made.tasks.all
        made.tasks.forget(kept)
        assert told.get(timeout=PATIENCE)["taskId"] == task.id
        with pytest.raises(InvalidParams):
            task.refresh()
        listening.cancel()
        assert made.stats.wait_for(lambda stats: stats.listeners == 0, PATIENCE)


def test_answers_that_belong_to_a_task_must_name_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = studio()
    monkeypatch.setattr(
        "syncmcp._connection.server_requests.with_related_task", lambda message, task: message
    )
    with syncmcp.connect(made, mode=NEWEST_STATEFUL, roots=[]) as client:
        assert client.start_task("ask").result(PATIENCE).text == "[]"
    assert made.stats.violations == ["roots/list: the answer does not name its task"]
