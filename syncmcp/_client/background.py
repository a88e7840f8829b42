"""The non-blocking driver: performs the steps of an operation and settles a future."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from syncmcp._client.driver import (
    Suspended,
    abort_steps,
    compute,
    look_up,
    name_server,
    reply_handler,
    run,
)
from syncmcp._client.retrying import RetryState, can_reconnect
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.futures import (
    RequestFuture,
    add_progress,
    count_attempts,
    is_cancelled,
    is_claimed,
    name_request,
    set_canceller,
    settle,
)
from syncmcp._concurrency.pool import current_slot
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._connection.connection import Connection
from syncmcp._connection.notifier import POST_SECONDS
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingRequest
from syncmcp._connection.questions import InputResponder
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import (
    AnswerInput,
    CacheLookup,
    Compute,
    GetNegotiated,
    Pause,
    Send,
    SendAndForget,
    Steps,
)
from syncmcp.errors import ClosedError, McpError, NotSupported, RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._concurrency.pool import PoolSlot
    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp._protocol.capabilities import Undeclared

R = TypeVar("R")

_log = logging.getLogger("syncmcp.tasks")


def submit(
    steps: Steps[R],
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    *,
    owner: object = None,
    runs_user_code: bool = False,
) -> RequestFuture[R]:
    """Start `steps` and return the future of their result. Never blocks.

    Args:
        steps: The operation.
        core: The core of the client.
        options: The options of the call.
        deadline: The deadline of the whole operation.
        owner: The client; the running operation keeps it alive.
        runs_user_code: True if the steps run code of the program (a model with validators).

    Raises:
        UsageError: An argument is invalid.
        NotSupported: The server lacks the feature.
        ClosedError: The client is not open.
    """
    call = PreparedCall(steps, core, options, deadline, owner=owner, runs_user_code=runs_user_code)
    call.start(deadline)
    return call.future


def send_and_forget(
    core: ClientCore, method: str, params: dict[str, Any] | None, undeclared: Undeclared
) -> None:
    """Send a request in the background; its result is ignored. Never blocks."""
    options = core.resolve(
        {"timeout": POST_SECONDS, "idle_timeout": None, "undeclared": undeclared}
    )
    options.nested = True  # not queued: it may cancel a request that the queue waits for
    try:
        submit(exchange(method, params), core, options, Deadline(POST_SECONDS))
    except McpError as error:
        _log.debug("[%s] was not sent %s: %s", core.label, method, error)


class PreparedCall(Generic[R]):
    """An operation whose arguments have been checked and whose first request is not sent yet.

    Args:
        steps: The operation.
        core: The core of the client.
        options: The options of the call.
        deadline: Ends the check of the arguments. The operation itself gets one at `start`.
        owner: The client; the running operation keeps it alive.
        runs_user_code: See `submit`.

    Raises:
        UsageError: An argument is invalid.
        NotSupported: The server lacks the feature.
        ClosedError: The client is not open.
    """

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        deadline: Deadline,
        *,
        owner: object,
        runs_user_code: bool,
    ) -> None:
        self._steps = steps
        self._owner = owner
        self._core = core
        self._runs_user_code = runs_user_code or (
            core.cache is not None and core.cache.runs_user_code
        )
        self.options = options
        self.future: RequestFuture[R] = RequestFuture(core.pools.workers)
        if options.observer is None:  # else a stream takes the progress
            options.observer = partial(add_progress, self.future)
        connection = core.live_connection()
        self.first_effect: Send | GetNegotiated | Pause | None = None
        try:
            self.first_effect = _first_effect_of(steps, core, connection, options, deadline)
        except StopIteration as stop:
            settle(self.future, stop.value, None)
            return
        except (RequestCancelled, RequestTimeout) as error:
            settle(self.future, None, error)
            return
        name_request(
            self.future,
            None if connection is None else connection.label,
            None if isinstance(self.first_effect, Pause) else self.first_effect.method,
        )

    def start(self, deadline: Deadline) -> None:
        """Start to perform the operation, unless its future is done. Never blocks.

        Raises:
            ClosedError: The client was closed meanwhile.
        """
        send = self.first_effect
        if send is None:
            return
        if self.future.done():  # cancelled before anything was sent
            self.fail(RequestCancelled("cancelled by the caller", delivery="not_sent"))
            return
        connection = self._core.live_connection()
        self.first_effect = None
        drive = (self._steps, self._core, self.options, deadline, self.future, self._owner)
        if connection is None or self._needs_thread(connection):
            _ThreadedRun(*drive).start(send)
        else:
            _CallbackRun(*drive, runs_user_code=self._runs_user_code).start(send, connection)

    def _needs_thread(self, connection: Connection) -> bool:
        """True if it needs a thread of its own; calls in one frame share the exchange's thread."""
        if connection.interceptors is not None:
            return True
        shares = self.options.batch_slot is not None and connection.dialect.batches
        return connection.transport.blocking and not shares

    def fail(self, error: McpError) -> None:
        """Settle the future with `error` before anything is sent; the steps undo their changes.

        Does nothing after `start`.
        """
        if self.first_effect is None:
            return
        self.first_effect = None
        with suppress(McpError, StopIteration):  # the future has the error
            self._steps.throw(error)
        self._steps.close()
        settle(self.future, None, error)


