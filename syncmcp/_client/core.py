"""What a client is behind its methods: its connection from opening to loss, its threads, its cache.

The connection tells the core what happens there (`ConnectionEvents`), and knows nothing else of it.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from syncmcp._base.checks import seconds
from syncmcp._client import lifetime
from syncmcp._client.caching import ResultCache
from syncmcp._client.lifetime import Heartbeat, Pools
from syncmcp._client.opening import behind, first_way, open_connection, transport_to
from syncmcp._client.retrying import RetryRules, RetryState
from syncmcp._client.session_state import SessionState
from syncmcp._concurrency import timing
from syncmcp._concurrency.cancel import call_when_cancelled
from syncmcp._concurrency.timing import Backoff, Deadline
from syncmcp._connection.client_services import ClientServices
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import ResolvedOptions
from syncmcp._connection.tool_schemas import ValidationOptions
from syncmcp._connection.wire_log import WireLog
from syncmcp._protocol.steps import Send
from syncmcp._protocol.tasks import CANCEL
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    ForkedError,
    McpError,
    ProtocolError,
    RequestTimeout,
    ServerError,
    SessionLost,
    TransportError,
    UsageError,
    fresh,
)
from syncmcp.handlers import HandlerContext, run_callbacks_with
from syncmcp.handlers.server import ConnectedServer
from syncmcp.transports.base import Resumable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from syncmcp._client.settings import Settings
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp._connection.client_services import HandlerRegistry
    from syncmcp._protocol.capabilities import Undeclared
    from syncmcp._protocol.negotiate import Negotiated

_log = logging.getLogger("syncmcp.client")


class TaskWatcher(Protocol):
    """Has the server tell of tasks, where it can."""

    def claim(self, task: str) -> Callable[[], object]:
        """Somebody waits for a task; return what says, once, that they do not any more."""
        ...


class HasCore(Protocol):
    """A client."""

    _core: ClientCore


def core_of(client: HasCore) -> ClientCore:
    """What is behind a client, for those parts of the library that work with clients."""
    return client._core


class ConnectAttempt:
    """One thread's attempt to open a connection, which others wait for, and how it failed."""

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.failure: McpError | None = None


