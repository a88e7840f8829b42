"""The options that every call takes, and the trace context that is sent with it."""

from __future__ import annotations

import contextvars
import copy
import functools
import inspect
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar

from syncmcp._base.checks import check_callable, check_mapping, flag, kind_of, seconds
from syncmcp._base.similar import did_you_mean
from syncmcp._base.text import logger
from syncmcp._concurrency.cancel import CancelToken, as_token
from syncmcp._concurrency.forks import delaying_forks
from syncmcp._concurrency.pool import current
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.metadata import BAGGAGE, KEYS, PARENT, STATE, check_keys, has_trace_shape
from syncmcp.errors import UsageError
from syncmcp.handlers import Handlers, ProgressHandler
from syncmcp.handlers.context import PROGRESS_ARGUMENTS
from syncmcp.interceptors import within

if TYPE_CHECKING:
    from syncmcp._concurrency.futures import Progress
    from syncmcp.types import LoggingLevel

__all__ = ["CallOptions"]


CacheUse = Literal["use", "refresh", "bypass"]
"""How a call uses cached results; see `CallOptions`."""


class CallOptions(TypedDict, total=False):
    """The keyword options that every operation takes besides its own arguments.

    >>> client.call_tool("add", {"a": 1, "b": 2}, timeout=5, idempotent=True).text
    '3'
    >>> client.call_tool("sleep", {"seconds": 60}, timeout=0.1)
    Traceback (most recent call last):
      ...
    syncmcp.errors.RequestTimeout: tools/call [syncmcp-demo]: no response within 0.1 s (...)

    The client's setting, if any, applies to an omitted option. An operation blocks and returns its
    result. Its ``.future(...)`` returns a `RequestFuture` at once, and its ``.stream(...)`` returns
    a `ResultStream` at once. Every operation may raise the errors below, besides the errors that it
    names itself. The call raises them, or `RequestFuture.result`, or the iteration of the stream.

    Attributes:
        timeout: The longest time that the call may take in all, in seconds; `None` for no limit.
            The time that handlers take to answer questions of the call does not count toward
            `timeout`, up to the client's `human_timeout` in all.
        idle_timeout: The longest time without a message for the call, in seconds, counted from the
            first message; `None` for no limit.
        cancel: A `CancelToken`, or a `threading.Event`, that cancels the call when the token is
            cancelled or the event is set.
        on_progress: A function that is called as ``(progress, total, message)`` on a pool thread,
            in order, before the call returns.
        log_level: The level at which the server should log during the call (2026-07-28). In earlier
            revisions the level belongs to the connection, and this option is ignored.
        meta: Keys and values that are added to the request's `_meta`.
        headers: HTTP headers for this call; ignored on other transports.
        handlers: The handlers for questions that the server asks because of this call. The client's
            handlers answer other kinds of questions. Before 2026-07-28 the handshake declares which
            questions are allowed. There the client must have handlers of the same kind, and the
            question must show to which call it belongs.
        idempotent: Whether the request may be sent again although the server may have processed it;
            see `Retry`.
        cache: How cached results are used: ``"use"`` returns a cached result if it is fresh;
            ``"refresh"`` asks the server and caches the result; ``"bypass"`` asks the server and
            caches nothing. With `meta`, `headers`, `handlers` or `log_level` a call is always a
            ``"bypass"``.
        undeclared: What to do with a request that needs a capability which the server does not
            declare: ``"refuse"`` raises `NotSupported` and sends nothing; ``"try"`` sends the
            request. Some servers support more than they declare; others return `MethodNotFound`.
            `None` means the client's setting; the default of `Client.request` is ``"try"``.

    Raises:
        TypeError: There is no such option.
        UsageError: An argument or option is invalid; nothing was sent.
        NotSupported: The revision lacks the request, or the server does not declare it.
        ClosedError: The client is not open, or was closed during the call.
        RequestTimeout: `timeout` or `idle_timeout` has passed.
        RequestCancelled: The program cancelled `cancel` or the future.
        TransportError: The connection failed: `ConnectFailed`, `ConnectionLost`, `OutcomeUnknown`,
            `HttpError`, `AuthError`. The attribute `delivery` says how far the request came.
        ServerError: The server returned a JSON-RPC error.
        ProtocolError: The response violates the protocol.
        LimitExceeded: The response, or the number of questions, exceeds a limit of the client.
        TooManyRounds: The server asked more often than the client's `max_rounds` (2026-07-28).
        Refused: A handler refused a question of the call, or failed (2026-07-28).
        Denied: A policy or a person denied the sampling that a call asked for (2026-07-28).
        InvalidAnswer: A handler's answer does not fit its form (2026-07-28). The answer was not
            sent, but the call was.
        InterceptorFailed: An interceptor failed.
    """

    timeout: float | None
    idle_timeout: float | None
    cancel: CancelToken | threading.Event | None
    on_progress: ProgressHandler | None
    log_level: LoggingLevel | None
    meta: Mapping[str, Any] | None
    headers: Mapping[str, str] | None
    handlers: Handlers | None
    idempotent: bool
    cache: CacheUse
    undeclared: Undeclared | None


