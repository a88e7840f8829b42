"""OpenTelemetry tracing: one span for each request, by the semantic conventions for MCP.

The module needs the extra ``opentelemetry``: ``pip install "syncmcp-client[opentelemetry]"``. ::

    from syncmcp.observe.tracing import Spans

    client = syncmcp.Client(target, interceptors=[Spans()])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from syncmcp._protocol.revisions import tool_failed
from syncmcp.errors import ServerError, UsageError
from syncmcp.interceptors import Interceptor, Message

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["Spans"]

# The parameter that names the target of a request, and the span attribute for it.
_TARGETS = {
    "tools/call": ("name", "gen_ai.tool.name"),
    "prompts/get": ("name", "gen_ai.prompt.name"),
    "resources/read": ("uri", "mcp.resource.uri"),
    "resources/subscribe": ("uri", "mcp.resource.uri"),
    "resources/unsubscribe": ("uri", "mcp.resource.uri"),
}

_VERSION = "io.modelcontextprotocol/protocolVersion"


class Spans(Interceptor):
    """An interceptor that makes a client span for each request; each retry has a span of its own.

    The trace context is sent with the request, so that spans of the server become children of the
    span. The span itself is a child of the span in which the request is made.

    The name of a span is the method, with the name of the tool or prompt. Its attributes are
    `mcp.method.name`, `jsonrpc.request.id`, and the target (`gen_ai.tool.name`,
    `gen_ai.prompt.name` or `mcp.resource.uri`). There may also be `mcp.protocol.version`, and
    `gen_ai.operation.name` for tool calls. `error.type` is the class of the error, or
    ``tool_error`` for a tool that failed. The code of a `ServerError` is
    `rpc.response.status_code`. Arguments and results are not recorded.

    Args:
        provider: Receives the spans; by default the program's global provider.
        session_id: Returns `mcp.session.id`, for instance ``lambda: client.session_id``. By
            default, the id is not recorded: anybody with the id of a session can act as its client.

    Raises:
        UsageError: OpenTelemetry is not installed.
    """

    def __init__(
        self,
        provider: TracerProvider | None = None,
        *,
        session_id: Callable[[], str | None] | None = None,
    ) -> None:
        if find_spec("opentelemetry") is None:
            raise UsageError("spans need OpenTelemetry: install syncmcp-client[opentelemetry]")
        self._provider = provider
        self._session_id = session_id
        # All hooks of one request share a context of their own.
        self._span: ContextVar[Span | None] = ContextVar("syncmcp_span", default=None)

    def __repr__(self) -> str:
        return "Spans()" if self._provider is None else f"Spans({self._provider!r})"

    def outgoing(self, message: Message) -> Message | None:
        """See `Interceptor`."""
        if message.kind != "request" or message.settled:
            return None
        from opentelemetry import propagate, trace
        from opentelemetry.trace import SpanKind

        attributes: dict[str, Any] = {
            "mcp.method.name": message.method,
            "jsonrpc.request.id": str(message.id),
        }
        target = self._target(message, attributes)
        tracer = trace.get_tracer("syncmcp", tracer_provider=self._provider)
        span = tracer.start_span(
            f"{message.method} {target}" if target else message.method,
            kind=SpanKind.CLIENT,
            attributes=attributes,
        )
        self._span.set(span)
        if not span.get_span_context().is_valid:
            return None
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        meta = message.params.get("_meta")
        given = meta if isinstance(meta, Mapping) else {}
        return message.with_params({**message.params, "_meta": {**given, **carrier}})

    def ended(self, answer: Message) -> None:
        """See `Interceptor`."""
        from opentelemetry.trace import Status, StatusCode

        span = self._span.get()
        if span is None:
            return
        self._span.set(None)
        error = answer.error
        if error is not None:
            span.set_attribute("error.type", type(error).__name__)
            if isinstance(error, ServerError):
                span.set_attribute("rpc.response.status_code", str(error.code))
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        elif isinstance(answer.result, Mapping) and tool_failed(answer.result):
            span.set_attribute("error.type", "tool_error")
            span.set_status(Status(StatusCode.ERROR, "tool_error"))
        span.end()

    def _target(self, message: Message, attributes: dict[str, Any]) -> str | None:
        """Add attributes that depend on the message; return its target for the name of the span."""
        meta = message.params.get("_meta")
        version = meta.get(_VERSION) if isinstance(meta, Mapping) else None
        if isinstance(version, str):
            attributes["mcp.protocol.version"] = version
        session = None if self._session_id is None else self._session_id()
        if session is not None:
            attributes["mcp.session.id"] = session
        if message.method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
        parameter, attribute = _TARGETS.get(message.method, ("", ""))
        value = message.params.get(parameter)
        if not isinstance(value, str):
            return None
        attributes[attribute] = value
        # URIs are not part of a span's name, because there may be any number of them.
        return value if parameter == "name" else None
