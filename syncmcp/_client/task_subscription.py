"""What a server of 2026-07-28 tells of the tasks that are waited for: one request for all of them.

It only ends the pause before the next look. Without it that comes by itself, so nothing that goes
wrong here is an error to anybody.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._client.listening import StreamSubscription
from syncmcp._concurrency.timing import Deadline
from syncmcp._concurrency.waits import EventQueue
from syncmcp._protocol.subscription import TASK, ChangeFilter
from syncmcp.errors import McpError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from syncmcp._client.core import ClientCore
    from syncmcp._connection.connection import Connection

_log = logging.getLogger("syncmcp.tasks")

MOST = 256
"""The server is asked to tell of so many tasks at most; others are looked at only."""


class TaskSubscription:
    """Has the server of one client tell of tasks as long as somebody waits for them.

    What a request listens for cannot be changed: when another task is waited for, a new one takes
    the place of the one before. Nothing here blocks but `_adjust`, which is on a pool thread.
    """

    def __init__(self, core: ClientCore) -> None:
        self._core: Callable[[], ClientCore | None] = weakref.ref(core)
        # Guards what follows. Reentrant as all locks that the garbage collector may need.
        self._lock = threading.RLock()
        self._claims: Counter[str] = Counter()
        self._stream: _TaskStream | None = None
        # What is to take its place; the server has not agreed yet.
        self._opening: _TaskStream | None = None
        self._adjusting = False
        # Tasks that the server does not tell of, though it does of others.
        self._refused: set[str] = set()
        # Where the server has agreed once, and where it has not when it was asked first.
        self._willing: Callable[[], Connection | None] = _nowhere
        self._silent: Callable[[], Connection | None] = _nowhere

    def claim(self, task: str) -> Callable[[], object]:
        """Somebody waits for a task; return what says, once, that they do not any more."""
        core = self._core()
        assert core is not None, "who waits has the core"
        pools = core.pools
        unfollow = pools.naps.follow(task)
        with self._lock:
            self._claims[task] += 1
            begins = not self._adjusting and bool(self._lacking(core))
            self._adjusting = self._adjusting or begins
            stream = self._stream
        if begins:
            pools.workers.run(self._adjust)
        if stream is not None and task in stream.granted.tasks:
            # Others are told of it already; what they were told since its last look is news here.
            pools.naps.notify_task(task)
        return partial(self._let_go, task, unfollow)

    def _let_go(self, task: str, unfollow: Callable[[], object]) -> None:
        unfollow()
        streams: list[_TaskStream | None] = []
        with self._lock:
            self._claims[task] -= 1
            if not self._claims[task]:
                del self._claims[task]
                self._refused.discard(task)
            if not self._claims:
                streams = [self._stream, self._opening]
                self._stream = self._opening = None
        for stream in streams:
            if stream is not None:
                stream.close(Deadline(0))

    def _lacking(self, core: ClientCore | None) -> tuple[str, ...]:
        """What the server is to be asked for instead, if anything; called with the lock held."""
        connection = None if core is None else core.connection
        if connection is None or connection is self._silent() or connection.dialect.stateful:
            return ()
        if self._stream is not None and self._stream.inbox.closed:  # that was the server's wish
            self._refused.update(self._claims.keys() & set(self._stream.wanted.tasks))
            self._stream = None
        asked_for = () if self._stream is None else self._stream.wanted.tasks
        wanted = tuple(task for task in self._claims if task not in self._refused)[:MOST]
        return wanted if set(wanted) - set(asked_for) else ()

    def _adjust(self) -> None:
        """On a pool thread: ask for what is wanted, until that is what was asked for."""
        while True:
            core = self._core()
            with self._lock:
                wanted = self._lacking(core)
                if core is None or not wanted:
                    self._adjusting = False
                    return
                stream = self._opening = _TaskStream(core, ChangeFilter(tasks=wanted), EventQueue())
            error: McpError | None = None
            try:
                stream.start(core, Deadline(core.settings.open_timeout))
            except McpError as failure:
                error = failure
            self._opened(core, stream, error)
            del core  # nobody is kept by what is only waited for

    def _opened(self, core: ClientCore, stream: _TaskStream, error: McpError | None) -> None:
        """The server has agreed, or there is an error."""
        connection = core.connection
        here: Callable[[], Connection | None] = (
            _nowhere if connection is None else weakref.ref(connection)
        )
        before = None
        with self._lock:
            wanted = self._opening is stream  # or nobody waits any more for what it was for
            if wanted:
                self._opening = None
            if wanted and error is None:
                before, self._stream, self._willing = self._stream, stream, here
            elif wanted and connection is not None and connection is self._willing():
                asked_for = () if self._stream is None else self._stream.wanted.tasks
                self._refused.update(set(stream.wanted.tasks) - set(asked_for))
            elif wanted:
                self._silent = here
        if error is not None:
            _log.debug("[%s] does not tell of tasks: %s", core.label, error)
            return
        if not wanted:
            stream.close(Deadline(0))
            return
        heard: Iterable[str] = ()
        if before is not None:
            heard = before.granted.tasks
            before.close(Deadline(0))
        # What changed before the server agreed was told to nobody.
        stream.look(set(stream.granted.tasks).difference(heard))


class _TaskStream(StreamSubscription):
    """One request to be told of tasks."""

    short = logging.DEBUG

    def changed(self, method: str, params: dict[str, Any]) -> None:
        """See `StreamSubscription`."""
        task = params.get("taskId")
        if method == TASK and isinstance(task, str):
            self.look((task,))

    def missed(self, core: ClientCore) -> None:
        """See `StreamSubscription`."""
        self.look(self.granted.tasks)

    def look(self, tasks: Iterable[str]) -> None:
        """Have those who wait for these tasks look at them now. Never blocks."""
        core = self._core()
        if core is not None:
            for task in tasks:
                core.pools.naps.notify_task(task)


def _nowhere() -> None:
    """No connection."""
