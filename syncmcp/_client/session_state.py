"""What a client asked of its server for as long as it is open: asked again of each new session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from syncmcp._concurrency.timing import Backoff, Deadline
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol.subscription import ChangeEvent, ChangeFilter, read_event
from syncmcp.errors import (
    HttpError,
    McpError,
    NotSupported,
    ProtocolError,
    RequestTimeout,
    ServerError,
)

if TYPE_CHECKING:
    from syncmcp._connection.connection import Connection
    from syncmcp._protocol.capabilities import Undeclared


# One subscription for all who want to know of a resource (until 2025-11-25).


SUBSCRIBE = "resources/subscribe"
UNSUBSCRIBE = "resources/unsubscribe"

Ask = Callable[[str, str], object]
"""Sends `SUBSCRIBE` or `UNSUBSCRIBE` for a URI and waits for the answer."""


class _ResourceEntry:
    """One URI: who wants to know of it, and what the server was told."""

    __slots__ = (
        "explicit",
        "listener_count",
        "maybe_subscribed",
        "request_pending",
        "subscribed",
        "undeclared",
    )

    def __init__(self) -> None:
        self.listener_count = 0
        # The program itself wants it, by `subscribe_resource`.
        self.explicit = False
        self.subscribed = False
        # The server may be subscribed, though nobody knows for sure.
        self.maybe_subscribed = False
        # A thread is asking the server about it right now.
        self.request_pending = False
        # Somebody wants a server asked for it that does not declare subscriptions, too.
        self.undeclared: Undeclared = "refuse"

    @property
    def needed(self) -> bool:
        return self.explicit or self.listener_count > 0


class ResourceSubscriptions:
    """The resources that a client is subscribed to, each once, however many want it."""

    def __init__(self) -> None:
        # Guards the entries; held for changes only. Requests are made by the thread that found the
        # entry idle, outside of it; the others wait.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[str, _ResourceEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def needed_uris(self) -> list[tuple[str, Undeclared]]:
        """The URIs that a new session must be asked for, each with how."""
        with self._lock:
            entries = self._entries.items()
            return [(uri, entry.undeclared) for uri, entry in entries if entry.needed]

    def clear(self) -> None:
        """Forget them all: there is no session any more."""
        with self._lock:
            self._entries.clear()
            self._changed.notify_all()

    # -- those who listen ----------------------------------------------------------------------

    def acquire(
        self, uri: str, ask: Ask, deadline: Deadline, undeclared: Undeclared = "refuse"
    ) -> None:
        """Want to know of `uri`; returns when the server is subscribed.

        A new session is asked for it as `undeclared` says.

        Raises:
            RequestTimeout: Another thread asks the server, and has no answer by `deadline`.
            McpError: What became of the request. It is held all the same, until `release`.
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
        """Undo `acquire`; the last one unsubscribes.

        Raises:
            McpError: What became of the request. The server is not asked again.
        """
        with self._lock:
            entry = self._entries.get(uri)
            if entry is None:
                return  # the client was closed
            entry.listener_count -= 1
            if entry.needed or entry.request_pending:
                return  # whoever asks the server now was the last to want it, or wants it
            if not entry.maybe_subscribed:
                self._remove_entry(uri, entry)
                return
            entry.request_pending = True
            entry.subscribed = entry.maybe_subscribed = False
        try:
            ask(UNSUBSCRIBE, uri)
        finally:
            self._request_ended(uri, entry)
        if entry.explicit:  # since a moment ago: that request may have come before ours
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

    # -- the program itself ----------------------------------------------------------------------

    def add_explicit(self, uri: str, undeclared: Undeclared = "refuse") -> bool:
        """Want it by hand; return whether it was not wanted like that before."""
        with self._lock:
            entry = self._ensure_entry(uri, undeclared)
            new, entry.explicit = not entry.explicit, True
            return new

    def confirm_explicit(self, uri: str) -> None:
        """The server has agreed to a claim."""
        with self._lock:
            entry = self._entries.get(uri)
            if entry is not None and entry.explicit:
                entry.subscribed = entry.maybe_subscribed = True

    def remove_explicit(self, uri: str) -> bool:
        """Do not want it by hand; return whether nobody wants it now."""
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
        """Whether anybody listens to it."""
        with self._lock:
            entry = self._entries.get(uri)
            return entry is not None and entry.listener_count > 0


