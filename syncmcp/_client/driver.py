"""The driver of operations: performs the steps of one operation, one effect after the other.

`Drive` performs most effects on the current thread: it looks into the cache, sends a request and
waits for the response, or runs a check. Pauses and the answers of handlers need no thread, so these
effects are left pending. `run` waits for them on the caller's thread; `FutureDrive` in
`background.py` leaves the thread and is resumed on another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from syncmcp._client.retrying import RetryState, can_reconnect
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.pool import current, lending_handler, slot_released
from syncmcp._concurrency.timing import Deadline, Latch
from syncmcp._connection.connection import Connection
from syncmcp._connection.negotiated import NegotiatedState
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingRequest
from syncmcp._connection.questions import InputResponder
from syncmcp._protocol.caching import CACHEABLE_REQUESTS
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.steps import (
    AnswerInput,
    CacheLookup,
    Compute,
    Effect,
    GetNegotiated,
    Pause,
    Send,
    SendAndForget,
    Steps,
)
from syncmcp.errors import (
    ClosedError,
    McpError,
    RequestCancelled,
    RequestTimeout,
    UsageError,
)

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore

R = TypeVar("R")

PENDING: Final = object()
"""Returned for an effect that continues without a thread; `Drive.resume` gets its outcome."""


class Attempt(NamedTuple):
    """An effect for subscriptions: call `function(connection)`, and repeat that like a request.

    Attributes:
        send: The request that the function makes; decides whether and how often it is repeated.
        function: Makes the request on a connection; may block.
    """

    send: Send
    function: Callable[[Connection], Any]


def run(steps: Steps[R], core: ClientCore, options: ResolvedOptions, deadline: Deadline) -> R:
    """Perform `steps` on this thread until they return."""
    drive = BlockingDrive(steps, core, options, deadline)
    if options.nested:
        with lending_handler() if current.handler else slot_released():
            return drive.run()
    return drive.run()


class Drive(ABC, Generic[R]):
    """One running operation.

    At any time either one thread performs its steps (`advance`), or one effect is pending.
    """

    def __init__(
        self, steps: Steps[R], core: ClientCore, options: ResolvedOptions, deadline: Deadline
    ) -> None:
        self.options = options
        self._steps = steps
        self._core = core
        self._deadline = deadline
        # The steps of the retries while a request is repeated; see `_retry_steps`.
        self._retry: Steps[Any] | None = None
        # The effect that is performed or pending.
        self._effect: Effect | None = None
        # Whether a request had a connection, and so may have been sent.
        self.reached = False
        # The connection of the last request; `None` if none could be opened.
        self._connection: Connection | None = None
        # Ends the pending effect for another cause than the token of the call, such as Ctrl-C.
        self._abort_pending: Callable[[RequestCancelled], object] | None = None

    def advance(
        self, value: Any = None, error: McpError | None = None, effect: Effect | None = None
    ) -> Any:
        """Run the steps until they end or an effect is pending.

        Begins with the outcome of the last effect, or with an `effect` that is not performed yet.
        Returns the result of the operation, or `PENDING`; raises the errors of the steps.
        """
        while True:
            if effect is None:
                steps = self._retry or self._steps
                try:
                    effect = steps.send(value) if error is None else steps.throw(error)
                except StopIteration as stop:
                    if self._retry is None:
                        return stop.value
                    self._retry, value, error = None, stop.value, None
                    continue
                except McpError as failure:
                    if self._retry is None:
                        self._finish_error(failure)
                        error = None  # else it and the frames in its traceback form a cycle
                        raise
                    self._retry, value, error = None, None, failure
                    continue
            self._effect = effect
            value = error = None
            try:
                if type(effect) is Send:
                    value = self._request(effect)
                else:
                    value = _PERFORM[type(effect)](self, effect)
            except McpError as failure:
                error = self._failed(failure)
            if value is PENDING:
                return PENDING
            effect = None

    @abstractmethod
    def resume(self, value: Any, error: McpError | None) -> None:
        """Continue with the outcome of the pending effect, on any thread. Never blocks."""

    def abort_pending(self, error: RequestCancelled) -> None:
        """End the pending effect, if there is one, because of `error`."""
        abort, self._abort_pending = self._abort_pending, None
        if abort is not None:
            abort(error)

    def abort_steps(self, error: McpError) -> None:
        """End the steps with `error`; perform the `SendAndForget` effects that they still yield."""
        try:
            effect = self._steps.throw(error)
            while isinstance(effect, SendAndForget):
                self._send_and_forget(effect)
                effect = next(self._steps)
        except (McpError, StopIteration):
            return
        self._steps.close()

    def _finish_error(self, error: McpError) -> None:
        """Set the server in an error that the steps raised themselves; not in a `UsageError`.

        Secrets are removed from its message, which may quote a result or a schema.
        """
        if not isinstance(error, UsageError):
            error.server = error.server or self._core.label
        self._core.wire.secrets.clean(error)

    # -- requests --------------------------------------------------------------------------------

    def _request(
        self, send: Send, on_done: Callable[[PendingRequest], object] | None = None
    ) -> Any:
        """Send a request on this thread and wait for its response.

        `on_done` is called when the request has ended, even if an interceptor blocks this thread.
        """
        core, options, deadline = self._core, self.options, self._deadline
        if send.timeout is not None:
            deadline = deadline.sooner(send.timeout)
        store_reply = None
        if core.cache is not None and send.method in CACHEABLE_REQUESTS:
            store_reply = core.cache.reply_handler(send, options)
        connection = core.connection
        if connection is None or connection.close_error is not None:
            self._connection = None
            connection = core.ensure_connection(deadline, options.cancel)
        self._connection = connection
        if send.session is not None:
            send.session.check(connection)
        self.reached = True
        call = PendingRequest(send.method, options, deadline)
        call.on_done = on_done
        result = connection.send_and_wait(call, send.params, None, send.offer)
        reply = Reply(result, connection.agreed.current_dialect or connection.dialect, call.altered)
        if store_reply is not None:
            store_reply(reply)
        return reply

    def _get_negotiated(self, effect: GetNegotiated) -> NegotiatedState:
        return self._reconnect().agreed

    def _attempt(self, effect: Attempt) -> Any:
        connection, self.reached = self._reconnect(), True
        return effect.function(connection)

    def _reconnect(self, look: object = None) -> Connection:
        """Return a live connection for the next request; open one if necessary."""
        self._connection = None
        self._connection = self._core.ensure_connection(self._deadline, self.options.cancel)
        return self._connection

    def _can_reconnect(self, look: object) -> bool:
        return self._connection is None or can_reconnect(self._connection)

    def _failed(self, error: McpError) -> McpError | None:
        """Begin the retries if the failed effect is a request that failed for the first time.

        Returns the error to throw into the steps; `None` if the retries run first.
        """
        self._abort_pending = None  # also breaks a cycle with a request that was not sent
        effect = self._effect
        if self._retry is not None or not isinstance(effect, (Send, GetNegotiated, Attempt)):
            return error
        self._retry = self._retry_steps(effect, error)
        return None

    def _retry_steps(self, effect: Any, error: McpError) -> Generator[Any, Any, Any]:
        """Repeat a request as often as the rules allow, after its first failure."""
        send = effect
        if not isinstance(effect, Send):
            send = effect.send if isinstance(effect, Attempt) else Send(effect.method, None)
        retries = RetryState(
            send,
            self.options,
            self._deadline,
            self._core.retry_rules,
            self._core.label,
            self._count_attempts,
        )
        while (pause := retries.next_delay(error, self._connection)) is not None:
            if not (yield Compute(self._can_reconnect, "not_sent")):
                retries.annotate(error)
                break
            retries.record_retry(error, pause)
            yield Pause(pause)
            try:
                yield Compute(self._reconnect, "not_sent")
                return (yield effect)
            except McpError as failure:
                error = failure
        if self._core.cache is not None and isinstance(effect, Send):
            self._core.cache.note_failure(effect, error)
        if isinstance(error, RequestCancelled):  # perhaps while the connection was opened
            error.method = error.method or send.method
        try:
            raise error
        finally:
            del error  # as in `advance`

    def _count_attempts(self, attempts: int) -> None:
        """Record that a request is sent again; `attempts` includes the first time."""

    def _send_and_forget(self, effect: SendAndForget) -> None:
        self._core.send_and_forget(*effect, self.options.undeclared)

    # -- effects without a connection --------------------------------------------------------------

    def _look_up(self, lookup: CacheLookup) -> Any:
        cache = self._core.cache
        assert cache is not None  # without a cache the steps yield no look-ups
        return cache.look_up(lookup, self._core.live_connection(), self.options)

    def _compute(self, work: Compute) -> Any:
        """Call the function of a `Compute` on this thread; the end of the call interrupts it."""
        return work.function(partial(self._check_wanted, work))

    def _check_wanted(self, work: Compute) -> None:
        """Raise an error if a cancel, the deadline or a close has ended the call."""
        token, deadline, delivery = self.options.cancel, self._deadline, work.delivery
        if token is not None and token.cancelled:
            raise RequestCancelled("cancelled", reason=token.reason, delivery=delivery)
        if deadline.expired:
            seconds = deadline.seconds or 0.0
            raise RequestTimeout(
                f"the call took longer than {seconds:g} s", seconds=seconds, delivery=delivery
            )
        if self._core.pools.closing.cancelled:
            raise ClosedError("the client was closed", delivery=delivery)

    def _pause(self, pause: Pause) -> Any:
        if not pause.seconds:
            return None
        # If the call ended during the pause, the next request of the steps raises the error.
        over = self._core.pools.pause(*pause, self._deadline, self.options.cancel)
        self._abort_pending = lambda error: over.cancel()
        # Last: another thread may continue at once, and set the next `_abort_pending`.
        call_when_cancelled(over, self._on_pause_over)
        return PENDING

    def _on_pause_over(self) -> None:
        """On the thread that ended the pause, perhaps the timer's; must not block."""
        self.resume(None, None)

    def _answer_input(self, ask: AnswerInput) -> Any:
        """Ask all questions at once; the deadline is held while handlers of the program answer."""
        connection = self._core.live_connection() or self._connection
        assert connection is not None  # the questions came with a response

        def answered() -> None:
            """On the thread of the last answer; must not block."""
            self._abort_pending = None
            outcome = responder.outcome
            if isinstance(outcome, McpError):
                self.resume(None, outcome)
            else:
                self.resume(outcome, None)

        responder = InputResponder(
            ask, connection.questions, connection.dialect, self.options, self._deadline, answered
        )
        self._abort_pending = responder.cancel
        responder.start()
        return PENDING


