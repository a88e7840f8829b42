"""Parallel jobs and calls, one for each server of a group, and their outcomes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from syncmcp._client.core import core_of
from syncmcp._concurrency.futures import RequestFuture, failed_future
from syncmcp._concurrency.pool import DaemonPool, lending_handler
from syncmcp._concurrency.timing import Deadline, Latch
from syncmcp.errors import McpError, NotSupported

if TYPE_CHECKING:
    from syncmcp._client.client import Client

R = TypeVar("R")

MAX_PARALLEL: Final = 32
"""The most servers that are opened or closed at the same time."""


def run_all(
    jobs: Mapping[str, Callable[[], R]], deadline: Deadline
) -> dict[str, R | BaseException]:
    """Run jobs on threads of their own; return the result or exception of each.

    Jobs that have not ended by `deadline` go on, and are missing in the result.
    """
    # Idle threads end at once (`linger`), so that the pool needs no closing after an interrupt.
    workers = DaemonPool("syncmcp-group", MAX_PARALLEL, linger=0.0)
    outcomes: dict[str, R | BaseException] = {}
    # Guards the outcomes.
    lock = threading.RLock()
    finished = Latch()

    def run_job(name: str, job: Callable[[], R]) -> None:
        outcome: R | BaseException
        try:
            outcome = job()
        except BaseException as error:  # returned to the caller of `run_all`
            outcome = error
        with lock:
            outcomes[name] = outcome
            last = len(outcomes) == len(jobs)
        if last:
            finished.set()

    if jobs:
        for name, job in jobs.items():
            workers.run(partial(run_job, name, job))
        with lending_handler():
            finished.wait(deadline.remaining())
    with lock:
        return {name: outcomes[name] for name in jobs if name in outcomes}


def ping_all(clients: Mapping[str, Client], timeout: float | None) -> dict[str, McpError | None]:
    """Ping servers in parallel, each within `timeout` seconds; return the error of each, if any."""
    jobs = {name: partial(_ping, client, timeout) for name, client in clients.items()}
    errors: dict[str, McpError | None] = {}
    for name, outcome in run_all(jobs, Deadline(None)).items():
        if outcome is not None and not isinstance(outcome, McpError):
            raise outcome
        errors[name] = outcome
    return errors


def _ping(client: Client, timeout: float | None) -> None:
    deadline = Deadline(timeout)
    try:
        client.ping(timeout=timeout)
    except NotSupported:
        client.request("server/discover", timeout=deadline.remaining())


def iterate_completed(
    clients: Mapping[str, Client], start: Callable[[Client], RequestFuture[R]], deadline: Deadline
) -> Iterator[tuple[str, RequestFuture[R]]]:
    """Start a call on each client; iterate over names and futures as they complete.

    Calls that are in flight when the iteration ends early are cancelled.
    """
    in_flight: dict[RequestFuture[R], str] = {}
    try:
        for name, client in clients.items():
            try:
                future = start(client)
            except McpError as error:
                future = failed_future(error, core_of(client).pools.workers)
            in_flight[future] = name
        while in_flight:
            with lending_handler():
                done = wait(in_flight, deadline.remaining(), FIRST_COMPLETED).done
            if not done:
                raise TimeoutError(f"not all servers answered within {deadline.seconds:g} s")
            for future in [future for future in in_flight if future in done]:
                yield in_flight.pop(future), future
    finally:
        for future in in_flight:
            future.cancel()
