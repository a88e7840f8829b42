"""The client: puts the parts together, opens and closes them."""

from __future__ import annotations

import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from typing_extensions import ParamSpec

from syncmcp._base.checks import seconds, some_seconds, text, whole_number
from syncmcp._client import lifetime
from syncmcp._client.batch import Batching
from syncmcp._client.caching import Kept
from syncmcp._client.functions import ToolFunctions
from syncmcp._client.opening import (
    behind,
    first_way,
    label_of,
    open_connection,
    settled,
    transport_to,
)
from syncmcp._client.pools import Pools
from syncmcp._client.registration import Changes, Notifying, Registration, as_roots
from syncmcp._client.requests import Request, Resume
from syncmcp._client.retrying import Repeatable, Retry
from syncmcp._client.session import Attempt, Sessions
from syncmcp._client.session_state import Standing
from syncmcp._client.settings import reduced, settings_of
from syncmcp._concurrency import gevent, timing
from syncmcp._concurrency.timing import Backoff, Deadline
from syncmcp._connection.answering import HandlerTable
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import CallOptions, Options, check_undeclared
from syncmcp._connection.questions import Desk
from syncmcp._connection.schemas import Checks, OutputCheck
from syncmcp._connection.wire_log import Wire
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.exchange import MAX_ROUNDS
from syncmcp._protocol.negotiate import MODES, Hello, Negotiated
from syncmcp._protocol.offer import check_extensions
from syncmcp._protocol.revisions import Mode
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    ForkedError,
    ProtocolError,
    ServerError,
    SessionLost,
    TransportError,
    UsageError,
    fresh,
)
from syncmcp.handlers import (
    HandlerContext,
    Handlers,
    LogHandler,
    ProgressHandler,
    SamplingHandler,
)
from syncmcp.handlers.server import ConnectedServer
from syncmcp.interceptors import Interceptor, as_interceptors
from syncmcp.observe.diagnosis import Diagnosis
from syncmcp.observe.logging import as_log_handler
from syncmcp.transports.base import TransportSource

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._client.session import Watch
    from syncmcp._concurrency.cancel import CancelToken
    from syncmcp.approval import Approval, Policy
    from syncmcp.cache import CacheStore
    from syncmcp.handlers import AnyElicitation, RootsHandler
    from syncmcp.handlers.roots import RootLike, Roots
    from syncmcp.servers_file.entry import ServerEntry
    from syncmcp.transports.memory import InProcessServer
    from syncmcp.types import Implementation

__all__ = ["Client", "Mode", "Target", "connect"]

# What a client does unless it is told otherwise.
_CAREFUL = Retry()
_TIMEOUT = 300.0

Target: TypeAlias = Union[str, Stdio, Http, "ServerEntry", "InProcessServer", TransportSource]
"""A URL, a command to run, an entry of a file of servers, a server in this process, or a recording
or replay of one of these."""


