"""The state of a group: its members, their opening and closing, and the catalog of their items."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, TypeVar

from syncmcp._base.text import logger
from syncmcp._client.client import Client
from syncmcp._client.core import core_of
from syncmcp._concurrency import timing
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.single_flight import SingleFlight
from syncmcp._concurrency.timing import Deadline
from syncmcp.errors import ClosedError, ConnectFailed, ForkedError, McpError, UsageError
from syncmcp.group.catalog import Catalog, Kind, Lists, NameHook, Offered
from syncmcp.group.member import ENDED_STATES, GroupMember, GroupOptions, Source, fetch, run_all
from syncmcp.servers_file.entry import NotApproved, ServerEntry
from syncmcp.servers_file.review import ServersFileError

T = TypeVar("T")

_log = logger("syncmcp.group")

# The extra time to wait for the threads that close servers, beyond the limit, in seconds.
_CLOSE_GRACE: Final = 1.0

Require: TypeAlias = "Literal['all', 'any'] | Iterable[str]"
"""The servers without which a group does not open; `()` if it needs no server."""


class RequiredServersFailed(ConnectFailed):
    """Required servers of a group could not be opened; the others were closed again.

    Attributes:
        errors: The error of each server that failed, by its name.
    """

    errors: Mapping[str, McpError] = MappingProxyType({})

    def _details(self) -> list[str]:
        # The error of an opening begins with the name of its server.
        return [f"{n}: {str(error).removeprefix(f'[{n}]: ')}" for n, error in self.errors.items()]


def checked_requirement(require: Any, servers: Container[str]) -> str | tuple[str, ...]:
    """Validate the option `require`: ``"all"``, ``"any"`` or names of known servers."""
    if isinstance(require, str) and require in ("all", "any"):
        return require
    if isinstance(require, str) or not isinstance(require, Iterable):
        raise UsageError(f"require must be 'all', 'any' or a list of names, not {require!r}")
    names = tuple(require)
    for name in names:
        if name not in servers:
            raise UsageError(f"{name!r} is required, but is not a server of the group")
    return names


def check_required(require: str | tuple[str, ...], members: list[GroupMember]) -> None:
    """Raise `RequiredServersFailed` unless the required servers are open."""
    errors = {member.name: member.error for member in members if member.error is not None}
    opened = {member.name for member in members if member.lists is not None}
    if require == "any":
        missing = [] if opened else list(errors)
    elif require == "all":
        missing = list(errors)
    else:
        missing = [name for name in require if name not in opened]
    if missing:
        names = ", ".join(map(repr, missing))
        text = (
            "no server could be opened" if require == "any" else f"required servers failed: {names}"
        )
        failed = RequiredServersFailed(text, errors=errors)
        raise failed from next((errors[name] for name in missing if name in errors), None)


class _OpenClients(dict[str, Client]):
    """The clients of the open servers, by name."""

    def __init__(self, members: Mapping[str, GroupMember]) -> None:
        super().__init__(
            (name, member.client)
            for name, member in members.items()
            if member.state == "open" and member.client is not None
        )
        self._errors = {name: member.error for name, member in members.items()}

    def __missing__(self, name: str) -> Client:
        error = self._errors.get(name)
        why = "" if error is None else f" ({error}; see status[{name!r}].error)"
        raise KeyError(
            f"no server {name!r} is open{why}; open servers: {', '.join(self) or 'none'}"
        ) from error


class GroupState:
    """The servers of a group. Methods may be called from any thread.

    `sources` has the servers of the argument, with added servers and without removed servers.
    `limit` is the longest time to close a server whose opening failed, in seconds.
    """

    def __init__(
        self,
        sources: dict[str, Source],
        options: GroupOptions,
        require: str | tuple[str, ...],
        hook: NameHook | None,
        limit: float | None,
    ) -> None:
        self.sources = sources
        self._options = options
        self._require = require
        self._hook = hook
        self._limit = limit
        # Guards the attributes below; never held while a server is opened, closed or called.
        self._lock = threading.RLock()
        self.state: Literal["closed", "opening", "open"] = "closed"
        self._members: dict[str, GroupMember] = {}
        self.catalog = Catalog()
        # Held while a merge is computed; the set has the id of the computing thread. Never acquired
        # while the lock above is held. Each opening has its own: see `_close_members`.
        self._turn, self._merging = threading.RLock(), set[int]()
        self._generation = timing.fork_generation
        self._single_flight = self._new_flight()

    # -- all servers -----------------------------------------------------------------------------

    def open(self) -> None:
        """See `ClientGroup.open`."""
        self._check_process()
        self._single_flight.run(lambda: self.state == "open" or None, self._open, detached=False)

    def _open(self, _: object) -> bool:
        """Open all servers, on the first thread that opens; others wait for the outcome."""
        self._close_members(self._limit)  # servers that an interrupted open or close has left open
        mine: dict[str, GroupMember] = {}
        try:
            with self._lock:
                mine = {
                    name: self._options.create_member(name, source)
                    for name, source in self.sources.items()
                }
                self._generation = timing.fork_generation
                self._members, self.state = mine, "opening"
            members = list(mine.values())
            self._create_clients(members)
            self._open_all(members)
            check_required(self._require, members)
            self._publish([member for member in members if member.lists is not None], opening=mine)
        except BaseException:  # Ctrl-C, too
            if self._members is mine:
                self._close_members(self._limit)
            raise
        return True

    def close(self, limit: float | None) -> None:
        """Close all, within `limit` seconds; see `ClientGroup.close`."""
        if self._generation != timing.fork_generation:
            return  # the connections belong to the parent process, which still uses them
        # A later `open` must not wait for the opening that this close ends, and fail with it.
        self._single_flight = self._new_flight()
        self._close_members(limit)

    def _close_members(self, limit: float | None) -> None:
        with self._lock:
            # First: if this close is interrupted, the next close or open closes the rest.
            self.state = "closed"
            self.catalog = Catalog()
            # A later `open` must not wait for a merge whose result is now useless: its hook may be
            # slow, or its thread may exist in the parent process only.
            self._turn, self._merging = threading.RLock(), set[int]()
            for member in self._members.values():
                if member.state not in ENDED_STATES:
                    member.state = "closed"
            unclosed = [member for member in self._members.values() if member.needs_close]
        _close(unclosed, limit)

    def refresh(self) -> None:
        """See `ClientGroup.refresh`."""
        with self._lock:
            self.check_open()
            members = {n: member for n, member in self._members.items() if member.state == "open"}
            before = {name: member.lists for name, member in members.items()}
        jobs = {
            name: partial(fetch, name, member.client)
            for name, member in members.items()
            if member.client is not None
        }
        outcomes = run_all(jobs)
        fetched: list[GroupMember] = []
        for name, outcome in outcomes.items():
            if isinstance(outcome, Lists):
                with self._lock:
                    if members[name].lists is before[name]:  # not replaced by a later notification
                        members[name].lists = outcome
                fetched.append(members[name])
            else:
                _log.warning("[%s] could not fetch its lists: %s", name, outcome)
        self._publish(fetched)

    # -- single servers --------------------------------------------------------------------------

    def add(self, name: str, source: Source, own: Mapping[str, Any]) -> Client:
        """See `ClientGroup.add`."""
        self._check_process()
        member = self._options.create_member(name, source, own)
        # Waits while another thread opens the group.
        self._single_flight.run(lambda: self.state != "opening" or None, self._open, detached=False)
        try:
            with self._lock:
                self.check_open()
                if name in self._members:
                    raise UsageError(f"the group already has a server {name!r}")
                self._members[name] = member
            client = member.create_client()
            with self._lock:
                self._refuse_duplicate(member, self._members.values())
            self._open_one(member)
            self._publish([member])
            if member.state != "open":
                raise _closed_error(name)
        except BaseException:
            self._close_member(member, self._limit)
            raise
        return client

    def remove(self, name: str, limit: float | None) -> None:
        """See `ClientGroup.remove`."""
        self._check_process()
        with self._lock:
            if name not in self._members and name not in self.sources:
                raise UsageError(f"the group has no server {name!r}")
            self.sources.pop(name, None)
            self._options.discard(name)
            self.catalog = self.catalog.without(name)
            member = self._members.get(name)
            if member is not None:
                member.state = "closed"  # a later merge must not add it again
        if member is not None:
            self._close_member(member, limit)

    def members(self) -> dict[str, GroupMember]:
        """All members at this moment, in any state."""
        with self._lock:
            return dict(self._members)

    def clients(self) -> dict[str, Client]:
        """The clients of the open servers, by name."""
        with self._lock:
            return _OpenClients(self._members)

    def route(self, find: Callable[[Catalog], tuple[Offered, T]]) -> tuple[Client, str, T]:
        """Return the client and the name of an item's server, and the argument that `find` returns.

        Raises a `ClosedError` if the group is not open, or if the server was just removed.
        """
        catalog = self.catalog
        with self._lock:
            self.check_open()
        try:
            found, argument = find(catalog)
        except UsageError as error:
            with self._lock:
                away = [name for name, one in self._members.items() if one.state != "open"]
            if away:
                error.args = (f"{error.message} (not open: {', '.join(away)}; see status)",)
            raise
        with self._lock:
            member = self._members.get(found.server)
            if member is None or member.state != "open" or member.client is None:
                raise _closed_error(found.server)
            return member.client, found.server, argument

    def check_open(self) -> None:
        """Raise a `ClosedError` unless the group is open, and a `ForkedError` after a fork."""
        self._check_process()
        if self.state != "open":
            raise _closed_error()

    def shown(self, kind: Kind) -> Mapping[str, Any]:
        """Return the items of one kind by key; raise `ClosedError` if the group is not open."""
        self.check_open()
        return self.catalog.shown[kind]

    # -- steps of opening and closing ------------------------------------------------------------

    def _new_flight(self) -> SingleFlight[bool]:
        return SingleFlight(
            lambda: None, "syncmcp-group", late="", reentered="the group is being opened"
        )

    def _close_member(self, member: GroupMember, limit: float | None) -> None:
        """Close one server, and then discard it."""
        with self._lock:
            member.state = "closed"
        if member.needs_close:
            member.close(Deadline(limit))
        with self._lock:
            if self._members.get(member.name) is member:
                del self._members[member.name]

    def _create_clients(self, members: list[GroupMember]) -> None:
        """Create the clients, sequentially in this thread: a person may have to approve some."""
        for position, member in enumerate(members):
            source = member.source
            if isinstance(source, ServerEntry) and source.disabled:
                member.state = "disabled"
                continue
            try:
                member.create_client()
            except (ServersFileError, NotApproved) as error:
                member.fail(error)
            else:
                self._refuse_duplicate(member, members[:position])

    def _refuse_duplicate(self, member: GroupMember, others: Iterable[GroupMember]) -> None:
        for other in others:
            if (
                other is not member
                and other.state not in ENDED_STATES
                and member.is_same_server(other)
            ):
                names = f"{other.name!r} and {member.name!r}"
                raise UsageError(f"{names} are the same server, {member.label}: leave one out")

    def _open_all(self, members: list[GroupMember]) -> None:
        jobs = {
            member.name: partial(self._open_one, member)
            for member in members
            if member.state == "opening"
        }
        outcomes = run_all(jobs)
        for member in members:
            outcome = outcomes.get(member.name)
            if isinstance(outcome, McpError):
                with self._lock:
                    if member.state == "opening":
                        member.fail(outcome)

    def _open_one(self, member: GroupMember) -> None:
        """Open one server; close it again if that fails."""
        try:
            with self._lock:
                if member.state != "opening":
                    raise _closed_error(member.name)
                assert member.client is not None
                core_of(member.client).allow_opening()  # a later `close` ends this opening
            lists = member.open(
                partial(GroupState._on_change, weakref.ref(self), weakref.ref(member))
            )
            with self._lock:
                if member.lists is None:  # otherwise a notification has set newer lists
                    member.lists = lists
        except BaseException:
            member.close(Deadline(self._limit))
            raise

    def _publish(
        self, members: list[GroupMember], *, opening: Mapping[str, GroupMember] | None = None
    ) -> None:
        """Merge the lists of members into the catalog; skip members that were removed.

        `opening` has all members, if this call opens the group.

        Only one thread merges at a time, so each merge is computed once. A server whose lists
        change constantly does not delay this call: later changes are merged on a pool thread.
        """
        thread = threading.get_ident()
        if thread in self._merging:
            raise UsageError("name_hook must not add a server to its group, or refresh it")
        with lending_handler(), self._turn:
            try:
                self._merging.add(thread)
                left_out, missed = self._merge(members, opening)
            finally:
                self._merging.discard(thread)
        # Outside of the lock, because log handlers of the program may run.
        for member, new in left_out.items():
            self._log_left_out(member, new)
        for member in missed:
            assert member.client is not None
            core_of(member.client).pools.workers.run(partial(self._publish_change, member))

    def _merge(
        self, members: list[GroupMember], opening: Mapping[str, GroupMember] | None
    ) -> tuple[dict[GroupMember, list[str]], list[GroupMember]]:
        """Merge the lists as described at `_publish`, while no other thread adds to the catalog.

        Returns the newly omitted items of each member, and the members whose lists have changed
        since.
        """
        with self._lock:
            current = self._current_members(members, opening)
            before = self.catalog
            news = {member.name: member.lists for member in current if member.lists is not None}
        # Outside of the lock, because it calls the hook.
        after = before.with_servers(news, self._hook)
        with self._lock:
            current = self._current_members(current, opening)
            if not current and opening is None:
                return {}, []  # removed; or the group was closed and opened again
            # Omit servers that another thread has removed during the merge.
            kept = {*self.catalog.servers, *(member.name for member in current)}
            for name in after.servers:
                if name not in kept:
                    after = after.without(name)
            self.catalog = after
            # `_on_change` has stored newer lists of these members, but not published them.
            missed = [
                member
                for member in current
                if member.state == "opening" and member.lists is not news.get(member.name)
            ]
            for member in current:
                member.state = "open"
                self.sources[member.name] = member.source
                self._options.save(member)
            self.state = "open"
        known = {str(item) for item in before.left_out}
        new: defaultdict[str, list[str]] = defaultdict(list)
        for item in after.left_out:
            if (text := str(item)) not in known:
                new[item.server].append(text)
        return {member: new[member.name] for member in current}, missed

    @staticmethod
    def _log_left_out(member: GroupMember, new: list[str]) -> None:
        if not new:
            return
        first, more = member.redact(new[0]), len(new) - 1
        others = f"; so are {more} others, see status" if more else ""
        member.log.log(_log, logging.WARNING, "[%s] %s%s", member.name, first, others)

    def _current_members(
        self, members: list[GroupMember], opening: Mapping[str, GroupMember] | None
    ) -> list[GroupMember]:
        if opening is None:
            self.check_open()
        elif self.state != "opening" or self._members is not opening:
            raise _closed_error()
        return [
            member
            for member in members
            if self._members.get(member.name) is member and member.state not in ENDED_STATES
        ]

    @staticmethod
    def _on_change(
        group_ref: weakref.ref[GroupState], member_ref: weakref.ref[GroupMember], lists: Lists
    ) -> None:
        """Publish the new lists of a server, on a pool thread of its client."""
        self, member = group_ref(), member_ref()
        if self is None or member is None:
            return
        with self._lock:
            member.lists = lists
            if member.state != "open":
                return  # the thread that opens it will publish the lists
        self._publish_change(member)

    def _publish_change(self, member: GroupMember) -> None:
        """Merge the lists of an open member, on a pool thread."""
        try:
            self._publish([member])
        except ClosedError:
            return  # the lists are no longer needed
        except UsageError as error:
            text = "[%s] could not merge its changed lists: %s"
            member.log.log(_log, logging.WARNING, text, member.name, error)

    def _check_process(self) -> None:
        if self._generation != timing.fork_generation and self.state != "closed":
            raise ForkedError(
                "this group belongs to the parent process; make a new one after a fork"
            )


def _closed_error(server: str | None = None) -> ClosedError:
    if server is None:
        return ClosedError("the group is not open: use it in a with block, or call open()")
    return ClosedError("the group has closed or removed this server", server=server)


def _close(members: list[GroupMember], limit: float | None) -> None:
    """Close servers in parallel, within `limit` seconds."""
    deadline = Deadline(limit)
    if len(members) == 1:
        members[0].close(deadline)  # in this thread
        return
    jobs = {member.name: partial(member.close, deadline) for member in members}
    run_all(jobs, None if limit is None else limit + _CLOSE_GRACE)
