"""What is sent again after a failure, how often and when. Decisions only: nothing waits here."""

from __future__ import annotations

import random

from syncmcp._connection.options import seconds, whole_number
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    UsageError,
)

__all__ = ["Retry"]

# The server, or something before it, is away for a moment: it may have done the work or not.
_AWAY = frozenset((502, 503, 504))

# The request was turned away before anything was done for it.
_TOO_MANY = 429


class Retry:
    """How often a request is sent again after a failure, and how long all of it may take.

    What was *not sent*, or turned away with HTTP 429, may be sent again whatever it is. What may
    have been done is sent again only if that does no harm: lists, reads, prompts, completions,
    `ping`, `server/discover`, what is about a task that exists; a tool with `idempotent=True` on
    the call, or if the client is `trusted` and a list that it fetched says that the tool only reads
    or is idempotent. Any other call fails at once, with `OutcomeUnknown` where its connection
    broke.

    Failures that count: no connection came about (over HTTP), a connection was lost, HTTP 429, 502,
    503 and 504. Each repetition is logged as a warning by the logger ``syncmcp.retry``;
    `McpError.attempts` and `RequestFuture.attempts` tell how many there were.

    One repetition does not depend on this: a request that a server refused because it no longer
    knows the session (404) is sent again, once, in a new session. A page of a list is not, for its
    cursor is of the old session: the list begins anew. A list that loses one session after the
    other is begun up to `attempts` times, or twice where that is more.

    Args:
        attempts: How often a request is sent at most, the first time included.
        budget: No repetition begins later than this after the first failure, in seconds.
        pause: The longest pause before the first repetition, in seconds. The pause is a random
            part of that, and the longest doubles each time. A server's ``Retry-After`` comes
            first; one that does not fit into `budget` or the call's `timeout` ends the call.
        longest_pause: Where the doubling ends, in seconds.

    Raises:
        UsageError: A number makes no sense.
    """

    def __init__(
        self,
        attempts: int = 3,
        *,
        budget: float = 30.0,
        pause: float = 0.5,
        longest_pause: float = 10.0,
    ) -> None:
        self.attempts = whole_number(attempts, "attempts")
        self.budget = _finite(budget, "budget")
        self.pause = _finite(pause, "pause")
        self.longest_pause = _finite(longest_pause, "longest_pause")

    def __repr__(self) -> str:
        return (
            f"Retry({self.attempts}, budget={self.budget:g}, pause={self.pause:g},"
            f" longest_pause={self.longest_pause:g})"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retry) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(tuple(vars(self).values()))

    def _pause_before(self, repetition: int, error: McpError) -> float:
        """Seconds to wait before the first, second, ... repetition."""
        longest = min(self.longest_pause, self.pause * 2.0 ** min(repetition - 1, 32))
        # All of it is random: many clients that lost one server must not come back at once.
        pause = random.uniform(0.0, longest)  # noqa: S311 - no secret depends on it
        wish: float | None = getattr(error, "retry_after", None)
        return pause if wish is None else wish + pause


def may_repeat(error: McpError, *, harmless: bool) -> bool:
    """Whether a request that failed like this can be sent again without doing its work twice.

    Args:
        error: How it failed.
        harmless: Whether it may be done twice.
    """
    if isinstance(error, AuthError):
        return False
    if isinstance(error, HttpError):
        return error.status == _TOO_MANY or (harmless and error.status in _AWAY)
    if isinstance(error, (ConnectFailed, ConnectionLost)):
        return harmless or error.delivery != "unknown"
    return False


def _finite(value: float, name: str) -> float:
    checked = seconds(value, name)
    if checked is None:
        raise UsageError(f"{name} is a number of seconds, not {value!r}")
    return checked
