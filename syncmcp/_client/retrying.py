"""Retries: which failed requests are sent again, how often and when (`Retry`, `RetryState`)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any

from syncmcp import types
from syncmcp._base.checks import finite_seconds, whole_number
from syncmcp._base.text import logger
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.revisions import IDEMPOTENT_REQUESTS
from syncmcp._protocol.steps import Send
from syncmcp.errors import (
    AuthError,
    ConnectFailed,
    ConnectionLost,
    Delivery,
    HttpError,
    McpError,
    SessionLost,
)

__all__ = ["Retry"]

_log = logger("syncmcp.retry")

# After a broken pipe the server is about to die; its end is noticed within this time, in seconds.
_DYING_SECONDS = 0.2

# The server or a proxy is unavailable for a moment; the request may have been processed.
_AWAY = frozenset((502, 503, 504))

# The request was rejected before it was processed.
_TOO_MANY = 429

# The most remembered tools, and characters of their names: as many as any list has, or more.
_MOST_TOOLS = 200_000
_MOST_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True)
class Retry:
    """How many times a request is sent after failures, and how long all attempts may take.

    >>> from syncmcp.testing import Cut, FaultProxy, serve_http
    >>> retry = syncmcp.Retry(3, budget=60, pause=0.1)
    >>> with serve_http(server) as http, FaultProxy(http.url) as proxy:
    ...     fault = proxy.queue(Cut("sent"), method="tools/call")  # the connection breaks once
    ...     with syncmcp.connect(proxy.url, retry=retry) as client:
    ...         future = client.call_tool.future("add", {"a": 1, "b": 2}, idempotent=True)
    ...         print(future.result().text, future.attempts)
    3 2

    A request that was *not sent*, or that the server rejected with HTTP 429, may be sent again. A
    request that the server may have processed is sent again only if it is idempotent. These
    requests are idempotent: lists, reads, prompts, completions, `ping`, `server/discover`, and
    requests about an existing task. A tool call is idempotent if it has the option
    `idempotent=True`. If the client is `trusted`, a tool call is also idempotent if a list that the
    client fetched declares the tool read-only or idempotent. Any other call fails at once, with
    `OutcomeUnknown` if its connection broke.

    These failures lead to a retry: the connection could not be opened (over HTTP), the connection
    was lost, or the HTTP status is 429, 502, 503 or 504. The logger ``syncmcp.retry`` logs each
    retry as a warning. `McpError.attempts` and `RequestFuture.attempts` have the number of
    attempts.

    One retry does not depend on a `Retry`. A server may refuse a request because it does not know
    the session any more (404). Then the client sends the request again, once, in a new session. A
    request for a page of a list is not sent again, because its cursor belongs to the old session.
    Instead, the list restarts. A list that loses one session after the other is started up to
    `attempts` times, but at least twice.

    Args:
        attempts: The maximum number of times that a request is sent, including the first time.
        budget: The latest time for a retry, in seconds after the first failure.
        pause: The longest pause before the first retry, in seconds. Each pause is a random part of
            the longest pause, which doubles with each retry. A ``Retry-After`` of the server is
            added to the pause. If the pause does not fit into `budget` or the `timeout` of the
            call, the call fails.
        longest_pause: The upper limit of the doubling, in seconds.

    Raises:
        UsageError: A number is invalid.
    """

    attempts: int = 3
    _: KW_ONLY
    budget: float = 30.0
    pause: float = 0.5
    longest_pause: float = 10.0

    def __post_init__(self) -> None:
        whole_number(self.attempts, "attempts")
        for name in ("budget", "pause", "longest_pause"):
            finite_seconds(getattr(self, name), name)

    def _delay_before(self, retry: int, error: McpError) -> float:
        """The pause before the given retry (1 for the first), in seconds."""
        longest = min(self.longest_pause, self.pause * 2.0 ** min(retry - 1, 32))
        # Full jitter: many clients that lost one server must not reconnect at the same time.
        pause = random.uniform(0.0, longest)  # noqa: S311 - no secret depends on it
        wish: float | None = getattr(error, "retry_after", None)
        return pause if wish is None else wish + pause


def may_retry(error: McpError, *, idempotent: bool) -> bool:
    """True if a request may be sent again; `idempotent`: the server may process it twice."""
    if isinstance(error, AuthError):
        return False
    if isinstance(error, HttpError):
        return error.status == _TOO_MANY or (idempotent and error.status in _AWAY)
    if isinstance(error, (ConnectFailed, ConnectionLost)):
        return idempotent or error.delivery != "unknown"
    return False


class RetryRules:
    """The rules by which one client sends requests again; `policy` is `None` for no retries.

    The annotations of tools count if the server is `trusted`. `reopens` says whether opening is
    retried: for a URL, but not for a command that cannot be started.
    """

    def __init__(self, policy: Retry | None, *, trusted: bool, reopens: bool) -> None:
        self.policy = policy
        self.reopens = reopens
        self._trusted = trusted
        # Called with the method before a request is sent again; never raises.
        self.on_retry: Callable[[str], object] | None = None
        # By name: True if the tool is read-only or idempotent. Entries are replaced atomically.
        self._tools: dict[str, bool] = {}
        self._characters = 0

    def learn(self, tools: Iterable[types.Tool]) -> None:
        """Remember the annotations of listed tools, if the server is trusted."""
        if self._trusted:
            if len(self._tools) > _MOST_TOOLS or self._characters > _MOST_CHARACTERS:
                self.forget()  # the server lists new tools without end
            for tool in tools:
                hints = tool.annotations
                if tool.name not in self._tools:
                    self._characters += len(tool.name)
                self._tools[tool.name] = hints is not None and bool(
                    hints.read_only_hint or hints.idempotent_hint
                )

    def forget(self) -> None:
        """Forget the tools: the new server process may be of another version."""
        self._tools, self._characters = {}, 0

    def is_idempotent(self, send: Send, options: ResolvedOptions) -> bool:
        if options.idempotent or send.method in IDEMPOTENT_REQUESTS:
            return True
        name = (send.params or {}).get("name")
        return (
            send.method == "tools/call" and isinstance(name, str) and self._tools.get(name, False)
        )


class RetryState:
    """The retries of one request; made at its first failure.

    `on_attempt` is called with the number of attempts each time that the request is sent again.
    """

    def __init__(
        self,
        send: Send,
        options: ResolvedOptions,
        deadline: Deadline,
        retry_rules: RetryRules,
        label: str,
        on_attempt: Callable[[int], object] | None = None,
    ) -> None:
        self._method = send.method
        self._deadline = deadline
        self._rules = retry_rules
        # Evaluated now: the rules forget the tools when the connection is replaced.
        self._idempotent = retry_rules.is_idempotent(send, options)
        self._label = label
        self._on_attempt = on_attempt
        self._since = monotonic()
        self._sends = 1
        self._retries = 0
        self._sessions_renewed: set[str] = set()
        self._delivery_unknown = False

    def next_delay(self, error: McpError, connection: Connection | None) -> float | None:
        """The pause before the next attempt, in seconds; `None` if there is no further attempt.

        `connection` is that of the failed attempt; `None` if it could not be opened.
        """
        if connection is None and self._method != "initialize":
            # The opening failed; the `delivery` of its error is not that of the request.
            _set_delivery(error, "not_sent")
        pause = self._delay(error, connection)
        if pause is None:
            self.annotate(error)
        return pause

    def record_retry(self, error: McpError, pause: float) -> None:
        self._delivery_unknown |= getattr(error, "delivery", "") == "unknown"
        self._sends += 1
        text = str(error)
        opening = self._method == "initialize"  # stands for any request that opens
        _log.warning(
            "[%s] %s again in %.2f s (attempt %d): %s",
            self._label,
            "connecting" if opening else f"sending {self._method}",
            pause,
            self._sends,
            text.partition(f"[{self._label}]: ")[2] or text,  # without the label and method
        )
        if self._rules.on_retry is not None:
            self._rules.on_retry(self._method)
        if self._on_attempt is not None:
            self._on_attempt(self._sends)

    def _delay(self, error: McpError, connection: Connection | None) -> float | None:
        if isinstance(error, SessionLost) and error.delivery != "unknown":
            # Once for each kind of delivery: refused with the session, or not sent.
            again = error.delivery not in self._sessions_renewed
            self._sessions_renewed.add(error.delivery)
            return 0.0 if again else None
        policy = self._rules.policy
        if policy is None or self._retries + 1 >= policy.attempts:
            return None
        if connection is None and not self._rules.reopens:
            return None
        if not may_retry(error, idempotent=self._idempotent or connection is None):
            return None
        if connection is not None and not connection.transport.blocking:
            pause = 0.0  # restarting a server has a backoff of its own
        else:
            pause = policy._delay_before(self._retries + 1, error)
        left = self._deadline.remaining()
        if left is not None and pause >= left:
            return None
        if monotonic() + pause - self._since > policy.budget:
            return None
        self._retries += 1
        return pause

    def annotate(self, error: McpError) -> None:
        """Set the number of attempts and the delivery of the whole request in its final error."""
        if self._sends > 1:
            error.attempts = self._sends
        if self._delivery_unknown:  # of an earlier attempt
            _set_delivery(error, "unknown")


def can_reconnect(connection: Connection) -> bool:
    """True if the next attempt can be made: over HTTP, or if the connection is dead.

    May block for a moment: a broken pipe is noticed before the death of the server.
    """
    return connection.transport.blocking or connection.wait_closed(_DYING_SECONDS)


def _set_delivery(error: Any, delivery: Delivery) -> None:
    if hasattr(error, "delivery"):
        error.delivery = delivery
