"""The core of a client: opens, replaces and closes its connection; owns its threads and its cache.

The core implements `ConnectionEvents`, the only interface through which a connection reaches it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Protocol

from syncmcp._base.checks import seconds
from syncmcp._base.text import logger, visible
from syncmcp._client import lifetime
from syncmcp._client.caching import ResultCache
from syncmcp._client.lifetime import ConnectAttempt, Heartbeat, Pools
from syncmcp._client.opening import (
    initial_transport,
    make_transport,
    open_connection,
    underlying_target,
)
from syncmcp._client.retrying import RetryRules, RetryState
from syncmcp._client.session_state import SessionState
from syncmcp._client.settings import Settings
from syncmcp._concurrency import timing
from syncmcp._concurrency.cancel import CancelToken, call_when_cancelled
from syncmcp._concurrency.timing import Backoff, Deadline, Latch
from syncmcp._connection.client_services import ClientServices, HandlerRegistry
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import CallOptions, ResolvedOptions
from syncmcp._connection.tool_schemas import ValidationOptions
from syncmcp._connection.wire_log import WireLog
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.negotiate import Negotiated
from syncmcp._protocol.steps import Send
from syncmcp._protocol.subscription import read_event
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    ConnectionLost,
    McpError,
    SessionLost,
    forked_error,
    fresh,
)
from syncmcp.handlers.context import ConnectedServer

_log = logger("syncmcp.client")


class HasCore(Protocol):
    """An object with a core: a `Client`."""

    _core: ClientCore


def core_of(client: HasCore) -> ClientCore:
    """The core of a client, for the other packages of the library."""
    return client._core


class ClientCore:
    """Opens the connection at the first use, replaces a lost connection, and closes it.

    Any thread may call any method.
    """

    def __init__(
        self,
        settings: Settings,
        handlers: HandlerRegistry,
        *,
        lazy: bool,
        send_and_forget: Callable[[ClientCore, str, dict[str, Any] | None, Undeclared], None],
        facade: weakref.ref[Any],
    ) -> None:
        self.settings = settings
        self.label = settings.label
        self.handlers = handlers
        # The options of a call, with the settings of the client as defaults.
        self.resolve: Callable[[CallOptions], ResolvedOptions] = partial(
            ResolvedOptions.of, settings.timeout, settings.idle_timeout, settings.undeclared
        )
        self._send_and_forget = send_and_forget
        self._facade = facade  # weakly: the program and running calls keep the `Client` alive
        self._target = underlying_target(settings.target)
        self.retry_rules = RetryRules(
            settings.retry, trusted=settings.trusted, reopens=isinstance(self._target, Http)
        )
        self.cache: ResultCache | None = None
        if settings.cache is not False:
            self.cache = ResultCache(
                settings.cache,
                settings.target,
                extensions=settings.extensions,
                offer=lambda: handlers.offer,
            )
        self.wire = WireLog(self.label, self._target, settings.interceptors)
        self.retry_rules.on_retry = self.wire.repeated
        self.validation = ValidationOptions.of(settings.validate_output, settings.validate_input)
        self.schemas = handlers.schemas
        self.prompt_names: list[str] = []  # of the newest list or page, for hints
        self.session_state = SessionState()
        self._fork_generation = timing.fork_generation
        # Guards everything below; held for changes only, never during I/O.
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)
        # Whether a call may open a connection: after `open`, or if lazy, until `close`.
        self.may_open = lazy
        self._opening: Connection | None = None
        self._attempt: ConnectAttempt | None = None
        # The thread that made the last attempt to open.
        self._last_opener: int | None = None
        self.connection: Connection | None = None  # or a dead one, until it is replaced
        # Connections whose session was lost and that still have calls in flight.
        self._retired: list[Connection] = []
        self._heartbeat: Heartbeat | None = None
        self.negotiated: Negotiated | None = None  # while the client is open
        self._pools: Pools | None = None
        self._finalizer: weakref.finalize[..., ClientCore] | None = None
        # Who closed the client, for errors.
        self._closed_by: str | None = None
        # The last revision, the transport that reached the server, and the next request id.
        self._last_revision: str | None = None
        self._transport_choice = initial_transport(settings.target, settings.mode)
        self._next_id = 1
        self._restart_backoff = Backoff()
        lifetime.inheritable.add(self)

    def __repr__(self) -> str:
        return f"<Client {visible(self.label)} {'closed' if self.connection is None else 'open'}>"

    # -- opening ---------------------------------------------------------------------------------

    def open(self, deadline: Deadline | None = None) -> None:
        """Open a connection within `open_timeout`, or until `deadline`; retry if `retry` allows."""
        if deadline is None:
            deadline = Deadline(self.settings.open_timeout)
        options = ResolvedOptions(None, None)
        retries: RetryState | None = None
        while True:
            try:
                self.ensure_connection(deadline)
                return
            except McpError as error:
                retries = retries or RetryState(
                    Send("initialize", None), options, deadline, self.retry_rules, self.label
                )
                pause = retries.next_delay(error, None)
                if pause is None:
                    raise
                retries.record_retry(error, pause)
            self.sleep(pause, deadline)

    def open_or_close(self, close: Callable[[], object]) -> None:
        """Open; close again if an exception prevents the caller from getting the client."""
        with self.lock:
            self.may_open, before = True, self.connection
        try:
            self.open()
        except BaseException:
            if self.connection is not before and self._last_opener == threading.get_ident():
                close()
            raise

    def allow_opening(self) -> None:
        """Let calls open the connection from now on."""
        with self.lock:
            self.may_open = True

    def live_connection(self) -> Connection | None:
        """The connection if it is alive, else `None`; `ClosedError` if not open. Never blocks."""
        connection = self.connection
        if connection is not None and connection.close_error is None:
            return connection
        self.check_process()
        if not self.may_open:
            raise self.not_open()
        return None

    def ensure_connection(
        self, deadline: Deadline, cancel: CancelToken | None = None
    ) -> Connection:
        """The live connection; opened or replaced, if necessary, by this thread or another one."""
        connection = self.connection
        if connection is not None and connection.close_error is None:
            return connection
        self.check_process()
        mine: ConnectAttempt | None = None
        forget = None
        try:  # Ctrl-C may come at any moment
            if cancel is not None:
                forget = call_when_cancelled(cancel, partial(self._on_cancel, cancel))
            with self.lock:
                while self.may_open and (other := self._attempt) is not None:
                    other.wait(self._changed, deadline, cancel)
                if not self.may_open:
                    raise self.not_open()
                dead = self.connection
                if dead is not None and dead.close_error is None:
                    return dead
                mine = self._attempt = ConnectAttempt(self.label, cancel)
                self._last_opener = mine.thread
            if dead is not None:
                self._clean_up_dead(dead, deadline, cancel)
            mine.check_wanted()
            return self._establish(deadline.sooner(self.settings.open_timeout))
        except McpError as error:
            self.wire.secrets.clean(error)  # it may quote the handshake
            if mine is None or (failure := mine.fail(error)) is error:
                raise
            raise failure from error
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

    def _clean_up_dead(
        self, dead: Connection, deadline: Deadline, cancel: CancelToken | None = None
    ) -> None:
        """Close or retire a dead connection, and wait for the restart backoff."""
        if isinstance(self._target, Stdio) and self._target.restart == "never":
            raise fresh(dead.close_error or self.not_open(), delivery="not_sent")
        self._next_id = max(self._next_id, dead.next_id)
        self.retry_rules.forget()
        self.schemas.forget()
        if isinstance(dead.close_error, SessionLost):
            self._retire(dead)
        else:
            dead.close(deadline.sooner(self.settings.close_timeout))
        if not isinstance(self._target, Http):  # over HTTP, `retry` decides about pauses
            self.sleep(self._restart_backoff.next(), deadline, cancel)

    def _establish(self, deadline: Deadline) -> Connection:
        """Open a new connection. Only one thread at a time runs this."""
        timing.check_gevent()
        lifetime.prepare_shutdown()
        # A restarted command may be another version: its revision is negotiated again.
        last_revision = self._last_revision
        self._last_revision = last_revision if isinstance(self._target, Http) else None
        connection, negotiated, choice = open_connection(
            self._make_connection,
            self._transport_choice,
            self.settings.mode,
            self.settings.client_hello(self.handlers.offer),
            last_revision,
            deadline,
            self.settings.probe_timeout,
            self._target if isinstance(self._target, Stdio) else None,
            "open_timeout" if deadline.seconds == self.settings.open_timeout else "timeout",
        )
        self.session_state.restore(connection, deadline)
        # Before other threads see the connection and the server can ask questions.
        connection.services.server = self.settings.connected_server(negotiated)
        if self.cache is not None:
            self.cache.on_reconnect()
        with self.lock:
            current = self._opening is connection  # False if another thread closed the client
            if current:
                self._opening = None
                self.connection = connection
                self.negotiated = negotiated
                self._last_revision = negotiated.dialect.revision
                self._transport_choice = choice
                if self._heartbeat is not None:
                    self._heartbeat.stop()
                self._heartbeat = self._start_heartbeat(connection)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(
                    self, lifetime.client_abandoned, connection, self._pools, self.label
                )
                self._finalizer.atexit = False
        if not current:
            connection.close(deadline.sooner(self.settings.close_timeout))
            raise self.not_open()
        self._restart_backoff.opened()
        connection.ready()
        if connection.close_error is not None:  # lost after the last request of the opening
            self.interrupted(connection.close_error)
        return connection

    def _make_connection(self, older: bool) -> Connection:
        settings = self.settings
        transport = make_transport(
            settings.target,
            older=older,
            rejoin=self._last_revision is None,
            max_in_flight=settings.max_in_flight,
        )
        transport.label = self.label
        services = ClientServices(
            self.label,
            weakref.ref(self),
            self.handlers,
            self.pools.handlers,
            self.pools.workers,
            settings.human_timeout,
            settings.max_questions_per_call,
            self.wire.secrets,
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
            if not self.may_open:
                raise self.not_open()
            if self._attempt is not None:
                self._attempt.check_wanted()
            self._opening = connection  # so that `close` and a cancel can abort the opening
        lifetime.close_at_exit(connection)
        return connection

    def _start_heartbeat(self, connection: Connection) -> Heartbeat | None:
        interval = self.settings.ping_interval
        if interval is None or not connection.dialect.stateful:
            return None
        heartbeat = Heartbeat(connection, interval, self.pools.workers)
        heartbeat.start()
        return heartbeat

    # -- closing ---------------------------------------------------------------------------------

    def close(self, timeout: float | None, *, drain: bool) -> None:
        """End the connection; see `Client.close`."""
        if not self.of_this_process:
            return  # the parent process continues to use the connection
        limit = self.settings.close_timeout if timeout is None else seconds(timeout, "timeout")
        deadline = Deadline(limit)
        try:
            with self.lock:
                if self.may_open:
                    self._closed_by = f"the thread {threading.current_thread().name!r}"
                self.may_open = False
                # They stay in the list until they are closed: after a Ctrl-C the next close ends
                # them. A thread that is opening one finds `_opening` changed, and closes it.
                self._retired += filter(None, (self._opening, self.connection))
                self._opening = self.connection = self.negotiated = None
                self.session_state.close()
                self.schemas.forget()
                self._changed.notify_all()
            if self._pools is not None:
                self._pools.closing.cancel()
            if self._heartbeat is not None:
                self._heartbeat.stop()
            for connection in [*self._retired]:
                if drain:
                    connection.drain(deadline)
                else:
                    connection.release_answered()
                self._close_retired(connection, deadline)
        except BaseException:
            for connection in [*self._retired]:
                self._close_retired(connection, Deadline(0))
            raise
        finally:
            if self._pools is not None:
                self._pools.close()
            if self._finalizer is not None:
                self._finalizer.detach()

    def _retire(self, dead: Connection) -> None:
        """Close a connection with a lost session, as soon as it has no calls in flight."""
        with self.lock:
            new = self.may_open and dead not in self._retired
            if new:
                self._retired.append(dead)
        if new:
            dead.call_when_idle(partial(self.pools.workers.run, partial(self._close_retired, dead)))

    def _close_retired(self, dead: Connection, deadline: Deadline | None = None) -> None:
        """Close a connection that no new call uses, then forget it; on any thread."""
        self._next_id = max(self._next_id, dead.next_id)
        dead.close(deadline or Deadline(self.settings.close_timeout))
        with self.lock:
            if dead in self._retired:
                self._retired.remove(dead)

    def reset_after_fork(self) -> None:
        """After a fork, in the child: let the child use a client that is not open."""
        if self.connection is not None or self._attempt is not None or self._retired:
            return
        self._fork_generation = timing.fork_generation
        self._pools = None
        # Threads of the parent may have held these locks at the fork.
        self.handlers.renew()
        self.lock = threading.RLock()
        self._changed = threading.Condition(self.lock)

    # -- for calls -------------------------------------------------------------------------------

    @property
    def pools(self) -> Pools:
        """The threads of the client."""
        pools = self._pools
        if pools is None or pools.closing.cancelled:
            with self.lock:
                pools = self._pools
                # A closed client keeps its closed pools for calls that have not failed yet.
                if pools is None or (pools.closing.cancelled and self.may_open):
                    pools = self._pools = Pools(
                        self.label, self.settings.max_in_flight, self.settings.max_handlers
                    )
        return pools

    def sleep(self, seconds: float, deadline: Deadline, cancel: CancelToken | None = None) -> None:
        """Sleep; `deadline`, `cancel` and `close` end it early."""
        if not seconds:
            return
        over = Latch()
        pause = self.pools.pause(seconds, None, deadline, cancel)
        call_when_cancelled(pause, over.set)
        try:
            over.wait(None)
        finally:
            pause.cancel()

    def _on_cancel(self, cancel: CancelToken) -> None:
        """Handle the cancellation of a call that opens or awaits the connection. Never blocks."""
        opening: Connection | None = None
        with self.lock:
            if self._attempt is not None and self._attempt.cancel is cancel:
                opening, self._opening = self._opening, None
            self._changed.notify_all()
        if opening is not None:
            deadline = Deadline(self.settings.close_timeout)
            self.pools.workers.run(partial(opening.close, deadline))

    def send_and_forget(
        self, method: str, params: dict[str, Any] | None, undeclared: Undeclared
    ) -> None:
        """Send a request in the background; its result is ignored. Never blocks."""
        self._send_and_forget(self, method, params, undeclared)

    def remember_log_level(self, level: str | None, undeclared: Undeclared) -> None:
        """Remember the log level: sent with each request (2026-07-28), or set in each new session.

        `undeclared` says whether a server that does not declare logging is asked, too.
        """
        self.session_state.log_level = level
        self.session_state.log_level_undeclared = undeclared
        if self.connection is not None:
            self.connection.log_level = level

    @property
    def client(self) -> Any:
        """The `Client` of this core; `None` if it was garbage-collected."""
        return self._facade()

    @property
    def server(self) -> ConnectedServer:
        """The server's description of itself."""
        if (negotiated := self.negotiated) is None:
            raise self.not_open()
        return self.settings.connected_server(negotiated)

    @property
    def of_this_process(self) -> bool:
        """False in a forked child of the process that opened the client."""
        return self._fork_generation == timing.fork_generation

    def check_process(self) -> None:
        """Raise `ForkedError` if the client belongs to the parent process."""
        if not self.of_this_process:
            raise forked_error(self.label)

    def not_open(self) -> ClosedError:
        """The error of a call on a client that is not open."""
        text = "the client was never opened: use it in a with block, or call open()"
        if self._closed_by is not None:
            text = f"the client was closed by {self._closed_by}: open() opens it again"
        return ClosedError(text, server=self.label)

    # -- events of the connection (`ConnectionEvents`); from any thread ----------------------

    def notified(self, method: str, params: Mapping[str, Any], *, stateful: bool) -> None:
        """The server sent a notification of a change. Never blocks."""
        event = read_event(method, params)
        if event is not None and self.cache is not None:
            self.cache.on_change(event)
        if event is not None and stateful:
            self.session_state.on_change(event)

    def messages_missed(self) -> None:
        """The stream for messages outside of requests was interrupted. Never blocks."""
        self.session_state.changes_missed()

    def server_stream_closed(self) -> None:
        """The stream for messages outside of requests has ended. Never blocks."""
        self.session_state.connection_lost(ConnectionLost("the stream of events is closed"))

    def interrupted(self, error: McpError) -> None:
        """Reopen a lost connection for listeners, which make no calls. Never blocks."""
        with self.lock:
            # The thread that opens a connection handles its loss. The loss of the current one
            # always counts: the attempt to replace it may be cancelled.
            if self.connection is None or self.connection.close_error is not error:
                return
        state = self.session_state
        wanted = any(listener.stateful for listener in state.listeners)
        if isinstance(error, SessionLost):
            wanted = state.has_subscriptions or self.settings.ping_interval is not None
        if wanted:
            self.pools.workers.run(partial(self._reopen, state.reopen_backoff.next()))

    def _reopen(self, pause: float) -> None:
        """Open a new session after `pause` seconds. Runs on a pool thread."""
        self.sleep(pause, Deadline(None))
        try:
            self.open()
        except ClosedError:
            return
        except McpError as error:
            _log.warning("[%s] could not open a new session: %s", self.label, error)
            self.session_state.connection_lost(error)
