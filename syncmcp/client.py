"""The client: puts the parts together, opens and closes them."""

from __future__ import annotations

import atexit
import functools
import inspect
import logging
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from typing_extensions import ParamSpec, Unpack

from syncmcp import _threads
from syncmcp._connection import Connection
from syncmcp._opening import open_connection
from syncmcp._options import CallOptions, Options, seconds, text, whole_number
from syncmcp._protocol import jsonrpc
from syncmcp._protocol.dialect import KNOWN_QUESTIONS, Mode
from syncmcp._protocol.negotiate import MODES, Hello, Negotiated
from syncmcp._runner import Pools
from syncmcp._threads import Deadline, monotonic, reaper, timer
from syncmcp.config import Http, Stdio
from syncmcp.errors import (
    ClosedError,
    ForkedError,
    NotSupported,
    RequestTimeout,
    UsageError,
    fresh,
)
from syncmcp.handlers import (
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
)
from syncmcp.operations import Operations, Request

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp.transports.base import Transport
    from syncmcp.transports.memory import InProcessServer
    from syncmcp.types import Implementation, ServerCapabilities

_log = logging.getLogger("syncmcp.client")

__all__ = ["Client", "ConnectedServer", "Mode", "Target", "connect"]

Target: TypeAlias = Union[str, Stdio, Http, "InProcessServer"]
"""A URL, a command to run, or a server in this process."""


