"""Drives the steps of an operation in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from syncmcp._client.retrying import RetryState, is_over
from syncmcp._concurrency.pool import slot_released
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp._connection.connection import Connection
from syncmcp._connection.negotiated import NegotiatedState
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.questions import InputResponder
from syncmcp._protocol.steps import (
    AnswerInput,
    Compute,
    Effect,
    GetNegotiated,
    Pause,
    Reply,
    Send,
    SendAndForget,
    Steps,
    WatchTask,
)
from syncmcp.errors import McpError, RequestCancelled, UsageError

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore

R = TypeVar("R")


class Suspended(BaseException):
    """The steps wait for something that takes long; no thread is needed meanwhile."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self.pause = pause


def run(
    steps: Steps[R],
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    effect: Effect | None = None,
    counted: Callable[[int], object] | None = None,
    *,
    parks: bool = False,
) -> R:
    """Drive `steps` on this thread until they return.

    Args:
        steps: The operation.
        core: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        effect: What the steps yielded first, if they were begun already.
        counted: Told how often a request was sent, if it is sent again.
        parks: Raise `Suspended` where they wait for something that takes long.

    Raises:
        McpError: What the steps raise.
    """
    if effect is None:
        steps = with_cache(steps, core, options)
    try:
        if options.nested:
            with slot_released():
                return _drive(steps, core, options, deadline, effect, counted, parks)
        return _drive(steps, core, options, deadline, effect, counted, parks)
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
    """Name the server in an error that the steps found by themselves, in what it said for example.

    Not in a mistake of the caller's, which is about no server.
    """
    if isinstance(error, McpError) and not isinstance(error, UsageError) and error.server is None:
        error.server = core.label


def with_cache(steps: Steps[R], core: ClientCore, options: ResolvedOptions) -> Steps[R]:
    """The same steps, without their `Recall`; what they get is kept, if it may be."""
    return steps if core.cache is None else core.cache.between(steps, core.live, options)


def abort_steps(
    steps: Steps[Any], core: ClientCore, options: ResolvedOptions, error: McpError
) -> None:
    """Nobody waits for `steps` any more: have the server told what they still want to tell it."""
    try:
        effect = steps.throw(error)
        while isinstance(effect, SendAndForget):
            core.post(*effect, options.undeclared)
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
    counted: Callable[[int], object] | None,
    parks: bool,
) -> R:
    try:
        if effect is None:
            effect = next(steps)
        while True:
            value: Any = None
            try:
                if isinstance(effect, Send):
                    value = _request(effect, core, options, deadline, counted)
                elif isinstance(effect, AnswerInput):
                    value = _ask(effect, core, options, deadline)
                elif isinstance(effect, Compute):
                    value = effect.do()
                elif isinstance(effect, SendAndForget):
                    core.post(*effect, options.undeclared)
                elif isinstance(effect, GetNegotiated):
                    value = _meet(effect, core, options, deadline)
                elif isinstance(effect, WatchTask):
                    value = core.hearing.claim(effect.task)
                else:
                    assert isinstance(effect, Pause)  # a Recall has its answer before it gets here
                    if effect.task is None:
                        core.sit_out(effect.seconds, options, deadline)
                    elif parks:
                        raise Suspended(effect)
                    else:
                        _wait(effect, core, options, deadline)
            except McpError as error:
                # The steps may give it another name, or go on.
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
    counted: Callable[[int], object] | None,
) -> Reply:
    method, params, offer, within, session = send
    if within is not None:
        deadline = deadline.sooner(within)

    def attempt(connection: Connection) -> Reply:
        if session is not None:
            session.enter(connection)
        options.identity, options.altered = None, False
        result = connection.request(method, params, options, deadline, offer=offer)
        return Reply(result, connection.dialect, options.identity, options.altered)

    return with_retries(send, core, options, deadline, attempt, counted)


def _meet(
    meet: GetNegotiated, core: ClientCore, options: ResolvedOptions, deadline: Deadline
) -> NegotiatedState:
    def attempt(connection: Connection) -> NegotiatedState:
        return connection.agreed

    return with_retries(Send(meet.method, None), core, options, deadline, attempt)


def _wait(pause: Pause, core: ClientCore, options: ResolvedOptions, deadline: Deadline) -> None:
    """Block until `pause` is over, or there is news."""
    # A lock that is released once is the cheapest thing a thread can wait for.
    over = threading.Lock()
    over.acquire()
    nap = core.pools.naps.begin(pause, deadline, options.cancel, over.release)
    try:
        acquire(over, None)
    finally:
        nap.end()


def with_retries(
    send: Send,
    core: ClientCore,
    options: ResolvedOptions,
    deadline: Deadline,
    attempt: Callable[[Connection], R],
    counted: Callable[[int], object] | None = None,
) -> R:
    """Attempt a request as often as it is worth it, and return what the attempt does.

    Args:
        send: The request.
        core: The client.
        options: The options of the call.
        deadline: When all of it must be over.
        attempt: Makes the request on a connection.
        counted: Told how often it was sent, if it is sent again.

    Raises:
        McpError: What `attempt` raises.
    """
    repetition: RetryState | None = None
    while True:
        connection: Connection | None = None
        try:
            connection = core.link(deadline, options.cancel)
            return attempt(connection)
        except McpError as error:
            if repetition is None:
                repetition = RetryState(
                    send, options, deadline, core.repeatable, core.label, counted
                )
            pause = repetition.pause(error, connection)
            if pause is None:
                raise
            if connection is not None and not is_over(connection):
                repetition.end(error)
                raise
            repetition.count(error, pause)
        core.sit_out(pause, options, deadline)


def _ask(ask: AnswerInput, core: ClientCore, options: ResolvedOptions, deadline: Deadline) -> Any:
    """Block until everything is answered. The clock of the call stands still meanwhile."""
    connection = core.link(deadline, options.cancel)
    # A lock that is released once is the cheapest thing a thread can wait for.
    answered = threading.Lock()
    answered.acquire()
    answers = InputResponder(
        ask, connection.questions, connection.dialect, options, deadline, answered.release
    )
    deadline.hold(connection.services.human_timeout)
    try:
        answers.start()
        # A future's thread is one of a pool's, too: the handlers may need another.
        with slot_released():
            acquire(answered, None)
    except BaseException as error:
        if not isinstance(error, McpError):
            answers.cancel(RequestCancelled("interrupted", reason=type(error).__name__))
        raise
    finally:
        deadline.release()
    return answers.result()
