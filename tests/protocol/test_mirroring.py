"""Arguments that headers repeat: which marks are valid, and the values of the headers."""

from __future__ import annotations

from math import inf, nan
from typing import Any

import pytest

from syncmcp._protocol import metadata
from syncmcp._protocol.dialect import Dialect
from syncmcp._protocol.metadata import (
    MAX_NAMES,
    MAX_PARTS,
    InvalidParamHeader,
    ParamHeader,
    header_values,
    param_headers,
)
from syncmcp._protocol.revisions import dialect_for
from syncmcp.errors import UsageError
from tests.support.memory import peak

NEW, OLD = "2026-07-28", "2025-11-25"


def marked(name: object = "Region", type: object = "string", **more: Any) -> dict[str, Any]:
    return {"type": type, "x-mcp-header": name, **more}


def arguments(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": arguments(**properties)}


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


SPOILED: list[tuple[dict[str, Any], str]] = [
    *(
        (arguments(a=marked(name)), "not an HTTP token")
        for name in (
            *("", " ", "a b", "a:b", "é", "a\tb", "a\r\nX: y", "\x7f", " " * 10_000),
            *(7, None, True, ["A"]),
        )
    ),
    # Names of headers are case-insensitive.
    *(
        (arguments(a=marked("Region"), b=arguments(c=marked(other))), "two properties")
        for other in ("Region", "REGION", "region")
    ),
    *(
        (arguments(a=marked(type=type)), "'a' has an x-mcp-header")
        for type in ("number", "object", "array", "null", ["string"], ["string", "null"], None, 3)
    ),
    (
        arguments(a=arguments(b={"x-mcp-header": "A"})),
        "'a.b' has an x-mcp-header, but is not a string, integer or boolean",
    ),
    *(
        (schema, "not on a property")
        for schema in (
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
        )
    ),
]


@pytest.mark.requirement("XHD-03", "XHD-04", "XHD-05", "XHD-06")
@pytest.mark.parametrize(("schema", "problem"), SPOILED)
def test_a_mark_that_is_not_valid_spoils_the_tool(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidParamHeader, match=problem) as caught:
        param_headers({"type": "object", **schema})
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("keyword", ["default", "const", "enum", "examples", "x-mine"])
def test_what_looks_like_a_mark_in_data_is_none(keyword: str) -> None:
    data = [marked(""), {"properties": {"b": marked("")}}]
    assert param_headers(arguments(a={keyword: data})) == ()


def test_a_schema_that_is_none_has_no_marks() -> None:
    schema: Any
    for schema in (
        *({"properties": []}, {"properties": {"a": True, "b": 3, "c": None}}),
        *({"allOf": {"a": marked("")}}, {"$defs": [marked("")], "dependencies": {"a": ["b"]}}),
        {"items": "x", "$ref": "#/properties/a"},
    ):
        assert param_headers(schema) == ()


def test_a_schema_may_be_as_deep_as_its_server_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_PARTS", 10_000)
    schema: dict[str, Any] = marked("Deep")
    for _ in range(2_000):
        schema = {"properties": {"a": {}, "b": {"not": {}}, "c": schema}}
    (mirror,) = param_headers(schema)
    assert mirror == ParamHeader(("c",) * 2_000, "Mcp-Param-Deep")


@pytest.mark.requirement("XHD-09", "XHD-11", "XHD-12")
def test_a_value_is_spelled_as_json_spells_it_or_encoded() -> None:
    for value, header in (
        *(("eu", "eu"), ("", ""), ("two words", "two words"), (" x", "=?base64?IHg=?=")),
        *(("a\tb", "=?base64?YQli?="), ("ü\r\n", "=?base64?w7wNCg==?=")),
        *(("=?base64?eA==?=", "=?base64?PT9iYXNlNjQ/ZUE9PT89?="), (0, "0"), (-7, "-7")),
        *((42.0, "42"), (2**53 - 1, "9007199254740991"), (True, "true"), (False, "false")),
    ):
        marks = param_headers(arguments(a=marked("A")))
        assert header_values(marks, {"a": value}) == {"Mcp-Param-A": header}


@pytest.mark.requirement("XHD-10")
@pytest.mark.parametrize("given", [None, {}, {"b": "x"}, {"a": None}, {"a": {"c": None}}, {"a": 3}])
def test_what_is_null_or_not_given_has_no_header(given: Any) -> None:
    assert header_values(param_headers(arguments(a=arguments(c=marked("C")))), given) == {}


@pytest.mark.requirement("XHD-07")
@pytest.mark.parametrize("value", [2**53, -(2**53), 1e300, 1.5, nan, inf, [], {}, ["x"]])
def test_what_no_header_can_repeat_is_refused(value: Any) -> None:
    too_large = isinstance(value, (int, float)) and abs(value) >= 2**53 and value < inf
    problem = r"'a\.c'.*2\*\*53" if too_large else r"'a\.c'"
    with pytest.raises(UsageError, match=problem):
        header_values(param_headers(arguments(a=arguments(c=marked("C")))), {"a": {"c": value}})


def listing(*tools: Any) -> dict[str, Any]:
    return {"tools": list(tools), "nextCursor": "c"}


def repeating(revision: str) -> tuple[Dialect, list[tuple[str, str]]]:
    left_out: list[tuple[str, str]] = []
    dialect = dialect_for(revision, None)
    dialect.mirror_arguments(lambda name, reason: left_out.append((name, reason)))
    return dialect, left_out


def repeated(dialect: Dialect, params: Any, method: str = "tools/call") -> list[str]:
    return [name for name in dialect.headers(method, params) if "Param" in name]


@pytest.mark.requirement("XHD-01", "XHD-13")
def test_a_call_repeats_what_the_newest_list_marks() -> None:
    dialect, _ = repeating(NEW)
    call = {"name": "move", "arguments": {"to": "eu", "from": "us"}}
    assert repeated(dialect, call) == []
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
    assert peak(lambda: param_headers(schema)) < 400 * number
    assert param_headers(schema) == ()


def test_so_many_tools_are_remembered_the_newest_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "MAX_TOOLS", 3)
    seen = metadata.ParamHeaders(lambda name, why: None)
    for one in range(10):
        plain = tool(f"plain{one}", a={"type": "string"})
        seen.filter_tools([tool(f"t{one}", a=marked("A")), plain])
    assert list(seen._tools) == ["t7", "t8", "t9"]
    assert seen.headers({"name": "t9", "arguments": {"a": "x"}}) == {"Mcp-Param-A": "x"}


