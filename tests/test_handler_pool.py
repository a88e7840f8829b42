"""The threads on which handlers answer: few, lent while a handler waits, and never stuck for good.

See `tests/stress/test_nested.py` for the crowd.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

import syncmcp
from syncmcp import HandlerContext, Refused
from syncmcp._threads import Deadline
from syncmcp._workers import Seat, Workers, lending, seat_of_this_thread
from syncmcp.testing import Server, ToolContext
from syncmcp.testing.wire import RpcError
from syncmcp.types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    TextContent,
)
from tests.programs import running
from tests.stage import (
    PATIENCE,
    STATEFUL,
    STATELESS,
    Wire,
    every_wire,
    in_threads,
    nervous,
    stateful_wires,
)

INTERNAL_ERROR = -32603


def until(look: Callable[[], object]) -> None:
    """Look again and again until it is so."""
    deadline = Deadline(PATIENCE)
    while not look():
        assert not deadline.expired, "it did not come"
        threading.Event().wait(0)


def heard(request: CreateMessageRequestParams) -> str:
    content = request.messages[0].content
    assert isinstance(content, TextContent)
    return content.text


def said(text: str | None) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(text=text or ""), model="none")


def curious() -> Server:
    """A server whose tools ask the client's model."""
    server = Server("curious")

    @server.tool()
    def ask(context: ToolContext, text: str) -> str:
        """Say what the model said, or the code of the error that came instead."""
        try:
            return str(context.sample(text, max_tokens=10)["content"]["text"])
        except RpcError as error:
            return str(error.code)

    @server.tool()
    def echo(text: str) -> str:
        """Say `text`."""
        return text

    return server


def asked(client: syncmcp.Client, text: str) -> syncmcp.RequestFuture[CallToolResult]:
    return client.call_tool.future("ask", {"text": text})


# -- more questions than threads -------------------------------------------------------------------


@every_wire
def test_more_questions_than_threads_are_all_answered_and_never_by_more_threads(
    wire: Wire,
) -> None:
    both_are_here = threading.Barrier(2)
    # Guards the counters.
    lock = threading.Lock()
    inside = most = 0

    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        both_are_here.wait(PATIENCE)
        with lock:
            inside -= 1
        return said(f"heard {heard(request)}")

    with wire.connect(curious(), sampling=answer, max_handlers=2) as client:
        futures = {str(number): asked(client, str(number)) for number in range(12)}
        for text, future in futures.items():
            assert future.result(PATIENCE).text == f"heard {text}"
    assert most == 2


