"""The library's half of a subscription: in a session, or one long request since 2026-07-28."""

from __future__ import annotations

import logging
import threading
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from syncmcp._client.driver import run, with_retries
from syncmcp._client.session_state import UNSUBSCRIBE
from syncmcp._concurrency.pool import lending_handler
from syncmcp._concurrency.queue import EventQueue
from syncmcp._concurrency.timing import Backoff, Deadline, acquire
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.pending_request import PendingListen
from syncmcp._protocol.exchange import exchange
from syncmcp._protocol.steps import Send
from syncmcp._protocol.subscription import ACKNOWLEDGED, LISTEN, TASK, ChangeFilter, read_event
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    NotSupported,
    RequestCancelled,
    RequestTimeout,
    ServerError,
    SubscriptionLost,
    TransportError,
)
from syncmcp.transports.base import HasServerStream as HasStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Literal

    from syncmcp._client.core import ClientCore
    from syncmcp._connection.connection import Connection
    from syncmcp._connection.pending_request import PendingRequest
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.subscription import ChangeEvent


# One who wants to be told of changes, from beginning to end.


_log = logging.getLogger("syncmcp.subscriptions")

# What unsubscribing may take, in seconds, where nobody waits for it.
_UNSUBSCRIBE_SECONDS = 30.0


class SubscriptionBackend(ABC):
    """The library's half of a subscription: knows the client only as long as that is there.

    Attributes:
        wanted: What was asked for.
        granted: What the server agreed to.
        inbox: Where events go.
    """

    stateful: bool

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        self._core: Callable[[], ClientCore | None] = weakref.ref(core)
        self._label = core.label
        self.wanted = wanted
        self.granted = wanted
        self.inbox = inbox
        # Guards what is held at the server: it is given up once.
        self._lock = threading.RLock()

    @abstractmethod
    def open(self, deadline: Deadline) -> None:
        """Ask the server; returns when it has agreed.

        Raises:
            McpError: It has not.
        """

    @abstractmethod
    def unsubscribe(self, deadline: Deadline) -> None:
        """Have the server tell no more, if it was asked to. Raises nothing."""

    @abstractmethod
    def on_reconnect(self, *, stateful: bool) -> None:
        """There is another connection, or session, than before. Never blocks."""

    @abstractmethod
    def on_change(self, event: ChangeEvent) -> None:
        """The server tells everybody of a change (until 2025-11-25). Never blocks."""

    def put(self, event: ChangeEvent) -> None:
        """Pass an event on. Never blocks."""
        if not self.inbox.put(event):
            self.fail("backlog")

    def start(self, core: ClientCore, deadline: Deadline) -> None:
        """Begin.

        Raises:
            McpError: The server does not agree; it tells nothing then.
        """
        # First: what is told from the moment it agrees must not be missed.
        core.session_state.add_listener(self)
        try:
            self.open(deadline)
        except BaseException:
            self.close_in_background()
            raise

    def detach(self) -> None:
        """The program wants no more. Never blocks."""
        self.inbox.end()
        core = self._core()
        if core is not None:
            core.session_state.remove_listener(self)

    def on_client_closed(self) -> None:
        """The client is closed, and nothing is left to be given up. Never blocks."""
        self.detach()

    def close(self, deadline: Deadline) -> None:
        """The program wants no more: tell the server, too."""
        self.detach()
        self.unsubscribe(deadline)

    def close_in_background(self) -> None:
        """As `close`, but never blocks."""
        self.detach()
        core = self._core()
        if core is not None:
            core.pools.workers.run(partial(self.unsubscribe, Deadline(_UNSUBSCRIBE_SECONDS)))

    def fail(
        self, by: Literal["server", "connection", "backlog"], cause: McpError | None = None
    ) -> None:
        """There will be no more events, and the program did not want that. Never blocks."""
        text = {
            "server": "the server ended the subscription",
            "connection": "the connection ended, and the subscription with it",
            "backlog": "too many events wait to be looked at",
        }[by]
        if cause is not None:
            text = f"{text}: {cause.message}"
        error = SubscriptionLost(
            f"{text}; no longer told of: {self.granted}",
            by=by,
            lists=self.granted.kinds,
            uris=self.granted.uris,
            server=self._label,
        )
        error.__cause__ = cause
        self.inbox.end(error)
        self.close_in_background()


