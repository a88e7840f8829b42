"""Time limits of opening, closing, pings and pauses, by a clock that only the test moves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

import syncmcp
from syncmcp import ClientGroup, HandlerContext, RequestTimeout, Retry
from syncmcp._client.opening import _Probe
from syncmcp._connection.server_requests import _ProgressReports
from syncmcp.handlers import Elicitation
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from syncmcp.types import ElicitResult
from tests.support.moved_time import MovedTime
from tests.support.scripts import NEW, OLD, WIRES, Scripted, opening
from tests.support.session_server import on, session_server
from tests.support.shops import Silent, shop
from tests.support.stage import PATIENCE, STATEFUL, STATELESS, Stage, Wire, every_wire, rotated
from tests.transports.http_peer import Request, serving

LIMIT = 600.0
ENDLESS: dict[str, Any] = {"timeout": None, "idle_timeout": None}
LATER = {"Retry-After": "600"}
SILENT = [s.expect("initialize"), s.silence()]

both_ways = pytest.mark.parametrize("way", ["blocking", "future"])


def way_of(operation: Any, way: str, *args: Any, **options: Any) -> Callable[[], Any]:
    """Return a function that makes the call, blocking or by a future, and waits for its end."""
    if way == "blocking":
        return partial(operation, *args, **options)
    return lambda: operation.future(*args, **options).exception()


def lazy(target: Any, **options: Any) -> syncmcp.Client:
    return syncmcp.Client(target, mode=OLD, lazy=True, **options)


# -- opening and closing
@WIRES
@pytest.mark.requirement("VER-07", "CAN-02")
def test_an_opening_ends_at_open_timeout(wire: str, moved: MovedTime) -> None:
    with Scripted(SILENT) as peer:
        open_client = partial(syncmcp.connect, peer.on(wire), mode=OLD, open_timeout=LIMIT)
        error = moved.ending(LIMIT, open_client, lambda: peer.requests("initialize"))
        assert peer.gone()
        assert peer.methods(1) == ["initialize"]  # `initialize` is never cancelled
    assert isinstance(error, RequestTimeout)
    assert (error.kind, error.seconds) == ("open", LIMIT)
    assert error.__cause__ is not None


def test_an_opening_is_not_tried_again_after_open_timeout(moved: MovedTime) -> None:
    with session_server() as server:
        server.before = on(b"initialize", act=lambda one: one.connection.respond(429, b"", LATER))
        retry = Retry(pause=0.0, budget=2 * LIMIT)
        client = syncmcp.Client(server.url, mode=OLD, retry=retry, open_timeout=LIMIT)
        error = moved.start(client.open).get(timeout=PATIENCE)
        client.close()
        assert isinstance(error, syncmcp.HttpError)
        assert server.count("initialize") == 1


@both_ways
@pytest.mark.parametrize("limit", ["open_timeout", "timeout"])
def test_a_call_that_opens_ends_at_the_sooner_limit(way: str, limit: str, moved: MovedTime) -> None:
    options: dict[str, Any] = {"open_timeout": None, "timeout": None, limit: LIMIT}
    with Scripted(SILENT) as peer, closing(lazy(peer, **options)) as client:
        call = way_of(client.call_tool, way, "x")
        error = moved.ending(LIMIT, call, lambda: peer.requests("initialize"))
    assert isinstance(error, RequestTimeout)
    assert f"600 s (option {limit})" in str(error)


def test_who_waits_for_another_s_opening_ends_at_their_own_limit(moved: MovedTime) -> None:
    with Scripted(SILENT) as peer:
        with closing(lazy(peer, open_timeout=None, timeout=None)) as client:
            opens = moved.start(partial(client.call_tool, "x"))
            peer.requests("initialize")
            call = partial(client.call_tool, "x", timeout=LIMIT)
            error = moved.ending(LIMIT, call, partial(moved.waits_for, LIMIT))
        assert isinstance(error, RequestTimeout)
        assert (error.kind, error.delivery) == ("open", "not_sent")
        assert isinstance(opens.get(timeout=PATIENCE), syncmcp.McpError)


@WIRES
@pytest.mark.parametrize(
    "options",
    [
        {"probe_timeout": LIMIT, "open_timeout": None},
        {"probe_timeout": 2 * LIMIT, "open_timeout": 2 * LIMIT},  # the probe gets half of it
    ],
)
@pytest.mark.requirement("VER-14")
def test_a_probe_is_sent_again_after_a_second_and_given_up_at_its_limit(
    wire: str, options: dict[str, Any], moved: MovedTime
) -> None:
    probes = [s.expect("server/discover"), s.expect("server/discover")]
    with Scripted([*probes, *opening()]) as peer:
        opens = moved.start(partial(syncmcp.connect, peer.on(wire), **options))
        for number, limit in ((1, 1.0), (2, LIMIT - 1.0)):
            peer.requests("server/discover", number)
            moved.waits_for(limit)
            moved.advance(limit)
        client = opens.get(timeout=PATIENCE)
        assert client.server.revision == OLD
        client.close()
        assert "notifications/cancelled" not in peer.transcript.methods()


def test_a_server_that_was_slow_to_refuse_the_probe_is_remembered(moved: MovedTime) -> None:
    probe = _Probe(cast("Any", SimpleNamespace(agreed=SimpleNamespace())))
    probe._sent_twice, probe._ended_at = True, moved.now()
    moved.advance(1.0)
    assert not probe.slow
    moved.advance(0.5)
    assert probe.slow


def test_the_older_transport_is_opened_until_the_limit_of_the_probe(moved: MovedTime) -> None:
    listening = threading.Event()

    def script(one: Request) -> None:
        if one.method == "GET":
            listening.set()
            one.connection.wait_for_end()
        else:
            one.connection.respond(405)

    with serving(script) as server:
        client = syncmcp.Client(server.url, probe_timeout=LIMIT, open_timeout=None)
        # The timer checks an exchange a quarter of a second after its deadline.
        error = moved.ending(LIMIT + 0.25, client.open, lambda: listening.wait(PATIENCE))
        client.close()
    assert isinstance(error, syncmcp.McpError)


@rotated
def test_a_close_that_waits_for_calls_ends_at_its_limit(wire: Wire, moved: MovedTime) -> None:
    stage = Stage()
    with wire.connect(stage.server, **ENDLESS) as client:
        held = client.call_tool.future("hold")
        stage.inside("")
        close = partial(client.close, LIMIT, drain=True)
        assert moved.ending(LIMIT, close, partial(moved.waits_for, LIMIT)) is None
        assert isinstance(held.exception(PATIENCE), syncmcp.ClosedError)


# -- pings, retries, tasks
@both_ways
@pytest.mark.requirement("HTM-07")
def test_a_request_is_sent_again_when_its_pause_is_over(way: str, moved: MovedTime) -> None:
    def refuse_once(one: Request) -> bool:
        refused = b'"tools/list"' in one.body and server.count("tools/list") == 1
        if refused:
            one.connection.respond(429, b"later", LATER)
        return refused

    with session_server() as server:
        retry = Retry(pause=0.0, budget=LIMIT)
        with syncmcp.connect(server.url, mode=OLD, retry=retry, timeout=None) as client:
            server.before = refuse_once
            call = way_of(client.list_tools, way)
            listed = moved.ending(LIMIT, call, partial(moved.waits_for, LIMIT))
            assert not isinstance(listed, BaseException)
            assert server.count("tools/list") == 2


@both_ways
@pytest.mark.parametrize(
    "limit", [{"retry": Retry(pause=0.0, budget=LIMIT - 1)}, {"timeout": LIMIT}]
)
def test_a_pause_beyond_the_limits_is_not_begun(
    way: str, limit: dict[str, Any], moved: MovedTime
) -> None:
    with session_server() as server:
        retry = Retry(pause=0.0, budget=2 * LIMIT)
        options: dict[str, Any] = {"retry": retry, "timeout": None, **limit}
        with syncmcp.connect(server.url, mode=OLD, **options) as client:
            server.before = on(
                b'"tools/list"', act=lambda one: one.connection.respond(429, b"", LATER)
            )
            error = moved.start(way_of(client.list_tools, way)).get(timeout=PATIENCE)
            assert isinstance(error, syncmcp.HttpError)
            assert server.count("tools/list") == 1


# -- waits of the program
@rotated
def test_nothing_changed_within_the_limit(wire: Wire, moved: MovedTime) -> None:
    server = shop("events", "one")
    with wire.connect(server) as client, ClientGroup({"a": server}) as group:
        for listener in (client, group):
            with listener.listen(tools=True, timeout=LIMIT) as changes:
                error = moved.ending(LIMIT, partial(next, changes), partial(moved.waits_for, LIMIT))
            assert isinstance(error, TimeoutError)


@WIRES
def test_a_subscription_not_acknowledged_ends_at_its_limit(wire: str, moved: MovedTime) -> None:
    script = [*opening(NEW), s.expect("subscriptions/listen"), s.silence()]
    with Scripted(script) as peer:
        client = syncmcp.connect(peer.on(wire), mode=NEW, timeout=LIMIT)
        listen = partial(client.listen, tools=True, undeclared="try")
        error = moved.ending(LIMIT, listen, lambda: peer.requests("subscriptions/listen"))
        assert peer.requests("notifications/cancelled")
        client.close()
    assert isinstance(error, RequestTimeout)
    assert "did not acknowledge the subscription" in str(error)
    assert error.seconds == LIMIT


def test_stopping_a_listener_waits_for_its_function_until_the_limit(moved: MovedTime) -> None:
    server = shop("events", "one")
    inside, gate = threading.Event(), threading.Event()

    def slow(_: object) -> None:
        inside.set()
        gate.wait(PATIENCE)

    with syncmcp.connect(server) as client:
        listener = client.on_tools_changed(slow, debounce=0)
        server.list_changed("tools")
        assert inside.wait(PATIENCE)
        stop = partial(listener.stop, LIMIT)
        assert moved.ending(LIMIT, stop, partial(moved.waits_for, LIMIT)) is False
        gate.set()


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_a_list_is_fetched_once_after_the_pause_after_a_change(mode: Any, moved: MovedTime) -> None:
    server = shop("events", "one")
    heard = threading.Event()
    with syncmcp.connect(server, mode=mode, **ENDLESS) as client:
        client.on_tools_changed(lambda _: heard.set(), debounce=LIMIT)
        for _ in range(20):
            server.list_changed("tools")
        client.call_tool("one")  # its response arrives after all of these notifications
        moved.waits_for(LIMIT)
        moved.advance(LIMIT - 0.5)
        assert not heard.is_set()
        moved.advance(0.5)
        assert heard.wait(PATIENCE)
        assert server.stats.requests["tools/list"] == 1


# -- questions
@every_wire
@pytest.mark.requirement("TMO-01", "M-20")
def test_a_question_that_nobody_answers_ends_at_human_timeout(wire: Wire, moved: MovedTime) -> None:
    server = Server("asking")
    inside, ended = threading.Event(), threading.Event()

    @server.tool()
    def ask(context: ToolContext) -> str:
        schema = {"type": "object", "properties": {"a": {"type": "string"}}}
        return str(context.elicit("What?", schema, timeout=PATIENCE))

    def answer(request: Any, context: HandlerContext) -> ElicitResult:
        assert context.time_left() == LIMIT
        inside.set()
        context.cancel.wait()
        ended.set()
        return ElicitResult(action="decline")

    options: dict[str, Any] = {"elicitation": Elicitation(form=answer), **ENDLESS}
    with wire.connect(server, human_timeout=LIMIT, **options) as client:
        future = client.call_tool.future("ask")
        assert inside.wait(PATIENCE)
        moved.waits_for(LIMIT)
        moved.advance(LIMIT - 0.5)
        assert not ended.is_set()
        moved.advance(0.5)
        assert ended.wait(PATIENCE)
        future.exception(PATIENCE)


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
@pytest.mark.requirement("TMO-01")
def test_a_call_whose_questions_have_used_up_their_time_ends_at_its_limit(
    mode: Any, moved: MovedTime
) -> None:
    """Its `timeout` pauses for `human_timeout` in total, for all of its questions together."""
    server, asked = Server("asking"), threading.Semaphore(0)
    patience = 2 * LIMIT

    @server.tool()
    def ask(context: ToolContext) -> str:
        schema = {"type": "object", "properties": {}}
        for words in ("One?", "Two?"):
            context.elicit(words, schema, timeout=PATIENCE)
        return "answered"

    def answer(request: Any, context: HandlerContext) -> ElicitResult:
        asked.release()
        context.cancel.wait()
        return ElicitResult.decline()

    options: dict[str, Any] = {"elicitation": Elicitation(form=answer), "timeout": LIMIT}
    with syncmcp.connect(
        server, mode=mode, human_timeout=patience, idle_timeout=None, **options
    ) as client:
        call = client.call_tool.future("ask")
        assert asked.acquire(timeout=PATIENCE)
        moved.waits_for(patience)
        moved.advance(patience)
        error = moved.ending(LIMIT, call.exception, lambda: asked.acquire(timeout=PATIENCE))
    assert isinstance(error, RequestTimeout)


def test_a_visit_that_nobody_calls_done_is_waited_for_a_minute(moved: MovedTime) -> None:
    visit = {"mode": "url", "url": "https://a.example", "message": "Go", "elicitationId": "e-1"}
    asked = [s.expect("tools/call"), s.error(-32042, "visit", {"elicitations": [visit]})]
    again = [s.expect("tools/call"), s.reply({"content": []})]
    with Scripted([*opening(OLD), *asked, *again]) as peer:
        agrees = Elicitation(url=lambda request, context: ElicitResult.accept())
        with syncmcp.connect(peer, mode=OLD, elicitation=agrees, **ENDLESS) as client:
            call = partial(client.call_tool, "x")
            result = moved.ending(60.0, call, partial(moved.waits_for, 60.0))
    assert result.content == []


def test_reports_of_a_handler_are_sent_in_time(moved: MovedTime) -> None:
    posts: list[dict[str, Any]] = []
    reporter = _ProgressReports("token", posts.append, None)
    reporter.keep_alive()
    moved.waits_for(10.0)
    moved.advance(9.5)
    for step in range(1, 22):
        reporter.send(step)
    assert len(posts) == 20
    moved.advance(0.5)  # a report is due, but the limit of reports is reached
    assert len(posts) == 20
    moved.waits_for(1.0)
    moved.advance(0.5)
    reporter.send(22)  # a second after the others
    assert len(posts) == 21
    reporter.close(answered=False)
    reporter = _ProgressReports("token", posts.append, None)
    for step in range(1, 22):
        reporter.send(step)
    moved.waits_for(1.0)
    moved.advance(1.0)
    assert posts[-1]["progress"] == 21
    reporter.close(answered=False)


def test_the_completion_of_a_visit_is_waited_for_until_the_limit(moved: MovedTime) -> None:
    context = HandlerContext(None, None, "elicitation/create")
    wait = partial(context.wait_completed, LIMIT)
    assert moved.ending(LIMIT, wait, partial(moved.waits_for, LIMIT)) is False


# -- groups
def test_a_group_is_waited_for_until_the_limit(moved: MovedTime) -> None:
    stage = Stage()
    with ClientGroup({"a": stage.server}, **ENDLESS) as group:
        hold = partial(group.as_completed, lambda client: client.call_tool.future("hold"))
        error = moved.ending(LIMIT, lambda: [*hold(timeout=LIMIT)], partial(stage.inside, ""))
        stage.gate.set()
    assert isinstance(error, TimeoutError)


@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_a_ping_of_a_group_ends_at_its_limit(mode: Any, moved: MovedTime) -> None:
    server = Silent()
    with ClientGroup({"a": server}, mode=mode) as group:
        server.leave("ping" if mode == STATEFUL else "server/discover")
        ping = partial(group.ping, timeout=LIMIT)
        errors = moved.ending(LIMIT, ping, server.was_asked)
    assert isinstance(errors["a"], RequestTimeout)
