"""Trace context in `_meta`, if the program uses OpenTelemetry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import syncmcp
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitResult
from tests.connection.questions.asking import ELICITATION, FORM, asked, asking_server, through
from tests.support.stage import Wire, rotated_ways, rotated_with

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
SERVERS = f"00-{TRACE:032x}-00f067aa0ba902b7-01"
KEYS = ("traceparent", "tracestate", "baggage")


@contextmanager
def in_span(**bags: str) -> Iterator[None]:
    """Make a span the current one, as instrumentation of the program does."""
    state = TraceState([("congo", "t61rcWkgMzE")])
    span = NonRecordingSpan(SpanContext(TRACE, SPAN, False, TraceFlags(1), state))
    context = trace.set_span_in_context(span)
    for name, value in bags.items():
        context = baggage.set_baggage(name, value, context)
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


def looking() -> tuple[Server, list[dict[str, Any]]]:
    """Return a server that stores the trace context of its requests, and that store."""
    server, traced = asking_server(), list[dict[str, Any]]()

    @server.tool()
    def look(context: ToolContext) -> str:
        traced.append({key: context.meta[key] for key in KEYS if key in context.meta})
        return "looked"

    return server, traced


@rotated_ways
@pytest.mark.requirement("RPC-22")
def test_a_request_carries_span_and_baggage_in_the_formats_of_the_w3c(wire: Wire, way: str) -> None:
    server, traced = looking()
    with wire.connect(server) as client:
        through(client, way, "look")
        with in_span(user="ann", city="Å b"):
            through(client, way, "look")
    carried = {
        "traceparent": PARENT,
        "tracestate": "congo=t61rcWkgMzE",
        "baggage": "user=ann,city=%C3%85+b",
    }
    assert traced == [{}, carried]  # without a span, the client adds nothing


@rotated_with(
    "given, sent",
    [
        ({"traceparent": SERVERS}, {"traceparent": SERVERS, "baggage": "user=ann"}),
        ({"tracestate": "a=1"}, {"tracestate": "a=1", "baggage": "user=ann"}),
        (
            {"baggage": "user=bob"},
            {"traceparent": PARENT, "tracestate": "congo=t61rcWkgMzE", "baggage": "user=bob"},
        ),
    ],
)
@pytest.mark.requirement("RPC-22")
def test_own_trace_context_stays(wire: Wire, given: dict[str, str], sent: dict[str, str]) -> None:
    server, traced = looking()
    with wire.connect(server) as client, in_span(user="ann"):
        client.call_tool("look", meta=given)
        client.request("tools/call", {"name": "look", "_meta": given}, result=dict)
    assert traced == [sent, sent]


@pytest.mark.requirement("RPC-22")
def test_what_another_propagator_writes_stays_unless_it_is_trace_context(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A propagator that writes another format under these names, and a header of its own."""
    foreign = {"traceparent": "1-2-3", "baggage": "user=ann", "b3": "1"}
    monkeypatch.setattr(propagate, "inject", lambda carrier: carrier.update(foreign))
    server, traced = looking()
    with syncmcp.connect(server) as client, in_span():
        client.call_tool("look")
    assert traced == [{"baggage": "user=ann"}]


def current() -> tuple[int, int, object]:
    span = trace.get_current_span().get_span_context()
    return span.trace_id, span.span_id, baggage.get_baggage("user")


@rotated_with(
    "meta, expected",
    [
        # The handler gets the span of the server, but the baggage of the program.
        ({"traceparent": SERVERS, "baggage": "user=eve"}, (TRACE, 0x00F067AA0BA902B7, "ann")),
        ({}, (TRACE, SPAN, "ann")),
        ({"traceparent": "nonsense"}, (TRACE, SPAN, "ann")),
        ({"traceparent": 7, "tracestate": "a=1"}, (TRACE, SPAN, "ann")),
    ],
    ids=lambda meta, expected: str(meta.get("traceparent")),
)
def test_a_handler_runs_in_the_span_of_the_server_that_asks_or_of_the_call(
    wire: Wire, meta: dict[str, Any], expected: tuple[int, int, str]
) -> None:
    seen: list[object] = []

    def handler(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        seen.append(current())
        return ElicitResult(action="decline")

    with wire.connect(asking_server(), elicitation=handler) as client, in_span(user="ann"):
        answer = asked(client, ELICITATION, {**FORM, "_meta": meta})["result"]
        assert answer == {"action": "decline"}
        assert current() == (TRACE, SPAN, "ann")
    assert seen == [expected]
