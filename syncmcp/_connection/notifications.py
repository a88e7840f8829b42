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
from syncmcp._protocol.subscription import LISTEN, NEWS, subscription_id
from syncmcp._protocol.tasks import STATUS

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import DaemonPool
    from syncmcp._connection.client_services import ClientServices, HandlerRegistry
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._connection.task_calls import TaskCallTracker
    from syncmcp._protocol.request_table import RequestTable
    from syncmcp._protocol.revisions import Dialect
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


_COMPLETE: Final = "notifications/elicitation/complete"

HEARD = NEWS | {STATUS, _COMPLETE}
"""The notifications that concern others than the program's own callbacks."""


class NotificationRouter:
    """Finds who is meant. Nothing here blocks: it runs on the thread that reads.

    Args:
        services: Has the client that is told what happens.
        peer: The open requests of the connection.
        lock: The connection's, which guards them.
        tasks: The calls that have become tasks.
    """

    def __init__(
        self,
        services: ClientServices,
        peer: RequestTable[PendingRequest, OpenQuestion],
        lock: threading.RLock,
        tasks: TaskCallTracker,
    ) -> None:
        self._services = services
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
            return self._peer.only()

    def take(
        self, method: str, params: dict[str, Any], dialect: Dialect | None, out: Outgoing | None
    ) -> None:
        """Pass on what is about a visit, a subscription or a task."""
        if method == _COMPLETE:
            self._services.visits.complete(params.get("elicitationId"))
            return
        if method == STATUS:
            self._tasks.news(params)
            return
        if method == "notifications/tools/list_changed":
            # First: whoever hears of it may list the tools at once.
            self._services.handlers.schemas.forget()
        events, stateful = self._services.events(), dialect is None or dialect.stateful
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
            _log.debug("[%s] %s for no listener of ours", self._services.label, method)

    def interrupted(self, error: McpError) -> None:
        """The connection, or the session, is lost.

        Whoever only listens makes no call that would open another one, and whoever waits for a
        visit none that would find the loss.
        """
        self._services.visits.close("the session is lost")
        events = self._services.events()
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
            when_empty(partial(self._services.visits.lose, "the server cannot be heard any more"))
        events = self._services.events()
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
