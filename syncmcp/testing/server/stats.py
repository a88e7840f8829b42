"""What the server has seen, and a way to wait for it without sleeping."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable


class Stats:
    """Counters of one server; read them under `with stats:` or through `wait_for`.

    Attributes:
        requests: Requests received, by method.
        notifications: Notifications received, by method.
        cancels: Request ids named by `notifications/cancelled`, in the order received.
        cancelled: Calls that were stopped before they answered, for whatever reason.
        disconnects: HTTP calls whose client went away before the answer.
        replies: Answers sent (results and errors).
        errors: Answers sent that were JSON-RPC errors.
        responses: Answers received to the server's own requests.
        late_answers: Those of them that came after the question was withdrawn.
        questions: Questions asked, by method, in either era.
        tasks: Tasks that have not ended.
        paused: Tools waiting for the retry of their request (2026-07-28).
        violations: What clients did that the protocol forbids, one sentence each.
        running: Calls being served now.
        sessions: Sessions open now (connections in memory, stdio, stateful HTTP sessions).
        opened: Sessions opened so far.
        listeners: Open `subscriptions/listen` streams.
        streams: HTTP event streams being read now.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self.requests: Counter[str] = Counter()
        self.notifications: Counter[str] = Counter()
        self.cancels: list[str | int] = []
        self.cancelled = 0
        self.disconnects = 0
        self.replies = 0
        self.errors = 0
        self.responses = 0
        self.late_answers = 0
        self.questions: Counter[str] = Counter()
        self.tasks = 0
        self.paused = 0
        self.violations: list[str] = []
        self.running = 0
        self.sessions = 0
        self.opened = 0
        self.listeners = 0
        self.streams = 0

    def __enter__(self) -> Stats:
        self._changed.acquire()
        return self

    def __exit__(self, *exception: object) -> None:
        # Whoever held the lock may have changed something.
        self._changed.notify_all()
        self._changed.release()

    def blame(self, violation: str) -> None:
        """Record a breach of the protocol by a client."""
        with self:
            self.violations.append(violation)

    def wait_for(self, predicate: Callable[[Stats], bool], timeout: float = 10.0) -> bool:
        """Wait until `predicate(stats)` is true.

        Args:
            predicate: Called under the lock; must not block.
            timeout: Seconds to wait at most.

        Returns:
            Whether it became true.
        """
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self), timeout)
