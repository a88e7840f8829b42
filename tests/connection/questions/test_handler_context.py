"""What a handler knows and may do: who asks and why, calls back, progress, time, variables."""

from __future__ import annotations

import contextvars
import logging
import threading
from typing import Any

import pytest

from syncmcp import HandlerContext, Refused, RequestTimeout, UsageError
from syncmcp._connection.server_requests import _MAX_REPORTS, _REPORT_WINDOW
from syncmcp.testing import Server, ToolContext
from syncmcp.testing import script as s
from tests.connection.questions.asking import (
    DONE,
    ELICITATION,
    FORM,
    KNOWING,
    PROMPT,
    ROOTS,
    SAMPLING,
    asked,
    asking_server,
    said,
    through,
)
from tests.support.people import Held, Obedient, Person, reply
from tests.support.scripts import NEW, OLD, WIRES, opening, talk
from tests.support.stage import (
    PATIENCE,
    Clock,
    Wire,
    in_threads,
    rotated,
    rotated_stateful,
    rotated_with,
    tick,
)

RESULT: dict[str, Any] = {"content": [{"type": "text", "text": "done"}]}


@rotated
@pytest.mark.requirement("M-19", "M-33")
def test_the_server_has_the_name_that_the_program_gave_it_and_the_only_call_is_known(
    wire: Wire,
) -> None:
    held = Person()
    with wire.connect(asking_server(), sampling=held, name="my server", trusted=True) as client:
        asked(client, SAMPLING, PROMPT, meta={"acme.example/secret": 1})
        (context,) = held.contexts
        assert context.client is client
        assert context.method == SAMPLING
        server = context.server
        assert (server.name, server.trusted, server.revision) == ("my server", True, wire.revision)
        assert server.info is not None
        assert server.info.name == "asking"
        assert "my server" in repr(context)
        assert "asking" not in repr(context)
        call, arguments = context.call, {"method": SAMPLING, "params": PROMPT}
        assert call is not None
        assert (call.method, call.params) == ("tools/call", {"name": "ask", "arguments": arguments})


@WIRES
@pytest.mark.requirement("M-19")
def test_nobody_guesses_which_of_two_calls_a_question_belongs_to(wire: str) -> None:
    ask = [s.request(SAMPLING, PROMPT, identifier="none"), s.expect("response")]
    script = [*opening(), *ask, *(s.expect("tools/call", label=name) for name in ("one", "two"))]
    script += [*ask, *(s.reply(RESULT, to=name) for name in ("one", "two"))]
    held = Person()
    with talk(script, wire, sampling=held) as (peer, client):
        peer.requests("response")
        futures = [client.call_tool.future(name) for name in ("a", "b")]
        assert [future.result(PATIENCE).text for future in futures] == ["done"] * 2
    assert [context.call for context in held.contexts] == [None, None]


CALLER = contextvars.ContextVar("CALLER", default="nobody")


@KNOWING
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("M-19")
@pytest.mark.pitfall("31")
def test_the_variables_of_each_caller_are_seen_by_its_handlers_and_callbacks(
    way: str, wire: Wire
) -> None:
    barrier = threading.Barrier(4)
    server = asking_server()

    @server.tool()
    def work(context: ToolContext, who: str) -> str:
        context.report_progress(1, message=who)
        message = {"role": "user", "content": {"type": "text", "text": who}}
        question = {**PROMPT, "messages": [message]}
        answer = context.ask_all({"q": (SAMPLING, question)}, timeout=PATIENCE)
        return str(answer["q"]["content"]["text"])

    def answer(request: Any, context: HandlerContext) -> Any:
        barrier.wait(PATIENCE)
        assert CALLER.get() == request.messages[0].text
        assert context.call is not None
        assert context.call.params == {"name": "work", "arguments": {"who": CALLER.get()}}
        CALLER.set("changed in the handler")
        return reply(request.messages[0].text)

    heard: list[tuple[str | None, str]] = []

    def one(who: str) -> bool:
        CALLER.set(who)
        options: dict[str, Any] = {
            "on_progress": lambda progress, total, message: heard.append((message, CALLER.get()))
        }
        result = through(client, way, "work", {"who": who}, **options)
        return bool(result.raise_for_error().text == who == CALLER.get())

    names = ["a", "b", "c", "d"]
    with wire.connect(server, sampling=answer) as client:
        assert in_threads(*(lambda n=n: one(n) for n in names)) == [True] * 4
    assert {(name, name) for name in names} == set(heard)


