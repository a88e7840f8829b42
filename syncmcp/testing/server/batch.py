"""JSON-RPC batches (2025-03-26): an array in, an array out, the order kept."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from syncmcp.testing.server import wire
from syncmcp.testing.server.call import Outlet
from syncmcp.testing.server.revisions import BATCHING
from syncmcp.testing.server.wire import INTERNAL_ERROR, INVALID_REQUEST, Message, RpcError


@dataclass(frozen=True)
class Batches:
    """How a server takes batches.

    Attributes:
        parallel: Whether the requests of a batch run side by side; otherwise each begins when the
            one before it is answered.
        max_size: How many messages a batch may hold; a larger one is refused as a whole.
        timeout: Seconds after which what has no answer yet is cancelled and refused (-32603);
            `None` for no limit.
        together: Whether the answers come in one array when all are there; otherwise each comes
            as a message of its own when it is there (not over HTTP that answers as JSON alone).
    """

    parallel: bool = True
    max_size: int = 100
    timeout: float | None = None
    together: bool = True


TOGETHER: Final = Batches()
"""How they are taken unless a server is told otherwise."""


def check(messages: list[Any], revision: str | None, batches: Batches) -> None:
    """Refuse a batch as a whole.

    Raises:
        RpcError: The revision has no batches, or it is empty or too long (code -32600).
    """
    if revision != BATCHING:
        raise RpcError(INVALID_REQUEST, f"Batches exist in {BATCHING} only")
    if not messages:
        raise RpcError(INVALID_REQUEST, "An empty batch")
    if len(messages) > batches.max_size:
        raise RpcError(INVALID_REQUEST, f"More than {batches.max_size} messages in a batch")


class BatchOutlet:
    """Collects the answers of one batch.

    Args:
        outlet: Where they go.
        requests: Those that are answered.
        together: Whether all answers go at once.
        settled: Told of each answer.
    """

    def __init__(
        self,
        outlet: Outlet,
        requests: Sequence[Any],
        *,
        together: bool,
        settled: Callable[[], None],
    ) -> None:
        self._outlet = outlet
        self._requests = requests
        self._together = together
        self._settled = settled
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()  # Guards the two below.
        self._answers: list[Message | None] = [None] * len(requests)
        self._missing = set(range(len(requests)))

    def slot(self, index: int) -> Outlet:
        """Return where the request at `index` answers."""
        return _Slot(self, self._outlet, index)

    def end_after(self, seconds: float, cancel: Callable[[Any], None]) -> None:
        """Refuse what has no answer after so many seconds, and `cancel(request)` it."""

        def end() -> None:
            with self._lock:
                late = sorted(self._missing)
            error = RpcError(INTERNAL_ERROR, f"The batch took longer than {seconds:g} s")
            for index in late:
                request = self._requests[index]
                self.settle(index, wire.failure(_id_of(request), error))
                cancel(request)

        self._timer = threading.Timer(seconds, end)
        self._timer.name = "syncmcp-testing-batch"
        self._timer.daemon = True
        self._timer.start()

    def settle(self, index: int, message: Any) -> None:
        """Keep one answer, or send it; the last one sends them all."""
        with self._lock:
            if index not in self._missing:
                return
            self._missing.remove(index)
            self._answers[index] = message
            last = not self._missing
        if last and self._timer is not None:
            self._timer.cancel()
        if self._together:
            if last:
                self._outlet.finish([each for each in self._answers if each is not None] or None)
        elif last:
            self._outlet.finish(message)
        elif message is not None:
            self._outlet.send(message)
        self._settled()


class Turns:
    """Takes steps one after another: each when the one before it has ended."""

    def __init__(self) -> None:
        self.steps: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()  # Guards the two below.
        self._due = 0
        self._busy = False

    def next(self) -> None:
        """Take the next step: here, or where one is being taken at this moment."""
        with self._lock:
            self._due += 1
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                if not self._due or not self.steps:
                    self._busy = False
                    return
                self._due -= 1
                step = self.steps.popleft()
            step()


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
    return wire.failure(_id_of(message), RpcError(INVALID_REQUEST, reason))


def _id_of(message: Any) -> str | int | None:
    identifier = message.get("id") if isinstance(message, dict) else None
    return identifier if wire.is_identifier(identifier) else None
