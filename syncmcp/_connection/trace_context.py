"""Trace context, where a program uses OpenTelemetry: it goes out and comes in with `_meta`.

OpenTelemetry is never loaded here. A program that has a span has loaded it by itself, and for one
that has none there is nothing to do.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from contextvars import Context
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.trace_context import BAGGAGE, KEYS, PARENT, STATE, follows_w3c

if TYPE_CHECKING:
    from syncmcp._connection.options import Options

_log = logging.getLogger("syncmcp.connection")

# Where the program's current span is kept: without it there is none.
_SOURCE = "opentelemetry.context"
_NONE: Mapping[str, str] = {}


def with_trace_context(
    options: Options, params: Mapping[str, Any] | None
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
