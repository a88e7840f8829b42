"""The merged items of a group's servers by key, and the routing of operations by key."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast, overload

from typing_extensions import ParamSpec

from syncmcp import types
from syncmcp._client.client import Client
from syncmcp._client.core import HasCore
from syncmcp._client.operation import BoundOperation, Operation, ResultStream
from syncmcp._concurrency.futures import RequestFuture
from syncmcp.errors import McpError, UsageError
from syncmcp.group.keys import (
    IDENTITY,
    KINDS,
    Assignment,
    Kind,
    LeftOut,
    Lists,
    NameHook,
    Offered,
    is_free_for,
    one_of,
)


@dataclass(frozen=True)
class Catalog:
    """The items of a group by kind and key. Immutable: an update makes a new catalog."""

    servers: tuple[str, ...] = ()
    offers: Mapping[Kind, Mapping[str, Offered]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    left_out: tuple[LeftOut, ...] = ()

    @cached_property
    def shown(self) -> dict[Kind, Mapping[str, Any]]:
        """For each kind, the models to show, by key; tools and prompts have their keys as names."""
        return {
            kind: MappingProxyType({key: _with_key(kind, key, item) for key, item in items.items()})
            for kind, items in self.offers.items()
        }

    def with_servers(self, updates: Mapping[str, Lists], hook: NameHook | None) -> Catalog:
        """Add servers, or replace their items.

        Items keep the keys they have. `Assignment` says which ones others get. Raises a
        `UsageError` if it does, or if the hook failed for all items.
        """
        servers = tuple(dict.fromkeys((*self.servers, *updates)))
        offers: dict[Kind, Mapping[str, Offered]] = {}
        left_out: list[LeftOut] = []
        for kind in KINDS:
            assignment = Assignment(kind, self.offers[kind], updates, servers, hook)
            merged = assignment.run()
            left_out += assignment.left_out
            ranks = {server: rank for rank, server in enumerate(servers)}
            # The sort is stable, which keeps the order within each server.
            in_order = sorted(merged.items(), key=lambda item: ranks[item[1].server])
            offers[kind] = dict(in_order)
        failed = [item.error for item in left_out if item.error is not None]
        if failed and not any(
            item.server in updates for of in offers.values() for item in of.values()
        ):
            raise failed[0]
        kept = (item for item in self.left_out if item.server not in updates)
        return Catalog(servers, offers, (*kept, *left_out))

    def without(self, server: str) -> Catalog:
        """Remove a server; the keys of the other servers' items do not change."""
        offers: dict[Kind, Mapping[str, Offered]] = {
            kind: {key: item for key, item in items.items() if item.server != server}
            for kind, items in self.offers.items()
        }
        servers = tuple(name for name in self.servers if name != server)
        left_out = tuple(item for item in self.left_out if item.server != server)
        return Catalog(servers, offers, left_out)

    def route(self, kind: Kind, what: Any) -> tuple[Offered, Any]:
        """Find an item, and the argument with which to request it from its server.

        `what` is a key, a model in `shown`, or a model from elsewhere (a resource link, say).
        """
        for key, model in self.shown[kind].items():
            if model is what:
                found = self.offers[kind][key]
                return found, found.model
        identity = what if isinstance(what, str) else getattr(what, IDENTITY[kind], None)
        if not isinstance(identity, str):
            raise UsageError(f"{what!r} is neither a key nor a model of an item")
        found = self._find_readable(identity) if kind == "resources" else self.find(kind, identity)
        if isinstance(what, str):
            return found, found.name
        return found, what if kind == "resources" else found.model

    def find_with_model(self, kind: Kind, key: str) -> tuple[Offered, Any]:
        """Find an item, and the model of it that its server sent."""
        found = self.find(kind, key)
        return found, found.model

    def _find_readable(self, uri: str) -> Offered:
        """Find a resource by URI, listed or matching the template of exactly one server."""
        try:
            return self.find("resources", uri)
        except UsageError:
            matching = [
                item
                for item in self.offers["resource_templates"].values()
                if _matches_template(item, uri)
            ]
            if len({item.server for item in matching}) != 1:
                raise
            return Offered(matching[0].server, uri, None)

    def find(self, kind: Kind, key: str) -> Offered:
        """Find an item by its key, or by its name at its server if that is unique.

        A name that begins with another server's name is not enough. Raises a `UsageError` if no
        server has the item, or several do.
        """
        offers = self.offers[kind]
        found = offers.get(key)
        if found is not None:
            return found
        named = {
            other: item
            for other, item in offers.items()
            if item.name == key and is_free_for(kind, key, item.server, self.servers)
        }
        if len(named) == 1:
            return next(iter(named.values()))
        what = one_of(kind)
        if named:
            raise UsageError(
                f"there are several {what}s {key!r}, known as {_quoted(named)}: say which"
            )
        close = difflib.get_close_matches(key, offers, n=3)
        hint = f"; did you mean {_quoted(close)}?" if close else ""
        raise UsageError(f"no server of the group has a {what} {key!r}{hint}")


