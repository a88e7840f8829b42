"""The part of a client where handlers are set and changed after it was made."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from syncmcp._connection.handler_table import HandlerTable
from syncmcp._protocol.revisions import KNOWN_QUESTIONS
from syncmcp.errors import NotSupported, UsageError
from syncmcp.handlers import NotificationHandler, RequestHandler, SamplingHandler

if TYPE_CHECKING:
    from syncmcp._connection.connection import Connection
    from syncmcp.handlers import AnyElicitation, RootsHandler
    from syncmcp.handlers.roots import RootLike, Roots


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
