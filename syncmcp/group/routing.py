"""Operations of a client as operations of a group: the first argument says which server it is."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

from typing_extensions import ParamSpec

from syncmcp import types
from syncmcp._client.operation import BoundOperation, Operation
from syncmcp._client.streams import ResultStream
from syncmcp._concurrency.futures import RequestFuture
from syncmcp.errors import UsageError
from syncmcp.group.catalog import Catalog, Kind, Offered

if TYPE_CHECKING:
    from syncmcp._client.client import Client

P = ParamSpec("P")
R = TypeVar("R")

Find: TypeAlias = Callable[[Catalog, Any], tuple[Offered, Any]]
"""Finds who offers something, and by what its server is to be asked for it."""


class Router(Protocol):
    """What a routed operation needs of a group."""

    def _route(self, find: Callable[[Catalog], tuple[Offered, Any]]) -> tuple[Client, Any]:
        """Whose it is what `find` finds, and what that server calls it."""
        ...


_COMPLETABLE: tuple[Kind, ...] = ("prompts", "resource_templates")


def by_key(kind: Kind) -> Find:
    """Finds things of one kind; see `Catalog.route`."""

    def find(catalog: Catalog, what: Any) -> tuple[Offered, Any]:
        return catalog.route(kind, what)

    return find


def completable(catalog: Catalog, ref: Any) -> tuple[Offered, Any]:
    """Finds what has arguments to be completed: a prompt or a template, or what refers to one."""
    if isinstance(ref, str):
        return _keyed(catalog, ref)
    if isinstance(ref, types.PromptReference):
        return catalog.described("prompts", ref.name)
    if isinstance(ref, types.ResourceTemplateReference):
        return catalog.described("resource_templates", ref.uri)
    is_template = isinstance(ref, types.ResourceTemplate)
    return catalog.route("resource_templates" if is_template else "prompts", ref)


def _keyed(catalog: Catalog, key: str) -> tuple[Offered, Any]:
    """Finds the prompt or the template of a key, which may look like anything: see `NameHook`."""
    found, errors = [], {}
    for kind in _COMPLETABLE:
        try:
            found.append(catalog.described(kind, key))
        except UsageError as error:
            errors[kind] = error
    if len(found) > 1:
        raise UsageError(
            f"the group has both a prompt and a template {key!r}: say which, with"
            " PromptReference(name=...) or ResourceTemplateReference(uri=...)"
        )
    if not found:
        raise errors["resource_templates" if "{" in key or "://" in key else "prompts"]
    return found[0]


class Routed(Generic[P, R]):
    """An operation that goes to whichever server of the group has what it is about.

    Args:
        operation: The operation of a client.
        find: Finds what its first argument names.
    """

    def __init__(self, operation: Operation[P, R], find: Find) -> None:
        self.operation = operation
        self.find = find
        self.__name__ = operation.__name__
        self.__doc__ = operation.__doc__
        self.__signature__ = operation.__signature__
        _, first, *_ = operation.__signature__.parameters
        self.first = first

    @overload
    def __get__(self, group: None, owner: type) -> Routed[P, R]: ...
    @overload
    def __get__(self, group: Router, owner: type) -> BoundRoute[P, R]: ...
    def __get__(self, group: Router | None, owner: type) -> Routed[P, R] | BoundRoute[P, R]:
        return self if group is None else BoundRoute(self, group)


class BoundRoute(Generic[P, R]):
    """An operation of one group: call it and wait, or take its `future` or its `stream`."""

    __slots__ = ("_group", "_routed")

    def __init__(self, routed: Routed[P, R], group: Router) -> None:
        self._routed = routed
        self._group = group

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Make the request and block until its result is there."""
        given: R = self._go(BoundOperation.__call__, args, kwargs)
        return given

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Make the request and return at once; the result comes through the future."""
        given: RequestFuture[R] = self._go(BoundOperation.future, args, kwargs)
        return given

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        """Make the request; iterate over what it sends while it runs, and its result at the end."""
        given: ResultStream[R] = self._go(BoundOperation.stream, args, kwargs)
        return given

    def _go(self, way: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        routed, named = self._routed, dict(kwargs)
        what = args[0] if args else named.pop(routed.first, None)
        client, its_name = self._group._route(lambda catalog: routed.find(catalog, what))
        return way(routed.operation.__get__(client, type(client)), its_name, *args[1:], **named)

    def __get__(self, host: object, owner: type) -> BoundRoute[P, R]:
        # Having this makes `help()` and editors take it for the method that it is.
        return self

    @property
    def __name__(self) -> str:
        return self._routed.__name__

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._routed.__doc__

    @property
    def __signature__(self) -> inspect.Signature:
        signature = self._routed.__signature__
        return signature.replace(parameters=list(signature.parameters.values())[1:])

    def __repr__(self) -> str:
        return f"<operation {self._routed.__name__} of {self._group!r}>"