@rotated_stateful
@pytest.mark.requirement("PRG-03", "M-22", "M-23")
def test_reports_reach_the_server_in_order_and_always_grow(wire: Wire) -> None:
    server, heard = Server("curious"), list[tuple[float, Any, Any]]()
    contexts: list[HandlerContext] = []

    @server.tool()
    def ask(context: ToolContext) -> str:
        question = context.ask(SAMPLING, PROMPT, progress=lambda *report: heard.append(report))
        return str(question.result(PATIENCE)["model"])

    def answer(request: Any, context: HandlerContext) -> Any:
        contexts.append(context)
        for report in ((1, 4, "begun"), (0.5, None, None), (1, 4, "again"), (3.5, 4, "nearly")):
            context.report_progress(*report)
        with pytest.raises(UsageError):
            context.report_progress(float("nan"))
        return reply()

    with wire.connect(server, sampling=answer) as client:
        assert client.call_tool("ask").raise_for_error().text == "double"
        contexts[0].report_progress(9, 9, "too late")
        client.list_tools()
        assert server.stats.wait_for(lambda stats: stats.responses == 1, PATIENCE)
        with server.stats as stats:
            assert stats.notifications["notifications/progress"] == 4
            assert stats.violations == []
    values = [value for value, _, _ in heard]
    assert values == sorted(set(values))
    assert (values[0], values[-1]) == (1, 3.5)
    told = [(4, "begun"), (None, None), (4, "again"), (4, "nearly")]
    assert [report[1:] for report in heard] == told


