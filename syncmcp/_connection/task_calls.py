"""Calls that became tasks: what the server still sends for them (2025-11-25 and 2026-07-28)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.jsonrpc import Request
from syncmcp._protocol.request_table import own_id
from syncmcp._protocol.tasks import AUGMENTED, CANCEL, GET, RESULT, created, related
from syncmcp.errors import RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import CallbackQueue
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.request_table import RequestTable
    from syncmcp.transports.base import Outgoing

_GIVEN_UP = (RequestCancelled, RequestTimeout)

_CONCERNED = frozenset((AUGMENTED, CANCEL, GET, RESULT))

LINGER = 30.0
"""So long, in seconds, a call that was given up is heard to the end, if it may become a task."""

MOST = 1024
"""So many calls that became tasks are remembered, and so many that were given up."""


class TaskCallTracker:
    """Knows them until their tasks have ended. Nothing here blocks: the thread that reads is here.

    Args:
        services: Has the client that is told what happens.
        peer: The open requests of the connection.
        agreed: What was agreed with the server.
        lock: The connection's, which guards all of it.
        blocking: Whether answers come only as long as a thread waits for them, as over HTTP.
    """

    def __init__(
        self,
        services: ClientServices,
        peer: RequestTable[PendingRequest, OpenQuestion],
        agreed: NegotiatedState,
        lock: threading.RLock,
        blocking: bool,
    ) -> None:
        self._services = services
        self._peer = peer
        self._agreed = agreed
        self._lock = lock
        self._blocking = blocking
        # By task, the call that became it: its progress goes on (2025-11-25).
        self._begun: dict[str, PendingRequest] = {}
        # Calls that may have become one after they were given up.
        self._given_up: dict[int, Undeclared] = {}

    def answered(self, call: PendingRequest, result: Any) -> list[CallbackQueue]:
        """Take note of an answer; return what has to be delivered before it."""
        before = [] if call.delivery is None else [call.delivery]
        if call.method not in _CONCERNED or not isinstance(result, dict):
            return before
        with self._lock:
            if _asks(call):
                task = created(result)
                if task is not None:
                    _remember(self._begun, task, call)
                return before
            # After any other end the result is fetched, which comes after the last report.
            cancelled = result.get("status") == "cancelled"
            task = (call.params or {}).get("taskId") if cancelled or call.method == RESULT else None
            began = self._begun.pop(task, None) if task is not None else None
            asked = self._asked(task) if cancelled else []
        if began is not None and began.delivery is not None:
            before.append(began.delivery)
        for question in asked:  # a server need not withdraw them
            question.give_up("the task was cancelled")
        return before

    def _asked(self, task: object) -> list[OpenQuestion]:
        """What a task asks at the moment (2025-11-25); called with the lock held."""
        return [
            asked
            for call in self._peer.open_calls()
            if call.method == RESULT and (call.params or {}).get("taskId") == task
            for asked, owned in call.asked.items()
            if owned.certain
        ]

    def reporter(self, token: object) -> PendingRequest | None:
        """The call whose task may still report by this token; called with the lock held."""
        for call in self._begun.values():
            if call.id == token and type(token) is int:
                return call
        return None

    def cause(self, message: object, out: Outgoing | None) -> tuple[PendingRequest | None, bool]:
        """The call that a question belongs to, and whether that is certain.

        Called with the lock held.
        """
        task = related(message.params) if isinstance(message, Request) else None
        if task is not None:
            for call in self._peer.open_calls():
                if call.method == RESULT and (call.params or {}).get("taskId") == task:
                    return call, True
            if task in self._begun:
                return self._begun[task], True
        if out is None:
            return self._peer.only(), False
        return self._peer.get(out.id), True

    def begin(self, call: PendingRequest, out: Outgoing) -> None:
        """A call is about to be sent as `out`."""
        if self._blocking and _asks(call):
            out.lingers, call.carrier = LINGER, self._services.carriers

    def settled(self, out: Outgoing) -> bool:
        """Whether nothing more is to be heard for what is in `out`; called with the lock held."""
        if not out.ids or any(map(self._peer.get, out.ids)):
            return False
        return not out.lingers or self._given_up.keys().isdisjoint(out.ids)

    def taken(self, call: PendingRequest) -> None:
        """A call has ended; called with the lock held.

        If it was given up before it was answered, and becomes a task all the same, nobody will ever
        wait for that.
        """
        if call.method == AUGMENTED and isinstance(call.outcome, _GIVEN_UP):
            # Ours alone counts: a server may make a task though it does not declare that.
            spoken = self._agreed.spoken
            tasks = None if spoken is None else spoken.tasks
            if _asks(call) or (tasks is not None and not tasks.asked_for):
                _remember(self._given_up, call.id, call.options.undeclared)

    def given_up(self, call: PendingRequest) -> bool:
        """Whether a notification may cancel it: not if it asks to become a task (2025-11-25)."""
        return not _asks(call)

    def late(self, id: object, result: Any) -> None:
        """An answer came that nobody waits for: if it is a task, nobody ever will."""
        key = own_id(id)
        with self._lock:
            undeclared = None if key is None else self._given_up.pop(key, None)
        if undeclared is None or not isinstance(result, dict):
            return
        task, events = created(result), self._services.events()
        if task is not None and events is not None:
            events.task_abandoned(task, undeclared)

    def news(self, params: dict[str, Any]) -> None:
        """The server says that a task has changed."""
        task, events = params.get("taskId"), self._services.events()
        if isinstance(task, str) and events is not None:
            events.task_changed(task)


def _asks(call: PendingRequest) -> bool:
    """Whether a call asks to become a task."""
    return call.method == AUGMENTED and "task" in (call.params or {})


def _remember(table: dict[Any, Any], key: Any, value: Any) -> None:
    """Add an entry; the oldest makes room."""
    table[key] = value
    if len(table) > MOST:
        del table[next(iter(table))]
