"""Groups: many servers behind one object, with routing of calls by name.

::

    servers = {"files": syncmcp.Stdio("files-server"), "web": "https://..."}
    with syncmcp.ClientGroup(servers) as group:
        for name in group.tools:
            print(name)
        group.call_tool("search", {"query": "fish"})
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, wait
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, cast, overload

from typing_extensions import ParamSpec, Self, Unpack

from syncmcp._base.checks import check_callable, flag, kind_of, seconds, text
from syncmcp._client.client import Client
from syncmcp._client.core import HasCore, core_of
from syncmcp._client.functions import ToolFunction
from syncmcp._client.operation import (
    BoundOperation,
    Operation,
    ResultStream,
    from_class,
    with_signatures,
)
from syncmcp._concurrency.futures import RequestFuture, failed_future
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import CallOptions
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.errors import McpError, NotSupported, UsageError
from syncmcp.group.catalog import KINDS, Catalog, Find, Kind, NameHook, by_key, completable
from syncmcp.group.listening import GroupSubscription, listen
from syncmcp.group.member import (
    GroupOptions,
    ServerStatus,
    Source,
    State,
    check_server_name,
    run_all,
)
from syncmcp.group.state import GroupState, Require, RequiredServersFailed, checked_requirement
from syncmcp.handlers.roots import Roots
from syncmcp.servers_file import read

if TYPE_CHECKING:
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

P = ParamSpec("P")
R = TypeVar("R")

# -- operations of a client as operations of a group: routed by their first argument --------------


def _of_group(told: str, first: str) -> str:
    """Return the docstring of a client's operation, adapted to that of a group."""
    paragraphs = [each for each in told.split("\n\n") if "with syncmcp.connect(" not in each]
    told = re.sub(r"client\.list_(\w+)\(\)\.\w+", r"group.\1.values()", "\n\n".join(paragraphs))
    told = re.sub(r"client\.(?=\w)", "group.", told)
    told = re.sub(r"The server has no such \w+, or ", "The server ", told)  # a `UsageError` here
    routing = f"In a group, the key in `{first}`, or a name that only one server has, decides which"
    ends = "server gets the request; a `UsageError` says that no server has it."
    return f"{told}\n\n{routing}\n{ends}"


