"""Header values that repeat parts of a message."""

from __future__ import annotations

import base64
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from syncmcp._protocol.metadata import encode_value
from syncmcp.errors import UsageError


def decode_value(value: str) -> str:
    """Read a header value as the specification tells a server to."""
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


@pytest.mark.parametrize(
    "text", ["", "add", "a b", "file:///a?b=c#d", "=?", "?=", "=?BASE64?aGk=?="]
)
def test_plain_text_goes_as_it_is(text: str) -> None:
    assert encode_value(text) == text


@pytest.mark.requirement("HTM-06")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(" a", id="a blank before"),
        pytest.param("a ", id="a blank behind"),
        pytest.param(" ", id="nothing but a blank"),
        pytest.param("a\tb", id="a tab"),
        pytest.param("a\r\nCookie: b", id="a line break"),
        pytest.param("a\x00b", id="a zero byte"),
        pytest.param("a\x7f", id="a control character"),
        pytest.param("grüße", id="a letter beyond ASCII"),
        pytest.param("😀", id="a character of two surrogates"),
        pytest.param("=?base64?aGk=?=", id="what looks encoded"),
        pytest.param("=?base64??=", id="what looks like nothing encoded"),
        pytest.param("=?base64?=", id="what looks encoded to a careless reader"),
    ],
)
def test_everything_else_goes_as_base64_of_its_utf_8_between_the_markers(text: str) -> None:
    expected = base64.b64encode(text.encode()).decode()
    assert encode_value(text) == f"=?base64?{expected}?="


def test_half_of_a_surrogate_pair_cannot_be_sent() -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        encode_value("\ud800")
