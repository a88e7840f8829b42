"""Finds the call that a server's message belongs to, also after it became a task (2025-11-25)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from syncmcp._connection.answering import NO_ANSWER
from syncmcp._protocol.jsonrpc import Notification, Request
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, RESULT, created_task_id, related_task_id

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import CallbackQueue
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import InboundRequest
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.transports.base import Outgoing

TASK_REQUESTS = frozenset((CANCEL, GET, RESULT))
"""The requests about a task whose responses are recorded here."""

MAX_REMEMBERED = 1024
"""How many calls that became tasks are remembered."""


class TaskCallTracker:
    """Remembers calls of one connection that became tasks, until the tasks have ended.

    No method blocks: they run on the thread that reads.
    """

    def __init__(self, table: RequestTable[PendingRequest], lock: threading.RLock) -> None:
        self._table = table
        self._lock = lock
        # The calls by task id: the server may still send their progress.
        self._task_calls: dict[str, PendingRequest] = {}

    def answered(self, call: PendingRequest, result: Any) -> list[CallbackQueue]:
        """Record a response; return the callback queues that must be empty before it is settled."""
        before = [] if call.callback_queue is None else [call.callback_queue]
        asked_for_task = asks_for_task(call)
        if not (asked_for_task or call.method in TASK_REQUESTS) or not isinstance(result, dict):
            return before
        with self._lock:
            if asked_for_task:
                task = created_task_id(result)
                if task is not None:
                    self._task_calls[task] = call
                    if len(self._task_calls) > MAX_REMEMBERED:
                        del self._task_calls[next(iter(self._task_calls))]
                return before
            # Else the call is remembered until the result of the task, which follows all progress.
            cancelled = result.get("status") == "cancelled"
            task = (call.params or {}).get("taskId") if cancelled or call.method == RESULT else None
            began = self._task_calls.pop(task, None) if task is not None else None
            questions = self._open_questions(task) if cancelled else []
        if began is not None and began.callback_queue is not None:
            before.append(began.callback_queue)
        for question in questions:  # the server may not cancel them itself
            question.cancel("the task was cancelled", told=NO_ANSWER)
        return before

    def _open_questions(self, task: object) -> list[InboundRequest]:
        """The open questions of a task (2025-11-25); called with the lock held."""
        return [
            question
            for call in self._table.open_calls()
            if call.method == RESULT and (call.params or {}).get("taskId") == task
            for question, certain in call.questions.items()
            if certain
        ]

    def progress_owner(self, token: object) -> PendingRequest | None:
        """The call whose task uses this progress token; called with the lock held."""
        for call in self._task_calls.values():
            if call.id == token and type(token) is int:
                return call
        return None

    def owner(self, message: object, out: Outgoing | None) -> tuple[PendingRequest | None, bool]:
        """The call that a server's message belongs to, and whether that is certain.

        Called with the lock held. `out` is our request on whose HTTP stream the message came.
        """
        if isinstance(message, Notification) and message.method == "notifications/progress":
            token = message.params.get("progressToken")
            return self._table.get(token) or self.progress_owner(token), True
        task = related_task_id(message.params) if isinstance(message, Request) else None
        if task is not None:
            for call in self._table.open_calls():
                if call.method == RESULT and (call.params or {}).get("taskId") == task:
                    return call, True
            if task in self._task_calls:
                return self._task_calls[task], True
        if out is None:
            return self._table.sole_call(), False
        return self._table.get(out.id), True


def asks_for_task(call: PendingRequest) -> bool:
    """Whether a call asks to become a task."""
    return call.method == AUGMENTED and "task" in (call.params or {})
