"""Session state: log level, resource subscriptions and listeners, restored in each new session."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from syncmcp._base.text import logger
from syncmcp._concurrency.timing import Backoff, Deadline
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter
from syncmcp.errors import (
    HttpError,
    McpError,
    NotSupported,
    ProtocolError,
    RequestTimeout,
    ServerError,
)

SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"

Ask = Callable[[str, str], object]
"""Sends `SUBSCRIBE` or `UNSUBSCRIBE` for a URI and waits for the response."""


@dataclass
class _ResourceEntry:
    """The subscription to one URI: its listeners, and its state at the server."""

    listener_count: int = 0
    # The program subscribed by `subscribe_resource`.
    explicit: bool = False
    subscribed: bool = False
    # A request to subscribe was sent; its outcome may be unknown.
    maybe_subscribed: bool = False
    # A thread is subscribing or unsubscribing at this moment.
    request_pending: bool = False
    # "try" if one of the listeners, or the program, asked for that.
    undeclared: Undeclared = "refuse"

    @property
    def needed(self) -> bool:
        return self.explicit or self.listener_count > 0


class ResourceSubscriptions:
    """The resources that a client is subscribed to, shared by listeners (before 2026-07-28)."""

    def __init__(self) -> None:
        # Guards the entries; held for changes only. The thread that found an entry idle makes the
        # request without the lock; other threads wait for it.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[str, _ResourceEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def needed_uris(self) -> list[tuple[str, Undeclared]]:
        """The URIs to subscribe to in a new session, each with its option `undeclared`."""
        with self._lock:
            entries = self._entries.items()
            return [(uri, entry.undeclared) for uri, entry in entries if entry.needed]

    def clear(self) -> None:
        """Forget all subscriptions: there is no session any more."""
        with self._lock:
            self._entries.clear()
            self._changed.notify_all()

    # -- listeners -----------------------------------------------------------------------------

    def acquire(
        self, uri: str, ask: Ask, deadline: Deadline, undeclared: Undeclared = "refuse"
    ) -> None:
        """Count a listener of `uri`, and subscribe; returns when the subscription is active.

        `undeclared` is the option for the requests in new sessions. If the request fails, the
        listener still counts, until `release`.
        """
        with self._lock:
            entry = self._ensure_entry(uri, undeclared)
            entry.listener_count += 1
            while entry.request_pending and not entry.subscribed:
                if not self._changed.wait(deadline.remaining()):
                    raise RequestTimeout(
                        f"not subscribed to {uri} in time",
                        seconds=deadline.seconds,
                        method=SUBSCRIBE,
                    )
            if entry.subscribed:
                return
            entry.request_pending = entry.maybe_subscribed = True
        try:
            ask(SUBSCRIBE, uri)
            entry.subscribed = True
        except ServerError:
            entry.maybe_subscribed = False
            raise
        finally:
            self._request_ended(uri, entry)

    def release(self, uri: str, ask: Ask) -> None:
        """Undo `acquire`; the last listener unsubscribes. A request that fails is not repeated."""
        with self._lock:
            entry = self._entries.get(uri)
            if entry is None:
                return  # the client was closed
            entry.listener_count -= 1
            if entry.needed or entry.request_pending:
                return  # still needed, or the thread that makes a request cleans up
            if not entry.maybe_subscribed:
                self._remove_entry(uri, entry)
                return
            entry.request_pending = True
            entry.subscribed = entry.maybe_subscribed = False
        try:
            ask(UNSUBSCRIBE, uri)
        finally:
            self._request_ended(uri, entry)
        if entry.explicit:  # the program may have subscribed before this unsubscribed
            ask(SUBSCRIBE, uri)

    def _request_ended(self, uri: str, entry: _ResourceEntry) -> None:
        with self._lock:
            entry.request_pending = False
            if not entry.needed and not entry.maybe_subscribed:
                self._remove_entry(uri, entry)
            self._changed.notify_all()

    def _ensure_entry(self, uri: str, undeclared: Undeclared) -> _ResourceEntry:
        entry = self._entries.setdefault(uri, _ResourceEntry())
        if undeclared == "try":
            entry.undeclared = undeclared
        return entry

    def _remove_entry(self, uri: str, entry: _ResourceEntry) -> None:
        if self._entries.get(uri) is entry:
            del self._entries[uri]

    # -- the program: `subscribe_resource` and `unsubscribe_resource` ----------------------------

    @contextmanager
    def explicit(self, uri: str, undeclared: Undeclared = "refuse") -> Iterator[None]:
        """Record that the `with` block subscribes for the program; an `McpError` undoes that."""
        with self._lock:
            entry = self._ensure_entry(uri, undeclared)
            new, entry.explicit = not entry.explicit, True
        try:
            yield
        except McpError:
            if new:
                self.remove_explicit(uri)
            raise
        with self._lock:
            if entry.explicit:
                entry.subscribed = entry.maybe_subscribed = True

    def remove_explicit(self, uri: str) -> bool:
        """Record that the program unsubscribes; return True if there are no listeners either."""
        with self._lock:
            entry = self._entries.get(uri)
            if entry is None:
                return True
            entry.explicit = False
            if entry.needed:
                return False
            entry.subscribed = entry.maybe_subscribed = False
            if not entry.request_pending:
                self._remove_entry(uri, entry)
            return True

    def has_listeners(self, uri: str) -> bool:
        with self._lock:
            entry = self._entries.get(uri)
            return entry is not None and entry.listener_count > 0


_log = logger("syncmcp.client")


class ChangeListener(Protocol):
    """Is notified of changes, on any thread. None of these methods blocks."""

    stateful: bool  # notifications reach it only within a session (before 2026-07-28)
    wanted: ChangeFilter

    def on_change(self, event: ChangeEvent) -> None:
        """There was a change at the server."""

    def fail(self, by: Literal["server", "connection"], cause: McpError | None = None) -> None:
        """The subscription is lost: the connection broke, or the server refused it."""

    def on_reconnect(self, *, stateful: bool) -> None:
        """There is a new connection, or event stream; notifications may have been missed."""

    def on_client_closed(self) -> None:
        """The client was closed."""


class SessionState:
    """The log level, the subscriptions and the listeners of one client."""

    def __init__(self) -> None:
        self.log_level: str | None = None  # as it was set last
        # Whether a server that does not declare logging is asked for it, too.
        self.log_level_undeclared: Undeclared = "refuse"
        self.resources = ResourceSubscriptions()
        # The pauses before a connection is reopened only for listeners.
        self.reopen_backoff = Backoff()
        # Guards the listeners; held for changes only.
        self._lock = threading.RLock()
        self._listeners: dict[ChangeListener, None] = {}

    @property
    def has_subscriptions(self) -> bool:
        return len(self.resources) > 0 or bool(self._listeners)

    @property
    def listeners(self) -> list[ChangeListener]:
        with self._lock:
            return list(self._listeners)

    def add_listener(self, listener: ChangeListener) -> None:
        with self._lock:
            self._listeners[listener] = None

    def remove_listener(self, listener: ChangeListener) -> None:
        with self._lock:
            self._listeners.pop(listener, None)

    def close(self) -> None:
        """End all listeners and subscriptions, when the client is closed. Keeps the log level."""
        with self._lock:
            listeners = self.listeners
            self._listeners.clear()
        for listener in listeners:
            listener.on_client_closed()
        self.resources.clear()

    def on_change(self, event: ChangeEvent) -> None:
        """Pass a change on to the listeners. Never blocks."""
        for listener in self.listeners:
            listener.on_change(event)

    def changes_missed(self) -> None:
        """Notify the stateful listeners that events may have been missed. Never blocks."""
        for listener in self.listeners:
            if listener.stateful:  # the others have streams of their own
                listener.on_reconnect(stateful=True)

    def connection_lost(self, error: McpError) -> None:
        """End the stateful listeners: notifications will not arrive any more. Never blocks."""
        for listener in self.listeners:
            if listener.stateful:  # the others have a request that fails
                listener.fail("connection", error)

    def restore(self, connection: Connection, deadline: Deadline) -> None:
        """Restore the state in a new session. Refusals are logged: it may be another server."""
        connection.log_level = self.log_level
        listeners = self.listeners
        if connection.dialect.stateful:
            if self.log_level is not None:
                level = {"level": self.log_level}
                _ask(connection, "logging/setLevel", level, deadline, self.log_level_undeclared)
            for uri, undeclared in self.resources.needed_uris():
                refusal = _ask(connection, SUBSCRIBE, {"uri": uri}, deadline, undeclared)
                for listener in listeners:
                    if refusal is not None and uri in listener.wanted.uris:
                        listener.fail("server", refusal)
        self.reopen_backoff.opened()
        for listener in listeners:
            listener.on_reconnect(stateful=connection.dialect.stateful)


def _ask(
    connection: Connection,
    method: str,
    params: dict[str, Any],
    deadline: Deadline,
    undeclared: Undeclared,
) -> McpError | None:
    """Repeat a request in a new session; return the refusal, if any."""
    try:
        options = ResolvedOptions(None, None, undeclared=undeclared)
        connection.request(method, params, options, deadline)
    except (NotSupported, ServerError, ProtocolError, HttpError) as error:
        _log.warning("[%s] could not restore a part of the session: %s", connection.label, error)
        return error
    return None
