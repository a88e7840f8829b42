"""Members of `_meta`, including trace context, and header values that repeat a message."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncmcp._protocol.metadata import (
    check_keys,
    check_trace_context,
    encode_value,
    has_trace_shape,
    merge_meta,
)
from syncmcp._protocol.revisions import dialect_for
from syncmcp.errors import UsageError


def test_a_key_is_a_name_perhaps_after_a_prefix_of_labels() -> None:
    check_keys(["a", "7", "traceparent", "progressToken", "a-b_c.d", "example/", "example/name"])
    check_keys(["com.example/name", "com.ex-ample.x1/n.a-m_e", "io.modelcontextprotocol/logLevel"])


@pytest.mark.requirement("RPC-21")
@pytest.mark.parametrize(
    "key",
    [
        *("", "/name", "-a", "a-", ".a", "a b", "a\n", "grüße", "1com/name", "com.1x/name"),
        *("com-/name", "com..example/name", ".com/name", "com./name", "a/b/c"),
        *("com.example/-name", "com_example/name"),
    ],
)
def test_a_key_of_another_shape_is_refused_and_named(key: str) -> None:
    with pytest.raises(UsageError, match="is not a valid _meta key") as caught:
        check_keys(["fine", key])
    assert repr(key) in str(caught.value)


@pytest.mark.requirement("RPC-21")
def test_the_call_s_own_meta_goes_over_that_in_the_params() -> None:
    params = {"_meta": {"a": 1, "b": 2}}
    assert merge_meta(params, {"b": 3, "c": 4}) == {"a": 1, "b": 3, "c": 4}
    assert merge_meta(params, None) == {"a": 1, "b": 2}
    assert merge_meta({}, None) == {}
    assert params == {"_meta": {"a": 1, "b": 2}}
    with pytest.raises(UsageError, match="'not a key' is not a valid _meta key"):
        merge_meta({"_meta": {"not a key": 1}}, None)


@pytest.mark.parametrize("given", [None, 5, "text", ["a"]])
def test_meta_that_is_no_mapping_is_refused(given: Any) -> None:
    kind = "None" if given is None else type(given).__name__
    with pytest.raises(UsageError, match=f"^_meta must be a mapping, not {kind}$"):
        merge_meta({"_meta": given}, None)


TRACE = "0af7651916cd43dd8448eb211c80319c"
SPAN = "b7ad6b7169203331"

GOOD = [
    *(("traceparent", f"00-{TRACE}-{SPAN}-01"), ("traceparent", f"cc-{TRACE}-{SPAN}-01")),
    ("tracestate", "congo=t61rcWkgMzE"),
    *(("tracestate", "rojo=00f067aa0ba902b7 , congo=a b\t,,fw529a3039@dt=x"), ("tracestate", "")),
    ("tracestate", "as the propagator wrote it"),
    ("baggage", "userId=alice,serverNode=DF%2028,isProduction=false"),
    ("baggage", "key1 = value1; property1 ;property2=value , empty="),
    ("baggage", "k=" + 8190 * "v"),
]
BAD: list[tuple[str, Any]] = [
    *(("traceparent", f"00-{TRACE}-{SPAN}"), ("traceparent", f"00-{TRACE.upper()}-{SPAN}-01")),
    *(("traceparent", f"00-{TRACE[1:]}-{SPAN}-01"), ("traceparent", f"00-{TRACE}-{SPAN}-01-more")),
    ("traceparent", f"00-{TRACE}-{SPAN}-01\n"),
    *(("traceparent", odd) for odd in ("", 7, None)),
    *(("tracestate", "congo=1\r\nrojo=2"), ("tracestate", "congo=\x00")),
    *(("tracestate", "c=" + 8191 * "v"), ("tracestate", ["a=1"])),
    *(("baggage", "user=\x1b[31malice"), ("baggage", "user=alice\n"), ("baggage", "user=\x9b2J")),
    *(("baggage", "k=" + 8191 * "v"), ("baggage", {"a": 1})),
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
    assert {**good, "baggage": "a=1"}.items() <= sent["_meta"].items()
    bad = {"_meta": {"tracestate": "a=\x00"}}
    for meta, params in (({"traceparent": "here"}, None), (None, bad)):
        with pytest.raises(UsageError, match="is not valid trace context"):
            dialect.request_params("tools/list", params, 1, meta, None)


def decode_value(value: str) -> str:
    """Decode a header value as the specification requires of a server."""
    if value.startswith("=?base64?") and value.endswith("?=") and len(value) >= 11:
        return base64.b64decode(value[9:-2], validate=True).decode()
    return value


@pytest.mark.requirement("HTM-06")
@given(st.text(st.characters(exclude_categories=["Cs"])))
@example("=?base64?aGk=?=")
@example("=?base64?=")
@example("=?base64?a\n?=")
def test_any_text_survives_the_way_through_a_header(text: str) -> None:
    value = encode_value(text)
    assert decode_value(value) == text
    assert re.fullmatch(r"([!-~]([ -~]*[!-~])?)?", value)


def test_plain_text_goes_as_it_is_and_half_of_a_surrogate_pair_cannot_be_sent() -> None:
    for text in ("", "add", "a b", "file:///a b/%20?c=d#e", "=?", "?=", "=?BASE64?aGk=?="):
        assert encode_value(text) == text
    with pytest.raises(UsageError, match="cannot be sent"):
        encode_value("\ud800")


@pytest.mark.requirement("HTM-06")
def test_everything_else_goes_as_base64_of_its_utf_8_between_the_markers() -> None:
    for text, header in (
        ("grüße\r\n", "=?base64?Z3LDvMOfZQ0K?="),
        *(("a\r\nCookie: b", "=?base64?YQ0KQ29va2llOiBi?="), ("a\x00b", "=?base64?YQBi?=")),
        *(("a\tb", "=?base64?YQli?="), ("\x7f", "=?base64?fw==?="), (" a", "=?base64?IGE=?=")),
        *(("a ", "=?base64?YSA=?="), (" ", "=?base64?IA==?=")),
        ("=?base64?aGk=?=", "=?base64?PT9iYXNlNjQ/YUdrPT89?="),
        ("=?base64?not really?=", "=?base64?PT9iYXNlNjQ/bm90IHJlYWxseT89?="),
        ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),  # a careless server would decode it
        *(("file:///é", "=?base64?ZmlsZTovLy/DqQ==?="), ("😀", "=?base64?8J+YgA==?=")),
    ):
        assert encode_value(text) == header
