"""What makes an operation of a generator.

The generator yields requests and returns its result. The `operation` decorator makes a callable of
it that blocks, with a `future` beside it that does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, overload

from typing_extensions import ParamSpec

from syncmcp._client.background import submit
from syncmcp._client.driver import run
from syncmcp._client.streams import ResultStream, StreamBuffer
from syncmcp._concurrency.futures import RequestFuture
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import OPTION_NAMES, ResolvedOptions
from syncmcp._protocol.steps import Steps

if TYPE_CHECKING:
    from syncmcp._client.core import ClientCore, HasCore

P = ParamSpec("P")
R = TypeVar("R")


class Operation(Generic[P, R]):
    """One operation of a client; as an attribute of a client it is `BoundOperation`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[R]]) -> None:
        self.steps = steps
        self.__name__ = steps.__name__
        self.__qualname__ = steps.__qualname__
        self.__doc__ = steps.__doc__
        self.__module__ = steps.__module__
        signature = inspect.signature(steps)
        # What the generator returns in the end is what its caller gets: `R` of `Steps[R]`.
        result = str(signature.return_annotation).removeprefix("Steps[").removesuffix("]")
        core, *parameters = signature.parameters.values()
        itself = core.replace(name="self", annotation=inspect.Parameter.empty)
        self.__signature__ = signature.replace(
            parameters=[itself, *parameters], return_annotation=result
        )
        self.names = frozenset(each.name for each in parameters) - {"options"}

    @overload
    def __get__(self, client: None, owner: type) -> Operation[P, R]: ...
    @overload
    def __get__(self, client: HasCore, owner: type) -> BoundOperation[P, R]: ...
    def __get__(
        self, client: HasCore | None, owner: type
    ) -> Operation[P, R] | BoundOperation[P, R]:
        return self if client is None else BoundOperation(self, client)

    def __call__(self, client: HasCore, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Client.call_tool(client, ...)`: block until the result is there."""
        return BoundOperation(self, client)(*args, **kwargs)


class BoundOperation(Generic[P, R]):
    """An operation of one client: call it and wait, or take its `future`."""

    __slots__ = ("_client", "_operation")

    def __init__(self, operation: Operation[P, R], client: HasCore) -> None:
        self._operation = operation
        self._client = client

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the request and block until its result is there."""
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        steps = self._operation.steps(core, *args, **kwargs)
        return run(steps, core, options, Deadline(options.timeout))

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Make the request and return at once; the result comes through the future."""
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        steps = self._operation.steps(core, *args, **kwargs)
        return submit(steps, core, options, Deadline(options.timeout), owner=self._client)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        """Make the request; iterate over what it sends while it runs, and its result at the end."""
        core = self._client._core
        options = take_options(self._operation, core, kwargs) if kwargs else core.resolve({})
        items = StreamBuffer()
        options = options.with_observer(items.take)
        steps = self._operation.steps(core, *args, **kwargs)
        return ResultStream(
            submit(steps, core, options, Deadline(options.timeout), owner=self._client), items
        )

    def __get__(self, instance: object, owner: type) -> BoundOperation[P, R]:
        # Having this makes `help()` and editors take it for the method that it is.
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

    def __repr__(self) -> str:
        return f"<operation {self._operation.__name__} of {self._client!r}>"


def take_options(
    operation: Operation[..., Any], core: ClientCore, kwargs: dict[str, Any]
) -> ResolvedOptions:
    """Take the call's options out of `kwargs`; what stays are arguments of the operation.

    `undeclared` stays, too: operations that ask each new session again have to know it.

    Raises:
        TypeError: There is something else in them.
        UsageError: An option makes no sense.
    """
    given: Any = {name: kwargs.pop(name) for name in OPTION_NAMES.intersection(kwargs)}
    unknown = kwargs.keys() - operation.names
    if unknown:
        raise TypeError(
            f"{operation.__name__}() got an unexpected keyword argument {min(unknown)!r}"
        )
    if "undeclared" in given:
        kwargs["undeclared"] = given["undeclared"]
    return core.resolve(given)


def operation(steps: Callable[Concatenate[Any, P], Steps[R]]) -> Operation[P, R]:
    """Make an operation of a generator function, which is given the client's core."""
    return Operation(steps)