OPTION_NAMES: frozenset[str] = frozenset(CallOptions.__annotations__)

# The reference to these options in a docstring; `help()` shows a list instead.
_REFERENCE: Final = "    options: `timeout`, `cancel`, `on_progress` and others; see `CallOptions`."
_FIRST_SENTENCES: Final = r"(?m)^    \w+: (?:[^.]|\.(?!\s))*\."

_CACHE_USES = ("use", "refresh", "bypass")

_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


F = TypeVar("F", bound="Callable[..., Any]")


@functools.cache
def _listed_options() -> str:
    told = inspect.getdoc(CallOptions) or ""
    listed = re.findall(_FIRST_SENTENCES, told.partition("Raises:")[0])
    last = "\nThe client's setting, if any, applies to an omitted option; see `CallOptions`."
    return "\n".join((*listed, last))


def list_options(function: F) -> F:
    """List `CallOptions` in the docstring of `function` where it refers to them."""
    if function.__doc__:  # `python -OO` removes docstrings
        text = inspect.cleandoc(function.__doc__)
        function.__doc__ = text.replace(_REFERENCE, _listed_options())
    return function


class ResolvedOptions:
    """The options of one call, with the client's settings filled in.

    The options of the caller never change. The other attributes are internal.
    """

    on_progress: ProgressHandler | None = None
    log_level: str | None = None
    cancel: CancelToken | None = None
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    handlers: Handlers | None = None
    idempotent: bool = False
    cache: CacheUse = "use"

    def __init__(
        self,
        timeout: float | None,
        idle_timeout: float | None,
        undeclared: Undeclared = "refuse",
    ) -> None:
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.undeclared: Undeclared = undeclared
        # A call made by a handler or an interceptor is not queued: the calls before it may wait
        # for that handler or interceptor.
        self.nested = current.handler or bool(within.get())
        # The trace context of the caller, once it was read; see `with_trace_context`.
        self.trace: Mapping[str, str] | None = None if _SOURCE in sys.modules else NO_TRACE
        # Called with progress, and with the parameters of log messages, on the thread that reads.
        self.observer: Callable[[Progress | dict[str, Any]], object] | None = None
        # How many questions the server has asked because of the call, in all its requests.
        self.questions = 0
        # Callbacks of the call see the context variables of the caller.
        self.context = contextvars.copy_context()

    @classmethod
    def of(
        cls,
        timeout: float | None,
        idle_timeout: float | None,
        undeclared: Undeclared,
        given: CallOptions,
    ) -> ResolvedOptions:
        """Check the options that a caller gave; the other arguments are the client's settings.

        Raises:
            TypeError: An option does not exist.
            UsageError: The value of an option is invalid.
        """
        options = cls(timeout, idle_timeout, undeclared)
        if not given:
            return options
        unknown = given.keys() - OPTION_NAMES
        if unknown:
            hint = keyword_hint(min(unknown), OPTION_NAMES)
            hint = hint or "see CallOptions; pass the arguments of a tool as a dict"
            raise TypeError(f"unknown option {min(unknown)!r}: {hint}")
        if "timeout" in given:
            options.timeout = seconds(given["timeout"], "timeout")
        if "idle_timeout" in given:
            options.idle_timeout = seconds(given["idle_timeout"], "idle_timeout")
        cancel = given.get("cancel")
        if cancel is not None:
            kinds = "CancelToken or threading.Event"  # qualified: asyncio has an Event, too
            _expect(cancel, (CancelToken, threading.Event), "cancel", kinds)
            options.cancel = as_token(cancel)
        options.on_progress = given.get("on_progress")
        if options.on_progress is not None:
            check_callable(options.on_progress, "on_progress", PROGRESS_ARGUMENTS)
        for name in ("meta", "headers"):
            check_mapping(given.get(name), name)
            setattr(options, name, given.get(name))
        if (handlers := given.get("handlers")) is not None:
            _expect(handlers, (Handlers,), "handlers", "Handlers")
            options.handlers = handlers
        check_keys(options.meta or ())
        level = given.get("log_level")
        options.log_level = None if level is None else check_log_level(level)
        options.idempotent = flag(given.get("idempotent", False), "idempotent")
        options.cache = given.get("cache", "use")
        if options.cache not in _CACHE_USES:
            raise UsageError(f"cache must be 'use', 'refresh' or 'bypass', not {options.cache!r}")
        if (wanted := given.get("undeclared")) is not None:
            options.undeclared = check_undeclared(wanted)
        return options

    @property
    def plain(self) -> bool:
        """Whether the options add nothing to the request, so that a result can be shared."""
        return not (self.meta or self.headers or self.handlers or self.log_level)

    def may_ask(self, more: int, most: int) -> bool:
        """Count `more` questions of the server; `False` if the call now has more than `most`.

        Not thread-safe: only one thread may call this at a time.
        """
        self.questions += more
        return self.questions <= most

    def but(self, **changed: Any) -> ResolvedOptions:
        """A copy in which some attributes are changed."""
        other = copy.copy(self)
        for name, value in changed.items():
            setattr(other, name, value)
        return other


