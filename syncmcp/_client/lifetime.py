"""What ends a connection that nobody closes: the program, its client, a fork, pings in vain."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Protocol

from syncmcp._concurrency.cancel import InterruptibleWaits
from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline, reaper, start_thread, timer
from syncmcp._connection.options import ResolvedOptions
from syncmcp._protocol import jsonrpc
from syncmcp.errors import ConnectionLost, McpError, RequestTimeout, SessionLost, TransportError

if TYPE_CHECKING:
    from syncmcp._concurrency.timing import TimerEntry
    from syncmcp._connection.connection import Connection


_log = logging.getLogger("syncmcp.client")

# What all servers together get to end by themselves when the program ends, in seconds.
_EXIT_SECONDS = 0.8

# What a client that nobody closed gets for its end, in seconds.
_ABANDONED_SECONDS = 5.0

# What is open in this process, for the end of it; an opening may be under way even then.
_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_registry = threading.RLock()


def prepare() -> None:
    """Start what the end needs: at interpreter exit no thread can be started any more."""
    timer.start()
    reaper.start()
    _warm_up()


def close_at_exit(connection: Connection) -> None:
    """Have a connection closed at exit, whatever becomes of its client."""
    with _registry:
        _open_connections.add(connection)


def abandoned(connection: Connection, pools: Pools | None, label: str) -> None:
    """A client was collected while it was open (on whatever thread, holding whatever lock)."""
    if not connection.of_this_process:
        return

    def close() -> None:
        connection.close(Deadline(_ABANDONED_SECONDS))
        if pools is not None:
            pools.close()

    reaper.put(close)
    warnings.warn(f"a client of {label} was never closed", ResourceWarning, stacklevel=2)


def close_all() -> None:
    """At exit: no server outlives the program that started it, not one that ignores us either."""
    deadline = Deadline(_EXIT_SECONDS)
    with _registry:
        connections = list(_open_connections)
    for connection in connections:
        try:
            connection.close(deadline)
        except Exception:  # the others must end all the same
            _log.exception("a connection could not be closed at exit")


atexit.register(close_all)


@functools.cache
def _warm_up() -> None:
    """Have the JSON encoder load what it loads at its first use, once for the process.

    It does so in the middle of native code, where Ctrl-C ends in a panic. No other thread than the
    main one ever sees a Ctrl-C, so another one does it.
    """
    thread = threading.Thread(
        target=jsonrpc.encode_notification,
        args=("notifications/initialized", None),
        name="syncmcp-warm-up",
        daemon=True,
    )
    start_thread(thread)
    thread.join()


# Clients that are not open when their process forks.
#
# Servers of web applications and of task queues like to load a program once, and fork then. A
# client that has no connection at that moment has nothing that is the parent's alone.


class Inheritable(Protocol):
    """What a child process may have of its parent."""

    def renew(self) -> None:
        """Belong to this process, unless something of the parent's is open."""
        ...


_inheritable: weakref.WeakSet[Inheritable] = weakref.WeakSet()


def renew_in_child(client: Inheritable) -> None:
    """Have a client belong to the child as well, should the process fork while it is not open."""
    _inheritable.add(client)


def _after_fork_in_child() -> None:
    for client in list(_inheritable):
        client.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


# Watching a connection with pings (until 2025-11-25; spec: "Ping").


_heartbeat_log = logging.getLogger("syncmcp.connection")

# Misses in a row that end a connection: one may be an accident.
_MISSES = 2


class Heartbeat:
    """Pings the server of one connection, and ends a connection on which two in a row are missed.

    Each ping runs on a thread of a pool, and the next one is due an interval after the last one has
    ended.

    Args:
        connection: The connection.
        interval: The time between two pings, and the longest that an answer may take, in seconds.
        workers: Where pings run.
    """

    def __init__(self, connection: Connection, interval: float, workers: DaemonPool) -> None:
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
        if self._stopped or connection.close_error is not None:
            return
        self._ping(connection)
        if connection.close_error is None:
            self.start()

    def _ping(self, connection: Connection) -> None:
        options = ResolvedOptions(None, None)
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
        if self._missed >= _MISSES and connection.close_error is None:
            connection.lost(
                ConnectionLost(
                    f"{_MISSES} pings in a row had no answer within {self._interval:g} s"
                    " (option ping_interval)"
                )
            )


# The threads of one client, and its waits that need none.


# Callbacks that may be stuck before others have to wait for them.
_CALLBACKS = 1024


class Pools:
    """The threads of one client: for callbacks, for exchanges, and one that resumes futures."""

    def __init__(self, label: str, max_in_flight: int, max_handlers: int) -> None:
        # Callbacks: one that blocks keeps its thread, and no other callback waits for it. The bound
        # is only there to end a program that never lets one go.
        self.workers = DaemonPool(f"syncmcp-worker[{label}]", max(_CALLBACKS, 4 * max_in_flight))
        # A handler that calls the client lends its seat, so that no number of them is too small.
        self.handlers = DaemonPool(f"syncmcp-handler[{label}]", max_handlers, lends=True)
        self.exchanges = DaemonPool(f"syncmcp-exchange[{label}]", max_in_flight)
        # Exchanges that may go on when nobody waits for them: they take the place of no other.
        self.carriers = DaemonPool(f"syncmcp-carrier[{label}]", max_in_flight)
        # One thread: it continues futures whose steps run code of the caller's.
        self.resumer = DaemonPool(f"syncmcp-resume[{label}]", 1)
        self.naps = InterruptibleWaits()
        self.closed = False

    def facts(self) -> dict[str, int]:
        """How many jobs wait for a thread, and for what; see `Dump`."""
        return {
            "handlers": self.handlers.waiting,
            "callbacks": self.workers.waiting,
            "exchanges": self.exchanges.waiting,
            "futures": self.resumer.waiting,
        }

    def close(self) -> None:
        """Let the threads end once they have nothing to do. Waits for nobody.

        What is submitted later is still done: some futures learn of the end only after it.
        """
        self.closed = True
        self.naps.close()
        self.workers.close()
        self.handlers.close()
        self.exchanges.close()
        self.carriers.close()
        self.resumer.close()
