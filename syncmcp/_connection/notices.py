"""What a server tells: progress, logs and every other notification, on their way to callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.delivery import Delivery
from syncmcp._concurrency.futures import Progress

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import Workers
    from syncmcp._connection.call import Call
    from syncmcp._connection.handler_table import HandlerTable
    from syncmcp._connection.interception import Interception

_log = logging.getLogger("syncmcp.connection")


class Notices:
    """Hands notifications to the callbacks that want them: those of a call in the call's order.

    Nothing here blocks: it runs on the thread that reads.
    """

    def __init__(
        self,
        label: str,
        handlers: HandlerTable,
        workers: Workers,
        interception: Interception | None = None,
    ) -> None:
        self._label = label
        self._interception = interception
        self._handlers = handlers
        self._workers = workers
        # Everything that belongs to no call in particular.
        self._news = Delivery(workers, copy_context())
        # Guards the making of a call's delivery: over HTTP, two streams may tell of one call.
        self._making = threading.RLock()
        self._unreadable = 0

    def take(self, method: str, params: dict[str, Any], call: Call | None) -> None:
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

    def _show(self, method: str, params: dict[str, Any], call: Call | None) -> None:
        """On a pool thread: what interceptors leave of it is told after what came before."""
        assert self._interception is not None
        shown = self._interception.notified(method, params, call)
        if shown is not None:
            self._tell(method, shown, call)

    def _tell(self, method: str, params: dict[str, Any], call: Call | None) -> None:
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

    def _progress(self, params: dict[str, Any], call: Call | None) -> None:
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
        call: Call | None,
        callback: Callable[..., object],
        *args: Any,
        is_progress: bool = False,
    ) -> None:
        delivery = self._news
        if call is not None:
            with self._making:
                if call.delivery is None:
                    call.delivery = Delivery(self._workers, call.options.context)
            delivery = call.delivery
        delivery.push(callback, *args, is_progress=is_progress)

    def _log_message(self, params: dict[str, Any]) -> None:
        """On a pool thread."""
        from syncmcp.types import LoggingMessageNotificationParams

        if self._handlers.on_log is not None:
            self._handlers.on_log(LoggingMessageNotificationParams.from_wire(params))
