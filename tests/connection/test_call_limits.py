"""Time limits of all kinds of requests: each ends at its limit, neither earlier nor later.

Only the test moves the clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, Mode
from syncmcp._client.background import send_and_forget
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.batching import LatestDeadline
from syncmcp._connection.notifier import Notifier
from syncmcp.handlers import Elicitation
from syncmcp.skills import EXTENSION, Skills
from syncmcp.testing import ToolContext
from syncmcp.types import ElicitResult
from tests.support.intercepting import Gate, on_call
from tests.support.moved_time import MovedTime
from tests.support.people import Person
from tests.support.session_server import on, session_server
from tests.support.shops import Silent, known
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Stage,
    Wire,
    every_wire_in_turn,
    rotated,
    rotated_ways,
)

LIMIT = 600.0


def calling(client: syncmcp.Client, way: str, name: str, **options: Any) -> Callable[[], Any]:
    """Return a function that calls a tool, blocking or by a future, and waits for its end."""
    if way == "blocking":
        return partial(client.call_tool, name, {}, **options)
    return lambda: client.call_tool.future(name, {}, **options).exception()


def told_once(stage: Stage, wire: Wire) -> None:
    """Check that the server was notified once of the end of a call."""
    assert stage.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
    assert len(stage.stats.cancels) == (1 if wire.announces else 0)


@every_wire_in_turn
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
@pytest.mark.requirement("TMO-03", "PRG-01")
@pytest.mark.pitfall("4", "20")
def test_progress_keeps_a_call_alive_to_its_limit(wire: Wire, way: str, moved: MovedTime) -> None:
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


# A future over HTTP is queued for an exchange thread, any other call in the connection.
@pytest.mark.parametrize("wire", [Wire("memory", STATEFUL), Wire("http", STATELESS)], ids=str)
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("TMO-01")
def test_a_call_in_line_ends_at_its_limit_unsent(wire: Wire, way: str, moved: MovedTime) -> None:
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
    assert (stage.stats.requests["tools/call"], stage.stats.cancels) == (2, [])


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


# -- batches, tasks, hooks

both_ways = pytest.mark.parametrize("way", ["blocking", "future"])


def connect(target: Any, **options: Any) -> Client:
    """Return an open client of 2026-07-28 without time limits, except those given."""
    unlimited: dict[str, Any] = {"mode": STATELESS, "timeout": None, "idle_timeout": None}
    unlimited["extensions"] = EXTENSIONS
    return syncmcp.connect(target, **{**unlimited, **options})


class Asking(Silent):
    """A server with a task, a skill and a question; it can leave requests unanswered."""

    def __init__(self) -> None:
        super().__init__(capabilities=CAPABILITIES)
        self.tasks.poll_interval_ms = 7000

        @self.tool(task_support="optional")
        def ask(context: ToolContext) -> str:
            context.elicit("Well?", {"type": "object", "properties": {}})
            self.asked.set()
            context.cancelled.wait(3 * PATIENCE)
            return "late"


TASKS = "io.modelcontextprotocol/tasks"
EXTENSIONS: dict[str, Any] = {TASKS: {}, EXTENSION: {}}
CAPABILITIES: dict[str, Any] = {
    "tools": {},
    "tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}},
    "extensions": EXTENSIONS,
}

WAYS: dict[str, tuple[str, Callable[[Client], object]]] = {
    "a stream": ("tools/call", lambda one: list(one.call_tool.stream("ask", timeout=LIMIT))),
    "any request": ("acme/ask", lambda one: one.request("acme/ask", timeout=LIMIT)),
    "the future of any request": (
        "acme/ask",
        lambda one: one.request.future("acme/ask", timeout=LIMIT).exception(),
    ),
    "page after page": ("tools/list", lambda one: list(one.iter_tools(timeout=LIMIT))),
    "a tool by its name": ("tools/list", lambda one: one.tool("ask", timeout=LIMIT)),
    "a task": ("tools/call", lambda one: one.start_task("ask", timeout=LIMIT)),
    "the future of a task": (
        "tools/call",
        lambda one: one.start_task.future("ask", timeout=LIMIT).exception(),
    ),
    "the state of a task": ("tasks/get", lambda one: one.task("1").refresh(timeout=LIMIT)),
    "the end of a task": ("tasks/cancel", lambda one: one.task("1").cancel(timeout=LIMIT)),
    "skills": ("skills/list", lambda one: Skills(one).list(timeout=LIMIT)),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.requirement("TMO-01")
def test_every_way_to_ask_ends_at_its_limit(way: str, moved: MovedTime) -> None:
    method, ask = WAYS[way]
    server = Asking()
    revision: Mode = STATEFUL if way == "a task" else STATELESS
    with connect(server, mode=revision) as client:
        server.leave(method)
        error = moved.ending(LIMIT, partial(ask, client), server.was_asked)
    assert isinstance(error, syncmcp.RequestTimeout)
    assert error.seconds == LIMIT


@both_ways
def test_a_call_that_is_resumed_ends_at_its_limit(way: str, moved: MovedTime) -> None:
    server = Asking()
    with connect(server, extensions=None) as client:  # no extension for tasks
        pending = client.begin_tool("ask")
        assert isinstance(pending, syncmcp.InputRequired)
        answers = dict.fromkeys(pending.questions, ElicitResult.decline())

        def resume() -> object:
            if way == "blocking":
                return client.resume(pending, answers, timeout=LIMIT)
            return client.resume.future(pending, answers, timeout=LIMIT).exception()

        error = moved.ending(LIMIT, resume, server.was_asked)
    assert isinstance(error, syncmcp.RequestTimeout)


def test_skills_of_a_lazy_client_are_waited_for_until_their_limit(moved: MovedTime) -> None:
    server = Asking()
    server.leave("server/discover")
    client = Client(
        server, mode=STATELESS, lazy=True, open_timeout=None, extensions=EXTENSIONS, timeout=None
    )
    error = moved.ending(LIMIT, lambda: Skills(client).list(timeout=LIMIT), server.was_asked)
    client.close()
    assert isinstance(error, syncmcp.RequestTimeout)


@pytest.mark.parametrize("parallel", [True, False], ids=["parallel", "in turn"])
@pytest.mark.parametrize("whose", ["call", "batch"])
def test_calls_of_a_batch_end_at_their_limits(parallel: bool, whose: str, moved: MovedTime) -> None:
    stage, futures = Stage(), list[Any]()
    of_call: Any = {"timeout": LIMIT} if whose == "call" else {}
    of_batch: Any = {"timeout": LIMIT} if whose == "batch" else {}

    def run() -> object:
        with client.batch(parallel=parallel, **of_batch) as batch:
            futures.append(batch.call_tool("hold", **of_call))
        return futures[0].exception()

    with connect(stage.server) as client:
        error = moved.ending(LIMIT, run, partial(stage.inside, ""))
    assert isinstance(error, syncmcp.RequestTimeout)


def test_a_batch_in_turn_gives_each_call_what_is_left(moved: MovedTime) -> None:
    stage = Stage()
    with connect(stage.server) as client:
        with client.batch(parallel=False, timeout=LIMIT) as batch:
            first, second = (batch.call_tool("hold", {"key": key}) for key in ("a", "b"))
        stage.inside("a")
        moved.advance(100.0)
        stage.let_go("a")
        assert first.result(PATIENCE).text == "a"
        error = moved.ending(LIMIT - 100.0, second.exception, partial(stage.inside, "b"))
    assert isinstance(error, syncmcp.RequestTimeout)


def test_a_frame_of_calls_ends_with_the_last_of_them(moved: MovedTime) -> None:
    assert LatestDeadline([Deadline(1.0), Deadline(LIMIT)]).remaining() == LIMIT


@pytest.mark.parametrize("transport", ["memory", "http"])
def test_each_look_at_a_task_has_the_limit_of_the_client(transport: str, moved: MovedTime) -> None:
    server = Asking()
    server.leave("tasks/get")
    with (
        Wire(transport, STATELESS).serve(server) as target,
        connect(target, timeout=LIMIT) as client,
    ):
        error = moved.ending(LIMIT, client.task("1").wait, server.was_asked)
        assert isinstance(error, syncmcp.RequestTimeout)


def test_answers_to_a_task_have_the_limit_of_the_client(moved: MovedTime) -> None:
    server = Asking()
    server.leave("tasks/update")
    person = Elicitation(form=Person(ElicitResult.decline()))
    with connect(server, timeout=LIMIT, elicitation=person) as client:
        task = client.start_task("ask")
        assert task.id is not None
        while task.refresh() != "input_required":
            threading.Event().wait(0.01)
        error = moved.ending(LIMIT, client.task(task.id).wait, server.was_asked)
    server.close()  # its task is still running
    assert isinstance(error, syncmcp.RequestTimeout)


def test_a_task_is_waited_for_until_the_limit(moved: MovedTime) -> None:
    server = Asking()
    server.leave("tasks/get")
    with connect(server) as client:
        wait = partial(client.task("1").wait, LIMIT)
        assert moved.ending(LIMIT, wait, partial(moved.waits_for, LIMIT)) is False


@both_ways
def test_a_task_is_looked_at_when_its_server_wants_it(way: str, moved: MovedTime) -> None:
    server = Asking()
    with connect(server) as client:
        server.leave("tasks/get")
        call = moved.start(calling(client, way, "ask"))
        moved.waits_for(7.0)
        assert not server.asked.is_set()
        moved.advance(7.0)
        server.was_asked()
        client.close()
        assert isinstance(call.get(timeout=PATIENCE), syncmcp.ClosedError)


def test_what_is_sent_in_the_background_has_thirty_seconds(moved: MovedTime) -> None:
    server = Asking()
    server.leave("acme/ask")
    with syncmcp.connect(server, mode=STATELESS, open_timeout=None, timeout=None) as client:
        send_and_forget(client._core, "acme/ask", None, "try")
        server.was_asked()
        moved.waits_for(30.0)


def test_a_notification_that_the_server_does_not_take_ends_at_its_limit(moved: MovedTime) -> None:
    came = threading.Event()
    with session_server() as server:
        server.before = on(b"acme/told", act=lambda _: came.set())
        with syncmcp.connect(server.url, mode=STATEFUL, open_timeout=None) as client:
            tell = partial(client.notify, "acme/told", timeout=LIMIT)
            # The timer checks an exchange a quarter of a second after its deadline.
            error = moved.ending(LIMIT + 0.25, tell, lambda: came.wait(PATIENCE))
    assert isinstance(error, syncmcp.RequestTimeout)


@both_ways
@pytest.mark.parametrize("hook", ["outgoing", "incoming"])
def test_a_pause_of_a_hook_is_as_long_as_it_says(way: str, hook: str, moved: MovedTime) -> None:
    pausing = on_call(hook, lambda message: message.pause(LIMIT))
    with connect(Stage().server, interceptors=[pausing]) as client:
        call = (
            partial(client.call_tool, "count", {"steps": 0})
            if way == "blocking"
            else lambda: client.call_tool.future("count", {"steps": 0}).result()
        )
        result = moved.ending(LIMIT, call, partial(moved.waits_for, LIMIT))
    assert result.text == "counted"


def test_a_hook_has_a_quarter_of_a_second_after_the_limit(moved: MovedTime) -> None:
    gate = Gate()
    with syncmcp.connect(Stage().server, interceptors=[on_call("outgoing", gate)]) as client:
        call = client.call_tool.future("hold", timeout=LIMIT)
        gate.reached()
        moved.advance(LIMIT)
        moved.waits_for(0.25)
        moved.advance(0.25)
        assert isinstance(call.exception(PATIENCE), syncmcp.RequestTimeout)
        gate.open.set()


def test_what_is_owed_to_a_server_has_half_a_minute(moved: MovedTime) -> None:
    came = threading.Event()
    with session_server() as server:
        server.before = on(b"cancelled", b"tools/call", act=lambda _: came.set())
        with syncmcp.connect(server.url, mode=STATEFUL, open_timeout=None, timeout=None) as client:
            call = client.call_tool.future("x")
            assert came.wait(PATIENCE)
            assert call.cancel()
            moved.waits_for(30.25)


def test_a_server_that_takes_nothing_is_closed_within_five_seconds(moved: MovedTime) -> None:
    limits: list[float | None] = []
    transport = SimpleNamespace(close=lambda deadline: limits.append(deadline.remaining()))
    notifier: Any = SimpleNamespace(
        _receiver=SimpleNamespace(lost=lambda error: None), transport=transport
    )
    Notifier._give_up(notifier, syncmcp.LimitExceeded("too much is owed"))
    assert limits == [5.0]
