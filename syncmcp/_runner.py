"""Drives the steps of an operation in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from syncmcp._connection import Connection
from syncmcp._input import InputAnswers
from syncmcp._kept import Kept, keeping
from syncmcp._options import Options
from syncmcp._pools import Pools
from syncmcp._protocol.steps import Ask, Effect, Pause, Reply, Send, Steps, Work
from syncmcp._repeating import Repeatable, Repetition, is_over
from syncmcp._threads import Deadline, acquire
from syncmcp._workers import lending
from syncmcp.cancellation import CancelToken
from syncmcp.errors import McpError, RequestCancelled

R = TypeVar("R")


class Host(Protocol):
    """What a runner needs of a client."""

    def _link(self, deadline: Deadline, cancel: CancelToken | None = None) -> Connection:
        """The live connection, made anew if the server has died and may be started again.

        `cancel` ends waiting for another thread that makes one.
        """
        ...

    def _live(self) -> Connection | None:
        """The live connection if there is one already; never blocks.

        Raises:
            ClosedError: The client is not open.
        """
        ...

    def _sit_out(self, seconds: float, options: Options, deadline: Deadline) -> None:
        """Wait so long; less if the call is cancelled, its deadline comes, or the client closes."""
        ...

    @property
    def _pools(self) -> Pools:
        """The threads of the client."""
        ...

    _repeatable: Repeatable
    """What the client sends again."""

    _kept: Kept | None
    """Results that are kept for a while."""

    _round_limit: int
    """How often a server may ask before it must have a result."""

    _label: str
    """What errors call the server."""


def run(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    effect: Effect | None = None,
    counted: Callable[[int], object] | None = None,
) -> R:
    """Drive `steps` on this thread until they return.

    Args:
        steps: The operation.
        host: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        effect: What the steps yielded first, if they were begun already.
        counted: Told how often a request was sent, if it is sent again.

    Raises:
        McpError: What the steps raise.
    """
    if effect is None:
        steps = keeping(steps, host, options)
    if options.nested:
        with lending():
            return _drive(steps, host, options, deadline, effect, counted)
    return _drive(steps, host, options, deadline, effect, counted)


def _drive(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    effect: Effect | None,
    counted: Callable[[int], object] | None,
) -> R:
    try:
        if effect is None:
            effect = next(steps)
        while True:
            value: Any = None
            try:
                if isinstance(effect, Send):
                    value = _request(effect, host, options, deadline, counted)
                elif isinstance(effect, Ask):
                    value = _ask(effect, host, options, deadline)
                elif isinstance(effect, Work):
                    value = effect.do()
                else:
                    assert isinstance(effect, Pause)  # a Recall has its answer before it gets here
                    host._sit_out(effect.seconds, options, deadline)
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
    counted: Callable[[int], object] | None,
) -> Reply:
    method, params, offer = send

    def attempt(connection: Connection) -> Reply:
        options.identity, options.altered = None, False
        result = connection.request(method, params, options, deadline, offer=offer)
        return Reply(result, connection.dialect, options.identity, options.altered)

    return repeated(send, host, options, deadline, attempt, counted)


def repeated(
    send: Send,
    host: Host,
    options: Options,
    deadline: Deadline,
    attempt: Callable[[Connection], R],
    counted: Callable[[int], object] | None = None,
) -> R:
    """Attempt a request as often as it is worth it, and return what the attempt does.

    Args:
        send: The request.
        host: The client.
        options: The options of the call.
        deadline: When all of it must be over.
        attempt: Makes the request on a connection.
        counted: Told how often it was sent, if it is sent again.

    Raises:
        McpError: What `attempt` raises.
    """
    repetition: Repetition | None = None
    while True:
        connection: Connection | None = None
        try:
            connection = host._link(deadline, options.cancel)
            return attempt(connection)
        except McpError as error:
            if repetition is None:
                repetition = Repetition(
                    send, options, deadline, host._repeatable, host._label, counted
                )
            pause = repetition.pause(error, connection)
            if pause is None:
                raise
            if connection is not None and not is_over(connection):
                repetition.end(error)
                raise
            repetition.count(error, pause)
        host._sit_out(pause, options, deadline)


def open_link(host: Host, deadline: Deadline) -> None:
    """Have a connection opened, in more than one attempt if that is worth it.

    Raises:
        McpError: None came about.
    """
    options = Options(None, None)
    repetition: Repetition | None = None
    while True:
        try:
            host._link(deadline)
            return
        except McpError as error:
            if repetition is None:
                opening = Send("initialize", None)
                repetition = Repetition(opening, options, deadline, host._repeatable, host._label)
            pause = repetition.pause(error, None)
            if pause is None:
                raise
            repetition.count(error, pause)
        host._sit_out(pause, options, deadline)


def _ask(ask: Ask, host: Host, options: Options, deadline: Deadline) -> Any:
    """Block until everything is answered. The clock of the call stands still meanwhile."""
    connection = host._link(deadline, options.cancel)
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
