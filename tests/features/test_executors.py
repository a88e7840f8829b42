"""Calls on executors: threads here, processes and a cluster of Dask in a program of their own."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import syncmcp
from syncmcp import Call, Client, Outcome, OutcomeUnknown, UsageError, fan_out
from syncmcp._client import settings
from syncmcp.testing import Server, serve_http
from tests.support.stage import PATIENCE, Stage

# A cluster of processes is started, and some of them killed and started again: a busy machine takes
# its time.
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
    seen: dict[str, Any] = json.loads(ended.stdout)
    return seen


@pytest.fixture(scope="module")
def processes() -> dict[str, Any]:
    return run("processes")


@pytest.fixture(scope="module")
def dask() -> dict[str, Any]:
    return run("dask")


@pytest.fixture
def close_shared() -> Iterator[None]:
    """Close what was unpickled in this process."""
    yield
    for client in list(settings._shared.values()):
        client.close()


def errors(outcomes: list[dict[str, Any]]) -> list[str | None]:
    return [one["error"] for one in outcomes]


def test_threads_share_one_client_that_ends_with_the_calls() -> None:
    stage = Stage()
    calls = [("echo", {"text": str(number)}) for number in range(20)]
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(fan_out(stage.server, calls, pool))
    assert sorted(one.index for one in outcomes) == list(range(20))
    assert all(one.result().text == str(one.index) for one in outcomes)
    assert {one.attempts for one in outcomes} == {1}


def test_threads_may_have_handlers_that_cannot_be_pickled() -> None:
    stage, told = Stage(), []
    client = Client(stage.server, on_progress=lambda *news: told.append(news))
    with ThreadPoolExecutor(1) as pool:
        (outcome,) = fan_out(client, [("count", {"steps": 2})], pool)
    assert outcome.result().text == "counted"
    assert told == [(1, 2, "step 1"), (2, 2, "step 2")]


def test_outcomes_come_as_they_are_known() -> None:
    stage = Stage()
    calls = [Call("call_tool", "hold", {"key": "late"}), Call("call_tool", "echo", {"text": "a"})]
    with ThreadPoolExecutor(2) as pool:
        outcomes = fan_out(stage.server, calls, pool)
        assert next(outcomes).index == 1
        stage.gate.set()
        assert next(outcomes).result().text == "late"


def test_no_more_calls_than_the_bound_are_with_the_executor() -> None:
    stage, taken = Stage(), []

    def calls() -> Iterator[tuple[str, dict[str, str]]]:
        for number in range(6):
            taken.append(number)
            yield "hold", {"key": str(number)}

    with ThreadPoolExecutor(6) as pool:
        outcomes = fan_out(stage.server, calls(), pool, max_in_flight=2)
        stage.let_go("0")
        assert next(outcomes).index == 0
        assert taken == [0, 1]
        stage.gate.set()
        assert len(list(outcomes)) == 5


def test_who_leaves_early_ends_what_runs_in_threads() -> None:
    stage = Stage()
    calls = [("hold", {"key": str(number)}) for number in range(3)]
    with ThreadPoolExecutor(2) as pool:  # whose end waits for what it runs
        outcomes = fan_out(stage.server, calls, pool)
        stage.let_go("0")
        assert next(outcomes).index == 0
        contexts = stage.inside("0", "1")
        assert isinstance(outcomes, Generator)
        outcomes.close()
        assert contexts[1].cancelled.wait(PATIENCE)


def test_a_call_that_fails_stands_alone_and_progress_is_told() -> None:
    stage, told = Stage(), []
    calls = [("echo", {"text": "a"}), ("no such tool", None), ("echo", {"text": "b"})]
    with ThreadPoolExecutor(1) as pool:
        outcomes = list(fan_out(stage.server, calls, pool, on_done=lambda *news: told.append(news)))
    assert [type(one.error) for one in outcomes] == [type(None), syncmcp.InvalidParams, type(None)]
    with pytest.raises(syncmcp.InvalidParams):
        outcomes[1].result()
    assert [news[:2] for news in told] == [(1, 3), (2, 3), (3, 3)]
    assert "InvalidParams" in told[1][2]


def test_options_are_for_every_call_that_has_none_of_its_own() -> None:
    stage = Stage()
    calls = [Call("call_tool", "hold", timeout=0.05), Call("call_tool", "echo", {"text": "a"})]
    with ThreadPoolExecutor(2) as pool:
        late, done = sorted(
            fan_out(stage.server, calls, pool, timeout=PATIENCE), key=lambda one: one.index
        )
    assert isinstance(late.error, syncmcp.RequestTimeout)
    assert late.error.seconds == 0.05
    assert done.error is None


MISTAKES: dict[str, Callable[[Any], object]] = {
    "no operation": lambda pool: Call("close"),
    "no executor": lambda pool: fan_out("http://127.0.0.1:1/", [], "threads"),  # type: ignore[arg-type]
    "no bound": lambda pool: fan_out("http://127.0.0.1:1/", [], pool, max_in_flight=0),
    "no option": lambda pool: fan_out("http://127.0.0.1:1/", [], pool, timeout=-1),
    "no call": lambda pool: list(fan_out(Server("x"), ["echo"], pool)),  # type: ignore[list-item]
    "a coroutine": lambda pool: fan_out("http://127.0.0.1:1/", [], pool, on_done=_coroutine),
}


async def _coroutine(*news: object) -> None:
    pass


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=list(MISTAKES))
def test_a_mistake_is_a_usage_error(mistake: Callable[[Any], object]) -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(UsageError):
        mistake(pool)


def test_what_is_not_for_other_processes_is_refused_before_anything_is_sent() -> None:
    stage = Stage()
    with pytest.raises(UsageError, match="the target cannot be pickled"):
        fan_out(stage.server, [("echo", {"text": "a"})], Scripted())
    assert stage.stats.requests.total() == 0


class Scripted(Executor):
    """Runs what it gets at once, as another process would; but first fails as it is told."""

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


class Shut(Executor):
    """Takes no calls."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")


