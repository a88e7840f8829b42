"""What a server tells: progress, logs and every other notification, on their way to callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from syncmcp._concurrency.futures import Progress
from syncmcp._concurrency.pool import CallbackQueue
from syncmcp._connection.pending_request import PendingListen
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.jsonrpc import Request, own_id
from syncmcp._protocol.subscription import LISTEN, SUBSCRIPTION_NOTIFICATIONS, subscription_id
from syncmcp._protocol.tasks import (
    AUGMENTED,
    CANCEL,
    GET,
    RESULT,
    STATUS_NOTIFICATION,
    created_task_id,
    related_task_id,
)
from syncmcp.errors import RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import DaemonPool
    from syncmcp._connection.answering import HandlerRegistry
    from syncmcp._connection.desk import QuestionRegistry
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.errors import McpError
    from syncmcp.transports.base import Outgoing


_log = logging.getLogger("syncmcp.connection")


class NotificationDispatcher:
    """Hands notifications to the callbacks that want them: those of a call in the call's order.

    Nothing here blocks: it runs on the thread that reads.
    """

    def __init__(
        self,
        label: str,
        handlers: HandlerRegistry,
        workers: DaemonPool,
        interception: InterceptorChain | None = None,
    ) -> None:
        self._label = label
        self._interception = interception
        self._handlers = handlers
        self._workers = workers
        # Everything that belongs to no call in particular.
        self._news = CallbackQueue(workers, copy_context())
        # Guards the making of a call's delivery: over HTTP, two streams may tell of one call.
        self._making = threading.RLock()
        self._unreadable = 0

    def take(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        """Deliver a notification that belongs to `call`, or to none that is known."""
        if self._interception is None:
            self._tell(method, params, call)
        else:
            is_progress = method == "notifications/progress"
            self._deliver(call, self._show, method, params, call, is_progress=is_progress)

    def unreadable(self, reason: str) -> None:
        """Log a frame that is no message, and from the second on only for who looks for it."""
        self._unreadable += 1
        level = logging.WARNING if self._unreadable == 1 else logging.DEBUG
        _log.log(level, "[%s] sent something that is no message: %s", self._label, reason)

    def _show(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        """On a pool thread: what interceptors leave of it is told after what came before."""
        assert self._interception is not None
        shown = self._interception.notified(method, params, call)
        if shown is not None:
            self._tell(method, shown, call)

    def _tell(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        handlers = self._handlers
        if method == "notifications/progress":
            self._progress(params, call)
            return
        if method == "notifications/message":
            if call is not None and call.options.watch is not None:
                call.options.watch(params)
            if handlers.on_log is not None:
                self._deliver(call, self._log_message, params)
        handler = handlers.notification(method)
        if handler is not None:
            self._deliver(call, handler, params)
        if handlers.on_notification is not None:
            self._deliver(call, handlers.on_notification, method, params)

    def _progress(self, params: dict[str, Any], call: PendingRequest | None) -> None:
        progress, total, message = (params.get(key) for key in ("progress", "total", "message"))
        if not isinstance(progress, (int, float)):
            _log.debug("[%s] progress without a number", self._label)
            return
        if call is None:
            _log.debug("[%s] progress of nothing that is open", self._label)
            return
        if type(total) not in (int, float):
            total = None
        if type(message) is not str:
            message = None
        if call.options.watch is not None:
            call.options.watch(Progress(progress, total, message))
        for callback in (call.options.on_progress, self._handlers.on_progress):
            if callback is not None:
                self._deliver(call, callback, progress, total, message, is_progress=True)
        if self._handlers.on_notification is not None:
            self._deliver(call, self._handlers.on_notification, "notifications/progress", params)

    def _deliver(
        self,
        call: PendingRequest | None,
        callback: Callable[..., object],
        *args: Any,
        is_progress: bool = False,
    ) -> None:
        delivery = self._news
        if call is not None:
            with self._making:
                if call.delivery is None:
                    call.delivery = CallbackQueue(self._workers, call.options.context)
            delivery = call.delivery
        delivery.push(callback, *args, is_progress=is_progress)

    def _log_message(self, params: dict[str, Any]) -> None:
        """On a pool thread."""
        from syncmcp.types import LoggingMessageNotificationParams

        if self._handlers.on_log is not None:
            self._handlers.on_log(LoggingMessageNotificationParams.from_wire(params))


# The calls of one connection that have become tasks: what still comes for them, and from them.


_GIVEN_UP = (RequestCancelled, RequestTimeout)

_CONCERNED = frozenset((AUGMENTED, CANCEL, GET, RESULT))

LINGER = 30.0
"""So long, in seconds, a call that was given up is heard to the end, if it may become a task."""

MOST = 1024
"""So many calls that became tasks are remembered, and so many that were given up."""


class TaskCallTracker:
    """Knows them until their tasks have ended. Nothing here blocks: the thread that reads is here.

    Args:
        desk: Knows who is told, as long as that is there.
        peer: The open requests of the connection.
        agreed: What was agreed with the server.
        lock: The connection's, which guards all of it.
        blocking: Whether answers come only as long as a thread waits for them, as over HTTP.
    """

    def __init__(
        self,
        desk: QuestionRegistry,
        peer: RequestTable[PendingRequest, OpenQuestion],
        agreed: NegotiatedState,
        lock: threading.RLock,
        blocking: bool,
    ) -> None:
        self._desk = desk
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
                task = created_task_id(result)
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
        task = related_task_id(message.params) if isinstance(message, Request) else None
        if task is not None:
            for call in self._peer.open_calls():
                if call.method == RESULT and (call.params or {}).get("taskId") == task:
                    return call, True
            if task in self._begun:
                return self._begun[task], True
        if out is None:
            return self._peer.sole_call(), False
        return self._peer.get(out.id), True

    def begin(self, call: PendingRequest, out: Outgoing) -> None:
        """A call is about to be sent as `out`."""
        if self._blocking and _asks(call):
            out.linger_seconds, call.carrier = LINGER, self._desk.carriers

    def settled(self, out: Outgoing) -> bool:
        """Whether nothing more is to be heard for what is in `out`; called with the lock held."""
        if not out.ids or any(map(self._peer.get, out.ids)):
            return False
        return not out.linger_seconds or self._given_up.keys().isdisjoint(out.ids)

    def taken(self, call: PendingRequest) -> None:
        """A call has ended; called with the lock held.

        If it was given up before it was answered, and becomes a task all the same, nobody will ever
        wait for that.
        """
        if call.method == AUGMENTED and isinstance(call.outcome, _GIVEN_UP):
            # Ours alone counts: a server may make a task though it does not declare that.
            spoken = self._agreed.spoken
            tasks = None if spoken is None else spoken.tasks
            if _asks(call) or (tasks is not None and not tasks.requested_by_client):
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
        task, events = created_task_id(result), self._desk.events()
        if task is not None and events is not None:
            events.task_abandoned(task, undeclared)

    def news(self, params: dict[str, Any]) -> None:
        """The server says that a task has changed."""
        task, events = params.get("taskId"), self._desk.events()
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


# Whom a notification concerns: a call, or those who listen for changes.


_COMPLETE: Final = "notifications/elicitation/complete"

HEARD = SUBSCRIPTION_NOTIFICATIONS | {STATUS_NOTIFICATION, _COMPLETE}
"""The notifications that concern others than the program's own callbacks."""


