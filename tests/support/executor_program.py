"""Program: makes calls on processes, or on a cluster of Dask, and prints the outcomes as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from syncmcp import Call, Client, Outcome, Stdio, fan_out

SERVER = Path(__file__).with_name("executor_server.py")
PATIENCE = 150.0


def heard(_log: object) -> None:
    """Ignore a log message. A function of this main module, so it must be pickled by value."""


def config() -> Client:
    return Client(Stdio(sys.executable, str(SERVER)), on_log=heard)


def facts(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "index": outcome.index,
        "text": None if error else outcome.result().text,
        "error": type(error).__name__ if error else None,
        "delivery": getattr(error, "delivery", None),
        "worker": outcome.worker.rpartition(":")[2],
    }


def in_order(outcomes: Iterator[Outcome]) -> list[dict[str, Any]]:
    return sorted(map(facts, outcomes), key=lambda one: one["index"])


class Book:
    """A file of the orders that servers have written; see `executor_server.py`."""

    def __init__(self, directory: str, name: str) -> None:
        self.path = Path(directory, name)

    def lines(self) -> list[str]:
        return self.path.read_text().split() if self.path.exists() else []

    def wait(self, count: int) -> str:
        """Wait for `count` orders; return the id of the process that gave the last order."""
        tick = threading.Event()
        for _ in range(int(PATIENCE / 0.02)):
            if len(self.lines()) >= count:
                return self.lines()[-1]
            tick.wait(0.02)
        raise TimeoutError(f"{self.path} has {self.lines()}")

    def let_go(self) -> None:
        Path(f"{self.path}.go").touch()


@contextmanager
def meanwhile(job: Callable[[], object]) -> Iterator[None]:
    thread = threading.Thread(target=job)
    thread.start()
    yield
    thread.join(PATIENCE)


def kill(pid: str) -> None:
    os.kill(int(pid), signal.SIGKILL)


def is_there(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    return True


def isolated(executor: Executor) -> list[dict[str, Any]]:
    """Make calls of which some fail; return all outcomes."""
    return in_order(
        fan_out(
            config(),
            [
                ("pid", None),
                ("nobody knows it", {}),
                ("pid", {"lock": threading.Lock()}),
                ("fail", None),
                Call("call_tool", "pid", timeout=30),
            ],
            executor,
        )
    )


def killed(executor: Executor, book: Book, *, again: bool) -> dict[str, Any]:
    """Kill a worker while it runs a call; `again`: the call is idempotent and may be repeated."""
    victims: list[str] = []

    def killer() -> None:
        victims.append(book.wait(1))
        kill(victims[0])
        if again:
            book.wait(2)
        book.let_go()

    calls = [Call("call_tool", "order", {"book": str(book.path)}, idempotent=again)]
    calls += [Call("call_tool", "pid")] * 6
    with meanwhile(killer):
        outcomes = in_order(fan_out(config(), calls, executor))
    return {"outcomes": outcomes, "orders": len(book.lines()), "victim": victims[0]}


def on_processes(directory: str) -> dict[str, Any]:
    context = get_context("spawn")
    seen: dict[str, Any] = {}
    with ProcessPoolExecutor(2, mp_context=context) as executor:
        seen["many"] = in_order(fan_out(config(), [("pid", None)] * 12, executor))
        seen["more"] = in_order(fan_out(config(), [("pid", None)] * 4, executor))
        seen["isolated"] = isolated(executor)
    servers = {one["text"] for one in seen["many"]}
    seen["left"] = [pid for pid in servers if is_there(pid)]
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        seen["killed"] = killed(executor, Book(directory, "pool"), again=False)
    return seen


@contextmanager
def cluster() -> Iterator[Any]:
    """Start a cluster with two workers; yield a client of it."""
    from distributed import Client as Dask
    from distributed import LocalCluster

    local = LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
    with local, Dask(local) as client:
        client.wait_for_workers(2)
        yield client


def on_dask(directory: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    with cluster() as dask:
        executor = dask.get_executor()
        shop = Book(directory, "shop")
        shop.let_go()
        told: list[tuple[float, float | None]] = []
        calls = [Call("call_tool", "order", {"book": str(shop.path)})] * 12
        seen["many"] = in_order(
            fan_out(config(), calls, executor, on_done=lambda *news: told.append(news[:2]))
        )
        seen["told"] = told
        seen["orders"] = len(shop.lines())
        seen["isolated"] = isolated(executor)
        seen["twice"] = killed(executor, Book(directory, "twice"), again=True)
    return seen


def on_dask_without_repetition(directory: str) -> dict[str, Any]:
    """Kill a worker; as in examples/many_servers/cluster.py, Dask does not repeat its tasks."""
    import dask.config

    with dask.config.set({"distributed.scheduler.allowed-failures": 0}), cluster() as client:
        return {"once": killed(client.get_executor(), Book(directory, "once"), again=False)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        runs = {"processes": on_processes, "dask": on_dask, "once": on_dask_without_repetition}
        run = runs[sys.argv[1]]
        print(json.dumps(run(directory)))
