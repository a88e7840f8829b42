"""Drives the steps of an operation in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from syncmcp._connection import Connection
from syncmcp._input import InputAnswers
from syncmcp._options import Options
from syncmcp._pools import Pools
from syncmcp._protocol.steps import Ask, Effect, Reply, Send, Steps
from syncmcp._threads import Deadline, acquire
from syncmcp._workers import lending
from syncmcp.cancellation import CancelToken
from syncmcp.errors import ConnectionLost, McpError, RequestCancelled

if TYPE_CHECKING:
    pass

R = TypeVar("R")


class Host(Protocol):
    """What a runner needs of a client."""

    def _link(self, deadline: Deadline) -> Connection:
        """The live connection, made anew if the server has died and may be started again."""
        ...

    def _live(self) -> Connection | None:
        """The live connection if there is one already; never blocks.

        Raises:
            ClosedError: The client is not open.
        """
        ...

    @property
    def _pools(self) -> Pools:
        """The threads of the client."""
        ...


def run(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    feed: Callable[[float, float | None, str | None], object] | None = None,
    effect: Effect | None = None,
) -> R:
    """Drive `steps` on this thread until they return.

    Args:
        steps: The operation.
        host: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        feed: Told of progress, on the thread that reads.
        effect: What the steps yielded first, if they were begun already.

    Raises:
        McpError: What the steps raise.
    """
    if options.nested:
        with lending():
            return _drive(steps, host, options, deadline, feed, effect)
    return _drive(steps, host, options, deadline, feed, effect)


def _drive(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    feed: Callable[[float, float | None, str | None], object] | None,
    effect: Effect | None,
) -> R:
    try:
        if effect is None:
            effect = next(steps)
        while True:
            value: Any = None
            try:
                if isinstance(effect, Send):
                    value = _request(effect, host, options, deadline, feed)
                elif isinstance(effect, Ask):
                    value = _ask(effect, host, options, deadline)
                else:
                    _pause(effect.seconds, options, deadline)
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
    host: Host,
    options: Options,
    deadline: Deadline,
    feed: Callable[[float, float | None, str | None], object] | None,
) -> Reply:
    method, params, offer = send
    connection = host._link(deadline)
    try:
        result = connection.request(method, params, options, deadline, offer=offer, feed=feed)
    except ConnectionLost as error:
        if not may_repeat(error, connection):
            raise
        connection = host._link(deadline)
        result = connection.request(method, params, options, deadline, offer=offer, feed=feed)
    return Reply(result, connection.dialect)


def _ask(ask: Ask, host: Host, options: Options, deadline: Deadline) -> Any:
    """Block until everything is answered. The clock of the call stands still meanwhile."""
    connection = host._link(deadline)
    # A lock that is released once is the cheapest thing a thread can wait for.
    answered = threading.Lock()
    answered.acquire()
    answers = InputAnswers(ask, connection.desk, connection.dialect, options, answered.release)
    deadline.hold()
    try:
        answers.start()
        # A future's thread is one of a pool's, too: the handlers may need another.
        with lending():
            acquire(answered, None)
    except BaseException as error:
        if not isinstance(error, McpError):
            answers.give_up(RequestCancelled("interrupted", reason=type(error).__name__))
        raise
    finally:
        deadline.release()
    return answers.result()


def _pause(seconds: float, options: Options, deadline: Deadline) -> None:
    """Wait; whoever sends the next request finds out whether there is still time for it."""
    left = deadline.remaining()
    seconds = seconds if left is None else min(seconds, left)
    token = options.cancel or CancelToken()
    token.wait(seconds)


def may_repeat(error: McpError, connection: Connection) -> bool:
    """The server was dead before anything had left: that is what a fresh one is for.

    Blocks for a moment, if need be: a broken pipe is noticed before the death it comes from.
    """
    return (
        isinstance(error, ConnectionLost)
        and error.delivery == "not_sent"
        and not connection.transport.blocking
        and connection.wait_dead(_DYING_SECONDS)
    )


# A server whose stdin is broken is as good as dead; the news of it comes within this time.
_DYING_SECONDS = 0.2
