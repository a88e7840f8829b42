"""One connection: the table of open requests, a transport under it, and whoever waits above.

This is the only place that settles a request. Answer, error, deadline, cancel, lost connection and
close all *take* the request out of the table first; the one who got it decides what becomes of it,
and everybody who comes later finds nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._concurrency import timing
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.timing import Deadline, Latch, acquire, monotonic
from syncmcp._connection.batching import BatchFrames
from syncmcp._connection.intercepting import InterceptorChain
from syncmcp._connection.negotiated import NegotiatedState
from syncmcp._connection.notifications import HEARD, NotificationDispatcher, NotificationRouter
from syncmcp._connection.notifier import Notifier
from syncmcp._connection.options import ResolvedOptions, with_trace_context
from syncmcp._connection.pending_request import (
    PendingRequest,
    TimeoutWatcher,
    answer_in,
    expect_retries,
    lost,
    told,
)
from syncmcp._connection.questions import OpenQuestion, QuestionRegistry
from syncmcp._connection.server_requests import QuestionDispatcher
from syncmcp._connection.task_calls import TaskCallTracker
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.client_capabilities import OfferedCapabilities
from syncmcp._protocol.request_table import RequestTable
from syncmcp._protocol.revisions import Dialect
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    ForkedError,
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SessionLost,
    fresh,
)
from syncmcp.handlers import offer_of
from syncmcp.transports.base import OfChild, Outgoing, Transport

if TYPE_CHECKING:
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.wire_log import WireLog
    from syncmcp.errors import Delivery
    from syncmcp.interceptors import Interceptor

_log = logging.getLogger("syncmcp.connection")


class Connection:
    """One life of one transport. Dies once, and is then replaced, never revived."""

    def __init__(
        self,
        transport: Transport,
        services: ClientServices,
        wire: WireLog,
        *,
        first_id: int,
        max_in_flight: int,
        max_questions: int,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self.transport = transport
        self.services = services
        self.questions = QuestionRegistry(services)
        self._wire = wire
        self.label = services.label
        # Guards the peer's tables, the outcomes of calls and the reason of death. Held for table
        # updates only: no I/O, no user code and no settling of a future happens under it.
        self._lock = threading.RLock()
        self._peer: RequestTable[PendingRequest, OpenQuestion] = RequestTable(
            first_id, max_in_flight
        )
        self._dead: McpError | None = None
        self._draining = False
        self._ended = Latch()
        self._emptied: list[Callable[[], object]] = []
        self.agreed = NegotiatedState(self.label)
        self._generation = timing.fork_generation
        self.interception = (
            InterceptorChain(interceptors, self.label, services.callbacks) if interceptors else None
        )
        self._notices = NotificationDispatcher(
            self.label, services.handlers, services.callbacks, self.interception
        )
        self._tasks = TaskCallTracker(
            services, self._peer, self.agreed, self._lock, transport.blocking
        )
        self.news = NotificationRouter(services, self._peer, self._lock, self._tasks)
        self._notifier = Notifier(transport, wire, self.label, self.agreed, self.interception)
        self._frames = BatchFrames(self._lock, self._peer)
        self._clock = TimeoutWatcher(self._lock, self._peer.open_calls, self.give_up, self._release)
        self._questions = QuestionDispatcher(
            self.questions,
            self._peer,
            self._lock,
            self._notifier,
            self._clock.watch,
            max_questions,
            self.interception,
        )
        self.log_level: str | None = None

    # -- life ------------------------------------------------------------------------------

    def open(self, deadline: Deadline) -> None:
        """Open the transport; the server may be spoken to from here on."""
        self.transport.open(self, deadline)

    def adopt(
        self, dialect: Dialect, capabilities: Mapping[str, Any], offer: OfferedCapabilities
    ) -> None:
        """Speak `dialect` from now on, with a server that can do `capabilities`.

        `offer` is what the server was told that it may ask.
        """
        self.agreed.adopt(dialect, capabilities, offer)
        self.transport.adopt(dialect.session_headers(), stateful=dialect.stateful)
        if not dialect.stateful and (methods := self.services.handlers.request_methods()):
            _log.warning(
                "[%s] speaks %s, where servers send no requests: the handlers of %s wait in vain",
                self.label,
                dialect.revision,
                ", ".join(methods),
            )

    def ready(self) -> None:
        """The client is open: what the server asks can be answered from now on."""
        self._questions.open()

    @property
    def of_this_process(self) -> bool:
        """Whether it was made in this process, not in one that this one was forked from."""
        return self._generation == timing.fork_generation

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
        return self.agreed.dialect

    def facts(self, now: float) -> dict[str, Any]:
        """What goes on here, as plain values; see `Dump`."""
        with self._lock:
            calls, waiting = self._peer.open_calls(), self._peer.waiting
        transport = self.transport
        tail = transport.stderr_tail() if isinstance(transport, OfChild) else ""
        return {
            "calls": [call.facts(now) for call in calls],
            "questions": self.questions.facts(),
            "queues": {"calls": waiting, "questions": self.questions.waiting},
            "server": {"stderr": tail, "said": transport.describe()},
        }

    def drain(self, deadline: Deadline) -> None:
        """Take no new calls, and wait, at most until `deadline`, for those in flight to end."""
        with self._lock:
            self._draining = True
        emptied = threading.Event()
        self.when_empty(emptied.set)
        emptied.wait(deadline.remaining())

    def when_empty(self, action: Callable[[], object]) -> None:
        """Do `action`, which does not block, whenever no call is in flight; perhaps now.

        It may be done several times, even on a connection that takes no new calls.
        """
        with self._lock:
            self._emptied.append(action)
            empty = not len(self._peer)
        if empty:
            action()

    def _retire(self, error: SessionLost) -> None:
        """Take no new calls, for the session is gone; those in flight go on to their own ends."""
        with self._lock:
            if self._dead is None:
                self._dead = error

    def close(self, deadline: Deadline) -> None:
        """End it: every call in flight fails at once, then the transport closes."""
        self._die(ClosedError("the client was closed", server=self.label))
        self.transport.close(deadline)

    def _die(self, error: McpError) -> None:
        with self._lock:
            if self._dead is None:
                self._dead = error
            calls = self._peer.drain()
            for call in calls:
                # A clock may find the call taken before it is settled below.
                call.outcome = told(error, call.method, "unknown")
            self._clock.stop()
            emptied, self._emptied = self._emptied, []
        for action in emptied:
            action()
        self._ended.set()
        self.questions.close(error)
        expect_retries(calls)
        for call in calls:
            delivery = self._withdraw(call.out) if call.out else "not_sent"
            self._settle(call, told(error, call.method, delivery))

    # -- our requests ----------------------------------------------------------------------

    def request(
        self,
        method: str,
        params: dict[str, Any] | None,
        options: ResolvedOptions,
        deadline: Deadline,
        *,
        dialect: Dialect | None = None,
        offer: OfferedCapabilities | None = None,
    ) -> Any:
        """Send a request and block until it ends; return its raw result.

        `dialect` is given while none has been agreed on, `offer` where something else may be asked
        in return than the handlers can answer.

        Raises:
            McpError: Whatever became of it instead.
        """
        call = PendingRequest(method, options, deadline)
        if self.interception is None:
            return self._exchange(call, params, dialect, offer)
        call.passage = self.interception.passage(call)
        return call.passage.conduct(partial(self._exchange, call, params, dialect, offer))

    def _exchange(
        self,
        call: PendingRequest,
        params: dict[str, Any] | None,
        dialect: Dialect | None,
        offer: OfferedCapabilities | None,
    ) -> Any:
        try:
            self.start(call, params, dialect, offer)
            self._wait(call)
        except BaseException as error:
            # Ctrl-C, mostly. The server hears of it, and the table forgets it.
            if not isinstance(error, McpError):
                self.give_up(call, RequestCancelled("interrupted", reason=type(error).__name__))
            raise
        return call.result()

    def start(
        self,
        call: PendingRequest,
        params: dict[str, Any] | None,
        dialect: Dialect | None = None,
        offer: OfferedCapabilities | None = None,
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
            dialect = self.agreed.check(method, call.options.undeclared)
        options = call.options
        call.check_in_time(self.label)
        if offer is None:
            offer = offer_of(self.services.handlers.for_call(options.handlers))
            if options.handlers is not None:
                self.agreed.check_declared(offer)
        with self._lock:
            if self._dead is not None:
                raise fresh(self._dead, method=method, delivery="not_sent")
            if self._draining:
                raise ClosedError("the client is closing", server=self.label, method=method)
            call.turn = self._peer.register(call, at_once=options.nested)
        call.params = params
        if self.interception is not None and call.passage is None:
            call.passage = self.interception.passage(call)
        level = options.log_level or self.log_level
        try:
            meta = with_trace_context(options, params)
            params = dialect.params(method, params, call.id, meta, level, offer)
            if call.passage is not None:
                self._watch(call)  # an interceptor may hold it up until nobody wants it any more
                params = call.passage.outgoing(params)
                # Whatever they did to it, the protocol's own keys are there.
                params = dialect.params(method, params, call.id, None, level, offer)
            headers: Mapping[str, str] = {}
            if self.transport.blocking:  # that is HTTP; nothing else has headers
                headers = {**(options.headers or {}), **dialect.headers(method, params)}
            body = jsonrpc.encode_request(call.id, method, params)
        except BaseException as error:
            self._take(call.id)
            if call.passage is not None:
                call.passage.failed(error)
            raise
        out = Outgoing(body, method, call.id, headers, call.deadline)
        self._tasks.begin(call, out)
        with self._lock:
            call.out = out
            # Whoever took the call before now told its owner that it was not sent.
            may_send = call.turn and self._peer.get(call.id) is call
        if call.passage is None:
            self._watch(call)
        may_send = may_send and not call.released
        if call.join_batch(self, dialect, ready=may_send) or not may_send:
            return
        if call.slot is not None or not call.hand_over(self._send):
            call.carry(self._send)

    def send_batch(self, outs: Sequence[Outgoing]) -> None:
        """Send the requests that are still open in one frame."""
        if (frame := self._frames.bundle(outs)) is not None:
            self._send(frame)

    def _send(self, *outs: Outgoing) -> None:
        line = deque(outs)
        # A loop, for the line behind a frame that cannot be sent may be long, and none of it can.
        while line:
            out = line.popleft()
            self._wire.sent(out)
            try:
                self.transport.send(out)
            except McpError as error:
                line.extend(self._fail(out, error))

    def _withdraw(self, out: Outgoing) -> Delivery:
        if out.carrier is None:
            return self.transport.withdraw(out)
        # The exchange goes on for the others in it.
        return self.transport.withdraw(out.carrier) if self.settled(out.carrier) else "unknown"

    def _watch(self, call: PendingRequest) -> None:
        """Have the call end when it must: by a token, or by a clock that someone else watches."""
        cancel = call.options.cancel
        if cancel is not None:
            call.unsubscribe = call_when_cancelled(cancel, partial(self._cancelled, call, cancel))
        # A thread that waits for its slot watches the clock by itself; one that is in the middle
        # of an HTTP exchange or of an interceptor, or not waiting at all, cannot.
        if call.slot is None or self.transport.blocking or call.passage is not None:
            self._clock.watch(call)

    def _wait(self, call: PendingRequest) -> None:
        """Block until the call is released, or out of time."""
        slot = call.slot
        assert slot is not None
        while True:
            when = call.next_look()
            if acquire(slot, None if when is None else when - monotonic()):
                if call.released:
                    return
                call.carry(self._send)  # it stood in line, and its exchange needs this thread
                continue
            error = call.overdue()
            if error is not None:
                self.give_up(call, error)
                return

    def _cancelled(self, call: PendingRequest, token: CancelToken) -> None:
        self.give_up(call, RequestCancelled("cancelled", reason=token.reason))

    def give_up(self, call: PendingRequest, error: RequestTimeout | RequestCancelled) -> bool:
        """End a call from our side: its exchange stops, and the server is told, once.

        Never blocks; any thread may do it. Returns `False` if the call had ended already.
        """
        # Before it is anybody's: the call's own clock may raise it at once.
        error.server, error.method = self.label, call.method
        if self._take(call.id, error) is None:
            return False
        error.delivery = "not_sent"
        if call.out is not None:
            error.delivery = self._withdraw(call.out)
            if error.delivery != "not_sent" and self._tasks.given_up(call):
                self._notifier.cancelled(call.id, call.method, error)
        with self._lock:
            caused = list(call.asked.items())
        self._settle(call, error)
        for asked, hold in caused:
            if hold.certain:
                asked.withdraw("the call behind it ended")
            else:  # it may be about something else: the server gets an answer
                asked.give_up("the call behind it ended")
        return True

    def notify(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification.

        Raises:
            NotSupported: The revision has no such notification, or none at all.
            McpError: It could not be sent.
        """
        if self._dead is not None:
            raise fresh(self._dead, method=method, delivery="not_sent")
        if self.interception is not None:
            params = self.interception.notifying(method, params, deadline)
        self._notifier.tell(method, params, deadline)

    def announce_roots(self) -> None:
        """Tell the server that the roots have changed, where a server can be told. Never blocks."""
        self._notifier.roots_changed()

    # -- what comes in (Receiver): on whatever thread reads ----------------------------------

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """See `Receiver`."""
        self._wire.record("received", frame)
        messages = jsonrpc.decode(frame)
        if len(messages) > 1:  # what is about nobody is about those whom nothing else was about
            messages.sort(key=jsonrpc.names_nobody)
        for message in messages:
            kind = type(message)
            if kind is jsonrpc.Result or kind is jsonrpc.Error:
                self._answered(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Notification:
                self._notified(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Request or kind is jsonrpc.BadRequest:
                self._asked(message, out)  # type: ignore[arg-type]
            else:
                self._malformed(message, out)  # type: ignore[arg-type]
        return out is not None and self.settled(out)

    def settled(self, out: Outgoing) -> bool:
        """See `Receiver`."""
        with self._lock:
            return self._tasks.settled(out)

    def _answered(self, message: jsonrpc.Result | jsonrpc.Error, out: Outgoing | None) -> None:
        about = (out or self._frames.frame_of_error()) if jsonrpc.names_nobody(message) else None
        if about is not None and about.ids:
            for id in about.ids:  # it answers the requests on whose stream it came
                self._answered(message._replace(id=id), out)
            return
        outcome = answer_in(message, out, self.label)
        if (call := self._take(message.id, outcome)) is None:
            _log.debug("[%s] an answer to nothing that is open, id %r", self.label, message.id)
            self.agreed.late(message.id, outcome)
            self._tasks.late(message.id, outcome)
            if message.id is None and isinstance(message, jsonrpc.Error):
                _log.warning("[%s] reports an error: %s", self.label, outcome)
            return
        if isinstance(outcome, ServerError):
            outcome.method = call.method
            self.services.visits.announced(outcome)
        settle = partial(self._settle, call, outcome)
        for delivery in self._tasks.answered(call, outcome):  # what came before it is heard before
            self._clock.finishing(call)
            settle = partial(delivery.finish, settle)
        settle()

    def _notified(self, message: jsonrpc.Notification, out: Outgoing | None) -> None:
        method, params = message
        if method == "notifications/cancelled":
            if (ended := self.news.ended(params, self.agreed.spoken)) is not None:
                self._answered(ended, out)
            self._questions.withdraw(params)
            if self.interception is not None:
                self.interception.settled("incoming", "notification", method, params=params)
            return
        if method in HEARD:
            self.news.take(method, params, self.agreed.spoken, out)
        call = self.news.owner(method, params, out)
        if call is not None:
            call.seen = monotonic()
        self._notices.take(method, params, call)

    def _asked(self, message: jsonrpc.Request | jsonrpc.BadRequest, out: Outgoing | None) -> None:
        dialect = self.agreed.spoken
        if dialect is None or not dialect.stateful:
            _log.warning(
                "[%s] sent a request, which its revision does not allow; it is not answered",
                self.label,
            )
            return
        with self._lock:
            owner, certain = self._tasks.cause(message, out)
        self._questions.take(message, dialect, owner, certain=certain, out=out)

    def _malformed(self, message: jsonrpc.Malformed, out: Outgoing | None) -> None:
        meant = False
        for id in (message.id,) if message.id is not None or out is None else out.ids:
            error = ProtocolError(f"malformed answer: {message.reason}", server=self.label)
            if (call := self._take(id, error)) is not None:
                error.method, meant = call.method, True
                self._settle(call, error)
        if not meant:
            self._notices.unreadable(message.reason)

    def alive(self, out: Outgoing | None) -> None:
        """See `Receiver`."""
        with self._lock:
            calls = self._peer.open_calls() if out is None else [*map(self._peer.get, out.ids)]
        for call in calls:
            if call is not None and call.turn:  # one that waits in line was not sent
                call.seen = monotonic()

    def failed(self, out: Outgoing, error: McpError) -> None:
        """See `Receiver`."""
        self._send(*self._fail(out, error))

    def _fail(self, out: Outgoing, error: McpError) -> list[Outgoing]:
        """End the exchange of `out`; return the frames whose turn has come."""
        ended = [self._remove(id, fresh(error) if out.id is None else error) for id in out.ids]
        failed = [call for call, _ in ended if call is not None]
        expect_retries(failed)
        for call in failed:
            error = call.outcome
            error.server, error.method = self.label, call.method
            if isinstance(error, ConnectionLost):
                error = lost(error, call.method, error.delivery)
            self._settle(call, error)
        return [following for _, following in ended if following is not None]

    def lost(self, error: McpError) -> None:
        """See `Receiver`."""
        error.server = self.label
        if isinstance(error, SessionLost):
            self._retire(error)
        else:
            self._die(error)
        self.news.interrupted(error)

    def silent(self, *, heard: bool) -> None:
        """See `Receiver`."""
        self.news.over(self._dead, self.when_empty if heard else None)

    # -- settling ----------------------------------------------------------------------------

    def _take(self, id: object, outcome: Any = None) -> PendingRequest | None:
        call, following = self._remove(id, outcome)
        if following is not None:
            self._send(following)
        return call

    def _remove(self, id: object, outcome: Any) -> tuple[PendingRequest | None, Outgoing | None]:
        """Take a call out of the table; return it, and the frame whose turn has come."""
        with self._lock:
            call = self._peer.take(id)
            if call is None:
                return None, None
            # Stored under the lock: whoever finds the call gone finds its outcome here.
            call.outcome = outcome
            self._tasks.taken(call)
            following = self._next_in_line()
            emptied = () if len(self._peer) else tuple(self._emptied)
        for action in emptied:
            action()
        return call, following

    def _next_in_line(self) -> Outgoing | None:
        """The frame to send now that a call has ended; called with the lock held."""
        call = self._peer.next_in_line()
        if call is None:
            return None
        call.turn = True
        if call.out is not None and self.transport.blocking and call.hand_over(self._send):
            return None
        # Without a frame yet: the thread that is making it will see that it may be sent.
        return call.out

    def _settle(self, call: PendingRequest, outcome: Any) -> None:
        call.outcome = outcome
        self._release(call)

    def _release(self, call: PendingRequest) -> None:
        """Let the waiter go; the first time counts."""
        with self._lock:
            if call.released:
                return
            call.released = True
            self._clock.forget(call)
            owned = list(call.asked.items()) if call.asked else ()
        for asked, hold in owned:
            hold.let_go(asked)
        if call.unsubscribe is not None:
            call.unsubscribe()
        if (passage := call.passage) is not None:  # read once: it may be leaving at this moment
            passage.over()
        if call.slot is not None:
            # Not locked when its turn came at this moment: then its thread is awake already.
            if call.slot.locked():
                call.slot.release()
        elif (done := call.done) is not None:
            call.done = None  # it refers to whoever made the call, which a task may keep for long
            done(call)
