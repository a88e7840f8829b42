"""Keeps forks of this process apart from what must not be cut in two by one.

A child that is forked while a server is started inherits the pipes to the server before anything
knows them. It would keep them open, and the server would never see the end of its stdin. And a
child that is forked while another thread imports a module inherits the lock of that module, but not
the thread that would unlock it: it would wait for ever where it needs the module. It is the same
with the lock of the models.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator

from syncmcp._base.building import build_lock
from syncmcp._concurrency.timing import Deadline, Latch

# How long, in seconds, a fork waits for the blocks that are under way. A file system that does not
# respond may hold one up for ever.
_FORK_WAIT = 1.0

# Held during a fork. Reentrant: a signal handler may fork.
_forking = threading.RLock()

# One for each thread that is within a block, set at its end. Blocks do not wait for each other.
_under_way: dict[int, Latch] = {}


@contextlib.contextmanager
def delaying_forks() -> Iterator[None]:
    """Have forks by other threads wait until the block is left, though for one second at most.

    For the start of a server, and for imports within functions.
    """
    me, done = threading.get_ident(), Latch()
    if me in _under_way:  # a fork waits for the outer block: this one must not wait for the fork
        yield
        return
    try:  # Ctrl-C may come at the end of `with`
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
    # Before a fork they run in the opposite order: the lock of the models, which blocks may need,
    # is acquired once these have ended. It is not registered by a module of the models: a fork may
    # wait for the import of that, and would release a lock afterwards that it has not acquired.
    # Functions in C acquire and release: Ctrl-C comes before or after such a pair, not between.
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
