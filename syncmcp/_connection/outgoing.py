"""Frames that nobody waits for: notices and answers; and the frame that a batch shares."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency.pool import DaemonPool, SerialExecutor
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.revisions import KNOWN_NOTIFICATIONS
from syncmcp.errors import McpError, NotSupported
from syncmcp.transports.base import Outgoing, Transport

if TYPE_CHECKING:
    from syncmcp._connection.connection import Connection
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.negotiated import NegotiatedState
    from syncmcp._connection.options import ResolvedOptions
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._connection.wire_log import WireLog
    from syncmcp._protocol.dialect import Dialect
    from syncmcp._protocol.jsonrpc import RequestTable
    from syncmcp.errors import RequestCancelled, RequestTimeout


_log = logging.getLogger("syncmcp.connection")

# A notice or an answer that cannot be sent within this many seconds is given up.
POST_SECONDS = 30.0

# The server is not told of their end: these are never cancelled (spec: "Cancellation").
_NEVER_CANCELLED = frozenset(("initialize", "server/discover"))


class Notifier:
    """Sends notifications and answers over one transport.

    Args:
        transport: What carries them.
        wire: Takes note of each.
        label: What errors and logs call the server.
        agreed: Says which revision is spoken, once that is known.
        interception: Shows interceptors what the library says by itself.
    """

    def __init__(
        self,
        transport: Transport,
        wire: WireLog,
        label: str,
        agreed: NegotiatedState,
        interception: InterceptorChain | None = None,
    ) -> None:
        self._transport = transport
        self._wire = wire
        self._label = label
        self._agreed = agreed
        self._interception = interception

    def tell(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification.

        Raises:
            NotSupported: The revision has no such notification, or none at all.
            McpError: It could not be sent.
        """
        dialect = self._agreed.dialect
        known = dialect.supports_notification(method)
        if not known and (not dialect.stateful or method in KNOWN_NOTIFICATIONS):
            raise NotSupported(
                f"revision {dialect.revision} has no such notification from a client",
                server=self._label,
                method=method,
            )
        body = jsonrpc.encode_notification(method, params)
        out = Outgoing(body, method, None, {}, deadline)
        self._wire.sent(out)
        self._transport.send(out)

    def cancelled(self, id: int, method: str, error: RequestTimeout | RequestCancelled) -> None:
        """Say that we no longer wait for an answer, and why, where that is said. Never blocks."""
        if method in _NEVER_CANCELLED:
            return
        dialect, reason = self._agreed.spoken, getattr(error, "reason", None) or error.message
        if dialect is not None and dialect.notifies_cancel(own_stream=self._transport.blocking):
            self._post_notification("notifications/cancelled", {"requestId": id, "reason": reason})

    def roots_changed(self) -> None:
        """Say that the roots have changed, where that is said. Never blocks."""
        dialect, method = self._agreed.spoken, "notifications/roots/list_changed"
        if dialect is not None and dialect.supports_notification(method):
            self._post_notification(method, None)

    def _post_notification(self, method: str, params: dict[str, Any] | None) -> None:
        self.post(jsonrpc.encode_notification(method, params), method)
        if self._interception is not None:
            self._interception.settled("outgoing", "notification", method, params=params)

    def post(self, body: bytes, method: str | None = None) -> None:
        """Send a frame without blocking; nobody waits for it."""
        self._attempt(self._transport.post, body, method)

    def line(self, workers: DaemonPool) -> Callable[[bytes], None]:
        """Something like `post` for frames that must arrive one after another.

        Over HTTP each frame has an exchange of its own, and those may overtake each other.
        """
        if self._transport.ordered:
            return self.post
        lane = SerialExecutor(workers)

        def post(body: bytes) -> None:
            lane.push(partial(self._attempt, self._transport.send, body, None))

        return post

    def _attempt(self, send: Callable[[Outgoing], object], body: bytes, method: str | None) -> None:
        out = Outgoing(body, method, None, {}, Deadline(POST_SECONDS))
        self._wire.sent(out)
        try:
            send(out)
        except McpError as error:  # when the connection is gone nobody misses it
            _log.debug("[%s] could not send %s: %s", self._label, method or "an answer", error)


# Requests that leave together, in one frame: a batch (2025-03-26, basic, "Batching").
#
# Each of them is a call like any other, with an id, a deadline and an end of its own. They meet
# here on their way to the transport, and once more if all of the frame has failed and may be sent
# again.


# The spec: "initialize" must not be part of a batch (2025-03-26, basic/lifecycle).
_ALONE = "initialize"


