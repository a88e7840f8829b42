"""The end of questions: each gets exactly one answer, and leaves no object behind."""

from __future__ import annotations

import contextlib
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import syncmcp
from syncmcp import Client, ConnectionLost, HandlerContext, Mode, RequestCancelled, RequestTimeout
from syncmcp._concurrency.timing import timer
from syncmcp._connection.answering import check_offered
from syncmcp._connection.questions import InboundRequest
from syncmcp._connection.server_requests import _ProgressReports
from syncmcp.testing import Server, ToolContext, Withdrawn
from syncmcp.testing import script as s
from syncmcp.transports.memory import MemoryTransport
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import (
    BOTH,
    DONE,
    ELICITATION,
    FORM,
    PROMPT,
    SAMPLING,
    URL,
    asking_server,
    model,
    through,
)
from tests.support.people import Held, Obedient, Person, nobody, reply
from tests.support.scripts import NEW, OLD, Scripted, opening, talk
from tests.support.stage import (
    PATIENCE,
    Wire,
    elsewhere,
    in_threads,
    rotated_stateful,
    rotated_with,
)

ASK = s.request(SAMPLING, PROMPT, identifier="q")
AFTER = [s.request("ping", identifier="after"), s.expect("response")]
CALL = s.expect("tools/call")


def form(name: str) -> dict[str, Any]:
    return {**FORM, "message": name}


def link(name: str, identifier: str = "e-1") -> dict[str, Any]:
    return {**URL, "message": name, "elicitationId": identifier}


def alive() -> list[InboundRequest]:
    """Return the questions that are still in memory."""
    gc.collect()
    return [each for each in gc.get_objects() if type(each) is InboundRequest]


@pytest.mark.requirement("M-02")
def test_a_question_outlives_the_call_beside_it_when_the_server_answers_that_one() -> None:
    held, listed = Held(), s.reply({"tools": []}, to="list")
    script = [*opening(), s.expect("tools/list", label="list"), ASK, listed, s.expect("response")]
    with talk(script, sampling=held) as (peer, client):
        # Only this call is in flight, but the question may belong to no call.
        assert client.list_tools().tools == []
        assert not held.entered().cancel.cancelled
        held.leave()
        (answer,) = peer.requests("response")
        assert (answer["id"], answer["result"]["model"]) == ("q", "double")


def test_a_call_cancelled_before_its_questions_asks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    making, gate = threading.Event(), threading.Event()

    def slowly(*args: Any) -> None:
        making.set()
        assert gate.wait(PATIENCE)
        check_offered(*args)

    monkeypatch.setattr("syncmcp._connection.questions.check_offered", slowly)
    handler, asking = (
        Person(),
        [
            step
            for name in ("first", "second")
            for step in (CALL, s.input_required({"a": (ELICITATION, form(name))}, "state"))
        ],
    )
    script = [*opening(NEW), *asking, CALL, s.reply(DONE)]
    with talk(script, mode=NEW, elicitation=handler, max_handlers=1) as (_, client):
        future = client.call_tool.future("x")
        assert making.wait(PATIENCE)
        assert future.cancel()
        gate.set()
        assert client.call_tool("y").text == "done"
    assert [request.message for request in handler.requests] == ["second"]


def test_a_question_that_no_thread_can_be_had_for_is_refused_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if "handler" in self.name:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    script = [*opening(), ASK, s.expect("response")]
    with caplog.at_level(logging.WARNING, "syncmcp"), talk(script, sampling=model) as (peer, _):
        (answer,) = peer.requests("response")
        assert (answer["id"], answer["error"]["code"]) == ("q", -32603)
        assert "thread" not in answer["error"]["message"]
    assert any(SAMPLING in record.getMessage() for record in caplog.records)
    ask = s.input_required({"q": (SAMPLING, PROMPT)}, "state")
    with talk([*opening(NEW), CALL, ask], mode=NEW, sampling=model) as (_, client):
        with pytest.raises(syncmcp.McpError, match="thread") as caught:
            client.call_tool("x")
        assert not isinstance(caught.value, RequestCancelled)


def test_the_timer_sends_nothing_when_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, send, senders = Obedient(), MemoryTransport.send, list[str]()

    def noting(self: MemoryTransport, out: Any) -> None:
        senders.append(threading.current_thread().name)
        send(self, out)

    monkeypatch.setattr(MemoryTransport, "send", noting)
    ask = s.input_required({"q": (ELICITATION, FORM)}, "state")
    script = [*opening(NEW), CALL, ask, CALL, s.reply(DONE)]
    with talk(script, mode=NEW, elicitation=handler, human_timeout=0.1) as (peer, client):
        assert client.call_tool.future("x").result(PATIENCE).text == "done"
        handler.obeyed()
        again = peer.requests("tools/call", 2)[1]
        assert again["params"]["inputResponses"]["q"]["action"] == "cancel"
    assert len(senders) == 3
    assert "syncmcp-timer" not in senders


