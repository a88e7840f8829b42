"""The merged items of a group's servers by key: the choice of the keys, and the lookup of a key.

Servers choose the names of their items; the program chooses the names of the servers. So a key that
begins with a server's name belongs to that server, whatever names other servers give to their
items. An item that cannot get a unique key is left out; all other items stay.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from syncmcp import types
from syncmcp._base.similar import similar
from syncmcp._base.text import cut, visible
from syncmcp.errors import McpError, UsageError
from syncmcp.handlers.context import ConnectedServer

Kind = Literal["tools", "resources", "resource_templates", "prompts"]

KINDS: Final[tuple[Kind, ...]] = ("tools", "resources", "resource_templates", "prompts")

IDENTITY: Final[Mapping[Kind, str]] = MappingProxyType(
    {"tools": "name", "resources": "uri", "resource_templates": "uri_template", "prompts": "name"}
)
"""The attribute that identifies an item within its server."""

NameHook: TypeAlias = "Callable[[str, ConnectedServer], str]"
"""A function that returns the key of an item for its name (or URI, or URI template) and server."""

LONGEST_NAME: Final = 256
"""The longest name of a tool or prompt in a group, in characters."""

LONGEST_URI: Final = 8192
"""The longest URI or URI template in a group, in characters."""

MAX_NAMES: Final = 262_144
"""The most characters of one server's names that are compared for each kind of item, which takes
microseconds for each. ASCII URIs do not count, because URIs are not compared by their looks."""

MAX_TEMPLATES: Final = 32_768
"""The most characters of one server's templates with which a URI is compared: compiling a template
takes up to 25 microseconds for each character."""

_SHOWN: Final = 80

_TOO_MANY: Final = f"the names of its server have over {MAX_NAMES} characters in total"

# Characters that are hard to tell apart, or that models and people mix up.
_LOOKS: Final = str.maketrans("-./ 01i|", "____olll")
_NEW_WORD: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Names of tools and prompts that can be keys without the name of their server.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.-]+")


class Offered(NamedTuple):
    """An item of one server: its name, URI or URI template, and model, as the server sent them."""

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


class LeftOut(NamedTuple):
    """An item that the group omits, the reason, and the `error` if the `NameHook` failed."""

    server: str
    kind: Kind
    name: str
    reason: str
    error: UsageError | None = None

    def __str__(self) -> str:
        what = one_of(self.kind)
        return f"the {what} {visible(cut(self.name, _SHOWN))!r} is left out: {self.reason}"


class Assignment:
    """Assigns keys to the items of one kind.

    `before` has the items by their present keys, `updates` the new lists of some servers, and
    `servers` the names of all. Without a `hook`, keys are made from the names of items and servers.

    Attributes:
        left_out: The items of `updates` that get no key.
    """

    def __init__(
        self,
        kind: Kind,
        before: Mapping[str, Offered],
        updates: Mapping[str, Lists],
        servers: Collection[str],
        hook: NameHook | None,
    ) -> None:
        self._kind: Kind = kind
        self._updates = updates
        self._servers = servers
        self._hook = hook
        self._looks = Looks(kind)
        self.left_out: list[LeftOut] = []
        self._keys: dict[str, Offered] = {}
        self._held: dict[tuple[str, str], str] = {}
        # Without a hook, an added server takes the keys that begin with its name from these items.
        self._displaced: list[Offered] = []
        for key, item in before.items():
            stays = hook is not None or is_free_for(self._looks, key, item.server, servers)
            if item.server in updates:
                if stays:
                    self._held[item[:2]] = key
            elif stays:
                self._keys[key] = item
            else:
                self._displaced.append(item)

    def run(self) -> dict[str, Offered]:
        """Return all items of the kind by key: those of other servers, and those of the updates.

        Raises a `UsageError` if the hook ignores the server, and so returns the same key for items
        of two servers.
        """
        offered = [*self._displaced, *self._usable()]
        given = self._by_hook(offered) if self._hook is not None else self._by_name(offered)
        # In the order of the lists, not in the order in which the keys were given.
        for item in offered:
            if item[:2] in given:
                self._keys[given[item[:2]]] = item
        return self._keys

    def _usable(self) -> Iterator[Offered]:
        for server, lists in self._updates.items():
            seen: set[str] = set()
            left = MAX_NAMES
            for model in getattr(lists, self._kind):
                name = getattr(model, IDENTITY[self._kind])
                item = Offered(server, name, model)
                if _is_named(self._kind) or not name.isascii():
                    left -= min(len(name), LONGEST_URI)
                if left < 0:
                    self._leave_out(item, f"{_TOO_MANY}; the items after it are left out, too")
                    break
                problem = "its server lists it twice" if name in seen else self._problem(name)
                seen.add(name)
                if problem is None:
                    yield item
                else:
                    self._leave_out(item, problem)

    def _problem(self, name: str) -> str | None:
        longest = LONGEST_NAME if _is_named(self._kind) else LONGEST_URI
        if not name.strip():
            return "it has no name"
        if len(name) > longest:
            return f"its name has more than {longest} characters"
        if visible(name) != name:
            return "its name has control or hidden characters"
        if _is_named(self._kind) and len(unicodedata.normalize("NFKC", name)) > longest:
            return f"its normalized name has more than {longest} characters"
        return None

    def _leave_out(self, item: Offered, reason: str, error: UsageError | None = None) -> None:
        self.left_out.append(LeftOut(item.server, self._kind, item.name, reason, error))

    def _by_name(self, offered: list[Offered]) -> dict[tuple[str, str], str]:
        """Make keys: the present key, the item's name, or that name after the server's name."""
        users: defaultdict[str, set[str]] = defaultdict(set)
        for key, item in self._keys.items():
            users[self._looks.letters(key)].add(item.server)
        for item in (*self._keys.values(), *offered):
            for text in (item.name, _prefixed(item)):
                users[self._looks.letters(text)].add(item.server)
        given = {item[:2]: self._held[item[:2]] for item in offered if item[:2] in self._held}
        taken = {*self._keys, *given.values()}
        for item in offered:
            if item[:2] in given:
                continue
            alone = users[self._looks.letters(item.name)] == {item.server}
            plain = alone and (_PLAIN.fullmatch(item.name) or not _is_named(self._kind))
            for key in (item.name, _prefixed(item))[0 if plain else 1 :]:
                if key not in taken and is_free_for(self._looks, key, item.server, self._servers):
                    given[item[:2]] = key
                    taken.add(key)
                    break
            else:
                self._leave_out(
                    item, f"another {one_of(self._kind)} may have its key {_prefixed(item)!r}"
                )
        return given

    def _by_hook(self, offered: list[Offered]) -> dict[tuple[str, str], str]:
        """Make keys with the hook.

        If several items get the same key, an item that already has the key keeps it.

        Otherwise the item with the shortest name gets the key. A key is made of the names of server
        and item: the shorter the item's name, the less of the key the server has chosen.
        """
        keyed: list[tuple[Offered, str]] = []
        for item in offered:
            try:
                keyed.append((item, self._hook_key(item.name, item)))
            except UsageError as error:
                self._leave_out(item, error.message, error)
        keyed.sort(key=lambda each: (self._held.get(each[0][:2]) != each[1], len(each[0].name)))
        owners = dict(self._keys)
        given: dict[tuple[str, str], str] = {}
        for item, key in keyed:
            other = owners.get(key)
            if other is None:
                owners[key] = item
                given[item[:2]] = key
                continue
            if other.server != item.server and self._hook_key(other.name, item) == key:
                raise UsageError(
                    f"two items of the group would both have the key {key!r}: {other.server!r}"
                    f" ({other.name!r}) and {item.server!r} ({item.name!r}); name_hook"
                    " returns it for both"
                )
            self._leave_out(
                item, f"its key {key!r} belongs to {visible(other.name)!r} of {other.server!r}"
            )
        return given

    def _hook_key(self, name: str, item: Offered) -> str:
        """Return the hook's key for `name` at the server of `item`."""
        assert self._hook is not None
        try:
            key: object = self._hook(name, self._updates[item.server].server)
        except Exception as error:
            raise UsageError(
                f"name_hook failed for {name!r} of {item.server!r}: {error!r}"
            ) from error
        if not isinstance(key, str) or not key:
            raise UsageError(
                f"name_hook must return a non-empty string, not {key!r}, for {name!r} of"
                f" {item.server!r}"
            )
        return key


