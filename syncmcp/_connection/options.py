"""The options that every call takes, declared once; and the trace context that goes with it."""

from __future__ import annotations

import contextvars
import copy
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from syncmcp._base.checks import refuse_coroutines, seconds
from syncmcp._concurrency.cancel import CancelToken, as_token
from syncmcp._concurrency.pool import in_handler
from syncmcp._protocol.capabilities import Undeclared
from syncmcp._protocol.meta import BAGGAGE, KEYS, PARENT, STATE, check_keys, follows_w3c
from syncmcp.errors import UsageError
from syncmcp.handlers import Handlers, ProgressHandler
from syncmcp.interceptors import within

if TYPE_CHECKING:
    from syncmcp._concurrency.futures import Progress
    from syncmcp._connection.batching import BatchSlot
    from syncmcp._http.exchange import Identity
    from syncmcp.types import LoggingLevel

__all__ = ["CallOptions"]


CacheUse = Literal["use", "refresh", "bypass"]
"""What a kept result is worth to a call."""


class CallOptions(TypedDict, total=False):
    """What every operation takes besides its own arguments; all by keyword.

    Where an option is left out, the client's own setting counts.

    Attributes:
        timeout: The longest the call may take in all, in seconds; `None` for no limit. What
            handlers take to answer questions of the call does not count, up to the client's
            `human_timeout` in all.
        idle_timeout: The longest silence after the call's first sign of life, in seconds; `None`
            for any.
        cancel: A `CancelToken` or a plain `threading.Event`; cancelling or setting it withdraws
            the call.
        on_progress: Called as ``(progress, total, message)`` on a pool thread, in order, before
            the call returns.
        log_level: Ask the server to log at this level during the call (2026-07-28; before, the
            server decides for the whole connection, and this is ignored).
        meta: Goes into the request's `_meta`.
        headers: HTTP headers for this call; ignored on other transports.
        handlers: Who answers what the server asks because of this call; the client's own answer
            the rest. Until 2025-11-25 a handshake says what can be asked at all: there it must be
            something that the client has handlers for, and the server must ask in a way that
            shows which call it belongs to.
        idempotent: The request may be sent again though it may have been done; see `Retry`.
        cache: What a kept result is worth: ``"use"`` takes it where it is still fresh;
            ``"refresh"`` asks the server, and keeps what comes; ``"bypass"`` asks, and keeps
            nothing. With `meta`, `headers`, `handlers` or `log_level` a call is always a
            ``"bypass"``.
        undeclared: What becomes of a request that needs a capability which the server does not
            declare: ``"refuse"`` raises `NotSupported` and sends nothing; ``"try"`` sends it, for
            some servers do more than they declare. One that does not answers with an error, mostly
            `MethodNotFound`. What the revision lacks is refused in any case. Of `Client.request`
            the default is ``"try"``; `None` for the client's own setting.
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

_CACHE_USES = ("use", "refresh", "bypass")

_LOG_LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class ResolvedOptions:
    """The options of one call, with the client's settings filled in.

    What a caller can give is never changed. `abandon`, `trace` and `watch` are the library's own.
    """

    __slots__ = (
        "abandon",
        "altered",
        "batch_slot",
        "cache",
        "cancel",
        "context",
        "handlers",
        "headers",
        "idempotent",
        "identity",
        "idle_timeout",
        "log_level",
        "meta",
        "nested",
        "on_progress",
        "timeout",
        "trace",
        "undeclared",
        "watch",
    )

    def __init__(
        self,
        timeout: float | None,
        idle_timeout: float | None,
        on_progress: ProgressHandler | None = None,
        log_level: str | None = None,
        cancel: CancelToken | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        handlers: Handlers | None = None,
        idempotent: bool = False,
        cache: CacheUse = "use",
        undeclared: Undeclared = "refuse",
    ) -> None:
        self.timeout = timeout
        self.idle_timeout = idle_timeout
        self.on_progress = on_progress
        self.log_level = log_level
        self.cancel = cancel
        self.meta = meta
        self.headers = headers
        self.handlers = handlers
        self.idempotent = idempotent
        self.cache: CacheUse = cache
        self.undeclared: Undeclared = undeclared
        # A handler's call does not stand in line, nor does an interceptor's: those in front may
        # wait for the handler, or for the interceptor.
        self.nested = in_handler() or bool(within.get())
        # The trace context of the caller, once it was looked for; see `_trace_context`.
        self.trace: Mapping[str, str] | None = None
        # As whom its last request was sent, once that is known.
        self.identity: Identity | None = None
        # Whether interceptors changed that request, or its result.
        self.altered = False
        # Told how the call ended while its thread is in an interceptor, which may never return.
        self.abandon: Callable[[BaseException], object] | None = None
        # Told of progress, and of log messages by their parameters, by the thread that reads.
        self.watch: Callable[[Progress | dict[str, Any]], object] | None = None
        # Its position in a batch, until its first request is ready.
        self.batch_slot: BatchSlot | None = None
        # Callbacks of the call see the context variables of the caller.
        self.context = contextvars.copy_context()

    @classmethod
    def checked(cls, given: CallOptions, defaults: ResolvedOptions) -> ResolvedOptions:
        """What a caller gave, and `defaults` for what was left out.

        Raises:
            TypeError: There is no such option.
            UsageError: An option makes no sense.
        """
        unknown = given.keys() - OPTION_NAMES
        if unknown:
            raise TypeError(f"there is no option {min(unknown)!r}; see CallOptions")
        options = cls(defaults.timeout, defaults.idle_timeout, undeclared=defaults.undeclared)
        if "timeout" in given:
            options.timeout = seconds(given["timeout"], "timeout")
        if "idle_timeout" in given:
            options.idle_timeout = seconds(given["idle_timeout"], "idle_timeout")
        cancel = given.get("cancel")
        if cancel is not None:
            _expect(cancel, (CancelToken, threading.Event), "cancel")
            options.cancel = as_token(cancel)
        options.on_progress = given.get("on_progress")
        if options.on_progress is not None:
            refuse_coroutines(options.on_progress, "on_progress")
        options.meta = given.get("meta")
        if options.meta is not None:
            _expect(options.meta, (Mapping,), "meta")
            check_keys(options.meta)
        level = given.get("log_level")
        options.log_level = None if level is None else check_log_level(level)
        options.handlers = given.get("handlers")
        if options.handlers is not None:
            _expect(options.handlers, (Handlers,), "handlers")
        options.headers = given.get("headers")
        if options.headers is not None:
            _expect(options.headers, (Mapping,), "headers")
        options.idempotent = given.get("idempotent", False)
        _expect(options.idempotent, (bool,), "idempotent")
        options.cache = given.get("cache", "use")
        if options.cache not in _CACHE_USES:
            raise UsageError(f"cache is 'use', 'refresh' or 'bypass', not {options.cache!r}")
        undeclared = given.get("undeclared")
        if undeclared is not None:
            options.undeclared = check_undeclared(undeclared)
        return options

    def watched_by(self, watch: Callable[[Progress | dict[str, Any]], object]) -> ResolvedOptions:
        """The same options, for a call whose progress and log messages `watch` wants."""
        other = copy.copy(self)
        other.watch = watch
        return other

    def leave_batch(self) -> None:
        """Give up the call's position in a batch: the call is over, or cannot share the frame."""
        slot, self.batch_slot = self.batch_slot, None
        if slot is not None:
            slot.discard()

    @property
    def plain(self) -> bool:
        """Whether a request says no more than its parameters do, so that any like it will do."""
        return not (self.meta or self.headers or self.handlers or self.log_level)

    def with_cancel(self, token: CancelToken) -> ResolvedOptions:
        """The same options, with another token."""
        other = copy.copy(self)
        other.cancel = token
        return other


