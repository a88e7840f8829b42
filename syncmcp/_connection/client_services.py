"""The services of a client for its connections: handlers, thread pools, event callbacks."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from syncmcp._base.checks import refuse_coroutines
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._connection.tool_schemas import ToolSchemaCache
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp.errors import McpError
from syncmcp.handlers import (
    CausingCall,
    HandlerContext,
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
    merged,
    offer_of,
    replaced,
)
from syncmcp.handlers.url_completion import UrlVisits

if TYPE_CHECKING:
    from syncmcp.handlers.context import ConnectedServer

H = TypeVar("H", RequestHandler, NotificationHandler)


class ConnectionEvents(Protocol):
    """The callbacks of a connection for its client. They run on any thread and never block."""

    def handler_context(
        self,
        server: ConnectedServer,
        method: str,
        *,
        call: CausingCall | None,
        timeout: float | None,
        progress: ProgressHandler | None,
        resumes_call: bool,
    ) -> HandlerContext | None:
        """Make the context of a handler; `None` if the program has dropped the client."""
        ...

    def notified(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        """The server sent a notification that the client acts on, for example of a change."""
        ...

    def server_stream_closed(self) -> None:
        """The server cannot send messages outside of requests any more."""
        ...

    def interrupted(self, error: McpError) -> None:
        """The connection or its session is lost."""
        ...


class HandlerRegistry:
    """The handlers and callbacks of a client, which any thread may change at any time.

    Attributes:
        question_handlers: The handlers of questions that the specification defines. Replaced,
            never changed.
        offer: The questions that servers may ask now.
        schemas: The cached schemas of the server's tools.
    """

    def __init__(
        self,
        on_log: LogHandler | None,
        on_progress: ProgressHandler | None,
        on_notification: Callable[[str, dict[str, Any]], object] | None,
        question_handlers: Handlers,
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
        self.question_handlers = question_handlers
        self.offer = offer_of(question_handlers)
        self.schemas = ToolSchemaCache()
        # Guards changes of `question_handlers`: each value is made of the one before it.
        self.changing = threading.RLock()
        # Guards the two tables; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._requests: dict[str, RequestHandler] = {}
        self._notifications: dict[str, NotificationHandler] = {}

    def for_call(self, given: Handlers | None) -> Handlers:
        """The handlers for questions of one call: its own ones, and the client's for the rest."""
        return self.question_handlers if given is None else merged(given, self.question_handlers)

    def change(self, check: Callable[[OfferedCapabilities], object], **changed: Any) -> None:
        """Replace some handlers of questions.

        Args:
            check: Called with the questions that servers may then ask; raises to forbid the change.
            changed: The handlers by name.

        Raises:
            UsageError: A value is no handler, or `check` raised it.
        """
        with self.changing:
            handlers = replaced(self.question_handlers, **changed)
            offer = offer_of(handlers)
            check(offer)
            self.question_handlers, self.offer = handlers, offer

    def renew(self) -> None:
        """After a fork, in the child: replace locks that threads of the parent may hold."""
        self.changing = threading.RLock()
        self._lock = threading.RLock()

    def set_request(self, method: str, handler: RequestHandler | None) -> None:
        """Set, replace or (with `None`) remove the handler of a request."""
        self._set(self._requests, method, handler)

    def set_notification(self, method: str, handler: NotificationHandler | None) -> None:
        """Set, replace or (with `None`) remove the handler of a notification."""
        self._set(self._notifications, method, handler)

    def _set(self, table: dict[str, H], method: str, handler: H | None) -> None:
        if handler is None:
            with self._lock:
                table.pop(method, None)
            return
        refuse_coroutines(handler, f"the handler of {method}")
        with self._lock:
            table[method] = handler

    def request(self, method: str) -> RequestHandler | None:
        """The handler of a request that the specification does not define."""
        with self._lock:
            return self._requests.get(method)

    def notification(self, method: str) -> NotificationHandler | None:
        """The handler of a notification."""
        with self._lock:
            return self._notifications.get(method)

    def request_methods(self) -> list[str]:
        """The methods that have a custom request handler."""
        with self._lock:
            return sorted(self._requests)

    def by_method(self) -> tuple[dict[str, RequestHandler], dict[str, NotificationHandler]]:
        """Copies of the custom handlers of requests and of notifications."""
        with self._lock:
            return dict(self._requests), dict(self._notifications)


class ClientServices:
    """What a client gives to one of its connections.

    Args:
        label: The name of the server in logs.
        events: Returns the client that is told what happens; `None` once the program has dropped
            it. A weak reference, so that the garbage collector finds open clients without users.
        handlers: The program's handlers and callbacks.
        handler_pool: The pool on which handlers run. A handler that waits in a call of this library
            lends its slot to another job.
        callback_pool: The pool on which callbacks run: of notifications, and of cancel tokens.
        human_timeout: How long, in seconds, a handler may take; `None` for no limit.

    Attributes:
        visits: The URLs that the program was sent to, and which of them are completed.
        server: The server as handlers see it; `None` until the connection is open.
        context: The context variables of handlers whose question belongs to no call.
    """

    def __init__(
        self,
        label: str,
        events: Callable[[], ConnectionEvents | None],
        handlers: HandlerRegistry,
        handler_pool: DaemonPool,
        callback_pool: DaemonPool,
        human_timeout: float | None,
    ) -> None:
        self.label = label
        self.events = events
        self.handlers = handlers
        self.handler_pool = handler_pool
        self.callback_pool = callback_pool
        self.human_timeout = human_timeout
        self.visits = UrlVisits(label, callback_pool.run)
        self.server: ConnectedServer | None = None
        self.context = contextvars.copy_context()

    def handler_context(
        self,
        method: str,
        call: CausingCall | None,
        progress: ProgressHandler | None,
        *,
        resumes_call: bool,
    ) -> HandlerContext | None:
        """Make the context of a handler; `None` if the program has dropped the client."""
        events, server, timeout = self.events(), self.server, self.human_timeout
        if events is None or server is None:
            return None
        return events.handler_context(
            server, method, call=call, timeout=timeout, progress=progress, resumes_call=resumes_call
        )