class Looks(dict[str, str]):
    """Maps names to their looks, which are equal for names that a person or a model may confuse.

    Looks are cached, because the names of the servers are compared with every key.
    """

    def __init__(self, kind: Kind) -> None:
        super().__init__()
        self._named = _is_named(kind)

    def __missing__(self, name: str) -> str:
        look = name
        if self._named:
            words = _NEW_WORD.sub("_", unicodedata.normalize("NFKC", name))
            look = words.casefold().translate(_LOOKS)
        self[name] = look
        return look

    def letters(self, name: str) -> str:
        """Return the look of a name without the separators of its words."""
        return self[name].replace("_", "") if self._named else name


def is_free_for(looks: Looks, key: str, server: str, servers: Collection[str]) -> bool:
    """Return whether no other server owns a key: its name is the key, or begins it before a `_`.

    If several servers' names match, the longest counts. Names that look alike count as equal.
    """
    look = looks[key]
    names = {looks[name] for name in servers}
    owners = [name for name in names if f"{look}_".startswith(f"{name}_")]
    return not owners or max(owners, key=len) == looks[server]


def one_of(kind: Kind) -> str:
    """Return the word for one item of a kind."""
    return kind.removesuffix("s").replace("_", " ")


def _prefixed(item: Offered) -> str:
    return f"{item.server}_{item.name}"


