"""What a program supplies to be told of things and to answer questions."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from syncmcp.cancellation import CancelToken
from syncmcp.errors import UsageError

if TYPE_CHECKING:
    from syncmcp.client import Client
    from syncmcp.types import LoggingMessageNotificationParams

__all__ = [
    "HandlerContext",
    "LogHandler",
    "NotificationHandler",
    "ProgressHandler",
    "RequestHandler",
]


class HandlerContext(NamedTuple):
    """What a handler of a server's request may want to know."""

    client: Client
    """The client that was asked; it may be called, blocking, from within the handler."""

    cancel: CancelToken
    """Cancelled when the server withdraws the request, or the connection ends."""

    method: str
    """The method of the request."""


RequestHandler = Callable[[dict[str, Any], HandlerContext], "dict[str, Any] | None"]
"""Answers a request: gets its params, returns the result (`None` for an empty one).

Runs on a pool thread. `raise Refused(code, message, data)` answers with that error; anything else
that it raises answers with -32603 without its text, and is logged.
"""

NotificationHandler = Callable[[dict[str, Any]], object]
"""Is told the params of a notification, on a pool thread, in the order they came."""

LogHandler = Callable[["LoggingMessageNotificationParams"], object]
"""Is told what the server logs, on a pool thread, in the order it came."""

ProgressHandler = Callable[[float, "float | None", "str | None"], object]
"""Is told a call's progress, total and message, on a pool thread, in the order they came."""


class Handlers:
    """The table of a client's handlers. May be changed at any time from any thread."""

    def __init__(
        self,
        on_log: LogHandler | None,
        on_progress: ProgressHandler | None,
        on_notification: Callable[[str, dict[str, Any]], object] | None,
    ) -> None:
        for name, handler in (
            ("on_log", on_log),
            ("on_progress", on_progress),
            ("on_notification", on_notification),
        ):
            if handler is not None:
                refuse_coroutines(handler, name)
        self.on_log = on_log
        self.on_progress = on_progress
        self.on_notification = on_notification
        # Guards the two tables; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._requests: dict[str, RequestHandler] = {}
        self._notifications: dict[str, NotificationHandler] = {}

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
        """The handler of a request."""
        with self._lock:
            return self._requests.get(method)

    def notification(self, method: str) -> NotificationHandler | None:
        """The handler of a notification."""
        with self._lock:
            return self._notifications.get(method)

    def request_methods(self) -> list[str]:
        """The requests that have a handler."""
        with self._lock:
            return sorted(self._requests)


def refuse_coroutines(handler: Callable[..., object], name: str) -> None:
    """Refuse what cannot be called here.

    Raises:
        UsageError: `handler` is not callable, or a coroutine function: there is no event loop.
    """
    call = getattr(handler, "__call__", None)  # noqa: B004 - the method itself is looked at
    if call is None:
        raise UsageError(f"{name} is not callable")
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call):
        raise UsageError(f"{name} is a coroutine function; a plain function is needed here")
