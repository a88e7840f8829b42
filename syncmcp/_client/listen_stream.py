"""Listening in 2026-07-28: one long request (basic/patterns/subscriptions)."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._client.driver import repeated
from syncmcp._client.listening import Listening
from syncmcp._concurrency.backoff import Backoff
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp._connection.listen_call import ListenCall
from syncmcp._connection.options import Options
from syncmcp._protocol.steps import Send
from syncmcp._protocol.subscription import ACKNOWLEDGED, LISTEN, Wanted, read_event
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    SubscriptionLost,
    TransportError,
)

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._concurrency.queue import Inbox
    from syncmcp._connection.call import Call
    from syncmcp._connection.connection import Connection
    from syncmcp._protocol.subscription import ChangeEvent

_log = logging.getLogger("syncmcp.subscriptions")


class Streamed(Listening):
    """A subscription that is a request of its own, made again when its connection breaks."""

    stateful = False

    short = logging.WARNING
    """How loudly the log says that the server agrees to less than was asked for."""

    def __init__(self, client: Client, wanted: Wanted, inbox: Inbox) -> None:
        super().__init__(client, wanted, inbox)
        self._pauses = Backoff()
        # The request that is under way, and where; guarded by the lock.
        self._call: ListenCall | None = None
        self._connection: Connection | None = None

    def open(self, deadline: Deadline) -> None:
        """See `Listening`.

        Raises:
            SubscriptionLost: The server ends the request at once, without agreeing to anything.
            NotSupported: The server agrees to tell of nothing that is wanted.
        """
        client = self._client()
        assert client is not None
        send = Send(LISTEN, self.wanted.params())
        attempt = partial(self._attempt, send.params, deadline)
        repeated(send, client, Options(None, None), deadline, attempt)
        self._pauses.opened()
        refused = self.wanted.without(self.granted)
        if self.granted == Wanted():
            raise NotSupported(
                f"the server does not agree to tell of {refused}", server=self._label, method=LISTEN
            )
        if refused != Wanted():
            _log.log(self.short, "[%s] does not agree to tell of %s", self._label, refused)

    def _attempt(
        self, params: dict[str, Any] | None, deadline: Deadline, connection: Connection
    ) -> None:
        """Make the request and wait until the server agrees."""
        call = ListenCall(self._told, self._ended)
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
            connection.give_up(call, late)
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
        self, connection: Connection, call: ListenCall, params: dict[str, Any] | None
    ) -> None:
        try:
            connection.start(call, params)
        except McpError as error:  # nothing was sent
            call.outcome = error
            self._ended(call)

    def _told(self, call: ListenCall, method: str, params: dict[str, Any]) -> None:
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

    def _ended(self, call: Call) -> None:
        """On whatever thread ended the request, mostly the one that reads."""
        assert isinstance(call, ListenCall)
        with self._lock:
            mine = call is self._call
            if mine:
                self._call = self._connection = None
            if not call.acknowledged:
                call.answered.release()
                return
        outcome = call.outcome
        client = self._client()
        if self.inbox.ended or client is None or not mine:
            return
        if isinstance(outcome, ClosedError):
            self.finish()
        elif isinstance(outcome, TransportError):
            # Nothing is replayed, ever; and after a restart the request must be made again
            # (basic/patterns/subscriptions, "Cancellation").
            client._pools.workers.run(partial(self._again, outcome))
        else:
            by_server = not isinstance(outcome, McpError)
            self.lose("server" if by_server else "connection", None if by_server else outcome)

    def _again(self, error: TransportError) -> None:
        """On a pool thread: listen on another connection."""
        client = self._client()
        if client is None:
            return
        _log.info("[%s] listens again: %s", self._label, error)
        client._sit_out(self._pauses.next(), Options(None, None), Deadline(None))
        before = self.granted
        try:
            self.open(Deadline(client._open_timeout))
        except McpError as failure:
            self.granted = before
            if self.inbox.ended or isinstance(failure, ClosedError):
                self.finish()
            else:
                self.lose("connection", failure)
            return
        self.missed(client)

    def missed(self, client: Client) -> None:
        """What changed while nobody listened is never told. On a pool thread."""
        for event in self.granted.everything():
            if client._kept is not None:
                client._kept.changed(event)
            self.put(event)

    def heard(self, event: ChangeEvent) -> None:
        """See `Listening`. Here, what is not told to its own request is not for it."""

    def release(self, deadline: Deadline) -> None:
        """See `Listening`. Never blocks."""
        with self._lock:
            call, connection = self._call, self._connection
            self._call = self._connection = None
        if call is not None and connection is not None:
            connection.give_up(call, RequestCancelled("nobody listens any more"))

    def abandon(self) -> None:
        """See `Listening`."""
        self.finish()
        self.release(Deadline(None))

    def reconnected(self, *, stateful: bool) -> None:
        """See `Listening`. Its own request says so first; but in the other era there is none."""
        if stateful:
            self.lose("connection", ConnectionLost("the server speaks another revision now"))
