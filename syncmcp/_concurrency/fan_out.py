"""Many calls, a bounded number of them in flight at one time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp._concurrency.pool import lending_handler
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp._concurrency.futures import RequestFuture

R = TypeVar("R")
F = TypeVar("F", bound="Future[Any]")


def done_futures(
    starts: Iterator[Callable[[], F]], limit: int, *, ordered: bool = False
) -> Generator[F, None, None]:
    """Start calls and iterate over their futures as they are done.

    What is still in flight when the iteration ends early is cancelled.

    Args:
        starts: Each starts one call; taken as they are needed. One that has come to its end is
            asked again when a call is done.
        limit: How many calls may be in flight.
        ordered: Whether they come in the order of the calls; the first may not be done yet then.
    """
    # In the order of the calls: a dictionary keeps it.
    flying: dict[F, None] = {}
    try:
        while True:
            while len(flying) < limit and (start := next(starts, None)) is not None:
                flying[start()] = None
            if not flying:
                return
            first = next(iter(flying)) if ordered else _first_done(flying)
            yield first
            del flying[first]
    finally:
        for future in flying:
            future.cancel()


def fan_out(
    starts: Iterator[Callable[[], RequestFuture[R]]],
    limit: int,
    *,
    ordered: bool,
    return_errors: bool,
) -> Iterator[R | McpError]:
    """Start calls and iterate over their results; see `done_futures`.

    Args:
        starts: Each starts one call.
        limit: How many calls may be in flight.
        ordered: Whether results come in the order of the calls, or as they are there.
        return_errors: Whether the error of a call comes in the place of its result.

    Raises:
        McpError: What became of a call instead, unless errors are returned.
    """
    with closing(done_futures(starts, limit, ordered=ordered)) as futures:
        for future in futures:
            result: R | McpError
            try:
                result = future.result()
            except McpError as error:
                if not return_errors:
                    raise
                result = error
            yield result


def _first_done(flying: dict[F, None]) -> F:
    with lending_handler():
        done = wait(flying, return_when=FIRST_COMPLETED).done
    return next(future for future in flying if future in done)