def test_a_tool_whose_marks_have_long_names_is_left_out() -> None:
    excluded: list[str] = []
    for one in (
        *(tool("t" * (MAX_NAMES + 1), a=marked("A")), tool("t", a=marked("A" * MAX_NAMES))),
        tool("t", **{"a" * MAX_NAMES: marked("A")}),
        tool("t", **{f"{each:0100}": marked(f"A{each}") for each in range(60)}),
    ):
        seen = metadata.ParamHeaders(lambda name, why: excluded.append(why))
        assert seen.filter_tools([one]) == []
        assert f"over {MAX_NAMES} characters" in excluded.pop()


def test_what_is_remembered_of_a_tool_takes_little_memory() -> None:
    # The paths to all arguments have few names, even if the schema is deep and the names short.
    schema = arguments(**{chr(0x100 + one): marked(f"{one:x}") for one in range(300)})
    for _ in range(90):
        schema = arguments(**{"": schema})
    excluded: list[str] = []
    seen = metadata.ParamHeaders(lambda name, why: excluded.append(why))
    assert seen.filter_tools([{"name": "deep", "inputSchema": schema}]) == []
    flat = {str(one): marked(f"A{one}") for one in range(MAX_PARTS // 2)}
    assert len(seen.filter_tools([tool("many", **flat), tool("more", z=marked(), **flat)])) == 1
    assert excluded == [f"its x-mcp-header properties have over {MAX_PARTS} names"] * 2


@pytest.mark.requirement("XHD-02", "XHD-08")
def test_a_tool_with_a_bad_mark_is_left_out_and_the_others_stay() -> None:
    dialect, left_out = repeating(NEW)
    good, bad = tool("good", a=marked("A")), tool("bad", a=marked("not ok"))
    assert dialect.read_result("tools/list", listing(good, bad)) == listing(good)
    [(name, reason)] = left_out
    assert name == "bad"
    assert "'not ok'" in reason
    # A tool whose new definition has a bad mark gets no headers any more.
    dialect, left_out = repeating(NEW)
    dialect.read_result("tools/list", listing(tool("t", a=marked("A"))))
    dialect.read_result("tools/list", listing(tool("t", a=marked("A", "number"))))
    assert len(left_out) == 1
    assert "Mcp-Param-A" not in dialect.headers("tools/call", {"name": "t", "arguments": {"a": 1}})


def test_what_is_no_tool_or_no_list_of_them_is_left_to_those_who_validate() -> None:
    dialect, left_out = repeating(NEW)
    odd: Any = (None, "x", {}, {"name": "x"}, {"inputSchema": {}}, {"name": 3, "inputSchema": {}})
    for result in (*map(listing, odd), {}, {"tools": None}, {"tools": {"a": 1}}):
        assert dialect.read_result("tools/list", {**result}) == result
    assert not left_out


def test_strange_calls_and_other_requests_repeat_nothing() -> None:
    dialect, _ = repeating(NEW)
    dialect.read_result("tools/list", listing(tool("t", a=marked("A"))))
    whole: dict[str, Any] = {"name": "t", "arguments": {"a": "x"}}
    assert "Mcp-Param-A" in dialect.headers("tools/call", whole)
    assert repeated(dialect, whole, "prompts/get") == []
    strange: tuple[Any, ...] = (None, {}, {"name": 3}, {"name": "t", "arguments": [1]})
    for params in strange:
        assert repeated(dialect, params) == []


@pytest.mark.parametrize("revision", [OLD, NEW])
def test_marks_mean_nothing_before_2026_or_without_http(revision: str) -> None:
    dialect = dialect_for(revision, None)
    if revision == OLD:
        dialect.mirror_arguments(lambda name, reason: pytest.fail(reason))
    tools = listing(tool("good", a=marked("A")), tool("bad", a=marked("")))
    assert dialect.read_result("tools/list", tools) == tools
    assert repeated(dialect, {"name": "good", "arguments": {"a": "x"}}) == []
