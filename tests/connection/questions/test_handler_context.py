"""The context of a handler: origin of the question, calls, progress, limits and variables."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import HandlerContext, LimitExceeded, RequestTimeout, UsageError
from syncmcp._concurrency.timing import Deadline, Hold
from syncmcp._connection.server_requests import _MAX_REPORTS, _REPORT_WINDOW
from syncmcp.approval import Approval, Decision, Rule, Rules
from syncmcp.interceptors import Interceptor, Message
from syncmcp.testing import RpcError, Server, ToolContext
from syncmcp.testing import script as s
from tests.connection.questions.asking import (
    CLOCKS,
    DONE,
    ELICITATION,
    FORM,
    KNOWING,
    PROMPT,
    RESULT,
    ROOTS,
    SAMPLING,
    Slow,
    asked,
    asking_server,
    fault,
    model,
    said,
    through,
)
from tests.support.people import Held, Obedient, Person, reply
from tests.support.scripts import NEW, OLD, opening, talk
from tests.support.stage import (
    PATIENCE,
    Clock,
    Wire,
    in_threads,
    rotated,
    rotated_stateful,
    rotated_ways,
    rotated_with,
    tick,
)


@rotated
@pytest.mark.requirement("M-19", "M-33")
def test_the_server_has_the_programs_name_and_the_only_call_is_known(wire: Wire) -> None:
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


@pytest.mark.requirement("M-19")
def test_nobody_guesses_which_of_two_calls_a_question_belongs_to() -> None:
    ask = [s.request(SAMPLING, PROMPT, identifier="none"), s.expect("response")]
    script = [*opening(), *ask, *(s.expect("tools/call", label=name) for name in ("one", "two"))]
    script += [*ask, *(s.reply(RESULT, to=name) for name in ("one", "two"))]
    held = Person()
    with talk(script, sampling=held) as (peer, client):
        peer.requests("response")
        futures = [client.call_tool.future(name) for name in ("a", "b")]
        assert [future.result(PATIENCE).text for future in futures] == ["done"] * 2
    assert [context.call for context in held.contexts] == [None, None]


CALLER = contextvars.ContextVar("CALLER", default="nobody")


@KNOWING
@pytest.mark.parametrize("way", ["blocking", "future"])
@pytest.mark.requirement("M-19")
@pytest.mark.pitfall("31")
def test_handlers_and_callbacks_see_the_variables_of_their_caller(way: str, wire: Wire) -> None:
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
            assert (stats.notifications["notifications/progress"], stats.violations) == (4, [])
    values = [value for value, _, _ in heard]
    assert (values, values[0], values[-1]) == (sorted(set(values)), 1, 3.5)
    told = [(4, "begun"), (None, None), (4, "again"), (4, "nearly")]
    assert [report[1:] for report in heard] == told


@rotated_stateful
@pytest.mark.requirement("PRG-04", "PRG-03")
def test_of_many_reports_some_and_the_last_go(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert server.stats.violations == []
    first = [*range(1, _MAX_REPORTS + 1), 500]
    assert heard == [*first, *range(501, 500 + _MAX_REPORTS), 1000]


@pytest.mark.requirement("PRG-04", "PRG-03")
def test_a_report_held_back_is_not_sent_after_a_withdrawal(monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_reports_have_the_token_of_the_question_and_need_one(meta: Any, token: Any) -> None:
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


@pytest.mark.parametrize(("task", "wire"), [(None, "stdio"), (TASK, "memory")])
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
            client.ping(timeout=0.2)  # time for twenty reports
        methods = peer.transcript.methods()
        assert "notifications/progress" not in methods[methods.index("response") :]
    values = [beat["progress"] for beat in told]
    assert values == sorted(set(values))
    # Reports on a question of a task name it. One report is the program's, others the library's.
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
    held, server, old = Held(), asking_server(), wire.revision == OLD
    handlers: dict[str, Any] = {"sampling": held, "elicitation": held, "roots": held}
    params = {ELICITATION: FORM, SAMPLING: PROMPT, ROOTS: {}}[method]
    caplog.set_level(logging.WARNING, "syncmcp")
    with wire.connect(server, human_timeout=0.1, **handlers) as client:
        if method == ELICITATION:
            assert asked(client, method, params) == {"result": answer}
        else:
            assert fault(client, method, params)[0] == answer
        context = held.entered()
        assert context.cancel.wait(PATIENCE)
        assert "human_timeout" in (context.cancel.reason or "")
        assert context.time_left() == 0
        held.leave()
        assert said(client, "echo", {"text": "7"}) == 7
        assert (server.stats.responses, server.stats.violations) == (1 if old else 0, [])
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


ASK = {"method": SAMPLING, "params": PROMPT}


class Inquisitive:
    """A server whose tool ``x`` asks a question several times, one after the other.

    Attributes:
        server: The server.
        refusal: The text of the error that it got instead of an answer (until 2025-11-25).
        refused: Set once the server got an error.
    """

    def __init__(self, times: int, method: str, params: dict[str, Any] | None = None) -> None:
        self.server, self.refused = Server("inquisitive"), threading.Event()
        self.refusal: str | None = None

        @self.server.tool()
        def x(context: ToolContext) -> str:
            try:
                for number in range(times):
                    context.ask_all({str(number): (method, params or {})}, timeout=PATIENCE)
            except RpcError as error:
                self.refusal = error.message
                self.refused.set()
                raise
            return "content"


@pytest.fixture
def slow_roots(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make each check of a root take 20 s."""
    clock, looking, over = Clock(monkeypatch, *CLOCKS), threading.Lock(), threading.Event()

    def status(path: Path) -> str:
        with looking:
            if not over.is_set():
                clock.advance(20.0)
                tick()
        return "ok"

    monkeypatch.setattr("syncmcp.handlers.roots._status", status)
    yield
    with looking:  # a running check uses the clock until it ends
        over.set()


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_clocks_run_for_own_answers(way: str, wire: Wire, slow_roots: None, tmp_path: Path) -> None:
    server = Inquisitive(9, ROOTS).server
    with (
        wire.connect(server, roots=[tmp_path], timeout=70.0, idle_timeout=None) as client,
        pytest.raises(RequestTimeout) as caught,
    ):
        through(client, way)
    assert (caught.value.kind, caught.value.seconds) == ("total", 70.0)