class Client(ToolFunctions, Batching, Notifying, Registration, Sessions, Changes, Diagnosis):
    """A client of one server.

    Opens on `with` or `open()`, and may be opened again after `close()`. Any thread may call it,
    any thread may close it, in any order. A client that is pickled becomes its unopened self: one
    for each process, which opens at its first call and closes at the end of the process.

    Args:
        target: A URL (a plain `str` always is one), `Stdio`, `Http`, an entry of a file of servers
            (`servers_file.read`), whose name and time limit count unless others are given, or a
            server in this process.
        mode: ``"auto"`` finds out what the server speaks; ``"legacy"`` goes straight to
            `initialize`; one of the five revisions insists on it.
        timeout: The longest a call may take in all, in seconds; `None` for no limit.
        idle_timeout: The longest silence after a call's first sign of life, in seconds.
        open_timeout: The longest that opening may take, in seconds.
        probe_timeout: How long, in seconds, an unanswered probe for the newest revision is waited
            for before the server is initialized like an older one; for a child process at most
            half of `open_timeout`. An answer that comes later still counts.
        close_timeout: The longest that closing may take, in seconds.
        on_log: Told what the server logs; see `LogHandler`. Or a logger: it has a child with the
            server's name, which logs it; see `LogRecords`.
        on_progress: Told every call's progress; see `ProgressHandler`.
        on_notification: Told every notification as ``(method, params)``, on a pool thread.
        on_handler_error: Told what a handler did wrong, as ``(error, context)``, on its thread and
            before the server is: what it raised, `Refused` and `Denied` aside, or what is wrong
            with its answer (`InvalidAnswer`).
        client_info: How the client presents itself; by default as syncmcp.
        max_in_flight: How many requests may be under way at one time; more wait in line.
        max_pages: How many pages of a list are fetched at most.
        lazy: Open at the first call, once for all threads, if nobody calls `open()` before.
        name: What to call the server in logs, errors and questions; by default its command or
            host.
        trusted: Whether what the server says of its tools is believed (annotations). Nothing else
            makes a server trusted.
        sampling: Lets a model answer for the server; see `SamplingHandler` and `Sampling`. Only
            what there are handlers for is offered to servers.
        elicitation: Answers forms, if it is a function; for URLs too see `Elicitation`.
        roots: Paths or ``file:`` URIs where servers are to work, or a function that lists them;
            an empty list can be added to later. See `roots`.
        approval: A policy, or an `Approval`, that reviews what a server asks before and after a
            handler answers. Without one, the handlers decide alone.
        human_timeout: How long, in seconds, a handler or a person may take for an answer; then
            the server is refused. `None` for any time. The clocks of a call stand still no
            longer than this for all the questions that belong to it.
        max_handlers: How many handlers run at one time. One that calls the client, or waits for
            a person's approval, does not count meanwhile.
        max_questions: How many questions may wait for a handler (until 2025-11-25); more are
            refused.
        max_rounds: How often a server may ask before a call has a result (2026-07-28).
        retry: What is sent again after a failure, how often and when; `None` for nothing.
        validate_output: What becomes of a result that does not fit its tool's output schema:
            ``"raise"``, ``"warn"`` (in the log) or ``"off"``. See `call_tool`.
        validate_input: Check arguments by the tool's input schema before they are sent.
        extensions: What is added to the protocol: our settings by the identifier of each
            extension. One that the server lacks has no effect: see `server.extension`.
        ping_interval: Ping the server this often, in seconds, and end the connection when two
            pings in a row have no answer within that time (until 2025-11-25).
        interceptors: See every message, and may change, delay or refuse it; see `Interceptor`.
        cache: Where results are kept as long as the server allows it (2026-07-28); `True` for a
            place of its own, `False` for nowhere. See `CallOptions`.
        undeclared: What becomes of a request that needs a capability which the server does not
            declare: ``"refuse"`` raises `NotSupported`, ``"try"`` sends it. See `CallOptions`.

    Raises:
        UsageError: An option makes no sense.
        NotApproved: A file in the working tree names the server, and nobody approved it.
    """

    def __init__(
        self,
        target: Target,
        *,
        mode: Mode = "auto",
        timeout: float | None = _TIMEOUT,
        idle_timeout: float | None = 60.0,
        open_timeout: float | None = 30.0,
        probe_timeout: float = 10.0,
        close_timeout: float = 5.0,
        on_log: LogHandler | logging.Logger | None = None,
        on_progress: ProgressHandler | None = None,
        on_notification: Callable[[str, dict[str, Any]], object] | None = None,
        on_handler_error: Callable[[BaseException, HandlerContext], object] | None = None,
        client_info: Implementation | None = None,
        max_in_flight: int = 256,
        max_pages: int = 1000,
        lazy: bool = False,
        name: str | None = None,
        trusted: bool = False,
        sampling: SamplingHandler | None = None,
        elicitation: AnyElicitation | None = None,
        roots: Iterable[RootLike] | RootsHandler | Roots | None = None,
        approval: Approval | Policy | None = None,
        human_timeout: float | None = 300.0,
        max_handlers: int = 8,
        max_questions: int = 64,
        max_rounds: int = MAX_ROUNDS,
        retry: Retry | None = _CAREFUL,
        validate_output: OutputCheck = "raise",
        validate_input: bool = False,
        ping_interval: float | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        interceptors: Iterable[Interceptor] = (),
        cache: CacheStore | bool = True,
        undeclared: Undeclared = "refuse",
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"mode is one of {', '.join(map(repr, MODES))}, not {mode!r}")
        self._target, name, stated_timeout = settled(target, name)
        # By identity: whoever says 300 wants 300.
        if timeout is _TIMEOUT and stated_timeout is not None:
            timeout = stated_timeout
        self._mode = mode
        self._timeout = seconds(timeout, "timeout")
        self._idle_timeout = seconds(idle_timeout, "idle_timeout")
        self._open_timeout = seconds(open_timeout, "open_timeout")
        self._probe_timeout = seconds(probe_timeout, "probe_timeout") or 0.0
        self._close_timeout = seconds(close_timeout, "close_timeout")
        if client_info is not None and not hasattr(client_info, "to_wire"):
            raise UsageError(f"client_info is an Implementation, not {client_info!r}")
        self._client_info = client_info
        self._extensions = check_extensions({} if extensions is None else extensions)
        self._max_in_flight = whole_number(max_in_flight, "max_in_flight")
        self._page_limit = whole_number(max_pages, "max_pages")
        if approval is not None:
            from syncmcp.approval import as_approval

            approval = as_approval(approval)
        if name is not None:
            text(name, "name")
        self._name = name
        # Once: secrets are searched for in it.
        self._label = name if name is not None else label_of(self._target)
        self._registering = threading.RLock()
        answering = Handlers(sampling, elicitation, approval=approval)
        self._handlers = HandlerTable(
            as_log_handler(on_log, self._label),
            on_progress,
            on_notification,
            answering,
            on_handler_error,
        )
        self._human_timeout = seconds(human_timeout, "human_timeout")
        self._max_handlers = whole_number(max_handlers, "max_handlers")
        self._max_questions = whole_number(max_questions, "max_questions")
        self._round_limit = whole_number(max_rounds, "max_rounds")
        if not isinstance(trusted, bool):
            raise UsageError(f"trusted is True or False, not {trusted!r}")
        self._trusted = trusted
        if retry is not None and not isinstance(retry, Retry):
            raise UsageError(f"retry is a Retry or None, not {retry!r}")
        self._repeatable = Repeatable(
            retry, trusted=trusted, reopens=isinstance(behind(self._target), Http)
        )
        if ping_interval is not None:
            ping_interval = some_seconds(ping_interval, "ping_interval")
        self._ping_interval = ping_interval
        self._interceptors = as_interceptors(interceptors)
        self._undeclared: Undeclared = check_undeclared(undeclared)
        self._cache = cache
        self._kept = Kept.of(
            cache, self._target, extensions=self._extensions, offer=self._handlers.offer
        )
        self._wire = Wire(self._label, self._target, self._interceptors)
        self._repeatable.on_repeat = self._wire.on_repeat
        self._checks = Checks.of(validate_output, validate_input)
        self._schemas = self._handlers.schemas
        self._standing = Standing()
        self._generation = timing.generation
        # Guards everything below it; held for changes only, never while something opens or closes.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._wanted = lazy
        self._opening: Connection | None = None
        self._attempt = None
        self._connection: Connection | None = None
        # Those whose session is gone, as long as calls are in flight there.
        self._retired: list[Connection] = []
        self._watch: Watch | None = None
        self._negotiated: Negotiated | None = None
        self._pools_now: Pools | None = None
        self._finalizer: weakref.finalize[..., Client] | None = None
        # The revision that the server spoke last and the transport that led there, and the id after
        # the last one used.
        self._known: str | None = None
        self._way = first_way(self._target, mode)
        self._next_id = 1
        self._restarts = Backoff()
        self._roots: Roots | None = None
        if roots is not None:
            self._register_roots(as_roots(roots))
        lifetime.renew_in_child(self)

    # -- life --------------------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to the server; does nothing if the client is open.

        Raises:
            ConnectFailed: The server cannot be reached or started.
            RequestTimeout: It took longer than `open_timeout`.
            ProtocolError: There is no revision that both sides speak.
            McpError: What else can go wrong with the first requests.
        """
        self._check_process()
        self._open_or(self.close)
        return self

    def close(self, timeout: float | None = None, *, drain: bool = False) -> None:
        """End the connection; does nothing if the client is not open.

        Calls in flight fail at once with `ClosedError`. May be called from any thread, from
        handlers and callbacks, in ``atexit`` functions.

        Args:
            timeout: The longest it may take, in seconds; `close_timeout` by default.
            drain: Wait for the requests in flight to end by themselves first. No new one is
                sent meanwhile: a list that is fetched page by page ends with `ClosedError`.
        """
        if self._generation != timing.generation:
            return  # the connection belongs to the parent process, which goes on using it
        limit = self._close_timeout if timeout is None else seconds(timeout, "timeout")
        deadline = Deadline(limit)
        with self._lock:
            self._wanted = False
            connections = [self._opening, self._connection, *self._retired]
            self._retired.clear()
            watch, self._watch = self._watch, None
            self._standing.close()
            # An opening that goes on all the same finds that it is nobody's any more.
            self._opening = self._connection = self._negotiated = None
            pools = self._pools_now
            self._schemas.forget()
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

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        if not self._shared:
            self.close()

    def __repr__(self) -> str:
        state = "open" if self._connection is not None else "closed"
        return f"<Client {self._label} {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(Client, self._target, settings_of(self), self._handlers.by_method())

    # -- what the server is --------------------------------------------------------------------

    @property
    def server(self) -> ConnectedServer:
        """What the server said of itself, and the revision that is spoken.

        Raises:
            ClosedError: The client is not open.
        """
        negotiated = self._negotiated
        if negotiated is None:
            raise self._not_open()
        return self._connected(negotiated)

    def _connected(self, negotiated: Negotiated) -> ConnectedServer:
        return ConnectedServer(
            negotiated, name=self._label, trusted=self._trusted, extensions=self._extensions
        )

    @property
    def request(self) -> Request:
        """Send a request of any method; see `Request.__call__`."""
        return Request(self)

    @property
    def resume(self) -> Resume:
        """Go on with a call that waits for answers given by hand; see `Resume.__call__`."""
        return Resume(self)

    # -- for the runner --------------------------------------------------------------------------

    def _resolve(self, given: CallOptions) -> Options:
        defaults = Options(self._timeout, self._idle_timeout, undeclared=self._undeclared)
        return Options.checked(given, defaults) if given else defaults

    def _remember_log_level(self, level: str | None, undeclared: Undeclared) -> None:
        self._standing.log_level = level
        self._standing.log_level_undeclared = undeclared
        if self._connection is not None:
            self._connection.log_level = level

    @property
    def _pools(self) -> Pools:
        pools = self._pools_now
        if pools is None or pools.closed:
            with self._lock:
                pools = self._pools_now
                # A closed client keeps its own for calls that are about to learn of it.
                if pools is None or (pools.closed and self._wanted):
                    pools = self._pools_now = Pools(
                        self._label, self._max_in_flight, self._max_handlers
                    )
        return pools

    def _live(self) -> Connection | None:
        connection = self._connection
        if connection is not None and connection.dead is None:
            return connection
        self._check_process()
        if not self._wanted:
            raise self._not_open()
        return None

    def _link(self, deadline: Deadline, cancel: CancelToken | None = None) -> Connection:
        connection = self._connection
        if connection is not None and connection.dead is None:
            return connection
        self._check_process()
        mine: Attempt | None = None
        forget = None if cancel is None else cancel._subscribe(self._wake)
        try:  # around all of it: Ctrl-C may come at any moment
            with self._lock:
                self._wait_for_others(deadline, cancel)
                if not self._wanted:
                    raise self._not_open()
                dead = self._connection
                if dead is not None and dead.dead is None:
                    return dead
                mine = self._attempt = Attempt()
                self._opener = mine.thread
            if dead is not None:
                self._bury(dead, deadline)
            return self._open(deadline.sooner(self._open_timeout))
        except (TransportError, ProtocolError, ServerError) as error:
            if mine is not None:  # another thread would fare no better
                mine.failure = fresh(error)
            raise
        finally:
            if forget is not None:
                forget()
            if mine is not None:
                with self._lock:
                    useless, self._opening = self._opening, None
                    self._attempt = None
                    self._changed.notify_all()
                if useless is not None:
                    useless.close(deadline.sooner(self._close_timeout))

    def _bury(self, dead: Connection, deadline: Deadline) -> None:
        """Clear away a connection that died, and wait a little before the next one."""
        server = behind(self._target)
        if isinstance(server, Stdio) and server.restart == "never":
            raise fresh(dead.dead or self._not_open(), delivery="not_sent")
        self._next_id = max(self._next_id, dead.next_id)
        self._repeatable.forget()
        self._schemas.forget()
        if isinstance(dead.dead, SessionLost):
            self._retire(dead)
        else:
            dead.close(deadline.sooner(self._close_timeout))
        if isinstance(server, Http):
            return  # nothing has to be started; pauses are up to `retry`
        pause = deadline.sooner(self._restarts.next())
        with self._lock:
            while self._wanted and not pause.expired:
                self._changed.wait(pause.remaining())

    def _open(self, deadline: Deadline) -> Connection:
        """Open a connection. One thread at a time."""
        gevent.check()
        lifetime.prepare()
        server = behind(self._target)
        # What another program may have taken the place of is known once it has opened again.
        known, self._known = self._known, self._known if isinstance(server, Http) else None
        connection, negotiated, way = open_connection(
            self._connect,
            self._way,
            self._mode,
            self._hello(),
            known,
            deadline,
            self._probe_timeout,
            server if isinstance(server, Stdio) else None,
        )
        self._standing.restore(connection, deadline)
        # Before there is a connection to see: then calls go out and questions come in.
        connection.desk.server = self._connected(negotiated)
        if self._kept is not None:
            self._kept.reconnected()
        with self._lock:
            wanted = self._opening is connection  # or closed by another thread meanwhile
            if wanted:
                self._opening = None
                self._connection = connection
                self._negotiated = negotiated
                self._known = negotiated.dialect.revision
                self._way = way
                if self._watch is not None:
                    self._watch.stop()
                self._watch = self._watcher(connection)
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(
                    self, lifetime.abandoned, connection, self._pools_now, self._label
                )
                self._finalizer.atexit = False
        if not wanted:
            connection.close(deadline.sooner(self._close_timeout))
            raise self._not_open()
        self._restarts.opened()
        connection.ready()
        return connection

    def _connect(self, older: bool) -> Connection:
        transport = transport_to(
            self._target,
            older=older,
            rejoin=self._known is None,
            max_in_flight=self._max_in_flight,
        )
        transport.label = self._label
        pools = self._pools
        desk = Desk(
            self._label,
            weakref.ref(self),
            self._handlers,
            pools.handlers,
            pools.workers,
            self._human_timeout,
        )
        connection = Connection(
            transport,
            desk,
            self._wire,
            first_id=self._next_id,
            max_in_flight=self._max_in_flight,
            max_questions=self._max_questions,
            interceptors=self._interceptors,
        )
        with self._lock:
            if not self._wanted:
                raise self._not_open()
            self._opening = connection  # where `close` finds it
        lifetime.close_at_exit(connection)
        return connection

    def _hello(self) -> Hello:
        offer = self._handlers.answering._offer
        if self._client_info is not None:
            return Hello(self._client_info.to_wire(), offer, self._extensions)
        from syncmcp import __version__

        return Hello({"name": "syncmcp", "version": __version__}, offer, self._extensions)

    def _check_process(self) -> None:
        if self._generation != timing.generation:
            raise ForkedError(
                "this client belongs to the parent process; make a new one after a fork",
                server=self._label,
            )

    def _not_open(self) -> ClosedError:
        return ClosedError("the client is not open", server=self._label)


P = ParamSpec("P")


def _opened(make: Callable[P, Client]) -> Callable[P, Client]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> Client:
        """Make a client and open it; takes what `Client` takes."""
        return make(*args, **kwargs).open()

    signature = inspect.signature(make).replace(return_annotation="Client")
    connect.__signature__ = signature  # type: ignore[attr-defined]
    return connect


connect = _opened(Client)