def test_links_that_are_refused_are_not_remembered() -> None:
    held = Held(ElicitResult.accept)
    before = alive()  # left by other tests

    def asked(name: str, identifier: str, number: int) -> s.Step:
        return s.request(ELICITATION, link(name, identifier), identifier=number)

    script = [*opening(), asked("first", "kept", 1), s.gate("inside")]
    script += [asked("in line", "kept", 2), asked("one too many", "refused", 3)]
    script += [s.expect("response"), s.withdraw(2), asked("the id is in use", "refused", 1)]
    script += AFTER
    options: Any = {
        "elicitation": syncmcp.Elicitation(url=held),
        "max_handlers": 1,
        "max_questions": 1,
    }
    with talk(script, **options) as (peer, _):
        held.entered()
        peer.open("inside")
        refused, after = peer.requests("response", 2)
        assert (refused["id"], refused["error"]["code"], after["id"]) == (3, -32603, "after")
        mine = [one for one in alive() if not any(one is other for other in before)]
        assert {one.elicitation_ids for one in mine} == {("kept",)}
        held.leave()


def test_a_call_does_not_keep_the_questions_that_were_answered_in_it() -> None:
    before = len(alive())
    asking = s.repeat([ASK, s.expect("response")], 50)
    script = [*opening(), s.expect("tools/call", label="call"), asking, s.gate("counted")]
    script += [s.reply(DONE, to="call")]
    with talk(script, sampling=model) as (peer, client):
        future = client.call_tool.future("x")
        assert len(peer.requests("response", 50)) == 50
        # The thread of the last question may still refer to it.
        assert len(alive()) - before <= 2
        peer.open("counted")
        assert future.result(PATIENCE).text == "done"


# Questions that arrive while the client opens wait for it, and end if opening fails.

START = s.expect("initialize", label="start")
INITIALIZED = s.expect("notifications/initialized")


def opened(revision: str = OLD) -> s.Step:
    """Return the response to `initialize`."""
    info = {"name": "x", "version": "1"}
    offered = {"protocolVersion": revision, "capabilities": {"tools": {}}, "serverInfo": info}
    return s.reply(offered, to="start")


def early(identifier: str) -> s.Step:
    """Return a question with a progress token."""
    params = {**PROMPT, "_meta": {"progressToken": identifier}}
    return s.request(SAMPLING, params, identifier=identifier)


def beating() -> int:
    """Return the number of questions that send their server regular progress reports."""
    with timer._lock:
        actions = [entry.action for _, _, entry in timer._heap]
    return sum(
        isinstance(getattr(action, "__self__", None), _ProgressReports) for action in actions
    )


@pytest.mark.parametrize(
    ("revision", "first"), [(OLD, "initialize"), (NEW, "server/discover")], ids=[OLD, NEW]
)
@pytest.mark.requirement("TMO-01")
def test_a_question_does_not_hold_the_limit_of_opening(revision: Any, first: str) -> None:
    with Scripted([s.expect(first), early("early"), s.silence()]) as peer:
        client = Client(peer, mode=revision, sampling=nobody, open_timeout=0.2, close_timeout=0.1)
        try:
            (error,) = in_threads(client.open, patience=PATIENCE)
            assert isinstance(error, RequestTimeout)
        finally:
            client.close()


def test_the_questions_of_a_connection_that_never_opens_end_with_it() -> None:
    kept, hearts = len(alive()), beating()
    script = [START, *(early(f"early {number}") for number in range(5)), opened("1999-01-01")]
    with Scripted(script) as peer:
        client = Client(peer, mode=OLD, sampling=nobody)
        with pytest.raises(syncmcp.McpError, match="1999-01-01"):
            client.open()
        client.close()
        assert beating() <= hearts
        assert len(alive()) <= kept


def test_so_many_questions_may_wait_for_the_client_to_open_as_for_a_handler() -> None:
    questions = [early(f"{number}") for number in range(3)]
    script = [START, *questions, s.expect("response"), opened(), INITIALIZED]
    script += [s.expect("response")] * 2
    with talk(script, sampling=model, max_questions=2) as (peer, _):
        first, *others = peer.requests("response", 3)
        assert (first["id"], first["error"]["code"]) == ("2", -32603)
        assert {other["id"] for other in others} == {"0", "1"}
        assert all("result" in other for other in others)


WAYS = ["future", "token", "event", "Ctrl-C"]


