"""Watching a connection with pings (until 2025-11-25; spec: "Ping")."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._connection.options import Options
from syncmcp.errors import ConnectionLost, McpError, RequestTimeout, SessionLost, TransportError

if TYPE_CHECKING:
    from syncmcp._concurrency.pool import Workers
    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp._connection.connection import Connection

_log = logging.getLogger("syncmcp.connection")

# Misses in a row that end a connection: one may be an accident.
_MISSES = 2


class Watch:
    """Pings the server of one connection, and ends a connection on which two in a row are missed.

    Each ping runs on a thread of a pool, and the next one is due an interval after the last one has
    ended.

    Args:
        connection: The connection.
        interval: The time between two pings, and the longest that an answer may take, in seconds.
        workers: Where pings run.
    """

    def __init__(self, connection: Connection, interval: float, workers: Workers) -> None:
        self._connection = connection
        self._interval = interval
        self._workers = workers
        self._missed = 0
        self._entry: TimerEntry | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin: the first ping is due in an interval."""
        self._entry = timer.after(self._interval, partial(self._workers.run, self._look))
        if self._stopped:
            self._entry.cancel()

    def stop(self) -> None:
        """Send no more pings."""
        self._stopped = True
        if self._entry is not None:
            self._entry.cancel()

    def _look(self) -> None:
        """On a pool thread."""
        connection = self._connection
        if self._stopped or connection.dead is not None:
            return
        self._ping(connection)
        if connection.dead is None:
            self.start()

    def _ping(self, connection: Connection) -> None:
        options = Options(None, None)
        options.nested = True  # it must not stand in line: whoever is in front may wait for ever
        try:
            connection.request("ping", None, options, Deadline(self._interval))
        except SessionLost:
            return  # the server is there, and the connection knows
        except (RequestTimeout, TransportError) as error:
            self._missed += 1
            _log.warning("[%s] no answer to a ping (%d): %s", connection.label, self._missed, error)
        except McpError as error:  # the server refuses it, which is an answer
            self._missed = 0
            _log.debug("[%s] a ping was refused: %s", connection.label, error)
        else:
            self._missed = 0
        if self._missed >= _MISSES and connection.dead is None:
            connection.lost(
                ConnectionLost(
                    f"{_MISSES} pings in a row had no answer within {self._interval:g} s"
                    " (option ping_interval)"
                )
            )
