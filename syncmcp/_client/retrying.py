"""One request and its repetitions: counts them, logs them, says how it ended."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from syncmcp._client.retry import Retry, may_repeat
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._protocol.capabilities import HARMLESS
from syncmcp.errors import McpError, SessionLost

if TYPE_CHECKING:
    from collections.abc import Iterable

    from syncmcp._connection.connection import Connection
    from syncmcp._connection.options import Options
    from syncmcp._protocol.steps import Send
    from syncmcp.errors import Delivery
    from syncmcp.types import Tool

_log = logging.getLogger("syncmcp.retry")

# A server whose stdin is broken is as good as dead; the news of it comes within this time.
_DYING_SECONDS = 0.2


class Repeatable:
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

    def is_harmless(self, send: Send, options: Options) -> bool:
        """Whether a request may be done twice."""
        if options.idempotent or send.method in HARMLESS:
            return True
        name = (send.params or {}).get("name")
        return (
            send.method == "tools/call" and isinstance(name, str) and self._tools.get(name, False)
        )


class Repetition:
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
        options: Options,
        deadline: Deadline,
        repeatable: Repeatable,
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
    return connection.transport.blocking or connection.wait_dead(_DYING_SECONDS)


def _set_delivery(error: Any, delivery: Delivery) -> None:
    """Say how far the request came, in an error that says so."""
    if hasattr(error, "delivery"):
        error.delivery = delivery
