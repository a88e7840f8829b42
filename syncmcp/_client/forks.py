"""Clients that are not open when their process forks.

Servers of web applications and of task queues like to load a program once, and fork then. A client
that has no connection at that moment has nothing that is the parent's alone.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from syncmcp._concurrency import timing

if TYPE_CHECKING:
    from syncmcp._client.client import Client

_clients: weakref.WeakSet[Client] = weakref.WeakSet()


def register(client: Client) -> None:
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
