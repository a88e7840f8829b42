"""What a client asked of its server for as long as it is open: asked again of each new session."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from syncmcp._options import Options
from syncmcp.errors import HttpError, NotSupported, ProtocolError, ServerError

if TYPE_CHECKING:
    from syncmcp._connection import Connection
    from syncmcp._threads import Deadline

_log = logging.getLogger("syncmcp.client")


class Standing:
    """The log level and the subscriptions of one client."""

    def __init__(self) -> None:
        self.log_level: str | None = None
        """The level that the server was asked for last."""
        # Guards the subscriptions; held for changes only.
        self._lock = threading.RLock()
        self._uris: dict[str, None] = {}

    @property
    def subscribed(self) -> bool:
        """Whether there is any subscription."""
        return bool(self._uris)

    def subscribe(self, uri: str) -> bool:
        """Keep a subscription; return whether it is a new one."""
        with self._lock:
            new = uri not in self._uris
            self._uris[uri] = None
            return new

    def unsubscribe(self, uri: str) -> None:
        """Forget a subscription, if there is one."""
        with self._lock:
            self._uris.pop(uri, None)

    def unsubscribe_all(self) -> None:
        """Forget the subscriptions: the client is closed."""
        with self._lock:
            self._uris.clear()

    def restore(self, connection: Connection, deadline: Deadline) -> None:
        """Ask for all of it, where that is asked for once and for all (until 2025-11-25).

        What the server refuses is logged: it may be another one than before.

        Raises:
            McpError: The connection is of no use.
        """
        connection.log_level = self.log_level
        if not connection.dialect.stateful:
            return
        if self.log_level is not None:
            _ask(connection, "logging/setLevel", {"level": self.log_level}, deadline)
        with self._lock:
            uris = list(self._uris)
        for uri in uris:
            _ask(connection, "resources/subscribe", {"uri": uri}, deadline)


def _ask(connection: Connection, method: str, params: dict[str, Any], deadline: Deadline) -> None:
    try:
        connection.request(method, params, Options(None, None), deadline)
    except (NotSupported, ServerError, ProtocolError, HttpError) as error:
        _log.warning("[%s] was not asked again for what it did before: %s", connection.label, error)
