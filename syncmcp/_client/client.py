"""The client: the methods that programs call, in front of the parts that do the work."""

from __future__ import annotations

import inspect
import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from typing_extensions import ParamSpec, Unpack

from syncmcp import tasks
from syncmcp._base.checks import text
from syncmcp._client import batch, changes, functions, operations
from syncmcp._client.background import post
from syncmcp._client.core import ClientCore
from syncmcp._client.opening import settled
from syncmcp._client.requests import Request, Resume
from syncmcp._client.retrying import Retry
from syncmcp._client.settings import (
    CAREFUL,
    TIMEOUT,
    Settings,
    Tables,
    check_mode,
    configured,
    reduced,
)
from syncmcp._client.task_subscription import TaskSubscription
from syncmcp._concurrency.timing import Deadline, monotonic
from syncmcp._connection.client_services import HandlerRegistry
from syncmcp._connection.connection import Connection
from syncmcp._connection.options import CallOptions
from syncmcp._connection.tool_schemas import OutputCheck
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.exchange import MAX_ROUNDS
from syncmcp._protocol.revisions import KNOWN_QUESTIONS, Mode
from syncmcp.config import Http, Stdio
from syncmcp.errors import NotSupported, SessionLost, UsageError
from syncmcp.handlers import (
    HandlerContext,
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
    SamplingHandler,
)
from syncmcp.handlers.server import ConnectedServer
from syncmcp.interceptors import Interceptor, as_interceptors
from syncmcp.observe.diagnosis import Dump, threads
from syncmcp.observe.logging import as_log_handler
from syncmcp.tasks import StartTask
from syncmcp.transports.base import TransportSource

if TYPE_CHECKING:
    from typing_extensions import Self

    from syncmcp._protocol.client_capabilities import OfferedCapabilities
    from syncmcp.approval import Approval, Policy
    from syncmcp.cache import CacheStore
    from syncmcp.handlers import AnyElicitation, RootsHandler
    from syncmcp.handlers.roots import RootLike, Roots
    from syncmcp.servers_file.entry import ServerEntry
    from syncmcp.transports.base import InProcessServer
    from syncmcp.types import Implementation

__all__ = ["Client", "Mode", "Target", "connect"]

Target: TypeAlias = Union[str, Stdio, Http, "ServerEntry", "InProcessServer", TransportSource]
"""A URL, a command to run, an entry of a file of servers, a server in this process, or a recording
or replay of one of these."""


