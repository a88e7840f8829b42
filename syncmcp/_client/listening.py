"""The library's half of a subscription: in a session, or one long request since 2026-07-28."""

from __future__ import annotations

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._client.driver import run, with_retries
from syncmcp._client.session_state import UNSUBSCRIBE
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Backoff, Deadline, acquire
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingListen
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Send
from syncmcp._protocol.subscription import ACKNOWLEDGED, LISTEN, ChangeFilter, read_event
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
from syncmcp.transports.base import HasServerStream as HasStream

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from syncmcp._client.core import ClientCore
    from syncmcp._concurrency.queue import EventQueue
    from syncmcp._connection.connection import Connection
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.subscription import ChangeEvent


# One who wants to be told of changes, from beginning to end.


_log = logging.getLogger("syncmcp.subscriptions")

# What unsubscribing may take, in seconds, where nobody waits for it.
_RELEASE_SECONDS = 30.0


class SubscriptionBackend(ABC):
    """The library's half of a subscription: knows the client only as long as that is there.

    Attributes:
        wanted: What was asked for.
        granted: What the server agreed to.
        inbox: Where events go.
    """

    stateful: bool

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        self._core: Callable[[], ClientCore | None] = weakref.ref(core)
        self._label = core.label
        self.wanted = wanted
        self.granted = wanted
        self.inbox = inbox
        # Guards what is held at the server: it is given up once.
        self._lock = threading.RLock()

    @abstractmethod
    def open(self, deadline: Deadline) -> None:
        """Ask the server; returns when it has agreed.

        Raises:
            McpError: It has not.
        """

    @abstractmethod
    def release(self, deadline: Deadline) -> None:
        """Have the server tell no more, if it was asked to. Raises nothing."""

    @abstractmethod
    def reconnected(self, *, stateful: bool) -> None:
        """There is another connection, or session, than before. Never blocks."""

    @abstractmethod
    def heard(self, event: ChangeEvent) -> None:
        """The server tells everybody of a change (until 2025-11-25). Never blocks."""

    def put(self, event: ChangeEvent) -> None:
        """Pass an event on. Never blocks."""
        if not self.inbox.put(event):
            self.lose("backlog")

    def start(self, core: ClientCore, deadline: Deadline) -> None:
        """Begin.

        Raises:
            McpError: The server does not agree; it tells nothing then.
        """
        # First: what is told from the moment it agrees must not be missed.
        core.state.add(self)
        try:
            self.open(deadline)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> None:
        """The program wants no more. Never blocks."""
        self.inbox.end()
        core = self._core()
        if core is not None:
            core.state.remove(self)

    def closed(self) -> None:
        """The client is closed, and nothing is left to be given up. Never blocks."""
        self.finish()

    def close(self, deadline: Deadline) -> None:
        """The program wants no more: tell the server, too."""
        self.finish()
        self.release(deadline)

    def abandon(self) -> None:
        """As `close`, but never blocks."""
        self.finish()
        core = self._core()
        if core is not None:
            core.pools.workers.run(partial(self.release, Deadline(_RELEASE_SECONDS)))

    def lose(
        self, by: Literal["server", "connection", "backlog"], cause: McpError | None = None
    ) -> None:
        """There will be no more events, and the program did not want that. Never blocks."""
        text = {
            "server": "the server ended the subscription",
            "connection": "the connection ended, and the subscription with it",
            "backlog": "too many events wait to be looked at",
        }[by]
        if cause is not None:
            text = f"{text}: {cause.message}"
        error = SubscriptionLost(
            f"{text}; no longer told of: {self.granted}",
            by=by,
            lists=self.granted.kinds,
            uris=self.granted.uris,
            server=self._label,
        )
        error.__cause__ = cause
        self.inbox.end(error)
        self.abandon()


