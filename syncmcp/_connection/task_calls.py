"""Calls that became tasks: what the server still sends for them (2025-11-25 and 2026-07-28)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.jsonrpc import Request, own_id
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, RESULT, created_task_id, related_task_id
from syncmcp.errors import RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import CallbackQueue
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.transports.base import Outgoing

_CANCELLED = (RequestCancelled, RequestTimeout)

_TASK_METHODS = frozenset((AUGMENTED, CANCEL, GET, RESULT))

LINGER = 30.0
"""How long, in seconds, the response to a cancelled call is read that asked to become a task."""

MAX_REMEMBERED = 1024
"""How many calls that became tasks are remembered, and how many cancelled ones."""


class TaskCallTracker:
    """Remembers calls of one connection that became tasks, until the tasks have ended.

    No method blocks: they run on the thread that reads.

    Args:
        services: Has the client, which is notified of tasks.
        table: The open requests of the connection.
        agreed: The negotiated state of the connection.
        lock: The connection's, which guards this object, too.
        blocking: Whether a response is read only while a thread waits for it, as over HTTP.
    """

    def __init__(
        self,
        services: ClientServices,
        table: RequestTable[PendingRequest, OpenQuestion],
        agreed: NegotiatedState,
        lock: threading.RLock,
        blocking: bool,
    ) -> None:
        self._services = services
        self._table = table
        self._agreed = agreed
        self._lock = lock
        self._blocking = blocking
        # The calls by task id: the server may still send their progress (2025-11-25).
        self._task_calls: dict[str, PendingRequest] = {}
        # By request id, cancelled calls that the server may turn into tasks all the same.
        self._cancelled: dict[int, Undeclared] = {}

    def answered(self, call: PendingRequest, result: Any) -> list[CallbackQueue]:
        """Record a response; return the callback queues that must be empty before it is settled."""
        before = [] if call.callback_queue is None else [call.callback_queue]
        if call.method not in _TASK_METHODS or not isinstance(result, dict):
            return before
        with self._lock:
            if _asks_for_task(call):
                task = created_task_id(result)
                if task is not None:
                    _remember(self._task_calls, task, call)
                return before
            # Otherwise the call is remembered until `tasks/result`, which follows its progress.
            cancelled = result.get("status") == "cancelled"
            task = (call.params or {}).get("taskId") if cancelled or call.method == RESULT else None
            began = self._task_calls.pop(task, None) if task is not None else None
            questions = self._open_questions(task) if cancelled else []
        if began is not None and began.callback_queue is not None:
            before.append(began.callback_queue)
        for question in questions:  # the server need not cancel them
            question.refuse("the task was cancelled")
        return before

    def _open_questions(self, task: object) -> list[OpenQuestion]:
        """The open questions of a task (2025-11-25); called with the lock held."""
        return [
            question
            for call in self._table.open_calls()
            if call.method == RESULT and (call.params or {}).get("taskId") == task
            for question, hold in call.questions.items()
            if hold.certain
        ]

    def progress_owner(self, token: object) -> PendingRequest | None:
        """The call whose task uses this progress token; called with the lock held."""
        for call in self._task_calls.values():
            if call.id == token and type(token) is int:
                return call
        return None

    def request_owner(
        self, message: object, out: Outgoing | None
    ) -> tuple[PendingRequest | None, bool]:
        """The call that a server's request belongs to, and whether that is certain.

        Called with the lock held.
        """
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

    def before_send(self, call: PendingRequest, out: Outgoing) -> None:
        """Over HTTP, have the response to a call that asks for a task read to its end."""
        if self._blocking and _asks_for_task(call):
            out.linger_seconds, call.detached_pool = LINGER, self._services.detached_pool

    def settled(self, out: Outgoing) -> bool:
        """Whether every request in `out` is settled; called with the lock held.

        A cancelled call that may become a task is settled once its response has come.
        """
        if not out.ids or any(map(self._table.get, out.ids)):
            return False
        return not out.linger_seconds or self._cancelled.keys().isdisjoint(out.ids)

    def taken(self, call: PendingRequest) -> None:
        """A call was taken out of the table; called with the lock held.

        If it was cancelled and becomes a task all the same, that task must be cancelled, too.
        """
        if call.method == AUGMENTED and isinstance(call.outcome, _CANCELLED):
            # The revision decides: a server may create tasks without declaring the capability.
            dialect = self._agreed.current_dialect
            tasks = None if dialect is None else dialect.tasks
            if _asks_for_task(call) or (tasks is not None and not tasks.requested_by_client):
                _remember(self._cancelled, call.id, call.options.undeclared)

    def may_notify_cancel(self, call: PendingRequest) -> bool:
        """Whether `notifications/cancelled` may be sent: not if it asks to become a task.

        (Spec: 2025-11-25.)
        """
        return not _asks_for_task(call)

    def late_response(self, id: object, result: Any) -> None:
        """A response to a cancelled call came: if it created a task, have that cancelled."""
        key = own_id(id)
        with self._lock:
            undeclared = None if key is None else self._cancelled.pop(key, None)
        if undeclared is None or not isinstance(result, dict):
            return
        task, events = created_task_id(result), self._services.events()
        if task is not None and events is not None:
            events.task_abandoned(task, undeclared)


def _asks_for_task(call: PendingRequest) -> bool:
    """Whether a call asks to become a task."""
    return call.method == AUGMENTED and "task" in (call.params or {})


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry; of too many, remove the oldest."""
    table[key] = value
    if len(table) > MAX_REMEMBERED:
        del table[next(iter(table))]