class SessionSubscription(SubscriptionBackend):
    """Until 2025-11-25: lists are told of unasked, resources when they are subscribed to."""

    stateful = True

    def __init__(
        self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue, undeclared: Undeclared
    ) -> None:
        super().__init__(core, wanted, inbox)
        self._undeclared: Undeclared = undeclared
        self._acquired_uris: list[str] = []

    def open(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`."""
        core = self._core()
        assert core is not None
        connection = core.ensure_connection(deadline)
        if isinstance(connection.transport, HasStream):
            connection.transport.wait_listening(deadline)
        if not connection.news.heard:
            raise NotSupported(
                "the server has no stream on which it could tell of changes", server=self._label
            )
        for uri in self.wanted.uris:
            with self._lock:
                if self.inbox.ended:
                    return
                # Before it is asked for: perhaps nobody learns whether it came about.
                self._acquired_uris.append(uri)
            ask = partial(_send, core, deadline, self._undeclared)
            core.session_state.resources.acquire(uri, ask, deadline, self._undeclared)
        if not self.wanted.uris:
            # A server tells of its lists from `notifications/initialized` on, to which there is no
            # answer: so one to something later shows that it has seen that.
            with suppress(ServerError):
                run(exchange("ping"), core, ResolvedOptions(None, None), deadline)

    def on_client_closed(self) -> None:
        """See `SubscriptionBackend`."""
        with self._lock:
            self._acquired_uris.clear()
        self.detach()

    def unsubscribe(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`."""
        core = self._core()
        with self._lock:
            held, self._acquired_uris = self._acquired_uris, []
        if core is None:
            return
        ask = partial(_send_if_connected, core, deadline, self._undeclared)
        for uri in held:
            try:
                core.session_state.resources.release(uri, ask)
            except McpError as error:
                _log.debug("[%s] was not told %s: %s", self._label, UNSUBSCRIBE, error)

    def on_change(self, event: ChangeEvent) -> None:
        """See `SubscriptionBackend`."""
        if self.wanted.covers(event):
            self.put(event)

    def on_reconnect(self, *, stateful: bool) -> None:
        """See `SubscriptionBackend`."""
        if not stateful:
            self.fail("connection", ConnectionLost("the server speaks another revision now"))
            return
        for event in self.wanted.everything():
            self.put(event)


def _send(
    core: ClientCore, deadline: Deadline, undeclared: Undeclared, method: str, uri: str
) -> None:
    options = ResolvedOptions(None, None, undeclared=undeclared)
    run(exchange(method, {"uri": uri}), core, options, deadline)


def _send_if_connected(
    core: ClientCore, deadline: Deadline, undeclared: Undeclared, method: str, uri: str
) -> None:
    """Ask if there is anyone to ask: for this, no connection is worth being opened."""
    connection = core.connection
    if connection is not None and connection.dead is None:
        options = ResolvedOptions(None, None, undeclared=undeclared)
        connection.request(method, {"uri": uri}, options, deadline)


class StreamSubscription(SubscriptionBackend):
    """A subscription that is a request of its own, made again when its connection breaks."""

    stateful = False

    partial_grant_level = logging.WARNING
    """How loudly the log says that the server agrees to less than was asked for."""

    def __init__(self, core: ClientCore, wanted: ChangeFilter, inbox: EventQueue) -> None:
        super().__init__(core, wanted, inbox)
        self._backoff = Backoff()
        # The request that is under way, and where; guarded by the lock.
        self._call: PendingListen | None = None
        self._connection: Connection | None = None

    def open(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`.

        Raises:
            SubscriptionLost: The server ends the request at once, without agreeing to anything.
            NotSupported: The server agrees to tell of nothing that is wanted.
        """
        core = self._core()
        assert core is not None
        send = Send(LISTEN, self.wanted.params())
        attempt = partial(self._send_listen, send.params, deadline)
        with_retries(send, core, ResolvedOptions(None, None), deadline, attempt)
        self._backoff.opened()
        refused = self.wanted.without(self.granted)
        if self.granted == ChangeFilter():
            raise NotSupported(
                f"the server does not agree to tell of {refused}", server=self._label, method=LISTEN
            )
        if refused != ChangeFilter():
            _log.log(
                self.partial_grant_level, "[%s] does not agree to tell of %s", self._label, refused
            )

    def _send_listen(
        self, params: dict[str, Any] | None, deadline: Deadline, connection: Connection
    ) -> None:
        """Make the request and wait until the server agrees."""
        call = PendingListen(self._on_message, self._on_end)
        with self._lock:
            if self.inbox.ended:
                raise RequestCancelled("nobody listens any more", delivery="not_sent")
            self._call, self._connection = call, connection
        if connection.transport.blocking:  # HTTP: the exchange lasts as long as its stream
            threading.Thread(
                target=self._run_request,
                args=(connection, call, params),
                name=f"syncmcp-listen[{self._label}]",
                daemon=True,
            ).start()
        else:
            self._run_request(connection, call, params)
        with lending_handler():
            answered = acquire(call.answered, deadline.remaining())
        if not answered:
            late = RequestTimeout(
                "the server did not say what it agrees to tell of", seconds=deadline.seconds
            )
            connection.give_up(call, late)
        if call.acknowledged:
            return
        if isinstance(call.outcome, BaseException):
            raise call.outcome
        raise SubscriptionLost(
            "the server ended the subscription at once",
            by="server",
            lists=self.wanted.kinds,
            uris=self.wanted.uris,
            server=self._label,
        )

    def _run_request(
        self, connection: Connection, call: PendingListen, params: dict[str, Any] | None
    ) -> None:
        try:
            connection.start(call, params)
        except McpError as error:  # nothing was sent
            call.outcome = error
            self._on_end(call)

    def _on_message(self, call: PendingListen, method: str, params: dict[str, Any]) -> None:
        """On the thread that reads."""
        if method == ACKNOWLEDGED:
            with self._lock:
                # Once; and not when it has ended a moment ago, on another thread.
                if call is self._call and not call.acknowledged:
                    self.granted = self.wanted.granted(params)
                    call.acknowledged = True
                    call.answered.release()
            return
        self.on_notification(method, params)

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """The server tells of a change. On the thread that reads."""
        event = read_event(method, params)
        if event is not None and (event.uri is not None or self.wanted.covers(event)):
            self.put(event)

    def _on_end(self, call: PendingRequest) -> None:
        """On whatever thread ended the request, mostly the one that reads."""
        assert isinstance(call, PendingListen)
        with self._lock:
            mine = call is self._call
            if mine:
                self._call = self._connection = None
            if not call.acknowledged:
                call.answered.release()
                return
        outcome = call.outcome
        core = self._core()
        if self.inbox.ended or core is None or not mine:
            return
        if isinstance(outcome, ClosedError):
            self.detach()
        elif isinstance(outcome, TransportError):
            # Nothing is replayed, ever; and after a restart the request must be made again
            # (basic/patterns/subscriptions, "Cancellation").
            core.pools.workers.run(partial(self._listen_again, outcome))
        else:
            by_server = not isinstance(outcome, McpError)
            self.fail("server" if by_server else "connection", None if by_server else outcome)

    def _listen_again(self, error: TransportError) -> None:
        """On a pool thread: listen on another connection."""
        core = self._core()
        if core is None:
            return
        _log.info("[%s] listens again: %s", self._label, error)
        core.sleep(self._backoff.next(), ResolvedOptions(None, None), Deadline(None))
        before = self.granted
        try:
            self.open(Deadline(core.settings.open_timeout))
        except McpError as failure:
            self.granted = before
            if self.inbox.ended or isinstance(failure, ClosedError):
                self.detach()
            else:
                self.fail("connection", failure)
            return
        self.report_missed(core)

    def report_missed(self, core: ClientCore) -> None:
        """What changed while nobody listened is never told. On a pool thread."""
        for event in self.granted.everything():
            if core.cache is not None:
                core.cache.on_change(event)
            self.put(event)

    def on_change(self, event: ChangeEvent) -> None:
        """See `SubscriptionBackend`. Here, what is not told to its own request is not for it."""

    def unsubscribe(self, deadline: Deadline) -> None:
        """See `SubscriptionBackend`. Never blocks."""
        with self._lock:
            call, connection = self._call, self._connection
            self._call = self._connection = None
        if call is not None and connection is not None:
            connection.give_up(call, RequestCancelled("nobody listens any more"))

    def close_in_background(self) -> None:
        """See `SubscriptionBackend`."""
        self.detach()
        self.unsubscribe(Deadline(None))

    def on_reconnect(self, *, stateful: bool) -> None:
        """See `SubscriptionBackend`. Its own request says so first; the other era has none."""
        if stateful:
            self.fail("connection", ConnectionLost("the server speaks another revision now"))


# Notifications about tasks (2026-07-28): one subscription for all tasks that calls wait for. They
# only shorten the pause before the next poll, so no failure here is an error of a call.


_tasks_log = logging.getLogger("syncmcp.tasks")

MAX_TASKS = 256
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
        self._watch_counts: Counter[str] = Counter()
        self._stream: _TaskStream | None = None
        # What is to take its place; the server has not agreed yet.
        self._opening: _TaskStream | None = None
        self._adjusting = False
        # Tasks that the server does not tell of, though it does of others.
        self._refused: set[str] = set()
        # Where the server has agreed once, and where it has not when it was asked first.
        self._accepted_on: Callable[[], Connection | None] = _no_connection
        self._refused_on: Callable[[], Connection | None] = _no_connection

    def watch(self, task: str) -> Callable[[], object]:
        """Somebody waits for a task; return what says, once, that they do not any more."""
        core = self._core()
        assert core is not None, "who waits has the core"
        pools = core.pools
        unfollow = pools.waits.follow(task)
        with self._lock:
            self._watch_counts[task] += 1
            begins = not self._adjusting and bool(self._tasks_to_request(core))
            self._adjusting = self._adjusting or begins
            stream = self._stream
        if begins:
            pools.workers.run(self._adjust)
        if stream is not None and task in stream.granted.tasks:
            # Others are told of it already; what they were told since its last look is news here.
            pools.waits.news(task)
        return partial(self._unwatch, task, unfollow)

    def _unwatch(self, task: str, unfollow: Callable[[], object]) -> None:
        unfollow()
        streams: list[_TaskStream | None] = []
        with self._lock:
            self._watch_counts[task] -= 1
            if not self._watch_counts[task]:
                del self._watch_counts[task]
                self._refused.discard(task)
            if not self._watch_counts:
                streams = [self._stream, self._opening]
                self._stream = self._opening = None
        for stream in streams:
            if stream is not None:
                stream.close(Deadline(0))

    def _tasks_to_request(self, core: ClientCore | None) -> tuple[str, ...]:
        """What the server is to be asked for instead, if anything; called with the lock held."""
        connection = None if core is None else core.connection
        if connection is None or connection is self._refused_on() or connection.dialect.stateful:
            return ()
        if self._stream is not None and self._stream.inbox.ended:  # that was the server's wish
            self._refused.update(self._watch_counts.keys() & set(self._stream.wanted.tasks))
            self._stream = None
        asked_for = () if self._stream is None else self._stream.wanted.tasks
        wanted = tuple(task for task in self._watch_counts if task not in self._refused)[:MAX_TASKS]
        return wanted if set(wanted) - set(asked_for) else ()

    def _adjust(self) -> None:
        """On a pool thread: ask for what is wanted, until that is what was asked for."""
        while True:
            core = self._core()
            with self._lock:
                wanted = self._tasks_to_request(core)
                if core is None or not wanted:
                    self._adjusting = False
                    return
                stream = self._opening = _TaskStream(core, ChangeFilter(tasks=wanted), EventQueue())
            error: McpError | None = None
            try:
                stream.start(core, Deadline(core.settings.open_timeout))
            except McpError as failure:
                error = failure
            self._on_opened(core, stream, error)
            del core  # nobody is kept by what is only waited for

    def _on_opened(self, core: ClientCore, stream: _TaskStream, error: McpError | None) -> None:
        """The server has agreed, or there is an error."""
        connection = core.connection
        here: Callable[[], Connection | None] = (
            _no_connection if connection is None else weakref.ref(connection)
        )
        before = None
        with self._lock:
            wanted = self._opening is stream  # or nobody waits any more for what it was for
            if wanted:
                self._opening = None
            if wanted and error is None:
                before, self._stream, self._accepted_on = self._stream, stream, here
            elif wanted and connection is not None and connection is self._accepted_on():
                asked_for = () if self._stream is None else self._stream.wanted.tasks
                self._refused.update(set(stream.wanted.tasks) - set(asked_for))
            elif wanted:
                self._refused_on = here
        if error is not None:
            _tasks_log.debug("[%s] does not tell of tasks: %s", core.label, error)
            return
        if not wanted:
            stream.close(Deadline(0))
            return
        heard: Iterable[str] = ()
        if before is not None:
            heard = before.granted.tasks
            before.close(Deadline(0))
        # What changed before the server agreed was told to nobody.
        stream.poll_now(set(stream.granted.tasks).difference(heard))


class _TaskStream(StreamSubscription):
    """One request to be told of tasks."""

    partial_grant_level = logging.DEBUG

    def on_notification(self, method: str, params: dict[str, Any]) -> None:
        """See `StreamSubscription`."""
        task = params.get("taskId")
        if method == TASK and isinstance(task, str):
            self.poll_now((task,))

    def report_missed(self, core: ClientCore) -> None:
        """See `StreamSubscription`."""
        self.poll_now(self.granted.tasks)

    def poll_now(self, tasks: Iterable[str]) -> None:
        """Have those who wait for these tasks look at them now. Never blocks."""
        core = self._core()
        if core is not None:
            for task in tasks:
                core.pools.waits.news(task)


def _no_connection() -> None:
    """No connection."""
