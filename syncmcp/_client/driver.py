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
from syncmcp.errors import ClosedError, McpError, RequestCancelled, RequestTimeout, UsageError

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore
    from syncmcp._concurrency.futures import RequestFuture

R = TypeVar("R")


class Suspended(BaseException):
    """Raised out of `run` when the steps pause, so that no thread waits."""

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
        suspends: Raise `Suspended` where the steps pause, instead of blocking.

    Raises:
        McpError: What the steps raise.
    """
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


def look_up(lookup: CacheLookup, core: ClientCore, options: ResolvedOptions) -> Any:
    """Perform a `CacheLookup`. Never blocks."""
    assert core.cache is not None  # the steps of a client without a cache yield none
    return core.cache.look_up(lookup, core.live_connection(), options)


def reply_handler(
    send: Send, core: ClientCore, options: ResolvedOptions
) -> Callable[[Reply], None] | None:
    """The function of the cache that stores the reply to a request, if it may be cached."""
    if core.cache is None or send.method not in CACHEABLE_REQUESTS:
        return None
    return core.cache.reply_handler(send, options)


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
        if pools.closing.cancelled:
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
                elif isinstance(effect, CacheLookup):
                    value = look_up(effect, core, options)
                else:
                    assert isinstance(effect, Pause)
                    if suspends and effect.seconds:
                        raise Suspended(effect)
                    core.sleep(effect.seconds, options, deadline, effect.ends_on)
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
    if send.timeout is not None:
        deadline = deadline.sooner(send.timeout)
    store_reply = reply_handler(send, core, options)
    try:
        reply: Reply = with_retries(send, core, options, deadline, None, on_attempt)
    except McpError as error:
        if core.cache is not None:
            core.cache.note_failure(send, error)
        raise
    if store_reply is not None:
        store_reply(reply)
    return reply


def _get_negotiated(
    meet: GetNegotiated, core: ClientCore, options: ResolvedOptions, deadline: Deadline
) -> NegotiatedState:
    def attempt(connection: Connection) -> NegotiatedState:
        return connection.agreed

    agreed: NegotiatedState = with_retries(
        Send(meet.method, None), core, options, deadline, attempt
    )
    return agreed


def with_retries(
    send: Send,
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    attempt: Callable[[Connection], Any] | None = None,
    on_attempt: Callable[[int], object] | None = None,
) -> Any:
    """Attempt a request as often as the retry rules allow.

    Args:
        send: The request.
        core: The core of the client.
        options: The options of the call.
        deadline: The deadline of all attempts.
        attempt: Makes the request on a connection; `None` sends it and waits for the reply.
        on_attempt: Called with the number of attempts each time that the request is sent again.

    Returns:
        The result of `attempt`, or the `Reply`.

    Raises:
        McpError: The last attempt failed.
    """
    retries: RetryState | None = None
    while True:
        connection: Connection | None = None
        try:
            connection = core.ensure_connection(deadline, options.cancel)
            if attempt is not None:
                return attempt(connection)
            if send.session is not None:
                send.session.check(connection)
            options.altered = False
            result = connection.request(
                send.method, send.params, options, deadline, offer=send.offer
            )
            return Reply(result, connection.agreed.dialect, options.altered)
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
