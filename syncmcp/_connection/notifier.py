"""Frames that no thread waits for: our notifications, and answers to the server's requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._base.text import logger
from syncmcp._concurrency import budget
from syncmcp._concurrency.pool import DaemonPool, SerialExecutor
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.revisions import KNOWN_NOTIFICATIONS
from syncmcp.errors import LimitExceeded, McpError, NotSupported
from syncmcp.transports.base import Outgoing, Receiver, Transport

if TYPE_CHECKING:
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.wire_log import WireLog


_log = logger("syncmcp.connection")

POST_SECONDS = 30.0
"""The time limit, in seconds, of sending an answer or notification; after that it is dropped."""

# The most answers of handlers that are sent at the same time over HTTP.
_ANSWERING_THREADS = 64

# The time limit, in seconds, of closing a transport that has too many unsent frames.
_CLOSE_SECONDS = 5.0

# Requests that must not be cancelled by a notification (spec: "Cancellation").
_NEVER_CANCELLED = frozenset(("initialize", "server/discover"))


class Notifier:
    """Sends notifications and answers over one transport.

    `owed` counts the unsent frames of the library itself: answers, errors, cancellations, progress.
    Their number and size are bounded. If a server causes more of them, and does not read them, the
    client ends the connection.
    """

    def __init__(
        self,
        transport: Transport,
        receiver: Receiver,
        wire: WireLog,
        services: ClientServices,
        agreed: NegotiatedState,
        interceptors: InterceptorChain | None = None,
    ) -> None:
        most, size = budget.MAX_OWED, budget.MAX_BYTES
        self.owed = budget.Budget(size, most, f"{most} messages or {size} bytes")
        # Guards the flag, so that the connection is ended only once.
        self._lock = threading.RLock()
        self._overflowed = False
        self.transport = transport
        self._receiver = receiver
        self._wire = wire
        self._label = label = services.label
        self._services = services
        self._agreed = agreed
        self._interceptors = interceptors
        # Not the workers of the client: answers that the server does not read would block them.
        self._answering = DaemonPool(f"syncmcp-answer[{label}]", _ANSWERING_THREADS)

    def facts(self) -> dict[str, int]:
        """The number and size of the unsent frames; see `Dump`."""
        return {"owed": self.owed.items, "owed bytes": self.owed.used}

    def close(self) -> None:
        """End idle threads after the end of the connection. Never blocks."""
        self._answering.close()

    def notify(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification; `NotSupported` if the revision does not have it."""
        dialect = self._agreed.dialect
        known = dialect.supports_notification(method)
        if not known and (not dialect.stateful or method in KNOWN_NOTIFICATIONS):
            raise NotSupported(
                f"clients cannot send this notification in revision {dialect.revision}",
                server=self._label,
                method=method,
            )
        out = Outgoing(jsonrpc.encode_notification(method, params), method, None, (), {}, deadline)
        self._send(self.transport.send, out)

    def cancelled(self, id: int, method: str, error: McpError) -> None:
        """Send ``notifications/cancelled`` for a request, if the revision allows. Never blocks."""
        if method in _NEVER_CANCELLED:
            return
        dialect = self._agreed.current_dialect
        reason = getattr(error, "reason", None) or error.message
        if dialect is not None and dialect.notifies_cancel(own_stream=self.transport.blocking):
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
        """Send a notification of the library itself, not of the program. Never blocks.

        `post` is given if it must arrive in order with other frames; see `ordered_post`.
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
        out = self._owe(body, method)
        if out is not None:
            self._try_send(self.transport.post, out)

    def ordered_post(self) -> Callable[[bytes], None]:
        """Return a function like `post`, for frames that must arrive in order.

        Over HTTP each frame has an exchange of its own, and exchanges may overtake each other.
        """
        if self.transport.ordered:
            return self.post
        executor = SerialExecutor(self._answering)

        def post(body: bytes) -> None:
            out = self._owe(body, None)
            if out is not None:
                executor.push(partial(self._send_in_order, out))

        return post

    def _send_in_order(self, out: Outgoing) -> None:
        """Send a frame on a pool thread, and stop counting it."""
        try:
            self._try_send(self.transport.send, out)
        finally:
            out.leave()

    def _owe(self, body: bytes, method: str | None) -> Outgoing | None:
        """Make a frame and count it as unsent; `None` if the server has too many unsent frames."""
        out = Outgoing(body, method, None, (), {}, Deadline(POST_SECONDS))
        try:
            out.enter(self.owed)
        except LimitExceeded as error:
            with self._lock:
                first, self._overflowed = not self._overflowed, True
            if first:
                # On another thread: this one may hold locks, and closing may block.
                self._answering.run(partial(self._give_up, error), at_once=True)
            return None
        return out

    def _give_up(self, error: LimitExceeded) -> None:
        """End the connection: its calls fail with the error, and no more frames are read."""
        self._receiver.lost(error)
        self.transport.close(Deadline(_CLOSE_SECONDS))

    def _try_send(self, send: Callable[[Outgoing], object], out: Outgoing) -> None:
        try:
            self._send(send, out)
        except McpError as error:  # mostly a lost connection, for which the calls fail
            out.leave()
            text, what = "[%s] could not send %s: %s", out.method or "an answer"
            self._services.note(_log, logging.DEBUG, text, what, error)

    def _send(self, send: Callable[[Outgoing], object], out: Outgoing) -> None:
        out.submitted = True
        self._wire.record("sent", out.body)
        send(out)
