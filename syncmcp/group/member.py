"""One server of a group: its client, its state and its lists; and the options of its client."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Set
from concurrent.futures import Future, wait
from functools import partial
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeVar

from syncmcp._base.checks import check_callable, text
from syncmcp._base.text import logger, visible
from syncmcp._client.changes import DEBOUNCE
from syncmcp._client.client import Client, Target
from syncmcp._client.core import core_of
from syncmcp._client.opening import label_of
from syncmcp._client.subscriptions import Listener, refresh
from syncmcp._concurrency.limited_log import LimitedLog
from syncmcp._concurrency.pool import DaemonPool, lending_handler
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.client_services import CALLBACK_ARGUMENTS
from syncmcp._connection.options import keyword_hint, options_of_targets
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.approval import as_approval
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    McpError,
    MethodNotFound,
    NotSupported,
    SubscriptionLost,
    UsageError,
)
from syncmcp.group.catalog import KINDS, Lists
from syncmcp.handlers.context import ConnectedServer, renamed
from syncmcp.handlers.roots import Roots, as_roots
from syncmcp.servers_file.entry import ServerEntry

R = TypeVar("R")

_log = logger("syncmcp.group")

# The time for subscribing to a server's changes, in seconds.
_LISTEN_SECONDS: Final = 5.0

Source: TypeAlias = Target | Client
"""A server for a group: a target as for `Client`, or a client."""

State = Literal["opening", "open", "lost", "failed", "disabled", "closed"]
"""The state of a server. If ``"lost"``, the next call opens another connection.

