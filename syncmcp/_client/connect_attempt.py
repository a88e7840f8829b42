"""One thread's attempt to open the connection of a client, for which the other threads wait."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from syncmcp.errors import (
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    TransportError,
    UsageError,
    fresh,
)

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.timing import Deadline


class ConnectAttempt:
    """An attempt to open a connection. The threads that wait for it get its failure.

    If the call that makes the attempt is cancelled, it ends, and one of the waiting threads makes
    the next one.

    Attributes:
        thread: The thread that makes the attempt, by its id.
        cancel: The token of the call that makes the attempt.
        failure: The error of the attempt, once it has failed for all threads.
    """

    def __init__(self, label: str, cancel: CancelToken | None) -> None:
        self.thread = threading.get_ident()
        self.cancel = cancel
        self.failure: McpError | None = None
        self._label = label

    @property
    def cancelled(self) -> bool:
        """Whether the call that makes the attempt was cancelled."""
        return self.cancel is not None and self.cancel.cancelled

    def check_wanted(self) -> None:
        """Raise `RequestCancelled` if the call that makes the attempt was cancelled."""
        if self.cancel is not None:
            self.cancel.raise_if_cancelled()

    def fail(self, error: McpError) -> McpError:
        """Store an error of the attempt for the waiting threads; return the one to raise.

        A cancel of the call shows as whatever error its end has led to. It is not the failure of
        the waiting threads.
        """
        if self.cancel is not None and self.cancelled:
            if isinstance(error, RequestCancelled):
                return error
            reason = self.cancel.reason
            return RequestCancelled(
                "cancelled", reason=reason, delivery="not_sent", server=self._label
            )
        if isinstance(error, (TransportError, ProtocolError, ServerError)):
            self.failure = fresh(error)
        return error

    def wait(
        self, changed: threading.Condition, deadline: Deadline, cancel: CancelToken | None
    ) -> None:
        """Wait for a change, on a thread that needs the connection, too; raise the failure, if any.

        `changed`, which is held, is notified when the attempt has ended, and when `cancel` is
        cancelled.
        """
        if self.thread == threading.get_ident():
            raise UsageError(
                "an interceptor cannot call a client that is being opened", server=self._label
            )
        if cancel is not None:
            cancel.raise_if_cancelled()
        if not changed.wait(deadline.remaining()):
            raise RequestTimeout(
                "the connection was not open in time",
                kind="open",
                seconds=deadline.seconds,
                server=self._label,
                delivery="not_sent",
            )
        if self.failure is not None:
            raise fresh(self.failure)
