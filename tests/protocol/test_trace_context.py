"""The shape of trace context in `_meta`."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.metadata import check_trace_context, has_trace_shape
from syncmcp._protocol.revisions import dialect_for
from syncmcp.errors import UsageError

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"

GOOD = [
    ("traceparent", f"00-{TRACE}-{SPAN}-01"),
    ("traceparent", f"cc-{TRACE}-{SPAN}-01"),
    ("tracestate", "congo=t61rcWkgMzE"),
    ("tracestate", "rojo=00f067aa0ba902b7 , congo=a b\t,,fw529a3039@dt=x"),
    ("tracestate", ""),
    ("tracestate", "as the propagator wrote it"),
    ("baggage", "userId=alice,serverNode=DF%2028,isProduction=false"),
    ("baggage", "key1 = value1; property1 ;property2=value , empty="),
    ("baggage", "k=" + 8190 * "v"),
]
BAD: list[tuple[str, Any]] = [
    ("traceparent", f"00-{TRACE}-{SPAN}"),
    ("traceparent", f"00-{TRACE.upper()}-{SPAN}-01"),
    ("traceparent", f"00-{TRACE[1:]}-{SPAN}-01"),
    ("traceparent", f"00-{TRACE}-{SPAN}-01-more"),
    ("traceparent", f"00-{TRACE}-{SPAN}-01\n"),
    ("traceparent", ""),
    ("traceparent", 7),
    ("traceparent", None),
    ("tracestate", "congo=1\r\nrojo=2"),
    ("tracestate", "congo=\x00"),
    ("tracestate", "c=" + 8191 * "v"),
    ("tracestate", ["a=1"]),
    ("baggage", "user=\x1b[31malice"),
    ("baggage", "user=alice\n"),
    ("baggage", "user=\x9b2J"),
    ("baggage", "k=" + 8191 * "v"),
    ("baggage", {"a": 1}),
]


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_propagators_write_is_taken(key: str, value: str) -> None:
    assert has_trace_shape(key, value)
    check_trace_context({key: value, "other": object()})


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_does_not_look_like_trace_context_is_refused(key: str, value: Any) -> None:
    assert not has_trace_shape(key, value)
    with pytest.raises(UsageError, match=key) as caught:
        check_trace_context({key: value})
    assert value is None or not value or str(value)[:9] not in str(caught.value)


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_callers_own_trace_context_is_checked_before_it_is_sent(revision: str) -> None:
    dialect = dialect_for(revision, None)
    good = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    sent = dialect.request_params("tools/list", {"_meta": {"baggage": "a=1"}}, 1, good, None)
    assert sent is not None
    assert good.items() <= sent["_meta"].items()
    assert sent["_meta"]["baggage"] == "a=1"
    for meta, params in (
        ({"traceparent": "here"}, None),
        (None, {"_meta": {"tracestate": "a=\x00"}}),
    ):
        with pytest.raises(UsageError, match="shape of trace context"):
            dialect.request_params("tools/list", params, 1, meta, None)
