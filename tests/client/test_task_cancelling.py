"""Tasks that are cancelled while a person answers their question."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import syncmcp
from syncmcp import CancelToken, ClosedError, RequestCancelled, ServerError, ToolTask
from syncmcp.testing import RpcError, ToolContext
from syncmcp.testing import script as s
from tests.client.test_tasks import FORM, ON, Studio, both_eras
from tests.support.people import Held
from tests.support.scripts import Scripted
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Wire,
    in_threads,
    rotated,
    rotated_stateless,
)

INVALID_PARAMS = -32602
DONE = {"content": [{"type": "text", "text": "done all the same"}]}


class Office(Studio):
    """A server whose tools ask a person to sign."""

    def __init__(self) -> None:
        super().__init__()
        self.add_tool(self.sign, name="sign_here", task_support="required")
        self.add_tool(self.sign_again, task_support="optional")

    def sign_again(self, context: ToolContext) -> str:
        return f"{self.sign(context)}, {self.sign(context)}"

    def does_instead_of_cancelling(self, action: Any) -> None:
        """Call `action(task)` instead of cancelling. Until 2025-11-25 an ended task is an error."""

        def cancel(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
            (task,) = [one for one in self.tasks.all if one.id == params["taskId"]]
            action(task)
            if task.ended and context.revision != STATELESS:
                raise RpcError(INVALID_PARAMS, f"The task is {task.status}")
            return {} if context.revision == STATELESS else task.describe()

        self.on_request("tasks/cancel", cancel)

    def client(self, revision: Any, person: Held) -> syncmcp.Client:
        return syncmcp.connect(self, mode=revision, elicitation=person, **ON)


@pytest.fixture
def office() -> Iterator[Office]:
    office = Office()
    yield office
    office.close()
    Studio.open.clear()


@pytest.fixture
def person() -> Iterator[Held]:
    person = Held()
    yield person
    person.gate.set()


def asking(client: syncmcp.Client, person: Held, tool: str = "sign") -> ToolTask:
    """Start a task; return it when the person has its question."""
    task = client.start_task(tool)
    assert task.wait(0) is False
    person.entered()
    return task


def withdrawn(person: Held) -> None:
    """Wait until the question is withdrawn; check that the person did not answer."""
    assert person.withdrawn.wait(PATIENCE)
    assert (len(person.requests), person.gate.is_set()) == (1, False)


@pytest.mark.parametrize("way", ["token", "future"])
@rotated
def test_what_a_task_asks_is_withdrawn_when_the_call_behind_it_is_given_up(
    wire: Wire, way: str, office: Office, person: Held
) -> None:
    token = CancelToken()
    with wire.connect(office, elicitation=person, **ON) as client:
        call = client.call_tool.future("sign_here", cancel=token)
        person.entered()
        token.cancel() if way == "token" else call.cancel()
        with pytest.raises(RequestCancelled):
            call.result(PATIENCE)
        withdrawn(person)
        office.running(0)
        assert office.tasks.all[0].status == "cancelled"


@rotated
@pytest.mark.requirement("CAN-03", "TSX-05")
def test_what_a_task_asks_is_withdrawn_when_it_is_cancelled_and_whoever_waits_is_told(
    wire: Wire, office: Office, person: Held
) -> None:
    with wire.connect(office, elicitation=person, **ON) as client:
        task = asking(client, person)
        results = in_threads(
            *[lambda: task.result(PATIENCE)] * 3,
            lambda: [update.status for update in task][-1],
            *[task.cancel] * 3,
        )
        assert [type(one) for one in results[:3]] == [RequestCancelled] * 3
        assert "the task was cancelled" in str(results[0])
        assert results[3:] == ["cancelled", None, None, None]
        task.cancel()  # again, after its end
        assert (task.wait(PATIENCE), task.status) == (True, "cancelled")
        withdrawn(person)
    assert office.stats.requests["tasks/update"] == 0
    assert office.stats.cancels == []
    assert office.stats.violations == []


@rotated_stateless
@pytest.mark.parametrize("tool", ["sign", "sign_again"])
@pytest.mark.requirement("TSX-04")
def test_a_server_that_goes_on_after_a_cancel_is_told_that_nobody_answers(
    wire: Wire, tool: str, office: Office, person: Held
) -> None:
    office.does_instead_of_cancelling(lambda task: None)
    with wire.connect(office, elicitation=person, **ON) as client:
        task = asking(client, person, tool)
        task.cancel()
        withdrawn(person)
        if tool == "sign_again":  # this tool asks a second question
            person.entered()
            person.gate.set()
        signed = {"sign": "cancel", "sign_again": "cancel, signed by Ann"}
        assert task.result(PATIENCE).text == signed[tool]
    assert len(person.requests) == (2 if tool == "sign_again" else 1)
    assert office.stats.requests["tasks/update"] == len(person.requests)
    assert office.stats.violations == []


def test_a_question_not_seen_before_the_cancel_is_shown_to_nobody(
    office: Office, person: Held
) -> None:
    office.tasks.poll_interval_ms = 3_600_000
    office.does_instead_of_cancelling(lambda task: None)
    with office.client(STATELESS, person) as client:
        task = client.start_task("sign")
        assert task.wait(0) is False
        (theirs,) = office.tasks.all
        assert office.stats.wait_for(lambda _: theirs.status == "input_required", PATIENCE)
        task.cancel()
        assert office.stats.wait_for(lambda stats: stats.requests["tasks/get"] >= 2, PATIENCE)
        theirs.finish(DONE)
        task.refresh()
        assert task.result(PATIENCE).text == "done all the same"
    assert person.requests == []


@pytest.mark.parametrize("meanwhile", ["done", "answered", "refused"])
@both_eras
def test_what_happens_before_the_cancel_counts(
    revision: Any, meanwhile: str, office: Office, person: Held
) -> None:
    def happen(task: Any) -> None:
        if meanwhile == "done":
            task.finish(DONE)
        elif meanwhile == "answered":
            person.gate.set()
            office.running(0)
        else:
            raise RpcError(-32050, "not now")

    office.does_instead_of_cancelling(happen)
    with office.client(revision, person) as client:
        task = asking(client, person)
        if meanwhile == "refused":
            with pytest.raises(ServerError, match="not now"):
                task.cancel()
            person.gate.set()  # the question is still open
        else:
            task.cancel()
        expected = "done all the same" if meanwhile == "done" else "signed by Ann"
        assert (task.result(PATIENCE).text, task.status) == (expected, "completed")
        if meanwhile == "done":
            withdrawn(person)
    assert (len(person.requests), person.withdrawn.is_set()) == (1, meanwhile == "done")


@both_eras
def test_a_client_closed_while_it_cancels_waits_for_nobody(
    revision: Any, office: Office, person: Held
) -> None:
    came, gate = threading.Event(), threading.Event()

    def close() -> None:
        assert came.wait(PATIENCE)
        client.close()

    def hold(task: Any) -> None:
        came.set()
        assert gate.wait(PATIENCE)

    office.does_instead_of_cancelling(hold)
    with office.client(revision, person) as client:
        task = asking(client, person)
        results = in_threads(task.cancel, lambda: task.result(PATIENCE), close)
        gate.set()
        assert [type(one) for one in results] == [ClosedError, ClosedError, type(None)]
        withdrawn(person)


@pytest.mark.parametrize("end", ["cancelled", "completed"])
@both_eras
def test_whoever_sees_the_end_of_a_task_has_its_question_withdrawn(
    revision: Any, end: str, office: Office, person: Held
) -> None:
    with office.client(revision, person) as client:
        task = asking(client, person)
        (there,) = office.tasks.all
        there.cancel() if end == "cancelled" else there.finish(DONE)
        assert task.refresh() == end
        assert task.wait(PATIENCE)
        withdrawn(person)


def test_a_question_is_refused_where_a_server_forgets_it(person: Held) -> None:
    task = {"taskId": "t1", "ttl": None, "createdAt": "x", "lastUpdatedAt": "x"}
    tool = {"name": "sign", "inputSchema": {}, "execution": {"taskSupport": "optional"}}
    form = {"message": "?", "requestedSchema": FORM}
    mark = {"io.modelcontextprotocol/related-task": {"taskId": "t1"}}
    offers: dict[str, Any] = {
        "tools": {},
        "tasks": {"cancel": {}, "requests": {"tools": {"call": {}}}},
    }
    waiting = {**task, "status": "input_required"}
    script = [
        *s.handshake(STATEFUL, capabilities=offers),
        s.expect("tools/list"),
        s.reply({"tools": [tool]}),
        s.expect("tools/call"),
        s.reply({"task": waiting}),
        s.expect("tasks/get"),
        s.reply(waiting),
        s.expect("tasks/result", label="result"),
        s.request("elicitation/create", {**form, "_meta": mark}, identifier=7),
        s.expect("tasks/cancel"),
        s.reply({**task, "status": "cancelled"}),
        s.expect("response"),
        s.gate("cancelled"),
        s.error(INVALID_PARAMS, "the task was cancelled", to="result"),
    ]
    with Scripted(script) as peer:
        with syncmcp.connect(peer, mode=STATEFUL, elicitation=person) as client:
            handle = asking(client, person)
            handle.cancel()
            peer.open("cancelled")
            with pytest.raises(RequestCancelled):
                handle.result(PATIENCE)
            withdrawn(person)
        (answer,) = peer.requests("response")
        assert (answer["id"], answer["result"]["action"]) == (7, "cancel")
