"""One connection: the table of open requests, a transport under it, and whoever waits above.

This is the only place that settles a request. Answer, error, deadline, cancel, lost connection and
close all *take* the request out of the table first; the one who got it decides what becomes of it,
and everybody who comes later finds nothing.
"""

from __future__ import annotations

import logging
import math
import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp import _threads
from syncmcp._call import Call, lost, told
from syncmcp._notices import Notices
from syncmcp._options import Options
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.dialect import KNOWN_NOTIFICATIONS, KNOWN_REQUESTS, Dialect
from syncmcp._protocol.peer import Peer
from syncmcp._questions import Questions
from syncmcp._redaction import redact
from syncmcp._threads import Deadline, TimerEntry, Workers, acquire, monotonic, timer
from syncmcp.cancellation import CancelToken
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    ForkedError,
    McpError,
    NotSupported,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SessionLost,
    fresh,
)
from syncmcp.handlers import Handlers
from syncmcp.transports.base import Outgoing, Transport

if TYPE_CHECKING:
    from syncmcp.client import Client

_log = logging.getLogger("syncmcp.connection")

# The server is not told of their end: these are never cancelled (spec: "Cancellation").
_NEVER_CANCELLED = frozenset(("initialize", "server/discover"))


class Connection:
    """One life of one transport. Dies once, and is then replaced, never revived."""

    def __init__(
        self,
        transport: Transport,
        client: Client,
        handlers: Handlers,
        callback_workers: Workers,
        handler_workers: Workers,
        *,
        first_id: int,
        max_in_flight: int,
    ) -> None:
        self.transport = transport
        self.label = transport.label
        self._handlers = handlers
        # Guards the peer's tables, the outcomes of calls and the reason of death. Held for table
        # updates only: no I/O, no user code and no settling of a future happens under it.
        self._lock = threading.RLock()
        self._peer: Peer[Call, CancelToken] = Peer(first_id, max_in_flight)
        self._dead: McpError | None = None
        self._draining = False
        self._ended = threading.Event()
        self._emptied: threading.Event | None = None
        self._dialect: Dialect | None = None
        self._unsupported: Mapping[str, str] = {}
        self._generation = _threads.generation
        self._notices = Notices(self.label, handlers, callback_workers)
        self._questions = Questions(
            self.label,
            self._peer,
            self._lock,
            # An open client that nobody holds any more must be found by the collector.
            weakref.ref(client),
            handlers,
            handler_workers,
            self._post_frame,
        )
        # Answered, but their callbacks have not come to an end.
        self._finishing: set[Call] = set()
        # The one appointment with the timer for all calls, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf
        self.log_level: str | None = None
        self._malformed_frames = 0

    # -- life ------------------------------------------------------------------------------

    def open(self, deadline: Deadline) -> None:
        """Open the transport; the server may be spoken to from here on."""
        self.transport.open(self, deadline)

    def adopt(self, dialect: Dialect, capabilities: Mapping[str, Any]) -> None:
        """Speak `dialect` from now on, with a server that can do `capabilities`."""
        self._dialect = dialect
        self._unsupported = _gates(dialect, capabilities)
        self.transport.adopt(dialect.session_headers(), stateful=dialect.stateful)
        if not dialect.stateful and (methods := self._handlers.request_methods()):
            _log.warning(
                "[%s] speaks %s, where servers send no requests: the handlers of %s wait in vain",
                self.label,
                dialect.revision,
                ", ".join(methods),
            )

    @property
    def of_this_process(self) -> bool:
        """Whether it was made in this process, not in one that this one was forked from."""
        return self._generation == _threads.generation

    def speak(self, dialect: Dialect) -> None:
        """Use `dialect` for what comes in and for notices while nothing is agreed on yet."""
        self._dialect = dialect

    @property
    def dead(self) -> McpError | None:
        """Why the connection is over, if it is."""
        return self._dead

    def wait_dead(self, seconds: float) -> bool:
        """Wait, at most this long, for the connection to end; return whether it has."""
        return self._ended.wait(seconds)

    @property
    def next_id(self) -> int:
        """The id that the next request would get."""
        return self._peer.next_id

    @property
    def dialect(self) -> Dialect:
        """What was negotiated."""
        if self._dialect is None:
            raise ClosedError("the client is not open", server=self.label)
        return self._dialect

    def drain(self, deadline: Deadline) -> None:
        """Take no new calls, and wait, at most until `deadline`, for those in flight to end."""
        with self._lock:
            self._draining = True
            if not len(self._peer):
                return
            self._emptied = threading.Event()
        self._emptied.wait(deadline.remaining())

    def close(self, deadline: Deadline) -> None:
        """End it: every call in flight fails at once, then the transport closes."""
        self._die(ClosedError("the client was closed", server=self.label))
        self.transport.close(deadline)

    def _die(self, error: McpError) -> None:
        with self._lock:
            if self._dead is None:
                self._dead = error
            calls = self._peer.drain()
            questions = self._peer.drain_questions()
            for call in calls:
                # A clock may find the call taken before it is settled below.
                call.outcome = told(error, call.method, "unknown")
            if self._appointment is not None and not self._finishing:
                self._appointment.cancel()
                self._next_look = math.inf
            if self._emptied is not None:
                self._emptied.set()
        self._ended.set()
        for token in questions:
            token.cancel("the connection ended")
        for call in calls:
            self._settle(call, self._epitaph(call, error))

    def _epitaph(self, call: Call, error: McpError) -> McpError:
        """What a call in flight is told of the connection's end; an error object of its own."""
        return told(
            error, call.method, self.transport.withdraw(call.out) if call.out else "not_sent"
        )

    # -- our requests ----------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        options: Options,
        deadline: Deadline,
        *,
        dialect: Dialect | None = None,
        feed: Callable[[float, float | None, str | None], object] | None = None,
    ) -> Any:
        """Send a request and block until it ends; return its raw result.

        `dialect` is given while none has been agreed on; `feed` is told of progress by the reader.

        Raises:
            McpError: Whatever became of it instead.
        """
        call = Call(method, options, deadline, feed=feed)
        try:
            self.start(call, params, dialect)
            self._wait(call)
        except BaseException as error:
            # Ctrl-C, mostly. The server hears of it, and the table forgets it.
            if not isinstance(error, McpError):
                self._abandon(call, error)
            raise
        return call.result()

    def start(
        self, call: Call, params: dict[str, Any] | None, dialect: Dialect | None = None
    ) -> None:
        """Register a request and send it; its end will be told to the call.

        Raises:
            McpError: It was not registered: nothing was sent.
        """
        if not self.of_this_process:
            raise ForkedError(
                "this client belongs to the parent process; make a new one after a fork",
                server=self.label,
                method=call.method,
            )
        method = call.method
        if dialect is None:
            dialect = self.check(method)
        options = call.options
        if options.cancel is not None and options.cancel.cancelled:
            raise RequestCancelled(
                "cancelled",
                reason=options.cancel.reason,
                server=self.label,
                method=method,
                delivery="not_sent",
            )
        if call.deadline.expired:
            raise RequestTimeout(
                "no time is left to send it",
                seconds=call.deadline.seconds,
                server=self.label,
                method=method,
                delivery="not_sent",
            )
        with self._lock:
            if self._dead is not None:
                raise fresh(self._dead, method=method, delivery="not_sent")
            if self._draining:
                raise ClosedError("the client is closing", server=self.label, method=method)
            call.turn = self._peer.register(call)
        try:
            params = dialect.params(
                method, params, call.id, options.meta, options.log_level or self.log_level
            )
            headers: Mapping[str, str] = {}
            if self.transport.blocking:  # that is HTTP; nothing else has headers
                headers = {**(options.headers or {}), **dialect.headers(method, params)}
            body = jsonrpc.encode_request(call.id, method, params)
        except BaseException:
            self._take(call.id)
            raise
        out = Outgoing(body, method, call.id, headers, call.deadline)
        with self._lock:
            call.out = out
            # Whoever took the call before now told its owner that it was not sent.
            may_send = call.turn and self._peer.get(call.id) is call
        self._watch(call)
        if may_send and not call.released:
            self._send(out)

    def check(self, method: str) -> Dialect:
        """Return the dialect, if a request can be made in it to this server.

        Raises:
            NotSupported: The revision or the server lacks it.
        """
        missing = self._unsupported.get(method)
        if missing is not None:
            raise NotSupported(missing, server=self.label, method=method)
        return self.dialect

    def _send(self, out: Outgoing) -> None:
        following: Outgoing | None = out
        # A loop, for the line behind a frame that cannot be sent may be long, and none of it can.
        while following is not None:
            try:
                self.transport.send(following)
                return
            except McpError as error:
                following = self._fail(following, error)

    def _watch(self, call: Call) -> None:
        """Have the call end when it must: by a token, or by a clock that someone else watches."""
        cancel = call.options.cancel
        if cancel is not None:
            call.unsubscribe = cancel._subscribe(partial(self._cancelled, call, cancel))
        # A thread that waits for its slot watches the clock by itself; one that is in the middle
        # of an HTTP exchange, or not waiting at all, cannot.
        if call.slot is None or self.transport.blocking:
            when = call.next_look()
            if when is not None:
                with self._lock:
                    self._wake_at(when)

    def _wake_at(self, when: float) -> None:
        """Look at `when` at the latest; called with the lock held.

        Most calls have the same limits, so that a later one needs no appointment of its own.
        """
        if when < self._next_look and (self._dead is None or self._finishing):
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what has run out of time."""
        with self._lock:
            self._next_look = math.inf
            open_calls = self._peer.open_calls()
            finishing = list(self._finishing)
        for call in open_calls:
            error = self._overdue(call)
            if error is not None:
                self.give_up(call, error)
        for call in finishing:
            if self._overdue(call) is not None:
                # Its callbacks are late: the result goes out now.
                self._release(call)
        looks = [when for call in (*open_calls, *finishing) if (when := call.next_look())]
        # What is over by now makes for a look too many, and not for one too few.
        with self._lock:
            if looks:
                self._wake_at(max(min(looks), monotonic() + _BREATH))

    def _overdue(self, call: Call) -> RequestTimeout | None:
        return call.overdue()

    def _wait(self, call: Call) -> None:
        """Block until the call is released, or out of time."""
        slot = call.slot
        assert slot is not None
        while True:
            when = call.next_look()
            if acquire(slot, None if when is None else when - monotonic()):
                if call.released:
                    return
                assert call.out is not None
                self._send(call.out)  # it stood in line, and its exchange needs this thread
                continue
            error = self._overdue(call)
            if error is not None:
                self.give_up(call, error)
                return

    def _cancelled(self, call: Call, token: CancelToken) -> None:
        self.give_up(call, RequestCancelled("cancelled", reason=token.reason))

    def _abandon(self, call: Call, error: BaseException) -> None:
        self.give_up(call, RequestCancelled("interrupted", reason=type(error).__name__))

    def give_up(self, call: Call, error: RequestTimeout | RequestCancelled) -> bool:
        """End a call from our side: its exchange stops, and the server is told, once.

        Never blocks; any thread may do it. Returns `False` if the call had ended already.
        """
        # Before it is anybody's: the call's own clock may raise it at once.
        error.server = self.label
        error.method = call.method
        if self._take(call.id, error) is None:
            return False
        error.delivery = "not_sent"
        if call.out is not None:
            error.delivery = self.transport.withdraw(call.out)
            if error.delivery != "not_sent":
                self._announce_cancel(call, str(error.message))
        self._settle(call, error)
        return True

    def _announce_cancel(self, call: Call, reason: str) -> None:
        dialect = self._dialect
        if dialect is None or call.method in _NEVER_CANCELLED:
            return
        if dialect.announces_cancel(own_stream=self.transport.blocking):
            asked = call.outcome.reason if isinstance(call.outcome, RequestCancelled) else None
            self._post("notifications/cancelled", {"requestId": call.id, "reason": asked or reason})

    def notify(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification.

        Raises:
            NotSupported: The revision has no such notification, or none at all.
            McpError: It could not be sent.
        """
        dialect = self.dialect
        known = dialect.has_notification(method)
        if not known and (not dialect.stateful or method in KNOWN_NOTIFICATIONS):
            raise NotSupported(
                f"revision {dialect.revision} has no such notification from a client",
                server=self.label,
                method=method,
            )
        self.tell(method, params, deadline)

    def tell(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification that needs no checking."""
        if self._dead is not None:
            raise fresh(self._dead, method=method, delivery="not_sent")
        body = jsonrpc.encode_notification(method, params)
        self.transport.send(Outgoing(body, method, None, {}, deadline))

    def _post(self, method: str, params: dict[str, Any]) -> None:
        body = jsonrpc.encode_notification(method, params)
        self._post_frame(body, method)

    def _post_frame(self, body: bytes, method: str | None = None) -> None:
        # Nobody waits for it, and when the connection is gone nobody misses it.
        try:
            self.transport.post(Outgoing(body, method, None, {}, Deadline(_POST_SECONDS)))
        except McpError as error:
            _log.debug("[%s] could not send %s: %s", self.label, method or "an answer", error)

    # -- what comes in (Receiver): on whatever thread reads ----------------------------------

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """See `Receiver`."""
        messages = jsonrpc.decode(frame)
        for message in messages:
            kind = type(message)
            if kind is jsonrpc.Result or kind is jsonrpc.Error:
                self._answered(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Notification:
                self._notified(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Request or kind is jsonrpc.BadRequest:
                self._asked(message)  # type: ignore[arg-type]
            else:
                self._malformed(message, out)  # type: ignore[arg-type]
        return out is not None and self._is_settled(out)

    def _is_settled(self, out: Outgoing) -> bool:
        if out.id is None:
            return False
        with self._lock:
            return self._peer.get(out.id) is None

    def _answered(self, message: jsonrpc.Result | jsonrpc.Error, out: Outgoing | None) -> None:
        id: object = message.id
        if id is None and out is not None and isinstance(message, jsonrpc.Error):
            id = out.id  # an error without an id answers the request on whose stream it came
        outcome: Any
        if isinstance(message, jsonrpc.Result):
            outcome = message.result
        else:
            outcome = ServerError.from_wire(
                message.code, redact(message.message), message.data, server=self.label
            )
        call = self._take(id, outcome)
        if call is None:
            _log.debug("[%s] an answer to nothing that is open, id %r", self.label, message.id)
            if message.id is None and isinstance(message, jsonrpc.Error):
                _log.warning("[%s] reports an error: %s", self.label, outcome)
            return
        if isinstance(outcome, ServerError):
            outcome.method = call.method
        delivery = call.delivery
        if delivery is None:
            self._settle(call, outcome)
        else:
            with self._lock:
                self._finishing.add(call)
                if (when := call.next_look()) is not None:
                    self._wake_at(when)
            delivery.finish(partial(self._settle, call, outcome))

    def _notified(self, message: jsonrpc.Notification, out: Outgoing | None) -> None:
        method, params = message
        if method == "notifications/cancelled":
            self._questions.withdraw(params)
            return
        call = self._owner(method, params, out)
        if call is not None:
            call.seen = monotonic()
        self._notices.take(method, params, call)

    def _owner(self, method: str, params: dict[str, Any], out: Outgoing | None) -> Call | None:
        """The call that a notification belongs to, where that can be known."""
        with self._lock:
            if method == "notifications/progress":
                return self._peer.get(params.get("progressToken"))
            if out is not None:
                return self._peer.get(out.id)
            return self._peer.only()

    def _asked(self, message: jsonrpc.Request | jsonrpc.BadRequest) -> None:
        dialect = self._dialect
        if dialect is None or not dialect.stateful:
            _log.warning(
                "[%s] sent a request, which its revision does not allow; it is not answered",
                self.label,
            )
            return
        self._questions.take(message)

    def _malformed(self, message: jsonrpc.Malformed, out: Outgoing | None) -> None:
        id: object = message.id
        if id is None and out is not None:
            id = out.id
        error = ProtocolError(f"malformed answer: {message.reason}", server=self.label)
        call = self._take(id, error)
        if call is not None:
            error.method = call.method
            self._settle(call, error)
            return
        self._malformed_frames += 1
        _log.log(
            logging.WARNING if self._malformed_frames == 1 else logging.DEBUG,
            "[%s] sent something that is no message: %s",
            self.label,
            message.reason,
        )

    def alive(self, out: Outgoing) -> None:
        """See `Receiver`."""
        with self._lock:
            call = self._peer.get(out.id)
        if call is not None:
            call.seen = monotonic()

    def failed(self, out: Outgoing, error: McpError) -> None:
        """See `Receiver`."""
        following = self._fail(out, error)
        if following is not None:
            self._send(following)

    def _fail(self, out: Outgoing, error: McpError) -> Outgoing | None:
        """End the exchange of `out`; return the frame whose turn has come."""
        if out.id is None:
            return None
        call, following = self._remove(out.id, error)
        if call is not None:
            error.server = self.label
            error.method = call.method
            if isinstance(error, ConnectionLost) and not isinstance(error, SessionLost):
                error = lost(error, call.method, error.delivery)
            self._settle(call, error)
        if isinstance(error, SessionLost):
            self.lost(error)
        return following

    def lost(self, error: McpError) -> None:
        """See `Receiver`."""
        error.server = self.label
        self._die(error)

    # -- settling ----------------------------------------------------------------------------

    def _take(self, id: object, outcome: Any = None) -> Call | None:
        call, following = self._remove(id, outcome)
        if following is not None:
            self._send(following)
        return call

    def _remove(self, id: object, outcome: Any) -> tuple[Call | None, Outgoing | None]:
        """Take a call out of the table; return it, and the frame whose turn has come."""
        with self._lock:
            call = self._peer.take(id)
            if call is None:
                return None, None
            # Stored under the lock: whoever finds the call gone finds its outcome here.
            call.outcome = outcome
            following = self._next_in_line()
            if self._emptied is not None and not len(self._peer):
                self._emptied.set()
        return call, following

    def _next_in_line(self) -> Outgoing | None:
        """The frame to send now that a call has ended; called with the lock held."""
        call = self._peer.next_in_line()
        if call is None:
            return None
        call.turn = True
        if call.out is not None and call.slot is not None and self.transport.blocking:
            call.slot.release()
            return None
        # Without a frame yet: the thread that is making it will see that it may be sent.
        return call.out

    def _settle(self, call: Call, outcome: Any) -> None:
        call.outcome = outcome
        self._release(call)

    def _release(self, call: Call) -> None:
        """Let the waiter go; the first time counts."""
        with self._lock:
            if call.released:
                return
            call.released = True
            self._finishing.discard(call)
        if call.unsubscribe is not None:
            call.unsubscribe()
        if call.slot is not None:
            # Not locked when its turn came at this moment: then its thread is awake already.
            if call.slot.locked():
                call.slot.release()
        elif call.done is not None:
            call.done(call)


# The least time, in seconds, between two looks at the clocks of the calls.
_BREATH = 0.001

# A notice or an answer that cannot be sent within this many seconds is given up.
_POST_SECONDS = 30.0


def _gates(dialect: Dialect, capabilities: Mapping[str, Any]) -> dict[str, str]:
    """For each known request that cannot be made here, why not."""
    gates = {}
    for method in KNOWN_REQUESTS:
        path = dialect.needs(method)
        if path is None:
            gates[method] = f"revision {dialect.revision} has no such request"
            continue
        value: Any = capabilities
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
            # Some servers write `true` or an empty object for the same thing.
            if value is None or value is False:
                gates[method] = f"the server does not declare the capability {'.'.join(path)}"
                break
    return gates