A server over HTTP stays ``"open"`` while it cannot be reached, because the client holds no
connection to it: `ClientGroup.ping` checks it.
"""


ENDED_STATES: Final = frozenset({"failed", "disabled", "closed"})
"""The states in which a server has no open connection."""


class ServerStatus(NamedTuple):
    """The status of one server of a group.

    Attributes:
        state: See `State`.
        error: The error, if the server failed or its connection was lost.
        server: The server's description, while the group has a connection to it.
        left_out: The items of the server that the group omits, each with the reason.
    """

    state: State
    error: McpError | None = None
    server: ConnectedServer | None = None
    left_out: tuple[str, ...] = ()


class GroupMember:
    """A server of a group. The group's lock guards its attributes.

    The options of a member override those that all clients of the group share.
    """

    def __init__(
        self, name: str, source: Source, shared: Mapping[str, Any], own: Mapping[str, Any]
    ) -> None:
        # `mine | read(...)` has the plain key of `mine` with the entry of the file. So a key that
        # equals the name in a guarded file does not show that the program chose it.
        self.name = name
        if isinstance(source, ServerEntry) and source.name == name:
            self.name = source.name
        self.source = source
        self._shared = shared
        self.own = own
        self.client: Client | None = None
        # `False` for a client that the program had opened already, which the group must not close.
        self._owns_client = True
        self.listener: Listener | None = None
        self.lists: Lists | None = None
        self.state: State = "opening"
        self.error: McpError | None = None
        # For log records that the server can provoke with its lists.
        self.log = LimitedLog()
        self._closed = False

    @property
    def needs_close(self) -> bool:
        """Whether the client must still be closed: Ctrl-C may have interrupted a close."""
        return self.client is not None and not self._closed

    def create_client(self) -> Client:
        """Create the client.

        The method may ask a person for approval of a server named by a servers file.
        """
        if isinstance(self.source, Client):
            self._owns_client = core_of(self.source).connection is None
            self.client = self.source
        else:
            entry_options = self.source.options if isinstance(self.source, ServerEntry) else {}
            options: dict[str, Any] = {**self._shared, **entry_options, **self.own}
            options["name"] = self.name
            try:
                self.client = Client(self.source, **options)
            except UsageError as error:
                error.server = error.server or self.name
                raise
        return self.client

    def is_same_server(self, other: GroupMember) -> bool:
        """Return whether both members are the same server: one client, or equal targets."""
        if self.client is None or other.client is None:
            return False
        if self.client is other.client:
            return True
        mine, theirs = (core_of(each).settings.target for each in (self.client, other.client))
        if type(mine) is not type(theirs) or type(mine) not in _IDENTITY:
            return mine is theirs
        return all(getattr(mine, name) == getattr(theirs, name) for name in _IDENTITY[type(mine)])

    @property
    def label(self) -> str:
        """The target of the client: a URL, a command, or the name of a server."""
        return self.name if self.client is None else label_of(core_of(self.client).settings.target)

    def redact(self, text: str) -> str:
        """Remove the secrets of the client from a text that quotes the server."""
        return text if self.client is None else core_of(self.client).wire.secrets.redact(text)

    def fail(self, error: McpError) -> None:
        """Set the state to failed, with its error."""
        self.state, self.error = "failed", error

    def open(self, changed: Callable[[Lists], object]) -> Lists:
        """Connect, subscribe to changes, and fetch the lists; block until then.

        After each change, `changed` is called with the new lists, on a pool thread.
        """
        client = self.client
        assert client is not None
        core = core_of(client)
        deadline = Deadline(core.settings.open_timeout)
        core.open(deadline)
        # Before fetching, so that no later change is missed.
        self.listener = self._listen(client, changed, deadline.sooner(_LISTEN_SECONDS))
        return fetch(self.name, client, deadline)

    def _listen(
        self, client: Client, changed: Callable[[Lists], object], deadline: Deadline
    ) -> Listener | None:
        wanted = declared_changes(client, ChangeFilter(True, True, True))
        if not wanted.kinds:
            return None
        fetch_lists, log_lost = partial(fetch, self.name), partial(_log_lost, self.name)
        try:
            return refresh(
                core_of(client), wanted, fetch_lists, changed, DEBOUNCE, log_lost, deadline
            )
        except NotSupported:
            return None
        except ClosedError:
            raise
        except McpError as error:
            _log.warning("[%s] sends no change notifications: %s", self.name, error)
            return None

    def close(self, deadline: Deadline) -> None:
        """Close the client if the group opened it, otherwise the listener, until `deadline`."""
        client, listener = self.client, self.listener
        if client is not None and self._owns_client:
            client.close(deadline.remaining())
        elif listener is not None:
            listener.stop(0)
        self.log.flush()
        self._closed = True

    def status(self) -> ServerStatus:
        """Return the present status."""
        client = self.client
        if self.state != "open" or client is None:
            return ServerStatus(self.state, self.error)
        core = core_of(client)
        connection, negotiated = core.connection, core.negotiated
        if connection is None or negotiated is None:
            return ServerStatus("closed" if not core.may_open else "lost")
        server = renamed(core.settings.connected_server(negotiated), self.name)
        dead = connection.close_error
        return ServerStatus("open" if dead is None else "lost", dead, server)


def fetch(name: str, client: Client, deadline: Deadline | None = None) -> Lists:
    """Fetch the present lists of the server with that name in the group."""

    def all_of(kind: str) -> tuple[Any, ...]:
        options = {} if deadline is None else {"timeout": deadline.remaining()}
        try:
            return tuple(getattr(getattr(client, f"list_{kind}")(**options), kind))
        except (NotSupported, MethodNotFound):
            return ()

    # A client that the program created may have another name than the server has in the group.
    return Lists(renamed(client.server, name), *map(all_of, KINDS))


def declared_changes(
    client: Client, wanted: ChangeFilter, undeclared: Undeclared | None = None
) -> ChangeFilter:
    """Return the part of `wanted` that the server declares, or all of `wanted` with ``"try"``."""
    if core_of(client).resolve({"undeclared": undeclared}).undeclared == "try":
        return wanted
    capabilities = client.server.capabilities
    missing: Any = {
        kind: False
        for kind in wanted.kinds
        if not getattr(getattr(capabilities, kind), "list_changed", False)
    }
    return wanted._replace(**missing)


def _log_lost(name: str, error: SubscriptionLost) -> None:
    _log.warning("[%s] sends no more change notifications: %s", name, error)


# The attributes that identify a server: one URL with two credentials counts as two servers.
_IDENTITY: Final[Mapping[type, tuple[str, ...]]] = {
    Http: ("url", "headers", "auth", "session"),
    Stdio: ("command", "args", "env", "cwd"),
}


# Callbacks that get the server's name as an additional first argument.
_NAMED_CALLBACKS: Final = ("on_log", "on_progress", "on_notification")


class GroupOptions:
    """The options of a group's clients, which share stateful options (`approval`, `roots`).

    The options of a single server override the shared ones.

    Args:
        shared: The options of all clients.
        per_server: The options of single servers, by name.
        servers: The names of the servers.
        names: The names of the group's own options, for hints.
    """

    def __init__(
        self,
        shared: Mapping[str, Any],
        per_server: Mapping[str, Mapping[str, Any]],
        servers: Set[str],
        names: Set[str],
    ) -> None:
        self._shared = dict(shared)
        _refuse_own(self._shared)
        known = inspect.signature(Client).parameters
        if unknown := self._shared.keys() - known.keys():
            word = min(unknown)
            hint = _hint(word, known.keys() | names)
            if not (hint or servers):
                hint = f"pass servers as a mapping: ClientGroup({{{word!r}: ...}})"
            text = f"ClientGroup() got an unexpected keyword argument {word!r}"
            raise TypeError(f"{text}: {hint}" if hint else text)
        if self._shared.get("approval") is not None:
            self._shared["approval"] = as_approval(self._shared["approval"])
        self.roots: Roots | None = None
        if self._shared.get("roots") is not None:
            self._shared["roots"] = self.roots = as_roots(self._shared["roots"])
        # A logger needs no extra argument: the name of its child logger has the server's name.
        self._named: dict[str, Callable[..., object]] = {
            name: self._shared.pop(name)
            for name in _NAMED_CALLBACKS
            if not isinstance(self._shared.get(name), (logging.Logger, NoneType))
        }
        for name, callback in self._named.items():
            check_callable(callback, name, ("server", *CALLBACK_ARGUMENTS[name]))
        self._own = {name: dict(own) for name, own in per_server.items()}
        if strangers := self._own.keys() - servers:
            text = f"per_server has {min(strangers)!r}, which is not a server of the group"
            raise UsageError(text)
        for name, own in self._own.items():
            _check_own(own, f"per_server[{name!r}]")

    def save(self, member: GroupMember) -> None:
        """Store the options of a member, for the next time that the group opens."""
        self._own[member.name] = dict(member.own)

    def discard(self, name: str) -> None:
        """Discard the options of a removed server."""
        self._own.pop(name, None)

    def create_member(
        self, name: str, source: Source, own: Mapping[str, Any] | None = None
    ) -> GroupMember:
        """Create a member of the group, with the stored options, unless it has its `own`."""
        options = self._own.get(name, {}) if own is None else own
        _check_own(options, f"the server {name!r}")
        if options and isinstance(source, Client):
            raise UsageError(f"{name!r} is a client, which already has its options")
        named = {key: partial(callback, name) for key, callback in self._named.items()}
        return GroupMember(name, source, {**self._shared, **named}, options)


def _hint(word: str, known: Set[str]) -> str:
    """Return what to write instead of an unknown option."""
    if word in options_of_targets()["Http"]:
        return "write Http(URL, ...) as the server, with its options"
    return keyword_hint(word, known - {"name", "target"})


def check_server_name(name: object) -> None:
    """Refuse a name with hidden characters: keys begin with the name, and people read keys."""
    text(name, "the name of a server")
    if visible(str(name)) != name:
        raise UsageError(f"the name of a server has control or hidden characters: {name!a}")


def _check_own(options: Mapping[str, Any], owner: str) -> None:
    """Refuse options of one server that a client does not have."""
    _refuse_own(options)
    known = inspect.signature(Client).parameters.keys()
    if unknown := options.keys() - known:
        text = f"{owner} has the unknown option {min(unknown)!r}"
        hint = _hint(min(unknown), known)
        raise TypeError(f"{text}: {hint}" if hint else text)


def _refuse_own(options: Mapping[str, Any]) -> None:
    """Refuse the options that a group decides."""
    if "name" in options:
        raise UsageError("a group names its servers by the keys of its mapping: pass no name=")
    if "lazy" in options:
        raise UsageError("a group opens its servers at the same time: pass no lazy=")


# -- the same job for many servers ----------------------------------------------------------------

MAX_PARALLEL: Final = 32
"""The most servers that are opened or closed at the same time."""


def run_all(
    jobs: Mapping[str, Callable[[], R]], limit: float | None = None
) -> dict[str, R | McpError]:
    """Run jobs on threads of their own; return the result or error of each.

    Jobs that have not ended within `limit` seconds continue, and are not in the result. An
    exception that is not an `McpError` is raised.
    """
    # Idle threads end at once (`linger`), so that the pool needs no closing after an interrupt.
    workers = DaemonPool("syncmcp-group", MAX_PARALLEL, linger=0.0)
    futures: dict[str, Future[R]] = {name: Future() for name in jobs}
    for name, job in jobs.items():
        workers.run(partial(_run_job, job, futures[name]))
    with lending_handler():
        done = wait(futures.values(), limit).done
    outcomes: dict[str, R | McpError] = {}
    for name, future in futures.items():
        if future in done:
            error = future.exception()
            if error is not None and not isinstance(error, McpError):
                raise error
            outcomes[name] = future.result() if error is None else error
    return outcomes


def _run_job(job: Callable[[], R], future: Future[R]) -> None:
    try:
        result = job()
    except BaseException as error:  # returned to the caller of `run_all`
        future.set_exception(error)
    else:
        future.set_result(result)