def _is_named(kind: Kind) -> bool:
    return IDENTITY[kind] == "name"


# -- the catalog ----------------------------------------------------------------------------------


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
        """The models to show, by kind and key; tools and prompts have their keys as names."""
        return {
            kind: MappingProxyType(
                _Shown(kind, {key: _with_key(kind, key, item) for key, item in items.items()})
            )
            for kind, items in self.offers.items()
        }

    def with_servers(self, updates: Mapping[str, Lists], hook: NameHook | None) -> Catalog:
        """Add servers, or replace their items.

        Items keep their present keys; `Assignment` decides the keys of other items.

        Raises a `UsageError` if `Assignment` raises one, or if the hook failed for all items.
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

        `what` is a key, a model in `shown`, or a model from elsewhere, such as a resource link.
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
        """Find an item, and the model of the item that its server sent."""
        found = self.find(kind, key)
        return found, found.model

    def _find_readable(self, uri: str) -> Offered:
        """Find a resource by URI, which is listed or matches a template of exactly one server."""
        try:
            return self.find("resources", uri)
        except UsageError:
            matching = [item for item in self._some_templates() if _matches_template(item, uri)]
            if len({item.server for item in matching}) != 1:
                raise
            return Offered(matching[0].server, uri, None)

    def _some_templates(self) -> Iterator[Offered]:
        """Yield the templates of each server, up to `MAX_TEMPLATES` characters."""
        left = dict.fromkeys(self.servers, MAX_TEMPLATES)
        for item in self.offers["resource_templates"].values():
            left[item.server] -= len(item.name)
            if left[item.server] >= 0:
                yield item

    def find(self, kind: Kind, key: str) -> Offered:
        """Find an item by its key, or by its name at its server if the name is unique.

        A name that begins with another server's name does not count.

        Raises a `UsageError` if no server or several servers have the item.
        """
        offers = self.offers[kind]
        found = offers.get(key)
        if found is not None:
            return found
        looks = Looks(kind)
        named = {
            other: item
            for other, item in offers.items()
            if item.name == key and is_free_for(looks, key, item.server, self.servers)
        }
        if len(named) == 1:
            return next(iter(named.values()))
        what = one_of(kind)
        if named:
            raise UsageError(
                f"several {what}s are named {key!r}: use one of the keys {_quoted(named)}"
            )
        raise UsageError(_unknown(kind, key, offers))


def _matches_template(item: Offered, uri: str) -> bool:
    try:
        template = item.model.template
        # Unchecked: only the owner of the URI is looked up, and the program has the URI already.
        return template.match(uri, unchecked=template.variables) is not None
    except McpError:  # the template cannot be matched
        return False


def _with_key(kind: Kind, key: str, item: Offered) -> Any:
    if IDENTITY[kind] != "name" or key == item.name:
        return item.model  # URIs are not replaced by keys
    return item.model.model_copy(update={"name": key})


class _Shown(dict[str, Any]):
    """The models of one kind by key."""

    def __init__(self, kind: Kind, models: Mapping[str, Any]) -> None:
        super().__init__(models)
        self._kind: Kind = kind

    def __missing__(self, key: str) -> Any:
        raise KeyError(_unknown(self._kind, key, self))


def _unknown(kind: Kind, key: str, known: Iterable[str]) -> str:
    close = similar(key, known, 3)
    hint = f"; did you mean {_quoted(close)}?" if close else ""
    return f"no server of the group has a {one_of(kind)} {key!r}{hint}"


def _quoted(keys: Iterable[str]) -> str:
    return ", ".join(map(repr, keys))


Find: TypeAlias = Callable[[Catalog, Any], tuple[Offered, Any]]
"""Finds an item for the first argument of an operation, and the argument for its server."""


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
