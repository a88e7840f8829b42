"""Calls on executors: threads here; processes and a Dask cluster in a separate program."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Call, Client, Outcome, OutcomeUnknown, UsageError, fan_out
from syncmcp._client import settings
from syncmcp.testing import Server, serve_http
from tests.support.stage import PATIENCE, Stage

# In seconds. Processes are started and killed several times, which a busy machine delays.
_LONGEST = 400

pytestmark = [pytest.mark.timeout(_LONGEST + 20), pytest.mark.slow]

PROGRAM = Path(__file__).parents[1] / "support" / "executor_program.py"


def run(kind: str) -> dict[str, Any]:
    ended = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", str(PROGRAM), kind],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_LONGEST,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return dict(json.loads(ended.stdout))


def errors(outcomes: list[dict[str, Any]]) -> list[str | None]:
    return [one["error"] for one in outcomes]


def test_threads_share_one_client_that_ends_with_the_calls() -> None:
    stage, told = Stage(), []
    calls = [("echo", {"text": str(number)}) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(fan_out(stage.server, calls, pool))
        # In threads, handlers need not be picklable.
        client = Client(stage.server, on_progress=lambda *news: told.append(news))
        (counted,) = fan_out(client, [("count", {"steps": 2})], pool)
    assert sorted(one.index for one in outcomes) == list(range(20))
    assert all(one.result().text == str(one.index) for one in outcomes)
    assert {one.attempts for one in outcomes} == {1}
    assert counted.result().text == "counted"
    assert told == [(1, 2, "step 1"), (2, 2, "step 2")]


def test_no_more_calls_than_the_bound_are_with_the_executor() -> None:
    stage, taken = Stage(), []

    def calls() -> Iterator[tuple[str, dict[str, str]]]:
        for number in range(6):
            taken.append(number)
            yield "hold", {"key": str(number)}

    with ThreadPoolExecutor(6) as pool:
        outcomes = fan_out(stage.server, calls(), pool, max_in_flight=2)
        stage.let_go("1")
        assert next(outcomes).index == 1  # in the order of completion
        assert taken == [0, 1]
        stage.gate.set()
        assert len(list(outcomes)) == 5


def test_who_leaves_early_ends_what_runs_in_threads() -> None:
    stage = Stage()
    calls = [("hold", {"key": str(number)}) for number in range(3)]
    with ThreadPoolExecutor(2) as pool:  # its end waits for running calls
        outcomes = fan_out(stage.server, calls, pool)
        stage.let_go("0")
        assert next(outcomes).index == 0
        contexts = stage.inside("0", "1")
        assert isinstance(outcomes, Generator)
        outcomes.close()
        assert contexts[1].cancelled.wait(PATIENCE)


def test_a_call_that_fails_stands_alone_and_progress_is_told() -> None:
    stage, told = Stage(), []
    # Options apply to calls without options of their own.
    late = Call("call_tool", "hold", timeout=0.05)
    calls: list[Any] = [("echo", {"text": "a"}), ("no such tool", None), late]
    calls += [("echo", {"text": "b"})]
    options: Any = {"timeout": PATIENCE, "on_done": lambda *news: told.append(news)}
    with ThreadPoolExecutor(1) as pool:
        first, wrong, timed_out, last = fan_out(stage.server, calls, pool, **options)
    assert first.error is last.error is None
    with pytest.raises(syncmcp.InvalidParams):
        wrong.result()
    assert isinstance(timed_out.error, syncmcp.RequestTimeout)
    assert timed_out.error.seconds == 0.05
    assert [news[:2] for news in told] == [(number, 4) for number in (1, 2, 3, 4)]
    assert "InvalidParams" in told[1][2]


async def _coroutine(*news: object) -> None:
    pass


def test_a_mistake_is_a_usage_error() -> None:
    url: Any = "http://127.0.0.1:1/"
    with ThreadPoolExecutor(1) as pool:
        wrong: list[dict[str, Any]] = [{"max_in_flight": 0}, {"timeout": -1}]
        mistakes: list[Callable[[], object]] = [
            *(partial(fan_out, url, [], pool, **one) for one in (*wrong, {"on_done": _coroutine})),
            *(partial(Call, "close"), partial(fan_out, url, [], "threads")),  # type: ignore[arg-type]
            lambda: list(fan_out(Server("x"), ["echo"], pool)),  # type: ignore[list-item]
        ]
        for mistake in mistakes:
            with pytest.raises(UsageError):
                mistake()
    stage = Stage()  # an in-process server
    with pytest.raises(UsageError, match="the target cannot be pickled"):
        fan_out(stage.server, [("echo", {"text": "a"})], Scripted())
    assert stage.stats.requests.total() == 0


class Scripted(Executor):
    """An executor that first fails with `failures`, then pickles results as a process does."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)
        self.runs = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.runs += 1
        future: Future[Any] = Future()
        failure = self.failures.pop(0) if self.failures else None
        if failure is None:
            future.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        else:
            future.set_exception(failure)
        return future


def one(config: Any, call: Call, executor: Executor) -> Outcome:
    (outcome,) = fan_out(config, [call], executor)
    return outcome


