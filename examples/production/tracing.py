"""Tracing with OpenTelemetry: each request carries the current span of the caller.

This program creates a span without the OpenTelemetry SDK, so it needs only ``opentelemetry-api``.
Usually the SDK or an instrumented framework creates the spans. The client needs no setup.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import syncmcp
from syncmcp.testing import Server, ToolContext


def traced() -> Server:
    """A server whose tool returns the span that a call carries."""
    server = Server("traced")

    @server.tool()
    def span_of_call(context: ToolContext) -> str:
        """Return the span to which the call belongs."""
        return str(context.meta.get("traceparent", "no span"))

    return server


def main() -> None:
    """Call the tool without a span, then twice within a span."""
    span = NonRecordingSpan(SpanContext(0x5AFE, 0xCAFE, is_remote=False, trace_flags=TraceFlags(1)))
    with syncmcp.connect(traced()) as client:
        print(client.call_tool("span_of_call").text)
        token = attach(trace.set_span_in_context(span))
        try:
            print(client.call_tool("span_of_call").text)
            print(client.call_tool.future("span_of_call").result().text)
        finally:
            detach(token)


if __name__ == "__main__":
    main()
