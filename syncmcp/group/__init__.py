"""Many servers as one.

::

    with syncmcp.ClientGroup({"files": Stdio("files-server"), "web": "https://..."}) as group:
        for name in group.tools:
            print(name)
        group.call_tool("search", {"query": "fish"})
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import Unpack

from syncmcp._base.checks import refuse_coroutines, seconds, text
from syncmcp._client.client import Client
from syncmcp._client.core import core_of
from syncmcp._client.functions import ToolFunction
from syncmcp._concurrency.futures import RequestFuture
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.errors import McpError, UsageError
from syncmcp.group.catalog import Catalog, Kind, NameHook, Offered, Routed, by_key, completable
from syncmcp.group.listening import GroupSubscription, listen
from syncmcp.group.member import GroupOptions, ServerStatus, Source, State
from syncmcp.group.parallel import iterate_completed, ping_all
from syncmcp.group.state import GroupState, Require, RequiredServersFailed, checked_requirement
from syncmcp.servers_file import read

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp.handlers.roots import Roots
    from syncmcp.types import Prompt, Resource, ResourceTemplate, Tool

__all__ = [
    "ClientGroup",
    "GroupSubscription",
    "Kind",
    "NameHook",
    "Require",
    "RequiredServersFailed",
    "ServerStatus",
    "Source",
    "State",
]

R = TypeVar("R")


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
            template), and the server, whose `name` is the one that the group calls it. Called on
            the threads that open, add and refresh.
        per_server: Options for the clients of single servers, over those for all.
        close_timeout: The longest that closing may take, in seconds, for all servers together.
        options: What `Client` takes, for all clients that the group makes. Handlers see in
            their context which server asks; `on_log`, `on_progress` and `on_notification` are
            given its name as an argument before the others.

    Raises:
        UsageError: An argument makes no sense.
        ServersFileError: The file cannot be read.
    """

    call_tool = Routed(Client.call_tool, by_key("tools"))
    read_resource = Routed(Client.read_resource, by_key("resources"))
    subscribe_resource = Routed(Client.subscribe_resource, by_key("resources"))
    unsubscribe_resource = Routed(Client.unsubscribe_resource, by_key("resources"))
    get_prompt = Routed(Client.get_prompt, by_key("prompts"))
    complete = Routed(Client.complete, completable)

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
        sources: dict[str, Source] = {}
        for name, source in (servers or {}).items():
            text(name, "the name of a server")
            sources[name] = source
        required = checked_requirement(require, sources)
        if name_hook is not None:
            refuse_coroutines(name_hook, "name_hook")
        self._close_timeout = seconds(close_timeout, "close_timeout")
        self._options = GroupOptions(options, per_server or {})
        self._options.check_known(sources)
        self._state = GroupState(sources, self._options, required, name_hook, self._close_timeout)

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to all servers, at one time; does nothing if the group is open.

        Each of them gets its `open_timeout`, in which its lists are fetched, too.

        Raises:
            RequiredServersFailed: One that is required is not there.
            UsageError: A server is there twice, or two things would have the same key.
        """
        self._state.open()
        return self

    def close(self, timeout: float | None = None) -> None:
        """Close all clients that the group opened, at one time; does nothing if it is not open.

        Calls in flight fail with `ClosedError`. May be called from any thread.

        Args:
            timeout: The longest it may take, in seconds; `close_timeout` by default.
        """
        self._state.close(self._close_limit(timeout))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = ", ".join(self._state.sources) or "of no servers"
        return f"<ClientGroup {servers} {self._state.state}>"

    # -- what there is ---------------------------------------------------------------------------

    @property
    def status(self) -> Mapping[str, ServerStatus]:
        """How each server stands at this moment, by name."""
        members = self._state.members()
        return MappingProxyType({name: one.status() for name, one in members.items()})

    @property
    def clients(self) -> Mapping[str, Client]:
        """The clients of the servers that are there, by name."""
        return MappingProxyType(self._state.clients())

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers by their keys, which are their names here."""
        return self._state.catalog.shown["tools"]

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources of all servers by their keys."""
        return self._state.catalog.shown["resources"]

    @property
    def resource_templates(self) -> Mapping[str, ResourceTemplate]:
        """The resource templates of all servers by their keys."""
        return self._state.catalog.shown["resource_templates"]

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts of all servers by their keys, which are their names here."""
        return self._state.catalog.shown["prompts"]

    def iter_tools(self) -> Iterator[Tool]:
        """Iterate over the tools of all servers, as the group knows them; see `refresh`."""
        return iter(self.tools.values())

    def iter_resources(self) -> Iterator[Resource]:
        """Iterate over the resources of all servers, as the group knows them."""
        return iter(self.resources.values())

    def iter_resource_templates(self) -> Iterator[ResourceTemplate]:
        """Iterate over the resource templates of all servers, as the group knows them."""
        return iter(self.resource_templates.values())

    def iter_prompts(self) -> Iterator[Prompt]:
        """Iterate over the prompts of all servers, as the group knows them."""
        return iter(self.prompts.values())

    def tool(self, name: str, **options: Unpack[CallOptions]) -> ToolFunction:
        """Make a function of a tool; see `Client.tool`.

        Args:
            name: The tool's key.
            options: For each call of the function; see `CallOptions`.

        Raises:
            UsageError: There is no such tool, or an option makes no sense.
            ClosedError: The group is not open.
        """
        client, found = self._route(lambda catalog: catalog.described("tools", name))
        core_of(client).resolve(options)  # a mistake is raised here, not at the first call
        return ToolFunction(client, found, options)

    @property
    def roots(self) -> Roots:
        """Where all servers are told to work; a change reaches them by itself.

        Raises:
            UsageError: The group was made without `roots`.
        """
        if self._options.roots is None:
            raise UsageError("the group was made without roots: give roots=[], and add to them")
        return self._options.roots

    def server_of(self, kind: Kind, key: str) -> tuple[str, str]:
        """Whose something is: the name of the server, and what that calls it.

        Args:
            kind: ``"tools"``, ``"resources"``, ``"resource_templates"`` or ``"prompts"``.
            key: Its key in the group.

        Raises:
            UsageError: There is no such thing.
        """
        found = self._state.catalog.find(kind, key)
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
        return self._state.add(name, source, options)

    def remove(self, name: str, timeout: float | None = None) -> None:
        """Take a server out of the group, and close its client unless the program opened that.

        Args:
            name: What the group calls it.
            timeout: The longest that closing may take, in seconds; `close_timeout` by default.

        Raises:
            UsageError: There is no such server.
        """
        self._state.remove(name, self._close_limit(timeout))

    def refresh(self) -> None:
        """Fetch the lists of all servers anew: of those that do not tell when they change.

        What cannot be fetched stays as it was, and is logged.

        Raises:
            UsageError: Two things would have the same key; nothing is changed then.
            ClosedError: The group is not open, or was closed meanwhile.
        """
        self._state.refresh()

    # -- all of them at one time -----------------------------------------------------------------

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
        return iterate_completed(self._clients_named(servers), start, deadline)

    def ping(
        self, *, servers: Iterable[str] | None = None, timeout: float = 10.0
    ) -> Mapping[str, McpError | None]:
        """Ask servers, at one time, whether they are there.

        One whose connection was lost is connected to again. Where the revision has no ping, the
        server is asked what it can do.

        Args:
            servers: Their names; by default all that are there.
            timeout: The longest that each may take, in seconds.

        Returns:
            What went wrong, by the names of the servers; `None` for those that answered.

        Raises:
            UsageError: There is no such server.
        """
        return MappingProxyType(ping_all(self._clients_named(servers), seconds(timeout, "timeout")))

    def listen(
        self,
        *,
        tools: bool = False,
        prompts: bool = False,
        resources: bool = False,
        uris: Iterable[str] = (),
        timeout: float | None = None,
        stop_after: int | None = None,
        undeclared: Undeclared | None = None,
    ) -> GroupSubscription:
        """Ask all servers to tell of changes; iterate over who tells what.

        ::

            with group.listen(tools=True, uris=["shop://fish/hours"]) as changes:
                for name, event in changes:
                    print(name, event)

        Each server is asked for what it says that it tells of, at one time with the others, and a
        resource is asked for where it is. One that does not agree is in the `errors` of what is
        returned. Servers that join later are not asked.

        Args:
            tools: Tell when a list of tools changes.
            prompts: Tell when a list of prompts changes.
            resources: Tell when a list of resources or of their templates changes.
            uris: Tell when one of these resources changes, by their keys.
            timeout: The longest time, in seconds, to wait for the next event; `None` for any.
            stop_after: End after so many events; `None` for never.
            undeclared: Whether servers are asked for what they do not declare, ``"refuse"`` or
                ``"try"``; by default the `undeclared` of each client. See `CallOptions`.

        Raises:
            UsageError: Nothing is wanted, there is no such resource, or an argument makes no sense.
            NotSupported: None of the servers says that it tells of this.
            ClosedError: The group is not open.
            McpError: None of them agreed, and this is what the first said.
        """
        if isinstance(uris, str):
            raise UsageError("uris is a list of URIs, not one")
        self._state.check_open()
        at: dict[str, list[str]] = {}
        for key in dict.fromkeys(uris):
            text(key, "uri")
            name, uri = self._locate_resource(key)
            at.setdefault(name, []).append(uri)
        wanted = ChangeFilter(bool(tools), bool(prompts), bool(resources))
        return listen(
            self._state.clients(),
            wanted,
            at,
            timeout=timeout,
            stop_after=stop_after,
            undeclared=undeclared,
        )

    # -- the inside ------------------------------------------------------------------------------

    def _route(self, find: Callable[[Catalog], tuple[Offered, R]]) -> tuple[Client, R]:
        client, _, asked_for = self._state.route(find)
        return client, asked_for

    def _locate_resource(self, key: str) -> tuple[str, str]:
        _, name, uri = self._state.route(lambda catalog: catalog.route("resources", key))
        return name, uri

    def _clients_named(self, servers: Iterable[str] | None) -> dict[str, Client]:
        clients = self._state.clients()
        names = list(clients) if servers is None else list(dict.fromkeys(servers))
        for name in names:
            if name not in clients:
                raise UsageError(f"the group has no open server {name!r}")
        return {name: clients[name] for name in names}

    def _close_limit(self, timeout: float | None) -> float | None:
        return self._close_timeout if timeout is None else seconds(timeout, "timeout")


def group_state(group: ClientGroup) -> GroupState:
    """What is behind a group, for the parts of the library that work with groups."""
    return group._state