class ConnectedServer:
    """What a server said of itself. For display; nothing in here is checked or trusted."""

    def __init__(self, negotiated: Negotiated) -> None:
        self._result = negotiated.result
        self.revision: str = negotiated.dialect.revision
        """The revision that is spoken."""

    @property
    def info(self) -> Implementation | None:
        """Name and version, if the server gave them in a form that can be read."""
        from pydantic import ValidationError

        from syncmcp.types import Implementation

        meta = self._result.get("_meta")
        stated = self._result.get("serverInfo")
        if isinstance(meta, dict):
            stated = meta.get("io.modelcontextprotocol/serverInfo", stated)
        try:
            return None if stated is None else Implementation.model_validate(stated)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server says it can do."""
        from pydantic import ValidationError

        from syncmcp.types import ServerCapabilities

        try:
            return ServerCapabilities.model_validate(self._result.get("capabilities") or {})
        except ValidationError:
            return ServerCapabilities()

    @property
    def instructions(self) -> str | None:
        """How the server wants to be used, in words for a model."""
        stated = self._result.get("instructions")
        return stated if isinstance(stated, str) else None

    def __repr__(self) -> str:
        info = self.info
        return f"<ConnectedServer {info.name if info else '?'} {self.revision}>"


class Client(Operations):
    """A client of one server.

    Opens on `with` or `open()`, and may be opened again after `close()`. Any thread may call it,
    any thread may close it, in any order. A client that is pickled becomes its unopened self,
    which opens at its first call.

    Args:
        target: A URL (a plain `str` always is one), `Stdio`, `Http`, or a server in this process.
        mode: ``"auto"`` finds out what the server speaks; ``"legacy"`` goes straight to
            `initialize`; one of the five revisions insists on it.
        timeout: The longest a call may take in all, in seconds; `None` for no limit.
        idle_timeout: The longest silence after a call's first sign of life, in seconds.
        open_timeout: The longest that opening may take, in seconds.
        probe_timeout: How long, in seconds, an unanswered probe for the newest revision is waited
            for before the server is taken for an older one.
        close_timeout: The longest that closing may take, in seconds.
        on_log: Told what the server logs; see `LogHandler`.
        on_progress: Told every call's progress; see `ProgressHandler`.
        on_notification: Told every notification as ``(method, params)``, on a pool thread.
        client_info: How the client presents itself; by default as syncmcp.
        max_in_flight: How many requests may be under way at one time; more wait in line.
        max_pages: How many pages of a list are fetched at most.
        lazy: Open at the first call, once for all threads, if nobody calls `open()` before.

    Raises:
        UsageError: An option makes no sense.
    """

    def __init__(
        self,
        target: Target,
        *,
        mode: Mode = "auto",
        timeout: float | None = 300.0,
        idle_timeout: float | None = 60.0,
        open_timeout: float | None = 30.0,
        probe_timeout: float = 10.0,
        close_timeout: float = 5.0,
        on_log: LogHandler | None = None,
        on_progress: ProgressHandler | None = None,
        on_notification: Callable[[str, dict[str, Any]], object] | None = None,
        client_info: Implementation | None = None,
        max_in_flight: int = 256,
        max_pages: int = 1000,
        lazy: bool = False,
    ) -> None:
        if mode not in MODES:
            raise UsageError(f"mode is one of {', '.join(map(repr, MODES))}, not {mode!r}")
        self._target = Http(target) if isinstance(target, str) else target
        if not isinstance(self._target, (Stdio, Http)) and not hasattr(self._target, "connect"):
            raise UsageError(f"{target!r} is no URL, Stdio, Http or server")
        self._mode = mode
        self._timeout = seconds(timeout, "timeout")
        self._idle_timeout = seconds(idle_timeout, "idle_timeout")
        self._open_timeout = seconds(open_timeout, "open_timeout")
        self._probe_timeout = seconds(probe_timeout, "probe_timeout") or 0.0
        self._close_timeout = seconds(close_timeout, "close_timeout")
        if client_info is not None and not hasattr(client_info, "to_wire"):
            raise UsageError(f"client_info is an Implementation, not {client_info!r}")
        self._client_info = client_info
        self._max_in_flight = whole_number(max_in_flight, "max_in_flight")
        self._page_limit = whole_number(max_pages, "max_pages")
        self._handlers = Handlers(on_log, on_progress, on_notification)
        self._generation = _threads.generation
        # Guards everything below it; held for changes only, never while something opens or closes.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._wanted = lazy
        self._opening: Connection | None = None
        self._busy = False
        self._connection: Connection | None = None
        self._negotiated: Negotiated | None = None
        self._pools_now: Pools | None = None
        self._finalizer: weakref.finalize[..., Client] | None = None
        # The revision that the server spoke last, and the id after the last one used.
        self._known: str | None = None
        self._next_id = 1
        self._restarts = _Backoff()
        self._log_level: str | None = None

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
        with self._lock:
            self._wanted = True
        self._link(Deadline(self._open_timeout))
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
        if self._generation != _threads.generation:
            return  # the connection belongs to the parent process, which goes on using it
        limit = self._close_timeout if timeout is None else seconds(timeout, "timeout")
        deadline = Deadline(limit)
        with self._lock:
            self._wanted = False
            connections = [self._opening, self._connection]
            # An opening that goes on all the same finds that it is nobody's any more.
            self._opening = self._connection = self._negotiated = None
            pools = self._pools_now
            finalizer, self._finalizer = self._finalizer, None
            self._changed.notify_all()
        if finalizer is not None:
            finalizer.detach()
        for connection in connections:
            if connection is None:
                continue
            if drain:
                connection.drain(deadline)
            self._next_id = max(self._next_id, connection.next_id)
            connection.close(deadline)
        if pools is not None:
            pools.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._connection is not None else "closed"
        return f"<Client {self._label} {state}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._target, {**self._settings(), "lazy": True})

    def _settings(self) -> dict[str, Any]:
        return {
            "mode": self._mode,
            "timeout": self._timeout,
            "idle_timeout": self._idle_timeout,
            "open_timeout": self._open_timeout,
            "probe_timeout": self._probe_timeout,
            "close_timeout": self._close_timeout,
            "on_log": self._handlers.on_log,
            "on_progress": self._handlers.on_progress,
            "on_notification": self._handlers.on_notification,
            "client_info": self._client_info,
            "max_in_flight": self._max_in_flight,
            "max_pages": self._page_limit,
        }

    @property
    def _label(self) -> str:
        target = self._target
        return target.label if isinstance(target, (Stdio, Http)) else target.name

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
        return ConnectedServer(negotiated)

    @property
    def request(self) -> Request:
        """Send a request of any method; see `Request.__call__`."""
        return Request(self)

    # -- custom methods and notifications --------------------------------------------------------

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """Send a notification (until 2025-11-25).

        Raises:
            NotSupported: The revision has no such notification from a client.
        """
        resolved = self._resolve(options)
        text(method, "method")
        deadline = Deadline(resolved.timeout)
        connection = self._link(deadline)
        connection.notify(method, None if params is None else dict(params), deadline)

    def report_progress(
        self,
        token: str | int,
        progress: float,
        total: float | None = None,
        message: str | None = None,
    ) -> None:
        """Tell the server how far a request of its own has come (until 2025-11-25).

        Args:
            token: The ``progressToken`` from the `_meta` of the server's request.
            progress: Must grow with each report.
            total: What `progress` will be at the end, if known.
            message: What is being done.
        """
        params: dict[str, Any] = {"progressToken": token, "progress": progress}
        if total is not None:
            params["total"] = total
        if message is not None:
            params["message"] = message
        self.notify("notifications/progress", params)

    def on_request(self, method: str, handler: RequestHandler | None) -> None:
        """Answer a request of the server's that the library does not know (until 2025-11-25).

        Args:
            method: The method.
            handler: See `RequestHandler`; `None` takes the handler away.

        Raises:
            UsageError: The library answers this method by itself, or the handler is a coroutine
                function.
            NotSupported: The client is open, and servers of its revision send no requests.
        """
        if method in KNOWN_QUESTIONS:
            raise UsageError(f"{method} is no custom method")
        connection = self._connection
        if handler is not None and connection is not None and not connection.dialect.stateful:
            raise NotSupported(
                f"in revision {connection.dialect.revision} servers send no requests",
                server=self._label,
                method=method,
            )
        self._handlers.set_request(method, handler)

    def on_notification(self, method: str, handler: NotificationHandler | None) -> None:
        """Be told of one kind of notification.

        Args:
            method: The method, ``"notifications/tools/list_changed"`` for example.
            handler: See `NotificationHandler`; `None` takes the handler away.
        """
        self._handlers.set_notification(method, handler)

    # -- for the runner --------------------------------------------------------------------------

    def _resolve(self, given: CallOptions) -> Options:
        if not given:
            return Options(self._timeout, self._idle_timeout)
        return Options.checked(given, Options(self._timeout, self._idle_timeout))

    def _remember_log_level(self, level: str) -> None:
        self._log_level = level
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
                    pools = self._pools_now = Pools(self._label, self._max_in_flight)
        return pools

    def _live(self) -> Connection | None:
        connection = self._connection
        if connection is not None and connection.dead is None:
            return connection
        self._check_process()
        if not self._wanted:
            raise self._not_open()
        return None

    def _link(self, deadline: Deadline) -> Connection:
        connection = self._connection
        if connection is not None and connection.dead is None:
            return connection
        self._check_process()
        mine = False
        try:  # around all of it: Ctrl-C may come at any moment
            with self._lock:
                while self._wanted and self._busy:
                    if not self._changed.wait(deadline.remaining()):
                        raise RequestTimeout(
                            "the connection was not open in time",
                            kind="open",
                            seconds=deadline.seconds,
                            server=self._label,
                            delivery="not_sent",
                        )
                if not self._wanted:
                    raise self._not_open()
                dead = self._connection
                if dead is not None and dead.dead is None:
                    return dead
                self._busy = mine = True
            if dead is not None:
                self._bury(dead, deadline)
            return self._open(deadline.sooner(self._open_timeout))
        finally:
            if mine:
                with self._lock:
                    useless, self._opening = self._opening, None
                    self._busy = False
                    self._changed.notify_all()
                if useless is not None:
                    useless.close(deadline.sooner(self._close_timeout))

    def _bury(self, dead: Connection, deadline: Deadline) -> None:
        """Clear away a connection that died, and wait a little before the next one."""
        if isinstance(self._target, Stdio) and self._target.restart == "never":
            raise fresh(dead.dead or self._not_open(), delivery="not_sent")
        self._next_id = dead.next_id
        dead.close(deadline.sooner(self._close_timeout))
        pause = deadline.sooner(self._restarts.next())
        with self._lock:
            while self._wanted and not pause.expired:
                self._changed.wait(pause.remaining())

    def _open(self, deadline: Deadline) -> Connection:
        """Open a connection. One thread at a time."""
        # At interpreter exit, when they are needed, no thread can be started any more.
        timer.start()
        reaper.start()
        _warm_up()
        connection, negotiated = open_connection(
            self._connect, self._mode, self._hello(), self._known, deadline, self._probe_timeout
        )
        connection.log_level = self._log_level
        with self._lock:
            wanted = self._opening is connection  # or closed by another thread meanwhile
            if wanted:
                self._opening = None
                self._connection = connection
                self._negotiated = negotiated
                self._known = negotiated.dialect.revision
                if self._finalizer is not None:
                    self._finalizer.detach()
                self._finalizer = weakref.finalize(
                    self, _abandoned, connection, self._pools_now, self._label
                )
                self._finalizer.atexit = False
        if not wanted:
            connection.close(deadline.sooner(self._close_timeout))
            raise self._not_open()
        self._restarts.opened()
        return connection

    def _connect(self) -> Connection:
        connection = Connection(
            self._transport(),
            self,
            self._handlers,
            self._pools.workers,
            self._pools.handlers,
            first_id=self._next_id,
            max_in_flight=self._max_in_flight,
        )
        with self._lock:
            if not self._wanted:
                raise self._not_open()
            self._opening = connection  # where `close` finds it
        with _registry:
            _open_connections.add(connection)
        return connection

    def _transport(self) -> Transport:
        target = self._target
        if isinstance(target, Stdio):
            from syncmcp.transports.stdio import StdioTransport

            return StdioTransport(target)
        if isinstance(target, Http):
            from syncmcp.transports.http import HttpTransport

            return HttpTransport(target, max_in_flight=self._max_in_flight)
        from syncmcp.transports.memory import MemoryTransport

        return MemoryTransport(target)

    def _hello(self) -> Hello:
        if self._client_info is not None:
            return Hello(self._client_info.to_wire(), {})
        from syncmcp import __version__

        return Hello({"name": "syncmcp", "version": __version__}, {})

    def _check_process(self) -> None:
        if self._generation != _threads.generation:
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
    thread.start()
    thread.join()


class _Backoff:
    """How long to wait before a server that died is started again."""

    def __init__(self) -> None:
        self._deaths = 0
        self._since = 0.0

    def opened(self) -> None:
        """The server is there."""
        self._since = monotonic()

    def next(self) -> float:
        """Seconds to wait: nothing after a long life, else more with each death."""
        if monotonic() - self._since > _LONG_LIFE:
            self._deaths = 0
        self._deaths += 1
        return 0.0 if self._deaths == 1 else min(0.1 * 2.0 ** min(self._deaths, 32), _LONGEST_PAUSE)


# A server that lived this long, in seconds, was healthy.
_LONG_LIFE = 30.0
_LONGEST_PAUSE = 10.0

# What is open in this process, for the end of it; an opening may be under way even then.
_open_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_registry = threading.RLock()


def _close_all() -> None:
    """At exit: no server outlives the program that started it, not one that ignores us either."""
    deadline = Deadline(_EXIT_SECONDS)
    with _registry:
        connections = list(_open_connections)
    for connection in connections:
        try:
            connection.close(deadline)
        except Exception:  # the others must end all the same
            _log.exception("a connection could not be closed at exit")


# What all servers together get to end by themselves when the program ends, in seconds.
_EXIT_SECONDS = 0.8

atexit.register(_close_all)


def _abandoned(connection: Connection, pools: Pools | None, label: str) -> None:
    """A client was collected while it was open (on whatever thread, holding whatever lock)."""
    if not connection.of_this_process:
        return

    def close() -> None:
        connection.close(Deadline(_ABANDONED_SECONDS))
        if pools is not None:
            pools.close()

    reaper.put(close)
    warnings.warn(f"a client of {label} was never closed", ResourceWarning, stacklevel=2)


# What a client that nobody closed gets for its end, in seconds.
_ABANDONED_SECONDS = 5.0


def _unpickle(target: Target, settings: dict[str, Any]) -> Client:
    return Client(target, **settings)