@rotated_stateful
@pytest.mark.requirement("PRG-04", "PRG-03")
def test_of_a_flood_of_reports_the_server_gets_some_and_the_last(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, heard = Server("curious"), list[float]()
    several, later = threading.Event(), threading.Event()

    def hear(value: float, *_: object) -> None:
        heard.append(value)
        {_MAX_REPORTS: several, _MAX_REPORTS + 1: later}.get(len(heard), later).set()

    @server.tool()
    def ask(context: ToolContext) -> str:
        return str(context.ask(SAMPLING, PROMPT, progress=hear).result(PATIENCE)["model"])

    def answer(request: Any, context: HandlerContext) -> Any:
        for step in range(1, 501):
            context.report_progress(step)
        assert several.wait(PATIENCE)
        clock.advance(_REPORT_WINDOW)
        tick()
        assert later.wait(PATIENCE)
        for step in range(501, 1001):
            context.report_progress(step)
        return reply()

    clock = Clock(monkeypatch, "syncmcp._concurrency.timing", stands=True)
    with wire.connect(server, sampling=answer) as client:
        assert client.call_tool("ask").raise_for_error().text == "double"
        with server.stats as stats:
            assert stats.violations == []
    first = [*range(1, _MAX_REPORTS + 1), 500]
    assert heard == [*first, *range(501, 500 + _MAX_REPORTS), 1000]


@pytest.mark.requirement("PRG-04", "PRG-03")
def test_a_report_that_is_held_back_is_not_sent_when_the_server_withdraws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.timing", stands=True)
    question = s.request(SAMPLING, {**PROMPT, "_meta": {"progressToken": "t"}})
    reports = [s.expect("notifications/progress")] * _MAX_REPORTS
    script = [*opening(), question, *reports, s.withdraw(), s.expect("ping"), s.reply({})]
    withdrawn = threading.Event()

    def answer(request: Any, context: HandlerContext) -> Any:
        for step in range(1, 501):
            context.report_progress(step)
        assert context.cancel.wait(PATIENCE)
        withdrawn.set()
        return reply()

    with talk(script, sampling=answer) as (peer, client):
        assert withdrawn.wait(PATIENCE)
        client.ping()
        methods = peer.methods(2 + _MAX_REPORTS + 1)[2:-1]
        assert methods == ["notifications/progress"] * _MAX_REPORTS


@pytest.mark.parametrize(
    ("meta", "token"),
    [
        *[({"progressToken": token}, token) for token in (0, "", -1)],
        *[(meta, None) for meta in ({}, {"progressToken": None}, {"progressToken": True}, None)],
    ],
)
@pytest.mark.requirement("PRG-03")
def test_what_is_reported_has_the_token_of_the_question_and_without_one_nothing_is(
    meta: Any, token: Any
) -> None:
    script = [*opening(), s.request(SAMPLING, {**PROMPT, "_meta": meta})]
    script += [s.expect("notifications/progress")] if token is not None else []
    with talk([*script, s.expect("response")], sampling=reporting) as (peer, _):
        peer.requests("response")
        reports = [each.message["params"] for each in peer.transcript.received[2:-1]]
    assert reports == ([] if token is None else [{"progressToken": token, "progress": 1}])
    assert all(type(report["progressToken"]) is type(token) for report in reports)


def reporting(request: Any, context: HandlerContext) -> Any:
    context.report_progress(1)
    return reply()


def test_in_the_stateless_era_there_is_nobody_to_report_to() -> None:
    params = {**PROMPT, "_meta": {"progressToken": 1}}
    call = s.expect("tools/call")
    script = [*opening(NEW), call, s.input_required({"q": (SAMPLING, params)}), call, s.reply(DONE)]
    with talk(script, mode=NEW, sampling=reporting) as (peer, client):
        client.call_tool("x")
        assert peer.methods(3) == ["server/discover", "tools/call", "tools/call"]


TASK = {"io.modelcontextprotocol/related-task": {"taskId": "t-1"}}


@WIRES
@pytest.mark.parametrize("task", [None, TASK], ids=["call", "task"])
@pytest.mark.requirement("PRG-03", "M-20", "TSK-07")
def test_a_server_is_shown_that_somebody_is_still_thinking_until_the_answer_is_out(
    task: dict[str, Any] | None, wire: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("syncmcp._connection.server_requests._KEEP_ALIVE_SECONDS", 0.01)
    params = {**PROMPT, "_meta": {"progressToken": "t", **(task or {})}}
    beats = [s.expect("notifications/progress")] * 3
    script = [*opening(), s.request(SAMPLING, params), *beats, s.expect("response")]
    own = {"acme.example/k": "v"}
    held = Held(lambda: reply().model_copy(update={"meta": own}))
    with talk(script, wire, sampling=held) as (peer, client):
        held.entered().report_progress(5, 10, "half")
        told = [beat["params"] for beat in peer.requests("notifications/progress", 4)]
        held.gate.set()
        (answer,) = peer.requests("response")
        with pytest.raises(RequestTimeout):
            client.ping(timeout=0.2)  # twenty beats
        methods = peer.transcript.methods()
        assert "notifications/progress" not in methods[methods.index("response") :]
    values = [beat["progress"] for beat in told]
    assert values == sorted(set(values))
    # What belongs to a task says so. One report is the program's, the others are the library's.
    tokens = [(beat["progressToken"], beat.get("_meta")) for beat in told]
    assert tokens == [("t", task)] * len(told)
    assert {beat.get("message") for beat in told} > {"half"}
    assert answer["result"]["_meta"] == {**(task or {}), **own}


@rotated_with(
    "method, answer", [(ELICITATION, {"action": "cancel"}), (SAMPLING, -1), (ROOTS, -32603)]
)
@pytest.mark.requirement("M-20", "M-02")
def test_a_question_that_nobody_answers_in_time_has_a_defined_answer(
    method: str, answer: Any, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()
    handlers: dict[str, Any] = {
        "sampling": held,
        "elicitation": held,
        "roots": lambda context: held(None, context),
    }
    params = {ELICITATION: FORM, SAMPLING: PROMPT, ROOTS: {}}[method]
    server = asking_server()
    with (
        caplog.at_level(logging.WARNING, "syncmcp"),
        wire.connect(server, human_timeout=0.1, **handlers) as client,
    ):
        if method == ELICITATION:
            assert asked(client, method, params) == {"result": answer}
        elif wire.revision == OLD:
            assert asked(client, method, params)["error"][0] == answer
        else:
            with pytest.raises(Refused) as caught:
                asked(client, method, params)
            assert caught.value.code == answer
        context = held.entered()
        assert context.cancel.wait(PATIENCE)
        assert "human_timeout" in (context.cancel.reason or "")
        assert context.time_left() == 0
        held.leave()
        assert said(client, "echo", {"text": "7"}) == 7
        with server.stats as stats:
            assert stats.responses == (1 if wire.revision == OLD else 0)
            assert stats.violations == []
    assert "human_timeout" in caplog.text


@pytest.mark.requirement("TMO-01")
def test_the_clock_does_not_stand_still_for_a_question_of_nobody() -> None:
    handler = Obedient()
    script = [*opening(), *[s.expect("tools/call")] * 2, s.request(SAMPLING, PROMPT), s.silence()]
    with talk(script, sampling=handler, close_timeout=1.0) as (_, client):
        futures = [client.call_tool.future(name, timeout=0.1) for name in ("a", "b")]
        handler.entered()
        for future in futures:
            assert isinstance(future.exception(PATIENCE), RequestTimeout)
