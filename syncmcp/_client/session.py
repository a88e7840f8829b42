"""The part of a client that is about sessions: their loss, their watch, going on with one."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING

from syncmcp._client.driver import Host, open_link
from syncmcp._client.standing import Standing
from syncmcp._client.watching import Watch
from syncmcp._concurrency.timing import Deadline
from syncmcp._connection.options import Options
from syncmcp.errors import ClosedError, McpError, RequestTimeout, SessionLost, UsageError, fresh
from syncmcp.transports.base import Resumable

if TYPE_CHECKING:
    from collections.abc import Callable

    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._connection.connection import Connection

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
