"""Arguments that headers repeat: which marks are valid, and what the headers say."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncmcp._protocol import metadata
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.metadata import (
    MAX_NAMES,
    InvalidParamHeader,
    ParamHeader,
    header_values,
    param_headers,
)
from syncmcp._protocol.revisions import dialect_for
from syncmcp.errors import UsageError

NEW, OLD = "2026-07-28", "2025-11-25"


def marked(name: object = "Region", type: object = "string", **more: Any) -> dict[str, Any]:
    return {"type": type, "x-mcp-header": name, **more}


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": arguments(**properties)}


# -- marks ---------------------------------------------------------------------------------------


@pytest.mark.requirement("XHD-01", "XHD-06")
def test_marks_are_found_wherever_properties_alone_lead() -> None:
    schema = arguments(
        plain={"type": "string"},
        region=marked("Region"),
        inner=arguments(properties=marked("Deep", "integer"), flag=marked("Flag", "boolean")),
    )
    assert set(param_headers(schema)) == {
        ParamHeader(("region",), "Mcp-Param-Region"),
        ParamHeader(("inner", "properties"), "Mcp-Param-Deep"),
        ParamHeader(("inner", "flag"), "Mcp-Param-Flag"),
    }


@pytest.mark.requirement("XHD-03")
@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a:b", "é", "a\tb", "a\r\nX: y", "\x7f", 7, None, True, ["A"]]
)
def test_a_header_name_that_is_no_token_spoils_the_tool(name: object) -> None:
    with pytest.raises(InvalidParamHeader, match="no HTTP token"):
        param_headers(arguments(a=marked(name)))


def test_a_long_bad_name_is_shown_in_part() -> None:
    with pytest.raises(InvalidParamHeader) as caught:
        param_headers(arguments(a=marked(" " * 10_000)))
    assert len(str(caught.value)) < 200


@pytest.mark.requirement("XHD-04")
@pytest.mark.parametrize("other", ["Region", "REGION", "region"])
def test_two_marks_that_differ_at_most_in_case_spoil_the_tool(other: str) -> None:
    with pytest.raises(InvalidParamHeader, match="two properties"):
        param_headers(arguments(a=marked("Region"), b=arguments(c=marked(other))))


@pytest.mark.requirement("XHD-05")
@pytest.mark.parametrize(
    "type", ["number", "object", "array", "null", ["string"], ["string", "null"], None, 3]
)
def test_only_strings_integers_and_booleans_can_be_marked(type: object) -> None:
    with pytest.raises(InvalidParamHeader, match="'a' is marked"):
        param_headers(arguments(a=marked(type=type)))


def test_a_marked_property_needs_a_type() -> None:
    with pytest.raises(InvalidParamHeader):
        param_headers(arguments(a={"x-mcp-header": "A"}))


@pytest.mark.requirement("XHD-06")
@pytest.mark.parametrize(
    "schema",
    [
        marked("Root"),
        {"properties": {"a": {"items": marked()}}},
        {"properties": {"a": {"items": [marked()]}}},
        {"properties": {"a": {"prefixItems": [{}, marked()]}}},
        {"properties": {"a": {"not": {"properties": {"b": marked()}}}}},
        *({keyword: [arguments(a=marked())]} for keyword in ("allOf", "anyOf", "oneOf")),
        *({keyword: arguments(a=marked())} for keyword in ("if", "then", "else", "not")),
        *({keyword: marked()} for keyword in ("contains", "additionalItems", "contentSchema")),
        *({keyword: marked()} for keyword in ("additionalProperties", "propertyNames")),
        *({keyword: marked()} for keyword in ("unevaluatedItems", "unevaluatedProperties")),
        *({keyword: {"a": marked()}} for keyword in ("$defs", "definitions", "dependencies")),
        *({keyword: {"a": marked()}} for keyword in ("dependentSchemas", "patternProperties")),
    ],
    ids=str,
)
def test_a_mark_where_something_else_leads_spoils_the_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidParamHeader, match="not on a property"):
        param_headers({"type": "object", **schema})


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples", "x-mine"])
def test_what_looks_like_a_mark_in_data_is_none(keyword: str) -> None:
    assert (
        param_headers(arguments(a={keyword: [marked(""), {"properties": {"b": marked("")}}]})) == ()
    )


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": []},
        {"properties": {"a": True, "b": 3, "c": None}},
        {"allOf": {"a": marked("")}},
        {"$defs": [marked("")], "dependencies": {"a": ["b"]}},
        {"items": "x", "$ref": "#/properties/a"},
    ],
    ids=str,
)
def test_a_schema_that_is_none_has_no_marks(schema: dict[str, Any]) -> None:
    assert param_headers(schema) == ()


def test_a_schema_may_be_as_deep_as_its_server_likes() -> None:
    schema: dict[str, Any] = marked("Deep")
    for _ in range(2_000):
        schema = {"properties": {"a": {}, "b": {"not": {}}, "c": schema}}
    (mirror,) = param_headers(schema)
    assert mirror == ParamHeader(("c",) * 2_000, "Mcp-Param-Deep")


# -- headers -------------------------------------------------------------------------------------


@pytest.mark.requirement("XHD-09", "XHD-11", "XHD-12")
@pytest.mark.parametrize(
    ("value", "header"),
    [
        ("eu", "eu"),
        ("", ""),
        ("two words", "two words"),
        (" x", "=?base64?IHg=?="),
        ("a\tb", "=?base64?YQli?="),
        ("ü\r\n", "=?base64?w7wNCg==?="),
        ("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="),
        (0, "0"),
        (-7, "-7"),
        (42.0, "42"),
        (2**53 - 1, "9007199254740991"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_a_value_is_spelled_as_json_spells_it_or_encoded(value: object, header: str) -> None:
    marks = param_headers(arguments(a=marked("A")))
    assert header_values(marks, {"a": value}) == {"Mcp-Param-A": header}


@pytest.mark.requirement("XHD-10")
@pytest.mark.parametrize("given", [None, {}, {"b": "x"}, {"a": None}, {"a": {"c": None}}, {"a": 3}])
def test_what_is_null_or_not_given_has_no_header(given: Any) -> None:
    assert header_values(param_headers(arguments(a=arguments(c=marked("C")))), given) == {}


@pytest.mark.requirement("XHD-07")
@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300])
def test_an_integer_that_a_double_cannot_hold_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"'a\.c'.*2\*\*53"):
        header_values(param_headers(arguments(a=arguments(c=marked("C")))), {"a": {"c": value}})


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf"), [], {}, ["x"]])
def test_what_no_header_can_repeat_is_refused(value: object) -> None:
    with pytest.raises(UsageError, match="'a'"):
        header_values(param_headers(arguments(a=marked("A"))), {"a": value})


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_no_argument_breaks_out_of_its_header(text: str) -> None:
    (value,) = header_values(param_headers(arguments(a=marked("A"))), {"a": text}).values()
    assert value.isascii()
    assert value.isprintable()


# -- in the dialects -----------------------------------------------------------------------------


def listing(*tools: Any) -> dict[str, Any]:
    return {"tools": list(tools), "nextCursor": "c"}


def repeating(revision: str) -> tuple[Dialect, list[tuple[str, str]]]:
    left_out: list[tuple[str, str]] = []
    dialect = dialect_for(revision, None)
    dialect.mirror_arguments(lambda name, reason: left_out.append((name, reason)))
    return dialect, left_out


@pytest.mark.requirement("XHD-01", "XHD-13")
def test_a_call_repeats_what_the_newest_list_marks() -> None:
    dialect, _ = repeating(NEW)
    call = {"name": "move", "arguments": {"to": "eu", "from": "us"}}
    assert not [name for name in dialect.headers("tools/call", call) if "Param" in name]
    dialect.read_result("tools/list", listing(tool("move", to=marked("To"))))
    assert dialect.headers("tools/call", call)["Mcp-Param-To"] == "eu"
    dialect.read_result("tools/list", listing(tool("move", **{"from": marked("From")})))
    headers = dialect.headers("tools/call", call)
    assert headers["Mcp-Param-From"] == "us"
    assert "Mcp-Param-To" not in headers


def test_no_path_is_made_to_what_is_not_marked() -> None:
    number = 5_000
    schema = arguments(**{str(one): {} for one in range(number)})
    for _ in range(80):
        schema = arguments(a=schema)

    tracemalloc.start()
    try:
        assert param_headers(schema) == ()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak < 400 * number


def test_so_many_tools_are_remembered_the_newest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_TOOLS", 3)
    seen = metadata.ParamHeaders(lambda name, why: None)

    for one in range(10):
        seen.filter_tools(
            [tool(f"t{one}", a=marked("A")), tool(f"plain{one}", a={"type": "string"})]
        )

    assert list(seen._tools) == ["t7", "t8", "t9"]
    assert seen.headers({"name": "t9", "arguments": {"a": "x"}}) == {"Mcp-Param-A": "x"}


@pytest.mark.parametrize(
    "one",
    [
        tool("t" * (MAX_NAMES + 1), a=marked("A")),
        tool("t", a=marked("A" * MAX_NAMES)),
        tool("t", **{"a" * MAX_NAMES: marked("A")}),
        tool("t", **{f"{each:0100}": marked(f"A{each}") for each in range(100)}),
    ],
)
def test_a_tool_whose_marks_have_long_names_is_left_out(one: dict[str, Any]) -> None:
    excluded: list[str] = []
    seen = metadata.ParamHeaders(lambda name, why: excluded.append(why))

    assert seen.filter_tools([one]) == []
    assert f"over {MAX_NAMES} characters" in excluded[0]


@pytest.mark.requirement("XHD-02", "XHD-08")
def test_a_tool_with_a_bad_mark_is_left_out_and_the_others_stay() -> None:
    dialect, left_out = repeating(NEW)
    good, bad = tool("good", a=marked("A")), tool("bad", a=marked("not ok"))
    assert dialect.read_result("tools/list", listing(good, bad)) == listing(good)
    [(name, reason)] = left_out
    assert name == "bad"
    assert "'not ok'" in reason


def test_a_tool_that_went_bad_repeats_nothing_any_more() -> None:
    dialect, left_out = repeating(NEW)
    dialect.read_result("tools/list", listing(tool("t", a=marked("A"))))
    dialect.read_result("tools/list", listing(tool("t", a=marked("A", "number"))))
    assert len(left_out) == 1
    assert "Mcp-Param-A" not in dialect.headers("tools/call", {"name": "t", "arguments": {"a": 1}})


@pytest.mark.parametrize(
    "one", [None, "x", {}, {"name": "x"}, {"name": 3, "inputSchema": {}}, {"inputSchema": {}}]
)
def test_what_is_no_tool_is_left_to_those_who_validate(one: object) -> None:
    dialect, left_out = repeating(NEW)
    assert dialect.read_result("tools/list", listing(one)) == listing(one)
    assert not left_out


@pytest.mark.parametrize("result", [{}, {"tools": None}, {"tools": {"a": 1}}])
def test_what_is_no_list_of_tools_is_left_as_it_is(result: dict[str, Any]) -> None:
    assert repeating(NEW)[0].read_result("tools/list", result) == result


@pytest.mark.parametrize("params", [None, {}, {"name": 3}, {"name": "t", "arguments": [1]}])
def test_a_strange_call_repeats_nothing(params: Any) -> None:
    dialect, _ = repeating(NEW)
    dialect.read_result("tools/list", listing(tool("t", a=marked("A"))))
    assert not [name for name in dialect.headers("tools/call", params) if "Param" in name]


def test_other_requests_repeat_nothing() -> None:
    dialect, _ = repeating(NEW)
    dialect.read_result("tools/list", listing(tool("t", a=marked("A"))))
    headers = dialect.headers("prompts/get", {"name": "t", "arguments": {"a": "x"}})
    assert not [name for name in headers if "Param" in name]


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_marks_mean_nothing_before_2026_or_without_http(revision: str) -> None:
    dialect = dialect_for(revision, None)
    if revision == OLD:
        dialect.mirror_arguments(lambda name, reason: pytest.fail(reason))
    tools = listing(tool("good", a=marked("A")), tool("bad", a=marked("")))
    assert dialect.read_result("tools/list", tools) == tools
    headers = dialect.headers("tools/call", {"name": "good", "arguments": {"a": "x"}})
    assert not [name for name in headers if "Param" in name]
