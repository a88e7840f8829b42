"""Routes notifications of a server to calls and listeners, and queues them for callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from syncmcp._base.numbers import is_number
from syncmcp._base.text import logger
from syncmcp._concurrency.futures import Progress
from syncmcp._concurrency.pool import CallbackQueue
from syncmcp._connection.pending_request import PendingListen
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.subscription import LISTEN, SUBSCRIPTION_NOTIFICATIONS, subscription_id

if TYPE_CHECKING:
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.errors import McpError
    from syncmcp.handlers import LogHandler
    from syncmcp.transports.base import Outgoing


_log = logger("syncmcp.connection")


_COMPLETE: Final = "notifications/elicitation/complete"

ROUTED = SUBSCRIPTION_NOTIFICATIONS | {_COMPLETE}
"""The notifications that the library itself acts on."""


class NotificationRouter:
    """Finds the call, listener or URL visit that a notification is for; queues it for callbacks.

    Callbacks of the program run in order for each call. No method blocks: they run on the thread
    that reads. `lock` is the connection's, which guards `table`.
    """

    def __init__(
        self,
        services: ClientServices,
        table: RequestTable[PendingRequest],
        lock: threading.RLock,
        interceptors: InterceptorChain | None = None,
    ) -> None:
        self._services = services
        self._table = table
        self._lock = lock
        self.server_stream_open = True
        self._interceptors = interceptors
        self._handlers = services.handlers
        self._pool = services.callback_pool
        self._budget = services.handlers.notification_budget
        # For notifications that belong to no call.
        self._connection_queue = CallbackQueue(
            self._pool, copy_context(), services.log, self._budget, services.label
        )
        # Guards the creation of a call's queue: over HTTP, two threads may read for one call.
        self._queue_lock = threading.RLock()

    def facts(self) -> dict[str, int]:
        """The memory of the queued notifications, in bytes; see `Dump`."""
        return {"notification bytes": self._budget.used}

    def dispatch(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        """Queue a notification for its callbacks; `call` is the one it belongs to, if known."""
        if self._interceptors is None:
            self._dispatch(method, params, call)
        else:
            is_progress = method == "notifications/progress"
            run = (self._intercept, method, params, call)
            self._deliver(call, method, params, *run, is_progress=is_progress)

    def _intercept(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        """On a pool thread: pass the notification through the interceptors, then queue it."""
        assert self._interceptors is not None
        shown = self._interceptors.incoming_notification(method, params, call)
        if shown is None:
            return
        size = jsonrpc.size_of(params, method)
        self._budget.give(size)  # the queue of its callbacks counts it now; twice may not fit
        try:
            self._dispatch(method, shown, call)
        finally:
            self._budget.take(size)  # the queue that runs this method gives it back

    def _dispatch(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        handlers = self._handlers
        if method == "notifications/progress":
            self._progress(method, params, call)
            return
        if method == "notifications/message":
            if call is not None and call.options.observer is not None:
                call.options.observer(params)
            if handlers.on_log is not None:
                self._deliver(call, method, params, self._log_message, handlers.on_log, params)
        handler = handlers.notifications.get(method)
        if handler is not None:
            self._deliver(call, method, params, handler, params)
        if handlers.on_notification is not None:
            self._deliver(call, method, params, handlers.on_notification, method, params)

    def _progress(self, method: str, params: dict[str, Any], call: PendingRequest | None) -> None:
        progress, total, message = (params.get(key) for key in ("progress", "total", "message"))
        if not is_number(progress):
            self._services.note(_log, logging.DEBUG, "[%s] sent progress without a number")
            return
        if call is None:
            text = "[%s] sent progress for a request that is not open"
            self._services.note(_log, logging.DEBUG, text)
            return
        if not is_number(total):
            total = None
        if type(message) is not str:
            message = None
        if call.options.observer is not None:
            call.options.observer(Progress(progress, total, message))
        for callback in (call.options.on_progress, self._handlers.on_progress):
            if callback is not None:
                told = (progress, total, message)
                self._deliver(call, method, params, callback, *told, is_progress=True)
        if self._handlers.on_notification is not None:
            on_notification = self._handlers.on_notification
            self._deliver(call, method, params, on_notification, method, params)

    def _log_message(self, on_log: LogHandler, params: dict[str, Any]) -> None:
        """On a pool thread: call the program's function for log messages."""
        from syncmcp.types import LoggingMessageNotificationParams

        try:
            message = LoggingMessageNotificationParams.from_wire(params)
        except ValueError as error:  # for example a level that does not exist
            text = "[%s] sent an invalid log message: %s"
            self._services.note(_log, logging.WARNING, text, error)
            return
        on_log(message)

    def _deliver(
        self,
        call: PendingRequest | None,
        method: str,
        received: dict[str, Any],
        callback: Callable[..., object],
        *args: Any,
        is_progress: bool = False,
    ) -> None:
        queue = self._connection_queue
        if call is not None:
            with self._queue_lock:
                if call.callback_queue is None:
                    context, services = call.options.context, self._services
                    call.callback_queue = CallbackQueue(
                        self._pool, context, services.log, self._budget, services.label
                    )
            queue = call.callback_queue
        size = jsonrpc.size_of(received, method)
        queue.push(callback, *args, is_progress=is_progress, size=size)

    # -- notifications that the library itself handles ---------------------------------------

    def route(
        self, method: str, params: dict[str, Any], dialect: Dialect | None, out: Outgoing | None
    ) -> None:
        """Pass on a notification about a URL visit or a subscription."""
        if method == _COMPLETE:
            self._services.visits.complete(params.get("elicitationId"))
            return
        if method == "notifications/tools/list_changed":
            # First: the listeners notified below may list the tools at once.
            self._services.handlers.schemas.forget()
        events, stateful = self._services.events(), dialect is None or dialect.stateful
        if events is not None:
            events.notified(method, params, stateful=stateful)
        if stateful:
            return
        own = None if out is None else out.id
        with self._lock:
            call = self._table.get(subscription_id(params, own))
        if isinstance(call, PendingListen) and own in (None, call.id):
            call.on_notification(call, method, params)
        else:
            text = "[%s] sent %s for no open listener"
            self._services.note(_log, logging.DEBUG, text, method)

    def connection_lost(self, error: McpError) -> None:
        """The connection or the session is lost: notify the client, and end URL visits.

        Listeners, and threads that wait for a URL visit, make no call that would fail.
        """
        self._services.visits.close("the session is lost")
        events = self._services.events()
        if events is not None:
            events.interrupted(error)

    def messages_missed(self) -> None:
        """Messages outside of requests may be missing, such as notifications of changes."""
        self._services.handlers.schemas.forget()  # first, as in `route`
        events = self._services.events()
        if events is not None:
            events.messages_missed()

    def server_stream_closed(
        self,
        close_error: McpError | None,
        call_when_idle: Callable[[Callable[[], object]], object] | None,
    ) -> None:
        """The server cannot send messages outside of requests any more.

        `call_when_idle` runs a function whenever no call is in flight. It is `None` if the server
        never opened such a stream: then it reports URL visits on the streams of calls.
        """
        self.server_stream_open = False
        if close_error is not None:
            return
        if call_when_idle is not None:
            # The server reports visits on the closed stream; calls in flight have their own.
            call_when_idle(
                partial(self._services.visits.cancel_all, "the server's message stream is closed")
            )
        events = self._services.events()
        if events is not None:
            events.server_stream_closed()

    def subscription_end(
        self, params: dict[str, Any], dialect: Dialect | None
    ) -> jsonrpc.Result | None:
        """Return the response that a server's ``notifications/cancelled`` replaces, if any.

        In 2026-07-28 it may end a subscription, and nothing else (basic/patterns/cancellation,
        "Behavior Requirements"). It means the same as an empty response.
        """
        if dialect is None or dialect.stateful:
            return None
        with self._lock:
            call = self._table.get(params.get("requestId"))
        return jsonrpc.Result(call.id, {}) if call is not None and call.method == LISTEN else None
