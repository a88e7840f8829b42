"""Subscriptions to changes at all servers of a group, merged into one iterator."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from typing_extensions import Self

from syncmcp._base.checks import seconds, whole_number
from syncmcp._base.text import logger
from syncmcp._client.client import Client
from syncmcp._client.core import core_of
from syncmcp._client.listening import SubscriptionBackend
from syncmcp._client.subscriptions import open_subscription
from syncmcp._concurrency.event_queue import EventQueue
from syncmcp._concurrency.timing import Deadline, reaper
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter
from syncmcp.errors import McpError, NotSupported, UsageError
from syncmcp.group.member import declared_changes, run_all

_log = logger("syncmcp.group")


class _Inboxes:
    """The event queues of several servers, read as one. Holds no reference to its readers."""

    def __init__(self, names: Sequence[str]) -> None:
        # The names of servers whose queues may have events, each once, as the `uri` of an event.
        # Threads share only this queue and single items of the dictionaries, without a lock.
        self._ready = EventQueue()
        self.queues = {name: EventQueue(partial(self._look_at, name)) for name in names}
        # Servers whose queues may still have events.
        self._active = dict.fromkeys(names)
        self.errors: dict[str, McpError] = {}

    def next(self, limit: float | None) -> tuple[str, ChangeEvent] | None:
        """Wait for an event; return `None` once no more can come.

        Raises `TimeoutError` after `limit` seconds.
        """
        deadline = Deadline(limit)
        for name in list(self._active):  # Ctrl-C may have interrupted an earlier call
            self._look_at(name)
        while True:
            try:
                ready = self._ready.next(deadline.remaining())
            except TimeoutError:
                raise TimeoutError(f"nothing changed within {limit:g} s") from None
            if ready is None:
                return None
            name = str(ready.uri)
            try:
                event = self.queues[name].next(0)
            except TimeoutError:  # the queue is empty
                continue
            except McpError as error:
                _log.warning("[%s] %s", name, error)
                self.exclude(name, error)
                continue
            if event is not None:
                self._look_at(name)  # it may have more; events of others come first
                return name, event
            self._discard(name)

    def exclude(self, name: str, error: McpError) -> None:
        """Record the error of a server, and stop reading its queue."""
        self.errors[name] = error
        self._discard(name)

    def _discard(self, name: str) -> None:
        self._active.pop(name, None)
        if not self._active:
            self._ready.close()

    def _look_at(self, name: str) -> None:
        self._ready.put(ChangeEvent("resource", name))


class GroupSubscription:
    """Notifications of changes at the servers of a group; returned by `ClientGroup.listen`.

    This is an iterator of pairs: the name of the server, and a `ChangeEvent`. The event has the
    server's own names and URIs, not the keys of the group. The iteration goes on while at least one
    of the servers can send events, and ends as that of a `Subscription`. Several threads may
    iterate; each event goes to one of them.
    """

    def __init__(
        self,
        clients: Mapping[str, Client],
        listenings: Mapping[str, SubscriptionBackend],
        inboxes: _Inboxes,
        timeout: float | None,
        stop_after: int | None,
    ) -> None:
        # Strong references: a client must not be finalized while its events are awaited.
        self._clients = clients
        self._listenings = listenings
        self._inboxes = inboxes
        self._timeout = timeout
        # Guards `_events_left`.
        self._lock = threading.RLock()
        self._events_left = stop_after
        self._finalizer = weakref.finalize(self, reaper.put, partial(_abandon, listenings))
        self._finalizer.atexit = False

    @property
    def lists(self) -> Mapping[str, tuple[str, ...]]:
        """The lists whose changes each server agreed to notify of, by the server's name."""
        found = {name: backend.granted.kinds for name, backend in self._listenings.items()}
        return MappingProxyType(found)

    @property
    def uris(self) -> Mapping[str, tuple[str, ...]]:
        """The resources whose changes each server agreed to notify of, by the server's name."""
        found = {name: backend.granted.uris for name, backend in self._listenings.items()}
        return MappingProxyType(found)

    @property
    def errors(self) -> Mapping[str, McpError]:
        """The errors of servers that refused, or whose subscription was lost, by server name."""
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
        if found is None or not self._count_event():
            self.close()
            raise StopIteration
        return found

    def _count_event(self) -> bool:
        """Count an event; return whether it is within `stop_after`. The last closes all queues."""
        with self._lock:
            if self._events_left is None:
                return True
            self._events_left -= 1
            last = self._events_left
        if last == 0:
            for inbox in self._inboxes.queues.values():
                inbox.close()
        return last >= 0

    def close(self, timeout: float | None = None) -> None:
        """End the subscription, from any thread.

        Waiting threads are woken, and their iteration ends.

        Args:
            timeout: The longest time to unsubscribe at the servers, in seconds; by default the
                `close_timeout` of each client.
        """
        self._finalizer.detach()
        limit = seconds(timeout, "timeout")
        for inbox in self._inboxes.queues.values():
            inbox.close()
        jobs: dict[str, Callable[[], None]] = {}
        for name, listening in self._listenings.items():
            default = core_of(self._clients[name]).settings.close_timeout
            deadline = Deadline(default if timeout is None else limit)
            jobs[name] = partial(listening.close, deadline)
        for outcome in run_all(jobs).values():
            if outcome is not None:
                raise outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        granted = ", ".join(
            f"{name}: {backend.granted}" for name, backend in self._listenings.items()
        )
        return f"<GroupSubscription to {granted}>"


def listen(
    clients: Mapping[str, Client],
    lists: ChangeFilter,
    uris: Mapping[str, Sequence[str]],
    *,
    timeout: float | None,
    stop_after: int | None,
    undeclared: Undeclared | None,
) -> GroupSubscription:
    """Subscribe at all servers, to `lists` and by server to `uris`; see `ClientGroup.listen`."""
    limit = seconds(timeout, "timeout")
    if stop_after is not None:
        whole_number(stop_after, "stop_after")
    if not lists.kinds and not uris:
        raise UsageError("pass what to listen to: tools, prompts, resources or uris")
    filters = {
        name: declared_changes(client, lists, undeclared)._replace(uris=tuple(uris.get(name, ())))
        for name, client in clients.items()
    }
    filters = {name: filter_ for name, filter_ in filters.items() if filter_.kinds or filter_.uris}
    inboxes = _Inboxes(list(filters))
    listenings: dict[str, SubscriptionBackend] = {}

    def subscribe(name: str) -> None:
        inbox = inboxes.queues[name]
        listenings[name] = listening = open_subscription(
            core_of(clients[name]), filters[name], inbox, undeclared=undeclared
        )
        if inbox.closed:  # the caller was interrupted during the request
            listening.close_in_background()

    try:
        outcomes = run_all({name: partial(subscribe, name) for name in filters})
        for name, outcome in outcomes.items():
            if outcome is not None:
                inboxes.exclude(name, outcome)
        if not listenings:
            for error in inboxes.errors.values():
                raise error
            raise NotSupported(
                "no server of the group declares these notifications"
                ' (undeclared="try" sends the request anyway)'
            )
    except BaseException:  # Ctrl-C, too
        for inbox in inboxes.queues.values():
            inbox.close()
        _abandon(listenings)
        raise
    agreed = {name: listenings[name] for name in filters if name in listenings}
    subscribed = {name: clients[name] for name in agreed}
    return GroupSubscription(subscribed, agreed, inboxes, limit, stop_after)


def _abandon(listenings: Mapping[str, SubscriptionBackend]) -> None:
    for listening in list(listenings.values()):
        listening.close_in_background()
