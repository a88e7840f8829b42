"""Frames that no thread waits for: our notifications, and answers to the server's requests."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.pool import DaemonPool, SerialExecutor
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.revisions import KNOWN_NOTIFICATIONS
from syncmcp.errors import McpError, NotSupported
from syncmcp.transports.base import Outgoing, Transport

if TYPE_CHECKING:
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.wire_log import WireLog
    from syncmcp.errors import RequestCancelled, RequestTimeout


_log = logging.getLogger("syncmcp.connection")

# A notice or an answer that cannot be sent within this many seconds is given up.
POST_SECONDS = 30.0

# The server is not told of their end: these are never cancelled (spec: "Cancellation").
_NEVER_CANCELLED = frozenset(("initialize", "server/discover"))


class Notifier:
    """Sends notifications and answers over one transport.

    Args:
        transport: What carries them.
        wire: Takes note of each.
        label: What errors and logs call the server.
        agreed: Says which revision is spoken, once that is known.
        interception: Shows interceptors what the library says by itself.
    """

    def __init__(
        self,
        transport: Transport,
        wire: WireLog,
        label: str,
        agreed: NegotiatedState,
        interception: InterceptorChain | None = None,
    ) -> None:
        self._transport = transport
        self._wire = wire
        self._label = label
        self._agreed = agreed
        self._interception = interception

    def tell(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification.

        Raises:
            NotSupported: The revision has no such notification, or none at all.
            McpError: It could not be sent.
        """
        dialect = self._agreed.dialect
        known = dialect.has_notification(method)
        if not known and (not dialect.stateful or method in KNOWN_NOTIFICATIONS):
            raise NotSupported(
                f"revision {dialect.revision} has no such notification from a client",
                server=self._label,
                method=method,
            )
        body = jsonrpc.encode_notification(method, params)
        out = Outgoing(body, method, None, {}, deadline)
        self._wire.sent(out)
        self._transport.send(out)

    def cancelled(self, id: int, method: str, error: RequestTimeout | RequestCancelled) -> None:
        """Say that we no longer wait for an answer, and why, where that is said. Never blocks."""
        if method in _NEVER_CANCELLED:
            return
        dialect, reason = self._agreed.spoken, getattr(error, "reason", None) or error.message
        if dialect is not None and dialect.announces_cancel(own_stream=self._transport.blocking):
            self._post_notification("notifications/cancelled", {"requestId": id, "reason": reason})

    def roots_changed(self) -> None:
        """Say that the roots have changed, where that is said. Never blocks."""
        dialect, method = self._agreed.spoken, "notifications/roots/list_changed"
        if dialect is not None and dialect.has_notification(method):
            self._post_notification(method, None)

    def _post_notification(self, method: str, params: dict[str, Any] | None) -> None:
        self.post(jsonrpc.encode_notification(method, params), method)
        if self._interception is not None:
            self._interception.settled("outgoing", "notification", method, params=params)

    def post(self, body: bytes, method: str | None = None) -> None:
        """Send a frame without blocking; nobody waits for it."""
        self._attempt(self._transport.post, body, method)

    def line(self, workers: DaemonPool) -> Callable[[bytes], None]:
        """Something like `post` for frames that must arrive one after another.

        Over HTTP each frame has an exchange of its own, and those may overtake each other.
        """
        if self._transport.ordered:
            return self.post
        lane = SerialExecutor(workers)

        def post(body: bytes) -> None:
            lane.push(partial(self._attempt, self._transport.send, body, None))

        return post

    def _attempt(self, send: Callable[[Outgoing], object], body: bytes, method: str | None) -> None:
        out = Outgoing(body, method, None, {}, Deadline(POST_SECONDS))
        self._wire.sent(out)
        try:
            send(out)
        except McpError as error:  # when the connection is gone nobody misses it
            _log.debug("[%s] could not send %s: %s", self._label, method or "an answer", error)
