"""The part of a client that is about sessions: their loss, their watch, going on with one."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._client.driver import Host, open_link
from syncmcp._client.session_state import Standing
from syncmcp._concurrency.timing import Deadline, timer
from syncmcp._connection.options import Options
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    RequestTimeout,
    SessionLost,
    TransportError,
    UsageError,
    fresh,
)
from syncmcp.transports.base import Resumable

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._concurrency.pool import Workers
    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp._connection.connection import Connection


# Watching a connection with pings (until 2025-11-25; spec: "Ping").


_heartbeat_log = logging.getLogger("syncmcp.connection")

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
            _heartbeat_log.warning(
                "[%s] no answer to a ping (%d): %s", connection.label, self._missed, error
            )
        except McpError as error:  # the server refuses it, which is an answer
            self._missed = 0
            _heartbeat_log.debug("[%s] a ping was refused: %s", connection.label, error)
        else:
            self._missed = 0
        if self._missed >= _MISSES and connection.dead is None:
            connection.lost(
                ConnectionLost(
                    f"{_MISSES} pings in a row had no answer within {self._interval:g} s"
                    " (option ping_interval)"
                )
            )


_log = logging.getLogger("syncmcp.client")


class Attempt:
    """One thread's attempt to open a connection, which others wait for, and how it failed."""

    failure: McpError | None = None

    def __init__(self) -> None:
        self.thread = threading.get_ident()


class Sessions(Host):
    """Sessions until 2025-11-25; in 2026-07-28 there are none."""

    _shared = False
    """Whether the process shares it, having unpickled it: no `with` of one user closes it then."""

    _standing: Standing
    _ping_interval: float | None
    _open_timeout: float | None
    _close_timeout: float | None

    _lock: threading.RLock
    """Guards what follows; held for changes only."""

    _changed: threading.Condition
    _wanted: bool
    _connection: Connection | None
    _opening: Connection | None
    _attempt: Attempt | None

    _opener: int | None = None
    """The thread that began to open it last."""

    _retired: list[Connection]
    """Those whose session is gone, as long as calls are in flight there."""

    @property
    def session_id(self) -> str | None:
        """The id of the HTTP session, for `Http(session_id=...)`; `None` if there is none.

        Whoever knows it can speak in our name: keep it like a password.
        """
        resumable = self._resumable()
        return None if resumable is None else resumable.session_id

    @property
    def last_event_id(self) -> str | None:
        """Where the stream is on which the server sends what belongs to no request.

        For `Http(last_event_id=...)`; `None` if there is no such stream, or its events have no ids.
        """
        resumable = self._resumable()
        return None if resumable is None else resumable.last_event_id

    def _resumable(self) -> Resumable | None:
        connection = self._connection
        if connection is None or not isinstance(connection.transport, Resumable):
            return None
        return connection.transport

    def _open_or(self, undo: Callable[[], object]) -> None:
        """Open; where Ctrl-C comes behind that, undo it: whoever gets no client cannot close it."""
        with self._lock:
            self._wanted, before = True, self._connection
        try:
            open_link(self, Deadline(self._open_timeout))
        except BaseException:
            if self._connection is not before and self._opener == threading.get_ident():
                undo()
            raise

    def _interrupted(self, error: McpError) -> None:
        """Whoever only listens makes no call that would open a new session. Never blocks.

        A server that died is started again for listeners alone: what else a program wants of it, a
        call says.
        """
        with self._lock:
            # Of a connection that never came to be: its error goes to whoever opens it, who knows
            # when to give up. Of the one before: another is being opened already.
            if self._opening is not None:
                return
        standing = self._standing
        if isinstance(error, SessionLost):
            if standing.subscribed or self._ping_interval is not None:
                self._pools.workers.run(self._reopen)
        elif any(listener.stateful for listener in standing.listeners):
            self._pools.workers.run(partial(self._reopen, standing.pauses.next()))

    def _reopen(self, pause: float = 0.0) -> None:
        """On a pool thread, after `pause` seconds."""
        self._sit_out(pause, Options(None, None), Deadline(None))
        try:
            open_link(self, Deadline(self._open_timeout))
        except ClosedError:
            return
        except McpError as error:
            _log.warning("[%s] no new session was opened: %s", self._label, error)
            self._standing.lost(error)

    def _retire(self, dead: Connection) -> None:
        """Have a connection whose session is gone closed as soon as no call is in flight there."""
        with self._lock:
            wanted = self._wanted and dead not in self._retired
            if wanted:
                self._retired.append(dead)
        if wanted:
            dead.when_empty(partial(self._pools.workers.run, partial(self._discard, dead)))

    def _discard(self, dead: Connection) -> None:
        """On a pool thread."""
        with self._lock:
            if dead in self._retired:
                self._retired.remove(dead)
        dead.close(Deadline(self._close_timeout))

    def _wait_for_others(self, deadline: Deadline, cancel: CancelToken | None) -> None:
        """Wait as long as another thread opens a connection; called with the lock held.

        Raises:
            RequestTimeout: `deadline` passed.
            RequestCancelled: `cancel`, which wakes this thread, was cancelled.
            McpError: The other thread had no luck.
            UsageError: This is the thread that opens it: an interceptor wants to use the client.
        """
        while self._wanted and (attempt := self._attempt) is not None:
            if attempt.thread == threading.get_ident():
                raise UsageError(
                    "an interceptor cannot call a client that is being opened", server=self._label
                )
            if cancel is not None:
                cancel.raise_if_cancelled()
            if not self._changed.wait(deadline.remaining()):
                raise RequestTimeout(
                    "the connection was not open in time",
                    kind="open",
                    seconds=deadline.seconds,
                    server=self._label,
                    delivery="not_sent",
                )
            if attempt.failure is not None:
                raise fresh(attempt.failure)

    def _watcher(self, connection: Connection) -> Watch | None:
        if self._ping_interval is None or not connection.dialect.stateful:
            return None
        watch = Watch(connection, self._ping_interval, self._pools.workers)
        watch.start()
        return watch

    def _sit_out(self, seconds: float, options: Options, deadline: Deadline) -> None:
        pause, token = deadline.sooner(seconds), options.cancel
        forget = None if token is None else token._subscribe(self._wake)
        try:
            with self._lock:
                while self._wanted and not (pause.expired or (token and token.cancelled)):
                    self._changed.wait(pause.remaining())
        finally:
            if forget is not None:
                forget()

    def _wake(self) -> None:
        with self._lock:
            self._changed.notify_all()
