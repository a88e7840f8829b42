"""Long-running calls: one handle for both kinds of tasks."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import pytest

import syncmcp
from syncmcp import CancelToken, Client, ClosedError, NotSupported, RequestCancelled, RequestTimeout
from syncmcp._connection.pending_request import PendingRequest
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import CreateMessageResult, ElicitResult
from tests.support.people import Person
from tests.support.scripts import talk
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Clock,
    InterruptedLatch,
    Wire,
    elsewhere,
    every_wire,
    in_threads,
    is_gone,
    rotated,
    rotated_stateful,
    rotated_with,
    tick,
)

ON: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
FORM = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
both_eras = pytest.mark.parametrize("revision", [STATEFUL, STATELESS])


class Studio(Server):
    """A server whose tools run as tasks, some of them until a gate opens."""

    open: ClassVar[list[Studio]] = []

    def __init__(self, **options: Any) -> None:
        super().__init__("studio", **options)
        self.open.append(self)
        self.gate = threading.Event()
        self.add_tool(self.render, task_support="required")
        self.add_tool(self.sign, task_support="optional")
        self.add_tool(lambda: "drawn", name="draw", task_support="optional")
        self.add_tool(lambda: "seen", name="look")
        self.add_tool(lambda: "kept", name="keep", task_support="forbidden")

    def render(self, context: ToolContext, size: int = 1) -> str:
        """Run until the gate opens or the task is cancelled; report status and progress."""
        context.describe_task("mixing colours")
        while not (self.gate.wait(0.01) or context.cancelled.is_set()):
            pass
        for step in (1, 2, 3):
            context.report_progress(step, 3, f"layer {step}")
        return f"{size} pictures"

    def sign(self, context: ToolContext) -> str:
        answer = context.elicit("Who paints?", FORM)
        return f"signed by {answer['content']['name']}" if "content" in answer else answer["action"]

    def looked(self, times: int) -> None:
        """Wait until clients have polled tasks at least this often."""
        assert self.stats.wait_for(lambda stats: stats.requests["tasks/get"] >= times, PATIENCE)

    def running(self, number: int) -> None:
        """Wait until this many tasks are running."""
        assert self.stats.wait_for(lambda stats: stats.tasks == number, PATIENCE)


@pytest.fixture(autouse=True)
def no_studio_stays_open() -> Iterator[None]:
    """Close the studios of each test: their tasks would run on."""
    yield
    while Studio.open:
        studio = Studio.open.pop()
        studio.gate.set()
        studio.close()


# -- calls that become tasks -----------------------------------------------------------------
@every_wire
@pytest.mark.requirement("TSK-04", "TSK-06", "TSX-01")
def test_a_tool_that_runs_as_a_task_only_is_called_like_any_other(wire: Wire) -> None:
    studio = Studio()
    studio.gate.set()
    ways: list[Callable[[Client], Any]] = [
        lambda client: client.call_tool("render", {"size": 2}),
        lambda client: client.call_tool.future("render", {"size": 2}).result(PATIENCE),
        lambda client: client.begin_tool("render", {"size": 2}),
        lambda client: client.start_task("render", {"size": 2}).result(PATIENCE),
    ]
    for number, way in enumerate(ways, start=1):
        with wire.connect(studio, **ON) as client:
            assert way(client).text == "2 pictures"
            assert client.call_tool("look").text == "seen"
            assert len(studio.tasks.all) == number
    assert studio.stats.violations == []


@rotated_stateful
@pytest.mark.requirement("TSK-03")
def test_a_tool_that_forbids_tasks_or_says_nothing_is_called_plainly(wire: Wire) -> None:
    studio = Studio()
    with wire.connect(studio) as client:
        for name, text in (("look", "seen"), ("keep", "kept"), ("draw", "drawn")):
            assert client.call_tool(name).text == text
        for name in ("look", "keep"):
            with pytest.raises(NotSupported, match=f"'{name}' does not run as a task"):
                client.start_task(name)
        with pytest.raises(
            syncmcp.UsageError, match="no tool named 'rendr': did you mean 'render'"
        ):
            client.start_task("rendr")
    assert studio.stats.requests["tools/call"] == 3
    assert studio.tasks.all == []
    assert studio.stats.violations == []


@rotated_stateful
@pytest.mark.requirement("TSK-02")
def test_on_a_server_that_does_not_offer_it_nothing_is_asked_to_be_a_task(wire: Wire) -> None:
    studio = Studio(capabilities={"tasks": {"list": {}, "cancel": {}}})
    with wire.connect(studio) as client:
        with pytest.raises(NotSupported, match=r"capability tasks\.requests\.tools\.call"):
            client.start_task("render")
        assert studio.stats.requests["tools/call"] == 0
        with pytest.raises(syncmcp.MethodNotFound, match="runs only as a task"):
            client.call_tool("render")
    assert studio.tasks.all == []


@pytest.mark.parametrize("revision", ["2025-06-18", STATELESS])
@pytest.mark.requirement("RPC-17")
def test_no_task_is_started_in_an_older_revision_or_without_the_extension(revision: Any) -> None:
    studio, stateless = Studio(), revision == STATELESS
    with syncmcp.connect(studio, mode=revision, **({} if stateless else ON)) as client:
        assert client.call_tool("draw").text == "drawn"
        words = "not enabled: Client\\(extensions=" if stateless else "has no such request"
        for attempt in (lambda: client.start_task("draw"), client.task("some id").refresh):
            with pytest.raises(NotSupported, match=words):
                attempt()
        with pytest.raises(NotSupported, match="has no such request"):
            client.list_tasks()
        if stateless:
            with pytest.raises(syncmcp.MissingCapability):
                client.call_tool("render")
    assert studio.tasks.all == []


# -- the handle ------------------------------------------------------------------------------
@rotated
@pytest.mark.requirement("TSX-04")
def test_a_handle_tells_how_it_goes_and_gives_the_result_to_another_client_too(wire: Wire) -> None:
    studio = Studio()
    with wire.connect(studio, **ON) as client:
        task = client.start_task("render", {"size": 4}, ttl=5)
        assert isinstance(task, syncmcp.ToolTask)
        assert (task.status, task.done, task.tool) == ("working", False, "render")
        assert task.wait(0) is False
        with pytest.raises(TimeoutError, match="not ended within 0 s"):
            task.result(0)
        updates = iter(task)
        assert next(updates).status == "working"
        studio.looked(2)
        assert task.refresh() == "working"
        assert task.state is not None
        assert task.state.status_message == "mixing colours"
        assert task.id is not None
        another = Client(studio, mode=wire.revision, **ON).open()
        theirs = another.task(task.id, "render")
        assert (theirs.status, theirs.state, theirs.done) == (None, None, False)
        assert theirs.refresh() == "working"
        studio.gate.set()
        with another:
            assert theirs.result(PATIENCE).text == "4 pictures"
        assert [update.status for update in updates][-1] == "completed"
        result = task.result()
        assert result.text == "4 pictures"
        assert task.result(0) is result
        assert (task.wait(0), task.status, task.done) == (True, "completed", True)
        assert [update.status for update in task] == ["completed"]
        task.cancel()  # the task has already ended
        (kept,) = studio.tasks.all
        assert kept.ttl_ms == (5000 if wire.revision == STATEFUL else 60_000)
        assert kept.id == task.id
        assert str(task.id) not in repr(task)
    assert studio.stats.requests["tasks/cancel"] == 0


@both_eras
def test_what_is_wrong_with_a_task_is_an_error_each_time(revision: Any) -> None:
    studio = Studio()
    with syncmcp.connect(studio, mode=revision, **ON) as client:
        task = client.start_task("render")
        studio.tasks.forget(studio.tasks.all[0])
        for attempt in (task.wait, task.result, task.refresh, task.cancel, lambda: list(task)):
            with pytest.raises(syncmcp.InvalidParams, match="no such task"):
                attempt()
        studio.on_request("tasks/get", lambda params, context: {**params, "status": "working"})
        assert task.refresh() == "working"
        with pytest.raises(syncmcp.InvalidOutput, match="does not fit Task"):
            _ = task.state


@pytest.mark.requirement("TSX-01")
def test_a_server_that_has_the_result_at_once_makes_no_task_of_it() -> None:
    studio = Studio()
    with syncmcp.connect(studio, mode=STATELESS, **ON) as client:
        task = client.start_task("look")
        assert (task.id, task.status, task.done, task.state) == (None, "completed", True, None)
        assert (task.wait(0), task.refresh(), task.result().text) == (True, "completed", "seen")
        assert [update.status for update in task] == ["completed"]
        task.cancel()


# -- questions -------------------------------------------------------------------------------
@rotated
@pytest.mark.requirement("TSK-07", "TSK-09", "TSX-03", "SEC-09")
def test_what_a_task_asks_goes_to_the_handlers_once(wire: Wire) -> None:
    studio, painter = Studio(), Person()
    other = Person(ElicitResult.accept({"name": "Boris"}))
    with wire.connect(studio, elicitation=painter, **ON) as client:
        task = client.start_task("sign")
        results = in_threads(*[lambda: task.result(PATIENCE).text] * 4)
        assert results == ["signed by Ann"] * 4
        assert len(painter.requests) == 1
        own = client.start_task("sign", handlers=syncmcp.Handlers(elicitation=other))
        assert own.result(PATIENCE).text == "signed by Boris"
        assert len(painter.requests) == len(other.requests) == 1
    assert studio.stats.violations == []
    assert studio.stats.questions["elicitation/create"] == 2
    # Policies apply to questions of tasks, too.
    with wire.connect(studio, elicitation=painter, approval=syncmcp.DenyAll(), **ON) as client:
        assert client.start_task("sign").result(PATIENCE).text == "decline"
    assert len(painter.requests) == 1
    with wire.connect(studio, **ON) as client:
        task = client.start_task("sign")
        for _ in range(2):
            with pytest.raises(syncmcp.ServerError, match="did not declare elicitation"):
                task.result(PATIENCE)


MESSAGE = {"role": "user", "content": {"type": "text", "text": "?"}}
ACCEPTED = {"action": "accept", "content": {"name": "Ann"}}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "42"}, "model": "double"}
LINK = {"mode": "url", "message": "?", "url": "https://a.example/", "elicitationId": "e"}
QUESTIONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("elicitation/create", {"message": "?", "requestedSchema": FORM}, ACCEPTED),
    ("elicitation/create", LINK, {"action": "decline"}),
    ("roots/list", {}, {"roots": [{"uri": "file:///"}]}),
    ("sampling/createMessage", {"messages": [MESSAGE], "maxTokens": 5}, SAMPLED),
]


@rotated_stateful
@pytest.mark.requirement("TSK-05")
def test_a_question_that_wants_to_be_a_task_is_answered_plainly(wire: Wire) -> None:
    server = Server("asking")

    @server.tool()
    def ask(context: ToolContext) -> dict[str, Any]:
        task = {"task": {"ttl": 1000}}
        answers = [context.request(method, {**params, **task}) for method, params, _ in QUESTIONS]
        return {"answers": answers, "declared": context.client_capabilities.get("tasks")}

    handlers: dict[str, Any] = {
        "roots": ["/"],
        "elicitation": syncmcp.Elicitation(form=Person(), url=lambda *_: ElicitResult.decline()),
        "sampling": lambda *_: CreateMessageResult.from_wire(SAMPLED),
    }
    with wire.connect(server, **handlers) as client:
        expected = [answer for _, _, answer in QUESTIONS]
        assert client.call_tool("ask").data == {"answers": expected, "declared": None}


# -- progress --------------------------------------------------------------------------------
@pytest.mark.parametrize("wire", ["memory", "stdio"])
@pytest.mark.requirement("PRG-04", "PRG-05")
def test_the_token_of_a_task_is_good_until_its_end_and_no_longer(wire: str) -> None:
    calls: dict[str, Any] = {"tools": {"call": {}}}
    state = {"taskId": "t", "createdAt": "2026-01-01T00:00:00Z", "ttl": None, "pollInterval": 1}
    tool = {"name": "render", "inputSchema": {}, "execution": {"taskSupport": "required"}}
    one, two, three, four, five = (s.progress(number, to="call") for number in range(1, 6))
    script = [
        *s.handshake(STATEFUL, capabilities={"tools": {}, "tasks": {"requests": calls}}),
        *(s.expect("tools/list"), s.reply({"tools": [tool]})),
        *(s.expect("tools/call", label="call"), s.reply({"task": {**state, "status": "working"}})),
        *(one, s.expect("tasks/get"), two, s.reply({**state, "status": "completed"})),
        *(s.expect("tasks/result"), three, s.reply({"content": []}), four),
        *(s.expect("ping"), five, s.reply({})),
    ]
    heard: list[float] = []
    options: dict[str, Any] = {"on_progress": lambda progress, *_: heard.append(progress)}
    with talk(script, wire, **options) as (_, client):
        assert client.start_task("render").result(PATIENCE).content == []
        client.ping()
    assert heard == [1, 2, 3]


@rotated_stateful
def test_the_answer_that_began_a_task_is_not_kept_until_its_end(wire: Wire) -> None:
    studio = Studio()
    with wire.connect(studio) as client:
        begun = [client.start_task("render"), client.start_task.future("render").result(PATIENCE)]
        requests = [each for each in gc.get_objects() if type(each) is PendingRequest]
        calls = [each for each in requests if each.method == "tools/call"]
        assert len(calls) >= len(begun)
        assert not any(call.outcome for call in calls)  # the response may be large: it is released
        studio.gate.set()
        assert [task.result(PATIENCE).text for task in begun] == ["1 pictures"] * 2


# -- cancellations and timeouts --------------------------------------------------------------
@rotated_with("way", ["token", "event", "future", "timeout", "Ctrl-C"])
@pytest.mark.requirement("CAN-03", "TSX-05")
def test_giving_up_a_call_cancels_its_task_and_not_its_request(
    wire: Wire, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio, token, event = Studio(), CancelToken(), threading.Event()
    # The client does not poll before the call ends, so no request is in flight.
    studio.tasks.poll_interval_ms = 3_600_000
    ways: dict[str, tuple[dict[str, Any], type[BaseException]]] = {
        "token": ({"cancel": token}, RequestCancelled),
        "event": ({"cancel": event}, RequestCancelled),
        "future": ({}, RequestCancelled),
        "timeout": ({"timeout": 600}, RequestTimeout),
        "Ctrl-C": ({}, KeyboardInterrupt),  # as soon as the call waits for its next poll
    }
    options, kind = ways[way]
    with wire.connect(studio, **ON) as client:
        parked, clock = Parked(client), Clock(monkeypatch, "syncmcp._concurrency.timing")
        if way == "Ctrl-C":
            monkeypatch.setattr("syncmcp._client.driver.Latch", InterruptedLatch)

        call: Any = partial(client.call_tool, "render", **options)
        future = client.call_tool.future("render") if way == "future" else None
        if future is not None:
            call = partial(future.result, PATIENCE)

        def give_up() -> None:
            parked.wait()
            token.cancel()
            event.set()
            if future is not None:
                assert future.cancel()
            elif way == "timeout":
                clock.advance(600)
                tick()

        given_up = elsewhere(give_up)
        with pytest.raises(kind):
            call()  # in this thread, where Ctrl-C is raised
        given_up.result(PATIENCE)
        studio.running(0)
        assert studio.tasks.all[0].status == "cancelled"
        assert studio.stats.requests["tasks/cancel"] == 1
    assert studio.stats.cancels == []


class Parked:
    """Detects that a call waits for the next poll of its task."""

    def __init__(self, client: Client) -> None:
        self._event = threading.Event()
        pools = client._core.pools
        begin = pools.pause

        def watched(*args: Any) -> Any:
            pause = begin(*args)
            self._event.set()
            return pause

        pools.pause = watched  # type: ignore[method-assign, assignment]

    def wait(self) -> None:
        assert self._event.wait(PATIENCE)


@rotated_stateful.with_rows("way", ["call", "start", "future", "start future"])
@pytest.mark.requirement("CAN-03")
def test_a_call_that_becomes_a_task_after_its_end_is_left_alone(wire: Wire, way: str) -> None:
    studio, token, told = Studio(), CancelToken(), threading.Event()

    def answer_late(params: dict[str, Any], context: ToolContext) -> dict[str, Any]:
        context.report_progress(1)  # a message before the response
        token.cancel()
        assert told.wait(PATIENCE)
        return studio.tasks.call_tool(params, context)

    studio.on_request("tools/call", answer_late)
    with wire.connect(studio, **ON) as client:
        operation: Any = client.start_task if way.startswith("start") else client.call_tool

        call = partial(operation, "render", cancel=token)
        if way.endswith("future"):
            call = partial(operation.future("render", cancel=token).result, PATIENCE)
        with pytest.raises(RequestCancelled) as caught:
            call()
        assert caught.value.delivery == "unknown"
        told.set()
        studio.running(1)
        client.ping()  # all earlier messages have been processed
        assert studio.stats.requests["tasks/cancel"] == 0
        assert studio.stats.cancels == []


@rotated
def test_closing_the_client_ends_the_wait_and_not_the_task(wire: Wire) -> None:
    studio = Studio()
    studio.tasks.poll_interval_ms = 3_600_000
    with wire.connect(studio, **ON) as client:
        task = client.start_task("render")
        assert task.wait(0) is False
        call = client.call_tool.future("render")
        studio.running(2)
        client.close()
        for wait in (task.wait, call.result):
            with pytest.raises(ClosedError):
                wait(PATIENCE)
        assert studio.stats.tasks >= 1
        studio.gate.set()


def test_a_handle_that_nobody_has_any_more_follows_nothing() -> None:
    studio = Studio()
    studio.tasks.poll_interval_ms = 3_600_000
    with syncmcp.connect(studio, mode=STATELESS, **ON) as client:
        task = client.start_task("render")
        assert task.wait(0) is False
        (pause,) = filter(None, (each() for each in client._core.pools.closing._followers))
        gone = is_gone(task)
        del task
        assert gone()
        assert pause.wait(PATIENCE)
        assert studio.stats.tasks == 1


@both_eras
def test_a_handle_that_came_as_a_future_is_let_go_with_its_client(revision: Any) -> None:
    studio = Studio()
    studio.tasks.poll_interval_ms = 3_600_000
    client = syncmcp.connect(studio, mode=revision, **ON)
    task = client.start_task.future("render").result(PATIENCE)
    gone = is_gone(client._core)
    del client, task
    with pytest.warns(ResourceWarning):
        assert gone()


@pytest.mark.parametrize("way", ["timeout", "token", "future"])
@both_eras
def test_a_call_that_waits_for_a_thread_ends_in_time_and_so_does_its_task(
    way: str, revision: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    studio, held = Studio(), threading.Event()

    @studio.tool()
    def hold() -> str:
        held.set()
        return str(studio.gate.wait())

    studio.tasks.poll_interval_ms = 500
    token, clock = CancelToken(), Clock(monkeypatch, "syncmcp._concurrency.timing")
    options: dict[str, Any] = {"max_in_flight": 1, "timeout": None, "idle_timeout": None}
    with Wire("http", revision).connect(studio, **options, **ON) as client:
        parked = Parked(client)
        call = client.call_tool.future("render", timeout=600, cancel=token)
        parked.wait()
        other = client.call_tool.future("hold")
        assert held.wait(PATIENCE)
        if way == "timeout":
            clock.advance(600)
            tick()
        else:
            token.cancel() if way == "token" else call.cancel()
        with pytest.raises(RequestTimeout if way == "timeout" else RequestCancelled):
            call.result(PATIENCE)
        studio.running(0)
        assert studio.stats.requests["tasks/cancel"] == 1
        assert not other.done()
        studio.gate.set()
        other.result(PATIENCE)


def test_a_call_of_a_handler_that_became_a_task_is_not_queued_behind_the_call_that_asked() -> None:
    studio = Studio()
    studio.gate.set()
    studio.add_tool(studio.sign, name="ask")
    results: list[str] = []

    def answer(request: Any, context: Any) -> ElicitResult:
        results.append(client.call_tool.future("render").result(PATIENCE).text)
        return ElicitResult.decline()

    wire = Wire("http", STATEFUL)
    with wire.connect(studio, max_in_flight=1, elicitation=answer) as client:
        assert client.call_tool.future("ask").result(PATIENCE).text == "decline"
    assert results == ["1 pictures"]