def check_log_level(level: str) -> str:
    """Check the name of a log level.

    Raises:
        UsageError: There is no such level.
    """
    if level not in _LOG_LEVELS:
        raise UsageError(f"a log level is one of {', '.join(_LOG_LEVELS)}, not {level!r}")
    return level


def check_undeclared(value: Undeclared) -> Undeclared:
    """Check what is to become of requests for what a server does not declare.

    Raises:
        UsageError: It is something else.
    """
    if value not in ("refuse", "try"):
        raise UsageError(f"undeclared is 'refuse' or 'try', not {value!r}")
    return value


def _expect(value: object, types: tuple[type, ...], name: str) -> None:
    if not isinstance(value, types):
        wanted = " or ".join(kind.__name__ for kind in types)
        raise UsageError(f"{name} is a {wanted}, not {value!r}")


# Trace context, where a program uses OpenTelemetry: it goes out and comes in with `_meta`.
#
# OpenTelemetry is never loaded here. A program that has a span has loaded it by itself, and for
# one that has none there is nothing to do.


_log = logging.getLogger("syncmcp.connection")

# Where the program's current span is kept: without it there is none.
_SOURCE = "opentelemetry.context"
_NONE: Mapping[str, str] = {}


def with_trace_context(
    options: ResolvedOptions, params: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """The `_meta` that a call wants, with the trace context of its caller.

    The program's propagators decide what that is; what is not one of the three reserved keys, or
    not in its format, stays here. What the caller put into `meta` or `params` is not touched: a
    `traceparent` of its own keeps ours out, and so does a `tracestate`.

    Args:
        options: The options of the call.
        params: The parameters of the request, which may hold a `_meta`, too.
    """
    meta = options.meta
    if options.trace is None:
        # Once, for the first request: later ones may start where an answer was read, and
        # propagators are code of the program's.
        options.trace = _inject(options.context) if _SOURCE in sys.modules else _NONE
    carrier = options.trace
    if not carrier:
        return meta
    inside = (params or {}).get("_meta")
    given = {*(meta or ()), *(inside if isinstance(inside, Mapping) else ())}
    if given & {PARENT, STATE}:
        given |= {PARENT, STATE}  # one of the caller's and one of ours would be two traces
    return {**{key: carrier[key] for key in carrier if key not in given}, **(meta or {})}


def _inject(context: Context) -> Mapping[str, str]:
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    # A copy: callbacks of the same call may be running in the original at this moment.
    context.copy().run(propagate.inject, carrier)
    ours: dict[str, str] = {}
    for key in KEYS:
        if key in carrier:
            if follows_w3c(key, carrier[key]):
                ours[key] = carrier[key]
            else:
                _log.debug("the %s of the current span is not in the W3C's format", key)
    return ours


def join(params: Mapping[str, Any]) -> None:
    """Let what follows, in this context, belong to the span of the server that asks something.

    Baggage is left out: what a server says in it would go on to whomever the handler calls.
    """
    meta = params.get("_meta")
    if _SOURCE not in sys.modules or not isinstance(meta, Mapping):
        return
    carrier = {key: meta[key] for key in KEYS if key in meta and follows_w3c(key, meta[key])}
    carrier.pop(BAGGAGE, None)
    if PARENT in carrier:
        from opentelemetry import context, propagate

        context.attach(propagate.extract(carrier, context.get_current()))