def _first_effect_of(
    steps: Steps[Any],
    core: ClientCore,
    connection: Connection | None,
    options: ResolvedOptions,
    deadline: Deadline,
) -> Send | GetNegotiated | Pause:
    """Take the first step on the thread of the caller, so that invalid arguments raise there."""
    send = next(steps)
    while isinstance(send, (CacheLookup, Compute)):
        if isinstance(send, CacheLookup):
            send = steps.send(look_up(send, core, options))
            continue
        try:
            value = compute(send, core, options, deadline)
        except McpError as error:
            send = steps.throw(error)
        else:
            send = steps.send(value)
    while connection is not None and isinstance(send, (Send, GetNegotiated)):
        try:
            if isinstance(send, GetNegotiated):
                send = steps.send(connection.agreed)
                continue
            connection.agreed.check(send.method, options.undeclared)
            break
        except NotSupported as error:
            send = steps.throw(error)
    # No operation asks questions first; following a task may begin with a pause.
    assert isinstance(send, (Send, GetNegotiated, Pause))
    return send


class _ThreadedRun(Generic[R]):
    """Runs an operation on a pool thread: for HTTP, for interceptors, or to start a server."""

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        deadline: Deadline,
        future: RequestFuture[R],
        owner: object,
    ) -> None:
        self._steps = steps
        self._core = core
        self._owner = owner
        # A token of its own: `future.cancel()` reaches the thread of the exchange through it.
        self._token = CancelToken() if options.cancel is None else options.cancel.child()
        self._options = options.with_cancel(self._token)
        self._pool_slot: PoolSlot | None = None
        self._deadline = deadline
        self._future = future
        self._next_effect: Send | GetNegotiated | Pause | None = None
        self._started = False
        self._expiry: TimerEntry | None = None
        self._forget_cancel: Callable[[], None] | None = None

    def start(self, send: Send | GetNegotiated | Pause) -> None:
        self._next_effect = send
        set_canceller(self._future, partial(self._token.cancel, "cancelled by the caller"))
        at = self._deadline.at
        if at is not None:
            # For the time in the queue only; later the connection watches deadline and token.
            self._expiry = timer.at(at, self._expire)
        self._forget_cancel = call_when_cancelled(self._token, self._cancelled)
        # A call of a handler is not queued: the calls before it may wait for that handler.
        busy = not self._core.pools.exchanges.submit(self._drive, at_once=self._options.nested)
        slot = self._options.batch_slot
        if busy and slot is not None:  # the other calls of its frame must not wait for it
            slot.discard()

    def _cancelled(self) -> None:
        settle(
            self._future,
            None,
            RequestCancelled("cancelled", reason=self._token.reason, delivery="not_sent"),
        )

    def _expire(self) -> None:
        seconds = self._deadline.seconds
        settle(
            self._future,
            None,
            RequestTimeout(
                f"not sent within {seconds:g} s: too many requests in flight",
                seconds=seconds,
                delivery="not_sent",
            ),
        )

    def _abandon(self, error: BaseException) -> None:
        """Settle the future and free the pool slot: an interceptor may block for ever."""
        settle(self._future, None, error)
        if self._pool_slot is not None:
            self._pool_slot.abandon()

    def _drive(self) -> None:
        """Perform the steps. Runs on an exchange thread."""
        self._pool_slot = current_slot()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._forget_cancel is not None:
            self._forget_cancel()
        future = self._future
        if future.done() and not self._started:
            error = RequestCancelled("nobody waited long enough", delivery="not_sent")
            abort_steps(self._steps, self._core, self._options, error)
            return
        self._started = True
        self._options.settle_future = self._abandon
        try:
            result = run(
                self._steps,
                self._core,
                self._options,
                self._deadline,
                self._next_effect,
                partial(count_attempts, future),
                suspends=True,
            )
        except Suspended as suspended:
            # Whatever ended the pause is found by the next request of the steps.
            self._next_effect = Pause(0.0)
            self._core.pools.pause(
                *suspended.pause, self._deadline, self._token, self._schedule_resume
            )
        except BaseException as error:
            settle(future, None, error)
        else:
            settle(future, result, None)
        finally:
            # Breaks a reference cycle, so that no garbage collection is needed.
            self._options.settle_future = None
            self._options.leave_batch()

    def _schedule_resume(self) -> None:
        """Continue on an exchange thread after a pause. Never blocks."""
        run, turn = self._core.pools.exchanges.run, threading.Lock()

        def drive() -> None:
            if turn.acquire(blocking=False):
                self._drive()

        # A cancelled or expired call is not queued: its task must be cancelled now.
        hurry = partial(run, drive, at_once=True)
        if self._deadline.at is not None:
            self._expiry = timer.at(self._deadline.at, hurry)
        self._forget_cancel = call_when_cancelled(self._token, hurry)
        run(drive, at_once=self._options.nested)