class BatchAssembler:
    """Waits until everybody who wants to share a frame is there or has gone, and sends it.

    Never in anybody's way: who has to stand in line, speaks a revision without batches, has
    headers of its own or another connection than the rest leaves, and goes alone.

    Args:
        size: How many are expected.
        pool: Where a frame is sent whose exchange needs a thread.
    """

    def __init__(self, size: int, pool: DaemonPool) -> None:
        self._pool = pool
        # Guards everything below; held for changes only.
        self._lock = threading.RLock()
        self._missing = set(range(size))
        self._ready: dict[int, PendingRequest] = {}
        self._connection: Connection | None = None

    def join(self, index: int, connection: Connection, call: PendingRequest) -> bool:
        """Have `call`, which may be sent now, sent with the others; `False`: it goes alone."""
        with self._lock:
            if index not in self._missing:
                return False
            self._missing.remove(index)
            if not self._ready:
                self._connection = connection
            others = next(iter(self._ready.values()), call)
            fits = connection is self._connection and _headers(call) == _headers(others)
            if fits:
                self._ready[index] = call
        self._go()
        return fits

    def leave(self, index: int) -> None:
        """Do not wait for this one. Never blocks."""
        with self._lock:
            self._missing.discard(index)
        self._go()

    def expect(self, index: int) -> None:
        """This one comes again, or leaves."""
        with self._lock:
            self._ready.pop(index, None)
            self._missing.add(index)

    def _go(self) -> None:
        with self._lock:
            connection = self._connection
            if self._missing or not self._ready or connection is None:
                return
            calls = [self._ready[index] for index in sorted(self._ready)]
            self._ready.clear()
            self._connection = None
        send = partial(connection.send_together, calls)
        if connection.transport.blocking:
            # Not in line: the threads that are in it may be those that wait for this.
            self._pool.run(send, at_once=True)
        else:
            send()


class BatchSlot:
    """The place of one call in a frame."""

    __slots__ = ("_gathering", "_index")

    def __init__(self, gathering: BatchAssembler, index: int) -> None:
        self._gathering = gathering
        self._index = index

    def join(self, connection: Connection, call: PendingRequest) -> bool:
        """See `BatchAssembler.join`."""
        call.place = self
        return self._gathering.join(self._index, connection, call)

    def leave(self) -> None:
        """See `BatchAssembler.leave`."""
        self._gathering.leave(self._index)

    def expect(self) -> None:
        """See `BatchAssembler.expect`."""
        self._gathering.expect(self._index)


def join_others(
    connection: Connection, call: PendingRequest, dialect: Dialect, *, ready: bool
) -> bool:
    """Have a call that has a place in a frame leave with the others; return whether it does.

    Only the first request of an operation does; `ready` says whether it may be sent now.
    """
    place, call.options.place = call.options.place, None
    if place is None:
        return False
    if ready and dialect.batches and call.method != _ALONE and place.join(connection, call):
        return True
    call.place = None
    place.leave()
    return False


def leave_frame(options: ResolvedOptions) -> None:
    """The call with these options is over; nobody need wait for it who would share its frame."""
    place, options.place = options.place, None
    if place is not None:
        place.leave()


def expect_again(calls: Sequence[PendingRequest]) -> None:
    """These calls of one connection failed at once: what is sent again may share a frame again.

    To be said of all before any of them learns of it.
    """
    for call in calls:
        if (place := call.place) is not None:
            place.expect()
            call.place, call.options.place = None, place


class BatchFrames:
    """The frames of one connection in which several requests left.

    Args:
        lock: The connection's.
        peer: The open requests, which it guards.
    """

    def __init__(
        self, lock: threading.RLock, peer: RequestTable[PendingRequest, OpenQuestion]
    ) -> None:
        self._lock = lock
        self._peer = peer
        self._sent: list[Outgoing] = []

    def bundle(self, calls: Sequence[PendingRequest]) -> Outgoing | None:
        """One frame of those that somebody still waits for."""
        with self._lock:
            outs = [call.out for call in calls if call.out and self._peer.get(call.id) is call]
            if len(outs) < 2:
                return outs[0] if outs else None
            carrier = Outgoing(
                jsonrpc.encode_batch([out.body for out in outs]),
                None,
                None,
                outs[0].headers,
                LatestDeadline([out.deadline for out in outs]),
                tuple(id for out in outs for id in out.ids),
            )
            for out in outs:
                out.batch = carrier
            self._sent = [frame for frame in self._sent if any(map(self._peer.get, frame.ids))]
            self._sent.append(carrier)
        return carrier

    def blamed(self) -> Outgoing | None:
        """The frame that an error is about which names no request and has no stream, if any.

        A server that cannot read a frame can name nothing in it. It must be the only one of which
        nothing has been answered; or the probe, while nothing else is open. Not `initialize`: the
        error may be about the probe before it.
        """
        with self._lock:
            only = self._peer.sole_call()
            if only is not None and only.method == "server/discover":
                return only.out
            whole = [frame for frame in self._sent if all(map(self._peer.get, frame.ids))]
        return whole[0] if len(whole) == 1 else None


class LatestDeadline(Deadline):
    """Passes with the last of several deadlines; while it stands still, all of them do."""

    __slots__ = ("_all",)

    def __init__(self, deadlines: Sequence[Deadline]) -> None:
        super().__init__(None)
        self._all = deadlines
        ends = [deadline.at for deadline in deadlines if deadline.at is not None]
        if len(ends) == len(deadlines):
            self.at = max(ends)
            self.seconds = max(deadline.seconds or 0.0 for deadline in deadlines)

    def hold(self, patience: float | None = None) -> None:
        """See `Deadline`."""
        super().hold(patience)
        for deadline in self._all:
            deadline.hold(patience)

    def release(self) -> None:
        """See `Deadline`."""
        super().release()
        for deadline in self._all:
            deadline.release()


def _headers(call: PendingRequest) -> dict[str, str]:
    return dict(call.options.headers or {})
