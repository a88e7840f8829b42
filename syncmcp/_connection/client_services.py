"""The services of a client for its connections: handlers, thread pools, event callbacks."""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from syncmcp._base.checks import check_callable, text
from syncmcp._base.secrets import Secrets
from syncmcp._concurrency.budget import Budget
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._connection.tool_schemas import ToolSchemaCache
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp.errors import LimitExceeded, McpError
from syncmcp.handlers import (
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
from syncmcp.handlers.context import PROGRESS_ARGUMENTS, run_callbacks_with
from syncmcp.handlers.url_completion import UrlVisits

if TYPE_CHECKING:
    from syncmcp.handlers.context import ConnectedServer

H = TypeVar("H", RequestHandler, NotificationHandler)


class ConnectionEvents(Protocol):
    """The callbacks of a connection for its client. They run on any thread and never block."""

    @property
    def client(self) -> Any:
        """The `Client`; `None` if the program has dropped it."""
        ...

    def notified(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        """The server sent a notification that the client acts on, for example of a change."""
        ...

    def messages_missed(self) -> None:
        """Messages of the server outside of requests may be missing."""
        ...

    def server_stream_closed(self) -> None:
        """The server cannot send messages outside of requests any more."""
        ...

    def interrupted(self, error: McpError) -> None:
        """The connection or its session is lost."""
        ...


CALLBACK_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "on_log": ("message",),
    "on_progress": PROGRESS_ARGUMENTS,
    "on_notification": ("method", "params"),
    "on_handler_error": ("error", "context"),
}
"""The names of the arguments of a client's callbacks, by option."""


class HandlerRegistry:
    """The handlers and callbacks of a client, which any thread may change at any time.

    Attributes:
        question_handlers: The handlers of questions that the specification defines. The object
            is replaced, never modified.
        offer: The questions that servers may ask now.
        requests: The handlers of requests that the specification does not define, by method.
        notifications: The handlers of notifications, by method.
        question_budget: Counts the questions that are queued for handlers or being answered.
        notification_budget: Counts the notifications that are queued for callbacks or being
            handled. Both budgets outlive a connection, as handlers and callbacks may do.
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
                check_callable(handler, name, CALLBACK_ARGUMENTS[name])
        self.on_log = on_log
        self.on_progress = on_progress
        self.on_notification = on_notification
        self.on_handler_error = on_handler_error
        self.question_handlers = question_handlers
        self.offer = offer_of(question_handlers)
        self.schemas = ToolSchemaCache()
        # Guards changes of `question_handlers`: each new value is made from the previous one.
        self.changing = threading.RLock()
        # No lock: a look-up or change of one entry of a dict is atomic.
        self.requests: dict[str, RequestHandler] = {}
        self.notifications: dict[str, NotificationHandler] = {}
        self.question_budget = Budget()
        self.notification_budget = Budget()

    def for_call(self, given: Handlers | None) -> Handlers:
        """Return the handlers for a call: its own, or the client's for other questions."""
        return self.question_handlers if given is None else merged(given, self.question_handlers)

    def change(self, check: Callable[[OfferedCapabilities], object], **changed: Any) -> None:
        """Replace some handlers of questions, by name.

        `check` is called with the questions that servers may then ask; it raises to forbid the
        change.
        """
        with self.changing:
            handlers = replaced(self.question_handlers, **changed)
            offer = offer_of(handlers)
            check(offer)
            self.question_handlers, self.offer = handlers, offer

    def renew(self) -> None:
        """In a forked child: replace the objects whose locks threads of the parent may have held.

        The new budgets are empty: jobs that are queued in the parent do not count in the child.
        """
        self.changing = threading.RLock()
        self.question_budget = Budget()
        self.notification_budget = Budget()

    def set_handler(self, table: dict[str, H], method: str, handler: H | None) -> None:
        """Set, replace or (with `None`) remove a handler in `requests` or `notifications`."""
        if handler is None:
            table.pop(method, None)
            return
        arguments = ("params", "context") if table is self.requests else ("params",)
        text(method, "method")
        check_callable(handler, f"the handler of {method}", arguments)
        table[method] = handler


class ClientServices:
    """The services that a client provides to one of its connections.

    Attributes:
        events: Returns the core of the client, which receives the events; `None` once it was
            collected. A weak reference, so that a connection does not keep its client alive.
        handler_pool: Runs handlers. One that waits for this library releases its slot.
        callback_pool: Runs callbacks of notifications and of cancel tokens.
        human_timeout: How long, in seconds, a handler may take; `None` for no limit.
        secrets: The secrets to remove from texts of the server in errors and logs.
        log: Limits the rate of records that the server can cause in any number.
        visits: The visits to URLs that the server asked for.
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
        max_questions_per_call: int,
        secrets: Secrets | None = None,
    ) -> None:
        self.label = label
        self.events = events
        self.handlers = handlers
        self.handler_pool = handler_pool
        self.callback_pool = callback_pool
        self.human_timeout = human_timeout
        self.max_questions_per_call = max_questions_per_call
        self.secrets = Secrets() if secrets is None else secrets
        self.log = LimitedLog(self.secrets)
        self.visits = UrlVisits(label, callback_pool.run, self.log)
        self.server: ConnectedServer | None = None
        self.context = contextvars.copy_context()

    def note(
        self, logger: logging.Logger, level: int, text: str, *args: object, exc_info: bool = False
    ) -> None:
        """Log, with a rate limit, an event that a server causes; `text` begins with the label."""
        self.log.log(logger, level, text, self.label, *args, exc_info=exc_info)

    def too_many_questions(self, method: str) -> LimitExceeded:
        """Return the error of a call of `method` that causes too many questions of the server."""
        return LimitExceeded(
            f"the server asked more than {self.max_questions_per_call} questions during one"
            " call (option max_questions_per_call)",
            server=self.label,
            method=method,
        )

    def handler_context(self, method: str, **facts: Any) -> HandlerContext | None:
        """Make the context of a handler; `None` if the program has dropped the client."""
        events = self.events()
        client = None if events is None else events.client
        if client is None or self.server is None:
            return None
        context = HandlerContext(client, self.server, method, timeout=self.human_timeout, **facts)
        run_callbacks_with(context, self.callback_pool.run)
        return context
