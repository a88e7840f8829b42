"""Operations: generators of steps as methods that block, return a future, or return a stream.

The decorator `operation` makes a method of a generator function. `client.ping()` blocks,
`client.ping.future()` returns a `RequestFuture`, and `client.ping.stream()` a `ResultStream`.
"""

from __future__ import annotations

import inspect
import re
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, overload

from typing_extensions import ParamSpec

from syncmcp._base.text import logger
from syncmcp._client.background import FutureDrive
from syncmcp._client.driver import run
from syncmcp._concurrency import budget
from syncmcp._concurrency.futures import ItemQueue, Progress, RequestFuture, wake_when_done
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp._connection.options import (
    OPTION_NAMES,
    ResolvedOptions,
    keyword_hint,
    list_options,
)
from syncmcp._protocol.jsonrpc import size_of
from syncmcp._protocol.steps import Steps

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.core import ClientCore, HasCore
    from syncmcp.types import LoggingMessageNotificationParams

__all__ = ["ResultStream"]

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound="Callable[..., Any]")

_log = logger("syncmcp.callbacks")


class Operation(Generic[P, R]):
    """An operation as a class attribute; on an instance of a client it is a `BoundOperation`.

    Decorates a generator function whose first argument is the client's core.
    """

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        self.steps = steps
        self.__name__ = steps.__name__
        self.__qualname__ = steps.__qualname__
        told = list_options(steps).__doc__
        self.__doc__ = told and _with_forms(told, self.__name__)
        self.__module__ = steps.__module__
        signature = inspect.signature(steps)
        # The method returns the return value of the generator: `R` of `Steps[R]`.
        result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
        core, *parameters = signature.parameters.values()
        itself = core.replace(name="self", annotation=inspect.Parameter.empty)
        self.__signature__ = signature.replace(
            parameters=[itself, *parameters], return_annotation=result
        )
        self.names = frozenset(each.name for each in parameters) - {"options"}
        # Its `future` and `stream` have the signature of the operation. Not a cached property: its
        # lock (until Python 3.11) would block a child if it was held during the fork.
        self.bound: type[BoundOperation[P, R]] = with_signatures(BoundOperation, self)

    @overload
    def __get__(self, client: None, owner: type) -> Operation[P, R]: ...
    @overload
    def __get__(self, client: HasCore, owner: type) -> BoundOperation[P, R]: ...
    def __get__(
        self, client: HasCore | None, owner: type
    ) -> Operation[P, R] | BoundOperation[P, R]:
        return self if client is None else self.bound(self, client)

    def __call__(self, client: HasCore, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it as a function of the class, `Client.call_tool(client, ...)`; blocks."""
        if not hasattr(client, "_core"):
            raise TypeError(f"{self.__name__} needs a client: write client.{self.__name__}(...)")
        return self.bound(self, client)(*args, **kwargs)

    @property
    def future(self) -> Callable[Concatenate[HasCore, P], RequestFuture[R]]:
        """`future` as a function of the class, `Client.call_tool.future(client, ...)`."""
        return from_class("future", self)

    @property
    def stream(self) -> Callable[Concatenate[HasCore, P], ResultStream[R]]:
        """`stream` as a function of the class, `Client.call_tool.stream(client, ...)`."""
        return from_class("stream", self)


operation = Operation


class BoundOperation(Generic[P, R]):
    """An operation of one client: call it to block, or use `future` or `stream`."""

    __slots__ = ("_client", "_operation")

    def __init__(self, operation: Operation[P, R], client: HasCore) -> None:
        self._operation = operation
        self._client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the request and block until the result has arrived."""
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        steps = self._operation.steps(core, *args, **kwargs)
        return run(steps, core, options, Deadline(options.timeout))

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Make the request of `call_tool` and return a future of its result at once.

        >>> future = client.call_tool.future("add", {"a": 1, "b": 2})
        >>> future.result(timeout=5).text
        '3'

        For the arguments see the blocking operation, such as `help(client.call_tool)`.

        Returns:
            A `RequestFuture`, which is a `concurrent.futures.Future`. Its ``result(timeout)`` waits
            for the result of the blocking operation. This timeout only ends the wait, with
            `TimeoutError`. The option `timeout` ends the call, and so does ``cancel()`` of the
            future; the server is notified. Callbacks run on a pool thread. Calls beyond the
            client's `max_in_flight` are queued.

        Raises:
            TypeError: An argument is missing or unknown.
            UsageError: An argument is invalid, or the server does not have the feature.
            ClosedError: The client is not open.
            McpError: ``result()``, and not this call, raises the other errors of the operation. It
                also raises `InvalidArguments`, and the errors that the client can find only after
                it has connected.
        """
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        steps = self._operation.steps(core, *args, **kwargs)
        return FutureDrive(steps, core, options, Deadline(options.timeout), self._client).future

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        """Make the request of `call_tool` and return a stream of its progress and result at once.

        >>> with client.call_tool.stream("countdown", {"steps": 2, "delay": 0.1}) as items:
        ...     for item in items:
        ...         if isinstance(item, syncmcp.Progress):
        ...             print(item.progress, item.total)
        1 2
        2 2

        For the arguments see the blocking operation, such as `help(client.call_tool)`.

        Returns:
            A `ResultStream`. The thread that iterates over the stream waits for `Progress`, log
            messages and, last, the result of the blocking operation. Leaving the `with` block of
            the stream cancels the call, and the server is notified. Leaving the loop has the same
            effect if no name refers to the stream. The option `timeout` limits the whole iteration.
            Calls beyond the client's `max_in_flight` are queued.

        Raises:
            TypeError: An argument is missing or unknown.
            UsageError: An argument is invalid, or the server does not have the feature.
            ClosedError: The client is not open.
            McpError: The iteration, and not this call, raises the other errors of the operation. It
                also raises `InvalidArguments`, and the errors that the client can find only after
                it has connected.
        """
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        items = StreamBuffer()
        options = options.but(observer=items.put)
        steps = self._operation.steps(core, *args, **kwargs)
        drive = FutureDrive(steps, core, options, Deadline(options.timeout), self._client)
        return ResultStream(drive.future, items)

    def __get__(self, instance: object, owner: type) -> BoundOperation[P, R]:
        # With this, `help()` and editors treat it as a method.
        return self

    @property
    def __name__(self) -> str:
        return self._operation.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._operation.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        signature = self._operation.__signature__
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._client, self._operation.__name__)

    def __repr__(self) -> str:
        return f"<operation {self._operation.__name__} of {self._client!r}>"


# -- the forms of an operation in `help()`


def _with_forms(told: str, name: str) -> str:
    """The docstring of an operation, with a paragraph about its forms after the summary."""
    summary, *rest = told.split("\n\n", 1)
    forms = (
        "The call blocks until the result has arrived. With the same arguments,\n"
        f"`{name}.future(...)` returns a `RequestFuture` at once, and\n"
        f"`{name}.stream(...)` returns a `ResultStream`."
    )
    return "\n\n".join((summary, forms, *rest))


def with_signatures(cls: Any, operation: Any) -> Any:
    """A subclass with copies of `future` and `stream` that have the signature of `operation`.

    Copies, because all operations share the functions of `cls`; wrappers would slow down each call.
    """
    copies: dict[str, Any] = {
        "__slots__": (),
        "__module__": cls.__module__,
        "__doc__": vars(cls)["__doc__"],
    }
    for name in ("future", "stream"):
        shared: Any = getattr(cls, name)
        copies[name] = _describe(FunctionType(shared.__code__, shared.__globals__), name, operation)
    return type(cls.__name__, (cls,), copies)


def from_class(name: str, operation: Any) -> Callable[..., Any]:
    """Return `future` or `stream` as a function of the client and the arguments."""

    def form(client: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(operation.__get__(client, type(client)), name)(*args, **kwargs)

    return _describe(form, name, operation)


def _describe(function: F, name: str, operation: Any) -> F:
    model = getattr(BoundOperation, name)
    function.__name__ = function.__qualname__ = name
    # The example still calls `call_tool`.
    told = model.__doc__ and re.sub(r"call_tool\b(?!\.)", operation.__name__, model.__doc__)
    function.__doc__ = told
    signature: inspect.Signature = operation.__signature__
    returned = model.__annotations__["return"].replace("[R]", f"[{signature.return_annotation}]")
    function.__signature__ = signature.replace(  # type: ignore[attr-defined]
        return_annotation=returned
    )
    return function


def take_options(
    operation: Operation[..., Any], core: ClientCore, kwargs: dict[str, Any]
) -> ResolvedOptions:
    """Move the options of the call out of `kwargs`; the arguments of the operation stay.

    `undeclared` stays, too: operations that are repeated in each new session need it.
    """
    given: Any = {name: kwargs.pop(name) for name in OPTION_NAMES.intersection(kwargs)}
    unknown = kwargs.keys() - operation.names
    if unknown:
        word = min(unknown)
        of_client = inspect.signature(type(core.client)).parameters
        hint = keyword_hint(word, OPTION_NAMES | operation.names, of_client)
        if operation.__name__ == "call_tool" and not hint:
            hint = "pass the tool's arguments as one dict, or as keywords of tool(name)(...)"
        if operation.__name__ == "get_prompt" and not hint:
            hint = "pass the prompt's arguments as one dict"
        text = f"{operation.__name__}() got an unexpected keyword argument {word!r}"
        raise TypeError(f"{text}: {hint}" if hint else text)
    if "undeclared" in given:
        kwargs["undeclared"] = given["undeclared"]
    return core.resolve(given)


class ResultStream(Generic[R]):
    """The progress, the log messages and the result of one call, in the order of their arrival.

    >>> with client.call_tool.stream("countdown", {"steps": 2, "delay": 0.1}) as items:
    ...     for item in items:
    ...         if isinstance(item, syncmcp.Progress):
    ...             print(item.progress, item.total)
    ...         elif isinstance(item, syncmcp.types.CallToolResult):
    ...             print(item.text)
    1 2
    2 2
    lift-off

    An iterator of `Progress`, `LoggingMessageNotificationParams` and, last, the result.
    ``client.call_tool.stream(...)`` and the `stream` of other operations make one. If the call
    fails, the iteration raises the error instead of returning the result. The iteration ends early
    by `close`, at the end of a ``with`` block, or when the stream is garbage-collected (for example
    after leaving a ``for`` loop). Then the call is cancelled, and the server is notified.

    Log messages are assigned to a call if the server sends them on the stream of that call (over
    HTTP), or if no other call is in flight. Several threads may iterate; each item is returned to
    one of them.
    """

    def __init__(self, future: RequestFuture[R], items: StreamBuffer) -> None:
        self._future = future
        self._items = items
        self._closed = False
        self._finalizer = weakref.finalize(self, reaper.put, future.cancel)
        self._finalizer.atexit = False
        wake_when_done(future, items.close)

    def __repr__(self) -> str:
        return f"<ResultStream of {self._future!r}>"

    @property
    def dropped(self) -> int:
        """The number of discarded items: beyond 1,024 queued items, the oldest one is discarded."""
        return self._items.dropped

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Progress | LoggingMessageNotificationParams | R:
        """Wait for the next item; the `timeout` of the call limits the wait.

        Raises:
            McpError: The call failed; see the operation.
        """
        from syncmcp.types import LoggingMessageNotificationParams

        while not self._closed:
            with lending_handler():
                item = self._items.next()
            if isinstance(item, Progress):
                return item
            if item is None:
                try:
                    return self._take_future().result(0)
                finally:
                    del self  # as in `RequestFuture.result`
            try:
                return LoggingMessageNotificationParams.from_wire(item)
            except ValueError:
                _log.debug("skipped an invalid log message")
        raise StopIteration

    def _take_future(self) -> RequestFuture[R]:
        with self._items.lock:
            if self._closed:  # another thread took the result
                raise StopIteration
            self._closed = True
        self._finalizer.detach()
        return self._future

    def close(self) -> None:
        """End the iteration, and cancel the call if it is running. Any thread may call this."""
        with self._items.lock:
            self._closed = True
        self._finalizer.detach()
        self._future.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


class StreamBuffer(ItemQueue["Progress | dict[str, Any]"]):
    """Progress and log messages between the reader thread and the iterating threads."""

    def __init__(self) -> None:
        super().__init__(budget.MAX_BYTES)

    def put(self, item: Progress | dict[str, Any]) -> None:
        """Queue progress, or the parameters of a log message. Never blocks."""
        params = item._asdict() if isinstance(item, Progress) else item
        self.add(item, size_of(params) + budget.ITEM_OVERHEAD)
