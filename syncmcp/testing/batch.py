"""JSON-RPC batches (2025-03-26): an array in, an array out, the order kept."""

from __future__ import annotations

import threading
from typing import Any

from syncmcp.testing import wire
from syncmcp.testing.call import Outlet
from syncmcp.testing.revisions import BATCHING
from syncmcp.testing.wire import INVALID_REQUEST, Message, RpcError

MOST_MESSAGES = 100


def check(messages: list[Any], revision: str | None) -> None:
    """Refuse a batch as a whole.

    Raises:
        RpcError: The revision has no batches, or it is empty or too long (code -32600).
    """
    if revision != BATCHING:
        raise RpcError(INVALID_REQUEST, f"Batches exist in {BATCHING} only")
    if not messages:
        raise RpcError(INVALID_REQUEST, "An empty batch")
    if len(messages) > MOST_MESSAGES:
        raise RpcError(INVALID_REQUEST, f"More than {MOST_MESSAGES} messages in a batch")


class BatchOutlet:
    """Collects the answers of one batch; the requests of a batch run side by side."""

    def __init__(self, outlet: Outlet, size: int) -> None:
        self._outlet = outlet
        self._lock = threading.Lock()  # Guards the two below.
        self._answers: list[Message | None] = [None] * size
        self._missing = size

    def slot(self, index: int) -> Outlet:
        """Return where the request at `index` answers."""
        return _Slot(self, self._outlet, index)

    def settle(self, index: int, message: Any) -> None:
        """Keep one answer; the last one sends them all."""
        with self._lock:
            self._answers[index] = message
            self._missing -= 1
            last = self._missing == 0
        if last:
            answers = [answer for answer in self._answers if answer is not None]
            self._outlet.finish(answers or None)


class _Slot:
    def __init__(self, batch: BatchOutlet, outlet: Outlet, index: int) -> None:
        self._batch = batch
        self._outlet = outlet
        self._index = index

    def send(self, message: Message) -> None:
        self._outlet.send(message)

    def finish(self, message: Message | list[Message] | None) -> None:
        self._batch.settle(self._index, message)

    def interrupt(self, retry_ms: int | None) -> None:
        self._outlet.interrupt(retry_ms)


def is_answered(message: Any) -> bool:
    """Return whether a member of a batch gets an answer: a request, or nothing valid."""
    if not isinstance(message, dict):
        return True
    if "method" in message:
        return "id" in message
    return not ("result" in message or "error" in message)


def refusal(message: Any, reason: str) -> Message:
    """Return the answer to a member that may not stand in a batch."""
    identifier = message.get("id") if isinstance(message, dict) else None
    known = identifier if wire.is_identifier(identifier) else None
    return wire.failure(known, RpcError(INVALID_REQUEST, reason))
