"""Drives the steps of an operation into a future."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from syncmcp._client.driver import Suspended, abort_steps, name_server, run, with_cache
from syncmcp._client.retrying import RetryState, is_over
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
from syncmcp._concurrency.pool import seat_of_this_thread
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingRequest
from syncmcp._connection.questions import InputResponder
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import (
    AnswerInput,
    Compute,
    GetNegotiated,
    Pause,
    Reply,
    Send,
    SendAndForget,
    Steps,
    WatchTask,
)
from syncmcp.errors import McpError, NotSupported, RequestCancelled, RequestTimeout

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._concurrency.cancel import InterruptibleWait
    from syncmcp._concurrency.pool import PoolSlot
    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp._protocol.capabilities import Undeclared

R = TypeVar("R")

_log = logging.getLogger("syncmcp.tasks")

POST_SECONDS = 30.0
"""What a request may take, in seconds, whose end nobody waits for."""


def submit(
    steps: Steps[R],
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    *,
    owner: object = None,
    foreign: bool = False,
) -> RequestFuture[R]:
    """Start `steps` and return the future of what they return. Never blocks.

    Args:
        steps: The operation.
        core: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        owner: The client, which lives as long as what it has begun.
        foreign: Whether the steps run code of the caller's (a model with validators of its own).

    Raises:
        UsageError: The arguments are wrong, or the server lacks what is asked for.
        ClosedError: The client is not open.
    """
    begun = PreparedCall(steps, core, options, owner=owner, foreign=foreign)
    begun.go(deadline)
    return begun.future


def post(
    core: ClientCore, method: str, params: dict[str, Any] | None, undeclared: Undeclared
) -> None:
    """Make a request whose end nobody waits for; never blocks."""
    options = core.resolve(
        {"timeout": POST_SECONDS, "idle_timeout": None, "undeclared": undeclared}
    )
    options.nested = True  # what it is to end may be what is in front
    try:
        submit(exchange(method, params), core, options, Deadline(POST_SECONDS))
    except McpError as error:
        _log.debug("[%s] was not sent %s: %s", core.label, method, error)


class PreparedCall(Generic[R]):
    """An operation whose arguments have been checked, and which nothing was sent for yet.

    Raises:
        UsageError: The arguments are wrong, or the server lacks what is asked for.
        ClosedError: The client is not open.
    """

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        *,
        owner: object,
        foreign: bool,
    ) -> None:
        self._steps = with_cache(steps, core, options)
        self._owner = owner
        self._core = core
        self._foreign = foreign or (core.cache is not None and core.cache.foreign)
        self.options = options
        self.future: RequestFuture[R] = RequestFuture(core.pools.workers)
        if options.observer is None:  # else somebody else iterates
            options.observer = partial(add_progress, self.future)
        connection = core.live()
        self.send: Send | GetNegotiated | Pause | None = None
        try:
            self.send = _first(self._steps, core, connection, options)
        except StopIteration as stop:
            settle(self.future, stop.value, None)
            return
        name_request(
            self.future,
            None if connection is None else connection.label,
            None if isinstance(self.send, Pause) else self.send.method,
        )

    def go(self, deadline: Deadline) -> None:
        """Drive it into its future, unless that is done. Never blocks.

        Raises:
            ClosedError: The client is not open any more.
        """
        send = self.send
        if send is None:
            return
        if self.future.done():  # cancelled while nothing was sent
            self.drop(RequestCancelled("cancelled by the caller", delivery="not_sent"))
            return
        connection = self._core.live()
        self.send = None
        drive = (self._steps, self._core, self.options, deadline, self.future, self._owner)
        if connection is None or self._needs_thread(connection):
            _ThreadedRun(*drive).start(send)
        else:
            _CallbackRun(*drive, foreign=self._foreign).start(send, connection)

    def _needs_thread(self, connection: Connection) -> bool:
        """Whether a thread must be its own; those that share a frame share that of its exchange."""
        if connection.interceptors is not None:
            return True
        shares = self.options.batch_slot is not None and connection.dialect.batches
        return connection.transport.blocking and not shares

    def drop(self, error: McpError) -> None:
        """Nothing is sent, because of `error`: let the steps undo what they did, and end it.

        Does nothing to what has gone already.
        """
        if self.send is None:
            return
        self.send = None
        with suppress(McpError, StopIteration):  # the future says it
            self._steps.throw(error)
        self._steps.close()
        settle(self.future, None, error)


def _first(
    steps: Steps[Any], core: ClientCore, connection: Connection | None, options: ResolvedOptions
) -> Send | GetNegotiated | Pause:
    """Take the first step here and now: a mistake of the caller is raised to the caller."""
    send = next(steps)
    if isinstance(send, WatchTask):
        send = steps.send(core.hearing.claim(send.task))
    while connection is not None and isinstance(send, (Send, GetNegotiated)):
        try:
            if isinstance(send, GetNegotiated):
                send = steps.send(connection.agreed)
                continue
            connection.agreed.check(send.method, options.undeclared)
            break
        except NotSupported as error:
            send = steps.throw(error)
    # An operation has something to send before it has to ask; a task may have to be waited for.
    assert isinstance(send, (Send, GetNegotiated, Pause))
    return send


class _ThreadedRun(Generic[R]):
    """A future that needs a thread while it lasts: for HTTP, interceptors, a server to start."""

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
        # A token of its own: that is how `future.cancel()` reaches the thread of the exchange.
        self._token = CancelToken() if options.cancel is None else options.cancel.child()
        self._options = options.with_cancel(self._token)
        self._seat: PoolSlot | None = None
        self._deadline = deadline
        self._future = future
        self._first: Send | GetNegotiated | Pause | None = None
        self._begun = False
        self._expiry: TimerEntry | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self, send: Send | GetNegotiated | Pause) -> None:
        self._first = send
        set_canceller(self._future, partial(self._token.cancel, "cancelled by the caller"))
        at = self._deadline.at
        if at is not None:
            # This and the token only for the time in line; then the connection watches both.
            self._expiry = timer.at(at, self._expire)
        self._unsubscribe = call_when_cancelled(self._token, self._cancelled)
        # A handler's call does not stand in line: those in front may wait for the handler.
        busy = not self._core.pools.exchanges.submit(self._drive, at_once=self._options.nested)
        slot = self._options.batch_slot
        if busy and slot is not None:  # others need not stand in line with it
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
        """The call ended like this, and an interceptor has its thread, perhaps for ever."""
        settle(self._future, None, error)
        if self._seat is not None:
            self._seat.abandon()

    def _drive(self) -> None:
        """On an exchange thread."""
        self._seat = seat_of_this_thread()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
        future = self._future
        if future.done() and not self._begun:
            error = RequestCancelled("nobody waited long enough", delivery="not_sent")
            abort_steps(self._steps, self._core, self._options, error)
            return
        self._begun = True
        self._options.settle_future = self._abandon
        try:
            result = run(
                self._steps,
                self._core,
                self._options,
                self._deadline,
                self._first,
                partial(count_attempts, future),
                parks=True,
            )
        except Suspended as parked:
            # What is done by now, the steps learn from the request that they make next.
            self._first = Pause(0.0)
            self._core.pools.naps.begin(parked.pause, self._deadline, self._token, self._wake)
        except BaseException as error:
            settle(future, None, error)
        else:
            settle(future, result, None)
        finally:
            # It refers to us: what is over must not wait for the garbage collector.
            self._options.settle_future = None
            self._options.leave_batch()

    def _wake(self) -> None:
        """Go on after a pause, on an exchange thread. Never blocks."""
        run, turn = self._core.pools.exchanges.run, threading.Lock()

        def drive() -> None:
            if turn.acquire(blocking=False):
                self._drive()

        # Whoever gives up the call does not stand in line: its task is still to be cancelled.
        hurry = partial(run, drive, at_once=True)
        if self._deadline.at is not None:
            self._expiry = timer.at(self._deadline.at, hurry)
        self._unsubscribe = call_when_cancelled(self._token, hurry)
        run(drive)


class _CallbackRun(Generic[R]):
    """A future whose answers are brought by a reader thread; nothing waits in between."""

    def __init__(
        self,
        steps: Steps[R],
        core: ClientCore,
        options: ResolvedOptions,
        deadline: Deadline,
        future: RequestFuture[R],
        owner: object,
        *,
        foreign: bool,
    ) -> None:
        self._steps = steps
        self._core = core
        self._owner = owner
        self._options = options
        self._deadline = deadline
        self._future = future
        self._foreign = foreign
        self._send: Send | None = None
        self._connection: Connection | None = None
        self._call: PendingRequest | None = None
        self._answers: InputResponder | None = None
        self._repetition: RetryState | None = None
        self._nap: InterruptibleWait | None = None

    def start(self, send: Send | GetNegotiated | Pause, connection: Connection) -> None:
        set_canceller(self._future, self._withdraw)
        self._connection = connection
        try:
            if isinstance(send, Pause):
                self._pause(send)
            elif isinstance(send, GetNegotiated):  # it was not connected when the steps began
                self._settling(self._advance, connection.agreed, None)
            else:
                self._request(send, connection)
        except BaseException:  # Ctrl-C, mostly: nobody will ever hold this future
            self._withdraw()
            raise

    def _request(self, send: Send, connection: Connection) -> None:
        deadline = self._deadline
        if send.within is not None:
            deadline = deadline.sooner(send.within)
        call = PendingRequest(send.method, self._options, deadline, self._done)
        if connection.transport.blocking:
            call.pool = self._core.pools.exchanges
        self._send, self._connection, self._call = send, connection, call
        try:
            if send.session is not None:
                send.session.enter(connection)
            connection.start(call, send.params, offer=send.offer)
        except McpError as error:
            call.outcome = error
            self._done(call)
        if is_cancelled(self._future):
            # While the request was on its way: `_withdraw` may have seen the one before.
            self._withdraw()

    def _withdraw(self) -> None:
        call, connection, answers, nap = self._call, self._connection, self._answers, self._nap
        if call is not None and connection is not None:
            connection.cancel(call, RequestCancelled("cancelled by the caller"))
        if answers is not None:
            answers.cancel(RequestCancelled("cancelled by the caller"))
        if nap is not None:
            nap.end()

    def _done(self, call: PendingRequest) -> None:
        """On whatever thread ended the call, mostly the one that reads.

        The library's own steps are short and block nowhere: it is cheaper to take the next one here
        than to wake another thread. Code of the caller's must not run here.
        """
        # The call refers to us: what is over must not wait for the garbage collector.
        self._call = None
        if self._foreign:
            self._core.pools.resumer.run(partial(self._settling, self._resume, call))
        else:
            self._settling(self._resume, call)

    def _settling(self, step: Callable[..., None], *args: Any) -> None:
        """Take a step; whatever it raises ends the future, and not the thread that it is on."""
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

    def _resume(self, call: PendingRequest) -> None:
        error = call.outcome if isinstance(call.outcome, McpError) else None
        if error is None:
            self._repetition = None
        elif (pause := self._again(error)) is not None:
            # A server has to be started, which takes a while.
            self._core.pools.workers.run(partial(self._settling, self._repeat, call, pause))
            return
        self._reply(call, error)

    def _again(self, error: McpError) -> float | None:
        """Seconds until the request is sent again, if it is."""
        assert self._send is not None
        if self._repetition is None:
            self._repetition = RetryState(
                self._send,
                self._options,
                self._deadline,
                self._core.repeatable,
                self._core.label,
                partial(count_attempts, self._future),
            )
        return self._repetition.pause(error, self._connection)

    def _reply(self, call: PendingRequest, error: McpError | None) -> None:
        assert self._connection is not None
        reply = None if error is not None else Reply(call.outcome, self._connection.dialect)
        self._advance(reply, error)

    def _advance(self, value: Any, error: McpError | None) -> None:
        """Give the steps what they wait for, and do what they want next."""
        assert self._connection is not None
        try:
            effect = self._steps.send(value) if error is None else self._steps.throw(error)
        except StopIteration as stop:
            settle(self._future, stop.value, None)
            return
        if isinstance(effect, Send):
            self._repetition = None  # what steps send after a failure is counted anew
            self._request(effect, self._connection)
        elif isinstance(effect, AnswerInput):
            self._ask(effect, self._connection)
        elif isinstance(effect, Compute):
            # Not on the thread that reads: others wait for their answers.
            work = partial(self._settling, self._work, effect)
            self._core.pools.resumer.run(work)
        elif isinstance(effect, SendAndForget):
            self._core.post(*effect, self._options.undeclared)
            self._advance(None, None)
        elif isinstance(effect, GetNegotiated):
            self._advance(self._connection.agreed, None)
        elif isinstance(effect, WatchTask):
            self._advance(self._core.hearing.claim(effect.task), None)
        else:
            assert isinstance(effect, Pause)  # a Recall has its answer before it gets here
            self._pause(effect)

    def _pause(self, pause: Pause) -> None:
        # The timer must not write: what comes after the pause happens on a pool thread.
        go_on = partial(self._settling, self._advance, None, None)
        woken = partial(self._core.pools.workers.run, go_on)
        naps = self._core.pools.naps
        self._nap = naps.begin(pause, self._deadline, self._options.cancel, woken)
        if is_cancelled(self._future):
            # While it fell asleep: `_withdraw` may have seen the one before.
            self._nap.end()

    def _work(self, work: Compute) -> None:
        self._advance(work.do(), None)

    def _ask(self, ask: AnswerInput, connection: Connection) -> None:
        answers = InputResponder(
            ask,
            connection.questions,
            connection.dialect,
            self._options,
            self._deadline,
            self._answered,
        )
        self._answers = answers
        self._deadline.hold(connection.services.human_timeout)
        try:
            answers.start()
        except McpError as error:
            self._answers = None
            self._deadline.release()
            self._advance(None, error)
            return
        if is_cancelled(self._future):
            self._withdraw()

    def _answered(self) -> None:
        """On the thread that brought the last answer."""
        self._deadline.release()
        if self._foreign:
            self._core.pools.resumer.run(partial(self._settling, self._take_answers))
        else:
            self._settling(self._take_answers)

    def _take_answers(self) -> None:
        answers, self._answers = self._answers, None
        assert answers is not None
        outcome = answers.outcome
        if isinstance(outcome, McpError):
            self._advance(None, outcome)
        else:
            self._advance(outcome, None)

    def _repeat(self, call: PendingRequest, pause: float) -> None:
        """On a pool thread: send the request again after the pause, if there is a server."""
        assert self._send is not None
        assert self._connection is not None
        assert self._repetition is not None
        if not is_over(self._connection):
            self._repetition.end(call.outcome)
            self._reply(call, call.outcome)
            return
        self._repetition.count(call.outcome, pause)
        if pause:
            self._core.sit_out(pause, self._options, self._deadline)
        if is_claimed(self._future):  # withdrawn meanwhile
            return
        try:
            connection = self._core.link(self._deadline)
        except McpError as failure:
            self._repetition.end(failure)
            self._reply(call, failure)
        else:
            self._request(self._send, connection)
