"""Trace context in `_meta`, where the program uses OpenTelemetry."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from opentelemetry import baggage, propagate, trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, TraceState

import syncmcp
from syncmcp import Client
from syncmcp.testing import Server, ToolContext
from syncmcp.types import ElicitResult
from tests.support.stage import PATIENCE, STATELESS, Wire, rotated, rotated_stateful, rotated_with

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SPAN = 0xB7AD6B7169203331
PARENT = f"00-{TRACE:032x}-{SPAN:016x}-01"
SERVERS = f"00-{TRACE:032x}-00f067aa0ba902b7-01"
KEYS = ("traceparent", "tracestate", "baggage")


@contextmanager
def in_span(**bags: str) -> Iterator[None]:
    """A current span, as the program's own instrumentation makes one."""
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


class Looking:
    """A server that keeps the `_meta` of what it is asked."""

    def __init__(self) -> None:
        self.metas: list[dict[str, Any]] = []
        self.server = Server("looking")
        self.server.tool()(self.look)
        self.server.tool()(self.ask)

    def look(self, context: ToolContext) -> str:
        """Keep it."""
        self.metas.append(context.meta)
        return "looked"

    def ask(self, context: ToolContext, meta: dict[str, Any]) -> str:
        """Ask for a form, with this `_meta`."""
        schema = {"type": "object", "properties": {}}
        params = {"message": "Who?", "requestedSchema": schema, "_meta": meta}
        if context.revision == STATELESS:
            params["mode"] = "form"
        answer = context.ask_all({"who": ("elicitation/create", params)})
        return str(answer["who"]["action"])

    @property
    def traced(self) -> dict[str, Any]:
        """The trace context of the newest call."""
        return {key: self.metas[-1][key] for key in KEYS if key in self.metas[-1]}


def blocking(client: Client, **options: Any) -> object:
    return client.call_tool("look", **options)


def by_future(client: Client, **options: Any) -> object:
    return client.call_tool.future("look", **options).result(PATIENCE)


Call = Callable[..., object]


@rotated_with("call", [blocking, by_future])
@pytest.mark.requirement("RPC-22")
def test_a_request_carries_the_current_span_and_baggage_in_the_formats_of_the_w3c(
    wire: Wire, call: Call
) -> None:
    looking = Looking()
    with wire.connect(looking.server) as client, in_span(user="ann", city="Å b"):
        call(client)
    assert looking.traced == {
        "traceparent": PARENT,
        "tracestate": "congo=t61rcWkgMzE",
        "baggage": "user=ann,city=%C3%85+b",
    }


@rotated_with("call", [blocking, by_future])
def test_without_a_span_nothing_is_added(wire: Wire, call: Call) -> None:
    looking = Looking()
    with wire.connect(looking.server) as client:
        call(client)
    assert looking.traced == {}


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
def test_a_trace_context_of_the_callers_own_is_not_touched(
    wire: Wire, given: dict[str, str], sent: dict[str, str]
) -> None:
    looking = Looking()
    with wire.connect(looking.server) as client, in_span(user="ann"):
        client.call_tool("look", meta=given)
        assert looking.traced == sent
        client.request("tools/call", {"name": "look", "_meta": given}, result=dict)
        assert looking.traced == sent
    assert len(looking.metas) == 2


class Foreign(TextMapPropagator):
    """Another format under the names of this one, and under a name of its own."""

    def inject(self, carrier: Any, context: Context | None = None, setter: Any = None) -> None:
        carrier.update({"traceparent": "1-2-3", "baggage": "user=ann", "b3": "1"})

    def extract(self, carrier: Any, context: Context | None = None, getter: Any = None) -> Context:
        raise AssertionError("nothing comes in here")

    @property
    def fields(self) -> set[str]:
        return set()


@rotated
@pytest.mark.requirement("RPC-22")
def test_what_another_propagator_writes_stays_here_unless_it_looks_like_trace_context(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Looking()
    before = propagate.get_global_textmap()
    propagate.set_global_textmap(Foreign())
    try:
        with wire.connect(looking.server) as client, in_span():
            client.call_tool("look")
    finally:
        propagate.set_global_textmap(before)
    assert looking.traced == {"baggage": "user=ann"}
    assert "b3" not in looking.metas[0]


def current() -> tuple[int, int, object]:
    span = trace.get_current_span().get_span_context()
    return span.trace_id, span.span_id, baggage.get_baggage("user")


@rotated
@pytest.mark.parametrize(
    ("meta", "expected"),
    [
        # The span of the server, and not the baggage that it would have us pass on.
        ({"traceparent": SERVERS, "baggage": "user=eve"}, (TRACE, 0x00F067AA0BA902B7, "ann")),
        ({}, (TRACE, SPAN, "ann")),
        ({"traceparent": "nonsense"}, (TRACE, SPAN, "ann")),
        ({"traceparent": 7, "tracestate": "a=1"}, (TRACE, SPAN, "ann")),
    ],
)
def test_a_handler_runs_in_the_span_of_the_server_that_asks_or_of_the_call(
    wire: Wire, meta: dict[str, Any], expected: tuple[int, int, str]
) -> None:
    seen: list[object] = []

    def handler(request: Any, context: syncmcp.HandlerContext) -> ElicitResult:
        seen.append(current())
        return ElicitResult(action="decline")

    with wire.connect(Looking().server, elicitation=handler) as client, in_span(user="ann"):
        assert client.call_tool("ask", {"meta": meta}).text == "decline"
        assert current() == (TRACE, SPAN, "ann")
    assert seen == [expected]


@rotated_stateful
def test_an_interceptor_sees_the_trace_context_and_may_change_it(wire: Wire) -> None:
    looking = Looking()
    found: list[str] = []

    class Other(syncmcp.Interceptor):
        def outgoing(self, message: syncmcp.Message) -> syncmcp.Message | None:
            if message.method != "tools/call":
                return None
            meta = dict(message.params["_meta"])
            found.append(meta["traceparent"])
            meta["traceparent"] = SERVERS
            return message.with_params({**message.params, "_meta": meta})

    with wire.connect(looking.server, interceptors=[Other()]) as client, in_span():
        client.call_tool("look")
    assert (found, looking.traced["traceparent"]) == ([PARENT], SERVERS)


def test_a_program_without_opentelemetry_never_loads_it() -> None:
    code = """
import sys, syncmcp
from syncmcp.testing import Server
server = Server("x")
server.tool(name="look")(lambda: "looked")
with syncmcp.connect(server) as client:
    print(client.call_tool("look").text)
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "looked\n"
