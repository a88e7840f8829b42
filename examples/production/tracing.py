"""A trace that goes on in the server: with OpenTelemetry, requests say which span they belong to.

The span here is made by hand, so that this runs with ``opentelemetry-api`` alone. In a program it
comes from the OpenTelemetry SDK or from an instrumented framework; the client needs no more than
that there is one.
"""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import syncmcp
from syncmcp.testing import Server, ToolContext


def traced() -> Server:
    """A server that says what it was told of the caller's trace."""
    server = Server("traced")

    @server.tool()
    def whose(context: ToolContext) -> str:
        """Say which span a call belongs to."""
        return str(context.meta.get("traceparent", "nobody's"))

    return server


def main() -> None:
    """Call once without a span and once within one."""
    span = NonRecordingSpan(SpanContext(0x5AFE, 0xCAFE, is_remote=False, trace_flags=TraceFlags(1)))
    with syncmcp.connect(traced()) as client:
        print(client.call_tool("whose").text)
        token = attach(trace.set_span_in_context(span))
        try:
            print(client.call_tool("whose").text)
            print(client.call_tool.future("whose").result().text)
        finally:
            detach(token)


if __name__ == "__main__":
    main()
