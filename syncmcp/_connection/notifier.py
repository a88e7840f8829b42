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

# A notification or an answer that cannot be sent within this many seconds is dropped.
POST_SECONDS = 30.0

# Requests that must not be cancelled by a notification (spec: "Cancellation").
_NEVER_CANCELLED = frozenset(("initialize", "server/discover"))


class Notifier:
    """Sends notifications and answers over one transport.

    Args:
        transport: The transport.
        wire: Records every frame.
        label: What errors and logs call the server.
        agreed: The negotiated state of the connection.
        interceptors: Shows the program's interceptors what the library sends by itself.
    """

    def __init__(
        self,
        transport: Transport,
        wire: WireLog,
        label: str,
        agreed: NegotiatedState,
        interceptors: InterceptorChain | None = None,
    ) -> None:
        self._transport = transport
        self._wire = wire
        self._label = label
        self._agreed = agreed
        self._interceptors = interceptors

    def notify(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification.

        Raises:
            NotSupported: The revision does not have this notification.
            McpError: It could not be sent.
        """
        dialect = self._agreed.dialect
        known = dialect.supports_notification(method)
        if not known and (not dialect.stateful or method in KNOWN_NOTIFICATIONS):
            raise NotSupported(
                f"revision {dialect.revision} has no such notification from a client",
                server=self._label,
                method=method,
            )
        self._send(
            self._transport.send, jsonrpc.encode_notification(method, params), method, deadline
        )

    def cancelled(self, id: int, method: str, error: RequestTimeout | RequestCancelled) -> None:
        """Send ``notifications/cancelled`` for a request, if the revision allows. Never blocks."""
        if method in _NEVER_CANCELLED:
            return
        dialect = self._agreed.current_dialect
        reason = getattr(error, "reason", None) or error.message
        if dialect is not None and dialect.notifies_cancel(own_stream=self._transport.blocking):
            self.post_notification("notifications/cancelled", {"requestId": id, "reason": reason})

    def roots_changed(self) -> None:
        """Send ``notifications/roots/list_changed``, if the revision has it. Never blocks."""
        dialect, method = self._agreed.current_dialect, "notifications/roots/list_changed"
        if dialect is not None and dialect.supports_notification(method):
            self.post_notification(method, None)

    def post_notification(
        self,
        method: str,
        params: dict[str, Any] | None,
        post: Callable[[bytes], object] | None = None,
    ) -> None:
        """Send a notification that the library makes, not the program. Never blocks.

        `post` sends it, if it must arrive in order with other frames; see `ordered_post`.
        """
        body = jsonrpc.encode_notification(method, params)
        if post is None:
            self.post(body, method)
        else:
            post(body)
        if self._interceptors is not None:
            self._interceptors.show_settled("outgoing", "notification", method, params=params)

    def post(self, body: bytes, method: str | None = None) -> None:
        """Send a frame without blocking; failures are only logged."""
        self._try_send(self._transport.post, body, method)

    def ordered_post(self, workers: DaemonPool) -> Callable[[bytes], None]:
        """Return a function like `post`, for frames that must arrive in order.

        Over HTTP each frame has an exchange of its own, and exchanges may overtake each other.
        """
        if self._transport.ordered:
            return self.post
        executor = SerialExecutor(workers)

        def post(body: bytes) -> None:
            executor.push(partial(self._try_send, self._transport.send, body, None))

        return post

    def _try_send(
        self, send: Callable[[Outgoing], object], body: bytes, method: str | None
    ) -> None:
        try:
            self._send(send, body, method, Deadline(POST_SECONDS))
        except McpError as error:  # mostly a lost connection, which its owner learns otherwise
            _log.debug("[%s] could not send %s: %s", self._label, method or "an answer", error)

    def _send(
        self,
        send: Callable[[Outgoing], object],
        body: bytes,
        method: str | None,
        deadline: Deadline,
    ) -> None:
        out = Outgoing(body, method, None, {}, deadline)
        out.submitted = True
        self._wire.record("sent", body)
        send(out)
