"""Being told of changes by all servers of a group at one time."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from syncmcp._base.checks import seconds, whole_number
from syncmcp._client.core import core_of
from syncmcp._client.subscriptions import open_subscription
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.queue import EventQueue
from syncmcp._concurrency.timing import Deadline, acquire, reaper
from syncmcp._protocol.subscription import ChangeFilter
from syncmcp.errors import McpError, NotSupported, UsageError
from syncmcp.group.parallel import run_all

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.client import Client
    from syncmcp._client.listening import SubscriptionBackend
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.subscription import ChangeEvent

_log = logging.getLogger("syncmcp.group")


class _Inboxes:
    """The inboxes of several servers, looked into as one. Knows nobody who looks."""

    def __init__(self, names: Sequence[str]) -> None:
        # Guards all of it. Reentrant as all locks that a close may need; see `timing`.
        self._lock = threading.RLock()
        # What those who wait are woken with.
        self._bells: list[threading.Lock] = []
        self.of = {name: EventQueue(self._stirred) for name in names}
        # Those that may still have something; who was served comes last.
        self._turns = dict(self.of)
        self.errors: dict[str, McpError] = {}

    def next(self, limit: float | None) -> tuple[str, ChangeEvent] | None:
        """Wait, at most so many seconds, for an event; `None` once there will be none.

        Raises:
            TimeoutError: None came.
        """
        deadline = Deadline(limit)
        while True:
            bell = threading.Lock()
            lost: list[tuple[str, McpError]] = []
            with self._lock:
                found = self._take(lost)
                over, late = found is not None or not self._turns, deadline.expired
                if not over and not late:
                    bell.acquire()
                    self._bells.append(bell)
            for name, error in lost:
                _log.warning("[%s] %s", name, error)
            if over:
                return found
            if late:
                raise TimeoutError(f"nothing changed within {limit:g} s")
            try:
                with lending_handler():
                    acquire(bell, deadline.remaining())
            finally:
                with self._lock:
                    if bell in self._bells:
                        self._bells.remove(bell)

    def leave_out(self, name: str, error: McpError) -> None:
        """A server will tell nothing, and this is why."""
        with self._lock:
            self._turns.pop(name, None)
            self.errors[name] = error

    def _take(self, lost: list[tuple[str, McpError]]) -> tuple[str, ChangeEvent] | None:
        """The next event that is there, and who is `lost`; called with the lock held."""
        for name, inbox in list(self._turns.items()):
            try:
                event = inbox.next(0)
            except TimeoutError:
                continue
            except McpError as error:
                lost.append((name, error))
                self.leave_out(name, error)
                continue
            del self._turns[name]
            if event is not None:
                self._turns[name] = inbox
                return name, event
        return None

    def _stirred(self) -> None:
        """On the thread that brings an event, or an end."""
        with self._lock:
            bells = list(self._bells)
            self._bells.clear()
        for bell in bells:
            bell.release()


class GroupSubscription:
    """Changes that the servers of a group tell of; made by `ClientGroup.listen`.

    An iterator of pairs: the name of the server, and a `ChangeEvent`, in which things are called
    what that server calls them. It goes on while one of the servers can tell something, and ends
    as a `Subscription` does. Several threads may iterate; each event goes to one.
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        listenings: Mapping[str, SubscriptionBackend],
        inboxes: _Inboxes,
        timeout: float | None,
        stop_after: int | None,
    ) -> None:
        # Strongly: who waits for events of a client is not done with it.
        self._clients = clients
        self._listenings = listenings
        self._inboxes = inboxes
        self._timeout = timeout
        # Guards what follows.
        self._lock = threading.RLock()
        self._left = stop_after
        self._finalizer = weakref.finalize(self, reaper.put, partial(_abandon, listenings))
        self._finalizer.atexit = False

    @property
    def lists(self) -> Mapping[str, tuple[str, ...]]:
        """The lists that each server agreed to tell of, by its name."""
        found = {name: one.granted.kinds for name, one in self._listenings.items()}
        return MappingProxyType(found)

    @property
    def uris(self) -> Mapping[str, tuple[str, ...]]:
        """The resources that each server agreed to tell of, by its name."""
        found = {name: one.granted.uris for name, one in self._listenings.items()}
        return MappingProxyType(found)

    @property
    def errors(self) -> Mapping[str, McpError]:
        """Why servers do not tell anything, or any more, by their names."""
        return MappingProxyType(dict(self._inboxes.errors))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> tuple[str, ChangeEvent]:
        """Wait for the next event.

        Raises:
            TimeoutError: Nothing changed within `timeout`. The subscription goes on.
            ForkedError: The clients belong to the parent process.
        """
        for client in self._clients.values():
            core_of(client).check_process()
        found = self._inboxes.next(self._timeout)
        if found is None or not self._counts():
            self.close()
            raise StopIteration
        return found

    def _counts(self) -> bool:
        """Whether one more event is wanted; after the last, no more comes."""
        with self._lock:
            if self._left is None:
                return True
            self._left -= 1
            last = self._left
        if last == 0:
            for inbox in self._inboxes.of.values():
                inbox.end()
        return last >= 0

    def close(self, timeout: float | None = None) -> None:
        """End it, from any thread: who waits for an event is woken, and the iteration is over.

        Args:
            timeout: The longest that telling the servers may take, in seconds; by default the
                `close_timeout` of each client.
        """
        self._finalizer.detach()
        limit = seconds(timeout, "timeout")
        for inbox in self._inboxes.of.values():
            inbox.end()
        jobs = {
            name: partial(
                listening.close,
                Deadline(
                    core_of(self._clients[name]).settings.close_timeout
                    if timeout is None
                    else limit
                ),
            )
            for name, listening in self._listenings.items()
        }
        for outcome in run_all(jobs, Deadline(None)).values():
            if isinstance(outcome, BaseException):
                raise outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}: {one.granted}" for name, one in self._listenings.items())
        return f"<GroupSubscription to {told}>"


