"""The formats of trace context in `_meta`."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.metadata import check_trace_context, has_w3c_format
from syncmcp._protocol.revisions import dialect_for
from syncmcp.errors import UsageError

TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"

GOOD = [
    ("traceparent", f"00-{TRACE}-{SPAN}-01"),
    ("traceparent", f"cc-{TRACE}-{SPAN}-01"),
    ("traceparent", f"cc-{TRACE}-{SPAN}-01-what-the-future-brings"),
    ("tracestate", "congo=t61rcWkgMzE"),
    ("tracestate", "rojo=00f067aa0ba902b7 , congo=a b\t,,fw529a3039@dt=x"),
    ("tracestate", ""),
    ("tracestate", ",".join(f"v{number}=1" for number in range(32))),
    ("baggage", "userId=alice,serverNode=DF%2028,isProduction=false"),
    ("baggage", "key1 = value1; property1 ;property2=value , empty="),
    ("baggage", ",".join(f"k{number}=1" for number in range(180))),
]
BAD: list[tuple[str, Any]] = [
    ("traceparent", f"00-{TRACE}-{SPAN}"),
    ("traceparent", f"00-{TRACE.upper()}-{SPAN}-01"),
    ("traceparent", f"00-{TRACE}-{SPAN}-01-more"),
    ("traceparent", f"ff-{TRACE}-{SPAN}-01"),
    ("traceparent", f"00-{'0' * 32}-{SPAN}-01"),
    ("traceparent", f"00-{TRACE}-{'0' * 16}-01"),
    ("traceparent", f"00-{TRACE}-{SPAN}-01\n"),
    ("traceparent", 7),
    ("traceparent", None),
    ("tracestate", "no value"),
    ("tracestate", "Upper=1"),
    ("tracestate", "twice=1,twice=2"),
    ("tracestate", "a=b=c"),
    ("tracestate", "a=" + 257 * "x"),
    ("tracestate", ",".join(f"v{number}=1" for number in range(33))),
    ("tracestate", ["a=1"]),
    ("baggage", ""),
    ("baggage", "a=1,,b=2"),
    ("baggage", "user id=alice"),
    ("baggage", "name=élan"),
    ("baggage", 'name="quoted"'),
    ("baggage", ",".join(f"k{number}=1" for number in range(181))),
    ("baggage", "k=" + 8191 * "v"),
]


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize(("key", "value"), GOOD)
def test_what_the_w3c_writes_is_taken(key: str, value: str) -> None:
    assert has_w3c_format(key, value)
    check_trace_context({key: value, "other": object()})


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize(("key", "value"), BAD)
def test_what_the_w3c_does_not_write_is_refused(key: str, value: Any) -> None:
    assert not has_w3c_format(key, value)
    with pytest.raises(UsageError, match=key) as caught:
        check_trace_context({key: value})
    assert value is None or not value or str(value)[:9] not in str(caught.value)


@pytest.mark.requirement("RPC-22")
@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_a_callers_own_trace_context_is_checked_before_it_is_sent(revision: str) -> None:
    dialect = dialect_for(revision, None)
    good = {"traceparent": f"00-{TRACE}-{SPAN}-01"}
    sent = dialect.request("tools/list", {"_meta": {"baggage": "a=1"}}, 1, good, None)[1]
    assert sent is not None
    assert good.items() <= sent["_meta"].items()
    assert sent["_meta"]["baggage"] == "a=1"
    for meta, params in (
        ({"traceparent": "here"}, None),
        (None, {"_meta": {"tracestate": "A"}}),
    ):
        with pytest.raises(UsageError, match="format of the W3C"):
            dialect.request("tools/list", params, 1, meta, None)[1]
