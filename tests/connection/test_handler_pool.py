"""The handler threads of a client: their limit, waiting handlers, and stuck handlers.

For the pool itself, see `test_slots.py`; for many clients, see `stress/test_nested.py`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Denied, HandlerContext, Refused
from syncmcp._concurrency import pool
from syncmcp.approval import Approval, Question, Verdict
from syncmcp.testing import Server, ToolContext
from syncmcp.testing.server.wire import RpcError
from syncmcp.types import CallToolResult, CreateMessageResult
from tests.support.people import Person, reply
from tests.support.programs import running
from tests.support.shops import known
from tests.support.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Clock,
    Wire,
    rotated,
    rotated_stateful,
    rotated_stateless,
    rotated_with,
)

INTERNAL_ERROR = -32603


def curious() -> Server:
    """Return a server whose tools ask the client's model."""
    server = Server("curious")

    @server.tool()
    def ask(context: ToolContext, text: str) -> str:
        """Return the model's answer, or the error."""
        try:
            return str(context.sample(text, max_tokens=10)["content"]["text"])
        except RpcError as error:
            return f"{error.code} {error.message}"

    @server.tool()
    def echo(text: str) -> str:
        return text

    return server


def asked(client: syncmcp.Client, text: str) -> syncmcp.RequestFuture[CallToolResult]:
    return client.call_tool.future("ask", {"text": text})


@pytest.mark.pitfall("13")
@rotated
def test_more_questions_than_threads_are_all_answered_and_never_by_more_threads(wire: Wire) -> None:
    both_are_here = threading.Barrier(2)
    # Guards `inside` and `most`.
    lock = threading.Lock()
    inside = most = 0

    def answer(request: Any, context: HandlerContext) -> CreateMessageResult:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        both_are_here.wait(PATIENCE)
        with lock:
            inside -= 1
        return reply(f"heard {request.messages[0].text}")

    with wire.connect(curious(), sampling=answer, max_handlers=2) as client:
        futures = {str(number): asked(client, str(number)) for number in range(12)}
        for text, future in futures.items():
            assert future.result(PATIENCE).text == f"heard {text}"
    assert most == 2


@pytest.mark.pitfall("13")
@rotated_with("kind", ["blocking", "future"])
def test_questions_may_nest_five_deep_on_one_thread_of_the_pool(wire: Wire, kind: str) -> None:
    def dig(request: Any, context: HandlerContext) -> CreateMessageResult:
        depth = int(request.messages[0].text)
        if depth == 0:
            return reply("the bottom")
        call_tool = context.client.call_tool
        call = call_tool if kind == "blocking" else lambda *asked: call_tool.future(*asked).result()
        return reply(f"{depth}, {call('ask', {'text': str(depth - 1)}).text}")

    with wire.connect(curious(), sampling=dig, max_handlers=1, timeout=PATIENCE) as client:
        assert client.call_tool("ask", {"text": "5"}).text == "5, 4, 3, 2, 1, the bottom"
        assert asked(client, "5").result(PATIENCE).text == "5, 4, 3, 2, 1, the bottom"


