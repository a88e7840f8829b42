"""What a tool sees of the request it serves."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp.testing import wire
from syncmcp.testing.wire import INVALID_PARAMS, Message, RpcError

if TYPE_CHECKING:
    from syncmcp.testing.session import Session

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


def check_level(level: object) -> str:
    """Return `level` if it is a log level of the protocol.

    Raises:
        RpcError: It is not (code -32602).
    """
    if not isinstance(level, str) or level not in LEVELS:
        raise RpcError(INVALID_PARAMS, f"Unknown log level: {level!r}")
    return level


class Outlet(Protocol):
    """Where the messages that belong to one request go."""

    def send(self, message: Message) -> None:
        """Send a message that comes before the answer."""

    def finish(self, message: Message | list[Message] | None) -> None:
        """Send the answer, or say that none will come."""

    def interrupt(self, retry_ms: int | None) -> None:
        """Close the stream early, where there is one that can be taken up again."""


class ToolContext:
    """The request being served. A parameter annotated `ToolContext` receives it.

    Its methods may be called from any thread. After the request was answered or cancelled
    they send nothing.

    Attributes:
        method: The request's method.
        params: The request's params, as received.
        request_id: The request's id.
        revision: The protocol revision the request is served under.
        meta: The request's `_meta` (`{}` when absent).
        client_info: What the client said of itself, or `None`.
        client_capabilities: What the client can do, as it declared it.
        cancelled: Set when the caller gave up: by `notifications/cancelled`, by closing the
            response stream (2026-07-28 over HTTP) or by ending the session.
        cancel_reason: The reason given with `notifications/cancelled`, if any.
        session: The session the request came in, `None` where there is none
            (2026-07-28 over HTTP).
        batch: Position and size `(index, size)` when the request came in a JSON-RPC batch.
    """

    def __init__(
        self,
        request_id: str | int,
        method: str,
        params: Message,
        outlet: Outlet,
        *,
        revision: str,
        session: Session | None,
        client_capabilities: Message,
        client_info: Message | None,
        log_level: str | None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        self.request_id = request_id
        self.method = method
        self.params = params
        self.revision = revision
        self.meta = wire.meta_of(params)
        self.session = session
        self.client_capabilities = client_capabilities
        self.client_info = client_info
        self.cancelled = threading.Event()
        self.cancel_reason: str | None = None
        self.batch = batch
        self._outlet = outlet
        self._log_level = log_level
        # Guards `_open`: the answer and the cancellation race, and one of them wins. Nothing is
        # sent under it, for what receives a message may call back into this session.
        self._lock = threading.Lock()
        self._open = True
        self._at_end: list[Callable[[ToolContext], None]] = []

    @property
    def session_id(self) -> str | None:
        """The session's id over stateful HTTP, else `None`."""
        return self.session.id if self.session is not None else None

    def can(self, feature: str) -> bool:
        """Return whether the client declared `feature`: "sampling", "elicitation", "roots"."""
        return feature in self.client_capabilities

    def report_progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Send `notifications/progress`; nothing is sent unless the caller gave a token.

        Args:
            progress: How far the work is; must grow from call to call.
            total: Where it ends, if known.
            message: What is happening, briefly (not sent before 2025-03-26).
        """
        token = self.meta.get("progressToken")
        if not wire.is_identifier(token):
            return
        params: Message = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None and self.revision != "2024-11-05":
            params["message"] = message
        self.notify("notifications/progress", params)

    def log(self, level: str, data: Any, logger: str | None = None) -> None:
        """Send `notifications/message` if the client wants this level.

        Stateful revisions: at or above the level of `logging/setLevel`, "info" before that.
        2026-07-28: only when the request's `_meta` asked, at or above the level it named.

        Raises:
            RpcError: `level` is not a level of the protocol.
        """
        wanted = self._log_level
        if self.session is not None and self.session.revision == self.revision:
            wanted = self.session.log_level
        rank = LEVELS.index(check_level(level))
        if wanted is None or rank < LEVELS.index(wanted):
            return
        params: Message = {"level": level, "data": data}
        if logger is not None:
            params["logger"] = logger
        self.notify("notifications/message", params)

    def notify(self, method: str, params: Message | None = None) -> None:
        """Send any notification on the stream of this request."""
        if self._open:
            self._outlet.send(wire.notification(method, params))

    def request(
        self, method: str, params: Message | None = None, *, timeout: float = 30.0
    ) -> Message:
        """Ask the client something and wait for its result (stateful revisions).

        Args:
            method: For example "sampling/createMessage" or "roots/list".
            params: The request's params.
            timeout: Seconds to wait at most.

        Raises:
            RpcError: The client answered with an error, or the revision has no such direction.
            TimeoutError: No answer came in time.
            ConnectionError: The session ended first.
        """
        if self.session is None or self.session.revision != self.revision:
            raise RpcError(wire.INTERNAL_ERROR, f"{self.revision} has no requests from servers")
        return self.session.ask(method, params, timeout=timeout, send=self._outlet.send)

    def close_stream(self, retry_ms: int | None = None) -> None:
        """Drop the HTTP event stream of this call while it goes on (2025-11-25, polling).

        The client comes back with `Last-Event-ID` and receives what it missed. Elsewhere this
        does nothing.

        Args:
            retry_ms: Milliseconds the client is told to wait before it comes back.
        """
        if self._open:
            self._outlet.interrupt(retry_ms)

    def answer(self, message: Message) -> bool:
        """Send the answer, unless the call was cancelled; return whether it was sent."""
        if not self._take():
            return False
        self._ended()
        self._outlet.finish(message)
        return True

    def cancel(self, reason: str | None = None) -> bool:
        """Stop the call and suppress its answer; return whether it was still open."""
        if not self._take():
            return False
        self.cancel_reason = reason
        self.cancelled.set()
        self._ended()
        self._outlet.finish(None)
        return True

    def at_end(self, function: Callable[[ToolContext], None]) -> None:
        """Have `function(context)` called when the call is answered or cancelled.

        It runs on the thread that ends the call, before the answer is sent, and must not
        block. Register it before the call starts.
        """
        self._at_end.append(function)

    def _take(self) -> bool:
        with self._lock:
            was_open, self._open = self._open, False
        return was_open

    def _ended(self) -> None:
        for function in self._at_end:
            function(self)
