"""Diagnosis of a client: dumps, the wire log, metrics and spans."""

from __future__ import annotations

import json
import logging
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import syncmcp
from syncmcp import Client, Http, Stdio, UsageError
from syncmcp._connection import wire_log
from syncmcp.observe.diagnosis import Dump
from syncmcp.observe.metrics import Measured
from syncmcp.observe.tracing import Spans
from syncmcp.testing import Cut, FaultProxy, Server, ToolContext, serve_http
from tests.support import programs
from tests.support.stage import PATIENCE, STATEFUL, Stage, Wire, rotated

CANARY = "canary-5f3a9c"


def dumped(client: Client) -> dict[str, Any]:
    """Return the facts of a dump, through JSON; check that it has a text."""
    dump = client.dump()
    assert isinstance(dump, Dump)
    assert str(dump)
    facts: dict[str, Any] = json.loads(json.dumps(dump.facts))
    return facts


@rotated
def test_a_dump_shows_the_calls_in_flight_and_who_waits_for_them(wire: Wire) -> None:
    stage = Stage()
    with wire.connect(stage.server) as client:
        future = client.call_tool.future("hold", {"key": "future"}, timeout=PATIENCE)
        hold = partial(client.call_tool, "hold", {"key": "thread"})
        caller = threading.Thread(target=hold, name="the caller")
        caller.start()
        stage.inside("future", "thread")
        facts, text = dumped(client), str(client.dump())
        stage.gate.set()
        future.result(PATIENCE)
        caller.join(PATIENCE)
        assert dumped(client)["calls"] == []
    calls = facts["calls"]
    shown = [(call["method"], call["name"], call["state"]) for call in calls]
    assert shown == [("tools/call", "hold", "sent")] * 2
    assert min(call["age"] for call in calls) >= 0
    assert min(call["left"] for call in calls) <= PATIENCE
    (ours,) = [thread for thread in facts["threads"] if thread["name"] == "the caller"]
    assert ours["waits_for"] in {f"the answer to {call['id']} tools/call" for call in calls}
    assert any("connection.py" in call or "_http" in call for call in ours["calls"])
    assert "the caller, waits for the answer to" in text
    assert facts["client"]["revision"] == wire.revision


def test_a_dump_in_a_signal_handler_shows_the_call_that_it_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage, dumps = Stage(), []

    def handle(*_: object) -> None:
        dumps.append(dumped(client))
        stage.gate.set()

    earlier = signal.signal(signal.SIGUSR1, handle)
    try:
        with syncmcp.connect(stage.server) as client:

            def interrupt() -> None:
                stage.inside("main")
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

            threading.Thread(target=interrupt).start()
            client.call_tool("hold", {"key": "main"}, timeout=PATIENCE)
            (facts,) = dumps
            (main,) = [each for each in facts["threads"] if each["name"] == "MainThread"]
            assert main["waits_for"] == f"the answer to {facts['calls'][0]['id']} tools/call"
            assert "handle" in main["calls"][-2]
            # Outside of a call, the thread that makes a dump runs no code of the library.
            assert "MainThread" not in {each["name"] for each in dumped(client)["threads"]}
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_a_dump_says_what_waits_for_its_turn() -> None:
    stage = Stage()
    with syncmcp.connect(stage.server, max_in_flight=1) as client:
        first = client.call_tool.future("hold", {"key": "a"})
        stage.inside("a")
        second = client.call_tool.future("hold", {"key": "b"}, timeout=None, idle_timeout=None)
        facts = dumped(client)
        stage.gate.set()
        assert first.result(PATIENCE).text + second.result(PATIENCE).text == "ab"
    assert [call["state"] for call in facts["calls"]] == ["sent", "queued"]
    assert facts["calls"][1]["left"] is None
    assert facts["queues"]["calls"] == 1


def test_a_dump_shows_the_questions_of_the_server() -> None:
    stage, asked, gate = Stage(), threading.Event(), threading.Event()

    @stage.server.tool()
    def ask(context: ToolContext) -> str:
        return str(context.request("acme/question"))

    def answer(params: dict[str, Any], context: Any) -> dict[str, Any]:
        asked.set()
        assert gate.wait(PATIENCE)
        return {"answer": 42}

    client = Client(stage.server, mode=STATEFUL)
    client.on_request("acme/question", answer)
    with client:
        future = client.call_tool.future("ask")
        assert asked.wait(PATIENCE)
        (question,) = dumped(client)["questions"]
        gate.set()
        assert "42" in future.result(PATIENCE).text
        assert (question["method"], question["state"]) == ("acme/question", "is with its handler")
        assert question["left"] > 0