class BlockingDrive(Drive[R]):
    """An operation that the thread of its caller performs, and waits for."""

    # The outcome of a pending effect, once the latch is set.
    _outcome: tuple[Any, McpError | None]
    _resumed: Latch

    def run(self) -> R:
        """Perform the operation and return its result."""
        try:
            outcome = self.advance()
            while outcome is PENDING:
                # This may be a pool thread: the handlers that answer may need its slot.
                with slot_released():
                    self._resumed.wait(None)
                value, error = self._outcome
                outcome = self.advance(value, None if error is None else self._failed(error))
        except McpError:
            raise
        except BaseException as error:  # Ctrl-C, mostly
            interrupted = RequestCancelled("interrupted", reason=type(error).__name__)
            self.abort_pending(interrupted)
            self.abort_steps(interrupted)
            raise
        result: R = outcome
        return result

    def resume(self, value: Any, error: McpError | None) -> None:
        self._outcome = value, error
        self._resumed.set()

    def _pause(self, pause: Pause) -> Any:
        self._resumed = Latch()
        return super()._pause(pause)

    def _answer_input(self, ask: AnswerInput) -> Any:
        self._resumed = Latch()
        return super()._answer_input(ask)


_PERFORM: dict[type, Callable[[Drive[Any], Any], Any]] = {
    AnswerInput: lambda drive, effect: drive._answer_input(effect),
    Attempt: lambda drive, effect: drive._attempt(effect),
    CacheLookup: lambda drive, effect: drive._look_up(effect),
    Compute: lambda drive, effect: drive._compute(effect),
    GetNegotiated: lambda drive, effect: drive._get_negotiated(effect),
    Pause: lambda drive, effect: drive._pause(effect),
    SendAndForget: lambda drive, effect: drive._send_and_forget(effect),
}
