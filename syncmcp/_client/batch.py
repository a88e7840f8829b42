"""Many calls at once: `with client.batch() as b:` collects them and sends them when it is left."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar, overload

from typing_extensions import ParamSpec, Unpack

from syncmcp._base.checks import seconds, whole_number
from syncmcp._client import operations
from syncmcp._client.background import PreparedCall
from syncmcp._client.operation import Operation, take_options
from syncmcp._client.requests import any_request, as_told
from syncmcp._concurrency.futures import RequestFuture, call_when_done, collect
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.batching import BatchAssembler, BatchSlot
from syncmcp._connection.options import CallOptions, ResolvedOptions
from syncmcp._protocol.steps import Steps
from syncmcp.errors import LimitExceeded, McpError, RequestCancelled, RequestTimeout, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel
    from typing_extensions import Self

    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp._concurrency.pool import DaemonPool

__all__ = ["Batch", "Oversize"]


P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound="BaseModel")

Oversize: TypeAlias = Literal["split", "refuse"]
"""What becomes of a batch of more than `max_size` calls: several frames, or an error."""


class Collected(Generic[P, R]):
    """An operation as a batch has it: it takes the same, and returns a future."""

    def __init__(self, operation: Operation[P, R]) -> None:
        self._operation = operation
        self.__doc__ = operation.__doc__

    @overload
    def __get__(self, batch: None, owner: type) -> Collected[P, R]: ...
    @overload
    def __get__(self, batch: Batch, owner: type) -> Callable[P, RequestFuture[R]]: ...
    def __get__(
        self, batch: Batch | None, owner: type
    ) -> Collected[P, R] | Callable[P, RequestFuture[R]]:
        if batch is None:
            return self
        call: Callable[P, RequestFuture[R]] = partial(batch._collect_operation, self._operation)
        return call


class Batch:
    """Calls that are collected, and sent together when the block is left; see `Client.batch`.

    It has every operation of a client, with the same arguments and options. Each returns its
    `RequestFuture` at once; how a call ends is nobody's business but its future's. A mistake in the
    arguments is raised at the call.

    Where the revision has batches (2025-03-26), the first requests of the calls share a frame. A
    call that needs more of them (a list of many pages, say) goes on alone, and so does one with
    `headers` of its own. Elsewhere each request goes by itself, and none waits for another.

    Any thread may collect.
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
        self._parallel = parallel
        self._timeout = seconds(timeout, "timeout")
        self._max_size = whole_number(max_size, "max_size")
        if oversize not in ("split", "refuse"):
            raise UsageError(f"oversize is 'split' or 'refuse', not {oversize!r}")
        self._oversize = oversize
        # Guards what follows: calls may be collected by several threads.
        self._lock = threading.RLock()
        self._collector: int | None = None
        self._over = False
        self._begun: list[PreparedCall[Any]] = []

    @property
    def _core(self) -> ClientCore:
        return self._client._core

    @property
    def futures(self) -> tuple[RequestFuture[Any], ...]:
        """The futures of all calls, in the order in which they were collected."""
        with self._lock:
            return tuple(begun.future for begun in self._begun)

    def __len__(self) -> int:
        return len(self._begun)

    def __enter__(self) -> Self:
        """Begin to collect.

        Raises:
            UsageError: It did so before.
        """
        with self._lock:
            if self._collector is not None:
                raise UsageError("a batch is used once; make another one")
            self._collector = threading.get_ident()
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        """Send what was collected, and wait for nothing; after an exception, drop it."""
        with self._lock:
            self._over = True
            begun = self._begun
        for each in begun:
            collect(each.future, None)
        if kind is not None:
            _give_up(begun)
            return
        try:
            if self._parallel:
                self._send(begun)
            else:
                _Sequence(begun, Deadline(self._timeout), self._core.pools.workers).next()
        except BaseException:  # Ctrl-C, mostly: who waits for the others would wait for these, too
            _give_up(begun)
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
        return self._collect(steps, as_told(self._core, options), foreign=result is not dict)

    def _collect_operation(
        self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs
    ) -> RequestFuture[R]:
        options = take_options(operation, self._core, kwargs)
        return self._collect(operation.steps(self._core, *args, **kwargs), options)

    def _collect(
        self, steps: Steps[R], options: ResolvedOptions, *, foreign: bool = False
    ) -> RequestFuture[R]:
        if (refusal := self._refusal()) is not None:
            raise refusal
        # Without the lock: a cache store and a function for headers are the caller's code.
        begun = PreparedCall(steps, self._core, options, owner=self._client, foreign=foreign)
        collect(begun.future, self._collector)
        with self._lock:
            refusal = self._refusal()
            if refusal is None:
                self._begun.append(begun)
                return begun.future
        begun.drop(refusal)
        raise refusal

    def _refusal(self) -> McpError | None:
        """Why no call can be collected now, if so."""
        with self._lock:
            if self._collector is None or self._over:
                return UsageError("a batch collects calls within its `with` block")
            if self._oversize == "refuse" and len(self._begun) >= self._max_size:
                return LimitExceeded(
                    f"more than {self._max_size} calls in a batch (option max_size)",
                    server=self._core.label,
                )
        return None

    def _send(self, begun: list[PreparedCall[Any]]) -> None:
        pool = self._core.pools.exchanges
        wanted = [each for each in begun if each.send is not None and not each.future.done()]
        for start in range(0, len(wanted), self._max_size):
            part = wanted[start : start + self._max_size]
            assembler = BatchAssembler(len(part), pool)
            for index, each in enumerate(part):
                slot = each.options.batch_slot = BatchSlot(assembler, index)
                call_when_done(each.future, slot.discard)
        for each in begun:
            _go(each, self._timeout)


