"""Delays forks of this process while a thread runs a block that a fork must not interrupt.

If a fork happens while a server is started, the child inherits the pipes to the server, and no code
of the child closes them. The server would never see the end of its stdin. If a fork happens while
another thread imports a module, the child inherits the lock of that module, but not the thread that
would release it. The child would hang when it imports the module. The same applies to the lock for
building models.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from syncmcp._base.building import build_lock
from syncmcp._concurrency.timing import Deadline, Latch

# How long a fork waits for running blocks, in seconds. A file system that does not respond may
# delay a block without limit.
_FORK_WAIT = 1.0

# Held during a fork. Reentrant: a signal handler may fork.
_forking = threading.RLock()

# The latch of each thread within a block, set at its end. Blocks do not wait for each other.
_under_way: dict[int, Latch] = {}


@contextlib.contextmanager
def delaying_forks() -> Iterator[None]:
    """Delay forks by other threads until the block ends, for one second at most.

    Used when a server is started, and for imports within functions.
    """
    me, done = threading.get_ident(), Latch()
    if me in _under_way:  # a fork waits for the outer block: this one must not wait for the fork
        yield
        return
    try:  # Ctrl-C may interrupt the end of `with`
        with _forking:
            _under_way[me] = done
        yield
    finally:
        _under_way.pop(me, None)
        done.set()


def _wait_for_blocks() -> None:
    deadline, me = Deadline(_FORK_WAIT), threading.get_ident()
    for thread, done in list(_under_way.items()):
        if thread != me:
            done.wait(deadline.remaining())


if hasattr(os, "register_at_fork"):
    # `before` functions run in the opposite order: a fork acquires `build_lock`, which blocks may
    # need, after these have ended. No module of models registers it: a fork may wait for the import
    # of that module, and would then release a lock that it has not acquired. The lock functions are
    # in C: Ctrl-C takes effect before or after acquire and release, not in between.
    os.register_at_fork(
        before=build_lock.acquire,
        after_in_parent=build_lock.release,
        after_in_child=build_lock.release,
    )
    os.register_at_fork(before=_wait_for_blocks, after_in_child=_under_way.clear)
    os.register_at_fork(
        before=_forking.acquire,
        after_in_parent=_forking.release,
        after_in_child=_forking.release,
    )