def unknown_tool(name: str, known: Iterable[str], server: str | None = None) -> UsageError:
    """Return the error of a name that is not among the known tools."""
    hint = did_you_mean(name, known)
    text = f"no tool named {name!r}"
    return UsageError(f"{text}: {hint}" if hint else text, server=server)


# Keywords that people know from elsewhere, and the keyword of this library for each.
_ELSEWHERE = {
    "elicitation_callback": "elicitation",
    "list_roots_callback": "roots",
    "logging_callback": "on_log",
    "message_handler": "on_notification",
    "progress_callback": "on_progress",
    "read_timeout": "timeout",
    "read_timeout_seconds": "timeout",
    "sampling_callback": "sampling",
    "revision": "mode",
    "protocol_version": "mode",
    "url": "target",
}

# The options of a client that are handlers; a call takes them in `handlers`.
_HANDLERS = ("elicitation", "roots", "sampling")

_POSITIONAL = ("command", "args")  # in `Stdio`


def options_of_targets() -> dict[str, Collection[str]]:
    """Return the options of targets, and of the sign-in of a target, by class. For errors only."""
    with delaying_forks():
        from syncmcp.auth import OAuth
        from syncmcp.config import Http, Stdio

    kinds = (Http, Stdio, OAuth)
    return {kind.__name__: inspect.signature(kind).parameters.keys() - {"url"} for kind in kinds}


def target_with(kind: str, *options: str) -> str:
    """Return how to write a target with these options; positional ones are shown as such."""
    given = [f"{name}=..." for name in options if name not in _POSITIONAL]
    if kind == "OAuth":
        return f"Http(URL, auth=OAuth({', '.join(given)}))"
    first = "URL" if kind == "Http" else "COMMAND, *ARGUMENTS"
    return f"{kind}({', '.join((first, *given))})"


