"""One request on the wire, from its arrival to its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from syncmcp.testing.server import wire
from syncmcp.testing.server.wire import Message

if TYPE_CHECKING:
    from syncmcp.testing.server.session import Session


class Outlet(Protocol):
    """Where the messages that belong to one request go."""

    def send(self, message: Message) -> None:
        """Send a message that comes before the answer."""

    def finish(self, message: Message | list[Message] | None) -> None:
        """Send the answer, or say that none will come."""

    def interrupt(self, retry_ms: int | None) -> None:
        """Close the stream early, where there is one that can be taken up again."""


class Call:
    """A request being served. In 2026-07-28 a tool that asks is served by several, in turn.

    Its methods may be called from any thread. Of an answer and a cancellation that race, one
    wins; after that nothing is sent.

    Attributes:
        request_id: The request's id.
        method: Its method.
        params: Its params, as received.
        revision: The protocol revision it is served under.
        session: The session it came in, `None` where there is none (2026-07-28 over HTTP).
        client_capabilities: What the client can do, as it declared it.
        client_info: What the client said of itself, or `None`.
        log_level: The level its `_meta` asked for (2026-07-28), or `None`.
        batch: Position and size `(index, size)` when it came in a JSON-RPC batch.
        cancelled: Set when the caller gave up.
        cancel_reason: The reason given with `notifications/cancelled`, if any.
    """

    def __init__(
        self,
        message: Message,
        outlet: Outlet,
        *,
        revision: str,
        session: Session | None,
        client_capabilities: Message,
        client_info: Message | None,
        log_level: str | None = None,
        batch: tuple[int, int] | None = None,
    ) -> None:
        self.request_id: str | int = message["id"]
        self.method: str = message["method"]
        self.params = wire.params_of(message)
        self.revision = revision
        self.session = session
        self.client_capabilities = client_capabilities
        self.client_info = client_info
        self.log_level = log_level
        self.batch = batch
        self.cancelled = threading.Event()
        self.cancel_reason: str | None = None
        self._outlet = outlet
        # Guards `_open` and `_at_end`. Nothing is sent under it, for what receives a message
        # may call back into this session.
        self._lock = threading.Lock()
        self._open = True
        self._at_end: list[Callable[[Call], None]] = []

    @property
    def open(self) -> bool:
        """Whether it was neither answered nor cancelled."""
        return self._open

    def send(self, message: Message) -> bool:
        """Send a message on the stream of this request; return whether it was still open."""
        # Read once: what is sent may make the client give the call up.
        if not self._open:
            return False
        self._outlet.send(message)
        return True

    def notify(self, method: str, params: Message | None = None) -> bool:
        """Send a notification as `send` does."""
        return self.send(wire.notification(method, params))

    def interrupt(self, retry_ms: int | None) -> None:
        """Close the stream early, where there is one that can be taken up again."""
        if self._open:
            self._outlet.interrupt(retry_ms)

    def answer(self, message: Message) -> bool:
        """Send the answer, unless the call was cancelled; return whether it was sent."""
        if not self._end():
            return False
        self._outlet.finish(message)
        return True

    def cancel(self, reason: str | None = None) -> bool:
        """Stop the call and suppress its answer; return whether it was still open."""
        if not self._end(cancelled=True, reason=reason):
            return False
        self._outlet.finish(None)
        return True

    def at_end(self, function: Callable[[Call], None]) -> None:
        """Have `function(call)` called when the call is answered or cancelled.

        It runs on the thread that ends the call, before the answer is sent, or at once if the
        call has ended. It must not block.
        """
        with self._lock:
            if self._open:
                self._at_end.append(function)
                return
        function(self)

    def _end(self, *, cancelled: bool = False, reason: str | None = None) -> bool:
        with self._lock:
            if not self._open:
                return False
            self._open = False
            # Under the lock: who registers with `at_end` later must find it set.
            if cancelled:
                self.cancel_reason = reason
                self.cancelled.set()
            functions = list(self._at_end)
        for function in functions:
            function(self)
        return True
