"""Queued messages of a server are also limited by their size in memory."""

from __future__ import annotations

import gc
import logging
import threading
from typing import Any

import pytest

from syncmcp import Client, ClosedError
from syncmcp._base.text import MOST_QUOTED
from syncmcp._client.operation import StreamBuffer
from syncmcp._concurrency import budget, futures
from syncmcp._concurrency.futures import Progress, RequestFuture
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._connection.client_services import ClientServices, HandlerRegistry
from syncmcp._connection.questions import InboundRequest, QuestionRegistry
from syncmcp.handlers import Handlers
from syncmcp.interceptors import Interceptor, Message
from syncmcp.testing import ToolContext
from syncmcp.testing import script as s
from syncmcp.testing.script import Step
from tests.support.intercepting import Seen
from tests.support.people import Held, Obedient, nobody
from tests.support.scripts import OLD, Scripted, opening, talk
from tests.support.shops import known
from tests.support.stage import PATIENCE, STATEFUL, Stage, Wire, in_threads

MEMORY = Wire("memory", STATEFUL)

BOUND = 500_000
LONG = "x" * 100_000


@pytest.fixture(autouse=True)
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MAX_BYTES", BOUND)


def test_what_waits_for_all_callbacks_is_bounded_by_size(caplog: pytest.LogCaptureFixture) -> None:
    stage, gate, inside = Stage(), threading.Event(), threading.Semaphore(0)
    heard: list[str] = []

    def slow(step: float, total: object, message: str | None) -> None:
        heard.append(message or "first")
        inside.release()
        assert gate.wait(2 * PATIENCE)

    @stage.server.tool()
    def chat(context: ToolContext) -> str:
        context.report_progress(1)
        assert inside.acquire(timeout=PATIENCE)
        for step in range(2, 12):
            context.report_progress(step, message=LONG)
        return "chatted"

    with caplog.at_level(logging.WARNING, "syncmcp"), MEMORY.connect(stage.server) as client:
        calls = [client.call_tool.future("chat", on_progress=slow) for _ in range(3)]
        for call in calls:
            # A report that reaches the iterator has also passed the queue of the callback.
            assert any(report.progress == 11 for report in call.progress(timeout=PATIENCE))
        waiting = client.dump().facts["queues"]["notification bytes"]
        assert BOUND - 2 * len(LONG) < waiting <= BOUND
        gate.set()
        assert [call.result(PATIENCE).text for call in calls] == ["chatted"] * 3
        assert client.dump().facts["queues"]["notification bytes"] == 0
    assert heard.count("first") == 3
    assert 0 < heard.count(LONG) <= 4
    assert any("dropped" in text for text in caplog.messages)


@pytest.mark.parametrize("interceptors", [[], [Seen()]], ids=["plain", "intercepted"])
def test_callbacks_that_keep_up_miss_nothing(interceptors: list[Seen]) -> None:
    stage = Stage()
    heard: list[int] = []
    taken = threading.Semaphore(0)

    def quick(message: Any) -> None:
        heard.append(len(message.data))
        taken.release()

    @stage.server.tool()
    def chat(context: ToolContext) -> str:
        for _ in range(10):
            context.log("info", LONG)
            assert taken.acquire(timeout=PATIENCE)
        context.log("info", LONG * 8)
        return "chatted"

    with MEMORY.connect(stage.server, on_log=quick, interceptors=interceptors) as client:
        assert client.call_tool("chat").text == "chatted"
    # A single message may have any size.
    assert heard == [len(LONG)] * 10 + [8 * len(LONG)]


@pytest.mark.parametrize("long", ["params", "id"])
def test_long_questions_are_refused_while_others_wait(long: str) -> None:
    held = Held(dict)
    padding, params = (LONG, {}) if long == "id" else ("", {"text": LONG})
    ids = [f"{n}{padding}" for n in range(7)]
    asked = [s.request("acme/question", params, identifier=id) for id in ids]
    script = [*opening(), asked[0], s.gate("inside"), *asked[1:], *[s.expect("response")] * 7]
    with talk(script, max_handlers=1, on_request={"acme/question": held}) as (peer, client):
        held.entered()
        peer.open("inside")
        refused = peer.requests("response", 3)
        assert [answer["id"] for answer in refused] == ids[4:]
        assert {answer["error"]["code"] for answer in refused} == {-32603}
        assert 4 * len(LONG) < client.dump().facts["queues"]["question bytes"] <= BOUND
        held.gate.set()
        answered = peer.requests("response", 7)[3:]
        assert [answer["id"] for answer in answered] == ids[:4]
        assert client.dump().facts["queues"]["question bytes"] == 0


