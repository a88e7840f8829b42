"""What a client asked of its server for as long as it is open: asked again of each new session."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from syncmcp._client.session_state import SUBSCRIBE, SharedUris
from syncmcp._concurrency.backoff import Backoff
from syncmcp._connection.options import Options
from syncmcp._protocol.subscription import read_event
from syncmcp.errors import HttpError, McpError, NotSupported, ProtocolError, ServerError

if TYPE_CHECKING:
    from syncmcp._client.listening import Listening
    from syncmcp._concurrency.timing import Deadline
    from syncmcp._connection.connection import Connection
    from syncmcp._protocol.capabilities import Undeclared

_log = logging.getLogger("syncmcp.client")


class Standing:
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
        self.uris = SharedUris()
        self.pauses = Backoff()
        # Guards the listeners; held for changes only.
        self._lock = threading.RLock()
        self._listeners: dict[Listening, None] = {}

    @property
    def subscribed(self) -> bool:
        """Whether there is anything that a new session has to be asked for."""
        return len(self.uris) > 0 or bool(self._listeners)

    @property
    def listeners(self) -> list[Listening]:
        """Those who want to be told of changes."""
        with self._lock:
            return list(self._listeners)

    def add(self, listener: Listening) -> None:
        """Tell a listener of everything from now on."""
        with self._lock:
            self._listeners[listener] = None

    def remove(self, listener: Listening) -> None:
        """Forget a listener, if it is there."""
        with self._lock:
            self._listeners.pop(listener, None)

    def close(self) -> None:
        """Forget everything but the log level: the client is closed."""
        with self._lock:
            listeners = self.listeners
            self._listeners.clear()
        for listener in listeners:
            listener.closed()
        self.uris.clear()

    def news(self, method: str, params: dict[str, Any]) -> None:
        """Tell those who want to know what a notification says. Never blocks."""
        event = read_event(method, params)
        if event is not None:
            for listener in self.listeners:
                listener.heard(event)

    def lost(self, error: McpError) -> None:
        """There will be no news any more. Never blocks."""
        for listener in self.listeners:
            if listener.stateful:  # the others notice it by themselves
                listener.lose("connection", error)

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
            for uri, undeclared in self.uris.wanted():
                refusal = _ask(connection, SUBSCRIBE, {"uri": uri}, deadline, undeclared)
                for listener in listeners:
                    if refusal is not None and uri in listener.wanted.uris:
                        listener.lose("server", refusal)
        self.pauses.opened()
        for listener in listeners:
            listener.reconnected(stateful=connection.dialect.stateful)


def _ask(
    connection: Connection,
    method: str,
    params: dict[str, Any],
    deadline: Deadline,
    undeclared: Undeclared,
) -> McpError | None:
    """Make a request again; return how the server refused it, if it did."""
    try:
        options = Options(None, None, undeclared=undeclared)
        connection.request(method, params, options, deadline)
    except (NotSupported, ServerError, ProtocolError, HttpError) as error:
        _log.warning("[%s] was not asked again for what it did before: %s", connection.label, error)
        return error
    return None
