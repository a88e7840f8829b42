"""Several things at one time, and what became of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from syncmcp._client.core import core_of
from syncmcp._concurrency.futures import RequestFuture, failed_future
from syncmcp._concurrency.pool import DaemonPool, lending_handler
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp.errors import McpError, NotSupported

if TYPE_CHECKING:
    from syncmcp._client.client import Client

R = TypeVar("R")

AT_ONCE: Final = 32
"""So many servers are opened, or closed, at one time."""


def run_all(
    jobs: Mapping[str, Callable[[], R]], deadline: Deadline
) -> dict[str, R | BaseException]:
    """Do the jobs on threads of their own; return what each returned or raised.

    What has not ended by `deadline` goes on, and is not in the result.
    """
    # A thread that finds no job ends at once: nothing has to be closed, whatever interrupts this.
    workers = DaemonPool("syncmcp-group", AT_ONCE, linger=0.0)
    outcomes: dict[str, R | BaseException] = {}
    # Guards the outcomes.
    lock = threading.RLock()
    # A lock that is released once is the cheapest thing a thread can wait for.
    finished = threading.Lock()

    def do(name: str, job: Callable[[], R]) -> None:
        outcome: R | BaseException
        try:
            outcome = job()
        except BaseException as error:  # whoever waits is told
            outcome = error
        with lock:
            outcomes[name] = outcome
            last = len(outcomes) == len(jobs)
        if last:
            finished.release()

    if jobs:
        finished.acquire()
        for name, job in jobs.items():
            workers.run(partial(do, name, job))
        with lending_handler():
            acquire(finished, deadline.remaining())
    with lock:
        return {name: outcomes[name] for name in jobs if name in outcomes}


def answering(clients: Mapping[str, Client], timeout: float | None) -> dict[str, McpError | None]:
    """Ask servers whether they are there; return what went wrong with each, if anything did.

    Args:
        clients: Their clients.
        timeout: The longest that each may take, in seconds.
    """
    jobs = {name: partial(_ask, client, timeout) for name, client in clients.items()}
    errors: dict[str, McpError | None] = {}
    for name, outcome in run_all(jobs, Deadline(None)).items():
        if outcome is not None and not isinstance(outcome, McpError):
            raise outcome
        errors[name] = outcome
    return errors


def _ask(client: Client, timeout: float | None) -> None:
    deadline = Deadline(timeout)
    try:
        client.ping(timeout=timeout)
    except NotSupported:
        client.request("server/discover", timeout=deadline.remaining())


def completed(
    clients: Mapping[str, Client],
    start: Callable[[Client], RequestFuture[R]],
    deadline: Deadline,
) -> Iterator[tuple[str, RequestFuture[R]]]:
    """Start a call on each client; iterate over names and futures as they are done.

    What is still in flight when the iteration ends early is cancelled.
    """
    flying: dict[RequestFuture[R], str] = {}
    try:
        for name, client in clients.items():
            try:
                future = start(client)
            except McpError as error:
                future = failed_future(error, core_of(client).pools.workers)
            flying[future] = name
        while flying:
            with lending_handler():
                done = wait(flying, deadline.remaining(), FIRST_COMPLETED).done
            if not done:
                raise TimeoutError(f"not all servers answered within {deadline.seconds:g} s")
            for future in [one for one in flying if one in done]:
                yield flying.pop(future), future
    finally:
        for future in flying:
            future.cancel()
