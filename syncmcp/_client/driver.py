"""The blocking driver: performs the steps of an operation on the thread of the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp._client.retrying import RetryState, can_reconnect
from syncmcp._concurrency.futures import is_cancelled
from syncmcp._concurrency.pool import slot_released
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp._connection.connection import Connection
from syncmcp._connection.negotiated import NegotiatedState
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.questions import InputResponder
from syncmcp._protocol.dialect import Reply
from syncmcp._protocol.steps import (
    AnswerInput,
    Compute,
    Effect,
    GetNegotiated,
    Pause,
    Send,
    SendAndForget,
    Steps,
    WatchTask,
)
from syncmcp.errors import ClosedError, McpError, RequestCancelled, RequestTimeout, UsageError

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._concurrency.futures import RequestFuture

R = TypeVar("R")


class Suspended(BaseException):
    """Raised out of `run` when the steps wait for a task, so that no thread waits."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self.pause = pause


def run(
    steps: Steps[R],
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    effect: Effect | None = None,
    on_attempt: Callable[[int], object] | None = None,
    *,
    suspends: bool = False,
) -> R:
    """Perform `steps` on this thread until they return.

    Args:
        steps: The operation.
        core: The core of the client.
        options: The options of the call.
        deadline: The deadline of the whole operation.
        effect: The first effect, if the steps were started already.
        on_attempt: Called with the number of attempts each time that a request is sent again.
        suspends: Raise `Suspended` where the steps wait for a task, instead of blocking.

    Raises:
        McpError: What the steps raise.
    """
    if effect is None:
        steps = with_cache(steps, core, options)
    try:
        if options.nested:
            with slot_released():
                return _drive(steps, core, options, deadline, effect, on_attempt, suspends)
        return _drive(steps, core, options, deadline, effect, on_attempt, suspends)
    except Suspended:
        raise
    except McpError as error:
        name_server(error, core)
        raise
    except BaseException as error:  # Ctrl-C, mostly
        interrupted = RequestCancelled("interrupted", reason=type(error).__name__)
        abort_steps(steps, core, options, interrupted)
        raise


def name_server(error: BaseException, core: ClientCore) -> None:
    """Set the server in an error that the steps raised themselves; not in a `UsageError`."""
    if isinstance(error, McpError) and not isinstance(error, UsageError) and error.server is None:
        error.server = core.label


def with_cache(steps: Steps[R], core: ClientCore, options: ResolvedOptions) -> Steps[R]:
    """Wrap steps with the cache: it answers their `CacheLookup` and stores their results."""
    return steps if core.cache is None else core.cache.wrap(steps, core.live_connection, options)


def compute(
    work: Compute,
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    future: RequestFuture[Any] | None = None,
) -> Any:
    """Call the function of a `Compute` on this thread, until something ends the call.

    Raises:
        RequestCancelled: The token of the call, or its `future`, was cancelled meanwhile.
        RequestTimeout: Its deadline passed meanwhile.
        ClosedError: The client was closed meanwhile.
        McpError: What the function raises.
    """
    token, pools, delivery = options.cancel, core.pools, work.delivery

    def look() -> None:
        if token is not None and token.cancelled:
            raise RequestCancelled("cancelled", reason=token.reason, delivery=delivery)
        if future is not None and is_cancelled(future):
            raise RequestCancelled("cancelled by the caller", delivery=delivery)
        if deadline.expired:
            seconds = deadline.seconds or 0.0
            raise RequestTimeout(
                f"not done within {seconds:g} s", seconds=seconds, delivery=delivery
            )
        if pools.closed:
            raise ClosedError("the client was closed", delivery=delivery)

    return work.function(look)


def abort_steps(
    steps: Steps[Any], core: ClientCore, options: ResolvedOptions, error: McpError
) -> None:
    """End `steps` with `error`; send the `SendAndForget` requests that they still yield."""
    try:
        effect = steps.throw(error)
        while isinstance(effect, SendAndForget):
            core.send_and_forget(*effect, options.undeclared)
            effect = next(steps)
    except (McpError, StopIteration):
        return
    steps.close()