class Watching(Interceptor):
    def ended(self, answer: Message) -> None:
        """Only watch: the message stays as it is."""


RULES = {"approval": Approval(Rules([Rule(kind="roots", decision=Decision.ALLOW)]))}
WATCHED = {"interceptors": [Watching()]}
LISTING: dict[str, Any] = {"roots": lambda _: ["/"]}


@pytest.mark.parametrize(
    ("mode", "options"),
    [(OLD, RULES), (NEW, RULES), (OLD, WATCHED), (OLD, LISTING), (NEW, LISTING)],
    ids=["approval-old", "approval-new", "interceptors", "function-old", "function-new"],
)
@pytest.mark.requirement("TMO-01", "M-20")
def test_the_clock_stands_still_where_the_program_has_a_part_in_the_answer(
    mode: Any, options: dict[str, Any], slow_roots: None, tmp_path: Path
) -> None:
    server = Inquisitive(4, ROOTS).server
    options = {"roots": [tmp_path], "timeout": 70.0, "idle_timeout": 50.0, **options}
    with syncmcp.connect(server, mode=mode, **options) as client:
        assert client.call_tool("x").text == "content"


@KNOWING
@pytest.mark.requirement("TMO-01")
def test_a_clock_runs_until_a_handler_is_free(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, held, queued = Clock(monkeypatch, *CLOCKS), Held(), threading.Event()
    options: dict[str, Any] = {"max_handlers": 1, "timeout": 100.0, "idle_timeout": 20.0}
    with wire.connect(asking_server(), sampling=held, **options) as client:
        pool = client._core.pools.handlers
        submit = pool.submit

        def noted(job: Any, **how: Any) -> bool:
            started = submit(job, **how)
            if not started:
                queued.set()
            return started

        monkeypatch.setattr(pool, "submit", noted)
        answered = client.call_tool.future("ask", ASK)
        held.entered()
        waits = client.call_tool.future("ask", ASK)
        assert queued.wait(PATIENCE)
        # The server is silent because it waits for this client, so `idle_timeout` does not count.
        clock.advance(50.0)
        tick()
        assert not waits.done()
        clock.advance(51.0)
        tick()
        error = waits.exception(PATIENCE)
        assert isinstance(error, RequestTimeout)
        assert error.kind == "total"
        assert not answered.done()
        held.leave()
        assert "double" in answered.result(PATIENCE).text


@pytest.mark.requirement("TMO-02", "M-20")
def test_silence_counts_once_time_for_questions_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow(monkeypatch, 200.0, 99.0, 22.0)

    def think(request: Any, context: HandlerContext) -> Any:
        slow.think(context)
        return reply()

    options: dict[str, Any] = {"timeout": None, "idle_timeout": 20.0, "human_timeout": 300.0}
    server = Inquisitive(9, SAMPLING, PROMPT).server
    with Wire("http", OLD).connect(server, sampling=think, **options) as client:
        error = client.call_tool.future("x").exception(PATIENCE)
        assert slow.left.wait(PATIENCE)
    assert isinstance(error, RequestTimeout)
    assert (error.kind, error.seconds, len(slow.contexts)) == ("idle", 20.0, 3)


@pytest.mark.parametrize("ended", [False, True])
def test_a_hold_begins_once_and_not_after_its_end(ended: bool) -> None:
    deadline = Deadline(100.0)
    hold = Hold(deadline, None)
    if ended:
        hold.end()
    hold.begin()
    hold.begin()
    assert deadline.held == (not ended)
    hold.end()
    hold.end()
    hold.begin()
    assert not deadline.held
    assert deadline.at is not None


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_a_call_fails_with_one_question_more_than_it_may_have(way: str, wire: Wire) -> None:
    model, inquisitive = Person(), Inquisitive(5, SAMPLING, PROMPT)
    options: dict[str, Any] = {"sampling": model, "max_questions_per_call": 4}
    with wire.connect(inquisitive.server, **options) as client:
        with pytest.raises(LimitExceeded, match="max_questions_per_call") as caught:
            through(client, way)
        error = caught.value
        assert (error.delivery, error.method) == ("unknown", "tools/call")
        assert (error.server, len(model.contexts)) == (client.server.name, 4)
        assert client.list_tools().tools
        if wire.revision == OLD and wire.transport in ("memory", "stdio"):
            # Over HTTP, the cancellation of the call may arrive before the refusal.
            assert inquisitive.refused.wait(PATIENCE)
            assert inquisitive.refusal == "too many questions for one call"


def test_the_questions_of_a_round_count_each() -> None:
    server = Server("inquisitive")

    @server.tool()
    def x(context: ToolContext, count: int) -> str:
        context.ask_all({str(number): (SAMPLING, PROMPT) for number in range(count)})
        return "content"

    options: dict[str, Any] = {"max_questions_per_call": 4, "mode": NEW}
    with syncmcp.connect(server, sampling=model, **options) as client:
        for _ in range(2):  # the limit is per call
            assert client.call_tool("x", {"count": 4}).text == "content"
        with pytest.raises(LimitExceeded, match="max_questions_per_call"):
            client.call_tool("x", {"count": 5})


def test_a_question_of_no_call_is_counted_for_none() -> None:
    server, gate = asking_server(), threading.Event()

    @server.tool()
    def wait() -> str:
        """Keep a second call in flight, so that the client cannot assign a question to a call."""
        assert gate.wait(PATIENCE)
        return "waited"

    options: dict[str, Any] = {"max_questions_per_call": 1, "mode": OLD, "sampling": model}
    with syncmcp.connect(server, **options) as client:
        other = client.call_tool.future("wait")
        for _ in range(3):
            assert "double" in client.call_tool("ask", ASK).text
        gate.set()
        assert other.result(PATIENCE).text == "waited"
