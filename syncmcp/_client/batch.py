"""Batches: `with client.batch() as batch:` collects calls and sends them when the block ends."""

from __future__ import annotations

import inspect
import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, TypeAlias, TypeVar, overload

from typing_extensions import ParamSpec, Self, Unpack

from syncmcp._base.checks import flag, seconds, whole_number
from syncmcp._base.text import counted
from syncmcp._client import operations
from syncmcp._client.background import Frames, FutureDrive
from syncmcp._client.core import HasCore
from syncmcp._client.operation import Operation, take_options
from syncmcp._client.requests import any_request, any_request_options
from syncmcp._concurrency.futures import RequestFuture, call_when_done, collect
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions, ResolvedOptions
from syncmcp._protocol.steps import Steps
from syncmcp.errors import LimitExceeded, McpError, RequestCancelled, RequestTimeout, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["Batch", "Oversize"]


P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="BaseModel")

Oversize: TypeAlias = Literal["split", "refuse"]
"""What happens to a batch of more than `max_size` calls: it is split into frames, or refused."""


def _of_batch(told: str | None, name: str) -> str | None:
    """Return the docstring of a batch's operation, made from that of the client's."""
    if told is None:  # with `python -OO`
        return None
    summary, *others = inspect.cleandoc(told).split("\n\n")
    kept = [each for each in others if not each.startswith((">>>", "Returns:"))]
    future = f"Returns a `RequestFuture` of what `Client.{name}` returns; see `Client.batch`."
    return "\n\n".join((summary, future, *kept))