@rotated_stateful
@pytest.mark.requirement("CAN-06", "M-02")
def test_the_handler_is_told_that_the_server_withdrew_and_no_answer_is_sent(wire: Wire) -> None:
    handler, server = Obedient(), Server("fickle")

    @server.tool()
    def ask(context: ToolContext) -> str:
        question = context.ask(SAMPLING, PROMPT)
        handler.entered()
        question.cancel("changed my mind")
        with pytest.raises(Withdrawn):
            question.result(PATIENCE)
        handler.obeyed()
        return "withdrawn"

    with wire.connect(server, sampling=handler) as client:
        assert client.call_tool("ask").raise_for_error().text == "withdrawn"
        client.list_tools()
    assert handler.reasons == ["changed my mind"]
    with server.stats as stats:
        assert (stats.responses, stats.late_answers, stats.violations) == (0, 0, [])


@pytest.mark.requirement("CAN-05", "CAN-06")
def test_a_cancel_that_names_nothing_open_is_ignored() -> None:
    held, named = Held(), [{"requestId": each} for each in ("1", True, 1.0, None, {"a": 1})]
    cancels = [s.notify("notifications/cancelled", params) for params in (*named, None)]
    script = [*opening(), s.request(SAMPLING, PROMPT, identifier=1), s.gate("inside"), *cancels]
    script += [*AFTER, s.expect("response")]
    with talk(script, sampling=held) as (peer, _):
        context = held.entered()
        peer.open("inside")
        assert peer.requests("response")[0]["id"] == "after"
        assert not context.cancel.cancelled
        held.gate.set()
        assert peer.requests("response", 2)[1]["result"]["model"] == "double"


@pytest.mark.requirement("CAN-05", "M-02")
def test_a_cancel_that_comes_twice_or_after_the_answer_changes_nothing() -> None:
    handler = Obedient()
    odd = {"requestId": "q", "reason": {"not": "a text"}}
    script = [*opening(), ASK, s.gate("inside"), s.notify("notifications/cancelled", odd)]
    script += [s.withdraw("q", "again"), ASK, s.gate("once more")]  # the id is free again
    script += [s.withdraw("q", "second"), *AFTER, s.withdraw("after"), *AFTER]
    with talk(script, sampling=handler) as (peer, _):
        handler.entered()
        peer.open("inside")
        assert handler.obeyed() is None
        handler.entered()
        peer.open("once more")
        assert handler.obeyed() == "second"
        assert [answer["id"] for answer in peer.requests("response", 2)] == ["after"] * 2


@pytest.mark.requirement("CAN-06", "M-02")
def test_what_hangs_on_the_token_may_block_without_stopping_the_reader() -> None:
    gate, inside = threading.Event(), threading.Event()
    handler = Obedient()

    def block() -> None:
        inside.set()
        assert gate.wait(PATIENCE)

    def answer(request: Any, context: HandlerContext) -> Any:
        context.cancel.on_cancel(block)
        return handler(request, context)

    script = [*opening(), ASK, s.gate("inside"), s.withdraw("q"), s.expect("ping"), s.reply({})]
    with talk(script, sampling=answer) as (peer, client):
        handler.entered()
        peer.open("inside")
        assert inside.wait(PATIENCE)
        client.ping()
        gate.set()


def until_waiting(thread: int) -> None:
    """Return once a thread waits: Python can miss a signal that arrives just before."""
    seen = 0
    place: tuple[int, int] | None = None
    while seen < 3:
        frame = sys._current_frames()[thread]
        before, place = place, (id(frame), frame.f_lasti)
        seen = seen + 1 if place == before else 0
        threading.Event().wait(0.005)


@rotated_with("way", WAYS)
@pytest.mark.requirement("M-02", "CAN-01", "MRTR-01")
@pytest.mark.pitfall("14")
def test_giving_up_a_call_stops_its_handler_and_tells_the_server_once(way: str, wire: Wire) -> None:
    handler, server = Obedient(), asking_server()
    token, event, main = syncmcp.CancelToken(), threading.Event(), threading.get_ident()
    options: dict[str, dict[str, Any]] = {"token": {"cancel": token}, "event": {"cancel": event}}

    def give_up() -> None:
        handler.entered()
        token.cancel("enough")
        event.set()
        if future is not None:
            future.cancel()
        elif way == "Ctrl-C":
            until_waiting(main)
            signal.pthread_kill(main, signal.SIGINT)

    with wire.connect(server, sampling=handler) as client:
        arguments = {"method": SAMPLING, "params": PROMPT}
        future = client.call_tool.future("ask", arguments) if way == "future" else None
        helper = threading.Thread(target=give_up)
        helper.start()
        call = partial(client.call_tool, "ask", arguments, **options.get(way, {}))
        answer: Callable[[], object] = partial(future.result, PATIENCE) if future else call
        with pytest.raises(KeyboardInterrupt if way == "Ctrl-C" else RequestCancelled):
            answer()
        helper.join(PATIENCE)
        reason = handler.obeyed()
        assert wire.revision == OLD or way != "token" or reason == "enough"
        assert client.call_tool("echo", {"text": "alive"}).text == "alive"
        if wire.revision == OLD:
            assert server.stats.wait_for(lambda stats: stats.cancelled == 1, PATIENCE)
        old = wire.revision == OLD
        with server.stats as stats:
            assert len(stats.cancels) == (1 if old else 0)
            # Until 2025-11-25 the client also answers: the question may belong to another call.
            assert stats.responses <= (1 if old else 0)
            assert (stats.violations, stats.requests["tools/call"]) == ([], 2)