def test_a_dump_works_in_every_state_and_outlives_the_connection() -> None:
    client = Client(programs.server(), mode="legacy", timeout=PATIENCE)
    assert dumped(client)["client"]["state"] == "closed"
    with client:
        assert dumped(client)["client"]["state"] == "open"
        with pytest.raises(syncmcp.ConnectionLost):
            client.call_tool("die")
        facts = dumped(client)
        assert facts["client"]["state"] == "lost"
        assert "exit code 3" in facts["client"]["lost"]
        assert "the disk is full" in facts["server"]["stderr"]
        assert '"die"' in facts["frames"][-1]["text"]
    facts = dumped(client)
    assert facts["client"]["state"] == "closed"
    assert '"die"' in facts["frames"][-1]["text"]
    assert dumped(Client(programs.server(), lazy=True))["client"]["state"] == "not open"


def test_threads_of_other_clients_are_left_out() -> None:
    server = Stage().server
    with syncmcp.connect(server, name="one") as one, syncmcp.connect(server, name="two"):
        names = str([thread["name"] for thread in dumped(one)["threads"]])
    assert "[one]" in names
    assert "[two]" not in names


def test_neither_a_dump_nor_the_log_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "syncmcp.wire")
    with (
        serve_http(Stage().server) as http,
        syncmcp.connect(Http(http.url, headers={"X-Key": CANARY})) as client,
    ):
        client.call_tool("echo", {"text": f"said with {CANARY}"})
        client.call_tool("echo", {"text": "x", "api_key": "another-canary-77"})
        dump = client.dump()
    texts = str(dump) + json.dumps(dump.facts) + caplog.text
    assert texts.count("said with ***") > 2
    assert CANARY not in texts
    assert "another-canary" not in texts


