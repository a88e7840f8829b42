"""The table of a client's handlers: who is told what, and who answers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from syncmcp._base.coroutines import refuse_coroutines
from syncmcp._connection.schemas import Schemas
from syncmcp._protocol.offer import Offer
from syncmcp.handlers import (
    HandlerContext,
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
)


class HandlerTable:
    """May be changed at any time from any thread.

    Attributes:
        answering: Who answers the questions that the library knows. Replaced, never changed.
        schemas: What is known of the server's tools; told when their list has changed.
    """

    def __init__(
        self,
        on_log: LogHandler | None,
        on_progress: ProgressHandler | None,
        on_notification: Callable[[str, dict[str, Any]], object] | None,
        answering: Handlers,
        on_handler_error: Callable[[BaseException, HandlerContext], object] | None = None,
    ) -> None:
        for name, handler in (
            ("on_log", on_log),
            ("on_progress", on_progress),
            ("on_notification", on_notification),
            ("on_handler_error", on_handler_error),
        ):
            if handler is not None:
                refuse_coroutines(handler, name)
        self.on_log = on_log
        self.on_progress = on_progress
        self.on_notification = on_notification
        self.on_handler_error = on_handler_error
        self.answering = answering
        self.schemas = Schemas()
        # Guards the two tables; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._requests: dict[str, RequestHandler] = {}
        self._notifications: dict[str, NotificationHandler] = {}

    def for_call(self, given: Handlers | None) -> Handlers:
        """Who answers what a call causes: its own handlers, and the client's for the rest."""
        return self.answering if given is None else given._over(self.answering)

    def offer(self) -> Offer:
        """What servers may ask, now."""
        return self.answering._offer

    def set_request(self, method: str, handler: RequestHandler | None) -> None:
        """Set, replace or (with `None`) remove the handler of a request."""
        if handler is not None:
            refuse_coroutines(handler, f"the handler of {method}")
        with self._lock:
            if handler is None:
                self._requests.pop(method, None)
            else:
                self._requests[method] = handler

    def set_notification(self, method: str, handler: NotificationHandler | None) -> None:
        """Set, replace or (with `None`) remove the handler of a notification."""
        if handler is not None:
            refuse_coroutines(handler, f"the handler of {method}")
        with self._lock:
            if handler is None:
                self._notifications.pop(method, None)
            else:
                self._notifications[method] = handler

    def request(self, method: str) -> RequestHandler | None:
        """The handler of a request that the library does not know."""
        with self._lock:
            return self._requests.get(method)

    def notification(self, method: str) -> NotificationHandler | None:
        """The handler of a notification."""
        with self._lock:
            return self._notifications.get(method)

    def request_methods(self) -> list[str]:
        """The requests that have a handler of their own."""
        with self._lock:
            return sorted(self._requests)

    def by_method(self) -> tuple[dict[str, RequestHandler], dict[str, NotificationHandler]]:
        """The handlers of requests and of notifications, as they are now."""
        with self._lock:
            return dict(self._requests), dict(self._notifications)