@pytest.mark.pitfall("16")
def test_a_call_whose_worker_was_lost_is_made_again_only_where_that_does_no_harm() -> None:
    stage = Stage()
    lost = BrokenExecutor("gone")
    echo = Call("call_tool", "echo", {"text": "a"})
    safe = Call("call_tool", "echo", {"text": "a"}, idempotent=True)
    with serve_http(stage.server) as http:
        pool = Scripted(lost)
        outcome = one(http.url, echo, pool)
        assert isinstance(outcome.error, OutcomeUnknown)
        assert outcome.error.__cause__ is lost
        assert (pool.runs, outcome.attempts, outcome.error.delivery) == (1, 1, "unknown")
        for call in (safe, Call("list_tools")):
            pool = Scripted(lost)
            outcome = one(http.url, call, pool)
            assert outcome.error is None
            assert (pool.runs, outcome.attempts) == (2, 2)
        for retry, runs in ((syncmcp.Retry(2), 2), (None, 1)):
            pool = Scripted(lost, lost, lost)
            outcome = one(Client(http.url, retry=retry), safe, pool)
            assert (pool.runs, type(outcome.error)) == (runs, OutcomeUnknown)
        pool = Scripted(ValueError("a result that cannot be pickled, say"))
        assert isinstance(one(http.url, safe, pool).error, OutcomeUnknown)
        assert pool.runs == 1
        # A call can use any operation that returns a single result.
        raw = one(http.url, Call("request", "tools/list"), Scripted()).result()
        tools = one(http.url, Call("list_tools"), Scripted()).result().tools
        assert [tool["name"] for tool in raw["tools"]] == [tool.name for tool in tools] != []
    for client in list(settings._shared.values()):  # clients that were unpickled here
        client.close()


def test_a_call_that_the_executor_refuses_was_not_sent() -> None:
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    error = one("http://127.0.0.1:1/", Call("ping"), pool).error
    assert isinstance(error, syncmcp.ConnectionLost)
    assert error.delivery == "not_sent"
    assert "after shutdown" in str(error)


def test_a_call_whose_repetition_the_executor_refuses_may_have_been_sent() -> None:
    class Broken(Executor):
        """Loses the worker of the first call, and refuses all others, as a broken pool does."""

        def __init__(self) -> None:
            self.first: Future[Any] | None = Future()
            self.first.set_exception(BrokenExecutor("a worker died"))

        def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
            if self.first is None:
                raise BrokenExecutor("the pool is broken")
            first, self.first = self.first, None
            return first

    outcome = one("http://127.0.0.1:1/", Call("ping"), Broken())
    assert isinstance(outcome.error, OutcomeUnknown)
    assert (outcome.attempts, outcome.error.delivery) == (2, "unknown")
    assert "refused to repeat the call: BrokenExecutor: the pool is broken" in str(outcome.error)


def is_isolated(outcomes: list[dict[str, Any]]) -> None:
    """Check that the failed calls do not affect the others."""
    assert errors(outcomes) == [None, "InvalidParams", "UsageError", None, None]
    assert outcomes[3]["text"] == "no luck"


@pytest.mark.pitfall("32")
def test_each_process_opens_one_client_and_closes_it_at_its_end() -> None:
    seen = run("processes")
    servers = {(one["worker"], one["text"]) for one in seen["many"] + seen["more"]}
    assert len({worker for worker, _ in servers}) == len(servers) <= 2
    assert seen["left"] == []
    is_isolated(seen["isolated"])
    # The death of a process breaks its pool, and all its calls fail.
    killed = seen["killed"]["outcomes"]
    assert (seen["killed"]["orders"], len(killed)) == (1, 7)
    assert killed[0]["delivery"] == "unknown"
    assert set(errors(killed)) <= {"OutcomeUnknown", "ConnectionLost"}


def test_calls_spread_over_the_workers_of_a_cluster() -> None:
    seen = run("dask")
    assert errors(seen["many"]) == [None] * 12
    assert len({one["worker"] for one in seen["many"]}) > 1
    assert seen["told"] == [[done, 12] for done in range(1, 13)]
    assert seen["orders"] == 12  # equal calls are not merged
    is_isolated(seen["isolated"])
    # An idempotent call is repeated on another worker.
    first, *others = seen["twice"]["outcomes"]
    assert first["text"] == "ordered"
    assert first["worker"] != seen["twice"]["victim"]
    assert seen["twice"]["orders"] == 2
    assert errors(others) == [None] * 6


@pytest.mark.pitfall("16")
def test_a_call_on_a_killed_worker_is_made_once_where_dask_repeats_nothing() -> None:
    """The options are those of examples/many_servers/cluster.py."""
    once = run("once")["once"]
    first, *others = once["outcomes"]
    assert (first["error"], first["delivery"]) == ("OutcomeUnknown", "unknown")
    assert once["orders"] == 1
    assert set(errors(others)) <= {None, "OutcomeUnknown"}
    assert errors(others).count(None) >= len(others) - 1 > 0  # one may be at the killed worker
