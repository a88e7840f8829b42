"""What the servers of a group offer together, and under which names."""

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
    from syncmcp.handlers.server import ConnectedServer


Kind = Literal["tools", "resources", "resource_templates", "prompts"]

KINDS: Final[tuple[Kind, ...]] = ("tools", "resources", "resource_templates", "prompts")

# By what a server tells the things of one kind apart.
_IDENTITY: Final[Mapping[Kind, str]] = MappingProxyType(
    {
        "tools": "name",
        "resources": "uri",
        "resource_templates": "uri_template",
        "prompts": "name",
    }
)

NameHook: TypeAlias = "Callable[[str, ConnectedServer], str]"
"""Names a thing of a server: given its name (or URI) and the server, returns its key."""


class Offered(NamedTuple):
    """One thing that one server offers.

    Attributes:
        server: What the group calls the server.
        name: What the server calls the thing: its name, URI, or URI template.
        model: The thing, as the server described it.
    """

    server: str
    name: str
    model: Any


class Lists(NamedTuple):
    """What one server offers: its lists, and what it says of itself."""

    server: ConnectedServer
    tools: tuple[Any, ...]
    resources: tuple[Any, ...]
    resource_templates: tuple[Any, ...]
    prompts: tuple[Any, ...]

    def of(self, kind: Kind, server: str) -> list[Offered]:
        """The things of one kind; a name that the server has twice counts once."""
        found: dict[str, Offered] = {}
        for model in getattr(self, kind):
            name = getattr(model, _IDENTITY[kind])
            found.setdefault(name, Offered(server, name, model))
        return list(found.values())


@dataclass(frozen=True)
class Catalog:
    """What a group offers at one moment. Never changed, but replaced as a whole.

    Attributes:
        servers: The servers, in their order.
        offers: For each kind, who offers what, by the keys of the group.
        shown: The same as the group shows it; tools and prompts carry their keys as names.
    """

    servers: tuple[str, ...] = ()
    offers: Mapping[Kind, Mapping[str, Offered]] = field(
        default_factory=lambda: {kind: {} for kind in KINDS}
    )
    shown: Mapping[Kind, Mapping[str, Any]] = field(
        default_factory=lambda: {kind: MappingProxyType({}) for kind in KINDS}
    )

    def with_servers(self, news: Mapping[str, Lists], hook: NameHook | None) -> Catalog:
        """Add servers, or replace what they offered.

        What has a key already keeps it. Without a hook, what is new gets its own name, or one with
        its server before it where that is taken, or where several of `news` want it.

        Raises:
            UsageError: Two things have one key all the same, or the hook failed.
        """
        servers = tuple(dict.fromkeys((*self.servers, *news)))
        offers: dict[Kind, Mapping[str, Offered]] = {}
        for kind in KINDS:
            merged = _merged(self.offers[kind], kind, news, hook)
            ranks = {server: rank for rank, server in enumerate(servers)}
            # Stable: each server's own order stays.
            in_order = sorted(merged.items(), key=lambda item: ranks[item[1].server])
            offers[kind] = dict(in_order)
        return Catalog(servers, offers, _shown(offers))

    def without(self, server: str) -> Catalog:
        """Without one server; the others' keys stay as they are."""
        offers: dict[Kind, Mapping[str, Offered]] = {
            kind: {key: one for key, one in items.items() if one.server != server}
            for kind, items in self.offers.items()
        }
        servers = tuple(name for name in self.servers if name != server)
        return Catalog(servers, offers, _shown(offers))

    def route(self, kind: Kind, what: Any) -> tuple[Offered, Any]:
        """Who is to be asked for something, and by what.

        Args:
            kind: Its kind.
            what: A key; a thing of `shown`; or one that a server told of elsewhere.

        Raises:
            UsageError: Nobody offers it, or several do.
        """
        for key, model in self.shown[kind].items():
            if model is what:
                found = self.offers[kind][key]
                return found, found.model
        identity = what if isinstance(what, str) else getattr(what, _IDENTITY[kind], None)
        if not isinstance(identity, str):
            raise UsageError(f"{what!r} is nothing that a server could be asked for")
        found = self._reading(identity) if kind == "resources" else self.find(kind, identity)
        if isinstance(what, str):
            return found, found.name
        return found, what if kind == "resources" else found.model

    def described(self, kind: Kind, key: str) -> tuple[Offered, Any]:
        """Who offers something, and how that server describes it.

        Raises:
            UsageError: Nobody offers it, or several do.
        """
        found = self.find(kind, key)
        return found, found.model

    def _reading(self, uri: str) -> Offered:
        """Who is to be asked for a resource, which need not be in a list."""
        try:
            return self.find("resources", uri)
        except UsageError:
            matching = [
                one for one in self.offers["resource_templates"].values() if _fits(one, uri)
            ]
            if len({one.server for one in matching}) != 1:
                raise
            return Offered(matching[0].server, uri, None)

    def find(self, kind: Kind, key: str) -> Offered:
        """Who offers what is asked for: by its key, or by its own name if no other has that.

        Raises:
            UsageError: Nobody, or several; the text has what may have been meant.
        """
        offers = self.offers[kind]
        found = offers.get(key)
        if found is not None:
            return found
        named = {other: one for other, one in offers.items() if one.name == key}
        if len(named) == 1:
            return next(iter(named.values()))
        what = kind.removesuffix("s").replace("_", " ")
        if named:
            raise UsageError(
                f"there are several {what}s {key!r}, known as {_listed(named)}: say which"
            )
        close = difflib.get_close_matches(key, offers, n=3)
        hint = f"; did you mean {_listed(close)}?" if close else ""
        raise UsageError(f"no server of the group has a {what} {key!r}{hint}")


