"""One server of a group, from the moment it is named to its end; and the options of its client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from syncmcp._base.checks import refuse_coroutines
from syncmcp._client.client import Client, Target
from syncmcp._client.core import core_of
from syncmcp._concurrency.timing import Deadline
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.config import Http, Stdio
from syncmcp.errors import ClosedError, McpError, MethodNotFound, NotSupported, UsageError
from syncmcp.group.catalog import Lists
from syncmcp.handlers.server import renamed
from syncmcp.servers_file.entry import ServerEntry

if TYPE_CHECKING:
    from syncmcp._client.subscriptions import Listener
    from syncmcp.errors import SubscriptionLost
    from syncmcp.handlers.roots import Roots
    from syncmcp.handlers.server import ConnectedServer


_log = logging.getLogger("syncmcp.group")

# What a server gets to agree to tell of changes, in seconds.
_LISTEN_SECONDS: Final = 5.0

Source: TypeAlias = Target | Client
"""What a group makes a server of: whatever a client takes as its target, or a client."""

State = Literal["opening", "open", "lost", "failed", "disabled", "closed"]
"""``"lost"``: the connection is gone; the next call to the server opens another one."""


OVER: Final = frozenset({"failed", "disabled", "closed"})
"""The states of a server that has nothing to be closed."""


class ServerStatus(NamedTuple):
    """How one server of a group stands.

    Attributes:
        state: See `State`.
        error: Why it is not there, if it failed or was lost.
        server: What it said of itself, while it is there.
    """

    state: State
    error: McpError | None = None
    server: ConnectedServer | None = None


class GroupMember:
    """A server of a group. Its fields are changed under the group's lock.

    Args:
        name: What the group calls it.
        source: What it is made of.
        shared: The options of all clients.
        own: Those of its own.
    """

    def __init__(
        self, name: str, source: Source, shared: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        self.name = name
        self.source = source
        self._shared = shared
        self.own = own
        self.client: Client | None = None
        # A client that the program had opened already is not ours to close.
        self._ours = True
        self.listener: Listener | None = None
        self.lists: Lists | None = None
        self.state: State = "opening"
        self.error: McpError | None = None
        self._ended = False

    @property
    def left(self) -> bool:
        """Whether there is something to be closed: Ctrl-C may have been in the way before."""
        return self.client is not None and not self._ended

    def prepare(self) -> Client:
        """Make its client. May ask a person, if a file in the working tree names the server.

        Raises:
            McpError: It cannot be made.
        """
        if isinstance(self.source, Client):
            self._ours = core_of(self.source).connection is None
            self.client = self.source
        else:
            stated = self.source.options if isinstance(self.source, ServerEntry) else {}
            options: dict[str, Any] = {
                **self._shared,
                **stated,
                **self.own,
                "name": self.name,
            }
            self.client = Client(self.source, **options)
        return self.client

    def is_same_as(self, other: GroupMember) -> bool:
        """Whether both are one server."""
        mine, theirs = self.client, other.client
        if mine is None or theirs is None:
            return False
        return mine is theirs or _same(
            core_of(mine).settings.target, core_of(theirs).settings.target
        )

    def fail(self, error: McpError) -> None:
        """It is not there, and this is why."""
        self.state, self.error = "failed", error

    def begin(self) -> None:
        """Say that it is to be opened: from now on `close` ends that."""
        assert self.client is not None
        core_of(self.client).want()

    def open(self, changed: Callable[[Lists], object]) -> Lists:
        """Connect, have changes told, and fetch what it offers. Blocks.

        Args:
            changed: Told what it offers, whenever that has changed, on a pool thread.

        Raises:
            McpError: One of it failed.
        """
        assert self.client is not None
        client = self.client
        core = core_of(client)
        deadline = Deadline(core.settings.open_timeout)
        core.open(deadline)
        # First: what changes after this is told.
        listener = self._listen(client, changed, deadline.sooner(_LISTEN_SECONDS))
        self.listener = listener
        return fetch(self.name, client, deadline)

    def _listen(
        self, client: Client, changed: Callable[[Lists], object], deadline: Deadline
    ) -> Listener | None:
        from syncmcp._client.changes import DEBOUNCE
        from syncmcp._client.subscriptions import refresh

        capabilities = client.server.capabilities
        asked = core_of(client).settings.undeclared == "try"
        tools, prompts, resources = (
            asked or bool(declared is not None and declared.list_changed)
            for declared in (capabilities.tools, capabilities.prompts, capabilities.resources)
        )
        wanted = ChangeFilter(tools, prompts, resources)
        if wanted == ChangeFilter():
            return None
        anew, lost = partial(fetch, self.name), partial(_lost, self.name)
        try:
            return refresh(core_of(client), wanted, anew, changed, DEBOUNCE, lost, deadline)
        except NotSupported:
            return None
        except ClosedError:
            raise
        except McpError as error:
            _log.warning("[%s] will not tell what changes: %s", self.name, error)
            return None

    def fetch(self) -> Lists:
        """All that it offers, now.

        Raises:
            McpError: A list could not be fetched.
        """
        assert self.client is not None
        return fetch(self.name, self.client)

    def close_by(self, deadline: Deadline) -> None:
        """End what the group began, until `deadline`."""
        self.close(deadline.remaining())

    def close(self, timeout: float | None) -> None:
        """End what the group began, within `timeout` seconds."""
        client, listener = self.client, self.listener
        if client is not None and self._ours:
            client.close(timeout)
        elif listener is not None:
            listener.stop(0)
        self._ended = True

    def status(self) -> ServerStatus:
        """How it stands at this moment."""
        client = self.client
        if self.state != "open" or client is None:
            return ServerStatus(self.state, self.error)
        core = core_of(client)
        connection, negotiated = core.connection, core.negotiated
        if connection is None or negotiated is None:
            return ServerStatus("closed" if not core.wanted else "lost")
        server = renamed(core.settings.connected(negotiated), self.name)
        dead = connection.close_error
        return ServerStatus("open" if dead is None else "lost", dead, server)


def fetch(name: str, client: Client, deadline: Deadline | None = None) -> Lists:
    """All that a server offers, which the group knows by `name`.

    Raises:
        McpError: A list could not be fetched.
    """

    def all_of(listing: Callable[..., Any], items: str) -> tuple[Any, ...]:
        options = {} if deadline is None else {"timeout": deadline.remaining()}
        try:
            return tuple(getattr(listing(**options), items))
        except (NotSupported, MethodNotFound):
            return ()

    return Lists(
        # A client that the program gave has a name of its own, which means nothing to the group.
        renamed(client.server, name),
        all_of(client.list_tools, "tools"),
        all_of(client.list_resources, "resources"),
        all_of(client.list_resource_templates, "resource_templates"),
        all_of(client.list_prompts, "prompts"),
    )


def _lost(name: str, error: SubscriptionLost) -> None:
    _log.warning("[%s] does not tell what changes any more: %s", name, error)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Http) and isinstance(other, Http):
        # Who is somebody else there is another server.
        return (one.url, one.headers, one.auth, one.session) == (
            other.url,
            other.headers,
            other.auth,
            other.session,
        )
    if isinstance(one, Stdio) and isinstance(other, Stdio):
        return (one.command, one.args, one.env, one.cwd) == (
            other.command,
            other.args,
            other.env,
            other.cwd,
        )
    return one is other


# What the clients of a group have in common, and each of its own.


# These are told which server it is about, before what a client's own are told.
_NAMED: Final = ("on_log", "on_progress", "on_notification")


class GroupOptions:
    """The options that a group gives to clients.

    Args:
        shared: Those for all of them. What keeps count, or may change, is one for all.
        per_server: Those for single ones, over the others.

    Raises:
        UsageError: An option makes no sense.
    """

    def __init__(
        self, shared: Mapping[str, Any], per_server: Mapping[str, Mapping[str, Any]]
    ) -> None:
        self._shared = dict(shared)
        _check_unnamed(self._shared)
        if self._shared.get("approval") is not None:
            from syncmcp.approval import as_approval

            self._shared["approval"] = as_approval(self._shared["approval"])
        self.roots: Roots | None = None
        if self._shared.get("roots") is not None:
            from syncmcp.handlers.roots import as_roots

            self._shared["roots"] = self.roots = as_roots(self._shared["roots"])
        for name in _NAMED:
            if self._shared.get(name) is not None:
                refuse_coroutines(self._shared[name], name)
        self._own = {name: dict(own) for name, own in per_server.items()}

    def check_known(self, servers: Container[str]) -> None:
        """Make sure that there are options for servers of the group alone.

        Raises:
            UsageError: There are others.
        """
        unknown = [name for name in self._own if name not in servers]
        if unknown:
            raise UsageError(f"per_server has {min(unknown)!r}, which is no server of the group")

    def keep(self, member: GroupMember) -> None:
        """Make a server from now on as this one was made."""
        self._own[member.name] = dict(member.own)

    def forget(self, name: str) -> None:
        """There is no such server any more."""
        self._own.pop(name, None)

    def member(
        self, name: str, source: Source, own: Mapping[str, Any] | None = None
    ) -> GroupMember:
        """A server of the group.

        Args:
            name: What the group calls it.
            source: What it is made of.
            own: Options of its own; by default those that are kept.

        Raises:
            UsageError: Its own options make no sense.
        """
        given = self._own.get(name, {}) if own is None else own
        _check_unnamed(given)
        if given and isinstance(source, Client):
            raise UsageError(f"{name!r} is a client, which has its options already")
        named = {
            key: partial(self._shared[key], name)
            for key in _NAMED
            if self._shared.get(key) is not None
        }
        return GroupMember(name, source, {**self._shared, **named}, given)


def _check_unnamed(options: Mapping[str, Any]) -> None:
    if "name" in options:
        raise UsageError("the servers of a group have the names that they are given by")