def one(config: Any, call: Call, executor: Executor) -> Outcome:
    (outcome,) = fan_out(config, [call], executor)
    return outcome


@pytest.mark.usefixtures("close_shared")
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


def test_a_call_that_the_executor_refuses_was_not_sent() -> None:
    error = one("http://127.0.0.1:1/", Call("ping"), Shut()).error
    assert isinstance(error, syncmcp.ConnectionLost)
    assert error.delivery == "not_sent"
    assert "after shutdown" in str(error)


@pytest.mark.usefixtures("close_shared")
def test_every_operation_that_gives_one_result_may_be_called() -> None:
    stage = Stage()
    with serve_http(stage.server) as http:
        names = [tool.name for tool in one(http.url, Call("list_tools"), Scripted()).result().tools]
        assert "echo" in names
        raw = one(http.url, Call("request", "tools/list"), Scripted()).result()
        assert [tool["name"] for tool in raw["tools"]] == names


@pytest.mark.pitfall("32")
def test_each_process_opens_one_client_and_closes_it_at_its_end(processes: dict[str, Any]) -> None:
    servers = {(one["worker"], one["text"]) for one in processes["many"] + processes["more"]}
    assert len({worker for worker, _ in servers}) == len(servers) <= 2
    assert processes["left"] == []


@pytest.mark.parametrize("kind", ["processes", "dask"])
def test_a_broken_call_is_isolated(kind: str, request: pytest.FixtureRequest) -> None:
    outcomes = request.getfixturevalue(kind)["isolated"]
    assert errors(outcomes) == [None, "InvalidParams", "UsageError", None, None]
    assert outcomes[3]["text"] == "no luck"


def test_a_process_that_dies_breaks_its_pool_and_all_are_told(processes: dict[str, Any]) -> None:
    killed = processes["killed"]
    assert killed["orders"] == 1
    assert len(killed["outcomes"]) == 7
    assert killed["outcomes"][0]["delivery"] == "unknown"
    assert set(errors(killed["outcomes"])) <= {"OutcomeUnknown", "ConnectionLost"}


def test_calls_spread_over_the_workers_of_a_cluster(dask: dict[str, Any]) -> None:
    assert errors(dask["many"]) == [None] * 12
    assert len({one["worker"] for one in dask["many"]}) > 1
    assert dask["told"] == [[done, 12] for done in range(1, 13)]


def test_equal_calls_are_different_calls(dask: dict[str, Any]) -> None:
    assert dask["orders"] == 12


@pytest.mark.pitfall("16")
def test_a_call_on_a_killed_worker_is_made_once_where_dask_repeats_nothing() -> None:
    """The recipe of examples/many_servers/cluster.py."""
    once = run("once")["once"]
    first, *others = once["outcomes"]
    assert (first["error"], first["delivery"]) == ("OutcomeUnknown", "unknown")
    assert once["orders"] == 1
    assert set(errors(others)) <= {None, "OutcomeUnknown"}
    assert errors(others).count(None) >= len(others) - 1 > 0  # one may wait at the killed worker


def test_an_idempotent_call_is_made_again_on_another_worker(dask: dict[str, Any]) -> None:
    first, *others = dask["twice"]["outcomes"]
    assert first["text"] == "ordered"
    assert first["worker"] != dask["twice"]["victim"]
    assert dask["twice"]["orders"] == 2
    assert errors(others) == [None] * 6