@pytest.mark.parametrize("interceptors", [[], [Seen()]], ids=["plain", "intercepted"])
def test_a_long_method_counts_as_a_part_of_its_notification(interceptors: list[Seen]) -> None:
    inside, gate = threading.Event(), threading.Event()

    def slow(method: str, params: dict[str, Any]) -> None:
        inside.set()
        assert gate.wait(2 * PATIENCE)

    told = [s.notify(f"acme/{n}{LONG}", {}) for n in range(7)]
    ping = [s.request("ping", identifier=1), s.expect("response")]
    script = [*opening(), told[0], s.gate("inside"), *told[1:], *ping, s.gate("end")]
    with talk(script, on_notification=slow, interceptors=interceptors) as (peer, client):
        assert inside.wait(PATIENCE)
        peer.open("inside")
        peer.requests("response", 1)
        waiting = client.dump().facts["queues"]["notification bytes"]
        gate.set()
        assert 4 * len(LONG) < waiting <= BOUND
        known(lambda: client.dump().facts["queues"]["notification bytes"] == 0)
        peer.open("end")


def test_a_long_method_counts_as_a_part_of_what_an_interceptor_is_shown() -> None:
    inside, gate = threading.Event(), threading.Event()
    shown: list[str] = []

    class Slow(Interceptor):
        def incoming(self, message: Message) -> None:
            if message.settled and message.method.startswith("acme/"):
                inside.set()
                assert gate.wait(2 * PATIENCE)
                shown.append(message.method[:6])

    half = LONG[::2]  # the client refuses each by name, and interceptors also see the refusal
    asked = [s.request(f"acme/{n}{half}", identifier=n) for n in range(7)]
    answered = [s.expect("response")] * 7
    script = [*opening(), asked[0], s.gate("inside"), *asked[1:], *answered, s.gate("end")]
    with talk(script, interceptors=[Slow()]) as (peer, client):
        assert inside.wait(PATIENCE)
        peer.open("inside")
        peer.requests("response", 7)
        waiting = client.dump().facts["queues"]["notification bytes"]
        gate.set()
        # The budget is the client's: queued messages count across its connections.
        assert BOUND - 2 * len(half) < waiting <= BOUND
        known(lambda: shown[-1:] == ["acme/6"])
        assert len(shown) <= 5
        peer.open("end")


def cancelled(id: int) -> Step:
    return s.notify("notifications/cancelled", {"requestId": id})


def questions(method: str) -> int:
    """Return how many questions of this method, which no other test uses, are in memory."""
    return sum(type(each) is InboundRequest and each.method == method for each in gc.get_objects())


def asking(method: str, numbers: range) -> list[Step]:
    """Return long questions that are cancelled at once."""
    asked = [(s.request(method, {"text": LONG}, identifier=n), cancelled(n)) for n in numbers]
    return [step for pair in asked for step in pair]


def test_a_question_that_is_cancelled_while_it_waits_takes_no_memory() -> None:
    held = Held(dict)
    first = s.request("acme/waiting", {"text": LONG}, identifier=0)
    ping = [s.request("ping", identifier=99), s.expect("response")]
    pairs = asking("acme/waiting", range(1, 20))
    script = [*opening(), first, s.gate("inside"), *pairs, *ping, s.expect("response")]
    with talk(script, max_handlers=1, on_request={"acme/waiting": held}) as (peer, client):
        held.entered()
        peer.open("inside")
        assert peer.requests("response", 1)[0]["id"] == 99
        assert questions("acme/waiting") == 1
        assert client._core.pools.handlers.waiting == 0
        held.gate.set()
        assert peer.requests("response", 2)[1]["id"] == 0


@pytest.mark.requirement("CAN-06")
def test_a_question_that_is_cancelled_before_the_client_is_open_takes_no_memory() -> None:
    pairs = asking("acme/early", range(20))
    first, last = ([s.request("ping", identifier=n), s.expect("response")] for n in (99, 100))
    hello = s.expect("initialize", label="start")
    welcome = s.reply({"protocolVersion": OLD, "capabilities": {}, "serverInfo": {}}, to="start")
    opened = [welcome, s.expect("notifications/initialized"), *last]
    with Scripted([hello, *pairs, *first, s.gate("look"), *opened]) as peer:
        client = Client(peer, mode=OLD)
        client.on_request("acme/early", nobody)

        def look() -> int:
            peer.requests("response", 1)
            count = questions("acme/early")
            peer.open("look")
            return count

        client_opened, count = in_threads(client.open, look)
        assert [answer["id"] for answer in peer.requests("response", 2)] == [99, 100]
        client.close()
        assert client_opened is client
        assert count <= 1  # the reading thread may still refer to the last one