class Collected(Generic[P, R]):
    """An operation as a method of a batch: takes the same arguments, and returns a future."""

    def __init__(self, operation: Operation[P, R]) -> None:
        def call(batch: Batch, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
            options = take_options(operation, batch._core, kwargs)
            return batch._collect(operation.steps(batch._core, *args, **kwargs), options)

        call.__name__ = call.__qualname__ = operation.__name__
        call.__doc__ = _of_batch(operation.steps.__doc__, operation.__name__)
        signature = operation.__signature__
        call.__signature__ = signature.replace(  # type: ignore[attr-defined]
            return_annotation=f"RequestFuture[{signature.return_annotation}]"
        )
        self._method = call

    @overload
    def __get__(
        self, batch: None, owner: type
    ) -> Callable[Concatenate[Batch, P], RequestFuture[R]]: ...
    @overload
    def __get__(self, batch: Batch, owner: type) -> Callable[P, RequestFuture[R]]: ...
    def __get__(self, batch: Batch | None, owner: type) -> Callable[..., RequestFuture[R]]:
        return self._method if batch is None else MethodType(self._method, batch)


class Batch:
    """Calls that are collected, and sent together when the block ends; see `Client.batch`.

    >>> with client.batch() as batch:
    ...     sums = [batch.call_tool("add", {"a": number, "b": 1}) for number in range(3)]
    >>> [future.result().text for future in sums]
    ['1', '2', '3']

    A batch has the operations of a client, except those of tasks and `resume`, with the same
    arguments and options. Each operation returns a `RequestFuture` at once. An invalid argument
    raises its error when the call is collected. The future raises all other errors of the call.

    Where the revision has batches (2025-03-26), the first requests of the calls share a frame. A
    call that needs more requests (a list of many pages, for example) sends the later requests
    alone. A call with `headers` of its own is sent alone. So is each call of a client that has
    interceptors or is not connected yet. With other revisions each request is a message of its own,
    and no request waits for another.

    Any thread may collect calls.
    """

    call_tool = Collected(operations.call_tool)
    list_tools = Collected(operations.list_tools)
    list_resources = Collected(operations.list_resources)
    list_resource_templates = Collected(operations.list_resource_templates)
    read_resource = Collected(operations.read_resource)
    subscribe_resource = Collected(operations.subscribe_resource)
    unsubscribe_resource = Collected(operations.unsubscribe_resource)
    list_prompts = Collected(operations.list_prompts)
    get_prompt = Collected(operations.get_prompt)
    begin_tool = Collected(operations.begin_tool)
    begin_prompt = Collected(operations.begin_prompt)
    begin_read = Collected(operations.begin_read)
    complete = Collected(operations.complete)
    ping = Collected(operations.ping)
    set_log_level = Collected(operations.set_log_level)

    def __init__(
        self,
        client: HasCore,
        *,
        parallel: bool,
        timeout: float | None,
        max_size: int,
        oversize: Oversize,
    ) -> None:
        self._client = client
        self._core = client._core
        self._parallel = flag(parallel, "parallel")
        self._timeout = seconds(timeout, "timeout")
        self._max_size = whole_number(max_size, "max_size")
        if oversize not in ("split", "refuse"):
            raise UsageError(f"oversize must be 'split' or 'refuse', not {oversize!r}")
        self._oversize = oversize
        # Guards the attributes below: several threads may collect calls.
        self._lock = threading.RLock()
        self._collector: int | None = None
        self._closed = False
        self._calls: list[FutureDrive[Any]] = []

    def __repr__(self) -> str:
        return f"<Batch of {len(self)} calls of {self._client!r}>"

    @property
    def futures(self) -> tuple[RequestFuture[Any], ...]:
        """The futures of all calls, in the order in which they were collected."""
        with self._lock:
            return tuple(call.future for call in self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __enter__(self) -> Self:
        """Start to collect calls.

        Raises:
            UsageError: The batch was used before.
        """
        with self._lock:
            if self._collector is not None:
                raise UsageError("a batch can be used only once; create another one")
            self._collector = threading.get_ident()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Send the collected calls without waiting; after an exception, cancel all instead."""
        with self._lock:
            self._closed = True
            calls = self._calls
        for call in calls:
            collect(call.future, None)
        if kind is not None:
            _cancel_all(calls)
            return
        try:
            if self._parallel:
                self._send(calls)
            else:
                deadline, workers = Deadline(self._timeout), self._core.pools.workers
                _start_in_turn(deque(calls), deadline, workers)
        except BaseException:  # Ctrl-C, mostly: no future may stay open
            _cancel_all(calls)
            raise

    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[M],
        **options: Unpack[CallOptions],
    ) -> RequestFuture[M]: ...
    @overload
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = ...,
        *,
        result: type[dict[str, Any]] = ...,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[dict[str, Any]]: ...
    def request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        result: type[Any] = dict,
        **options: Unpack[CallOptions],
    ) -> RequestFuture[Any]:
        """Collect a request of any method; see `Client.request`."""
        steps = any_request(self._core, method, params, result)
        return self._collect(
            steps, any_request_options(self._core, options), runs_user_code=result is not dict
        )

    def _collect(
        self, steps: Steps[R], options: ResolvedOptions, *, runs_user_code: bool = False
    ) -> RequestFuture[R]:
        if (refusal := self._refusal()) is not None:
            raise refusal
        # Without the lock: a cache store and a function for headers are code of the program.
        call = FutureDrive(
            steps,
            self._core,
            options,
            Deadline(options.timeout),
            owner=self._client,
            runs_user_code=runs_user_code,
            collected=True,
        )
        collect(call.future, self._collector)
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                self._calls.append(call)
                return call.future
        call.fail(refusal)
        raise refusal

    def _refusal(self) -> McpError | None:
        """The error of collecting a call now; `None` if calls can be collected."""
        with self._lock:
            if self._collector is None or self._closed:
                return UsageError("a batch collects calls within its `with` block")
            if self._oversize == "refuse" and len(self._calls) >= self._max_size:
                return LimitExceeded(
                    f"the batch has more than {counted(self._max_size, 'calls')} (option max_size)",
                    delivery="not_sent",
                    server=self._core.label,
                )
        return None

    def _send(self, calls: list[FutureDrive[Any]]) -> None:
        frames: Frames = {}
        for call in calls:
            _start(call, self._timeout, frames)
        for connection, requests in frames.items():
            for start in range(0, len(requests), self._max_size):
                part = requests[start : start + self._max_size]
                send = partial(connection.send_batch, part)
                if connection.transport.blocking:
                    self._core.pools.exchanges.run(send)
                else:
                    send()


def _start_in_turn(calls: deque[FutureDrive[Any]], deadline: Deadline, workers: DaemonPool) -> None:
    """Start the calls one after another, each as soon as the one before it has ended."""
    if not calls:
        return
    call = calls.popleft()
    if deadline.expired:
        late = RequestTimeout(
            f"not sent: the batch took longer than {deadline.seconds:g} s",
            seconds=deadline.seconds,
            server=call.future._server,
            method=call.future._method,
            delivery="not_sent",
        )
        call.fail(late)
    else:
        _start(call, deadline.remaining())
    # On a pool thread: the thread that settles the future may be one that must not send.
    next_one = partial(_start_in_turn, calls, deadline, workers)
    call_when_done(call.future, partial(workers.run, next_one))


def _cancel_all(calls: list[FutureDrive[Any]]) -> None:
    for call in calls:
        call.future.cancel()
        call.fail(RequestCancelled("the batch of the call was cancelled", delivery="not_sent"))


def _start(call: FutureDrive[Any], timeout: float | None, frames: Frames | None = None) -> None:
    limits = [limit for limit in (call.options.timeout, timeout) if limit is not None]
    try:
        call.start(Deadline(min(limits, default=None)), frames)
    except McpError as error:  # the client was closed
        call.fail(error)
