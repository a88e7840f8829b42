"""The backends of subscriptions: in a session (before 2026-07-28), or one long request each."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Literal

from syncmcp._base.text import logger
from syncmcp._client.core import ClientCore
from syncmcp._client.driver import Attempt, run
from syncmcp._client.session_state import UNSUBSCRIBE, ChangeListener
from syncmcp._concurrency.event_queue import EventQueue
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Backoff, Deadline
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingListen, PendingRequest
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Send
from syncmcp._protocol.subscription import (
    ACKNOWLEDGED,
    LISTEN,
    ChangeEvent,
    ChangeFilter,
    read_event,
)
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SubscriptionLost,
    TransportError,
)

_log = logger("syncmcp.subscriptions")

# The timeout for unsubscribing in the background, in seconds.
_UNSUBSCRIBE_SECONDS = 30.0


class SubscriptionBackend(ChangeListener, ABC):
    """Opens, restores and ends one subscription at the server. Refers to the core weakly."""

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        self._core: Callable[[], ClientCore | None] = weakref.ref(core)
        self._label = core.label
        self.wanted = wanted
        self.granted = wanted  # the part that the server has accepted
        self.inbox = inbox
        # Guards the state at the server, so that it is released once.
        self._lock = threading.RLock()

    @abstractmethod
    def open(self, deadline: Deadline) -> None:
        """Subscribe; returns when the server has accepted, or raises an `McpError`."""

    @abstractmethod
    def unsubscribe(self, deadline: Deadline) -> None:
        """Unsubscribe at the server; idempotent. Raises nothing."""

    def put(self, event: ChangeEvent) -> None:
        """Queue an event; a full queue ends the subscription. Never blocks."""
        if not self.inbox.put(event):
            self.fail("backlog")

    def put_missed(self) -> None:
        """Queue an event for each list and resource: notifications were missed. Never blocks."""
        self._invalidate_results()
        for event in self.granted.missed_events():
            self.put(event)

    def _invalidate_results(self) -> None:
        """Invalidate the cached results whose changes may have been missed. Never blocks."""
        core = self._core()
        if core is not None and core.cache is not None:
            for event in self.granted.missed_events():
                core.cache.on_change(event)

    def start(self, core: ClientCore, deadline: Deadline) -> None:
        # Registered first: notifications may arrive as soon as the server accepts.
        core.session_state.add_listener(self)
        try:
            self.open(deadline)
        except BaseException:
            self.close_in_background()
            raise

    def detach(self) -> None:
        """End the inbox and unregister the listener; the server is not notified. Never blocks."""
        self.inbox.close()
        core = self._core()
        if core is not None:
            core.session_state.remove_listener(self)

    def on_client_closed(self) -> None:
        """The client was closed: there is nothing to unsubscribe from. Never blocks."""
        self.detach()

    def close(self, deadline: Deadline) -> None:
        """End the subscription, and unsubscribe at the server; idempotent."""
        self.detach()
        self.unsubscribe(deadline)

    def close_in_background(self) -> None:
        """Like `close`, but unsubscribes in the background. Never blocks."""
        self.detach()
        core = self._core()
        if core is not None:
            core.pools.workers.run(partial(self.unsubscribe, Deadline(_UNSUBSCRIBE_SECONDS)))

    def fail(
        self, by: Literal["server", "connection", "backlog"], cause: McpError | None = None
    ) -> None:
        """End the subscription with `SubscriptionLost`. Never blocks."""
        text = {
            "server": "the server ended the subscription",
            "connection": "the end of the connection ended the subscription",
            "backlog": "too many events are queued",
        }[by]
        if cause is not None:
            text = f"{text}: {cause.message}"
        error = SubscriptionLost(
            f"{text}; the client is no longer subscribed to: {self.granted}",
            by=by,
            lists=self.granted.kinds,
            uris=self.granted.uris,
            server=self._label,
        )
        error.__cause__ = cause
        self._invalidate_results()  # first: closing the inbox wakes threads that may look them up
        self.inbox.close(error)
        self.close_in_background()


class SessionSubscription(SubscriptionBackend):
    """Before 2026-07-28: servers report changes of all lists, and of resources on request."""

    stateful = True

    def __init__(
        self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue, undeclared: Undeclared
    ) -> None:
        super().__init__(core, wanted, inbox)
        self._undeclared: Undeclared = undeclared
        self._acquired_uris: list[str] = []

    def open(self, deadline: Deadline) -> None:
        core = self._core()
        assert core is not None
        options = ResolvedOptions(None, None, undeclared=self._undeclared)

        def ask(method: str, uri: str) -> None:
            run(exchange(method, {"uri": uri}), core, options, deadline)

        connection = core.ensure_connection(deadline)
        connection.transport.wait_listening(deadline)
        if not connection.router.server_stream_open:
            raise NotSupported(
                "the server has no stream for change notifications", server=self._label
            )
        for uri in self.wanted.uris:
            with self._lock:
                if self.inbox.closed:
                    return
                # Before the request: its outcome may stay unknown.
                self._acquired_uris.append(uri)
            core.session_state.resources.acquire(uri, ask, deadline, self._undeclared)
        if not self.wanted.uris:
            # A server notifies of lists once it has got `notifications/initialized`, which has no
            # response. The response to a later ping shows that the server has got it.
            with suppress(ServerError):
                run(exchange("ping"), core, ResolvedOptions(None, None), deadline)

    def on_client_closed(self) -> None:
        with self._lock:
            self._acquired_uris.clear()
        self.detach()

    def unsubscribe(self, deadline: Deadline) -> None:
        core = self._core()
        with self._lock:
            held, self._acquired_uris = self._acquired_uris, []
        if core is None:
            return
        options = ResolvedOptions(None, None, undeclared=self._undeclared)

        def ask(method: str, uri: str) -> None:
            connection = core.connection  # no connection is opened for this
            if connection is not None and connection.close_error is None:
                connection.request(method, {"uri": uri}, options, deadline)

        for uri in held:
            try:
                core.session_state.resources.release(uri, ask)
            except McpError as error:
                _log.debug("[%s] could not send %s: %s", self._label, UNSUBSCRIBE, error)

    def on_change(self, event: ChangeEvent) -> None:
        if self.wanted.covers(event):
            self.put(event)

    def on_reconnect(self, *, stateful: bool) -> None:
        if not stateful:
            self.fail("connection", ConnectionLost("the server speaks another revision now"))
            return
        self.put_missed()


def _attempt(
    send: Send, function: Callable[[Connection], ChangeFilter]
) -> Generator[Any, Any, ChangeFilter]:
    granted: ChangeFilter = yield Attempt(send, function)
    return granted


class StreamSubscription(SubscriptionBackend):
    """Since 2026-07-28: a subscription is a long request, which is repeated after a loss."""

    stateful = False

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        super().__init__(core, wanted, inbox)
        self._backoff = Backoff()
        # The open request and its connection; guarded by the lock.
        self._call: PendingListen | None = None
        self._connection: Connection | None = None

    def open(self, deadline: Deadline) -> None:
        core = self._core()
        assert core is not None
        send = Send(LISTEN, self.wanted.params())
        attempt = partial(self._send_listen, send.params, deadline)
        granted = run(_attempt(send, attempt), core, ResolvedOptions(None, None), deadline)
        self._backoff.opened()
        refused = self.wanted.difference(granted)
        if granted == ChangeFilter():
            raise NotSupported(
                f"the server refused to send notifications about {refused}",
                server=self._label,
                method=LISTEN,
            )
        if refused != ChangeFilter():
            _log.warning("[%s] refuses to send notifications about %s", self._label, refused)

    def _send_listen(
        self, params: dict[str, Any] | None, deadline: Deadline, connection: Connection
    ) -> ChangeFilter:
        """Send the request, wait for the acknowledgement, and return the changes that it grants."""
        call = PendingListen(self._on_message, self._on_end)
        with self._lock:
            if self.inbox.closed:
                raise RequestCancelled("the subscription was closed", delivery="not_sent")
            self._call, self._connection = call, connection
        if connection.transport.blocking:  # HTTP: the exchange lasts as long as its stream
            threading.Thread(
                target=self._run_request,
                args=(connection, call, params),
                name=f"syncmcp-listen[{self._label}]",
                daemon=True,
            ).start()
        else:
            self._run_request(connection, call, params)
        with lending_handler():
            answered = call.answered.wait(deadline.remaining())
        if not answered:
            late = RequestTimeout(
                "the server did not acknowledge the subscription", seconds=deadline.seconds
            )
            connection.cancel(call, late)
        if call.granted is not None:
            return call.granted
        if isinstance(call.outcome, BaseException):
            raise call.outcome
        raise SubscriptionLost(
            "the server ended the subscription at once",
            by="server",
            lists=self.wanted.kinds,
            uris=self.wanted.uris,
            server=self._label,
        )

    def _run_request(
        self, connection: Connection, call: PendingListen, params: dict[str, Any] | None
    ) -> None:
        try:
            connection.start(call, params)
        except McpError as error:  # nothing was sent
            call.outcome = error
            self._on_end(call)

    def _on_message(self, call: PendingListen, method: str, params: dict[str, Any]) -> None:
        """A message arrived on the request's stream. Runs on the reader thread."""
        if method == ACKNOWLEDGED:
            with self._lock:
                # The first acknowledgement counts, unless the request has just ended.
                if call is self._call and call.granted is None:
                    call.granted = self.wanted.granted(params)
                    if call.granted != ChangeFilter():  # else this request fails, see `open`
                        self.granted = call.granted
                    call.answered.set()
            return
        event = read_event(method, params)
        if event is not None and (event.uri is not None or self.wanted.covers(event)):
            self.put(event)

    def _on_end(self, call: PendingRequest) -> None:
        """The request ended. Runs on any thread, mostly the reader thread."""
        assert isinstance(call, PendingListen)
        with self._lock:
            mine = call is self._call
            if mine:
                self._call = self._connection = None
            if call.granted is None:
                call.answered.set()
                return
        outcome = call.outcome
        core = self._core()
        if self.inbox.closed or core is None or not mine:
            return
        if isinstance(outcome, ClosedError):
            self.detach()
        elif isinstance(outcome, TransportError):
            # Events are never replayed, and after a loss the request must be repeated
            # (basic/patterns/subscriptions, "Cancellation").
            core.pools.workers.run(partial(self._listen_again, outcome))
        else:
            by_server = not isinstance(outcome, McpError)
            self.fail("server" if by_server else "connection", None if by_server else outcome)

    def _listen_again(self, error: TransportError) -> None:
        """Repeat the request on a new connection. Runs on a pool thread."""
        core = self._core()
        if core is None:
            return
        _log.info("[%s] the client reopens the subscription: %s", self._label, error)
        core.sleep(self._backoff.next(), Deadline(None))
        try:
            self.open(Deadline(core.settings.open_timeout))
        except McpError as failure:
            if self.inbox.closed or isinstance(failure, ClosedError):
                self.detach()
            else:
                self.fail("connection", failure)
            return
        self.put_missed()

    def on_change(self, event: ChangeEvent) -> None:
        """Does nothing: only its own request's notifications count."""

    def unsubscribe(self, deadline: Deadline) -> None:
        with self._lock:
            call, connection = self._call, self._connection
            self._call = self._connection = None
        if call is not None and connection is not None:
            connection.cancel(call, RequestCancelled("the subscription was closed"))

    def close_in_background(self) -> None:
        self.detach()
        self.unsubscribe(Deadline(None))

    def on_reconnect(self, *, stateful: bool) -> None:
        if stateful:
            self.fail("connection", ConnectionLost("the server speaks another revision now"))
