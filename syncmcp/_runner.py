"""Drives the steps of an operation: in the caller's thread, or into a future."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from syncmcp._call import Call
from syncmcp._connection import Connection
from syncmcp._options import Options
from syncmcp._protocol.steps import Reply, Send, Steps
from syncmcp._questions import MAX_QUESTIONS
from syncmcp._threads import Deadline, Workers, timer
from syncmcp.cancellation import CancelToken
from syncmcp.errors import ConnectionLost, McpError, NotSupported, RequestCancelled, RequestTimeout
from syncmcp.futures import RequestFuture

if TYPE_CHECKING:
    from syncmcp._threads import TimerEntry

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


# Callbacks that may be stuck before others have to wait for them.
_CALLBACKS = 1024


class Pools:
    """The threads of one client: for callbacks, for exchanges, and one that resumes futures."""

    def __init__(self, label: str, max_in_flight: int) -> None:
        # Callbacks: one that blocks keeps its thread, and no other callback waits for it. The bound
        # is only there to end a program that never lets one go.
        self.workers = Workers(f"syncmcp-worker[{label}]", max(_CALLBACKS, 4 * max_in_flight))
        # Each question that is let in has a thread at once, and one to be told of its withdrawal.
        self.handlers = Workers(f"syncmcp-handler[{label}]", 2 * MAX_QUESTIONS)
        self.exchanges = Workers(f"syncmcp-exchange[{label}]", max_in_flight)
        # One thread: it continues futures whose steps run code of the caller's.
        self.resumer = Workers(f"syncmcp-resume[{label}]", 1)
        self.closed = False

    def close(self) -> None:
        """Let the threads end once they have nothing to do. Waits for nobody.

        What is submitted later is still done: some futures learn of the end only after it.
        """
        self.closed = True
        self.workers.close()
        self.handlers.close()
        self.exchanges.close()
        self.resumer.close()


def run(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    feed: Callable[[float, float | None, str | None], object] | None = None,
    send: Send | None = None,
) -> R:
    """Drive `steps` on this thread until they return.

    Args:
        steps: The operation.
        host: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        feed: Told of progress, on the thread that reads.
        send: What the steps yielded first, if they were begun already.

    Raises:
        McpError: What the steps raise.
    """
    try:
        if send is None:
            send = next(steps)
        while True:
            try:
                reply = _request(send, host, options, deadline, feed)
            except McpError as error:
                # The steps may give it another name, or go on.
                send = steps.throw(error)
            else:
                send = steps.send(reply)
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
    method, params = send
    connection = host._link(deadline)
    try:
        result = connection.request(method, params, options, deadline, feed=feed)
    except ConnectionLost as error:
        if not _may_repeat(error, connection):
            raise
        connection = host._link(deadline)
        result = connection.request(method, params, options, deadline, feed=feed)
    return Reply(result, connection.dialect)


def _may_repeat(error: McpError, connection: Connection) -> bool:
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


def submit(
    steps: Steps[R],
    host: Host,
    options: Options,
    deadline: Deadline,
    *,
    foreign: bool = False,
) -> RequestFuture[R]:
    """Start `steps` and return the future of what they return. Never blocks.

    Args:
        steps: The operation.
        host: The client.
        options: The options of the call.
        deadline: When the whole of it must be over.
        foreign: Whether the steps run code of the caller's (a model with validators of its own).

    Raises:
        UsageError: The arguments are wrong, or the server lacks what is asked for.
        ClosedError: The client is not open.
    """
    future: RequestFuture[R] = RequestFuture(host._pools.workers)
    connection = host._live()
    try:
        send = _first(steps, connection)
    except StopIteration as stop:
        future._settle(stop.value, None)
        return future
    future._method = send.method
    future._server = connection.label if connection is not None else None
    if connection is None or connection.transport.blocking:
        _Exchange(steps, host, options, deadline, future).start(send)
    else:
        _Run(steps, host, options, deadline, future, foreign=foreign).start(send, connection)
    return future


def _first(steps: Steps[Any], connection: Connection | None) -> Send:
    """Take the first step here and now: a mistake of the caller is raised to the caller."""
    send = next(steps)
    while connection is not None:
        try:
            connection.check(send.method)
            break
        except NotSupported as error:
            send = steps.throw(error)
    return send


class _Exchange(Generic[R]):
    """A future whose requests each need a thread while they last (HTTP), or a server to start."""

    def __init__(
        self,
        steps: Steps[R],
        host: Host,
        options: Options,
        deadline: Deadline,
        future: RequestFuture[R],
    ) -> None:
        self._steps = steps
        self._host = host
        # A token of its own: that is how `future.cancel()` reaches the thread of the exchange.
        self._token = CancelToken() if options.cancel is None else options.cancel.child()
        self._options = options.with_cancel(self._token)
        self._deadline = deadline
        self._future = future
        self._first: Send | None = None
        self._expiry: TimerEntry | None = None
        self._unsubscribe: Callable[[], None] | None = None

    def start(self, send: Send) -> None:
        self._first = send
        self._future._withdraw = partial(self._token.cancel, "cancelled by the caller")
        if self._deadline.at is not None:
            # This and the token only for the time in line; then the connection watches both.
            self._expiry = timer.at(self._deadline.at, self._expire)
        self._unsubscribe = self._token._subscribe(self._cancelled)
        self._host._pools.exchanges.submit(self._drive)

    def _cancelled(self) -> None:
        self._future._settle(
            None, RequestCancelled("cancelled", reason=self._token.reason, delivery="not_sent")
        )

    def _expire(self) -> None:
        seconds = self._deadline.seconds
        self._future._settle(
            None,
            RequestTimeout(
                f"not sent within {seconds:g} s: too many requests in flight",
                seconds=seconds,
                delivery="not_sent",
            ),
        )

    def _drive(self) -> None:
        """On an exchange thread."""
        if self._expiry is not None:
            self._expiry.cancel()
        if self._unsubscribe is not None:
            self._unsubscribe()
        future = self._future
        if future.done():
            return
        try:
            result = run(
                self._steps,
                self._host,
                self._options,
                self._deadline,
                future._report,
                self._first,
            )
        except BaseException as error:
            future._settle(None, error)
        else:
            future._settle(result, None)


class _Run(Generic[R]):
    """A future whose answers are brought by a reader thread; nothing waits in between."""

    def __init__(
        self,
        steps: Steps[R],
        host: Host,
        options: Options,
        deadline: Deadline,
        future: RequestFuture[R],
        *,
        foreign: bool,
    ) -> None:
        self._steps = steps
        self._host = host
        self._options = options
        self._deadline = deadline
        self._future = future
        self._foreign = foreign
        self._send: Send | None = None
        self._connection: Connection | None = None
        self._call: Call | None = None
        self._repeated = False

    def start(self, send: Send, connection: Connection) -> None:
        self._future._withdraw = self._withdraw
        try:
            self._request(send, connection)
        except BaseException:  # Ctrl-C, mostly: nobody will ever hold this future
            self._withdraw()
            raise

    def _request(self, send: Send, connection: Connection) -> None:
        call = Call(send.method, self._options, self._deadline, self._done, self._future._report)
        self._send, self._connection, self._call = send, connection, call
        try:
            connection.start(call, send.params)
        except McpError as error:
            call.outcome = error
            self._done(call)
        if self._future.done():
            # Cancelled while the request was on its way: `_withdraw` may have seen the one before.
            self._withdraw()

    def _withdraw(self) -> None:
        call, connection = self._call, self._connection
        if call is not None and connection is not None:
            connection.give_up(call, RequestCancelled("cancelled by the caller"))

    def _done(self, call: Call) -> None:
        """On whatever thread ended the call, mostly the one that reads.

        The library's own steps are short and block nowhere: it is cheaper to take the next one here
        than to wake another thread. Code of the caller's must not run here.
        """
        if self._foreign:
            self._host._pools.resumer.run(partial(self._settling, self._resume, call))
        else:
            self._settling(self._resume, call)

    def _settling(self, step: Callable[[Call], None], call: Call) -> None:
        """Take a step; whatever it raises ends the future, and not the thread that it is on."""
        if self._future.done():
            return
        try:
            step(call)
        except BaseException as failure:
            self._future._settle(None, failure)

    def _resume(self, call: Call) -> None:
        error = call.outcome if isinstance(call.outcome, McpError) else None
        unsent = isinstance(error, ConnectionLost) and error.delivery == "not_sent"
        if error is not None and unsent and not self._repeated:
            # Perhaps a server has to be started, which takes a while.
            self._repeated = True
            self._host._pools.workers.run(partial(self._settling, self._repeat, call))
        else:
            self._advance(call, error)

    def _advance(self, call: Call, error: BaseException | None) -> None:
        connection = self._connection
        assert connection is not None
        try:
            reply = None if error is not None else Reply(call.outcome, connection.dialect)
            send = _next_send(self._steps, reply, error)
        except StopIteration as stop:
            self._future._settle(stop.value, None)
        else:
            self._request(send, connection)

    def _repeat(self, call: Call) -> None:
        """On a pool thread: send the request again if it never left and the server has died."""
        error = call.outcome
        assert self._send is not None
        assert self._connection is not None
        if not _may_repeat(error, self._connection):
            self._advance(call, error)
            return
        try:
            connection = self._host._link(self._deadline)
        except McpError as failure:
            self._advance(call, failure)
        else:
            self._request(self._send, connection)


def _next_send(steps: Steps[Any], reply: Reply | None, error: BaseException | None) -> Send:
    if error is not None:
        return steps.throw(error)
    assert reply is not None
    return steps.send(reply)