class Client:
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

    _core: ClientCore

    # -- requests (`operations` says what each does) ---------------------------------------------

    call_tool = operations.call_tool
    list_tools = operations.list_tools
    iter_tools = operations.iter_tools
    tool = functions.tool
    list_resources = operations.list_resources
    iter_resources = operations.iter_resources
    list_resource_templates = operations.list_resource_templates
    iter_resource_templates = operations.iter_resource_templates
    read_resource = operations.read_resource
    subscribe_resource = operations.subscribe_resource
    unsubscribe_resource = operations.unsubscribe_resource
    list_prompts = operations.list_prompts
    iter_prompts = operations.iter_prompts
    get_prompt = operations.get_prompt
    complete = operations.complete
    ping = operations.ping
    set_log_level = operations.set_log_level
    begin_tool = operations.begin_tool
    begin_prompt = operations.begin_prompt
    begin_read = operations.begin_read
    batch = batch.batch
    task = tasks.task
    list_tasks = tasks.list_tasks
    iter_tasks = tasks.iter_tasks

    listen = changes.listen
    on_tools_changed = changes.on_tools_changed
    on_prompts_changed = changes.on_prompts_changed
    on_resources_changed = changes.on_resources_changed
    on_resource_updated = changes.on_resource_updated

    @property
    def start_task(self) -> StartTask:
        """Call a tool and get a handle of what it does; see `StartTask.__call__`."""
        return StartTask(self)

    @property
    def request(self) -> Request:
        """Send a request of any method; see `Request.__call__`."""
        return Request(self)

    @property
    def resume(self) -> Resume:
        """Go on with a call that waits for answers given by hand; see `Resume.__call__`."""
        return Resume(self)

    def __init__(
        self,
        target: Target,
        *,
        mode: Mode = "auto",
        timeout: float | None = TIMEOUT,
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
        retry: Retry | None = CAREFUL,
        validate_output: OutputCheck = "raise",
        validate_input: bool = False,
        ping_interval: float | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        interceptors: Iterable[Interceptor] = (),
        cache: CacheStore | bool = True,
        undeclared: Undeclared = "refuse",
    ) -> None:
        check_mode(mode)
        resolved, name, stated_timeout = settled(target, name)
        # By identity: a caller who says 300 wants 300.
        if timeout is TIMEOUT and stated_timeout is not None:
            timeout = stated_timeout
        settings = Settings(
            target=resolved,
            mode=mode,
            timeout=timeout,
            idle_timeout=idle_timeout,
            open_timeout=open_timeout,
            probe_timeout=probe_timeout,
            close_timeout=close_timeout,
            client_info=client_info,
            max_in_flight=max_in_flight,
            max_pages=max_pages,
            name=name,
            trusted=trusted,
            human_timeout=human_timeout,
            max_handlers=max_handlers,
            max_questions=max_questions,
            max_rounds=max_rounds,
            retry=retry,
            validate_output=validate_output,
            validate_input=validate_input,
            ping_interval=ping_interval,
            extensions={} if extensions is None else extensions,
            interceptors=as_interceptors(interceptors),
            cache=cache,
            undeclared=undeclared,
        )
        if approval is not None:
            from syncmcp.approval import as_approval

            approval = as_approval(approval)
        self._handlers = HandlerRegistry(
            as_log_handler(on_log, settings.label),
            on_progress,
            on_notification,
            Handlers(sampling, elicitation, approval=approval),
            on_handler_error,
        )
        self._core = ClientCore(settings, self._handlers, lazy=lazy, post=post)
        self._core.facade = weakref.ref(self)
        self._core.hearing = TaskSubscription(self._core)
        # True if the process shares it, having unpickled it: no `with` of one user closes it then.
        self._shared = False
        self._roots: Roots | None = None
        if roots is not None:
            from syncmcp.handlers.roots import as_roots

            self._set_roots(as_roots(roots))

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to the server; does nothing if the client is open.

        Raises:
            ConnectFailed: The server cannot be reached or started.
            RequestTimeout: It took longer than `open_timeout`.
            ProtocolError: There is no revision that both sides speak.
            McpError: What else can go wrong with the first requests.
        """
        self._core.check_process()
        self._core.open_or_close(self.close)
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
        self._core.close(timeout, drain=drain)

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *exc_info: object) -> None:
        if not self._shared:
            self.close()

    def __repr__(self) -> str:
        return repr(self._core)

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(Client, *self._configuration())

    def _configuration(self) -> tuple[Target, dict[str, Any], Tables]:
        """The target, the options and the handlers of single methods that make a client like it."""
        table, settings = self._handlers, self._core.settings
        options = {
            **settings.options(),
            "on_log": table.on_log,
            "on_progress": table.on_progress,
            "on_notification": table.on_notification,
            "on_handler_error": table.on_handler_error,
            "sampling": table.question_handlers.sampling,
            "elicitation": table.question_handlers.elicitation,
            "approval": table.question_handlers.approval,
            "roots": self._roots,
        }
        return settings.target, options, table.by_method()

    def _share(self) -> None:
        self._shared = True

    def _is_wanted(self) -> bool:
        return self._core.wanted

    # -- what the server is, and what goes on ----------------------------------------------------

    @property
    def server(self) -> ConnectedServer:
        """What the server said of itself, and the revision that is spoken.

        Raises:
            ClosedError: The client is not open.
        """
        return self._core.server

    @property
    def session_id(self) -> str | None:
        """The id of the HTTP session, for `Http(session_id=...)`; `None` if there is none.

        Whoever knows it can speak in our name: keep it like a password.
        """
        resumable = self._core.resumable()
        return None if resumable is None else resumable.session_id

    @property
    def last_event_id(self) -> str | None:
        """Where the stream is on which the server sends what belongs to no request.

        For `Http(last_event_id=...)`; `None` if there is no such stream, or its events have no ids.
        """
        resumable = self._core.resumable()
        return None if resumable is None else resumable.last_event_id

    def dump(self) -> Dump:
        """Say what the client is doing at this moment; works in any state, on any thread.

        Calls in flight with their ages, what the server has asked, queues, threads and where they
        are, the newest frames and the end of the server's stderr; see `Dump`.
        """
        return Dump(_facts(self._core))

    # -- who answers, and who is told (at any time, from any thread) -----------------------------

    @property
    def roots(self) -> Roots:
        """Where servers are told to work: add, remove, replace and list (spec: "Roots").

        A change reaches the server by itself. Roots inform; they do not confine.

        Raises:
            UsageError: The client is open, and its handshake said that there are none.
        """
        with self._handlers.changing:
            if self._roots is None:
                from syncmcp.handlers.roots import Roots

                self._set_roots(Roots())
            assert self._roots is not None
            return self._roots

    def set_sampling(self, handler: SamplingHandler | None) -> None:
        """Set, replace or (with `None`) remove who lets a model answer.

        Raises:
            UsageError: It is no handler; or the client is open, and its handshake did not say
                that this can be asked (until 2025-11-25).
        """
        self._change_handlers(sampling=handler)

    def set_elicitation(self, handler: AnyElicitation | None) -> None:
        """Set, replace or (with `None`) remove who answers forms and URLs.

        Raises:
            UsageError: See `set_sampling`.
        """
        self._change_handlers(elicitation=handler)

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
            raise UsageError(f"{method} is no custom method; there is an option of its own for it")
        connection = self._core.connection
        if handler is not None and connection is not None and not connection.dialect.stateful:
            raise NotSupported(
                f"in revision {connection.dialect.revision} servers send no requests",
                server=connection.label,
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

    def _change_handlers(self, **changed: Any) -> None:
        """Replace some of those who answer.

        Raises:
            UsageError: One of them is no handler; or the client is open, and its handshake did not
                say that this can be asked (until 2025-11-25).
        """

        def check(offer: OfferedCapabilities) -> None:
            connection = self._core.connection
            if connection is not None and connection.close_error is None:
                connection.agreed.check_declared(offer)

        self._handlers.change(check, **changed)

    def _set_roots(self, roots: Roots) -> None:
        self._change_handlers(roots=roots.current)
        self._roots = roots
        # Whoever shares the roots must not keep every client that ever used them.
        reference = weakref.ref(self._core)

        def changed() -> None:
            core = reference()
            if core is not None:
                _notify_roots_changed(core)
            else:
                unsubscribe()

        unsubscribe = roots.on_change(changed)

    # -- notifications of our own (until 2025-11-25) ---------------------------------------------

    def notify(
        self, method: str, params: Mapping[str, Any] | None = None, **options: Unpack[CallOptions]
    ) -> None:
        """Send a notification (until 2025-11-25).

        Raises:
            NotSupported: The revision has no such notification from a client.
        """
        resolved = self._core.resolve(options)
        text(method, "method")
        deadline = Deadline(resolved.timeout)
        sent = None if params is None else dict(params)
        try:
            self._core.link(deadline).notify(method, sent, deadline)
        except SessionLost:  # refused: so it goes to the new session
            self._core.link(deadline).notify(method, sent, deadline)

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


def _notify_roots_changed(core: ClientCore) -> None:
    connection = core.connection
    if connection is not None and connection.close_error is None:
        connection.notify_roots_changed()


def twin(client: Client) -> Client:
    """Make another client of the same configuration, which opens at its first call."""
    return configured(Client, *client._configuration())


def _situation(core: ClientCore) -> str:
    """How the client is, in a word or two for people."""
    connection = core.connection
    if not core.of_this_process:
        return "of the parent process"
    if connection is None and core._opening is not None:
        return "opening"
    if connection is None:
        return "not open" if core.wanted else "closed"
    return "open" if connection.close_error is None else "lost"


def _facts(core: ClientCore) -> dict[str, Any]:
    """What the client is doing, as plain values; see `Dump`."""
    now, connection = monotonic(), core.connection or core._opening
    dead = None if connection is None else connection.close_error
    negotiated, pools = core.negotiated, core._pools
    facts: dict[str, Any] = {
        "client": {
            "label": core.label,
            "state": _situation(core),
            "revision": None if negotiated is None else negotiated.dialect.revision,
            "transport": None if connection is None else type(connection.transport).__name__,
            "process": os.getpid(),
            "lost": None if dead is None else str(dead),
        },
        "calls": [],
        "questions": [],
        "queues": {},
        "threads": list(threads(core.label, Connection._exchange.__code__)),
        "frames": core.wire.facts(now),
        "server": {"stderr": "", "said": ""},
    }
    if connection is not None:
        facts |= connection.facts(now)
    if pools is not None:
        facts["queues"] |= pools.facts()
    return facts


P = ParamSpec("P")


def _opened(make: Callable[P, Client]) -> Callable[P, Client]:
    def connect(*args: P.args, **kwargs: P.kwargs) -> Client:
        """Make a client and open it; takes what `Client` takes."""
        return make(*args, **kwargs).open()

    signature = inspect.signature(make).replace(return_annotation="Client")
    connect.__signature__ = signature  # type: ignore[attr-defined]
    return connect


connect = _opened(Client)