@pytest.mark.parametrize(
    ("revision", "way"), [(OLD, "blocking"), (NEW, "blocking"), (NEW, "future")], ids=str
)
@pytest.mark.requirement("M-02")
def test_the_end_of_the_connection_ends_handler_and_call(revision: Mode, way: str) -> None:
    handler = Obedient()
    asks = ASK if revision == OLD else s.input_required({"q": (SAMPLING, PROMPT)}, "state")
    script = [*opening(revision), s.expect("tools/call"), asks, s.gate("inside"), s.cut()]
    with talk(script, mode=revision, sampling=handler) as (peer, client):
        call = elsewhere(lambda: through(client, way))
        handler.entered()
        peer.open("inside")
        with pytest.raises(ConnectionLost) as caught:
            call.result(PATIENCE)
        assert (caught.value.method, caught.value.delivery) == ("tools/call", "unknown")
        assert handler.obeyed()


@rotated_with("by", ["test", "handler"])
@pytest.mark.requirement("M-02")
def test_closing_the_client_stops_the_handler_and_ends_the_call(by: str, wire: Wire) -> None:
    handler = Obedient()

    def close_inside(request: Any, context: HandlerContext) -> Any:
        context.client.close()
        return handler(request, context)

    answering = handler if by == "test" else close_inside
    with wire.connect(asking_server(), sampling=answering) as client:
        future = client.call_tool.future("ask", {"method": SAMPLING, "params": PROMPT})
        if by == "test":
            handler.entered()
            client.close()
        handler.obeyed()
        with pytest.raises((syncmcp.ClosedError, ConnectionLost, RequestCancelled)):
            future.result(PATIENCE)


@pytest.mark.requirement("CAN-04", "CAN-06", "M-02")
def test_an_answer_that_crosses_its_withdrawal_is_settled_once() -> None:
    barrier, server, outcomes = threading.Barrier(2), Server("racing"), list[str]()

    def answer(request: Any, context: HandlerContext) -> Any:
        barrier.wait(PATIENCE)
        return reply()

    @server.tool()
    def race(context: ToolContext) -> str:
        question = context.ask(SAMPLING, PROMPT)
        barrier.wait(PATIENCE)
        question.cancel("now")
        try:
            question.result(PATIENCE)
            outcomes.append("answered")
        except Withdrawn:
            outcomes.append("withdrawn")
        return outcomes[-1]

    with syncmcp.connect(server, mode=OLD, sampling=answer) as client:
        for _ in range(100):
            client.call_tool("race").raise_for_error()
        client.ping()
    assert len(outcomes) == 100
    assert server.stats.responses <= 100
    assert server.stats.violations == []


@BOTH
@pytest.mark.requirement("CAN-04", "M-02")
def test_an_answer_that_crosses_our_own_cancel_is_settled_once(revision: Mode) -> None:
    barrier, server = threading.Barrier(2), asking_server()

    def answer(request: Any, context: HandlerContext) -> Any:
        barrier.wait(PATIENCE)
        return reply()

    with syncmcp.connect(server, mode=revision, sampling=answer) as client:
        ends: list[str] = []
        for _ in range(100):
            future = client.call_tool.future("ask", {"method": SAMPLING, "params": PROMPT})
            barrier.wait(PATIENCE)
            cancelled = future.cancel()
            with contextlib.suppress(RequestCancelled):
                assert "double" in future.result(PATIENCE).text
                assert not cancelled
            ends.append("cancelled" if cancelled else "answered")
            assert future.cancelled() == cancelled
        assert len(ends) == 100
        last = client.call_tool.future("ask", {"method": SAMPLING, "params": PROMPT})
        barrier.wait(PATIENCE)
        assert "double" in last.result(PATIENCE).text
    assert server.stats.violations == []
