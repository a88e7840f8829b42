"""The grammar of `_meta` keys, and what a caller may put there."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.metadata import check_keys, merge_meta
from syncmcp.errors import UsageError


@pytest.mark.parametrize(
    "key",
    [
        "a",
        "7",
        "traceparent",
        "progressToken",
        "a-b_c.d",
        "example/",
        "example/name",
        "com.example/name",
        "com.ex-ample.x1/n.a-m_e",
        "io.modelcontextprotocol/logLevel",
    ],
)
def test_a_key_is_a_name_perhaps_after_a_prefix_of_labels(key: str) -> None:
    check_keys([key])


@pytest.mark.requirement("RPC-21")
@pytest.mark.parametrize(
    "key",
    [
        "",
        "/name",
        "-a",
        "a-",
        ".a",
        "a b",
        "a\n",
        "grüße",
        "1com/name",
        "com.1x/name",
        "com-/name",
        "com..example/name",
        ".com/name",
        "com./name",
        "a/b/c",
        "com.example/-name",
        "com_example/name",
    ],
)
def test_a_key_of_another_shape_is_refused_and_named(key: str) -> None:
    with pytest.raises(UsageError, match="is not a valid _meta key") as caught:
        check_keys(["fine", key])
    assert repr(key) in str(caught.value)


def test_the_call_s_own_meta_goes_over_that_in_the_params() -> None:
    params = {"_meta": {"a": 1, "b": 2}}
    assert merge_meta(params, {"b": 3, "c": 4}) == {"a": 1, "b": 3, "c": 4}
    assert merge_meta(params, None) == {"a": 1, "b": 2}
    assert merge_meta({}, None) == {}
    assert params == {"_meta": {"a": 1, "b": 2}}


@pytest.mark.requirement("RPC-21")
def test_a_key_in_the_params_is_held_to_the_grammar_too() -> None:
    with pytest.raises(UsageError, match="'not a key' is not a valid _meta key"):
        merge_meta({"_meta": {"not a key": 1}}, None)


@pytest.mark.parametrize("given", [None, 5, "text", ["a"]])
def test_meta_that_is_no_mapping_is_refused(given: Any) -> None:
    with pytest.raises(UsageError, match="_meta is a mapping"):
        merge_meta({"_meta": given}, None)
