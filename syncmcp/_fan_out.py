"""Many calls, a bounded number of them in flight at one time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from typing import TYPE_CHECKING, TypeVar

from syncmcp._workers import lending_handler
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from syncmcp.futures import RequestFuture

R = TypeVar("R")


def fan_out(
    starts: Iterator[Callable[[], RequestFuture[R]]],
    limit: int,
    *,
    ordered: bool,
    return_errors: bool,
) -> Iterator[R | McpError]:
    """Start calls and iterate over their results.

    What is still in flight when the iteration ends early is cancelled.

    Args:
        starts: Each starts one call; taken as they are needed.
        limit: How many calls may be in flight.
        ordered: Whether results come in the order of the calls, or as they are there.
        return_errors: Whether the error of a call comes in the place of its result.

    Raises:
        McpError: What became of a call instead, unless errors are returned.
    """
    # In the order of the calls: a dictionary keeps it.
    flying: dict[RequestFuture[R], None] = {}
    try:
        while True:
            while len(flying) < limit and (start := next(starts, None)) is not None:
                flying[start()] = None
            if not flying:
                return
            first = next(iter(flying)) if ordered else _first_done(flying)
            result: R | McpError
            try:
                result = first.result()
            except McpError as error:
                if not return_errors:
                    raise
                result = error
            del flying[first]
            yield result
    finally:
        for future in flying:
            future.cancel()


def _first_done(flying: dict[RequestFuture[R], None]) -> RequestFuture[R]:
    with lending_handler():
        done = wait(flying, return_when=FIRST_COMPLETED).done
    return next(future for future in flying if future in done)
