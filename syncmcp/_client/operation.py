"""What makes an operation of a generator.

The generator yields requests and returns its result. The `operation` decorator makes a callable of
it that blocks, with a `future` beside it that does not.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Protocol, TypeVar, overload

from typing_extensions import ParamSpec

from syncmcp._client.background import submit
from syncmcp._client.driver import Host, run
from syncmcp._client.session_state import Standing
from syncmcp._client.streams import Items, ResultStream
from syncmcp._concurrency.futures import RequestFuture
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import OPTION_NAMES, CallOptions, Options
from syncmcp._connection.schemas import Checks, Schemas
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.steps import Steps

if TYPE_CHECKING:
    from syncmcp._connection.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")


class OperationHost(Host, Protocol):
    """What an operation needs of a client."""

    def _resolve(self, given: CallOptions) -> Options:
        """The options of a call: what was given, and the client's settings for the rest."""
        ...

    _connection: Connection | None
    """The connection there is, or was: one that died stays until there is another."""

    _page_limit: int
    """How many pages of a list are fetched at most."""

    _schemas: Schemas
    """What is known of the schemas of its tools."""

    _checks: Checks
    """What is checked by them."""

    _standing: Standing
    """What the server is asked for in each new session."""

    def _remember_log_level(self, level: str | None, undeclared: Undeclared) -> None:
        """Ask for this level in each request from now on, where that is how it is asked for.

        Elsewhere each new session is asked for it, in this way if the server does not declare it.
        """
        ...


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
        self.__signature__ = signature.replace(return_annotation=result)
        self.names = frozenset(signature.parameters) - {"self", "options"}

    @overload
    def __get__(self, host: None, owner: type) -> Operation[P, R]: ...
    @overload
    def __get__(self, host: OperationHost, owner: type) -> BoundOperation[P, R]: ...
    def __get__(
        self, host: OperationHost | None, owner: type
    ) -> Operation[P, R] | BoundOperation[P, R]:
        return self if host is None else BoundOperation(self, host)

    def __call__(self, host: OperationHost, *args: P.args, **kwargs: P.kwargs) -> R:
        """As `Client.call_tool(client, ...)`: block until the result is there."""
        return BoundOperation(self, host)(*args, **kwargs)


class BoundOperation(Generic[P, R]):
    """An operation of one client: call it and wait, or take its `future`."""

    __slots__ = ("_host", "_operation")

    def __init__(self, operation: Operation[P, R], host: OperationHost) -> None:
        self._operation = operation
        self._host = host

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the request and block until its result is there."""
        host = self._host
        options = take_options(self._operation, host, kwargs) if kwargs else host._resolve({})
        steps = self._operation.steps(host, *args, **kwargs)
        return run(steps, host, options, Deadline(options.timeout))

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Make the request and return at once; the result comes through the future."""
        host = self._host
        options = take_options(self._operation, host, kwargs) if kwargs else host._resolve({})
        steps = self._operation.steps(host, *args, **kwargs)
        return submit(steps, host, options, Deadline(options.timeout))

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        """Make the request; iterate over what it sends while it runs, and its result at the end."""
        host = self._host
        options = take_options(self._operation, host, kwargs) if kwargs else host._resolve({})
        items = Items()
        options = options.watched_by(items.take)
        steps = self._operation.steps(host, *args, **kwargs)
        return ResultStream(submit(steps, host, options, Deadline(options.timeout)), items)

    def __get__(self, host: object, owner: type) -> BoundOperation[P, R]:
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
        return f"<operation {self._operation.__name__} of {self._host!r}>"


def take_options(
    operation: Operation[..., Any], host: OperationHost, kwargs: dict[str, Any]
) -> Options:
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
    return host._resolve(given)


def operation(steps: Callable[Concatenate[Any, P], Steps[R]]) -> Operation[P, R]:
    """Make an operation of a generator method."""
    return Operation(steps)