@rotated
def test_the_log_has_every_message_once_and_without_debug_none(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    with wire.connect(Stage().server) as client:
        caplog.set_level(logging.INFO, "syncmcp.wire")
        client.call_tool("echo", {"text": "hear me"})
        assert "syncmcp.wire" not in [record.name for record in caplog.records]
        caplog.set_level(logging.DEBUG, "syncmcp.wire")
        client.call_tool("echo", {"text": "hear me"})
        lines = [record.getMessage() for record in caplog.records if "hear me" in record.message]
    assert [("->" in line, "<-" in line) for line in lines] == [(True, False), (False, True)]


class Numbers:
    """Records the metrics that it gets."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, float, str | None]] = []
        self.frames: list[tuple[str, str, int]] = []
        self.repetitions: list[tuple[str, str]] = []

    def request(self, server: str, method: str, seconds: float, error: str | None) -> None:
        self.requests.append((server, method, seconds, error))

    def frame(self, server: str, direction: str, size: int) -> None:
        self.frames.append((server, direction, size))

    def repetition(self, server: str, method: str) -> None:
        self.repetitions.append((server, method))


@rotated
def test_requests_and_bytes_are_counted(wire: Wire) -> None:
    numbers = Numbers()
    with wire.connect(Stage().server, interceptors=[Measured(numbers)], name="mine") as client:
        numbers.frames.clear()
        numbers.requests.clear()
        client.call_tool("echo", {"text": "x" * 3000})
        with pytest.raises(syncmcp.ServerError):
            client.call_tool("nothing of the kind")
    assert [(server, method, error) for server, method, _, error in numbers.requests] == [
        ("mine", "tools/call", None),
        ("mine", "tools/call", "InvalidParams"),
    ]
    assert all(seconds > 0 for _, _, seconds, _ in numbers.requests)
    long = [direction for _, direction, size in numbers.frames if size > 3000]
    assert long == ["sent", "received"]


def test_repetitions_are_counted() -> None:
    numbers = Numbers()
    with serve_http(Stage().server) as http, FaultProxy(http.url) as proxy:
        retry = syncmcp.Retry(pause=0.01)
        options: Any = {"interceptors": [Measured(numbers)], "retry": retry, "name": "mine"}
        with syncmcp.connect(proxy.url, **options) as client:
            proxy.queue(Cut("sent"), method="tools/list")
            client.list_tools()
    assert numbers.repetitions == [("mine", "tools/list")]
    lists = [error for _, method, _, error in numbers.requests if method == "tools/list"]
    assert lists == ["ConnectionLost", None]


def test_broken_metrics_harm_no_call(caplog: pytest.LogCaptureFixture) -> None:
    broken = Mock(**dict.fromkeys(("request.side_effect", "frame.side_effect"), ZeroDivisionError))
    with syncmcp.connect(Stage().server, interceptors=[Measured(broken)]) as client:
        assert client.call_tool("echo", {"text": "x"}).text == "x"
    assert "the metrics of stage were not taken" in caplog.text


@pytest.mark.parametrize("metrics", [None, object()])
def test_metrics_that_cannot_be_told_are_refused(metrics: Any) -> None:
    with pytest.raises(UsageError, match=r"\.request must be callable"):
        Measured(metrics)


class Recorder:
    """A tracer provider that records its spans."""

    def __init__(self) -> None:
        self._spans = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._spans))

    def of(self, method: str) -> list[tuple[ReadableSpan, dict[str, Any]]]:
        """Return the spans of this method, each with its attributes."""
        spans = [(span, dict(span.attributes or {})) for span in self._spans.get_finished_spans()]
        return [(span, facts) for span, facts in spans if facts.get("mcp.method.name") == method]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.provider.shutdown()


def tracing() -> Server:
    """Return a server with a tool that returns the span of its call, and a tool that fails."""
    server = Stage().server

    @server.tool()
    def whose(context: ToolContext) -> str:
        return str(context.meta.get("traceparent"))

    @server.tool()
    def fail() -> str:
        raise ValueError("no luck")

    return server


@rotated
def test_a_request_is_a_span_under_that_of_the_program(wire: Wire, recorder: Recorder) -> None:
    tracer = recorder.provider.get_tracer("test")
    with (
        wire.connect(tracing(), interceptors=[Spans(recorder.provider)]) as client,
        tracer.start_as_current_span("mine") as mine,
    ):
        future = client.call_tool.future("whose")
        texts = [future.result(PATIENCE).text, client.call_tool("whose").text]
    for text, (span, facts) in zip(texts, recorder.of("tools/call"), strict=True):
        assert span.name == "tools/call whose"
        assert span.kind is trace.SpanKind.CLIENT
        assert span.parent is not None
        assert span.parent.span_id == mine.get_span_context().span_id
        assert facts["gen_ai.tool.name"] == "whose"
        assert facts["gen_ai.operation.name"] == "execute_tool"
        assert int(facts["jsonrpc.request.id"]) > 0
        assert "mcp.session.id" not in facts
        assert span.context is not None
        ids = [f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}"]
        assert text.split("-")[1:3] == ids


def test_what_went_wrong_is_in_the_span(recorder: Recorder) -> None:
    with syncmcp.connect(tracing(), interceptors=[Spans(recorder.provider)]) as client:
        client.call_tool("fail")
        with pytest.raises(syncmcp.InvalidParams):
            client.call_tool("unknown")
        with pytest.raises(syncmcp.RequestTimeout):
            client.call_tool("hold", timeout=0.05)
        client.call_tool("echo", {"text": "fine"})
    seen = [
        (*map(facts.get, ("error.type", "rpc.response.status_code")), span.status.status_code.name)
        for span, facts in recorder.of("tools/call")
    ]
    assert seen == [
        ("tool_error", None, "ERROR"),
        ("InvalidParams", "-32602", "ERROR"),
        ("RequestTimeout", None, "ERROR"),
        (None, None, "UNSET"),
    ]


def test_a_session_is_named_only_if_the_program_says_so(recorder: Recorder) -> None:
    with serve_http(Stage().server) as http:
        spans = Spans(recorder.provider, session_id=lambda: client.session_id)
        client = Client(http.url, mode=STATEFUL, interceptors=[spans])
        with client:
            session = client.session_id
            client.list_tools()
    ((_, facts),) = recorder.of("tools/list")
    assert session is not None
    assert facts["mcp.session.id"] == session


def test_without_a_provider_nothing_is_added_to_a_request() -> None:
    with syncmcp.connect(tracing(), interceptors=[Spans(trace.NoOpTracerProvider())]) as client:
        assert client.call_tool("whose").text == "None"


def test_without_opentelemetry_spans_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("syncmcp.observe.tracing.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"syncmcp-client\[opentelemetry\]"):
        Spans()


# -- the frames in a dump: only the newest, and the beginning of each
def test_only_the_newest_frames_are_kept_and_of_each_its_beginning() -> None:
    with syncmcp.connect(Stage().server) as client:
        for _ in range(wire_log.FRAMES):
            client.call_tool("echo", {"text": "x" * 5000})
        frames = dumped(client)["frames"]
    assert len(frames) == wire_log.FRAMES
    assert all(len(frame["text"]) < 2 * wire_log.KEPT_BYTES for frame in frames)
    assert all(frame["bytes"] > 5000 for frame in frames)
    assert frames[-1]["text"].endswith("bytes more")
    assert [frame["direction"] for frame in frames[-2:]] == ["sent", "received"]


def test_a_frame_that_is_kept_in_part_shows_no_part_of_a_secret() -> None:
    secret = "environment-secret-0123456789"
    log = wire_log.WireLog("it", Stdio("server", env={"WHAT": secret}), ())
    log.record("received", b"x" * (wire_log.KEPT_BYTES - 12) + secret.encode())
    shown = log.facts(0.0)[-1]["text"]
    assert "xxx*** ... " in shown
    assert secret[:4] not in shown