class _Sequence:
    """Starts each call when the one before it is done."""

    def __init__(
        self, begun: list[PreparedCall[Any]], deadline: Deadline, workers: DaemonPool
    ) -> None:
        self._waiting = deque(begun)
        self._deadline = deadline
        self._workers = workers

    def next(self) -> None:
        """Start the next call. Nothing else is under way."""
        if not self._waiting:
            return
        begun = self._waiting.popleft()
        if self._deadline.expired:
            begun.drop(self._late(begun))
        else:
            _go(begun, self._deadline.remaining())
        # Never on the thread that settles it: that may be one that must not send.
        call_when_done(begun.future, partial(self._workers.run, self.next))

    def _late(self, begun: PreparedCall[Any]) -> RequestTimeout:
        seconds = self._deadline.seconds
        return RequestTimeout(
            f"not sent: the batch has taken {seconds:g} s",
            seconds=seconds,
            server=begun.future._server,
            method=begun.future._method,
            delivery="not_sent",
        )


def _give_up(begun: list[PreparedCall[Any]]) -> None:
    for each in begun:
        each.future.cancel()
        each.drop(RequestCancelled("its batch was given up", delivery="not_sent"))


def _go(begun: PreparedCall[Any], timeout: float | None) -> None:
    limits = [limit for limit in (begun.options.timeout, timeout) if limit is not None]
    try:
        begun.go(Deadline(min(limits, default=None)))
    except McpError as error:  # the client was closed
        begun.drop(error)


def batch(
    self: HasCore,
    *,
    parallel: bool = True,
    timeout: float | None = None,
    max_size: int = 100,
    oversize: Oversize = "split",
) -> Batch:
    """Collect calls in a `with` block, and send them when it is left.

    In one frame where the revision has batches (2025-03-26), one by one and at the same time
    elsewhere. A block that is left by an exception sends nothing and cancels the futures.

    Args:
        parallel: Whether the calls run at the same time; otherwise each is sent alone, when the one
            before it is done.
        timeout: The longest that all calls may take, in seconds, from when the block is left;
            `None` for no limit but that of each call.
        max_size: How many requests a frame may hold.
        oversize: What becomes of more calls than that: ``"split"`` sends several frames,
            ``"refuse"`` raises `LimitExceeded` at the call that is one too many.

    Raises:
        UsageError: An argument makes no sense.
    """
    return Batch(self, parallel=parallel, timeout=timeout, max_size=max_size, oversize=oversize)