class NotificationRouter:
    """Finds who is meant. Nothing here blocks: it runs on the thread that reads.

    Args:
        desk: Knows who is told, as long as that is there.
        peer: The open requests of the connection.
        lock: The connection's, which guards them.
        tasks: The calls that have become tasks.
    """

    def __init__(
        self,
        desk: QuestionRegistry,
        peer: RequestTable[PendingRequest, OpenQuestion],
        lock: threading.RLock,
        tasks: TaskCallTracker,
    ) -> None:
        self._desk = desk
        self._peer = peer
        self._lock = lock
        self._tasks = tasks
        self.heard = True
        """Whether what the server says outside of requests can reach us."""

    def owner(
        self, method: str, params: dict[str, Any], out: Outgoing | None
    ) -> PendingRequest | None:
        """The call that a notification belongs to, where that can be known."""
        with self._lock:
            if method == "notifications/progress":
                token = params.get("progressToken")
                return self._peer.get(token) or self._tasks.reporter(token)
            if out is not None:
                return self._peer.get(out.id)
            return self._peer.sole_call()

    def take(
        self, method: str, params: dict[str, Any], dialect: Dialect | None, out: Outgoing | None
    ) -> None:
        """Pass on what is about a visit, a subscription or a task."""
        if method == _COMPLETE:
            self._desk.visits.complete(params.get("elicitationId"))
            return
        if method == STATUS_NOTIFICATION:
            self._tasks.news(params)
            return
        if method == "notifications/tools/list_changed":
            # First: whoever hears of it may list the tools at once.
            self._desk.table.schemas.forget()
        events, stateful = self._desk.events(), dialect is None or dialect.stateful
        if events is not None:
            events.notified(method, params, stateful=stateful)
        if stateful:
            return
        own = None if out is None else out.id
        with self._lock:
            call = self._peer.get(subscription_id(params, own))
        if isinstance(call, PendingListen) and own in (None, call.id):
            call.take(call, method, params)
        else:
            _log.debug("[%s] %s for no listener of ours", self._desk.label, method)

    def interrupted(self, error: McpError) -> None:
        """The connection, or the session, is lost.

        Whoever only listens makes no call that would open another one, and whoever waits for a
        visit none that would find the loss.
        """
        self._desk.visits.close("the session is lost")
        events = self._desk.events()
        if events is not None:
            events.interrupted(error)

    def over(
        self, dead: McpError | None, when_empty: Callable[[Callable[[], object]], object] | None
    ) -> None:
        """The server will not tell anything outside of requests any more; or all is `dead`.

        Args:
            dead: Why the connection is over, if it is.
            when_empty: Has something done whenever no call is in flight. `None` where the server
                never had a stream for this: then it tells of visits on the streams of calls.
        """
        self.heard = False
        if dead is not None:
            return
        if when_empty is not None:
            # The server counts on the stream that is gone, but a call in flight has its own one.
            when_empty(partial(self._desk.visits.cancel_all, "the server cannot be heard any more"))
        events = self._desk.events()
        if events is not None:
            events.server_stream_closed()

    def ended(self, params: dict[str, Any], dialect: Dialect | None) -> jsonrpc.Result | None:
        """What a server's ``notifications/cancelled`` means for a request of ours, if anything.

        In 2026-07-28 it may end a subscription, and nothing else (basic/patterns/cancellation,
        "Behavior Requirements"). It means the same as the answer that it may send instead.
        """
        if dialect is None or dialect.stateful:
            return None
        with self._lock:
            call = self._peer.get(params.get("requestId"))
        return jsonrpc.Result(call.id, {}) if call is not None and call.method == LISTEN else None