class Routed(Generic[P, R]):
    """Descriptor of a group's operation: its first argument decides which server gets the call."""

    def __init__(self, operation: Operation[P, R], find: Find) -> None:
        self.operation = operation
        self.find = find
        self.__name__ = operation.__name__
        self.__signature__ = operation.__signature__
        _, first, *_ = operation.__signature__.parameters
        self.first = first
        self.__doc__ = operation.__doc__ and _of_group(operation.__doc__, first)
        self.bound: type[BoundRoute[P, R]] = with_signatures(BoundRoute, self)

    @overload
    def __get__(self, group: None, owner: type) -> Routed[P, R]: ...
    @overload
    def __get__(self, group: ClientGroup, owner: type) -> BoundRoute[P, R]: ...
    def __get__(self, group: ClientGroup | None, owner: type) -> Routed[P, R] | BoundRoute[P, R]:
        return self if group is None else self.bound(self, group)

    def __call__(self, group: ClientGroup, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the operation with a group and the arguments."""
        return self.__get__(group, type(group))(*args, **kwargs)

    @property
    def future(self) -> Callable[Concatenate[ClientGroup, P], RequestFuture[R]]:
        """The `future` as a function of a group and the arguments."""
        return from_class("future", self)

    @property
    def stream(self) -> Callable[Concatenate[ClientGroup, P], ResultStream[R]]:
        """The `stream` as a function of a group and the arguments."""
        return from_class("stream", self)


class BoundRoute(BoundOperation[P, R]):
    """An operation bound to a group: call it to wait, or use its `future` or `stream`."""

    __slots__ = ("_group", "_routed")

    def __init__(self, routed: Routed[P, R], group: ClientGroup) -> None:
        # The group is for the `repr` only: each call uses the client of one server.
        super().__init__(routed.operation, cast("HasCore", group))
        self._routed = routed
        self._group = group

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Send the request and block until its result has arrived."""
        result: R = self._call("__call__", args, kwargs)
        return result

    def future(self, *args: P.args, **kwargs: P.kwargs) -> RequestFuture[R]:
        result: RequestFuture[R] = self._call("future", args, kwargs)
        return result

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> ResultStream[R]:
        result: ResultStream[R] = self._call("stream", args, kwargs)
        return result

    def _call(self, form: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        routed, named = self._routed, dict(kwargs)
        what = args[0] if args else named.pop(routed.first, None)
        client, _, its_name = self._group._state.route(lambda catalog: routed.find(catalog, what))
        bound = routed.operation.__get__(client, type(client))
        return getattr(bound, form)(its_name, *args[1:], **named)

    @property
    def __doc__(self) -> str | None:  # type: ignore[override]
        return self._routed.__doc__


class ClientGroup:
    """The clients of many servers, with their tools, prompts and resources merged.

    >>> from syncmcp.testing import demo_server  # or Stdio, URLs, ...
    >>> with syncmcp.ClientGroup({"one": demo_server(), "two": demo_server()}) as group:
    ...     print([*group.tools][:3])
    ...     print(group.call_tool("two_add", {"a": 1, "b": 2}).text)
    ['one_add', 'one_echo', 'one_greet']
    3

    A group opens all servers in parallel, on `with` or `open()`. It may be opened again after
    `close()`. A failed server does not affect the others: see `status`. Any thread may call, add,
    remove and close, in any order.

    Args:
        servers: Targets as for `Client`, or clients, by the names of the servers in the group. Or
            pass the path of a servers file, which is read as by `servers_file.read`. A client that
            is open already is left open when the group closes.
        require: The servers without which the group does not open: ``"all"``, an iterable of names,
            or ``"any"`` for at least one, if the group has servers.
        name_hook: Returns the key of an item. It is called as ``(name, server)``: `name` is the
            item's name, URI or URI template, and `server.name` the server's name in the group.
        per_server: Options for the clients of single servers, by name; they override `options`.
        close_timeout: The longest time to close all servers together, in seconds.
        options: The options of `Client`, for all clients that the group creates. The context of a
            handler names the server that asks; `on_log`, `on_progress` and `on_notification` get
            the server's name as an additional first argument.

    Raises:
        UsageError: An argument is invalid.
        TypeError: `Client` has no such option.
        ServersFileError: The file cannot be read.

    Notes:
        The key of a tool or prompt is its name. The key of a resource is its URI, and that of a
        template its URI template. The group puts the server's name and ``_`` before a key

        - that two servers use (for tools and prompts, also in letters that look alike);
        - that is the name of another server, or begins with this name and ``_``;
        - of a tool or prompt with other characters than ASCII letters, digits and ``_.-``.

        A key does not change while the item exists, unless you add a server whose name is the
        beginning of the key. The group omits an item that cannot have a key of its own; the log and
        `status` name the item. The group fetches a list again when the server notifies that the
        list has changed.

        One thread at a time calls the `name_hook`: a thread that opens, adds or refreshes, or a
        pool thread after a list has changed. The hook must not add servers to the group, or refresh
        the group. The group omits an item if the hook fails or returns the key of another item. A
        hook that ignores the server, and so makes one key for two servers, leads to a `UsageError`.
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
        if isinstance(servers, str) and "://" in servers:
            raise UsageError("servers is a URL: write a mapping {NAME: URL}, or the path of a file")
        if isinstance(servers, (str, os.PathLike)):
            servers = read(servers)
        if not isinstance(servers, (Mapping, type(None))):
            kind = type(servers).__name__
            raise UsageError(f"servers must be a mapping of names to servers, not {kind}")
        sources: dict[str, Source] = {}
        for name, source in (servers or {}).items():
            check_server_name(name)
            sources[name] = source
        required = checked_requirement(require, sources)
        if name_hook is not None:
            check_callable(name_hook, "name_hook", ("name", "server"))
        self._close_timeout = seconds(close_timeout, "close_timeout")
        names = inspect.signature(ClientGroup).parameters.keys() - {"options"}
        self._options = GroupOptions(options, per_server or {}, sources.keys(), names)
        self._state = GroupState(sources, self._options, required, name_hook, self._close_timeout)

    if not TYPE_CHECKING:  # type checkers refuse every attribute that the class does not have

        def __setattr__(self, name: str, value: object) -> None:
            if name in Client.__init__.__kwdefaults__.keys() | ClientGroup.__init__.__kwdefaults__:
                text = f"pass options when you create a group: ClientGroup(SERVERS, {name}=...)"
                raise AttributeError(text)
            super().__setattr__(name, value)

        def __getattr__(self, name: str) -> object:
            own = name.removeprefix("list_")
            instead = f"group.{own}" if own in KINDS else f"group.clients[NAME].{name}"
            hint = f": write {instead}" if hasattr(Client, name) and name[0] != "_" else ""
            text = f"'ClientGroup' object has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=self)

    # -- opening and closing ---------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to all servers in parallel.

        The method is idempotent.

        Each server gets its `open_timeout`, which includes the time to fetch its lists. Threads
        that open the group at the same time share one opening, and its outcome.

        Raises:
            RequiredServersFailed: A required server could not be opened.
            UsageError: The group has the same server twice, or `name_hook` makes the same key of
                two servers' names, or fails for all items.
            ForkedError: The group was opened in the parent process.
        """
        self._state.open()
        return self

    def close(self, timeout: float | None = None) -> None:
        """Close all clients that the group opened, in parallel.

        The method is idempotent.

        Calls in flight fail with `ClosedError`. The method may be called from any thread.

        Args:
            timeout: The longest time to take, in seconds; `close_timeout` by default.
        """
        self._state.close(self._close_limit(timeout))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        servers = ", ".join(self._state.sources) or "of no servers"
        return f"<ClientGroup {servers} {self._state.state}>"

    # -- servers and their items -----------------------------------------------------------------

    @property
    def status(self) -> Mapping[str, ServerStatus]:
        """The present status of each server, by name."""
        left_out = self._state.catalog.left_out
        return MappingProxyType(
            {
                name: member.status()._replace(
                    left_out=tuple(str(item) for item in left_out if item.server == name)
                )
                for name, member in self._state.members().items()
            }
        )

    @property
    def clients(self) -> Mapping[str, Client]:
        """The clients of the open servers, by name."""
        return MappingProxyType(self._state.clients())

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools of all servers by key, which is their `name`.

        Raises `ClosedError` if the group is not open.
        """
        return self._state.shown("tools")

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources of all servers by key.

        Raises `ClosedError` if the group is not open.
        """
        return self._state.shown("resources")

    @property
    def resource_templates(self) -> Mapping[str, ResourceTemplate]:
        """The resource templates of all servers by key.

        Raises `ClosedError` if the group is not open.
        """
        return self._state.shown("resource_templates")

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts of all servers by key, which is their `name`.

        Raises `ClosedError` if the group is not open.
        """
        return self._state.shown("prompts")

    def tool(self, name: str, **options: Unpack[CallOptions]) -> ToolFunction:
        """Make a function of a tool; see `Client.tool`.

        Args:
            name: The tool's key.
            options: Options for each call of the function; see `CallOptions`.

        Raises:
            UsageError: There is no such tool, or an option is invalid.
            ClosedError: The group is not open.
        """
        client, _, found = self._state.route(lambda catalog: catalog.find_with_model("tools", name))
        core_of(client).resolve(options)  # invalid options are raised here, not at the first call
        return ToolFunction(client, found, options)

    @property
    def roots(self) -> Roots:
        """The roots of all clients of the group; servers are notified of changes.

        Raises:
            UsageError: The group was created without `roots`.
        """
        if self._options.roots is None:
            raise UsageError(
                "the group was created without roots: pass roots=[], then add roots to the group"
            )
        return self._options.roots

    def server_of(self, kind: Kind, key: str) -> tuple[str, str]:
        """Look up the server of an item.

        Args:
            kind: ``"tools"``, ``"resources"``, ``"resource_templates"`` or ``"prompts"``.
            key: The item's key in the group.

        Returns:
            The name of the server, and the item's name (or URI, or URI template) there.

        Raises:
            UsageError: There is no such kind, or no such item.
        """
        if kind not in KINDS:
            raise UsageError(f"kind must be one of {', '.join(KINDS)}, not {kind!r}")
        found = self._state.catalog.find(kind, key)
        return found.server, found.name

    # -- adding and removing servers -------------------------------------------------------------

    def add(self, name: str, source: Source, **options: Any) -> Client:
        """Add a server to an open group: connect to it, and merge its items.

        If another thread is opening the group, the method waits, and fails if that opening fails.

        Args:
            name: The name of the server in the group.
            source: A target as for `Client`, or a client.
            options: Options for its client; they override those of the group.

        Returns:
            The client of the server.

        Raises:
            UsageError: The group has the server, or its name, already, or two items would have the
                same key. The group is unchanged.
            ClosedError: The group is not open, or the group was closed or the server removed
                during the call.
            McpError: The server could not be opened. The group is unchanged.
        """
        check_server_name(name)
        return self._state.add(name, source, options)

    def remove(self, name: str, timeout: float | None = None) -> None:
        """Remove a server from the group, and close its client, unless the program opened it.

        Args:
            name: The name of the server in the group.
            timeout: The longest time to close it, in seconds; `close_timeout` by default.

        Raises:
            UsageError: There is no such server.
        """
        self._state.remove(name, self._close_limit(timeout))

    def refresh(self) -> None:
        """Fetch the lists of all servers again, for servers that do not notify of changes.

        Lists that cannot be fetched stay as they are, and the failure is logged.

        Raises:
            UsageError: Two items would have the same key; nothing is changed.
            ClosedError: The group is not open, or was closed during the call.
        """
        self._state.refresh()

    # -- calls to several servers ----------------------------------------------------------------

    def as_completed(
        self,
        start: Callable[[Client], RequestFuture[R]],
        *,
        servers: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> Iterator[tuple[str, RequestFuture[R]]]:
        """Start a call on each server, and iterate over names and futures as they complete.

        ::

            for name, done in group.as_completed(lambda client: client.list_tools.future()):
                print(name, done.exception() or len(done.result().tools))

        Leaving the iteration cancels the calls that are in flight.

        Args:
            start: Starts one call, and returns its future. If `start` raises an `McpError`, this
                becomes the exception of the future.
            servers: The names of the servers; by default all that are open.
            timeout: The longest time for the whole iteration, in seconds; `None` for no limit.

        Raises:
            UsageError: The group has no open server of that name.
            ClosedError: The group is not open.
            TimeoutError: `timeout` has passed.
        """
        check_callable(start, "start", ("client",))
        deadline = Deadline(seconds(timeout, "timeout"))
        return _iterate_completed(self._clients_named(servers), start, deadline)

    def ping(
        self, *, servers: Iterable[str] | None = None, timeout: float = 10.0
    ) -> Mapping[str, McpError | None]:
        """Ping servers in parallel.

        A server whose connection was lost is reconnected. Where the revision has no ping,
        ``server/discover`` is sent instead.

        Args:
            servers: The names of the servers; by default all that are open.
            timeout: The longest time for each server, in seconds.

        Returns:
            The error of each server by its name; `None` for a server that responded.

        Raises:
            UsageError: The group has no open server of that name.
            ClosedError: The group is not open.
        """
        limit = seconds(timeout, "timeout")
        clients = self._clients_named(servers)
        jobs = {name: partial(_ping, client, limit) for name, client in clients.items()}
        return MappingProxyType(run_all(jobs))

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
        """Subscribe to changes at all servers; iterate over pairs of a server's name and an event.

        ::

            with group.listen(tools=True, uris=["shop://fish/hours"]) as changes:
                for name, event in changes:
                    print(name, event)

        Requests are sent in parallel: to each server for the list changes that the server declares,
        and for a resource only to its server. `GroupSubscription.errors` names servers that refuse.
        Servers that are added later are not included.

        Args:
            tools: Subscribe to changes of the lists of tools.
            prompts: Subscribe to changes of the lists of prompts.
            resources: Subscribe to changes of the lists of resources and of resource templates.
            uris: Subscribe to changes of these resources, by their keys.
            timeout: The longest time to wait for the next event, in seconds; `None` for no limit.
            stop_after: End after this number of events; `None` for never.
            undeclared: Whether to ask servers for changes that they do not declare, ``"refuse"`` or
                ``"try"``; by default the `undeclared` of each client. See `CallOptions`.

        Raises:
            UsageError: No change is requested, there is no such resource, or an argument is
                invalid.
            NotSupported: No server declares any of the requested changes.
            ClosedError: The group is not open.
            McpError: All servers refused; this is the error of the first.
        """
        if isinstance(uris, str):
            raise UsageError("uris must be a list of URIs, not a single URI")
        self._state.check_open()
        uris_by_server: dict[str, list[str]] = {}
        for key in dict.fromkeys(uris):
            text(key, "uri")
            _, name, uri = self._state.route(partial(Catalog.route, kind="resources", what=key))
            uris_by_server.setdefault(name, []).append(uri)
        lists = ChangeFilter(
            flag(tools, "tools"), flag(prompts, "prompts"), flag(resources, "resources")
        )
        return listen(
            self._state.clients(),
            lists,
            uris_by_server,
            timeout=timeout,
            stop_after=stop_after,
            undeclared=undeclared,
        )

    # -- internals -------------------------------------------------------------------------------

    def _clients_named(self, servers: Iterable[str] | None) -> dict[str, Client]:
        self._state.check_open()
        clients = self._state.clients()
        names = list(clients) if servers is None else list(dict.fromkeys(servers))
        for name in names:
            if name not in clients:
                raise UsageError(f"the group has no open server {name!r}")
        return {name: clients[name] for name in names}

    def _close_limit(self, timeout: float | None) -> float | None:
        return self._close_timeout if timeout is None else seconds(timeout, "timeout")


def group_state(group: ClientGroup) -> GroupState:
    """Return the state of a group, for other packages of the library."""
    return group._state


def _ping(client: Client, timeout: float | None) -> None:
    deadline = Deadline(timeout)
    try:
        client.ping(timeout=timeout)
    except NotSupported:
        client.request("server/discover", timeout=deadline.remaining())


def _iterate_completed(
    clients: Mapping[str, Client], start: Callable[[Client], RequestFuture[R]], deadline: Deadline
) -> Iterator[tuple[str, RequestFuture[R]]]:
    in_flight: dict[RequestFuture[R], str] = {}
    try:
        for name, client in clients.items():
            try:
                future = start(client)
            except McpError as error:
                future = failed_future(error, core_of(client).pools.workers)
            if not isinstance(future, RequestFuture):
                raise UsageError(
                    "start must return a future, as client.list_tools.future() does,"
                    f" not {kind_of(future)}"
                )
            in_flight[future] = name
        while in_flight:
            with lending_handler():
                done = wait(in_flight, deadline.remaining(), FIRST_COMPLETED).done
            if not done:
                raise TimeoutError(f"not all servers answered within {deadline.seconds:g} s")
            for future in [future for future in in_flight if future in done]:
                yield in_flight.pop(future), future
    finally:
        for future in in_flight:
            future.cancel()
