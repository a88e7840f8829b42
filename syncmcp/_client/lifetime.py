"""The lifetime of connections: opening, exit, garbage collection, fork, lost pings; pools."""

from __future__ import annotations

import atexit
import functools
import os
import threading
import warnings
import weakref
from functools import partial
from typing import Any

from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline, TimerEntry, reaper, start_thread, timer
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.steps import RegisterCallback
from syncmcp.errors import (
    ConnectionLost,
    ForkedError,
    McpError,
    ProtocolError,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SessionLost,
    TransportError,
    UsageError,
    fresh,
)

_log = logger("syncmcp.client")

# How long all servers together may take to end at exit, in seconds.
_EXIT_SECONDS = 0.8

# The timeout for closing the connection of a collected client, in seconds.
_ABANDONED_SECONDS = 5.0

# The connections to close at exit, including those that are being opened.
_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_open_connections_lock = threading.RLock()


def prepare_shutdown() -> None:
    """Start the timer and the reaper now: at interpreter exit no thread can be started."""
    timer.start()
    reaper.start()
    _warm_up_encoder()


def close_at_exit(connection: Connection) -> None:
    with _open_connections_lock:
        _open_connections.add(connection)


def client_abandoned(connection: Connection, pools: Pools | None, label: str) -> None:
    """Close the connection of a collected client. Runs on any thread, which may hold any locks."""
    if isinstance(connection.close_error, ForkedError):
        return

    def close() -> None:
        connection.close(Deadline(_ABANDONED_SECONDS))
        if pools is not None:
            pools.close()

    reaper.put(close)
    warnings.warn(f"a client of {label} was never closed", ResourceWarning, stacklevel=2)


def close_all() -> None:
    """Close all connections at exit, so that no child process outlives the program."""
    deadline = Deadline(_EXIT_SECONDS)
    with _open_connections_lock:
        connections = list(_open_connections)
    for connection in connections:
        try:
            connection.close(deadline)
        except Exception:  # the other connections must be closed, too
            _log.exception("could not close a connection at exit")


atexit.register(close_all)


@functools.cache
def _warm_up_encoder() -> None:
    """Use the JSON encoder once per process, so that it loads its modules.

    It loads them within native code, which panics at Ctrl-C. Only the main thread gets a Ctrl-C,
    so another thread does this.
    """
    thread = threading.Thread(
        target=jsonrpc.encode_notification,
        args=("notifications/initialized", None),
        name="syncmcp-warm-up",
        daemon=True,
    )
    start_thread(thread)
    thread.join()


class ConnectAttempt:
    """An attempt to open a connection. The threads that wait for it get its failure.

    If the call that makes the attempt is cancelled, it ends, and one of the waiting threads makes
    the next one.
    """

    def __init__(self, label: str, cancel: CancelToken | None) -> None:
        self.thread = threading.get_ident()  # makes the attempt
        self.cancel = cancel  # of the call that makes it
        self.failure: McpError | None = None  # once it has failed for all threads
        self._label = label

    @property
    def cancelled(self) -> bool:
        """Whether the call that makes the attempt was cancelled."""
        return self.cancel is not None and self.cancel.cancelled

    def check_wanted(self) -> None:
        """Raise `RequestCancelled` if the call that makes the attempt was cancelled."""
        if self.cancel is not None:
            self.cancel.raise_if_cancelled()

    def fail(self, error: McpError) -> McpError:
        """Store an error of the attempt for the waiting threads; return the one to raise.

        If the call was cancelled, every error becomes a `RequestCancelled`, which the waiting
        threads do not get.
        """
        if self.cancel is not None and self.cancelled:
            if isinstance(error, RequestCancelled):
                return error
            reason = self.cancel.reason
            return RequestCancelled(
                "cancelled", reason=reason, delivery="not_sent", server=self._label
            )
        if isinstance(error, (TransportError, ProtocolError, ServerError)):
            self.failure = fresh(error)
        return error

    def wait(
        self, changed: threading.Condition, deadline: Deadline, cancel: CancelToken | None
    ) -> None:
        """Wait for an event during the attempt of another thread; raise its failure, if any.

        `changed`, which is held, is notified when the attempt has ended, and when `cancel` is
        cancelled.
        """
        if self.thread == threading.get_ident():
            raise UsageError(
                "an interceptor cannot call a client that is being opened", server=self._label
            )
        if cancel is not None:
            cancel.raise_if_cancelled()
        if not changed.wait(deadline.remaining()):
            raise RequestTimeout(
                "the connection was not open in time",
                kind="open",
                seconds=deadline.seconds,
                server=self._label,
                delivery="not_sent",
            )
        if self.failure is not None:
            raise fresh(self.failure)


# Clients that are not open when their process forks.
#
# Application servers and task queues load a program and then fork. A client that has no connection
# at that moment can be used by parent and child.


