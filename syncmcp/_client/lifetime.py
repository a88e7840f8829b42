"""What happens to connections that nobody closes: at the end of the program, or of their client."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import threading
import warnings
import weakref
from typing import TYPE_CHECKING

from syncmcp._concurrency import timing
from syncmcp._concurrency.timing import Deadline, launch, reaper, timer
from syncmcp._protocol import jsonrpc

if TYPE_CHECKING:
    from syncmcp._client.client import Client
    from syncmcp._client.pools import Pools
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
    launch(thread)
    thread.join()


# Clients that are not open when their process forks.
#
# Servers of web applications and of task queues like to load a program once, and fork then. A
# client that has no connection at that moment has nothing that is the parent's alone.


_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def renew_in_child(client: Client) -> None:
    """Have a client belong to the child as well, should the process fork while it is not open."""
    _clients.add(client)


def _after_fork_in_child() -> None:
    for client in list(_clients):
        if client._connection is None and client._attempt is None and not client._retired:
            _inherit(client)


def _inherit(client: Client) -> None:
    client._generation = timing.generation
    client._pools_now = None
    # A thread of the parent may have held these.
    client._registering = threading.RLock()
    client._lock = threading.RLock()
    client._changed = threading.Condition(client._lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