class SessionSubscription(SubscriptionBackend):
    """Until 2025-11-25: lists are told of unasked, resources when they are subscribed to."""

    stateful = True

    def __init__(
        self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue, undeclared: Undeclared
    ) -> None:
        super().__init__(core, wanted, inbox)
        self._undeclared: Undeclared = undeclared
        self._held: list[str] = []

    def open(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`."""
        core = self._core()
        assert core is not None
        connection = core.link(deadline)
        if isinstance(connection.transport, HasStream):
            connection.transport.wait_listening(deadline)
        if not connection.router.server_stream_open:
            raise NotSupported(
                "the server has no stream on which it could tell of changes", server=self._label
            )
        for uri in self.wanted.uris:
            with self._lock:
                if self.inbox.ended:
                    return
                # Before it is asked for: perhaps nobody learns whether it came about.
                self._held.append(uri)
            ask = partial(_ask, core, deadline, self._undeclared)
            core.state.uris.hold(uri, ask, deadline, self._undeclared)
        if not self.wanted.uris:
            # A server tells of its lists from `notifications/initialized` on, to which there is no
            # answer: so one to something later shows that it has seen that.
            with suppress(ServerError):
                run(exchange("ping"), core, ResolvedOptions(None, None), deadline)

    def closed(self) -> None:
        """See `SubscriptionBackend`."""
        with self._lock:
            self._held.clear()
        self.finish()

    def release(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`."""
        core = self._core()
        with self._lock:
            held, self._held = self._held, []
        if core is None:
            return
        ask = partial(_ask_now, core, deadline, self._undeclared)
        for uri in held:
            try:
                core.state.uris.let_go(uri, ask)
            except McpError as error:
                _log.debug("[%s] was not told %s: %s", self._label, UNSUBSCRIBE, error)

    def heard(self, event: ChangeEvent) -> None:
        """See `SubscriptionBackend`."""
        if self.wanted.covers(event):
            self.put(event)

    def reconnected(self, *, stateful: bool) -> None:
        """See `SubscriptionBackend`."""
        if not stateful:
            self.lose("connection", ConnectionLost("the server speaks another revision now"))
            return
        for event in self.wanted.everything():
            self.put(event)


def _ask(
    core: ClientCore, deadline: Deadline, undeclared: Undeclared, method: str, uri: str
) -> None:
    options = ResolvedOptions(None, None, undeclared=undeclared)
    run(exchange(method, {"uri": uri}), core, options, deadline)


def _ask_now(
    core: ClientCore, deadline: Deadline, undeclared: Undeclared, method: str, uri: str
) -> None:
    """Ask if there is anyone to ask: for this, no connection is worth being opened."""
    connection = core.connection
    if connection is not None and connection.close_error is None:
        options = ResolvedOptions(None, None, undeclared=undeclared)
        connection.request(method, {"uri": uri}, options, deadline)


class StreamSubscription(SubscriptionBackend):
    """A subscription that is a request of its own, made again when its connection breaks."""

    stateful = False

    short = logging.WARNING
    """How loudly the log says that the server agrees to less than was asked for."""

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        super().__init__(core, wanted, inbox)
        self._pauses = Backoff()
        # The request that is under way, and where; guarded by the lock.
        self._call: PendingListen | None = None
        self._connection: Connection | None = None

    def open(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`.

        Raises:
            SubscriptionLost: The server ends the request at once, without agreeing to anything.
            NotSupported: The server agrees to tell of nothing that is wanted.
        """
        core = self._core()
        assert core is not None
        send = Send(LISTEN, self.wanted.params())
        attempt = partial(self._attempt, send.params, deadline)
        with_retries(send, core, ResolvedOptions(None, None), deadline, attempt)
        self._pauses.opened()
        refused = self.wanted.without(self.granted)
        if self.granted == ChangeFilter():
            raise NotSupported(
                f"the server does not agree to tell of {refused}", server=self._label, method=LISTEN
            )
        if refused != ChangeFilter():
            _log.log(self.short, "[%s] does not agree to tell of %s", self._label, refused)

    def _attempt(
        self, params: dict[str, Any] | None, deadline: Deadline, connection: Connection
    ) -> None:
        """Make the request and wait until the server agrees."""
        call = PendingListen(self._told, self._ended)
        with self._lock:
            if self.inbox.ended:
                raise RequestCancelled("nobody listens any more", delivery="not_sent")
            self._call, self._connection = call, connection
        if connection.transport.blocking:  # HTTP: the exchange lasts as long as its stream
            threading.Thread(
                target=self._carry,
                args=(connection, call, params),
                name=f"syncmcp-listen[{self._label}]",
                daemon=True,
            ).start()
        else:
            self._carry(connection, call, params)
        with lending_handler():
            answered = acquire(call.answered, deadline.remaining())
        if not answered:
            late = RequestTimeout(
                "the server did not say what it agrees to tell of", seconds=deadline.seconds
            )
            connection.cancel(call, late)
        if call.acknowledged:
            return
        if isinstance(call.outcome, BaseException):
            raise call.outcome
        raise SubscriptionLost(
            "the server ended the subscription at once",
            by="server",
            lists=self.wanted.kinds,
            uris=self.wanted.uris,
            server=self._label,
        )

    def _carry(
        self, connection: Connection, call: PendingListen, params: dict[str, Any] | None
    ) -> None:
        try:
            connection.start(call, params)
        except McpError as error:  # nothing was sent
            call.outcome = error
            self._ended(call)

    def _told(self, call: PendingListen, method: str, params: dict[str, Any]) -> None:
        """On the thread that reads."""
        if method == ACKNOWLEDGED:
            with self._lock:
                # Once; and not when it has ended a moment ago, on another thread.
                if call is self._call and not call.acknowledged:
                    self.granted = self.wanted.granted(params)
                    call.acknowledged = True
                    call.answered.release()
            return
        self.changed(method, params)

    def changed(self, method: str, params: dict[str, Any]) -> None:
        """The server tells of a change. On the thread that reads."""
        event = read_event(method, params)
        if event is not None and (event.uri is not None or self.wanted.covers(event)):
            self.put(event)

    def _ended(self, call: PendingRequest) -> None:
        """On whatever thread ended the request, mostly the one that reads."""
        assert isinstance(call, PendingListen)
        with self._lock:
            mine = call is self._call
            if mine:
                self._call = self._connection = None
            if not call.acknowledged:
                call.answered.release()
                return
        outcome = call.outcome
        core = self._core()
        if self.inbox.ended or core is None or not mine:
            return
        if isinstance(outcome, ClosedError):
            self.finish()
        elif isinstance(outcome, TransportError):
            # Nothing is replayed, ever; and after a restart the request must be made again
            # (basic/patterns/subscriptions, "Cancellation").
            core.pools.workers.run(partial(self._again, outcome))
        else:
            by_server = not isinstance(outcome, McpError)
            self.lose("server" if by_server else "connection", None if by_server else outcome)

    def _again(self, error: TransportError) -> None:
        """On a pool thread: listen on another connection."""
        core = self._core()
        if core is None:
            return
        _log.info("[%s] listens again: %s", self._label, error)
        core.sit_out(self._pauses.next(), ResolvedOptions(None, None), Deadline(None))
        before = self.granted
        try:
            self.open(Deadline(core.settings.open_timeout))
        except McpError as failure:
            self.granted = before
            if self.inbox.ended or isinstance(failure, ClosedError):
                self.finish()
            else:
                self.lose("connection", failure)
            return
        self.missed(core)

    def missed(self, core: ClientCore) -> None:
        """What changed while nobody listened is never told. On a pool thread."""
        for event in self.granted.everything():
            if core.cache is not None:
                core.cache.changed(event)
            self.put(event)

    def heard(self, event: ChangeEvent) -> None:
        """See `SubscriptionBackend`. Here, what is not told to its own request is not for it."""

    def release(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`. Never blocks."""
        with self._lock:
            call, connection = self._call, self._connection
            self._call = self._connection = None
        if call is not None and connection is not None:
            connection.cancel(call, RequestCancelled("nobody listens any more"))

    def abandon(self) -> None:
        """See `SubscriptionBackend`."""
        self.finish()
        self.release(Deadline(None))

    def reconnected(self, *, stateful: bool) -> None:
        """See `SubscriptionBackend`. Its own request says so first; the other era has none."""
        if stateful:
            self.lose("connection", ConnectionLost("the server speaks another revision now"))