_log = logging.getLogger("syncmcp.client")


class ChangeListener(Protocol):
    """What is told of changes, on whatever thread; nothing of it blocks."""

    stateful: bool
    """True if it hears of changes only as long as there is a session (until 2025-11-25)."""

    wanted: ChangeFilter
    """What it was begun for."""

    def on_change(self, event: ChangeEvent) -> None:
        """Something has changed."""

    def fail(self, by: Literal["server", "connection"], cause: McpError | None = None) -> None:
        """There will be no news: the connection is gone, or the server refuses."""

    def on_reconnect(self, *, stateful: bool) -> None:
        """There is another connection; of the old one, something may have been missed."""

    def on_client_closed(self) -> None:
        """The client is closed."""


class TaskWatcher(Protocol):
    """Subscribes to notifications about tasks, where the server supports that."""

    def watch(self, task: str) -> Callable[[], object]:
        """Watch a task for one waiting call; return a function that the call runs once to stop."""
        ...


class SessionState:
    """The log level, the subscriptions and the listeners of one client.

    Attributes:
        uris: The resources that the server was asked to tell of.
        pauses: Before another connection is opened for listeners alone.
    """

    def __init__(self) -> None:
        self.log_level: str | None = None
        """The level that the server was asked for last."""
        self.log_level_undeclared: Undeclared = "refuse"
        """Whether a server that does not declare logging is asked for it, too."""
        self.resources = ResourceSubscriptions()
        self.reopen_backoff = Backoff()
        # Guards the listeners; held for changes only.
        self._lock = threading.RLock()
        self._listeners: dict[ChangeListener, None] = {}

    @property
    def subscribed(self) -> bool:
        """Whether there is anything that a new session has to be asked for."""
        return len(self.resources) > 0 or bool(self._listeners)

    @property
    def listeners(self) -> list[ChangeListener]:
        """Those who want to be told of changes."""
        with self._lock:
            return list(self._listeners)

    def add_listener(self, listener: ChangeListener) -> None:
        """Tell a listener of everything from now on."""
        with self._lock:
            self._listeners[listener] = None

    def remove_listener(self, listener: ChangeListener) -> None:
        """Forget a listener, if it is there."""
        with self._lock:
            self._listeners.pop(listener, None)

    def close(self) -> None:
        """Forget everything but the log level: the client is closed."""
        with self._lock:
            listeners = self.listeners
            self._listeners.clear()
        for listener in listeners:
            listener.on_client_closed()
        self.resources.clear()

    def notify_listeners(self, method: str, params: dict[str, Any]) -> None:
        """Tell those who want to know what a notification says. Never blocks."""
        event = read_event(method, params)
        if event is not None:
            for listener in self.listeners:
                listener.on_change(event)

    def connection_lost(self, error: McpError) -> None:
        """There will be no news any more. Never blocks."""
        for listener in self.listeners:
            if listener.stateful:  # the others notice it by themselves
                listener.fail("connection", error)

    def restore(self, connection: Connection, deadline: Deadline) -> None:
        """Ask for all of it, where that is asked for once and for all (until 2025-11-25).

        What the server refuses is logged: it may be another one than before.

        Raises:
            McpError: The connection is of no use.
        """
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
    """Make a request again; return how the server refused it, if it did."""
    try:
        options = ResolvedOptions(None, None, undeclared=undeclared)
        connection.request(method, params, options, deadline)
    except (NotSupported, ServerError, ProtocolError, HttpError) as error:
        _log.warning("[%s] was not asked again for what it did before: %s", connection.label, error)
        return error
    return None
