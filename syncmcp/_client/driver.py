"""Drives the steps of an operation in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from syncmcp._client.caching import Kept, keeping
from syncmcp._client.pools import Pools
from syncmcp._client.retrying import Repeatable, Repetition, is_over
from syncmcp._concurrency.cancel import CancelToken
from syncmcp._concurrency.pool import lending
from syncmcp._concurrency.timing import Deadline, acquire
from syncmcp._connection.agreed import Agreed
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import Options
from syncmcp._connection.questions import InputAnswers
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.steps import (
    Ask,
    Effect,
    Hear,
    Meet,
    Pause,
    Post,
    Reply,
    Send,
    Steps,
    Work,
)
from syncmcp.errors import McpError, RequestCancelled, UsageError

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

    def _post(self, method: str, params: dict[str, Any] | None, undeclared: Undeclared) -> None:
        """Make a request whose end nobody waits for; never blocks."""
        ...

    def _hear(self, task: str) -> Callable[[], object]:
        """Have the server tell of a task, where it can; return what ends that. Neither blocks."""
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


class Parked(BaseException):
    """The steps wait for something that takes long; no thread is needed meanwhile."""

    def __init__(self, pause: Pause) -> None:
        super().__init__()
        self.pause = pause


def run(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    effect: Effect | None = None,
    counted: Callable[[int], object] | None = None,
    *,
    parks: bool = False,
) -> R:
    """Drive `steps` on this thread until they return.

    Args:
        steps: The operation.
        host: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        effect: What the steps yielded first, if they were begun already.
        counted: Told how often a request was sent, if it is sent again.
        parks: Raise `Parked` where they wait for something that takes long.

    Raises:
        McpError: What the steps raise.
    """
    if effect is None:
        steps = keeping(steps, host, options)
    try:
        if options.nested:
            with lending():
                return _drive(steps, host, options, deadline, effect, counted, parks)
        return _drive(steps, host, options, deadline, effect, counted, parks)
    except Parked:
        raise
    except McpError as error:
        name_server(error, host)
        raise
    except BaseException as error:  # Ctrl-C, mostly
        interrupted = RequestCancelled("interrupted", reason=type(error).__name__)
        leave(steps, host, options, interrupted)
        raise


def name_server(error: BaseException, host: Host) -> None:
    """Name the server in an error that the steps found by themselves, in what it said for example.

    Not in a mistake of the caller's, which is about no server.
    """
    if isinstance(error, McpError) and not isinstance(error, UsageError) and error.server is None:
        error.server = host._label


def leave(steps: Steps[Any], host: Host, options: Options, error: McpError) -> None:
    """Nobody waits for `steps` any more: have the server told what they still want to tell it."""
    try:
        effect = steps.throw(error)
        while isinstance(effect, Post):
            host._post(*effect, options.undeclared)
            effect = next(steps)
    except (McpError, StopIteration):
        return
    steps.close()


def _drive(
    steps: Steps[R],
    host: Host,
    options: Options,
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
                    value = _request(effect, host, options, deadline, counted)
                elif isinstance(effect, Ask):
                    value = _ask(effect, host, options, deadline)
                elif isinstance(effect, Work):
                    value = effect.do()
                elif isinstance(effect, Post):
                    host._post(*effect, options.undeclared)
                elif isinstance(effect, Meet):
                    value = _meet(effect, host, options, deadline)
                elif isinstance(effect, Hear):
                    value = host._hear(effect.task)
                else:
                    assert isinstance(effect, Pause)  # a Recall has its answer before it gets here
                    if effect.task is None:
                        host._sit_out(effect.seconds, options, deadline)
                    elif parks:
                        raise Parked(effect)
                    else:
                        _wait(effect, host, options, deadline)
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
    method, params, offer, within, session = send
    if within is not None:
        deadline = deadline.sooner(within)

    def attempt(connection: Connection) -> Reply:
        if session is not None:
            session.enter(connection)
        options.identity, options.altered = None, False
        result = connection.request(method, params, options, deadline, offer=offer)
        return Reply(result, connection.dialect, options.identity, options.altered)

    return repeated(send, host, options, deadline, attempt, counted)


def _meet(meet: Meet, host: Host, options: Options, deadline: Deadline) -> Agreed:
    def attempt(connection: Connection) -> Agreed:
        return connection.agreed

    return repeated(Send(meet.method, None), host, options, deadline, attempt)


def _wait(pause: Pause, host: Host, options: Options, deadline: Deadline) -> None:
    """Block until `pause` is over, or there is news."""
    # A lock that is released once is the cheapest thing a thread can wait for.
    over = threading.Lock()
    over.acquire()
    nap = host._pools.naps.begin(pause, deadline, options.cancel, over.release)
    try:
        acquire(over, None)
    finally:
        nap.end()


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
    desk = connection.desk
    answers = InputAnswers(ask, desk, connection.dialect, options, deadline, answered.release)
    deadline.hold(desk.human_timeout)
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