def _fits(one: Offered, uri: str) -> bool:
    try:
        return one.model.match(uri) is not None
    except McpError:  # it cannot be read backwards
        return False


def _merged(
    before: Mapping[str, Offered], kind: Kind, news: Mapping[str, Lists], hook: NameHook | None
) -> dict[str, Offered]:
    merged = {key: one for key, one in before.items() if one.server not in news}
    had = {one[:2]: key for key, one in before.items() if one.server in news}
    fresh = [one for name, lists in news.items() for one in lists.of(kind, name)]
    if hook is not None:
        keyed = [(_hooked(hook, one, news[one.server].server), one) for one in fresh]
    else:
        # First those that keep their keys, so that nobody new takes one of them.
        keyed = [(had[one[:2]], one) for one in fresh if one[:2] in had]
        unnamed = [one for one in fresh if one[:2] not in had]
        wanted = Counter(one.name for one in unnamed)
        # What two servers call the same belongs to neither of them by that name alone.
        taken = {*merged, *(one.name for one in merged.values()), *(key for key, _ in keyed)}
        for one in unnamed:
            clash = wanted[one.name] > 1 or one.name in taken
            keyed.append((_prefixed(one) if clash else one.name, one))
    for key, one in keyed:
        other = merged.get(key)
        if other is not None:
            raise UsageError(
                f"two things of the group would both have {key!r}: {other.server!r}"
                f" ({other.name!r}) and {one.server!r} ({one.name!r})"
                f"{'' if hook is None else '; that is what name_hook calls them'}"
            )
        merged[key] = one
    return merged


def _prefixed(one: Offered) -> str:
    return f"{one.server}_{one.name}"


def _hooked(hook: NameHook, one: Offered, server: ConnectedServer) -> str:
    try:
        key: object = hook(one.name, server)
    except Exception as error:
        raise UsageError(
            f"name_hook failed for {one.name!r} of {one.server!r}: {error!r}"
        ) from error
    if not isinstance(key, str) or not key:
        raise UsageError(
            f"name_hook is to return a string that is not empty, not {key!r}, for {one.name!r} of"
            f" {one.server!r}"
        )
    return key


def _shown(offers: Mapping[Kind, Mapping[str, Offered]]) -> dict[Kind, Mapping[str, Any]]:
    return {
        kind: MappingProxyType({key: _renamed(kind, key, one) for key, one in items.items()})
        for kind, items in offers.items()
    }


def _renamed(kind: Kind, key: str, one: Offered) -> Any:
    if _IDENTITY[kind] != "name" or key == one.name:
        return one.model  # a URI is what it is
    return one.model.model_copy(update={"name": key})


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(map(repr, keys))


# Operations of a client as operations of a group: the first argument says which server it is.


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