def _matches_template(item: Offered, uri: str) -> bool:
    try:
        template = item.model.template
        # Whose resource it is does not depend on what its values do: the program has the URI.
        return template.match(uri, unchecked=template.variables) is not None
    except McpError:  # the template cannot be matched
        return False


def _with_key(kind: Kind, key: str, item: Offered) -> Any:
    if IDENTITY[kind] != "name" or key == item.name:
        return item.model  # URIs are not replaced by keys
    return item.model.model_copy(update={"name": key})


def _quoted(keys: Iterable[str]) -> str:
    return ", ".join(map(repr, keys))


# -- operations of a client as operations of a group: routed by their first argument --------------


P = ParamSpec("P")
R = TypeVar("R")

Find: TypeAlias = Callable[[Catalog, Any], tuple[Offered, Any]]
"""Finds an item for the first argument of an operation, and the argument for its server."""


class Router(Protocol):
    """The interface of a group for its routed operations."""

    def _route(self, find: Callable[[Catalog], tuple[Offered, Any]]) -> tuple[Client, str, Any]:
        """The client and name of the server of the item that `find` returns, and the argument."""
        ...


def by_key(kind: Kind) -> Find:
    """Make a function that finds items of one kind; see `Catalog.route`."""
    return lambda catalog, what: catalog.route(kind, what)


def completable(catalog: Catalog, ref: Any) -> tuple[Offered, Any]:
    """Find a prompt or a resource template by key, reference or model, for `complete`."""
    if isinstance(ref, str):
        return _find_completable(catalog, ref)
    if isinstance(ref, types.PromptReference):
        return catalog.find_with_model("prompts", ref.name)
    if isinstance(ref, types.ResourceTemplateReference):
        return catalog.find_with_model("resource_templates", ref.uri)
    is_template = isinstance(ref, types.ResourceTemplate)
    return catalog.route("resource_templates" if is_template else "prompts", ref)


def _find_completable(catalog: Catalog, key: str) -> tuple[Offered, Any]:
    """Find a prompt or template by key; a `NameHook` may give keys of any form."""
    kinds: tuple[Kind, ...] = ("prompts", "resource_templates")
    found, errors = [], {}
    for kind in kinds:
        try:
            found.append(catalog.find_with_model(kind, key))
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
    """Descriptor of a group's operation, which is sent to the server of its first argument."""

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


class BoundRoute(BoundOperation[P, R]):
    """An operation bound to a group: call it to wait, or use its `future` or `stream`."""

    __slots__ = ("_group", "_routed")

    def __init__(self, routed: Routed[P, R], group: Router) -> None:
        # The group is only named in the `repr`: each call has the client of a server.
        super().__init__(routed.operation, cast("HasCore", group))
        self._routed = routed
        self._group = group

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Send the request and block until its result has arrived."""
        result: R = self._call(BoundOperation.__call__, args, kwargs)
        return result

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        """Send the request and return a future of its result at once."""
        result: RequestFuture[R] = self._call(BoundOperation.future, args, kwargs)
        return result

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        """Send the request; return an iterator of its notifications, which has its result."""
        result: ResultStream[R] = self._call(BoundOperation.stream, args, kwargs)
        return result

    def _call(
        self, method: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        routed, named = self._routed, dict(kwargs)
        what = args[0] if args else named.pop(routed.first, None)
        client, _, its_name = self._group._route(lambda catalog: routed.find(catalog, what))
        return method(routed.operation.__get__(client, type(client)), its_name, *args[1:], **named)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._routed.__doc__
