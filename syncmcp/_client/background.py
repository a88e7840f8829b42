"""The driver of operations that return a future; it blocks a thread only where it has to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from syncmcp._base.text import logger
from syncmcp._client.driver import PENDING, Drive
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.futures import (
    RequestFuture,
    add_progress,
    adopt_request,
    count_attempts,
    is_cancelled,
    is_claimed,
    settle,
)
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._connection.connection import Connection
from syncmcp._connection.notifier import POST_SECONDS
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingRequest
from syncmcp._protocol.caching import CACHEABLE_REQUESTS
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Compute, Effect, GetNegotiated, Pause, Send, Steps
from syncmcp.errors import ClosedError, McpError, RequestCancelled, RequestTimeout, fresh
from syncmcp.transports.base import Outgoing

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp.errors import Delivery

R = TypeVar("R")

Frames: TypeAlias = dict[Connection, list[Outgoing]]
"""The requests that are sent in one frame, by connection."""

_log = logger("syncmcp.tasks")

# How long, in seconds, the thread of a request that has ended may take to settle the future.
_RETURN_SECONDS = 0.25


def send_and_forget(
    core: ClientCore, method: str, params: dict[str, Any] | None, undeclared: Undeclared
) -> None:
    """Send a request in the background; its result is ignored. Never blocks."""
    options = core.resolve(
        {"timeout": POST_SECONDS, "idle_timeout": None, "undeclared": undeclared}
    )
    options.nested = True  # not queued: it may cancel a request that the queue waits for
    try:
        FutureDrive(exchange(method, params), core, options, Deadline(POST_SECONDS))
    except McpError as error:
        _log.debug("[%s] could not send %s: %s", core.label, method, error)


class FutureDrive(Drive[R]):
    """An operation behind a future.

    The constructor takes the first steps, so that invalid arguments raise where the call is made,
    and sends the first request. Then each response resumes the operation on the thread that reads
    it: short steps cost less than waking another thread. Requests that block run on an exchange
    thread each: over HTTP, with interceptors, or if the connection has to be opened.

    While the operation runs, its `owner`, the client, stays alive. `runs_user_code` says that the
    steps run code of the program. A `collected` operation sends nothing before `start` is called.
    """

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        deadline: Deadline,
        owner: object = None,
        *,
        runs_user_code: bool = False,
        collected: bool = False,
    ) -> None:
        super().__init__(steps, core, options, deadline)
        self._owner = owner
        self._runs_user_code = runs_user_code or (
            core.cache is not None and core.cache.runs_user_code
        )
        connection = core.connection
        if connection is None or connection.close_error is not None:
            connection = core.live_connection()
        self._connection = connection
        self.future: RequestFuture[R] = RequestFuture(
            core.pools.workers if connection is None else connection.services.callback_pool
        )
        if options.observer is None:  # else a stream receives the progress
            options.observer = partial(add_progress, self.future)
        self._preparing = True
        self._collected = collected
        # The first effect that needs the server, until `start` performs it.
        self._first: Effect | None = None
        self._needs_thread = False
        # False while the thread of the caller or of the reader performs the operation.
        self._may_block = True
        # If the first request may share a frame: it is added here instead of being sent.
        self._frames: Frames | None = None
        self._store_reply: Callable[[Reply], None] | None = None
        try:
            outcome = self.advance()
            if outcome is not PENDING:
                settle(self.future, outcome, None)
        except McpError as error:
            if self._preparing and not isinstance(error, (RequestCancelled, RequestTimeout)):
                raise
            settle(self.future, None, error)
        except BaseException:  # Ctrl-C, mostly: the caller does not get the future
            self.future.cancel()
            raise

    def start(self, deadline: Deadline, frames: Frames | None = None) -> None:
        """Send the first request of a collected call, or add it to `frames` if it may share one.

        Does nothing if the future is done. Never blocks.
        """
        first = self._first
        if first is None:
            return
        if self.future.done():  # cancelled before anything was sent
            self.fail(RequestCancelled("cancelled by the caller", delivery="not_sent"))
            return
        connection = self._connection = self._core.live_connection()
        self._first, self._deadline = None, deadline
        if frames is not None and connection is not None and connection.dialect.batches:
            self._frames = frames
        if self._defer(first):
            return
        try:
            outcome = self.advance(effect=first)
            if outcome is not PENDING:
                settle(self.future, outcome, None)
            elif is_cancelled(self.future):  # before an effect was pending
                self._cancel()
        except McpError as error:
            settle(self.future, None, error)
        except BaseException:  # Ctrl-C, mostly
            self.future.cancel()
            raise

    def fail(self, error: McpError) -> None:
        """Settle the future with `error` before anything is sent. Does nothing after `start`."""
        if self._first is None:
            return
        self._first = None
        self.abort_steps(error)
        settle(self.future, None, error)

    def _defer(self, first: Effect) -> bool:
        """Return True if another thread performs the first effect that needs the server."""
        connection, method = self._connection, getattr(first, "method", None)
        server = None if connection is None else connection.label
        if self._preparing and self._collected:
            self._preparing, self._first = False, first
            adopt_request(self.future, server, method, None)
            return True
        self._preparing = False
        adopt_request(self.future, server, method, self._cancel)
        if (
            connection is None
            or connection.interceptors is not None
            or (connection.transport.blocking and self._frames is None)
        ):
            self._start_on_thread(first)
            return True
        self._may_block = False
        return False

    def _cancel(self) -> Delivery:
        """The future was cancelled: end the pending effect, which then resumes the operation."""
        if self._needs_thread and self.options.cancel is not None:
            self.options.cancel.cancel("cancelled by the caller")
            # A thread that begins only now finds the token cancelled, and sends nothing.
            return "unknown" if self.reached else "not_sent"
        error = RequestCancelled("cancelled by the caller")
        self.abort_pending(error)
        return error.delivery if self._retry is None else "unknown"

    def _continue(
        self,
        value: Any,
        error: McpError | None,
        effect: Effect | None = None,
        *,
        may_block: bool = False,
    ) -> None:
        """Continue on this thread, with an outcome or with an effect to perform."""
        store_reply, self._store_reply = self._store_reply, None
        if is_claimed(self.future):
            self.abort_steps(RequestCancelled("cancelled by the caller", delivery="unknown"))
            return
        self._may_block = may_block
        try:
            if error is not None:
                error = self._failed(error)
            elif store_reply is not None:
                store_reply(value)
            outcome = self.advance(value, error, effect)
            if outcome is not PENDING:
                settle(self.future, outcome, None)
            elif is_cancelled(self.future):
                # `_cancel` may have run while the previous effect was pending.
                self._cancel()
        except McpError as failure:
            # No traceback: the error and the frames of this thread would form a reference cycle.
            settle(self.future, None, failure.with_traceback(None))
        except BaseException as failure:
            settle(self.future, None, failure)

    def resume(self, value: Any, error: McpError | None) -> None:
        if self._needs_thread:
            self._queue(value, error)
        elif self._runs_user_code:
            self._resume_on_worker(value, error)
        else:
            self._continue(value, error)

    def _resume_on_worker(self, *args: Any) -> None:
        self._core.pools.workers.run(partial(self._continue, *args, may_block=True))

    # -- effects -----------------------------------------------------------------------------------

    def _request(
        self, send: Send, on_done: Callable[[PendingRequest], object] | None = None
    ) -> Any:
        core, connection = self._core, self._connection
        if self._preparing:
            if connection is not None and send.method in connection.agreed.unavailable:
                connection.agreed.check(send.method, self.options.undeclared)
            if self._defer(send):
                return PENDING
        elif self._needs_thread:
            return super()._request(send, partial(self._on_thread_ended, repeated=self.reached))
        else:
            connection = self._connection = core.live_connection() or connection
        assert connection is not None
        deadline, frame = self._deadline, None
        if send.timeout is not None:
            deadline = deadline.sooner(send.timeout)
        if send.session is not None:
            send.session.check(connection)
        if core.cache is not None and send.method in CACHEABLE_REQUESTS:
            self._store_reply = core.cache.reply_handler(send, self.options)
        call = PendingRequest(
            send.method, self.options, deadline, partial(self._on_response, connection)
        )
        if connection.transport.blocking:
            call.pool = core.pools.exchanges
        if self._frames is not None:
            frame, self._frames = self._frames.setdefault(connection, []), None
        self._abort_pending = partial(connection.cancel, call)
        connection.start(call, send.params, None, send.offer, frame)
        return PENDING

    def _on_thread_ended(self, call: PendingRequest, *, repeated: bool) -> None:
        """Handle the end of a request of an exchange thread. On any thread; never blocks.

        If a timeout, a token or `close` ended the request, its thread may still be in a function of
        the program. The future waits for that function only for `_RETURN_SECONDS`.
        """
        error = call.outcome
        ended = isinstance(error, (RequestCancelled, ClosedError))
        if ended or (isinstance(error, RequestTimeout) and self._deadline.expired):
            error = fresh(error, delivery="unknown") if repeated else fresh(error)
            timer.after(_RETURN_SECONDS, partial(settle, self.future, None, error))

    def _on_response(self, connection: Connection, call: PendingRequest) -> None:
        """A request has ended. On any thread, mostly on the one that reads."""
        # Breaks a reference cycle, so that no garbage collection is needed.
        self._abort_pending = None
        value, error = call.outcome, None
        if isinstance(value, McpError):
            value, error = None, value
        else:
            call.outcome = None  # as in `take_result`
            value = Reply(value, connection.agreed.current_dialect or connection.dialect)
        if self._runs_user_code:
            self._resume_on_worker(value, error)
        else:
            self._continue(value, error)

    def _get_negotiated(self, effect: GetNegotiated) -> Any:
        if self._connection is not None and not self._needs_thread:
            return self._connection.agreed
        if self._preparing and self._defer(effect):
            return PENDING
        return super()._get_negotiated(effect)

    def _pause(self, pause: Pause) -> Any:
        if self._preparing and self._defer(pause):
            return PENDING
        return super()._pause(pause)

    def _on_pause_over(self) -> None:
        # The timer thread must not write: a pool thread continues.
        if self._needs_thread:
            self._queue(None, None)
        else:
            self._resume_on_worker(None, None)

    def _compute(self, work: Compute) -> Any:
        if self._may_block:
            return super()._compute(work)
        self._resume_on_worker(None, None, work)
        return PENDING

    def _check_wanted(self, work: Compute) -> None:
        if is_cancelled(self.future):
            raise RequestCancelled("cancelled by the caller", delivery=work.delivery)
        super()._check_wanted(work)

    def _failed(self, error: McpError) -> McpError | None:
        return error if self._preparing else super()._failed(error)

    def _count_attempts(self, attempts: int) -> None:
        count_attempts(self.future, attempts)

    # -- on exchange threads -----------------------------------------------------------------------

    def _start_on_thread(self, first: Effect) -> None:
        # A separate token, by which `future.cancel()` reaches the exchange thread.
        cancel = self.options.cancel
        token = CancelToken() if cancel is None else cancel.child()
        self.options = self.options.but(cancel=token)
        self._needs_thread = True
        self._queue(None, None, first)

    def _queue(self, value: Any, error: McpError | None, first: Effect | None = None) -> None:
        """Continue on an exchange thread, as soon as one is free. Never blocks."""
        exchanges, deadline, token = self._core.pools.exchanges, self._deadline, self.options.cancel
        assert token is not None
        turn = threading.Lock()
        unsubscribe: list[Callable[[], object]] = []

        def go_on() -> None:
            if turn.acquire(blocking=False):
                leave_queue()
                self._continue(value, error, first, may_block=True)

        def leave_queue() -> None:
            # Two threads may run this: a second call of a function does nothing.
            for function in tuple(unsubscribe):
                function()

        # If a request was sent, the server must be notified, even while all threads are busy.
        hurry = partial(exchanges.run, go_on, at_once=True)
        expire, cancel = (
            (hurry, hurry) if first is None else (self._expire_unsent, self._cancel_unsent)
        )
        if deadline.at is not None:
            unsubscribe.append(timer.at(deadline.at, expire).cancel)
        unsubscribe.append(call_when_cancelled(token, cancel))
        # A call of a handler is not queued: the calls before it may wait for that handler.
        exchanges.run(go_on, at_once=self.options.nested)
        if turn.locked():  # `go_on` may have begun while the list was filled
            leave_queue()

    def _expire_unsent(self) -> None:
        seconds = self._deadline.seconds
        error = RequestTimeout(
            f"not sent within {seconds:g} s: too many requests are in flight",
            seconds=seconds,
            delivery="not_sent",
        )
        settle(self.future, None, error)

    def _cancel_unsent(self) -> None:
        assert self.options.cancel is not None
        reason = self.options.cancel.reason
        settle(self.future, None, RequestCancelled("cancelled", reason=reason, delivery="not_sent"))