class _CallbackRun(Generic[R]):
    """Runs an operation by callbacks of the reader thread; needs no thread of its own."""

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        deadline: Deadline,
        future: RequestFuture[R],
        owner: object,
        *,
        runs_user_code: bool,
    ) -> None:
        self._steps = steps
        self._core = core
        self._owner = owner
        self._options = options
        self._deadline = deadline
        self._future = future
        self._runs_user_code = runs_user_code
        self._send: Send | None = None
        self._store_reply: Callable[[Reply], None] | None = None
        self._connection: Connection | None = None
        self._call: PendingRequest | None = None
        self._responder: InputResponder | None = None
        self._retry_state: RetryState | None = None
        self._pause: CancelToken | None = None

    def start(self, send: Send | GetNegotiated | Pause, connection: Connection) -> None:
        set_canceller(self._future, self._cancel)
        self._connection = connection
        try:
            if isinstance(send, Pause):
                self._sleep(send)
            elif isinstance(send, GetNegotiated):  # the client connected meanwhile
                self._guarded_step(self._advance, connection.agreed, None)
            else:
                self._store_reply = reply_handler(send, self._core, self._options)
                self._request(send, connection)
        except BaseException:  # Ctrl-C, mostly: the caller does not get the future
            self._cancel()
            raise

    def _request(self, send: Send, connection: Connection) -> None:
        deadline = self._deadline
        if send.timeout is not None:
            deadline = deadline.sooner(send.timeout)
        call = PendingRequest(send.method, self._options, deadline, self._on_call_done)
        if connection.transport.blocking:
            call.pool = self._core.pools.exchanges
        self._send, self._connection, self._call = send, connection, call
        try:
            if send.session is not None:
                send.session.check(connection)
            connection.start(call, send.params, offer=send.offer)
        except McpError as error:
            call.outcome = error
            self._on_call_done(call)
        if is_cancelled(self._future):
            # Cancelled during this method: `_cancel` may have seen the previous request.
            self._cancel()

    def _cancel(self) -> None:
        call, connection, responder, pause = (
            self._call,
            self._connection,
            self._responder,
            self._pause,
        )
        if call is not None and connection is not None:
            connection.cancel(call, RequestCancelled("cancelled by the caller"))
        if responder is not None:
            responder.cancel(RequestCancelled("cancelled by the caller"))
        if pause is not None:
            pause.cancel()

    def _on_call_done(self, call: PendingRequest) -> None:
        """A request ended. Runs on any thread, mostly the reader thread.

        The steps of the library are short and never block: performing the next one here is cheaper
        than waking another thread. Code of the program must not run here.
        """
        # Breaks a reference cycle, so that no garbage collection is needed.
        self._call = None
        if self._runs_user_code:
            self._core.pools.resumer.run(partial(self._guarded_step, self._on_outcome, call))
        else:
            self._guarded_step(self._on_outcome, call)

    def _guarded_step(self, step: Callable[..., None], *args: Any) -> None:
        """Take a step; its exceptions settle the future."""
        if is_claimed(self._future):
            error = RequestCancelled("cancelled by the caller", delivery="unknown")
            abort_steps(self._steps, self._core, self._options, error)
            self._options.leave_batch()
            return
        try:
            step(*args)
        except BaseException as failure:
            name_server(failure, self._core)
            settle(self._future, None, failure)

    def _on_outcome(self, call: PendingRequest) -> None:
        error = call.outcome if isinstance(call.outcome, McpError) else None
        if error is None:
            self._retry_state = None
        elif (pause := self._retry_delay(error)) is not None:
            # On a pool thread: starting a server takes time.
            self._core.pools.workers.run(partial(self._guarded_step, self._retry, call, pause))
            return
        self._advance_with_outcome(call, error)

    def _retry_delay(self, error: McpError) -> float | None:
        """The pause before the next attempt, in seconds; `None` if there is none."""
        assert self._send is not None
        if self._retry_state is None:
            self._retry_state = RetryState(
                self._send,
                self._options,
                self._deadline,
                self._core.retry_rules,
                self._core.label,
                partial(count_attempts, self._future),
            )
        return self._retry_state.next_delay(error, self._connection)

    def _advance_with_outcome(self, call: PendingRequest, error: McpError | None) -> None:
        assert self._connection is not None
        if error is not None:
            if self._core.cache is not None and self._send is not None:
                self._core.cache.note_failure(self._send, error)
            self._advance(None, error)
            return
        reply = Reply(call.outcome, self._connection.dialect)
        if self._store_reply is not None:
            self._store_reply(reply)
        self._advance(reply, None)

    def _advance(self, value: Any, error: McpError | None) -> None:
        """Resume the steps with a value or an error, and perform their next effect."""
        assert self._connection is not None
        try:
            effect = self._steps.send(value) if error is None else self._steps.throw(error)
        except StopIteration as stop:
            settle(self._future, stop.value, None)
            return
        if isinstance(effect, Send):
            self._retry_state = None  # attempts are counted for each request
            self._store_reply = reply_handler(effect, self._core, self._options)
            self._request(effect, self._connection)
        elif isinstance(effect, AnswerInput):
            self._answer_input(effect, self._connection)
        elif isinstance(effect, Compute):
            # Not on the reader thread, which other calls wait for.
            work = partial(self._guarded_step, self._compute, effect)
            self._core.pools.resumer.run(work)
        elif isinstance(effect, SendAndForget):
            self._core.send_and_forget(*effect, self._options.undeclared)
            self._advance(None, None)
        elif isinstance(effect, GetNegotiated):
            self._advance(self._connection.agreed, None)
        elif isinstance(effect, CacheLookup):
            self._advance(look_up(effect, self._core, self._options), None)
        else:
            assert isinstance(effect, Pause)
            self._sleep(effect)

    def _sleep(self, pause: Pause) -> None:
        # The timer thread must not write: the steps continue on a pool thread.
        go_on = partial(self._guarded_step, self._after_pause)
        pools, cancel = self._core.pools, self._options.cancel
        over = partial(pools.workers.run, go_on)
        self._pause = pools.pause(*pause, self._deadline, cancel, over)
        if is_cancelled(self._future):
            # Cancelled during this method: `_cancel` may have seen the previous pause.
            self._pause.cancel()

    def _after_pause(self) -> None:
        error: McpError | None = None
        try:
            self._core.live_connection()
        except ClosedError as closed:  # that ended the pause; the connection is closed in a moment
            error = closed
        self._advance(None, error)

    def _compute(self, work: Compute) -> None:
        try:
            value = compute(work, self._core, self._options, self._deadline, self._future)
        except McpError as error:
            self._advance(None, error)
        else:
            self._advance(value, None)

    def _answer_input(self, ask: AnswerInput, connection: Connection) -> None:
        responder = InputResponder(
            ask,
            connection.questions,
            connection.dialect,
            self._options,
            self._deadline,
            self._on_answered,
        )
        self._responder = responder
        self._deadline.hold(connection.services.human_timeout)
        try:
            responder.start()
        except McpError as error:
            self._responder = None
            self._deadline.release()
            self._advance(None, error)
            return
        if is_cancelled(self._future):
            self._cancel()

    def _on_answered(self) -> None:
        """All questions are answered. Runs on the thread of the last answer."""
        self._deadline.release()
        if self._runs_user_code:
            self._core.pools.resumer.run(partial(self._guarded_step, self._take_answers))
        else:
            self._guarded_step(self._take_answers)

    def _take_answers(self) -> None:
        responder, self._responder = self._responder, None
        assert responder is not None
        outcome = responder.outcome
        if isinstance(outcome, McpError):
            self._advance(None, outcome)
        else:
            self._advance(outcome, None)

    def _retry(self, call: PendingRequest, pause: float) -> None:
        """Send the request again after the pause. Runs on a pool thread."""
        assert self._send is not None
        assert self._connection is not None
        assert self._retry_state is not None
        if not can_reconnect(self._connection):
            self._retry_state.annotate(call.outcome)
            self._advance_with_outcome(call, call.outcome)
            return
        self._retry_state.record_retry(call.outcome, pause)
        if pause:
            self._core.sleep(pause, self._options, self._deadline)
        if is_claimed(self._future):  # cancelled meanwhile
            return
        try:
            connection = self._core.ensure_connection(self._deadline)
        except McpError as failure:
            self._retry_state.annotate(failure)
            self._advance_with_outcome(call, failure)
        else:
            self._request(self._send, connection)