def listen(
    clients: Mapping[str, Client],
    lists: ChangeFilter,
    at: Mapping[str, Sequence[str]],
    *,
    timeout: float | None,
    stop_after: int | None,
    undeclared: Undeclared | None,
) -> GroupSubscription:
    """Make a subscription; see `ClientGroup.listen`.

    Args:
        clients: The servers that there are.
        lists: The lists of all of them that are wanted.
        at: The resources that are wanted, by their servers.
        timeout: The longest time, in seconds, to wait for an event.
        stop_after: End after so many events.
        undeclared: Whether servers are asked for what they do not declare.
    """
    limit = seconds(timeout, "timeout")
    if stop_after is not None:
        whole_number(stop_after, "stop_after")
    if not lists.kinds and not at:
        raise UsageError("say what to listen to: tools, prompts, resources or uris")
    wanted = {
        name: _told_by(client, lists, at.get(name, ()), undeclared)
        for name, client in clients.items()
    }
    wanted = {name: one for name, one in wanted.items() if one.kinds or one.uris}
    inboxes = _Inboxes(list(wanted))
    listenings: dict[str, SubscriptionBackend] = {}

    def ask(name: str) -> None:
        inbox = inboxes.of[name]
        listenings[name] = listening = open_subscription(
            core_of(clients[name]), wanted[name], inbox, undeclared=undeclared
        )
        if inbox.ended:  # whoever wanted it has gone meanwhile
            listening.close_in_background()

    try:
        outcomes = run_all({name: partial(ask, name) for name in wanted}, Deadline(None))
        for name, outcome in outcomes.items():
            if isinstance(outcome, McpError):
                inboxes.leave_out(name, outcome)
            elif outcome is not None:
                raise outcome
        if not listenings:
            for error in inboxes.errors.values():
                raise error
            raise NotSupported(
                "no server of the group declares that it tells of this"
                ' (undeclared="try" asks for it all the same)'
            )
    except BaseException:  # Ctrl-C, too
        for inbox in inboxes.of.values():
            inbox.end()
        _abandon(listenings)
        raise
    agreed = {name: listenings[name] for name in wanted if name in listenings}
    there = {name: clients[name] for name in agreed}
    return GroupSubscription(there, agreed, inboxes, limit, stop_after)


def _told_by(
    client: Client, lists: ChangeFilter, uris: Sequence[str], undeclared: Undeclared | None
) -> ChangeFilter:
    """What of it one server says that it tells of, or is to be asked for all the same."""
    if core_of(client).resolve({"undeclared": undeclared}).undeclared == "try":
        return lists._replace(uris=tuple(uris))
    offers = client.server.capabilities
    told = [kind for kind in lists.kinds if getattr(getattr(offers, kind), "list_changed", False)]
    return ChangeFilter("tools" in told, "prompts" in told, "resources" in told, tuple(uris))


def _abandon(listenings: Mapping[str, SubscriptionBackend]) -> None:
    for listening in list(listenings.values()):
        listening.close_in_background()
