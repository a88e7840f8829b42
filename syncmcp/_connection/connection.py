"""One connection: a transport, and the table of the requests that are open on it.

This is the only place that settles requests. A response, an error, a deadline, a cancellation, a
lost connection and `close` all *take* the request out of the table: the first one decides.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.timing import Deadline, Latch, acquire, monotonic
from syncmcp._connection.answering import NO_ANSWER
from syncmcp._connection.batching import ALONE, BatchFrames
from syncmcp._connection.negotiated import NegotiatedState
from syncmcp._connection.notifications import ROUTED, NotificationRouter
from syncmcp._connection.notifier import Notifier
from syncmcp._connection.options import NO_TRACE, ResolvedOptions, with_trace_context
from syncmcp._connection.pending_request import (
    GivenUp,
    PendingRequest,
    TimeoutWatcher,
    check_wanted,
    close_error_for,
    error_of_response,
)
from syncmcp._connection.questions import QuestionRegistry
from syncmcp._connection.server_requests import QuestionDispatcher
from syncmcp._connection.task_calls import TASK_REQUESTS, TaskCallTracker, asks_for_task
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.capabilities import OfferedCapabilities
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.jsonrpc import InvalidMessage, Notification, RequestTable
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SessionLost,
    forked_error,
    fresh,
)
from syncmcp.handlers import offer_of
from syncmcp.transports.base import ForkedTransport, Outgoing, Transport

if TYPE_CHECKING:
    from syncmcp._connection.client_services import ClientServices
    from syncmcp._connection.intercepting import InterceptorChain
    from syncmcp._connection.wire_log import WireLog
    from syncmcp.errors import Delivery
    from syncmcp.interceptors import Interceptor

    Asked = jsonrpc.Request | jsonrpc.MalformedRequest

_log = logger("syncmcp.connection")


class Connection:
    """One transport from `open` to its end. An ended connection is replaced, never reopened."""

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
        # Guards the table, outcomes and `close_error`. Not held during I/O, user code or settling.
        lock = self._lock = threading.RLock()
        table = self._table = RequestTable[PendingRequest](first_id, max_in_flight)
        self.close_error: McpError | None = None  # what ended the connection
        self._draining = False
        self._closed = Latch()
        self._idle_callbacks: list[Callable[[], object]] = []
        self._unsettled: list[PendingRequest] = []
        self.agreed = NegotiatedState(self.label)
        self.interceptors: InterceptorChain | None = None
        if interceptors:  # most clients have no interceptors and need not load the module
            with delaying_forks():
                from syncmcp._connection.intercepting import InterceptorChain

            self.interceptors = InterceptorChain(interceptors, services)
        self._tasks = TaskCallTracker(table, lock)
        self.router = NotificationRouter(services, table, lock, self.interceptors)
        self.notifier = Notifier(transport, self, wire, services, self.agreed, self.interceptors)
        self._frames = BatchFrames(lock, table)
        self._timeouts = TimeoutWatcher(lock, table.open_calls, self.cancel, self._release)
        resumed = self._timeouts.watch
        dispatcher = partial(QuestionDispatcher, self.questions, lock, self.notifier)
        self._server_requests = dispatcher(resumed, self.cancel, max_questions, self.interceptors)
        self.log_level: str | None = None

    def open(self, deadline: Deadline) -> None:
        """Open the transport; then requests can be sent."""
        self.transport.open(self, deadline)

    def adopt(
        self, dialect: Dialect, capabilities: Mapping[str, Any], offer: OfferedCapabilities
    ) -> None:
        """Use `dialect` from now on, with a server that declares `capabilities`.

        `offer` are the capabilities declared in the handshake: the questions the server may ask.
        """
        self.agreed.adopt(dialect, capabilities, offer)
        self.transport.adopt(dialect.session_headers(), stateful=dialect.stateful)
        if not dialect.stateful and (methods := sorted(self.services.handlers.requests)):
            text = "[%s] speaks %s, in which servers send no requests: the handlers of %s never run"
            _log.warning(text, self.label, dialect.revision, ", ".join(methods))

    def ready(self) -> None:
        """Let the handlers of the server's requests run: the client is open now."""
        self._server_requests.open()

    def wait_closed(self, seconds: float) -> bool:
        """Wait, at most this long, for the connection to end; return whether it ended."""
        return self._closed.wait(seconds)

    @property
    def next_id(self) -> int:
        """The id of the next request."""
        return self._table.next_id

    @property
    def dialect(self) -> Dialect:
        """The negotiated dialect; see `NegotiatedState.dialect`."""
        return self.agreed.dialect

    def facts(self, now: float) -> dict[str, Any]:
        """The state of the connection as plain values; see `Dump`."""
        with self._lock:
            calls, waiting = self._table.open_calls(), len(self._table.queued)
        owed = {**self.router.facts(), **self.notifier.facts()}
        return {
            "calls": [call.facts(now) for call in calls],
            "questions": self.questions.facts(),
            "queues": {"calls": waiting, **self.questions.queue_facts(), **owed},
            "server": {"stderr": self.transport.stderr_tail(), "said": self.transport.describe()},
        }

    def drain(self, deadline: Deadline) -> None:
        """Refuse new calls, and wait, at most until `deadline`, for those in flight to end."""
        with self._lock:
            self._draining = True
        emptied = threading.Event()
        self.call_when_idle(emptied.set)
        emptied.wait(deadline.remaining())

    def release_answered(self) -> None:
        """Let every answered call return without waiting for its callbacks any longer."""
        with self._lock:
            answered = list(self._timeouts.finishing_calls)
        for call in answered:
            self._release(call)

    def call_when_idle(self, callback: Callable[[], object]) -> None:
        """Run `callback`, which does not block, whenever no call is in flight, perhaps at once.

        It may run several times, even on a connection that refuses new calls.
        """
        with self._lock:
            self._idle_callbacks.append(callback)
            empty = not len(self._table)
        if empty:
            callback()

    def disown(self) -> None:
        """In a forked child: fail the calls, but do not end the server, which is the parent's."""
        self._lock = threading.RLock()  # a thread that exists only in the parent may have held it
        self.close_error = error = forked_error(self.label)
        self.transport = self.notifier.transport = ForkedTransport(self.transport)
        for call in self._table.take_all():
            call.disown(error)

    def close(self, deadline: Deadline) -> None:
        """Fail every call in flight at once, then close the transport."""
        text = "the client was closed; close(drain=True) first waits for calls in flight"
        self._close_with(ClosedError(text, server=self.label))
        self.transport.close(deadline)

    def _close_with(self, error: McpError) -> None:
        calls: list[PendingRequest] = []
        try:
            with self._lock:
                self.close_error = self.close_error or error
                calls, self._unsettled = [*self._unsettled, *self._table.take_all()], []
                for call in calls:
                    call.taken, call.outcome = True, close_error_for(error, call.method, "unknown")
                self._timeouts.stop()
                idle_callbacks, self._idle_callbacks = self._idle_callbacks, []
            for callback in idle_callbacks:
                callback()
            self._closed.set()
            self.questions.close(error)
            self.notifier.close()
            self.services.log.flush()
            for call in calls:
                delivery = self._abort(call.out) if call.out else "not_sent"
                self._settle(call, close_error_for(error, call.method, delivery))
        except BaseException:  # Ctrl-C: the next close settles these calls
            self._unsettled = calls
            raise

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
        """Send a request and block until it ends; see `send_and_wait`."""
        return self.send_and_wait(PendingRequest(method, options, deadline), params, dialect, offer)

    def send_and_wait(
        self,
        call: PendingRequest,
        params: dict[str, Any] | None,
        dialect: Dialect | None = None,
        offer: OfferedCapabilities | None = None,
    ) -> Any:
        """Send a request and block until it ends; return its raw result, or raise its error.

        `dialect` is given until one is negotiated. `offer` replaces the questions that the handlers
        can answer. `dump` finds waiting threads by this method.
        """
        if self.interceptors is not None and call.interception is None:
            call.interception = self.interceptors.intercept(call)
            return call.interception.run(partial(self.send_and_wait, call, params, dialect, offer))
        waiter = call.waiter
        assert waiter is not None
        try:
            self.start(call, params, dialect, offer)
            while True:
                when = call.next_check()
                if acquire(waiter, None if when is None else when - monotonic()):
                    if call.released:
                        break
                    assert call.out is not None
                    self._send(call.out)  # it was queued, and its exchange needs this thread
                elif (late := call.overdue()) is not None:
                    self.cancel(call, late)
                    del late  # see `PendingRequest.take_result`
                    break
        except BaseException as error:
            # Mostly Ctrl-C. The server is notified, and the request leaves the table.
            if not isinstance(error, McpError):
                self.cancel(call, RequestCancelled("interrupted", reason=type(error).__name__))
            raise
        return call.take_result()

    def start(
        self,
        call: PendingRequest,
        params: dict[str, Any] | None,
        dialect: Dialect | None = None,
        offer: OfferedCapabilities | None = None,
        frame: list[Outgoing] | None = None,
    ) -> None:
        """Register a request and send it; its outcome is stored in `call`.

        See `send_and_wait` for `dialect` and `offer`. If `frame` is given, a request that may share
        a frame is added to it instead of being sent; see `send_batch`. An `McpError` means that
        nothing was sent, and that the table does not have the request.
        """
        method, options, cancel = call.method, call.options, call.options.cancel
        if dialect is None:
            dialect = self.agreed.current_dialect
            if dialect is None or method in self.agreed.unavailable:
                dialect = self.agreed.check(method, options.undeclared)
        if cancel is not None or call.deadline.expired:
            check_wanted(cancel, call.deadline, method, "not_sent", self.label)
        if offer is None:
            offer = self.services.handlers.offer
            if options.handlers is not None:
                offer = offer_of(self.services.handlers.for_call(options.handlers))
                self.agreed.check_declared(offer)
        with self._lock:
            if self.close_error is not None:
                raise fresh(self.close_error, method=method, delivery="not_sent")
            if self._draining:
                raise ClosedError("the client is closing", server=self.label, method=method)
            call.may_send = self._table.register(call, skip_queue=options.nested)
        call.params = params
        if self.interceptors is not None and call.interception is None:
            call.interception = self.interceptors.intercept(call)
        level = options.log_level or self.log_level
        try:
            traced = options.trace is not NO_TRACE
            meta = with_trace_context(options, params) if traced else options.meta
            params = dialect.request_params(method, params, call.id, meta, level, offer)
            if call.interception is not None:
                # An interceptor may block until the request expires or is cancelled.
                self._watch_limits(call)
                params = call.interception.before_send(params)
                # Interceptors may have removed the protocol's own keys.
                params = dialect.request_params(method, params, call.id, None, level, offer)
            headers: Mapping[str, str] = {}
            if self.transport.blocking:  # HTTP; other transports have no headers
                own = dialect.headers(method, params)
                headers = {**(options.headers or {}), **own}
            body = jsonrpc.encode_request(call.id, method, params)
        except BaseException as error:
            self._take(call.id)
            if call.interception is not None:
                call.interception.send_failed(error)
            raise
        out = Outgoing(body, method, call.id, (call.id,), headers, call.deadline)
        with self._lock:
            call.out = out
            # If the call was taken before now, its error says that it was not sent.
            send_now = call.may_send and not call.taken
        if call.interception is None and (call.waiter is None or self.transport.blocking or cancel):
            self._watch_limits(call)
        if not send_now or call.released:
            return
        if frame is not None and not options.headers and method != ALONE:
            frame.append(out)
        elif call.pool is None or call.waiter is not None or not call.delegate_send(self._send):
            self._send(out)

    def send_batch(self, outs: Sequence[Outgoing]) -> None:
        """Send the requests that are still open in one frame."""
        if (frame := self._frames.bundle(outs)) is not None:
            self._send(frame)

    def _send(self, *outs: Outgoing) -> None:
        queue = deque(outs)
        # A loop, not recursion: after a failed frame queued frames are sent, which may fail, too.
        while queue:
            out = queue.popleft()
            out.submitted = True
            self._wire.record("sent", out.body)
            try:
                self.transport.send(out)
            except McpError as error:
                queue.extend(self._fail(out, error))

    def _abort(self, out: Outgoing) -> Delivery:
        if out.batch is None:
            return self.transport.cancel(out)
        # The exchange continues for the other requests of the batch.
        return self.transport.cancel(out.batch) if self.settled(out.batch) else "unknown"

    def _watch_limits(self, call: PendingRequest) -> None:
        """Cancel the call when its token is cancelled, and expire it at its deadline."""
        cancel = call.options.cancel
        if cancel is not None:
            call.unsubscribe = call_when_cancelled(
                cancel,
                lambda: self.cancel(call, RequestCancelled("cancelled", reason=cancel.reason)),
            )
        # A thread that blocks on `waiter` enforces the deadline by itself; one that runs an HTTP
        # exchange or an interceptor cannot, and for a future no thread waits.
        if call.waiter is None or self.transport.blocking or call.interception is not None:
            self._timeouts.watch(call)

    def cancel(self, call: PendingRequest, error: GivenUp) -> bool:
        """End a call with `error`: abort its exchange, and notify the server once.

        Never blocks; may be called on any thread. Returns `False` if the call had ended already.
        """
        # Filled in first: once the error is the outcome, a waiting thread may raise it.
        error.server, error.method = self.label, call.method
        if self._take(call.id, error) is None:
            return False
        error.delivery = "not_sent"
        if call.out is not None:
            error.delivery = self._abort(call.out)
            # `tasks/cancel` is for a call that asks to become a task (2025-11-25,
            # basic/utilities/cancellation, "Behavior Requirements").
            if error.delivery != "not_sent" and not asks_for_task(call):
                self.notifier.cancelled(call.id, call.method, error)
        with self._lock:
            caused = list(call.questions.items())
        self._settle(call, error)
        for question, certain in caused:  # if uncertain, the server may still wait for an answer
            told = None if certain else NO_ANSWER
            question.cancel("the call that caused the question has ended", told=told)
        return True

    def notify(self, method: str, params: dict[str, Any] | None, deadline: Deadline) -> None:
        """Send a notification; see `Notifier.notify`."""
        if self.close_error is not None:
            raise fresh(self.close_error, method=method, delivery="not_sent")
        if self.interceptors is not None:
            params = self.interceptors.outgoing_notification(method, params, deadline)
        self.notifier.notify(method, params, deadline)

    # -- incoming frames (Receiver), on the thread that reads ----------------------------------

    def receive(self, frame: bytes, out: Outgoing | None = None) -> bool:
        """See `Receiver`."""
        self._wire.record("received", frame)
        messages = jsonrpc.decode(frame, self.transport.max_values)
        if len(messages) > 1:  # errors without an id last: they are about unanswered requests
            messages.sort(key=jsonrpc.lacks_id)
        for message in messages:
            kind = type(message)
            if kind is jsonrpc.Result or kind is jsonrpc.Error:
                self._on_response(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Notification:
                self._on_notification(message, out)  # type: ignore[arg-type]
            elif kind is jsonrpc.Request or kind is jsonrpc.MalformedRequest:
                self._on_request(message, out)  # type: ignore[arg-type]
            else:
                self._on_malformed(message, out, frame)  # type: ignore[arg-type]
        return out is not None and self.settled(out)

    def settled(self, out: Outgoing) -> bool:
        """See `Receiver`."""
        with self._lock:
            return bool(out.ids) and not any(map(self._table.get, out.ids))

    def _on_response(self, message: jsonrpc.Result | jsonrpc.Error, out: Outgoing | None) -> None:
        if message.id is None and jsonrpc.lacks_id(message):
            about = out or self._frames.frame_of_error()
            if about is not None and about.ids:
                for id in about.ids:  # it is the response to the requests whose stream it came on
                    self._on_response(message._replace(id=id), out)
                return
        late = self.agreed.on_late_response
        outcome: Any = ...  # no exception is made for stray errors: there may be any number
        if isinstance(message, jsonrpc.Result):
            outcome = message.result
        elif (asked := self._table.get(message.id)) is not None or late is not None:
            outcome = error_of_response(message, asked, out, self.label, self._wire.secrets)
        call = None if outcome is ... else self._take(message.id, outcome)
        if call is None:
            text = "[%s] sent a response to no request in flight: its id is %r"
            self.services.note(_log, logging.DEBUG, text, message.id)
            if late is not None:
                late(message.id, outcome)
            if message.id is None and isinstance(message, jsonrpc.Error):
                told = message.message
                self.services.note(_log, logging.WARNING, "[%s] reports an error: %s", told)
            return
        if isinstance(outcome, ServerError):
            outcome.method = call.method
            self.services.visits.register_from_error(outcome)
        params = call.params
        of_task = call.method in TASK_REQUESTS or (params is not None and "task" in params)
        if call.callback_queue is None and not of_task:
            self._release(call)
            return
        # Callbacks for earlier notifications run before the call returns.
        settle = partial(self._release, call)
        for queue in self._tasks.answered(call, outcome):
            self._timeouts.finishing(call)
            settle = partial(queue.finish, settle)
        settle()

    def _on_notification(self, message: Notification, out: Outgoing | None) -> None:
        method, params = message
        if method == "notifications/cancelled":
            ended = self.router.subscription_end(params, self.agreed.current_dialect)
            if ended is not None:
                self._on_response(ended, out)
            self._server_requests.cancel(params)
            if self.interceptors is not None:
                self.interceptors.show_settled("incoming", "notification", method, params=params)
            return
        if method in ROUTED:
            self.router.route(method, params, self.agreed.current_dialect, out)
        with self._lock:
            call, _ = self._tasks.owner(message, out)
        if call is not None:
            call.last_activity = monotonic()
        self.router.dispatch(method, params, call)

    def _on_request(self, message: Asked, out: Outgoing | None) -> None:
        dialect = self.agreed.current_dialect
        if dialect is None or not dialect.stateful:
            text = "[%s] sent a request, which its revision does not allow: the client ignores it"
            self.services.note(_log, logging.WARNING, text)
            return
        with self._lock:
            owner, certain = self._tasks.owner(message, out)
        self._server_requests.dispatch(message, dialect, owner, certain=certain)

    def _on_malformed(self, message: InvalidMessage, out: Outgoing | None, frame: bytes) -> None:
        meant = False
        for id in (message.id,) if message.id is not None or out is None else out.ids:
            error = ProtocolError(f"malformed response: {message.reason}", server=self.label)
            if (call := self._take(id, error)) is not None:
                error.method, meant = call.method, True
                self._settle(call, error)
        if not meant:
            self.transport.skipped(frame)
            text = "[%s] sent an invalid message: %s"
            self.services.note(_log, logging.WARNING, text, message.reason)

    def alive(self, out: Outgoing | None) -> None:
        """See `Receiver`."""
        with self._lock:
            calls = self._table.open_calls() if out is None else [*map(self._table.get, out.ids)]
        for call in calls:
            if call is not None and call.may_send:  # queued requests were not sent
                call.last_activity = monotonic()

    def failed(self, out: Outgoing, error: McpError) -> None:
        """See `Receiver`."""
        if isinstance(error, RequestTimeout):  # the exchange was faster than the timer
            for call in filter(None, map(self._table.get, out.ids)):
                self.cancel(call, fresh(error))
        else:
            self._send(*self._fail(out, error))

    def _fail(self, out: Outgoing, error: McpError) -> list[Outgoing]:
        """Fail the requests of `out`; return the queued frames that may be sent now."""
        errors = [fresh(error) if out.id is None else error for _ in out.ids]
        ended = [(*self._remove(id, own), own) for id, own in zip(out.ids, errors, strict=True)]
        for call, _, own in ended:
            if call is not None:
                own.server, own.method = self.label, call.method
                if isinstance(own, ConnectionLost):
                    own = close_error_for(own, call.method, own.delivery)  # noqa: PLW2901
                self._settle(call, own)
        return [following for _, following, _ in ended if following is not None]

    def lost(self, error: McpError) -> None:
        """See `Receiver`."""
        traceback.clear_frames(error.__traceback__)  # the frames refer to received data
        error.server = self.label
        if isinstance(error, SessionLost):  # new calls are refused; those in flight continue
            with self._lock:
                self.close_error = self.close_error or error
        else:
            self._close_with(error)
        self.router.connection_lost(error)

    def messages_missed(self) -> None:
        """See `Receiver`."""
        self.router.messages_missed()

    def server_stream_ended(self, *, opened: bool) -> None:
        """See `Receiver`."""
        self.router.server_stream_closed(self.close_error, self.call_when_idle if opened else None)

    # -- settling ----------------------------------------------------------------------------

    def _take(self, id: object, outcome: Any = None) -> PendingRequest | None:
        call, following = self._remove(id, outcome)
        if following is not None:
            self._send(following)
        return call

    def _remove(self, id: object, outcome: Any) -> tuple[PendingRequest | None, Outgoing | None]:
        """Take a call out of the table; return it, and the queued frame that may be sent now."""
        with self._lock:
            call = self._table.take(id)
            if call is None:
                return None, None
            # Stored under the lock: a thread that finds the call taken finds its outcome here.
            call.taken, call.outcome = True, outcome
            following = self._next_in_line() if self._table.queued else None
            idle = self._idle_callbacks and not len(self._table)
            idle_callbacks = tuple(self._idle_callbacks) if idle else ()
        for callback in idle_callbacks:
            callback()
        return call, following

    def _next_in_line(self) -> Outgoing | None:
        """The queued frame to send now that a call has ended; called with the lock held."""
        if (call := self._table.next_queued()) is None:
            return None
        call.may_send = True
        if call.out is not None and self.transport.blocking and call.delegate_send(self._send):
            return None
        # `None` before the frame is encoded: the encoding thread then sees that it may be sent.
        return call.out

    def _settle(self, call: PendingRequest, outcome: Any) -> None:
        if call.outcome is not None:  # else its thread, at its deadline, has taken the outcome
            call.outcome = outcome
        self._release(call)

    def _release(self, call: PendingRequest) -> None:
        """Wake the thread or run the callback that waits for the call; idempotent."""
        with self._lock:
            if call.released:
                return
            call.released = True
            self._timeouts.finishing_calls.discard(call)
            for question in tuple(call.questions):
                call.resume(question)
        if call.unsubscribe is not None:
            call.unsubscribe()
        if (interception := call.interception) is not None:  # read once: another thread clears it
            interception.settled()
        # Unlocked if the call has just left the queue: then its thread is awake already.
        if call.waiter is not None and call.waiter.locked():
            call.waiter.release()
        if (done := call.on_done) is not None:
            # It refers to the future, and a call that became a task is stored for long.
            call.on_done = None
            done(call)
