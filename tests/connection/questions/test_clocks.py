"""Whose time passes while a server asks: for what the clocks of a call stand still, and how long.

And how many questions a server may ask because of one call.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import HandlerContext, LimitExceeded, RequestTimeout
from syncmcp._concurrency.timing import Deadline, Hold
from syncmcp.approval import Approval, Decision, Rule, Rules
from syncmcp.testing import RpcError, Server, ToolContext
from tests.connection.questions.asking import (
    CLOCKS,
    KNOWING,
    PROMPT,
    ROOTS,
    SAMPLING,
    Slow,
    asking_server,
    model,
    through,
)
from tests.support.intercepting import Seen
from tests.support.people import Held, Person, reply
from tests.support.scripts import NEW, OLD
from tests.support.stage import PATIENCE, Clock, Wire, rotated_ways, tick

ASK = {"method": SAMPLING, "params": PROMPT}


class Inquisitive:
    """A server whose tool ``x`` asks a question several times, one after the other.

    Attributes:
        server: The server.
        refusal: The text of the error that it got instead of an answer (until 2025-11-25).
        refused: Set once it has got one.
    """

    def __init__(self, times: int, method: str, params: dict[str, Any] | None = None) -> None:
        self.server = Server("inquisitive")
        self.refusal: str | None = None
        self.refused = threading.Event()

        @self.server.tool()
        def x(context: ToolContext) -> str:
            for number in range(times):
                try:
                    context.ask_all({str(number): (method, params or {})}, timeout=PATIENCE)
                except RpcError as error:
                    self.refusal = error.message
                    self.refused.set()
                    raise
            return "content"


@pytest.fixture
def slow_roots(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each look at a root takes 20 s."""
    clock, looking, over = Clock(monkeypatch, *CLOCKS), threading.Lock(), threading.Event()

    def status(path: Path) -> str:
        with looking:
            if not over.is_set():
                clock.advance(20.0)
                tick()
        return "ok"

    monkeypatch.setattr("syncmcp.handlers.roots._status", status)
    yield
    with looking:  # a look that goes on needs the clock until its end
        over.set()


@rotated_ways
@pytest.mark.requirement("TMO-01")
def test_no_clock_stands_still_for_what_the_library_answers_itself(
    way: str, wire: Wire, slow_roots: None, tmp_path: Path
) -> None:
    server = Inquisitive(9, ROOTS).server
    with (
        wire.connect(server, roots=[tmp_path], timeout=70.0, idle_timeout=None) as client,
        pytest.raises(RequestTimeout) as caught,
    ):
        through(client, way)
    assert (caught.value.kind, caught.value.seconds) == ("total", 70.0)


RULES = {"approval": Approval(Rules([Rule(kind="roots", decision=Decision.ALLOW)]))}
LISTING: dict[str, Any] = {"roots": lambda _: ["/"]}


@pytest.mark.parametrize(
    ("mode", "options"),
    [(OLD, RULES), (NEW, RULES), (OLD, {"interceptors": [Seen()]}), (OLD, LISTING), (NEW, LISTING)],
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
def test_the_clock_runs_while_a_question_waits_for_a_free_handler(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        # The server says nothing because it waits for this client, which is no idleness.
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
def test_silence_counts_again_once_the_time_for_questions_is_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
    assert (error.kind, error.seconds) == ("idle", 20.0)
    assert len(slow.contexts) == 3


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
    model = Person()
    inquisitive = Inquisitive(5, SAMPLING, PROMPT)
    options: dict[str, Any] = {"sampling": model, "max_questions_per_call": 4}
    with wire.connect(inquisitive.server, **options) as client:
        with pytest.raises(LimitExceeded, match="max_questions_per_call") as caught:
            through(client, way)
        assert (caught.value.delivery, caught.value.method) == ("unknown", "tools/call")
        assert caught.value.server == client.server.name
        assert len(model.contexts) == 4
        assert client.list_tools().tools
        if wire.revision == OLD and wire.transport in ("memory", "stdio"):
            # Over HTTP the notice that the call was given up may arrive before the refusal.
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
        for _ in range(2):  # each call has as many
            assert client.call_tool("x", {"count": 4}).text == "content"
        with pytest.raises(LimitExceeded, match="max_questions_per_call"):
            client.call_tool("x", {"count": 5})


def test_a_question_of_no_call_is_counted_for_none() -> None:
    server, gate = asking_server(), threading.Event()

    @server.tool()
    def wait() -> str:
        """Keep a second call in flight, so that a question belongs to neither."""
        assert gate.wait(PATIENCE)
        return "waited"

    options: dict[str, Any] = {"max_questions_per_call": 1, "mode": OLD, "sampling": model}
    with syncmcp.connect(server, **options) as client:
        other = client.call_tool.future("wait")
        for _ in range(3):
            assert "double" in client.call_tool("ask", ASK).text
        gate.set()
        assert other.result(PATIENCE).text == "waited"
