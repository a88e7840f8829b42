"""Many servers as one.

::

    with syncmcp.ClientGroup({"files": Stdio("files-server"), "web": "https://..."}) as group:
        for name in group.tools:
            print(name)
        group.call_tool("search", {"query": "fish"})
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from syncmcp import _threads
from syncmcp._catalog import Catalog, Kind, Lists, NameHook
from syncmcp._coroutines import refuse_coroutines
from syncmcp._member import OVER, Member, ServerStatus, Source, State
from syncmcp._options import seconds, text
from syncmcp._registration import as_roots
from syncmcp._requirement import (
    Require,
    RequiredServersFailed,
    check_required,
    checked_requirement,
)
from syncmcp._routing import Routed
from syncmcp._threads import Deadline
from syncmcp._together import completed, together
from syncmcp.callables import ToolFunctions
from syncmcp.client import Client
from syncmcp.errors import ClosedError, ForkedError, McpError, UsageError
from syncmcp.futures import RequestFuture
from syncmcp.servers_file import NotApproved, ServerEntry, ServersFileError, read

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp.roots import Roots
    from syncmcp.types import Prompt, Resource, ResourceTemplate, Tool

__all__ = [
    "ClientGroup",
    "Kind",
    "NameHook",
    "Require",
    "RequiredServersFailed",
    "ServerStatus",
    "Source",
    "State",
]

R = TypeVar("R")

_log = logging.getLogger("syncmcp.group")

# What the ends of many servers may take beyond their limit, in seconds, until nobody waits.
_SLACK: Final = 1.0

# Who waits for another thread looks again after so many seconds: that may have been interrupted.
_LOOK_AGAIN: Final = 0.2

# These are told which server it is about, before what a client's own are told.
_NAMED: Final = ("on_log", "on_progress", "on_notification")


class ClientGroup:
    """Clients of many servers, and what these offer, as one.

    Opens on `with` or `open()`, all servers at one time; may be opened again after `close()`. A
    server that fails takes none of the others with it: see `status`. Any thread may call, add,
    remove and close, in any order.

    What servers offer is known by keys. A tool's or prompt's key is its name, a resource's its
    URI, a template's its URI template; where two servers have the same, it is that with the
    server's name and ``_`` before it. A key stays as long as what it stands for. When a server
    tells that a list has changed, it is fetched again.

    Args:
        servers: What `Client` takes as target, or clients, by the names that the group calls them.
            Or a file of servers; a path is read as `servers_file.read` does. A client that is open
            already is left open at the end.
        require: Which servers must be there for the group to open: ``"any"``: one of them at
            least, if there are any; ``"all"``; or the names of those that must.
        name_hook: Returns the key of what a server offers: given its name (or URI, or URI
            template), and the server. Called on the threads that open, add and refresh.
        per_server: Options for the clients of single servers, over those for all.
        close_timeout: The longest that closing may take, in seconds, for all servers together.
        options: What `Client` takes, for all clients that the group makes. Handlers see in
            their context which server asks; `on_log`, `on_progress` and `on_notification` are
            given its name as an argument before the others.

    Raises:
        UsageError: An argument makes no sense.
        ServersFileError: The file cannot be read.
    """

    call_tool = Routed(ToolFunctions.call_tool, "tools")
    read_resource = Routed(ToolFunctions.read_resource, "resources")
    get_prompt = Routed(ToolFunctions.get_prompt, "prompts")

    def __init__(
        self,
        servers: Mapping[str, Source] | str | os.PathLike[str] | None = None,
        *,
        require: Require = "any",
        name_hook: NameHook | None = None,
        per_server: Mapping[str, Mapping[str, Any]] | None = None,
        close_timeout: float = 5.0,
        **options: Any,
    ) -> None:
        if isinstance(servers, (str, os.PathLike)):
            servers = read(servers)
        self._sources: dict[str, Source] = {}
        for name, source in (servers or {}).items():
            text(name, "the name of a server")
            self._sources[name] = source
        self._require = checked_requirement(require, self._sources)
        if name_hook is not None:
            refuse_coroutines(name_hook, "name_hook")
        self._hook = name_hook
        self._close_timeout = seconds(close_timeout, "close_timeout")
        self._roots: Roots | None = None
        self._defaults = self._shared(options)
        self._own_options = {name: dict(own) for name, own in (per_server or {}).items()}
        unknown = self._own_options.keys() - self._sources.keys()
        if unknown:
            raise UsageError(f"per_server has {min(unknown)!r}, which is no server of the group")
        # Guards everything below; never held while something opens, closes or asks.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._state: Literal["closed", "opening", "open"] = "closed"
        self._members: dict[str, Member] = {}
        self._catalog = Catalog()
        self._generation = _threads.generation

    def _shared(self, options: dict[str, Any]) -> dict[str, Any]:
        """Options for all clients. What keeps count, or may change, is one for all of them."""
        if "name" in options:
            raise UsageError("the servers of a group have the names that they are given by")
        if options.get("approval") is not None:
            from syncmcp.approval import as_approval

            options["approval"] = as_approval(options["approval"])
        if options.get("roots") is not None:
            options["roots"] = self._roots = as_roots(options["roots"])
        for name in _NAMED:
            if options.get(name) is not None:
                refuse_coroutines(options[name], name)
        return options

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to all servers, at one time; does nothing if the group is open.

        Each of them gets its `open_timeout`, in which its lists are fetched, too.

        Raises:
            RequiredServersFailed: One that is required is not there.
            UsageError: A server is there twice, or two things would have the same key.
        """
        self._check_process()
        mine: dict[str, Member] = {}
        if self._state == "closed":
            self.close()  # what an interrupted one has left
        try:
            with self._lock:
                while self._state == "opening":
                    self._changed.wait(_LOOK_AGAIN)
                if self._state == "open":
                    return self
                mine = {
                    name: self._member(name, one, self._own_options.get(name, {}))
                    for name, one in self._sources.items()
                }
                self._generation = _threads.generation
                self._members, self._state = mine, "opening"
            members = list(mine.values())
            self._prepare(members)
            self._open_all(members)
            check_required(self._require, members)
            self._publish([one for one in members if one.lists is not None], opening=mine)
        except BaseException:  # Ctrl-C, too
            if self._members is mine:  # and not another opening's
                self.close()
            raise
        return self

    def close(self, timeout: float | None = None) -> None:
        """Close all clients that the group opened, at one time; does nothing if it is not open.

        Calls in flight fail with `ClosedError`. May be called from any thread.

        Args:
            timeout: The longest it may take, in seconds; `close_timeout` by default.
        """
        if self._generation != _threads.generation:
            return  # everything belongs to the parent process, which goes on using it
        limit = self._close_timeout if timeout is None else seconds(timeout, "timeout")
        with self._lock:
            # First: then whoever is interrupted here, and closes or opens it again, ends the rest.
            self._state = "closed"
            self._catalog = Catalog()
            for one in self._members.values():
                if one.state not in OVER:
                    one.state = "closed"
            self._changed.notify_all()
            left = [one for one in self._members.values() if one.left]
        _close(left, limit)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<ClientGroup {', '.join(self._sources) or 'of no servers'} {self._state}>"

    # -- what there is ---------------------------------------------------------------------------

    @property
    def status(self) -> Mapping[str, ServerStatus]:
        """How each server stands at this moment, by name."""
        with self._lock:
            members = dict(self._members)
        return MappingProxyType({name: one.status() for name, one in members.items()})

    @property
    def clients(self) -> Mapping[str, Client]:
        """The clients of the servers that are there, by name."""
        with self._lock:
            return MappingProxyType(
                {
                    name: one.client
                    for name, one in self._members.items()
                    if one.state == "open" and one.client is not None
                }
            )

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers by their keys, which are their names here."""
        return self._catalog.shown["tools"]

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources of all servers by their keys."""
        return self._catalog.shown["resources"]

    @property
    def resource_templates(self) -> Mapping[str, ResourceTemplate]:
        """The resource templates of all servers by their keys."""
        return self._catalog.shown["resource_templates"]

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts of all servers by their keys, which are their names here."""
        return self._catalog.shown["prompts"]

    @property
    def roots(self) -> Roots:
        """Where all servers are told to work; a change reaches them by itself.

        Raises:
            UsageError: The group was made without `roots`.
        """
        if self._roots is None:
            raise UsageError("the group was made without roots: give roots=[], and add to them")
        return self._roots

    def server_of(self, kind: Kind, key: str) -> tuple[str, str]:
        """Whose something is: the name of the server, and what that calls it.

        Args:
            kind: ``"tools"``, ``"resources"``, ``"resource_templates"`` or ``"prompts"``.
            key: Its key in the group.

        Raises:
            UsageError: There is no such thing.
        """
        found = self._catalog.find(kind, key)
        return found.server, found.name

    # -- servers that come and go ----------------------------------------------------------------

    def add(self, name: str, source: Source, **options: Any) -> Client:
        """Add a server to an open group: connect to it, and offer what it offers.

        Args:
            name: What the group is to call it.
            source: What `Client` takes as target, or a client.
            options: For its client, over those of the group.

        Returns:
            Its client.

        Raises:
            UsageError: The server, or its name, is there already, or two things would have the same
                key. The group is as it was.
            ClosedError: The group is not open, or was closed, or the server removed, meanwhile.
            McpError: It could not be opened. The group is as it was.
        """
        text(name, "the name of a server")
        self._check_process()
        member = self._member(name, source, options)
        try:
            with self._lock:
                while self._state == "opening":
                    self._changed.wait(_LOOK_AGAIN)
                self._check_open()
                if name in self._members:
                    raise UsageError(f"the group has a server {name!r} already")
                self._members[name] = member
            client = member.prepare()
            with self._lock:
                self._check_single(member, self._members.values())
            self._open_one(member)
            self._publish([member])
            if member.state != "open":
                raise _not_open(name)
        except BaseException:
            self._end(member, self._close_timeout)
            raise
        return client

    def remove(self, name: str, timeout: float | None = None) -> None:
        """Take a server out of the group, and close its client unless the program opened that.

        Args:
            name: What the group calls it.
            timeout: The longest that closing may take, in seconds; `close_timeout` by default.

        Raises:
            UsageError: There is no such server.
        """
        limit = self._close_timeout if timeout is None else seconds(timeout, "timeout")
        self._check_process()
        with self._lock:
            if name not in self._members and name not in self._sources:
                raise UsageError(f"the group has no server {name!r}")
            self._sources.pop(name, None)
            self._own_options.pop(name, None)
            self._catalog = self._catalog.without(name)
            member = self._members.get(name)
        if member is not None:
            self._end(member, limit)

    def refresh(self) -> None:
        """Fetch the lists of all servers anew: of those that do not tell when they change.

        What cannot be fetched stays as it was, and is logged.

        Raises:
            UsageError: Two things would have the same key; nothing is changed then.
            ClosedError: The group is not open, or was closed meanwhile.
        """
        with self._lock:
            self._check_open()
            members = {n: one for n, one in self._members.items() if one.state == "open"}
            before = {name: one.lists for name, one in members.items()}
        outcomes = together({name: one.fetch for name, one in members.items()}, Deadline(None))
        fetched: list[Member] = []
        for name, outcome in outcomes.items():
            if isinstance(outcome, Lists):
                with self._lock:
                    if members[name].lists is before[name]:  # and not one that came later
                        members[name].lists = outcome
                fetched.append(members[name])
            else:
                _log.warning("[%s] its lists were not fetched: %s", name, outcome)
        self._publish(fetched)

    def as_completed(
        self,
        start: Callable[[Client], RequestFuture[R]],
        *,
        servers: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[tuple[str, RequestFuture[R]]]:
        """Start a call on each server, and iterate over the names and futures as they are done.

        ::

            for name, done in group.as_completed(lambda client: client.list_tools.future()):
                print(name, done.exception() or len(done.result().tools))

        Leaving the iteration cancels what is still in flight.

        Args:
            start: Starts one call, and returns its future. What it raises is in the future.
            servers: Their names; by default all that are there.
            timeout: The longest that all of it may take, in seconds; `None` for no limit.

        Raises:
            UsageError: There is no such server.
            TimeoutError: It took longer.
        """
        deadline = Deadline(seconds(timeout, "timeout"))
        clients = self.clients
        names = list(clients) if servers is None else list(dict.fromkeys(servers))
        for name in names:
            if name not in clients:
                raise UsageError(f"the group has no open server {name!r}")
        return completed({name: clients[name] for name in names}, start, deadline)

    # -- the inside ------------------------------------------------------------------------------

    def _member(self, name: str, source: Source, own: Mapping[str, Any]) -> Member:
        if "name" in own:
            raise UsageError("the servers of a group have the names that they are given by")
        if own and isinstance(source, Client):
            raise UsageError(f"{name!r} is a client, which has its options already")
        named = {
            key: partial(self._defaults[key], name)
            for key in _NAMED
            if self._defaults.get(key) is not None
        }
        return Member(name, source, {**self._defaults, **named}, own)

    def _end(self, member: Member, limit: float | None) -> None:
        """Close one server, and forget it when that is done."""
        with self._lock:
            member.state = "closed"
        if member.left:
            member.close(limit)
        with self._lock:
            if self._members.get(member.name) is member:
                del self._members[member.name]

    def _prepare(self, members: list[Member]) -> None:
        """Make the clients, on this thread and one by one: a person may have to approve some."""
        for position, member in enumerate(members):
            source = member.source
            if isinstance(source, ServerEntry) and source.disabled:
                member.state = "disabled"
                continue
            try:
                member.prepare()
            except (ServersFileError, NotApproved) as error:
                member.fail(error)
            else:
                self._check_single(member, members[:position])

    def _check_single(self, member: Member, others: Iterable[Member]) -> None:
        for other in others:
            if other is not member and other.state not in OVER and member.is_same_as(other):
                raise UsageError(
                    f"{other.name!r} and {member.name!r} are the same server, {member.client!r}"
                )

    def _open_all(self, members: list[Member]) -> None:
        jobs = {one.name: partial(self._open_one, one) for one in members if one.state == "opening"}
        outcomes = together(jobs, Deadline(None))
        for member in members:
            outcome = outcomes.get(member.name)
            if isinstance(outcome, McpError):
                with self._lock:
                    if member.state == "opening":
                        member.fail(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome

    def _open_one(self, member: Member) -> None:
        """Open one server, or leave nothing of it."""
        try:
            with self._lock:
                if member.state != "opening":
                    raise _not_open(member.name)
                member.begin()
            lists = member.open(partial(ClientGroup._news, weakref.ref(self), weakref.ref(member)))
            with self._lock:
                if member.lists is None:  # or it has told of a change already
                    member.lists = lists
        except BaseException:
            member.close(self._close_timeout)
            raise

    def _publish(
        self, members: list[Member], *, opening: Mapping[str, Member] | None = None
    ) -> None:
        """Offer what these servers have, all of it or nothing; without those that have gone.

        Args:
            members: The servers.
            opening: All servers, if this opens the group.

        Raises:
            UsageError: Two things would have the same key.
            ClosedError: The group was closed.
        """
        while True:
            with self._lock:
                there = self._still_there(members, opening)
                before = self._catalog
                news = {one.name: one.lists for one in there if one.lists is not None}
            # Outside of the lock, for it calls the hook.
            after = before.with_servers(news, self._hook)
            with self._lock:
                same = self._still_there(members, opening) == there and self._catalog is before
                if not same or any(one.lists is not news.get(one.name) for one in there):
                    continue
                self._catalog = after
                for one in there:
                    one.state = "open"
                    self._sources[one.name] = one.source
                    self._own_options[one.name] = dict(one.own)
                self._state = "open"
                self._changed.notify_all()
                return

    def _still_there(
        self, members: list[Member], opening: Mapping[str, Member] | None
    ) -> list[Member]:
        if opening is None:
            self._check_open()
        elif self._state != "opening" or self._members is not opening:
            raise _not_open()
        return [
            one for one in members if self._members.get(one.name) is one and one.state not in OVER
        ]

    @staticmethod
    def _news(group: weakref.ref[ClientGroup], one: weakref.ref[Member], lists: Lists) -> None:
        """A server has changed what it offers; on a pool thread of its client."""
        self, member = group(), one()
        if self is None or member is None:
            return
        with self._lock:
            member.lists = lists
            if member.state != "open":
                return  # whoever opens it will see
        try:
            self._publish([member])
        except ClosedError:
            return  # nobody asks for it any more
        except UsageError as error:
            _log.warning("[%s] what it has changed is not offered: %s", member.name, error)

    def _route(self, kind: Kind, what: Any) -> tuple[Client, Any]:
        catalog = self._catalog
        with self._lock:
            self._check_open()
        found, asked_for = catalog.route(kind, what)
        with self._lock:
            member = self._members.get(found.server)
            if member is None or member.state != "open" or member.client is None:
                raise _not_open(found.server)
            return member.client, asked_for

    def _check_open(self) -> None:
        self._check_process()
        if self._state != "open":
            raise _not_open()

    def _check_process(self) -> None:
        if self._generation != _threads.generation and self._state != "closed":
            raise ForkedError(
                "this group belongs to the parent process; make a new one after a fork"
            )


def _not_open(server: str | None = None) -> ClosedError:
    if server is None:
        return ClosedError("the group is not open")
    return ClosedError("the group has closed or removed this server", server=server)


def _close(members: list[Member], limit: float | None) -> None:
    """Close servers, at one time, within `limit` seconds."""
    deadline = Deadline(limit)
    if len(members) == 1:
        members[0].close(limit)  # needs no thread
        return
    jobs = {one.name: partial(one.close_by, deadline) for one in members}
    together(jobs, Deadline(None if limit is None else limit + _SLACK))