@rotated_with("kind", ["blocking", "future"])
def test_a_self_asking_handler_ends(wire: Wire, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_WAITING_HANDLERS", 5)
    ends: list[Exception] = []

    def dig(request: Any, context: HandlerContext) -> CreateMessageResult:
        call_tool = context.client.call_tool
        future = call_tool.future("ask", {"text": "again"}) if kind == "future" else None
        try:
            if future is None:
                call_tool("ask", {"text": "again"})
            else:
                future.result()
        except syncmcp.LimitExceeded as error:
            ends.append(error)
            assert future is None or future.done()  # otherwise the call would still be running
            return reply("deep enough")
        return reply("and up")

    with wire.connect(curious(), sampling=dig, timeout=PATIENCE) as client:
        assert client.call_tool("ask", {"text": "begin"}).text == "and up"
    # Cancelling a future may have allowed one more question.
    assert {str(error)[:33] for error in ends} == {"5 handlers of this client wait in"}


@pytest.mark.pitfall("13")
@rotated
def test_calls_of_handlers_do_not_stand_in_line_behind_those_that_wait_for_them(wire: Wire) -> None:
    server = curious()
    held, freed, called = threading.Semaphore(0), threading.Event(), threading.Event()

    @server.tool()
    def hold() -> str:
        held.release()
        assert freed.wait(PATIENCE)
        return "held"

    @server.tool()
    def last() -> str:
        called.set()
        return "at last"

    arrived, go, all_are_back = threading.Semaphore(0), threading.Event(), threading.Barrier(4)
    early: list[str] = []

    def answer(request: Any, context: HandlerContext) -> CreateMessageResult:
        call_tool, text = context.client.call_tool, request.messages[0].text
        arrived.release()
        assert go.wait(PATIENCE)
        future = call_tool.future("echo", {"text": f"future {text}"})
        got = [call_tool("echo", {"text": f"call {text}"}).text, future.result(PATIENCE).text]
        all_are_back.wait(PATIENCE)
        if called.is_set():
            early.append(text)
        # All handlers check `called` before the first of them makes room for another call.
        all_are_back.wait(PATIENCE)
        freed.set()
        return reply(", ".join(map(str, got)))

    options: dict[str, Any] = {"max_in_flight": 4, "max_handlers": 4, "timeout": 3 * PATIENCE}
    with wire.connect(server, sampling=answer, **options) as client:
        try:
            futures = {str(number): asked(client, str(number)) for number in range(4)}
            assert all(arrived.acquire(timeout=PATIENCE) for _ in futures)
            in_line = [client.call_tool.future(name) for name in ("hold",) * 4 + ("last",)]
            if wire.revision == STATELESS:
                # A call is not in flight while its question is answered, so these calls are sent.
                assert all(held.acquire(timeout=PATIENCE) for _ in range(4))
            go.set()
            for text, future in futures.items():
                assert future.result(3 * PATIENCE).text == f"call {text}, future {text}"
        finally:
            freed.set()
        texts = [future.result(PATIENCE).text for future in in_line]
        assert texts == ["held"] * 4 + ["at last"]
    assert early == []


@rotated
def test_a_question_that_no_person_decides_in_time_is_denied(wire: Wire) -> None:
    decide = threading.Event()

    class Absent:
        def review(self, question: Question) -> Verdict:
            assert decide.wait(PATIENCE)
            return Verdict.allow()

    approval = Approval(reviewer=Absent())
    options: dict[str, Any] = {"approval": approval, "human_timeout": 0.1}
    with wire.connect(curious(), sampling=lambda *_: reply("never"), **options) as client:
        try:
            waiting = asked(client, "anybody?")
            if wire.revision == STATEFUL:  # the tool gets an error and returns it
                assert waiting.result(PATIENCE).text == "-1 nobody answered in time"
            else:
                with pytest.raises(Denied, match="nobody answered in time") as raised:
                    waiting.result(PATIENCE)
                assert (raised.value.by, raised.value.kind) == ("timeout", "sampling")
        finally:
            decide.set()


@rotated
def test_roots_that_no_person_decides_on_in_time_are_an_empty_list(
    wire: Wire, tmp_path: Path
) -> None:
    decide, server = threading.Event(), Server("curious")

    @server.tool()
    def count(context: ToolContext) -> int:
        return len(context.list_roots())

    class Absent:
        def review(self, question: Question) -> Verdict:
            assert decide.wait(PATIENCE)
            return Verdict.allow()

    options: dict[str, Any] = {"approval": Approval(reviewer=Absent()), "human_timeout": 0.1}
    with wire.connect(server, roots=[tmp_path], **options) as client:
        try:
            assert client.call_tool("count").text == "0"
        finally:
            decide.set()


@rotated
def test_a_handler_that_is_stuck_in_a_call_of_its_own_is_left_alone_too(wire: Wire) -> None:
    free = threading.Event()
    entered = threading.Event()
    server = curious()

    @server.tool()
    def hold() -> str:
        entered.set()
        assert free.wait(PATIENCE)
        return "free"

    def answer(request: Any, context: HandlerContext) -> CreateMessageResult:
        if request.messages[0].text == "stuck":
            context.client.call_tool("hold")
        return reply("here")

    options: dict[str, Any] = {"max_handlers": 1, "human_timeout": 0.2}
    with wire.connect(server, sampling=answer, **options) as client:
        stuck = asked(client, "stuck")
        try:
            assert entered.wait(PATIENCE)
            if wire.revision == STATEFUL:  # the tool gets an error and returns it
                assert stuck.result(PATIENCE).text == "-1 nobody answered in time"
            else:
                with pytest.raises(Refused, match="nobody answered in time"):
                    stuck.result(PATIENCE)
            assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
        finally:
            free.set()
        # Its slot was already replaced: the end of the handler must not free a second one.
        for _ in range(3):
            assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
        pool = client._core.pools.handlers
        known(lambda: pool._threads == len(pool._idle))


@rotated_stateful
def test_questions_beyond_max_questions_are_refused_and_those_in_line_are_not_lost(
    wire: Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, "syncmcp._concurrency.limited_log", stands=True)
    free = threading.Event()
    entered = threading.Semaphore(0)

    def answer(request: Any, context: HandlerContext) -> CreateMessageResult:
        entered.release()
        assert free.wait(PATIENCE)
        return reply(f"heard {request.messages[0].text}")

    options: dict[str, Any] = {"max_handlers": 2, "max_questions": 3}
    with wire.connect(curious(), sampling=answer, **options) as client:
        pool, answered = client._core.pools.handlers, list[Any]()
        try:
            for number in range(5):
                answered.append(asked(client, str(number)))
                if number < 2:
                    assert entered.acquire(timeout=PATIENCE)
                else:
                    known(lambda count=number - 1: pool.waiting == count)  # type: ignore[misc]
            surplus = [asked(client, "one too many") for _ in range(4)]
            refused = f"{INTERNAL_ERROR} too many requests"
            assert [each.result(PATIENCE).text for each in surplus] == [refused] * 4
            assert pool.waiting == 3
        finally:
            free.set()
        texts = [future.result(PATIENCE).text for future in answered]
        assert texts == [f"heard {number}" for number in range(5)]
        assert client.call_tool("ask", {"text": "again"}).text == "heard again"
    # Four were refused: the log reports one of them, names the option, and later counts the rest.
    told = [text for text in caplog.messages if "max_questions" in text]
    assert ["and 2 more" in text for text in told] == [False, True]


@rotated_stateless
def test_questions_that_come_with_a_result_are_bounded_by_our_own_calls_alone(wire: Wire) -> None:
    options: dict[str, Any] = {"max_handlers": 1, "max_questions": 1, "sampling": Person()}
    with wire.connect(curious(), **options) as client:
        for future in [asked(client, "?") for _ in range(20)]:
            assert future.result(PATIENCE).text == "hello"


# "in calls": two handlers wait in a call, the third forever. "for ever": all wait forever.
STUCK = """
reached, number = threading.Semaphore(0), iter(range(4))

def stuck(request, context):
    reached.release()
    {stuck}
    threading.Event().wait()

server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
client = syncmcp.connect(server, mode={mode!r}, sampling=stuck, **{options!r})
for _ in range({calls}):
    client.call_tool.future("request_llm_help", dict(question="who?"))
for _ in range({calls}):
    reached.acquire()
say("reached")
"""
IN_A_CALL = "next(number) < 2 and context.client.call_tool('sleep', dict(seconds=600))"


@pytest.mark.pitfall("H7")
@pytest.mark.parametrize(
    ("mode", "calls", "stuck", "options"),
    [
        (STATEFUL, 3, IN_A_CALL, {"max_handlers": 1}),
        (STATELESS, 4, "", {"max_handlers": 2, "human_timeout": 0.1}),
    ],
    ids=["in calls", "for ever"],
)
def test_the_interpreter_exits_at_once_though_handlers_never_return(
    mode: str, calls: int, stuck: str, options: dict[str, Any]
) -> None:
    code = STUCK.format(mode=mode, calls=calls, stuck=stuck, options=options)
    with running(code) as program:
        assert program.line() == "reached"
        status, out, err = program.end()
    assert (status, out) == (0, "")
    assert "Traceback" not in err
