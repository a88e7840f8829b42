"""Which failed requests are sent again, how often and when; and the attempts of one request."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syncmcp._base.checks import seconds, whole_number
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._protocol.capabilities import HARMLESS
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    HttpError,
    McpError,
    SessionLost,
    UsageError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._connection.connection import Connection
    from syncmcp._connection.options import ResolvedOptions
    from syncmcp._protocol.steps import Send
    from syncmcp.errors import Delivery
    from syncmcp.types import Tool

__all__ = ["Retry"]


# What is sent again after a failure, how often and when. Decisions only: nothing waits here.


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


_log = logging.getLogger("syncmcp.retry")

# A server whose stdin is broken is as good as dead; the news of it comes within this time.
_DYING_SECONDS = 0.2


class RetryRules:
    """What one client sends again.

    Args:
        policy: How often and when; `None` for never.
        trusted: Whether the server's word counts for what its tools do.
        reopens: Whether a connection that did not come about is worth another attempt: that of a
            URL is, a command that cannot be started is not.
    """

    def __init__(self, policy: Retry | None, *, trusted: bool, reopens: bool) -> None:
        self.policy = policy
        self.reopens = reopens
        self._trusted = trusted
        # Told of each repetition, by its method, before the request is sent again; never raises.
        self.on_repeat: Callable[[str], object] | None = None
        # What the newest list said; a whole entry is replaced at a time.
        self._tools: dict[str, bool] = {}

    def learn(self, tools: Iterable[Tool]) -> None:
        """Note what a list that was fetched says of its tools."""
        if self._trusted:
            for tool in tools:
                hints = tool.annotations
                self._tools[tool.name] = hints is not None and bool(
                    hints.read_only_hint or hints.idempotent_hint
                )

    def forget(self) -> None:
        """There is another server now, perhaps of another version."""
        self._tools = {}

    def is_harmless(self, send: Send, options: ResolvedOptions) -> bool:
        """Whether a request may be done twice."""
        if options.idempotent or send.method in HARMLESS:
            return True
        name = (send.params or {}).get("name")
        return (
            send.method == "tools/call" and isinstance(name, str) and self._tools.get(name, False)
        )


class RetryState:
    """The repetitions of one request; made when it has failed for the first time.

    Args:
        send: The request.
        options: Its options.
        deadline: When the call must be over.
        repeatable: What the client sends again.
        label: What the log calls the server.
        counted: Told how often the request has been sent, each time that it is sent again.
    """

    def __init__(
        self,
        send: Send,
        options: ResolvedOptions,
        deadline: Deadline,
        repeatable: RetryRules,
        label: str,
        counted: Callable[[int], object] | None = None,
    ) -> None:
        self._method = send.method
        self._deadline = deadline
        self._policy = repeatable.policy
        self._reopens = repeatable.reopens
        # Asked now: what is known of a tool is forgotten with its server.
        self._harmless = repeatable.is_harmless(send, options)
        self._label = label
        self._counted = counted
        self._on_repeat = repeatable.on_repeat
        self._since = monotonic()
        self._sends = 1
        self._repeats = 0
        self._renewed: set[str] = set()
        self._unknown = False

    def pause(self, error: McpError, connection: Connection | None) -> float | None:
        """Seconds until the request is sent again; `None` if `error` is its end.

        Args:
            error: How it failed.
            connection: Where; `None` if there was none.
        """
        if connection is None and self._method != "initialize":
            # What failed was the opening; what it tells of itself is not true of the request.
            _set_delivery(error, "not_sent")
        pause = self._decide(error, connection)
        if pause is None:
            self.end(error)
        return pause

    def count(self, error: McpError, pause: float) -> None:
        """The request is about to be sent again."""
        self._unknown = self._unknown or getattr(error, "delivery", "") == "unknown"
        self._sends += 1
        _log.warning(
            "[%s] %s is sent again in %.2f s (attempt %d): %s",
            self._label,
            self._method,
            pause,
            self._sends,
            error,
        )
        if self._on_repeat is not None:
            self._on_repeat(self._method)
        if self._counted is not None:
            self._counted(self._sends)

    def _decide(self, error: McpError, connection: Connection | None) -> float | None:
        if isinstance(error, SessionLost) and error.delivery != "unknown":
            # Once each: refused with its session, or too late for it.
            again = error.delivery not in self._renewed
            self._renewed.add(error.delivery)
            return 0.0 if again else None
        policy = self._policy
        if policy is None or self._repeats + 1 >= policy.attempts:
            return None
        if connection is None and not self._reopens:
            return None
        if not may_repeat(error, harmless=self._harmless or connection is None):
            return None
        if connection is not None and not connection.transport.blocking:
            pause = 0.0  # a server that died is started again: that has a pause of its own
        else:
            pause = policy._pause_before(self._repeats + 1, error)
        left = self._deadline.remaining()
        if left is not None and pause >= left:
            return None
        if monotonic() + pause - self._since > policy.budget:
            return None
        self._repeats += 1
        return pause

    def end(self, error: McpError) -> None:
        """Say in `error` what became of the request in all."""
        if self._sends > 1:
            error.attempts = self._sends
        if self._unknown:  # perhaps it was not sent this time, but it was before
            _set_delivery(error, "unknown")


def is_over(connection: Connection) -> bool:
    """Whether another connection would be opened for the next request, or need not be.

    Blocks for a moment, if need be: a broken pipe is noticed before the death it comes from.
    """
    return connection.transport.blocking or connection.wait_closed(_DYING_SECONDS)


def _set_delivery(error: Any, delivery: Delivery) -> None:
    """Say how far the request came, in an error that says so."""
    if hasattr(error, "delivery"):
        error.delivery = delivery
