"""The part of a client where handlers are set and changed after it was made."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from typing_extensions import Unpack

from syncmcp._base.checks import text
from syncmcp._client.operation import OperationHost
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.answering import HandlerTable
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.revisions import KNOWN_QUESTIONS
from syncmcp._protocol.subscription import Wanted
from syncmcp.errors import NotSupported, SessionLost, UsageError
from syncmcp.handlers import NotificationHandler, RequestHandler, SamplingHandler

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._client.subscriptions import Listener, Subscription
    from syncmcp._connection.connection import Connection
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp.errors import SubscriptionLost
    from syncmcp.handlers import AnyElicitation, RootsHandler
    from syncmcp.handlers.roots import RootLike, Roots
    from syncmcp.types import Prompt, ReadResourceResult, Resource, Tool


class Registration:
    """Who is told what, and who answers; may be changed at any time, from any thread."""

    _handlers: HandlerTable
    _connection: Connection | None

    _roots: Roots | None
    _registering: threading.RLock
    """Guards changes of the handlers: each is made of those before it."""

    @property
    def roots(self) -> Roots:
        """Where servers are told to work: add, remove, replace and list (spec: "Roots").

        A change reaches the server by itself. Roots inform; they do not confine.

        Raises:
            UsageError: The client is open, and its handshake said that there are none.
        """
        with self._registering:
            if self._roots is None:
                from syncmcp.handlers.roots import Roots

                self._register_roots(Roots())
            assert self._roots is not None
            return self._roots

    def set_sampling(self, handler: SamplingHandler | None) -> None:
        """Set, replace or (with `None`) remove who lets a model answer.

        Raises:
            UsageError: It is no handler; or the client is open, and its handshake did not say
                that this can be asked (until 2025-11-25).
        """
        self._register(sampling=handler)

    def set_elicitation(self, handler: AnyElicitation | None) -> None:
        """Set, replace or (with `None`) remove who answers forms and URLs.

        Raises:
            UsageError: See `set_sampling`.
        """
        self._register(elicitation=handler)

    def on_request(self, method: str, handler: RequestHandler | None) -> None:
        """Answer a request of the server's that the library does not know (until 2025-11-25).

        Args:
            method: The method.
            handler: See `RequestHandler`; `None` takes the handler away.

        Raises:
            UsageError: The library answers this method by itself, or the handler is a coroutine
                function.
            NotSupported: The client is open, and servers of its revision send no requests.
        """
        if method in KNOWN_QUESTIONS:
            raise UsageError(f"{method} is no custom method; there is an option of its own for it")
        connection = self._connection
        if handler is not None and connection is not None and not connection.dialect.stateful:
            raise NotSupported(
                f"in revision {connection.dialect.revision} servers send no requests",
                server=connection.label,
                method=method,
            )
        self._handlers.set_request(method, handler)

    def on_notification(self, method: str, handler: NotificationHandler | None) -> None:
        """Be told of one kind of notification.

        Args:
            method: The method, ``"notifications/tools/list_changed"`` for example.
            handler: See `NotificationHandler`; `None` takes the handler away.
        """
        self._handlers.set_notification(method, handler)

    def _register_roots(self, roots: Roots) -> None:
        self._register(roots=roots.current)
        self._roots = roots
        # Whoever shares the roots must not keep every client that ever used them.
        reference = weakref.ref(self)

        def changed() -> None:
            client = reference()
            if client is not None:
                client._roots_changed()
            else:
                unsubscribe()

        unsubscribe = roots.on_change(changed)

    def _register(self, **changed: Any) -> None:
        with self._registering:
            answering = self._handlers.answering._changed(**changed)
            connection = self._connection
            if connection is not None and connection.dead is None:
                connection.agreed.check_declared(answering._offer)
            self._handlers.answering = answering

    def _roots_changed(self) -> None:
        connection = self._connection
        if connection is not None and connection.dead is None:
            connection.announce_roots()


def as_roots(given: Iterable[RootLike] | RootsHandler | Roots) -> Roots:
    """What a program gives as `roots`.

    Raises:
        UsageError: It is none of these, or something in it is no root.
    """
    from syncmcp.handlers.roots import Roots

    if isinstance(given, Roots):
        return given
    if callable(given):
        return Roots(source=given)
    return Roots(given)


# The part of a client that is about changes at the server.


V = TypeVar("V")

DEBOUNCE = 0.1
"""So long, in seconds, a change waits for others before the list is fetched again."""


class Changes:
    """Being told of changes: as events, or by having a list fetched again."""

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Iterable[str] = (),
        timeout: float | None = None,
        stop_after: int | None = None,
        undeclared: Undeclared | None = None,
    ) -> Subscription:
        """Ask the server to tell of changes; iterate over what it tells.

        Returns when the server has agreed, within the client's `timeout`: nothing that changes
        after that is missed. Opens the client if it is `lazy`.

        Args:
            tools: Tell when the list of tools changes.
            prompts: Tell when the list of prompts changes.
            resources: Tell when the list of resources or of their templates changes.
            uris: Tell when one of these resources changes.
            timeout: The longest time, in seconds, to wait for the next event; `None` for any.
            stop_after: End after so many events; `None` for never.
            undeclared: Whether the server is asked for what it does not declare, ``"refuse"`` or
                ``"try"``; the client's `undeclared` by default. See `CallOptions`.

        Raises:
            UsageError: Nothing is wanted, or an argument makes no sense.
            NotSupported: The server does not declare that it tells of this, or agrees to none of
                it, or has no stream for it.
            McpError: The server could not be asked.
        """
        from syncmcp._client.subscriptions import subscribe

        if isinstance(uris, str):
            raise UsageError("uris is a list of URIs, not one")
        each = tuple(dict.fromkeys(uris))
        for uri in each:
            text(uri, "uri")
        wanted = Wanted(bool(tools), bool(prompts), bool(resources), each)
        return subscribe(
            cast("Client", self),
            wanted,
            timeout=timeout,
            stop_after=stop_after,
            undeclared=undeclared,
        )

    def on_tools_changed(
        self,
        handler: Callable[[list[Tool]], object],
        *,
        debounce: float = DEBOUNCE,
        on_error: Callable[[SubscriptionLost], object] | None = None,
        undeclared: Undeclared | None = None,
    ) -> Listener:
        """Have the list of tools fetched when it has changed, and `handler` called with it.

        Args:
            handler: Called on a pool thread, one call at a time; it may block and may call the
                client. What it raises is logged.
            debounce: How long, in seconds, a change waits for others, so that many changes at
                once are one call.
            on_error: Called on a pool thread with the `SubscriptionLost` that ends it.
            undeclared: See `listen`; it counts for fetching, too.

        Returns:
            What to stop it with; it also ends when the client is closed.

        Raises:
            NotSupported: The server does not declare that it tells of this.
            McpError: The server could not be asked.
        """
        return self._refresh(
            Wanted(tools=True),
            lambda client: client.list_tools(undeclared=undeclared).tools,
            handler,
            debounce,
            on_error,
            undeclared,
        )

    def on_prompts_changed(
        self,
        handler: Callable[[list[Prompt]], object],
        *,
        debounce: float = DEBOUNCE,
        on_error: Callable[[SubscriptionLost], object] | None = None,
        undeclared: Undeclared | None = None,
    ) -> Listener:
        """Have the list of prompts fetched when it has changed; see `on_tools_changed`."""
        return self._refresh(
            Wanted(prompts=True),
            lambda client: client.list_prompts(undeclared=undeclared).prompts,
            handler,
            debounce,
            on_error,
            undeclared,
        )

    def on_resources_changed(
        self,
        handler: Callable[[list[Resource]], object],
        *,
        debounce: float = DEBOUNCE,
        on_error: Callable[[SubscriptionLost], object] | None = None,
        undeclared: Undeclared | None = None,
    ) -> Listener:
        """Have the list of resources fetched when it has changed; see `on_tools_changed`.

        It is also called when only the templates have changed, for servers do not tell which.
        """
        return self._refresh(
            Wanted(resources=True),
            lambda client: client.list_resources(undeclared=undeclared).resources,
            handler,
            debounce,
            on_error,
            undeclared,
        )

    def on_resource_updated(
        self,
        uri: str,
        handler: Callable[[ReadResourceResult], object],
        *,
        debounce: float = DEBOUNCE,
        on_error: Callable[[SubscriptionLost], object] | None = None,
        undeclared: Undeclared | None = None,
    ) -> Listener:
        """Have a resource read again when it has changed; see `on_tools_changed`.

        A change of something below it is one of it, too.
        """
        text(uri, "uri")
        return self._refresh(
            Wanted(uris=(uri,)),
            lambda client: client.read_resource(uri, undeclared=undeclared),
            handler,
            debounce,
            on_error,
            undeclared,
        )

    def _refresh(
        self,
        wanted: Wanted,
        fetch: Callable[[Client], V],
        handler: Callable[[V], object],
        debounce: float,
        on_error: Callable[[SubscriptionLost], object] | None,
        undeclared: Undeclared | None,
    ) -> Listener:
        from syncmcp._client.subscriptions import refresh

        client = cast("Client", self)
        return refresh(client, wanted, fetch, handler, debounce, on_error, undeclared=undeclared)


# The part of a client that sends notifications of the program's own.


class Notifying(OperationHost, Protocol):
    """What a server can be told without being asked for anything (until 2025-11-25)."""

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """Send a notification (until 2025-11-25).

        Raises:
            NotSupported: The revision has no such notification from a client.
        """
        resolved = self._resolve(options)
        text(method, "method")
        deadline = Deadline(resolved.timeout)
        sent = None if params is None else dict(params)
        try:
            self._link(deadline).notify(method, sent, deadline)
        except SessionLost:  # refused: so it goes to the new session
            self._link(deadline).notify(method, sent, deadline)

    def report_progress(
        self,
        token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        """Tell the server how far a request of its own has come (until 2025-11-25).

        Args:
            token: The ``progressToken`` from the `_meta` of the server's request.
            progress: Must grow with each report.
            total: What `progress` will be at the end, if known.
            message: What is being done.
        """
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self.notify("notifications/progress", params)