def test_a_question_counts_until_its_handler_returns_though_it_was_cancelled() -> None:
    held = Held(dict)
    script = [*opening()]
    for n in range(4):
        script += [s.request("acme/question", {"text": LONG}, identifier=n), s.gate(f"{n}")]
        script += [cancelled(n)]
    script += [s.request("acme/question", {"text": LONG}, identifier=4), s.expect("response")]
    with talk(script, max_handlers=1, on_request={"acme/question": held}) as (peer, client):
        for n in range(4):
            held.entered()
            peer.open(f"{n}")
        (refused,) = peer.requests("response", 1)
        assert (refused["id"], refused["error"]["code"]) == (4, -32603)
        held.gate.set()
        known(lambda: client.dump().facts["queues"]["question bytes"] == 0)


def test_a_handler_that_runs_on_keeps_no_long_reason_of_its_cancel() -> None:
    handler, reason = Obedient(dict), "not needed " * 10_000
    withdrawn = s.notify("notifications/cancelled", {"requestId": 1, "reason": reason})
    asked = s.request("acme/question", identifier=1)
    script = [*opening(), asked, s.gate("inside"), withdrawn, s.gate("end")]
    with talk(script, on_request={"acme/question": handler}) as (peer, _):
        handler.entered()
        peer.open("inside")
        kept = handler.obeyed()
        peer.open("end")
    assert kept is not None
    assert len(kept) <= MOST_QUOTED + 3
    assert reason.startswith(kept.removesuffix("..."))


def test_what_waits_counts_beyond_the_end_of_its_connection() -> None:
    stage, gate, inside = Stage(), threading.Event(), threading.Event()

    @stage.server.tool()
    def chat(context: ToolContext) -> str:
        for _ in range(4):
            context.log("info", LONG)
        return "chatted"

    def slow(message: Any) -> None:
        inside.set()
        assert gate.wait(2 * PATIENCE)

    client = Client(stage.server, mode=STATEFUL, on_log=slow)

    def waiting() -> Any:
        return client.dump().facts["queues"]["notification bytes"]

    with client:
        client.call_tool.future("chat")
        assert inside.wait(PATIENCE)
        known(lambda: waiting() > 3 * len(LONG))
        before = waiting()
    with client:
        assert waiting() == before
        client.call_tool.future("chat")
        gate.set()
        known(lambda: waiting() == 0)


def test_questions_count_beyond_the_end_of_their_connection() -> None:
    handlers = HandlerRegistry(None, None, None, Handlers())
    workers = DaemonPool("syncmcp-test", 1)
    old, new = (
        QuestionRegistry(ClientServices("it", lambda: None, handlers, workers, workers, None, 100))
        for _ in range(2)
    )
    question, late, ended = (
        InboundRequest(registry, "x", {}, lambda _: {}, lambda *_: None, size=BOUND)
        for registry in (old, old, new)
    )
    assert old.add(question)
    assert not new.fits(1)
    old.close(ClosedError("over"))
    assert new.fits(1)
    assert not old.add(late)
    assert ended.cancel("its round has failed")
    assert not new.add(ended)
    assert not new.begin(ended)


def test_a_future_keeps_the_newest_reports_within_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(futures, "MAX_CHARACTERS", 3 * len(LONG))
    future: RequestFuture[Any] = RequestFuture(DaemonPool("syncmcp-test", 1))
    for step in range(1, 6):
        futures.add_progress(future, Progress(step, None, LONG))
    futures.add_progress(future, Progress(6, None, "short"))
    futures.settle(future, None, None)
    assert [report.progress for report in future.progress()] == [4, 5, 6]


def test_a_stream_keeps_the_newest_items_within_the_bound_and_counts_the_others() -> None:
    buffer = StreamBuffer()
    for step in range(1, 7):
        buffer.put(Progress(step, None, LONG))
    buffer.put({"level": "info", "data": LONG})
    buffer.close()
    assert [type(item) for item in iter(buffer.next, None)] == [Progress] * 3 + [dict]
    assert buffer.dropped == 3