@every_wire
@pytest.mark.parametrize("kind", ["blocking", "future"])
def test_questions_may_nest_five_deep_on_one_thread_of_the_pool(wire: Wire, kind: str) -> None:
    def dig(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        depth = int(heard(request))
        if depth == 0:
            return said("the bottom")
        arguments = {"text": str(depth - 1)}
        if kind == "blocking":
            result = context.client.call_tool("ask", arguments)
        else:
            result = context.client.call_tool.future("ask", arguments).result()
        return said(f"{depth}, {result.text}")

    with wire.connect(curious(), sampling=dig, max_handlers=1, timeout=PATIENCE) as client:
        assert client.call_tool("ask", {"text": "5"}).text == "5, 4, 3, 2, 1, the bottom"
        assert asked(client, "5").result(PATIENCE).text == "5, 4, 3, 2, 1, the bottom"


@every_wire
def test_calls_of_handlers_do_not_stand_in_line_behind_those_that_wait_for_them(
    wire: Wire,
) -> None:
    server = curious()
    held, freed, called = threading.Semaphore(0), threading.Event(), threading.Event()

    @server.tool()
    def hold() -> str:
        """Take a place among the calls in flight."""
        held.release()
        assert freed.wait(PATIENCE)
        return "held"

    @server.tool()
    def last() -> str:
        """Say that it was called."""
        called.set()
        return "at last"

    arrived, go, all_are_back = threading.Semaphore(0), threading.Event(), threading.Barrier(4)
    early: list[str] = []

    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        call_tool, text = context.client.call_tool, heard(request)
        arrived.release()
        assert go.wait(PATIENCE)
        future = call_tool.future("echo", {"text": f"future {text}"})
        got = [call_tool("echo", {"text": f"call {text}"}).text, future.result(PATIENCE).text]
        all_are_back.wait(PATIENCE)
        if called.is_set():
            early.append(text)
        # All have looked before the first of them makes room in the line.
        all_are_back.wait(PATIENCE)
        freed.set()
        return said(", ".join(map(str, got)))

    options: dict[str, Any] = {"max_in_flight": 4, "max_handlers": 4, "timeout": 3 * PATIENCE}
    with wire.connect(server, sampling=answer, **options) as client:
        try:
            futures = {str(number): asked(client, str(number)) for number in range(4)}
            assert all(arrived.acquire(timeout=PATIENCE) for _ in futures)
            in_line = [client.call_tool.future(name) for name in ("hold",) * 4 + ("last",)]
            if wire.revision == STATELESS:
                # A call that was answered with a question is not in flight: these are.
                assert all(held.acquire(timeout=PATIENCE) for _ in range(4))
            go.set()
            for text, future in futures.items():
                assert future.result(3 * PATIENCE).text == f"call {text}, future {text}"
        finally:
            freed.set()
        texts = [future.result(PATIENCE).text for future in in_line]
        assert texts == ["held"] * 4 + ["at last"]
    assert early == []


# -- handlers that do not behave -------------------------------------------------------------------


@every_wire
def test_a_handler_that_never_returns_keeps_nobody_else_waiting_once_its_time_is_over(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    free = threading.Event()
    tokens: SimpleQueue[syncmcp.CancelToken] = SimpleQueue()

    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        if heard(request) == "stuck":
            tokens.put(context.cancel)
            free.wait()
        return said("here")

    options: dict[str, Any] = {"max_handlers": 1, "human_timeout": 0.2}
    with wire.connect(curious(), sampling=answer, **options) as client:
        try:
            stuck = asked(client, "stuck")
            token = tokens.get(timeout=PATIENCE)
            for _ in range(3):
                assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
            if wire.revision == STATEFUL:
                assert stuck.result(PATIENCE).text == "-1"
            else:
                with pytest.raises(Refused, match="nobody answered in time"):
                    stuck.result(PATIENCE)
            assert token.wait(PATIENCE)
        finally:
            free.set()
    assert "(option human_timeout)" in caplog.text


@every_wire
def test_a_handler_that_is_stuck_in_a_call_of_its_own_is_left_alone_too(wire: Wire) -> None:
    free = threading.Event()
    entered = threading.Event()
    server = curious()

    @server.tool()
    def hold() -> str:
        """Wait until the test is over."""
        entered.set()
        assert free.wait(PATIENCE)
        return "free"

    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        if heard(request) == "stuck":
            context.client.call_tool("hold")
        return said("here")

    options: dict[str, Any] = {"max_handlers": 1, "human_timeout": 0.2}
    with wire.connect(server, sampling=answer, **options) as client:
        stuck = asked(client, "stuck")
        try:
            assert entered.wait(PATIENCE)
            assert stuck.exception(PATIENCE) is None or wire.revision == STATELESS
            assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
        finally:
            free.set()
        # Its seat is gone for good: it may not be counted twice.
        for _ in range(3):
            assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
        pool = client._pools.handlers
        until(lambda: pool._threads == pool._idle)


@every_wire
def test_sys_exit_in_a_handler_ends_the_answer_and_nothing_else(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        if heard(request) == "leave":
            sys.exit("for a secret reason")
        return said("here")

    with wire.connect(curious(), sampling=answer, max_handlers=1) as client:
        for _ in range(3):
            if wire.revision == STATEFUL:
                result = client.call_tool("ask", {"text": "leave"})
                assert result.text == str(INTERNAL_ERROR)
            else:
                with pytest.raises(Refused) as caught:
                    client.call_tool("ask", {"text": "leave"})
                assert caught.value.code == INTERNAL_ERROR
                assert "secret" not in str(caught.value)
            assert client.call_tool("ask", {"text": "who is there?"}).text == "here"
    assert "for a secret reason" in caplog.text


@stateful_wires
def test_questions_beyond_max_questions_are_refused_and_those_in_line_are_not_lost(
    wire: Wire,
) -> None:
    free = threading.Event()
    entered = threading.Semaphore(0)

    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        entered.release()
        assert free.wait(PATIENCE)
        return said(f"heard {heard(request)}")

    options: dict[str, Any] = {"max_handlers": 2, "max_questions": 3}
    with wire.connect(curious(), sampling=answer, **options) as client:
        pool = client._pools.handlers

        def stand_in_line(count: int) -> bool:
            return pool.waiting == count

        try:
            answered = {}
            for number in range(5):
                answered[number] = asked(client, str(number))
                if number < 2:
                    assert entered.acquire(timeout=PATIENCE)
                else:
                    until(partial(stand_in_line, number - 1))
            surplus = [asked(client, "one too many") for _ in range(4)]
            assert [each.result(PATIENCE).text for each in surplus] == [str(INTERNAL_ERROR)] * 4
            assert pool.waiting == 3
        finally:
            free.set()
        for number, future in answered.items():
            assert future.result(PATIENCE).text == f"heard {number}"
        assert client.call_tool("ask", {"text": "again"}).text == "heard again"


@pytest.mark.parametrize("transport", ["memory", "stdio", "http"])
def test_questions_that_come_with_a_result_are_bounded_by_our_own_calls_alone(
    transport: str,
) -> None:
    def answer(request: CreateMessageRequestParams, context: HandlerContext) -> CreateMessageResult:
        return said(f"heard {heard(request)}")

    options: dict[str, Any] = {"max_handlers": 1, "max_questions": 1}
    wire = Wire(transport, STATELESS)
    with wire.connect(curious(), sampling=answer, **options) as client:
        futures = {str(number): asked(client, str(number)) for number in range(20)}
        for text, future in futures.items():
            assert future.result(PATIENCE).text == f"heard {text}"


STUCK = """
reached = threading.Semaphore(0)

def stuck(request, context):
    reached.release()
    {stuck}

server = syncmcp.Stdio(sys.executable, "-m", "syncmcp.testing")
client = syncmcp.connect(server, mode={mode!r}, sampling=stuck, **{options!r})
calls = [
    client.call_tool.future("request_llm_help", dict(question="who?"))
    for _ in range({calls})
]
for _ in calls:
    reached.acquire()
say("reached")
"""

WAYS_TO_BE_STUCK: dict[str, dict[str, Any]] = {
    "for ever": {"stuck": "threading.Event().wait()", "options": {}, "calls": 1},
    "every thread": {
        "stuck": "threading.Event().wait()",
        "options": {"max_handlers": 2, "human_timeout": 0.1},
        "calls": 4,
    },
    "in a call": {
        "stuck": "context.client.call_tool('sleep', dict(seconds=600))",
        "options": {"max_handlers": 1},
        "calls": 3,
    },
}


@pytest.mark.parametrize("way", WAYS_TO_BE_STUCK)
@pytest.mark.parametrize("mode", [STATEFUL, STATELESS])
def test_the_interpreter_exits_at_once_though_handlers_never_return(mode: str, way: str) -> None:
    with running(STUCK.format(mode=mode, **WAYS_TO_BE_STUCK[way])) as program:
        assert program.line() == "reached"
        code, out, err = program.end()
    assert (code, out) == (0, "")
    assert "Traceback" not in err


# -- the pool alone --------------------------------------------------------------------------------


class Counting(Workers):
    """A pool whose counters can be looked at."""

    def __init__(self, limit: int) -> None:
        super().__init__("syncmcp-test", limit, lends=True)

    @property
    def running(self) -> int:
        """How many seats are taken, in one look."""
        with self._lock:
            assert 0 <= self._idle <= self._threads
            return self._threads - self._idle

    @property
    def threads(self) -> int:
        """How many threads are counted."""
        with self._lock:
            return self._threads


@pytest.fixture
def pool() -> Iterator[Counting]:
    workers = Counting(1)
    yield workers
    workers.close()


class Job:
    """A job that tells when it runs, does one thing at a time as it is told, and ends."""

    def __init__(self, pool: Workers, *, at_once: bool = False) -> None:
        self._orders: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._reports: SimpleQueue[object] = SimpleQueue()
        self._started = threading.Event()
        self.seat: Seat | None = None
        pool.submit(self._run, at_once=at_once)

    def _run(self) -> None:
        self.seat = seat_of_this_thread()
        self._started.set()
        while (order := self._orders.get(timeout=PATIENCE)) is not None:
            self._reports.put(order())

    @property
    def started(self) -> bool:
        return self._started.is_set()

    def wait_started(self) -> Seat:
        assert self._started.wait(PATIENCE)
        assert self.seat is not None
        return self.seat

    def do(self, order: Callable[[], object]) -> object:
        """Have something done on the job's thread, and wait until it is."""
        self._orders.put(order)
        return self._reports.get(timeout=PATIENCE)

    def end(self) -> None:
        self._orders.put(None)


def test_a_seat_that_is_lent_goes_to_the_next_in_line(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    seat = first.wait_started()
    assert pool.waiting == 2
    first.do(seat.lend)
    second.wait_started()
    assert (pool.running, pool.waiting) == (1, 1)
    # It goes on at once, however full it is.
    first.do(seat.take_back)
    assert (pool.running, pool.waiting) == (2, 1)
    first.end()
    until(lambda: pool.running == 1)
    assert not third.started
    second.end()
    third.wait_started()
    assert (pool.running, pool.waiting, pool.threads) == (1, 0, 1)
    third.end()


def test_a_seat_that_is_lent_twice_is_one_seat(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    seat = first.wait_started()
    first.do(seat.lend)
    first.do(seat.lend)
    second.wait_started()
    first.do(seat.take_back)
    assert (pool.running, pool.waiting) == (1, 1)
    first.do(seat.take_back)
    assert (pool.running, pool.waiting) == (2, 1)
    for job in (first, second, third):
        job.end()
    third.wait_started()


def test_a_seat_that_nobody_wants_may_be_lent_and_taken_back(pool: Counting) -> None:
    job = Job(pool)
    seat = job.wait_started()
    job.do(seat.lend)
    assert pool.running == 0
    job.do(seat.take_back)
    assert pool.running == 1
    job.end()
    until(lambda: pool.running == 0)
    assert pool.threads == 1


def test_a_seat_that_is_lent_serves_those_who_come_later(pool: Counting) -> None:
    first = Job(pool)
    seat = first.wait_started()
    first.do(seat.lend)
    second = Job(pool)
    second.wait_started()
    third = Job(pool)
    assert pool.waiting == 1
    for job in (second, third):
        job.end()
    third.wait_started()
    first.do(seat.take_back)
    first.end()


def test_a_job_that_is_abandoned_makes_room_and_its_thread_ends_with_it(pool: Counting) -> None:
    first, second = Job(pool), Job(pool)
    seat = first.wait_started()
    seat.abandon()
    second.wait_started()
    seat.abandon()
    assert (pool.running, pool.waiting) == (1, 0)
    # What it lends now is no seat of the pool's any more.
    first.do(seat.lend)
    first.do(seat.take_back)
    assert pool.running == 1
    second.end()
    until(lambda: pool.running == 0)
    first.end()
    assert pool.threads == 1


def test_a_job_that_is_abandoned_while_it_lends_takes_nothing_back(pool: Counting) -> None:
    first, second, third = Job(pool), Job(pool), Job(pool)
    seat = first.wait_started()
    first.do(seat.lend)
    second.wait_started()
    seat.abandon()
    first.do(seat.take_back)
    assert (pool.running, pool.waiting) == (1, 1)
    first.end()
    second.end()
    third.wait_started()
    third.end()
    until(lambda: pool.running == 0)


def test_a_job_that_is_over_can_be_abandoned_no_more(pool: Counting) -> None:
    first = Job(pool)
    seat = first.wait_started()
    first.end()
    until(lambda: pool.running == 0)
    second, third = Job(pool), Job(pool)
    assert second.wait_started() is not seat
    seat.abandon()
    assert (pool.running, pool.waiting) == (1, 1)
    for job in (second, third):
        job.end()
    third.wait_started()


def test_a_job_that_comes_at_once_does_not_stand_in_line(pool: Counting) -> None:
    first, second = Job(pool), Job(pool)
    urgent = Job(pool, at_once=True)
    urgent.wait_started()
    assert (pool.running, pool.waiting) == (2, 1)
    urgent.end()
    until(lambda: pool.running == 1)
    assert not second.started
    for job in (first, second):
        job.end()
    second.wait_started()


def test_lending_is_nothing_to_a_thread_of_no_pool() -> None:
    assert seat_of_this_thread() is None
    with lending():
        assert seat_of_this_thread() is None


def test_a_seat_is_taken_back_when_what_was_waited_for_fails(pool: Counting) -> None:
    def fail() -> int:
        try:
            with lending():
                assert pool.running == 0
                raise OSError("broken")
        except OSError:
            return pool.running

    job = Job(pool)
    job.wait_started()
    assert job.do(fail) == 1
    job.end()


def test_a_pool_that_is_closed_while_seats_are_lent_does_what_waits_and_ends() -> None:
    pool = Counting(1)
    first = Job(pool)
    seat = first.wait_started()
    first.do(seat.lend)
    second, third = Job(pool), Job(pool)
    second.wait_started()
    pool.close()
    first.do(seat.take_back)
    for job in (first, second, third):
        job.end()
    third.wait_started()
    until(lambda: pool.threads == 0)


# -- the pool in disorder --------------------------------------------------------------------------


class Disorder:
    """Jobs that lend, wait for others, fail and are abandoned, as the dice fall.

    Args:
        dice: Decides.
        limit: Of the pool.
        jobs: How many jobs are submitted from outside.
    """

    def __init__(self, dice: random.Random, limit: int, jobs: int) -> None:
        self.pool = Counting(limit)
        self._limit = limit
        self._dice = dice
        # Guards what follows.
        self._lock = threading.Lock()
        self._numbers = iter(range(10**9))
        self.submitted = 0
        self.ended: list[int] = []
        # Those that hold the seat they were given when they began.
        self._fresh: set[int] = set()
        self.wrong: list[str] = []
        self._seats: list[tuple[int, Seat, threading.Event]] = []
        # What each job does is settled beforehand: the dice are thrown by one thread.
        self._plans = [self._plan(2) for _ in range(jobs)]

    def _plan(self, depth: int) -> list[Any]:
        deeds = ["look", "lend", "lend twice", "stuck", "wait for another", "fail"]
        weights = (6, 4, 2, 1, 4 if depth else 0, 1)
        return [
            (deed, self._plan(depth - 1) if deed == "wait for another" else None)
            for deed in self._dice.choices(deeds, weights, k=self._dice.randrange(4))
        ]

    def run(self) -> None:
        """Submit everything from some threads, close the pool in the middle, see to the end."""
        parts = [self._plans[start::4] for start in range(4)]
        over = threading.Event()
        abandoning = threading.Thread(target=self._abandon, args=(over,), name="test-abandon")
        abandoning.start()
        try:
            outcomes = in_threads(*(partial(self._submit_all, part) for part in parts))
            assert outcomes == [None] * 4
            until(lambda: len(self.ended) == self.submitted)
        finally:
            over.set()
            abandoning.join(PATIENCE)
        assert not abandoning.is_alive()
        until(lambda: self.pool.threads == 0)
        assert self.pool.running == self.pool.waiting == 0
        assert sorted(self.ended) == list(range(self.submitted))
        assert self.wrong == []

    def _submit_all(self, plans: list[list[Any]]) -> None:
        for index, plan in enumerate(plans):
            self._submit(plan)
            if index == len(plans) // 2:
                self.pool.close()

    def _submit(self, plan: list[Any], *, at_once: bool = False) -> threading.Event:
        done = threading.Event()
        with self._lock:
            number = next(self._numbers)
            self.submitted += 1
        self.pool.submit(partial(self._job, number, plan, done, at_once), at_once=at_once)
        return done

    def _job(self, number: int, plan: list[Any], done: threading.Event, at_once: bool) -> None:
        seat = seat_of_this_thread()
        assert seat is not None
        abandoned = threading.Event()
        if not at_once:
            self._begin(number)
        try:
            if number % 3 == 0 or any(deed == "stuck" for deed, _ in plan):
                with self._lock:
                    self._seats.append((number, seat, abandoned))
            for deed, more in plan:
                self._do(number, deed, more, abandoned)
        finally:
            with self._lock:
                self._fresh.discard(number)
                self.ended.append(number)
            done.set()

    def _begin(self, number: int) -> None:
        with self._lock:
            self._fresh.add(number)
            if len(self._fresh) > self._limit:
                self.wrong.append(f"{len(self._fresh)} jobs were given a seat")

    def _do(self, number: int, deed: str, more: Any, abandoned: threading.Event) -> None:
        if deed == "look":
            if self.pool.running < 0:
                self.wrong.append("fewer than none")
        elif deed == "fail":
            sys.exit("as the dice fell")
        elif deed == "stuck":
            assert abandoned.wait(PATIENCE), "nobody gave it up"
        else:
            with self._lock:
                self._fresh.discard(number)
            with lending():
                if deed == "lend twice":
                    with lending():
                        pass
                elif more is not None:
                    # In line or not: while it waits, its seat is free for the other one.
                    done = self._submit(more, at_once=number % 2 == 0)
                    assert done.wait(3 * PATIENCE), "it was lost"

    def _abandon(self, over: threading.Event) -> None:
        """Abandon jobs at whatever moment they are in: running, lending, or over."""
        dice = random.Random(self._dice.random())
        while not over.wait(0.001):
            with self._lock:
                seats, self._seats = self._seats, []
                dice.shuffle(seats)
                for number, _, _ in seats:
                    self._fresh.discard(number)
            for _, seat, abandoned in seats:
                seat.abandon()
                abandoned.set()


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_in_all_disorder_no_job_is_lost_and_no_seat_is_counted_twice(limit: int) -> None:
    seed = random.randrange(10**6)
    print(f"\nseed {seed}")
    with nervous():
        Disorder(random.Random(seed), limit, 200).run()
