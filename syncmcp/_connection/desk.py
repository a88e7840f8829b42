"""Where the questions of one server are kept until they are answered; whom a connection tells."""

from __future__ import annotations

import contextvars
import math
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._concurrency.pool import DaemonPool
from syncmcp._concurrency.timing import Deadline, TimerEntry, timer
from syncmcp.errors import McpError
from syncmcp.handlers import CausingCall, HandlerContext
from syncmcp.handlers.url_completion import UrlVisits

if TYPE_CHECKING:
    from syncmcp._connection.answering import HandlerRegistry
    from syncmcp._connection.questions import OpenQuestion
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp.handlers import ProgressHandler
    from syncmcp.handlers.context import ConnectedServer


class ConnectionEvents(Protocol):
    """What a connection tells its client, from whatever thread; nothing of it blocks."""

    def handler_context(
        self,
        server: ConnectedServer,
        method: str,
        *,
        call: CausingCall | None,
        timeout: float | None,
        progress: ProgressHandler | None,
        resumes_call: bool,
    ) -> HandlerContext | None:
        """What the handler of a question is given; `None` if nobody has the client any more."""
        ...

    def notified(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        """The server says that something has changed."""
        ...

    def task_changed(self, task: str) -> None:
        """The server says that a task has changed."""
        ...

    def task_abandoned(self, task: str, undeclared: Undeclared) -> None:
        """A call that was given up has become a task, which nobody will wait for."""
        ...

    def server_stream_closed(self) -> None:
        """The server cannot tell anything outside of requests any more."""
        ...

    def interrupted(self, error: McpError) -> None:
        """The connection, or its session, is lost."""
        ...


class QuestionRegistry:
    """Where the questions of one server are answered, and what every handler is told.

    Args:
        label: What logs call the server.
        events: Who is told what happens; `None` once nobody has the client any more. Open clients
            that nobody holds must be found by the collector: this is a weak reference.
        table: Who answers.
        workers: Where handlers run. A handler that waits for this library lends its thread's seat.
        callbacks: Where the callbacks of tokens run.
        carriers: Where exchanges run that go on when nobody waits for them.
        human_timeout: How long, in seconds, a handler may take; `None` for any time.
    """

    def __init__(
        self,
        label: str,
        events: Callable[[], ConnectionEvents | None],
        table: HandlerRegistry,
        workers: DaemonPool,
        callbacks: DaemonPool,
        carriers: DaemonPool,
        human_timeout: float | None,
    ) -> None:
        self.label = label
        self.events = events
        self.table = table
        self.workers = workers
        self.callbacks = callbacks
        self.carriers = carriers
        self.human_timeout = human_timeout
        self.visits = UrlVisits(label, callbacks.run)
        self.server: ConnectedServer | None = None
        self.ended: McpError | None = None
        self.context = contextvars.copy_context()
        # Guards what follows; held for look-ups and changes only.
        self._lock = threading.RLock()
        self._open: set[OpenQuestion] = set()
        # Of these, the ones that no handler has yet.
        self._waiting: set[OpenQuestion] = set()
        # The one appointment with the timer, and when it is.
        self._appointment: TimerEntry | None = None
        self._next_look = math.inf

    @property
    def waiting(self) -> int:
        """How many questions wait for a handler to be free."""
        return len(self._waiting)

    def admit(self, asked: OpenQuestion) -> bool:
        """Keep a question until it is settled; `False` once the connection has ended."""
        with self._lock:
            if self.ended is not None:
                return False
            self._open.add(asked)
            self._waiting.add(asked)
        self.visits.register(*asked.elicitation_ids)
        return True

    def began(self, asked: OpenQuestion) -> None:
        """A handler has a question now; its time is running."""
        with self._lock:
            self._waiting.discard(asked)
            if asked in self._open:
                self._watch(asked.deadline)

    def dismiss(self, asked: OpenQuestion) -> None:
        """Forget a question that is settled."""
        with self._lock:
            self._open.discard(asked)
            self._waiting.discard(asked)

    def close(self, error: McpError) -> None:
        """The connection has ended like this: withdraw every question that is open."""
        with self._lock:
            self.ended = error
            open_questions = list(self._open)
            if self._appointment is not None:
                self._appointment.cancel()
        for asked in open_questions:
            asked.withdraw("the connection ended")
        self.visits.close("the connection ended")

    def facts(self) -> list[dict[str, Any]]:
        """The questions that are open, as plain values; see `Dump`."""
        with self._lock:
            asked = [(each, each in self._waiting) for each in self._open]
        found: list[dict[str, Any]] = []
        for each, waits in asked:
            left = None if each.deadline is None else each.deadline.remaining()
            found.append(
                {
                    "method": each._method,
                    "state": "waits for a handler" if waits else "is with its handler",
                    "left": None if left is None else round(left, 3),
                }
            )
        return found

    def _watch(self, deadline: Deadline | None) -> None:
        """Look when it has passed, or before; called with the lock held.

        All handlers have the same time, so that a later one needs no appointment of its own.
        """
        when = None if deadline is None else deadline.at
        if when is not None and when < self._next_look:
            if self._appointment is not None:
                self._appointment.cancel()
            self._next_look = when
            self._appointment = timer.at(when, self._look)

    def _look(self) -> None:
        """On the timer thread: end what has run out of time."""
        late: list[OpenQuestion] = []
        with self._lock:
            self._next_look = math.inf
            for asked in self._open:
                deadline = asked.deadline
                if deadline is not None and deadline.expired:
                    late.append(asked)
                else:
                    self._watch(deadline)
        for asked in late:
            # What comes of it may write, and that is not for the timer's thread.
            self.callbacks.run(asked._expire)
