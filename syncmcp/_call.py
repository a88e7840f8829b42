"""One request of ours, and what it is told at its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syncmcp._threads import Deadline, monotonic
from syncmcp.errors import (
    ConnectionLost,
    McpError,
    OutcomeUnknown,
    RequestTimeout,
    SessionLost,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._asked import Asked
    from syncmcp._delivery import Delivery
    from syncmcp._options import Options
    from syncmcp._questions import Owned
    from syncmcp.errors import Delivery as HowFar
    from syncmcp.transports.base import Outgoing

# A request that only asks. Repeating any other one might do its work twice.
_HARMLESS = frozenset(
    (
        "completion/complete",
        "initialize",
        "logging/setLevel",
        "ping",
        "prompts/get",
        "prompts/list",
        "resources/list",
        "resources/read",
        "resources/subscribe",
        "resources/templates/list",
        "resources/unsubscribe",
        "server/discover",
        "tools/list",
    )
)


class Call:
    """One request of ours, from its registration to its end."""

    __slots__ = (
        "asked",
        "deadline",
        "delivery",
        "done",
        "feed",
        "id",
        "method",
        "options",
        "out",
        "outcome",
        "params",
        "released",
        "seen",
        "slot",
        "turn",
        "unsubscribe",
    )

    def __init__(
        self,
        method: str,
        options: Options,
        deadline: Deadline,
        done: Callable[[Call], object] | None = None,
        feed: Callable[[float, float | None, str | None], object] | None = None,
    ) -> None:
        self.id = -1
        self.method = method
        # The questions that it caused, where that is known; they end with it.
        self.asked: dict[Asked, Owned] = {}
        self.params: dict[str, Any] | None = None
        self.options = options
        self.deadline = deadline
        self.out: Outgoing | None = None
        # Whether it may be sent; until then it stands in line.
        self.turn = False
        # Set, under the connection's lock, by whoever took the call.
        self.outcome: Any = None
        self.released = False
        # When the server last gave a sign of life for this call.
        self.seen: float | None = None
        self.unsubscribe: Callable[[], None] | None = None
        self.delivery: Delivery | None = None
        self.feed = feed
        self.done = done
        self.slot: threading.Lock | None = None
        if done is None:
            # A lock that is released once is the cheapest thing a thread can wait for.
            self.slot = threading.Lock()
            self.slot.acquire()

    def next_look(self) -> float | None:
        """When to look next whether the call has run out of time."""
        if self.deadline.held:
            return None
        when = self.deadline.at
        idle = self.options.idle_timeout
        if idle is not None:
            # Before the first sign of life there is nothing to be idle from: look again later.
            silent = (self.seen if self.seen is not None else monotonic()) + idle
            when = silent if when is None else min(when, silent)
        return when

    def overdue(self) -> RequestTimeout | None:
        """The error of a call that has run out of time."""
        if self.deadline.held:
            return None
        idle = self.options.idle_timeout
        if self.deadline.expired:
            seconds = self.deadline.seconds or 0.0
            return RequestTimeout(f"no answer within {seconds:g} s", seconds=seconds)
        if idle is not None and self.seen is not None and monotonic() >= self.seen + idle:
            return RequestTimeout(f"nothing came for {idle:g} s", kind="idle", seconds=idle)
        return None

    def result(self) -> Any:
        """The raw result, or the error raised; the call has ended."""
        outcome = self.outcome
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


def told(error: McpError, method: str, delivery: HowFar) -> McpError:
    """The connection's end as one call is told of it."""
    if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
        return lost(error, method, delivery)
    return fresh(error, method=method, delivery=delivery)


def lost(error: ConnectionLost, method: str, delivery: HowFar) -> ConnectionLost:
    error = fresh(error, method=method, delivery=delivery)
    if delivery == "unknown" and method not in _HARMLESS:
        unknown = OutcomeUnknown(*error.args, **error.__dict__)
        unknown.__cause__ = error.__cause__
        return unknown
    return error