def keyword_hint(word: str, known: Collection[str], of_client: Collection[str] = ()) -> str:
    """Return what to write instead of an unknown keyword; empty without a suggestion.

    `of_client` are the options of the client, if `known` are those of another function.
    """
    own = _ELSEWHERE.get(word, word)
    if own in known:
        return f"write {own}="
    if own in _HANDLERS and "handlers" in known:
        return f"write handlers=Handlers({own}=...)"
    if word in of_client:
        return f"it is an option of the client, connect(..., {word}=...)"
    if word in ("approve", "trust"):
        return f"write servers_file.read(FILE, {word}=...) and pass what it returns"
    if own == "handlers":
        return f"write {'=, '.join(_HANDLERS)}="
    if own in OPTION_NAMES:
        return f"it is an option of a call, client.call_tool(..., {own}=...)"
    for kind, names in options_of_targets().items():
        if word in names and word not in _POSITIONAL:
            return f"it is an option of the target, {target_with(kind, word)}"
    return did_you_mean(word, known)


def check_log_level(level: str) -> str:
    """Return the name of a log level; `UsageError` if there is no such level."""
    if level not in _LOG_LEVELS:
        raise UsageError(f"a log level must be one of {', '.join(_LOG_LEVELS)}, not {level!r}")
    return level


def check_undeclared(value: Undeclared) -> Undeclared:
    """Return a value of the option `undeclared`; `UsageError` if it is neither of the two."""
    if value not in ("refuse", "try"):
        raise UsageError(f"undeclared must be 'refuse' or 'try', not {value!r}")
    return value


def _expect(value: object, types: tuple[type, ...], name: str, wanted: str) -> None:
    if not isinstance(value, types):
        raise UsageError(f"{name} must be a {wanted}, not {kind_of(value)}")


# Trace context of programs that use OpenTelemetry, sent and received in `_meta`.
#
# OpenTelemetry is imported only if the program has imported it: otherwise there is no span.


_log = logger("syncmcp.connection")

# The module that holds the program's current span.
_SOURCE = "opentelemetry.context"
NO_TRACE: Mapping[str, str] = {}


def with_trace_context(
    options: ResolvedOptions, params: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The `_meta` of a request: the caller's `meta`, and the trace context of its current span.

    The program's propagators produce the context. Only valid values of the three reserved keys are
    sent. Keys of the caller, in `meta` or in `_meta` of `params`, take precedence. If these have a
    `traceparent` or `tracestate`, the client adds neither of the two.
    """
    meta = options.meta
    if options.trace is None:
        # Once, for the first request: later ones may start on the thread that reads, which must
        # not run propagators, because those are user code.
        options.trace = _inject(options.context)
    carrier = options.trace
    if not carrier:
        return meta
    inside = (params or {}).get("_meta")
    given = {*(meta or ()), *(inside if isinstance(inside, Mapping) else ())}
    if given & {PARENT, STATE}:
        given |= {PARENT, STATE}  # never mix the caller's trace with ours
    return {**{key: carrier[key] for key in carrier if key not in given}, **(meta or {})}


def _inject(context: Context) -> Mapping[str, str]:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    # A copy: callbacks of the call may be running in the original.
    context.copy().run(propagate.inject, carrier)
    ours: dict[str, str] = {}
    for key in KEYS:
        if key in carrier:
            if has_trace_shape(key, carrier[key]):
                ours[key] = carrier[key]
            else:
                _log.debug("the %s of the current span is not valid trace context", key)
    return ours


def attach_trace_context(params: Mapping[str, Any]) -> None:
    """Make the span of a server's request the parent of spans in the current context.

    The baggage is left out: it would be forwarded to every server that the handler calls.
    """
    meta = params.get("_meta")
    if _SOURCE not in sys.modules or not isinstance(meta, Mapping):
        return
    carrier = {key: meta[key] for key in KEYS if key in meta and has_trace_shape(key, meta[key])}
    carrier.pop(BAGGAGE, None)
    if PARENT in carrier:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(carrier, context.get_current()))
