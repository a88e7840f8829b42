"""The public client: a facade over settings, core, handlers and operations."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, Union

from typing_extensions import Self

from syncmcp import tasks
from syncmcp._base.checks import flag
from syncmcp._base.docstrings import describe_call
from syncmcp._client import changes, functions, operations, requests
from syncmcp._client.background import send_and_forget
from syncmcp._client.core import ClientCore
from syncmcp._client.opening import resolve_target
from syncmcp._client.requests import Request, Resume
from syncmcp._client.retrying import Retry
from syncmcp._client.settings import (
    DEFAULT_RETRY,
    DEFAULT_TIMEOUT,
    Configuration,
    Settings,
    make_client,
    reduce_client,
)
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.timing import monotonic
from syncmcp._connection.client_services import HandlerRegistry
from syncmcp._connection.connection import Connection
from syncmcp._connection.tool_schemas import OutputCheck
from syncmcp._protocol.capabilities import OfferedCapabilities, Undeclared
from syncmcp._protocol.exchange import MAX_ROUNDS
from syncmcp._protocol.negotiate import check_mode
from syncmcp._protocol.revisions import KNOWN_QUESTIONS, Mode
from syncmcp.cache import CacheStore
from syncmcp.config import Http, Stdio
from syncmcp.errors import NotSupported, UsageError
from syncmcp.handlers import (
    AnyElicitation,
    HandlerContext,
    Handlers,
    LogHandler,
    NotificationHandler,
    ProgressHandler,
    RequestHandler,
    RootsHandler,
    SamplingHandler,
)
from syncmcp.handlers.context import ConnectedServer
from syncmcp.interceptors import Interceptor, as_interceptors
from syncmcp.observe.logging import as_log_handler
from syncmcp.tasks import StartTask
from syncmcp.transports.base import InProcessServer, TransportSource

if TYPE_CHECKING:
    from syncmcp._client.batch import Batch, Oversize
    from syncmcp.approval import Approval, Policy
    from syncmcp.handlers.roots import RootLike, Roots
    from syncmcp.observe.diagnosis import Dump
    from syncmcp.servers_file.entry import ServerEntry
    from syncmcp.types import Implementation

__all__ = ["Client", "Mode", "Target"]

Target: TypeAlias = Union[str, Stdio, Http, "ServerEntry", "InProcessServer", TransportSource]
"""A URL, a command to run, an entry of a servers file, a server in this process (`Server` or
`ScriptedPeer` of `syncmcp.testing`), or a `Recording` or `Replay` of one of these."""


class Client:
    """A client of one MCP server. `syncmcp.connect` makes one and opens it.

    >>> from syncmcp.testing import demo_server
    >>> server = demo_server()
    >>> with syncmcp.Client(server, timeout=30) as client:
    ...     print(client.call_tool("add", {"a": 1, "b": 2}).raise_for_error().text)
    3

    The examples of the methods run in such a block, with this `server` and `client`.

    A client connects with `with` or `open()`, and may be opened again after `close()`.
    All methods are thread-safe: any thread may call the client or close it, at any time. Pickling
    a client keeps its configuration, not its connection. Each process that unpickles it has one
    client of that configuration, which opens on its first call and closes when the process ends.

    Args:
        target: A URL (a plain `str` always is a URL), `Stdio`, `Http`, an entry of a servers file
            (`servers_file.read`), a server in this process (`Server` or `ScriptedPeer` of
            `syncmcp.testing`), a `Recording` or a `Replay`. The name and the timeout of an entry
            apply unless `name` and `timeout` are passed.
        mode: ``"auto"`` detects the revision of the server; ``"legacy"`` skips the probe and sends
            `initialize` at once; one of the five revisions requires that revision.
        timeout: The longest time that a call may take in all, in seconds; `None` for no limit.
        idle_timeout: The longest silence within a call, in seconds. It counts from the first
            message that belongs to the call.
        open_timeout: The longest time that opening the connection may take, in seconds.
        probe_timeout: How long, in seconds, to wait for the response to the probe for the newest
            revision. After that the client initializes the server like an older one. For a child
            process the wait is at most half of `open_timeout`. A later response still counts.
        close_timeout: The longest time that closing may take, in seconds.
        on_log: A function that is called as ``(message)`` on a pool thread with each log message of
            the server; see `LogHandler`. `on_log` may also be a `logging.Logger`: the messages go
            to its child logger with the name of the server; see `LogRecords`. Since 2026-07-28 a
            server logs only in calls that are made after `set_log_level`, or with the option
            `log_level`.
        on_progress: A function that is called as ``(progress, total, message)`` on a pool thread,
            for every call; see `ProgressHandler`.
        on_notification: A function that is called as ``(method, params)`` on a pool thread with
            every notification. Since 2026-07-28 servers notify of changes only while the client
            listens; see `listen`.
        on_handler_error: A function that is called as ``(error, context)`` when a handler fails, on
            the thread of the handler. The server gets its error after that. `error` is the
            exception of the handler, but never `Refused` or `Denied`. If an answer does not fit its
            form, `error` is an `InvalidAnswer`.
        client_info: The name and version that the client sends to the server; those of syncmcp by
            default.
        max_in_flight: The maximum number of requests in flight at one time; further requests are
            queued.
        max_pages: The maximum number of pages to fetch for a list.
        lazy: Whether the first call opens the connection, once for all threads, if `open()` was not
            called before.
        name: The name of the server in logs, errors and prompts; its command or URL by default.
        trusted: Whether to believe the annotations of the server's tools. Nothing else makes a
            server trusted.
        sampling: A function that answers sampling requests with a model. It is called as
            ``(request, context)`` on a handler thread; see `SamplingHandler` and `Sampling`. The
            client declares only the capabilities for which it has handlers.
        elicitation: A function that answers forms. It is called as ``(request, context)`` on a
            handler thread; see `FormHandler`. An `Elicitation` answers URLs, too.
        roots: The paths or ``file:`` URIs in which servers should work, or a function, called as
            ``(context)`` on a handler thread, that returns them. The program may add roots to an
            empty list later. See `roots`.
        approval: A policy, or an `Approval`, that reviews the questions of a server before and
            after a handler answers them. It does not review the tool calls of the program. Without
            `approval`, the handlers decide alone.
        human_timeout: How long, in seconds, a handler or a person may take for an answer before
            the question is refused, or the form cancelled; `None` for no limit. The timeouts of a
            call pause while handlers answer its questions, in all for at most this time.
        max_handlers: The maximum number of handlers that run at one time. A handler does not count
            while it calls the client or waits for a person's approval.
        max_questions: The maximum number of questions that wait for a handler (before 2026-07-28);
            further questions are refused.
        max_questions_per_call: The maximum number of questions that a server may ask because of one
            call; the next question ends the call with `LimitExceeded`.
        max_rounds: How many times a server may ask before it returns the result of a call
            (2026-07-28). After that the call fails with `TooManyRounds`.
        retry: Which requests are sent again after a failure, how often and when; `None` for never.
        validate_output: What happens to a result that does not match the output schema of its
            tool: ``"raise"``, ``"warn"`` (a log message) or ``"off"``. See `call_tool`.
        validate_input: Whether arguments are checked against the input schema of the tool before
            they are sent.
        extensions: The extensions of the protocol to switch on: the client's settings by the
            identifier of each extension. An extension that the server lacks has no effect; see
            `server.extension`.
        ping_interval: Seconds between two pings to the server (before 2026-07-28). The connection
            ends when two pings in a row get no response within that time.
        interceptors: Objects that see, change, delay or refuse messages; see `Interceptor`.
        cache: Where results are cached for as long as the server allows (2026-07-28): `True` for a
            cache of the client's own, `False` for no cache, or a `CacheStore`. See `CallOptions`.
        undeclared: What happens to a request that needs a capability which the server does not
            declare: ``"refuse"`` raises `NotSupported`, ``"try"`` sends it. See `CallOptions`.

    Raises:
        UsageError: An option is invalid.
        NotApproved: The target is from a guarded servers file, and nobody approved the server.
    """

    _core: ClientCore

    # -- requests (documented in `operations`) ---------------------------------------------------

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
    notify = requests.notify
    report_progress = requests.report_progress
    begin_tool = operations.begin_tool
    begin_prompt = operations.begin_prompt
    begin_read = operations.begin_read
    task = tasks.task
    list_tasks = tasks.list_tasks
    iter_tasks = tasks.iter_tasks

    listen = changes.listen
    on_tools_changed = changes.on_tools_changed
    on_prompts_changed = changes.on_prompts_changed
    on_resources_changed = changes.on_resources_changed
    on_resource_updated = changes.on_resource_updated

    def batch(
        self,
        *,
        parallel: bool = True,
        timeout: float | None = None,
        max_size: int = 100,
        oversize: Oversize = "split",
    ) -> Batch:
        """Collect calls in a `with` block, and send them when the block ends.

        Where the revision has batches (2025-03-26), the calls share one frame. With other revisions
        each call is a message of its own, and all are sent at once. If the block ends with an
        exception, nothing is sent and the futures are cancelled.

        Args:
            parallel: Whether the calls run at the same time; otherwise each call is sent alone,
                after the call before it has ended.
            timeout: The longest that all calls together may take, in seconds, from the end of the
                block; `None` for no limit besides that of each call.
            max_size: The maximum number of requests in one frame.
            oversize: What happens to more than `max_size` calls: ``"split"`` sends several frames,
                ``"refuse"`` raises `LimitExceeded` at the call that is one too many.

        Raises:
            UsageError: An argument is invalid.
        """
        with delaying_forks():
            from syncmcp._client.batch import Batch

        return Batch(self, parallel=parallel, timeout=timeout, max_size=max_size, oversize=oversize)

    @property
    @describe_call(StartTask.__call__)
    def start_task(self) -> StartTask:
        """Call a tool, and return a handle as soon as the server has started the task."""
        return StartTask(self)

    @property
    @describe_call(Request.__call__)
    def request(self) -> Request:
        """Send a request of any method and block until its result has arrived."""
        return Request(self)

    @property
    @describe_call(Resume.__call__)
    def resume(self) -> Resume:
        """Continue a call that waits for answers by the program."""
        return Resume(self)

    def __init__(
        self,
        target: Target,
        *,
        mode: Mode = "auto",
        timeout: float | None = DEFAULT_TIMEOUT,
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
        max_questions_per_call: int = 100,
        max_rounds: int = MAX_ROUNDS,
        retry: Retry | None = DEFAULT_RETRY,
        validate_output: OutputCheck = "raise",
        validate_input: bool = False,
        ping_interval: float | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        interceptors: Iterable[Interceptor] = (),
        cache: CacheStore | bool = True,
        undeclared: Undeclared = "refuse",
    ) -> None:
        check_mode(mode)
        resolved, name, stated_timeout = resolve_target(target, name)
        # By identity: an explicit 300 overrides the timeout of an entry.
        if timeout is DEFAULT_TIMEOUT and stated_timeout is not None:
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
            max_questions_per_call=max_questions_per_call,
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
            with delaying_forks():
                from syncmcp.approval import as_approval

            approval = as_approval(approval)
        self._handlers = HandlerRegistry(
            as_log_handler(on_log, settings.label),
            on_progress,
            on_notification,
            Handlers(sampling, elicitation, approval=approval),
            on_handler_error,
        )
        self._core = ClientCore(
            settings,
            self._handlers,
            lazy=flag(lazy, "lazy"),
            send_and_forget=send_and_forget,
            facade=weakref.ref(self),
        )
        # True for an unpickled client, which the whole process shares: `with` does not close it.
        self._shared = False
        self._roots: Roots | None = None
        if roots is not None:
            with delaying_forks():
                from syncmcp.handlers.roots import as_roots

            self._set_roots(as_roots(roots))

    if not TYPE_CHECKING:  # type checkers refuse every attribute that the class does not have

        def __setattr__(self, name: str, value: object) -> None:
            if name in Client.__init__.__kwdefaults__:  # it would have no effect
                text = f"pass options when you create a client: Client(TARGET, {name}=...)"
                raise AttributeError(text)
            super().__setattr__(name, value)

    # -- life ------------------------------------------------------------------------------------

    def open(self) -> Self:
        """Connect to the server, unless the client is open.

        Raises:
            ConnectFailed: The server cannot be reached or started.
            RequestTimeout: Opening took longer than `open_timeout`.
            ProtocolError: The client and the server have no revision in common. Some servers return
                an error: `UnsupportedVersion`, `MethodNotFound` or another `ServerError`.
            McpError: The first requests failed in another way.
        """
        self._core.check_process()
        self._core.open_or_close(self.close)
        return self

    def close(self, timeout: float | None = None, *, drain: bool = False) -> None:
        """Close the connection; idempotent.

        Calls in flight fail at once with `ClosedError`. A call that has its response, but waits for
        its callbacks, returns without waiting for them. Handlers are cancelled. `close` waits
        neither for handlers nor for callbacks. Any thread may call `close`, also in handlers, in
        callbacks and in ``atexit`` functions.

        Args:
            timeout: The longest time that closing may take, in seconds; `close_timeout` by default.
            drain: Whether to wait first until the requests in flight have ended. Meanwhile the
                client sends no new request: a list that is fetched page by page ends with
                `ClosedError`.
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
        return reduce_client(Client, self._configuration())

    def _configuration(self) -> Configuration:
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
        return settings.target, options, dict(table.requests), dict(table.notifications)

    # -- the server and the session --------------------------------------------------------------

    @property
    def server(self) -> ConnectedServer:
        """The server's description of itself, and the revision of the connection.

        Raises:
            ClosedError: The client is not open.
        """
        return self._core.server

    @property
    def session_id(self) -> str | None:
        """The id of the HTTP session, for `Http(session_id=...)`; `None` without a session.

        Keep it secret like a password: with the id, anybody can send requests in this session.
        """
        connection = self._core.connection
        return None if connection is None else connection.transport.session_id

    @property
    def last_event_id(self) -> str | None:
        """The id of the last event on the stream of messages that belong to no request.

        Pass it to `Http(last_event_id=...)`. `None` if there is no such stream, or if its events
        have no ids.
        """
        connection = self._core.connection
        return None if connection is None else connection.transport.last_event_id

    def dump(self) -> Dump:
        """A snapshot of what the client is doing; works in any state, on any thread.

        It has the calls in flight with their ages, the open questions of the server, the queues and
        the threads with their stacks. It also has the newest frames and the end of the server's
        stderr. See `Dump`.
        """
        with delaying_forks():
            from syncmcp.observe.diagnosis import Dump

        return Dump(_facts(self._core))

    # -- handlers (may be changed at any time, from any thread) ----------------------------------

    @property
    def roots(self) -> Roots:
        """The directories in which servers should work; the program can change them ("Roots").

        The server is notified of each change. Roots inform a server; they do not confine it.

        Raises:
            UsageError: The client is open, and its handshake did not declare roots.
        """
        with self._handlers.changing:
            if self._roots is None:
                with delaying_forks():
                    from syncmcp.handlers.roots import Roots

                self._set_roots(Roots())
            assert self._roots is not None
            return self._roots

    def set_sampling(self, handler: SamplingHandler | None) -> None:
        """Set, replace or (with `None`) remove the handler of sampling requests.

        Raises:
            UsageError: `handler` cannot be called; or the client is open, and its handshake did not
                declare sampling (before 2026-07-28).
        """
        self._change_handlers(sampling=handler)

    def set_elicitation(self, handler: AnyElicitation | None) -> None:
        """Set, replace or (with `None`) remove the handler of forms and URLs.

        Raises:
            UsageError: See `set_sampling`.
        """
        self._change_handlers(elicitation=handler)

    def on_request(self, method: str, handler: RequestHandler | None) -> None:
        """Set the handler of a server request that the library does not know (before 2026-07-28).

        Args:
            method: The JSON-RPC method.
            handler: See `RequestHandler`; `None` removes the handler.

        Raises:
            UsageError: The library answers this method itself, or the handler is a coroutine
                function.
            NotSupported: The client is open, and servers of its revision send no requests.
        """
        if method in KNOWN_QUESTIONS:
            raise UsageError(f"{method} is not a custom method: it has its own option")
        connection = self._core.connection
        if handler is not None and connection is not None and not connection.dialect.stateful:
            raise NotSupported(
                f"in revision {connection.dialect.revision} servers send no requests",
                server=connection.label,
                method=method,
            )
        self._handlers.set_handler(self._handlers.requests, method, handler)

    def on_notification(self, method: str, handler: NotificationHandler | None) -> None:
        """Set the handler of the notifications of one method.

        Since 2026-07-28 servers notify of changes only while the client listens; see `listen`.

        Args:
            method: The method, ``"notifications/tools/list_changed"`` for example.
            handler: See `NotificationHandler`; `None` removes the handler.
        """
        self._handlers.set_handler(self._handlers.notifications, method, handler)

    def _change_handlers(self, **changed: Any) -> None:
        """Replace some handlers; `UsageError` if the handshake did not declare their questions."""

        def check(offer: OfferedCapabilities) -> None:
            connection = self._core.connection
            if connection is not None and connection.close_error is None:
                connection.agreed.check_declared(offer)

        self._handlers.change(check, **changed)

    def _set_roots(self, roots: Roots) -> None:
        self._change_handlers(roots=roots.current)
        self._roots = roots
        # Weakly: shared roots must not keep every client alive that ever used them.
        reference = weakref.ref(self._core)

        def changed() -> None:
            core = reference()
            connection = None if core is None else core.connection
            if core is None:
                unsubscribe()
            elif connection is not None and connection.close_error is None:
                connection.notifier.roots_changed()

        unsubscribe = roots.on_change(changed)


def twin(client: Client) -> Client:
    """Make another client of the same configuration, which opens on its first call."""
    copy: Client = make_client(Client, client._configuration())
    return copy


def _situation(core: ClientCore) -> str:
    """The state of the client in a word or two, for people."""
    connection = core.connection
    if not core.of_this_process:
        return "of the parent process"
    if connection is None and core._opening is not None:
        return "opening"
    if connection is None:
        return "not open" if core.may_open else "closed"
    return "open" if connection.close_error is None else "lost"


def _facts(core: ClientCore) -> dict[str, Any]:
    """The contents of a `Dump`, as plain values."""
    with delaying_forks():
        from syncmcp.observe.diagnosis import threads

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
        "threads": list(threads(core.label, Connection.send_and_wait.__code__)),
        "frames": core.wire.facts(now),
        "server": {"stderr": "", "said": ""},
    }
    if connection is not None:
        facts |= connection.facts(now)
    if pools is not None:
        facts["queues"] |= pools.facts()
    return facts