class ClientCore:
    """Opens the connection when it is needed, replaces one that was lost, and closes it.

    Any thread may call any method.

    Args:
        settings: What the client was given.
        handlers: Who answers and who is told.
        lazy: Whether the first call may open it.
        post: Makes a request whose end nobody waits for; never blocks.

    Attributes:
        label: What logs and errors call the server.
        resolve: See `Settings.resolve`.
        connection: The connection there is, or was: one that died stays until there is another.
        negotiated: What was agreed with the server; `None` while the client is not open.
        repeatable: What is sent again after a failure.
        cache: Results that are kept for a while; `None` for none.
        checks: What is checked by the schemas of tools.
        schemas: What is known of these.
        state: What the server is asked for in each new session.
        hearing: Has the server tell of tasks.
        facade: The client in front of it, which lives as long as anybody, or a call, has it.
        wire: The newest frames.
        lock: Guards the life of the connection; held for changes only, never while something opens
            or closes.
    """

    def __init__(
        self,
        settings: Settings,
        handlers: HandlerRegistry,
        *,
        lazy: bool,
        post: Callable[[ClientCore, str, dict[str, Any] | None, Undeclared], None],
    ) -> None:
        self.settings = settings
        self.label = settings.label
        self.handlers = handlers
        self.resolve = settings.resolve
        self._post = post
        self.hearing: TaskWatcher
        self.facade: weakref.ref[Any] | None = None
        self._server = behind(settings.target)
        self.repeatable = RetryRules(
            settings.retry, trusted=settings.trusted, reopens=isinstance(self._server, Http)
        )
        self.cache = ResultCache.of(
            settings.cache, settings.target, extensions=settings.extensions, offer=handlers.offer
        )
        self.wire = WireLog(self.label, settings.target, settings.interceptors)
        self.repeatable.on_repeat = self.wire.on_repeat
        self.checks = ValidationOptions.of(settings.validate_output, settings.validate_input)
        self.schemas = handlers.schemas
        self.state = SessionState()
        self._generation = timing.fork_generation
        self.lock = threading.RLock()
        # Guarded by the lock, as is everything below.
        self._changed = threading.Condition(self.lock)
        self.wanted = lazy
        self._opening: Connection | None = None
        self._attempt: ConnectAttempt | None = None
        # The thread that began to open it last.
        self._opener: int | None = None
        self.connection: Connection | None = None
        # Those whose session is gone, as long as calls are in flight there.
        self._retired: list[Connection] = []
        self._watch: Heartbeat | None = None
        self.negotiated: Negotiated | None = None
        self._pools: Pools | None = None
        self._finalizer: weakref.finalize[..., ClientCore] | None = None
        # The revision that the server spoke last and the transport that led there, and the id after
        # the last one used.
        self._known: str | None = None
        self._way = first_way(settings.target, settings.mode)
        self._next_id = 1
        self._restarts = Backoff()
        lifetime.renew_in_child(self)

    def __repr__(self) -> str:
        return f"<Client {self.label} {'closed' if self.connection is None else 'open'}>"

    # -- opening ---------------------------------------------------------------------------------

    def open(self, deadline: Deadline | None = None) -> None:
        """Have a connection opened, in more than one attempt if that is worth it.

        Args:
            deadline: When it must be there; by default after `open_timeout`.

        Raises:
            McpError: None came about.
        """
        if deadline is None:
            deadline = Deadline(self.settings.open_timeout)
        options = ResolvedOptions(None, None)
        repetition: RetryState | None = None
        while True:
            try:
                self.link(deadline)
                return
            except McpError as error:
                if repetition is None:
                    opening = Send("initialize", None)
                    repetition = RetryState(opening, options, deadline, self.repeatable, self.label)
                pause = repetition.pause(error, None)
                if pause is None:
                    raise
                repetition.count(error, pause)
            self.sit_out(pause, options, deadline)

    def open_or_close(self, close: Callable[[], object]) -> None:
        """Open; where Ctrl-C comes behind that, close: a caller that gets no client cannot do it.

        Args:
            close: Closes the client.

        Raises:
            McpError: See `open`.
        """
        with self.lock:
            self.wanted, before = True, self.connection
        try:
            self.open()
        except BaseException:
            if self.connection is not before and self._opener == threading.get_ident():
                close()
            raise

    def want(self) -> None:
        """From now on calls may open it."""
        with self.lock:
            self.wanted = True

    def live(self) -> Connection | None:
        """The live connection if there is one already; never blocks.

        Raises:
            ClosedError: The client is not open.
        """
        connection = self.connection
        if connection is not None and connection.close_error is None:
            return connection
        self.check_process()
        if not self.wanted:
            raise self.not_open()
        return None

    def link(self, deadline: Deadline, cancel: CancelToken | None = None) -> Connection:
        """The live connection, made anew if the server has died and may be started again.

        Args:
            deadline: When it must be there.
            cancel: Ends waiting for another thread that makes one.

        Raises:
            McpError: There is none, and none came about.
        """
        connection = self.connection
        if connection is not None and connection.close_error is None:
            return connection
        self.check_process()
        mine: ConnectAttempt | None = None
        forget = None if cancel is None else call_when_cancelled(cancel, self._wake)
        try:  # around all of it: Ctrl-C may come at any moment
            with self.lock:
                self._wait_for_others(deadline, cancel)
                if not self.wanted:
                    raise self.not_open()
                dead = self.connection
                if dead is not None and dead.close_error is None:
                    return dead
                mine = self._attempt = ConnectAttempt()
                self._opener = mine.thread
            if dead is not None:
                self._bury(dead, deadline)
            return self._open(deadline.sooner(self.settings.open_timeout))
        except (TransportError, ProtocolError, ServerError) as error:
            if mine is not None:  # another thread would fare no better
                mine.failure = fresh(error)
            raise
        finally:
            if forget is not None:
                forget()
            if mine is not None:
                with self.lock:
                    useless, self._opening = self._opening, None
                    self._attempt = None
                    self._changed.notify_all()
                if useless is not None:
                    useless.close(deadline.sooner(self.settings.close_timeout))

    def _wait_for_others(self, deadline: Deadline, cancel: CancelToken | None) -> None:
        """Wait as long as another thread opens a connection; called with the lock held.

        Raises:
            RequestTimeout: `deadline` passed.
            RequestCancelled: `cancel`, which wakes this thread, was cancelled.
            McpError: The other thread had no luck.
            UsageError: This is the thread that opens it: an interceptor wants to use the client.
        """
        while self.wanted and (attempt := self._attempt) is not None:
            if attempt.thread == threading.get_ident():
                raise UsageError(
                    "an interceptor cannot call a client that is being opened", server=self.label
                )
            if cancel is not None:
                cancel.raise_if_cancelled()
            if not self._changed.wait(deadline.remaining()):
                raise RequestTimeout(
                    "the connection was not open in time",
                    kind="open",
                    seconds=deadline.seconds,
                    server=self.label,
                    delivery="not_sent",
                )
            if attempt.failure is not None:
                raise fresh(attempt.failure)

    def _bury(self, dead: Connection, deadline: Deadline) -> None:
        """Clear away a connection that died, and wait a little before the next one."""
        if isinstance(self._server, Stdio) and self._server.restart == "never":
            raise fresh(dead.close_error or self.not_open(), delivery="not_sent")
        self._next_id = max(self._next_id, dead.next_id)
        self.repeatable.forget()
        self.schemas.forget()
        if isinstance(dead.close_error, SessionLost):
            self._retire(dead)
        else:
            dead.close(deadline.sooner(self.settings.close_timeout))
        if isinstance(self._server, Http):
            return  # nothing has to be started; pauses are up to `retry`
        pause = deadline.sooner(self._restarts.next())
        with self.lock:
            while self.wanted and not pause.expired:
                self._changed.wait(pause.remaining())

    def _open(self, deadline: Deadline) -> Connection:
        """Open a connection. One thread at a time."""
        timing.check()
        lifetime.prepare()
        # What another program may have taken the place of is known once it has opened again.
        known = self._known
        self._known = known if isinstance(self._server, Http) else None
        connection, negotiated, way = open_connection(
            self._connect,
            self._way,
            self.settings.mode,
            self.settings.hello(self.handlers.offer()),
            known,
            deadline,
            self.settings.probe_timeout,
            self._server if isinstance(self._server, Stdio) else None,
        )
        self.state.restore(connection, deadline)
        # Before there is a connection to see: then calls go out and questions come in.
        connection.services.server = self.settings.connected(negotiated)
        if self.cache is not None:
            self.cache.reconnected()
        with self.lock:
            wanted = self._opening is connection  # or closed by another thread meanwhile
            if wanted:
                self._opening = None
                self.connection = connection
                self.negotiated = negotiated
                self._known = negotiated.dialect.revision
                self._way = way
                if self._watch is not None:
                    self._watch.stop()
                self._watch = self._watcher(connection)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(
                    self, lifetime.abandoned, connection, self._pools, self.label
                )
                self._finalizer.atexit = False
        if not wanted:
            connection.close(deadline.sooner(self.settings.close_timeout))
            raise self.not_open()
        self._restarts.opened()
        connection.ready()
        return connection

    def _connect(self, older: bool) -> Connection:
        settings = self.settings
        transport = transport_to(
            settings.target,
            older=older,
            rejoin=self._known is None,
            max_in_flight=settings.max_in_flight,
        )
        transport.label = self.label
        pools = self.pools
        services = ClientServices(
            self.label,
            weakref.ref(self),
            self.handlers,
            pools.handlers,
            pools.workers,
            pools.carriers,
            settings.human_timeout,
        )
        connection = Connection(
            transport,
            services,
            self.wire,
            first_id=self._next_id,
            max_in_flight=settings.max_in_flight,
            max_questions=settings.max_questions,
            interceptors=settings.interceptors,
        )
        with self.lock:
            if not self.wanted:
                raise self.not_open()
            self._opening = connection  # where `close` finds it
        lifetime.close_at_exit(connection)
        return connection

    def _watcher(self, connection: Connection) -> Heartbeat | None:
        interval = self.settings.ping_interval
        if interval is None or not connection.dialect.stateful:
            return None
        watch = Heartbeat(connection, interval, self.pools.workers)
        watch.start()
        return watch

    # -- closing ---------------------------------------------------------------------------------

    def close(self, timeout: float | None, *, drain: bool) -> None:
        """End the connection; see `Client.close`."""
        if not self.of_this_process:
            return  # the connection belongs to the parent process, which goes on using it
        limit = self.settings.close_timeout if timeout is None else seconds(timeout, "timeout")
        deadline = Deadline(limit)
        with self.lock:
            self.wanted = False
            connections = [self._opening, self.connection, *self._retired]
            self._retired.clear()
            watch, self._watch = self._watch, None
            self.state.close()
            # An opening that goes on all the same finds that it is nobody's any more.
            self._opening = self.connection = self.negotiated = None
            pools = self._pools
            self.schemas.forget()
            finalizer, self._finalizer = self._finalizer, None
            self._changed.notify_all()
        if finalizer is not None:
            finalizer.detach()
        if watch is not None:
            watch.stop()
        for connection in filter(None, connections):
            if drain:
                connection.drain(deadline)
            self._next_id = max(self._next_id, connection.next_id)
            connection.close(deadline)
        if pools is not None:
            pools.close()

    def _retire(self, dead: Connection) -> None:
        """Have a connection whose session is gone closed as soon as no call is in flight there."""
        with self.lock:
            wanted = self.wanted and dead not in self._retired
            if wanted:
                self._retired.append(dead)
        if wanted:
            dead.call_when_idle(partial(self.pools.workers.run, partial(self._discard, dead)))

    def _discard(self, dead: Connection) -> None:
        """On a pool thread."""
        with self.lock:
            if dead in self._retired:
                self._retired.remove(dead)
        dead.close(Deadline(self.settings.close_timeout))

    def renew(self) -> None:
        """After a fork, in the child: what is not open belongs to the child as well."""
        if self.connection is not None or self._attempt is not None or self._retired:
            return
        self._generation = timing.fork_generation
        self._pools = None
        # A thread of the parent may have held these.
        self.handlers.renew()
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)

    # -- for calls -------------------------------------------------------------------------------

    @property
    def pools(self) -> Pools:
        """The threads of the client."""
        pools = self._pools
        if pools is None or pools.closed:
            with self.lock:
                pools = self._pools
                # A closed client keeps its own for calls that are about to learn of it.
                if pools is None or (pools.closed and self.wanted):
                    pools = self._pools = Pools(
                        self.label, self.settings.max_in_flight, self.settings.max_handlers
                    )
        return pools

    def sit_out(self, seconds: float, options: ResolvedOptions, deadline: Deadline) -> None:
        """Wait so long; less if the call is cancelled, its deadline comes, or the client closes."""
        pause, token = deadline.sooner(seconds), options.cancel
        forget = None if token is None else call_when_cancelled(token, self._wake)
        try:
            with self.lock:
                while self.wanted and not (pause.expired or (token and token.cancelled)):
                    self._changed.wait(pause.remaining())
        finally:
            if forget is not None:
                forget()

    def _wake(self) -> None:
        with self.lock:
            self._changed.notify_all()

    def post(self, method: str, params: dict[str, Any] | None, undeclared: Undeclared) -> None:
        """Make a request whose end nobody waits for; never blocks."""
        self._post(self, method, params, undeclared)

    def remember_log_level(self, level: str | None, undeclared: Undeclared) -> None:
        """Ask for this level in each request from now on, where that is how it is asked for.

        Elsewhere each new session is asked for it, in this way if the server does not declare it.
        """
        self.state.log_level = level
        self.state.log_level_undeclared = undeclared
        if self.connection is not None:
            self.connection.log_level = level

    @property
    def client(self) -> Any:
        """The client in front of it, if there still is one."""
        return None if self.facade is None else self.facade()

    @property
    def server(self) -> ConnectedServer:
        """What the server said of itself.

        Raises:
            ClosedError: The client is not open.
        """
        if (negotiated := self.negotiated) is None:
            raise self.not_open()
        return self.settings.connected(negotiated)

    def resumable(self) -> Resumable | None:
        """The transport, if it has a session that another one could go on with."""
        connection = self.connection
        if connection is None or not isinstance(connection.transport, Resumable):
            return None
        return connection.transport

    @property
    def of_this_process(self) -> bool:
        """False in a child of the process that opened it."""
        return self._generation == timing.fork_generation

    def check_process(self) -> None:
        """Check that the client is not the parent process's.

        Raises:
            ForkedError: It is.
        """
        if not self.of_this_process:
            raise ForkedError(
                "this client belongs to the parent process; make a new one after a fork",
                server=self.label,
            )

    def not_open(self) -> ClosedError:
        """What a call ends with that finds the client closed."""
        return ClosedError("the client is not open", server=self.label)

    # -- what the connection tells (`ConnectionEvents`) ------------------------------------------

    def handler_context(self, *args: Any, **options: Any) -> HandlerContext | None:
        """What a handler is given, if there still is a client; see `HandlerContext`."""
        client = self.client
        if client is None:
            return None
        context = HandlerContext(client, *args, **options)
        run_callbacks_with(context, self.pools.workers.run)
        return context

    def notified(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        """The server says that something has changed. Never blocks."""
        if self.cache is not None:
            self.cache.heard(method, dict(params))
        if stateful:
            self.state.news(method, dict(params))

    def task_changed(self, task: str) -> None:
        """The server says that a task has changed. Never blocks."""
        self.pools.naps.news(task)

    def task_abandoned(self, task: str, undeclared: Undeclared) -> None:
        """A call that was given up has become a task, which nobody will wait for. Never blocks."""
        self.pools.workers.run(partial(self.post, CANCEL, {"taskId": task}, undeclared))

    def server_stream_closed(self) -> None:
        """The server cannot tell anything outside of requests any more. Never blocks."""
        self.state.lost(ConnectionLost("the stream of events is closed"))

    def interrupted(self, error: McpError) -> None:
        """Open another session for those who only listen: they make no call that would.

        Never blocks. A server that died is started again for listeners alone: what else a program
        wants of it, a call says.
        """
        with self.lock:
            # Of a connection that never came to be: its error goes to whoever opens it, who knows
            # when to give up. Of the one before: another is being opened already.
            if self._opening is not None:
                return
        if isinstance(error, SessionLost):
            if self.state.subscribed or self.settings.ping_interval is not None:
                self.pools.workers.run(self._reopen)
        elif any(listener.stateful for listener in self.state.listeners):
            self.pools.workers.run(partial(self._reopen, self.state.pauses.next()))

    def _reopen(self, pause: float = 0.0) -> None:
        """On a pool thread, after `pause` seconds."""
        self.sit_out(pause, ResolvedOptions(None, None), Deadline(None))
        try:
            self.open()
        except ClosedError:
            return
        except McpError as error:
            _log.warning("[%s] no new session was opened: %s", self.label, error)
            self.state.lost(error)
