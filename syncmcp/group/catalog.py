"""The merged items of a group's servers by key, and the routing of operations by key."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeAlias,
    TypeVar,
    overload,
)

from typing_extensions import ParamSpec

from syncmcp import types
from syncmcp._client.operation import BoundOperation, Operation, ResultStream
from syncmcp._concurrency.futures import RequestFuture
from syncmcp.errors import McpError, UsageError

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp.handlers.context import ConnectedServer


Kind = Literal["tools", "resources", "resource_templates", "prompts"]

KINDS: Final[tuple[Kind, ...]] = ("tools", "resources", "resource_templates", "prompts")

# The attribute that identifies an item within its server.
_IDENTITY: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "tools": "name",
        "resources": "uri",
        "resource_templates": "uri_template",
        "prompts": "name",
    }
)

NameHook: TypeAlias = "Callable[[str, ConnectedServer], str]"
"""Returns the key of an item, given its name (or URI, or URI template) and its server."""


class Offered(NamedTuple):
    """An item of one server: a tool, resource, resource template or prompt.

    Attributes:
        server: The name of the server in the group.
        name: The item's name, URI or URI template at the server.
        model: The item as the server described it.
    """

    server: str
    name: str
    model: Any


class Lists(NamedTuple):
    """The lists of one server, and its description."""

    server: ConnectedServer
    tools: tuple[Any, ...]
    resources: tuple[Any, ...]
    resource_templates: tuple[Any, ...]
    prompts: tuple[Any, ...]

    def items_of(self, kind: Kind, server: str) -> list[Offered]:
        """The items of one kind; of items with the same name only the first."""
        found: dict[str, Offered] = {}
        for model in getattr(self, kind):
            name = getattr(model, _IDENTITY[kind])
            found.setdefault(name, Offered(server, name, model))
        return list(found.values())


@dataclass(frozen=True)
class Catalog:
    """The items of a group at one moment. Immutable: an update makes a new catalog.

    Attributes:
        servers: The names of the servers, in order.
        offers: For each kind, the items by key.
        shown: For each kind, the models that the group shows, by key; tools and prompts have
            their keys as names.
    """

    servers: tuple[str, ...] = ()
    offers: Mapping[Kind, Mapping[str, Offered]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    shown: Mapping[Kind, Mapping[str, Any]] = field(
        default_factory=lambda: {kind: MappingProxyType({}) for kind in KINDS}
    )

    def with_servers(self, updates: Mapping[str, Lists], hook: NameHook | None) -> Catalog:
        """Add servers, or replace their items.

        Without a hook, items keep the keys they have. A new item gets its own name as key; if that
        is taken, or several of `updates` have it, the name with its server's name before it.

        Raises:
            UsageError: Two items have the same key, or the hook failed.
        """
        servers = tuple(dict.fromkeys((*self.servers, *updates)))
        offers: dict[Kind, Mapping[str, Offered]] = {}
        for kind in KINDS:
            merged = _merged(self.offers[kind], kind, updates, hook)
            ranks = {server: rank for rank, server in enumerate(servers)}
            # The sort is stable, which keeps the order within each server.
            in_order = sorted(merged.items(), key=lambda item: ranks[item[1].server])
            offers[kind] = dict(in_order)
        return Catalog(servers, offers, _shown(offers))

    def without(self, server: str) -> Catalog:
        """Remove a server; the keys of the other servers' items do not change."""
        offers: dict[Kind, Mapping[str, Offered]] = {
            kind: {key: item for key, item in items.items() if item.server != server}
            for kind, items in self.offers.items()
        }
        servers = tuple(name for name in self.servers if name != server)
        return Catalog(servers, offers, _shown(offers))

    def route(self, kind: Kind, what: Any) -> tuple[Offered, Any]:
        """Find an item, and the argument with which to request it from its server.

        Args:
            kind: The kind of the item.
            what: A key, a model in `shown`, or a model from elsewhere (a resource link, say).

        Raises:
            UsageError: No server has the item, or several do.
        """
        for key, model in self.shown[kind].items():
            if model is what:
                found = self.offers[kind][key]
                return found, found.model
        identity = what if isinstance(what, str) else getattr(what, _IDENTITY[kind], None)
        if not isinstance(identity, str):
            raise UsageError(f"{what!r} is neither a key nor a model of an item")
        found = self._find_readable(identity) if kind == "resources" else self.find(kind, identity)
        if isinstance(what, str):
            return found, found.name
        return found, what if kind == "resources" else found.model

    def find_with_model(self, kind: Kind, key: str) -> tuple[Offered, Any]:
        """Find an item, and the model of it that its server sent.

        Raises:
            UsageError: No server has the item, or several do.
        """
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

        Raises:
            UsageError: No server has it, or several do; the message suggests similar keys.
        """
        offers = self.offers[kind]
        found = offers.get(key)
        if found is not None:
            return found
        named = {other: item for other, item in offers.items() if item.name == key}
        if len(named) == 1:
            return next(iter(named.values()))
        what = kind.removesuffix("s").replace("_", " ")
        if named:
            raise UsageError(
                f"there are several {what}s {key!r}, known as {_quoted(named)}: say which"
            )
        close = difflib.get_close_matches(key, offers, n=3)
        hint = f"; did you mean {_quoted(close)}?" if close else ""
        raise UsageError(f"no server of the group has a {what} {key!r}{hint}")


def _matches_template(item: Offered, uri: str) -> bool:
    try:
        return item.model.match(uri) is not None
    except McpError:  # the template cannot be matched
        return False


def _merged(
    before: Mapping[str, Offered], kind: Kind, updates: Mapping[str, Lists], hook: NameHook | None
) -> dict[str, Offered]:
    merged = {key: item for key, item in before.items() if item.server not in updates}
    old_keys = {item[:2]: key for key, item in before.items() if item.server in updates}
    offered = [item for name, lists in updates.items() for item in lists.items_of(kind, name)]
    if hook is not None:
        keyed = [(_hook_key(hook, item, updates[item.server].server), item) for item in offered]
    else:
        # Items with old keys come first, so that no new item takes these keys.
        keyed = [(old_keys[item[:2]], item) for item in offered if item[:2] in old_keys]
        unnamed = [item for item in offered if item[:2] not in old_keys]
        wanted = Counter(item.name for item in unnamed)
        # A name that another server uses, too, is not a key without a prefix.
        taken = {*merged, *(item.name for item in merged.values()), *(key for key, _ in keyed)}
        for item in unnamed:
            clash = wanted[item.name] > 1 or item.name in taken
            keyed.append((_prefixed(item) if clash else item.name, item))
    for key, item in keyed:
        other = merged.get(key)
        if other is not None:
            raise UsageError(
                f"two things of the group would both have {key!r}: {other.server!r}"
                f" ({other.name!r}) and {item.server!r} ({item.name!r})"
                f"{'' if hook is None else '; that is what name_hook calls them'}"
            )
        merged[key] = item
    return merged


def _prefixed(item: Offered) -> str:
    return f"{item.server}_{item.name}"


def _hook_key(hook: NameHook, item: Offered, server: ConnectedServer) -> str:
    try:
        key: object = hook(item.name, server)
    except Exception as error:
        raise UsageError(
            f"name_hook failed for {item.name!r} of {item.server!r}: {error!r}"
        ) from error
    if not isinstance(key, str) or not key:
        raise UsageError(
            f"name_hook is to return a string that is not empty, not {key!r}, for {item.name!r} of"
            f" {item.server!r}"
        )
    return key


def _shown(offers: Mapping[Kind, Mapping[str, Offered]]) -> dict[Kind, Mapping[str, Any]]:
    return {
        kind: MappingProxyType({key: _with_key(kind, key, item) for key, item in items.items()})
        for kind, items in offers.items()
    }


def _with_key(kind: Kind, key: str, item: Offered) -> Any:
    if _IDENTITY[kind] != "name" or key == item.name:
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

    def _route(self, find: Callable[[Catalog], tuple[Offered, Any]]) -> tuple[Client, Any]:
        """The client of the item that `find` returns, and the argument for it."""
        ...


_COMPLETABLE: tuple[Kind, ...] = ("prompts", "resource_templates")


def by_key(kind: Kind) -> Find:
    """Make a function that finds items of one kind; see `Catalog.route`."""

    def find(catalog: Catalog, what: Any) -> tuple[Offered, Any]:
        return catalog.route(kind, what)

    return find


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
    found, errors = [], {}
    for kind in _COMPLETABLE:
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
    """Descriptor of a group's operation, which is sent to the server of its first argument.

    Args:
        operation: The operation of a client.
        find: Finds the item that the first argument names.
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
    """An operation bound to a group: call it to wait, or use its `future` or `stream`."""

    __slots__ = ("_group", "_routed")

    def __init__(self, routed: Routed[P, R], group: Router) -> None:
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
        client, its_name = self._group._route(lambda catalog: routed.find(catalog, what))
        return method(routed.operation.__get__(client, type(client)), its_name, *args[1:], **named)

    def __get__(self, host: object, owner: type) -> BoundRoute[P, R]:
        # Makes `help()` and editors treat it as a method.
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