# Each `reset_after_fork` is called in forked children.
inheritable: weakref.WeakSet[Any] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    global _open_connections, _open_connections_lock
    # The connections are the parent's: closing one here would end its session and exchanges.
    for connection in list(_open_connections):
        connection.disown()
    _open_connections, _open_connections_lock = weakref.WeakSet(), threading.RLock()
    for core in list(inheritable):
        core.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# Heartbeat: pings that detect a dead connection (before 2026-07-28; spec: "Ping").


_heartbeat_log = logger("syncmcp.connection")

# The unanswered pings in a row that end a connection.
_MISSES = 2


class Heartbeat:
    """Pings the server of a connection; ends the connection after two unanswered pings in a row.

    Pings run on pool threads. The next ping is sent `interval` seconds after the end of the
    last one, and must be answered within `interval` seconds.
    """

    def __init__(self, connection: Connection, interval: float, workers: DaemonPool) -> None:
        self._connection = connection
        self._interval = interval
        self._workers = workers
        self._missed = 0
        self._entry: TimerEntry | None = None
        self._stopped = False

    def start(self) -> None:
        """Schedule the next ping, after an interval."""
        self._entry = timer.after(self._interval, partial(self._workers.run, self._check))
        if self._stopped:
            self._entry.cancel()

    def stop(self) -> None:
        self._stopped = True
        if self._entry is not None:
            self._entry.cancel()

    def _check(self) -> None:
        """Ping if the connection is alive. Runs on a pool thread."""
        connection = self._connection
        if self._stopped or connection.close_error is not None:
            return
        self._ping(connection)
        if connection.close_error is None:
            self.start()

    def _ping(self, connection: Connection) -> None:
        options = ResolvedOptions(None, None)
        options.nested = True  # not queued: the calls in the queue may wait without limit
        try:
            connection.request("ping", None, options, Deadline(self._interval))
        except SessionLost:
            return  # the server responded, and the connection handles the loss
        except (RequestTimeout, TransportError) as error:
            self._missed += 1
            _heartbeat_log.warning(
                "[%s] no response to a ping (%d): %s", connection.label, self._missed, error
            )
        except McpError as error:  # an error is a response, too
            self._missed = 0
            _heartbeat_log.debug("[%s] a ping was refused: %s", connection.label, error)
        else:
            self._missed = 0
        if self._missed >= _MISSES and connection.close_error is None:
            connection.lost(
                ConnectionLost(
                    f"the server answered none of {_MISSES} pings in a row, each within"
                    f" {self._interval:g} s (option ping_interval)"
                )
            )


# The thread pools of one client, and its pauses.


# The most callbacks that may block at the same time; further callbacks are queued.
_CALLBACKS = 1024


class Pools:
    """The thread pools of one client, and its pauses, which need no thread."""

    def __init__(self, label: str, max_in_flight: int, max_handlers: int) -> None:
        # Callbacks, and the steps of futures that may block. A blocked callback keeps its thread;
        # other callbacks do not wait for it. The limit stops programs whose callbacks never return.
        self.workers = DaemonPool(f"syncmcp-worker[{label}]", max(_CALLBACKS, 4 * max_in_flight))
        # A handler that calls the client releases its slot, so no limit leads to a deadlock.
        self.handlers = DaemonPool(f"syncmcp-handler[{label}]", max_handlers, lends=True)
        self.exchanges = DaemonPool(f"syncmcp-exchange[{label}]", max_in_flight)
        self.closing = CancelToken()  # ends all pauses when the client is closed

    def pause(
        self,
        seconds: float,
        ends_on: RegisterCallback | None,
        deadline: Deadline,
        cancel: CancelToken | None,
    ) -> CancelToken:
        """Begin a pause of `seconds`, which `ends_on`, `deadline` and `cancel` end; never blocks.

        Returns a token that is cancelled as soon as the pause is over, by the thread that ends it,
        perhaps the timer's. Cancelling it ends the pause, too.
        """
        over = CancelToken(self.closing, *(() if cancel is None else (cancel,)))
        entry = timer.at(deadline.sooner(seconds).at or 0.0, over.cancel)
        call_when_cancelled(over, entry.cancel)
        if ends_on is not None:
            call_when_cancelled(over, ends_on(over.cancel))
        return over

    def facts(self) -> dict[str, int]:
        """The lengths of the queues, by kind; see `Dump`."""
        return {
            "handlers": self.handlers.waiting,
            "callbacks": self.workers.waiting,
            "exchanges": self.exchanges.waiting,
        }

    def close(self) -> None:
        """Let the threads end when they are idle. Does not wait for them.

        Jobs that are submitted later still run: some futures are settled after the close.
        """
        self.closing.cancel()
        self.workers.close()
        self.handlers.close()
        self.exchanges.close()
