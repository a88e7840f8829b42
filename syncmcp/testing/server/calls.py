"""One request on the wire, from its arrival to its answer; and batches of them (2025-03-26)."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from syncmcp.testing.server import wire
from syncmcp.testing.server.wire import BATCHING, INTERNAL_ERROR, INVALID_REQUEST, Message, RpcError

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


# JSON-RPC batches (2025-03-26): an array in, an array out, the order kept.


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


# Daemon threads that run tools: one per call, kept a moment for the next call.


_IDLE_SECONDS = 0.1

Job = Callable[[], None]


class Workers:
    """Runs each job at once on a thread of its own; a blocked job delays no other.

    An idle thread is used again, which is several times quicker than starting one.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._releases = 0

    def run(self, job: Job) -> None:
        """Start `job` on an idle thread or a new one. It must not raise."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            releases = self._releases
        if worker is None:
            worker = _Worker(self._name, self._rest, self._retire)
        worker.jobs.put((job, releases))

    def release(self) -> None:
        """End the idle threads and wait for them; the busy ones end with their job."""
        with self._lock:
            self._releases += 1
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.jobs.put(None)
        for worker in idle:
            if worker.thread is not threading.current_thread():
                worker.thread.join()

    def _rest(self, worker: _Worker, releases: int) -> bool:
        """Keep a worker for the next job; false when there was a release since its last began."""
        with self._lock:
            if releases != self._releases:
                return False
            self._idle.append(worker)
            return True

    def _retire(self, worker: _Worker) -> bool:
        """Take an idle worker out of use; false when a job is already on its way to it."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True


class _Worker:
    def __init__(
        self,
        name: str,
        rest: Callable[[_Worker, int], bool],
        retire: Callable[[_Worker], bool],
    ) -> None:
        self.jobs: queue.SimpleQueue[tuple[Job, int] | None] = queue.SimpleQueue()
        self._rest = rest
        self._retire = retire
        self.thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self.thread.start()

    def _loop(self) -> None:
        while True:
            try:
                order = self.jobs.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._retire(self):
                    return
                continue
            if order is None:
                return
            job, releases = order
            job()
            del order, job  # A resting thread must not keep the last call alive.
            if not self._rest(self, releases):
                return