def _drive(
    steps: Steps[R],
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    effect: Effect | None,
    on_attempt: Callable[[int], object] | None,
    suspends: bool,
) -> R:
    try:
        if effect is None:
            effect = next(steps)
        while True:
            value: Any = None
            try:
                if isinstance(effect, Send):
                    value = _request(effect, core, options, deadline, on_attempt)
                elif isinstance(effect, AnswerInput):
                    value = _answer_input(effect, core, options, deadline)
                elif isinstance(effect, Compute):
                    value = compute(effect, core, options, deadline)
                elif isinstance(effect, SendAndForget):
                    core.send_and_forget(*effect, options.undeclared)
                elif isinstance(effect, GetNegotiated):
                    value = _get_negotiated(effect, core, options, deadline)
                elif isinstance(effect, WatchTask):
                    value = core.task_watcher.watch(effect.task)
                else:
                    assert isinstance(effect, Pause)  # the cache has answered every CacheLookup
                    if effect.task is None:
                        core.sleep(effect.seconds, options, deadline)
                    elif suspends:
                        raise Suspended(effect)
                    else:
                        _wait_for_task(effect, core, options, deadline)
            except McpError as error:
                # The steps may raise another error, or continue.
                effect = steps.throw(error)
            else:
                effect = steps.send(value)
    except StopIteration as stop:
        result: R = stop.value
        return result


def _request(
    send: Send,
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    on_attempt: Callable[[int], object] | None,
) -> Reply:
    method, params, offer, within, session = send
    if within is not None:
        deadline = deadline.sooner(within)

    def attempt(connection: Connection) -> Reply:
        if session is not None:
            session.check(connection)
        options.identity, options.altered = None, False
        result = connection.request(method, params, options, deadline, offer=offer)
        return Reply(result, connection.dialect, options.identity, options.altered)

    return with_retries(send, core, options, deadline, attempt, on_attempt)


def _get_negotiated(
    meet: GetNegotiated, core: ClientCore, options: ResolvedOptions, deadline: Deadline
) -> NegotiatedState:
    def attempt(connection: Connection) -> NegotiatedState:
        return connection.agreed

    return with_retries(Send(meet.method, None), core, options, deadline, attempt)


def _wait_for_task(
    pause: Pause, core: ClientCore, options: ResolvedOptions, deadline: Deadline
) -> None:
    """Block until `pause` is over, or a notification about its task ends it."""
    # A lock that is released once is the cheapest thing a thread can wait for.
    over = threading.Lock()
    over.acquire()
    wait = core.pools.waits.begin(pause, deadline, options.cancel, over.release)
    try:
        acquire(over, None)
    finally:
        wait.wake()


def with_retries(
    send: Send,
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    attempt: Callable[[Connection], R],
    on_attempt: Callable[[int], object] | None = None,
) -> R:
    """Attempt a request as often as the retry rules allow; return the result of `attempt`.

    Args:
        send: The request.
        core: The core of the client.
        options: The options of the call.
        deadline: The deadline of all attempts.
        attempt: Makes the request on a connection.
        on_attempt: Called with the number of attempts each time that the request is sent again.

    Raises:
        McpError: What `attempt` raises.
    """
    retries: RetryState | None = None
    while True:
        connection: Connection | None = None
        try:
            connection = core.ensure_connection(deadline, options.cancel)
            return attempt(connection)
        except McpError as error:
            if retries is None:
                retries = RetryState(
                    send, options, deadline, core.retry_rules, core.label, on_attempt
                )
            pause = retries.next_delay(error, connection)
            if pause is None:
                raise
            if connection is not None and not can_reconnect(connection):
                retries.annotate(error)
                raise
            retries.record_retry(error, pause)
        core.sleep(pause, options, deadline)


def _answer_input(
    ask: AnswerInput, core: ClientCore, options: ResolvedOptions, deadline: Deadline
) -> Any:
    """Block until all questions are answered. The deadline of the call is held meanwhile."""
    connection = core.ensure_connection(deadline, options.cancel)
    # A lock that is released once is the cheapest thing a thread can wait for.
    answered = threading.Lock()
    answered.acquire()
    responder = InputResponder(
        ask, connection.questions, connection.dialect, options, deadline, answered.release
    )
    deadline.hold(connection.services.human_timeout)
    try:
        responder.start()
        # This may be a pool thread: the handlers that answer may need its slot.
        with slot_released():
            acquire(answered, None)
    except BaseException as error:
        if not isinstance(error, McpError):
            responder.cancel(RequestCancelled("interrupted", reason=type(error).__name__))
        raise
    finally:
        deadline.release()
    return responder.result()
