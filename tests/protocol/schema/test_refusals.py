"""Invalid and unsupported schemas are refused, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from syncmcp._protocol.schema import compile_schema
from syncmcp._protocol.schema.place import resolve
from syncmcp.errors import UnsupportedSchema
from tests.protocol.schema.deep import refused
from tests.protocol.schema.test_words import D4, D7, D2020


def refusal(schema: Any) -> str:
    return refused(lambda: compile_schema(schema))


def test_numbers_and_types_beyond_the_limits_are_refused() -> None:
    assert refusal({"multipleOf": 1e999}) == "a number in it is too large"
    assert "repeats a type" in refusal({"type": ["string"] * 8})


@pytest.mark.requirement("SCHM-01")
def test_a_schema_that_names_no_dialect_is_2020_12() -> None:
    compiled = compile_schema({"prefixItems": [{"type": "integer"}]})
    assert compiled.dialect == "JSON Schema 2020-12"
    assert compiled.problem([1]) is None
    assert compiled.problem(["a"]) is not None
    assert compile_schema({"$schema": D2020, "prefixItems": [False]}).problem([1]) is not None


@pytest.mark.requirement("SCHM-02")
def test_a_schema_is_read_in_the_dialect_that_it_names() -> None:
    for said, name in (
        ("http://json-schema.org/draft-07/schema", "JSON Schema draft-07"),
        ("http://json-schema.org/draft-07/schema#", "JSON Schema draft-07"),
        ("https://json-schema.org/draft-07/schema#", "JSON Schema draft-07"),
        ("http://json-schema.org/draft-06/schema#", "JSON Schema draft-06"),
        (D4, "JSON Schema draft-04"),
        ("https://json-schema.org/draft/2019-09/schema", "JSON Schema 2019-09"),
    ):
        compiled = compile_schema({"$schema": said, "prefixItems": [False]})
        assert compiled.dialect == name
        assert compiled.problem([1]) is None  # a keyword of 2020-12 only


@pytest.mark.requirement("SCHM-03")
def test_an_unknown_dialect_is_refused_by_its_name() -> None:
    for said in ("http://json-schema.org/draft-03/schema#", "https://example.com/mine", ""):
        assert repr(said) in refusal({"$schema": said, "type": "object"})


def test_what_is_neither_an_object_nor_a_boolean_is_no_schema() -> None:
    none: Any
    for none in (None, 7, "object", []):
        assert refusal(none) == "it is neither an object nor a boolean"


def test_a_refusal_says_why() -> None:
    for schema, message in (
        ({"$schema": 7}, "'$schema' is not a string"),
        ({"$schema": "x"}, "its dialect 'x' is not supported"),
        ({"items": 7}, "it is not valid JSON Schema 2020-12: ['items'] is not a schema"),
        (
            {"$schema": D7, "minLength": -1},
            "it is not valid JSON Schema draft-07: ['minLength'] is below 0",
        ),
        ({"$ref": D7}, "it mixes schemas of two dialects"),
        ({"$id": "http://["}, "it contains an invalid URI"),
        ({"$ref": "#/a"}, "the reference '#/a' leads nowhere"),
        (
            {"$ref": "#/enum", "enum": [1]},
            "the reference '#/enum' leads to a value that is not a schema",
        ),
        ({"$ref": "x"}, "the reference 'x' leads outside the schema; the client does not fetch it"),
        ({"pattern": "a)"}, "a pattern closes a group that it did not open"),
        ({"pattern": "[a"}, "a pattern has an unclosed character class"),
        ({"pattern": "*"}, "a pattern is not a regular expression"),
        ({"pattern": "(?=a)"}, "a pattern cannot be matched without backtracking"),
    ):
        assert refusal(schema) == message


def test_a_word_with_a_value_that_it_cannot_have_is_refused() -> None:
    for word, value in (
        *(("$ref", 7), ("$anchor", 7), ("$dynamicAnchor", 7), ("$id", 7)),
        *(("additionalProperties", None), ("allOf", []), ("allOf", {})),
        *(("dependentRequired", {"a": "b"}), ("dependentRequired", []), ("enum", 7)),
        *(("items", [{}]), ("maxLength", -1), ("maxLength", 1.5), ("maxLength", True)),
        *(("minimum", "1"), ("multipleOf", 0), ("multipleOf", "x"), ("pattern", 7)),
        *(("properties", []), ("required", [1]), ("required", True), ("type", 7), ("type", [])),
        *(("type", [7]), ("uniqueItems", 1)),
    ):
        # Even if nothing refers to it, because the schema as a whole is invalid.
        assert repr(word) in refusal({"$defs": {"unused": {word: value}}})


def test_a_schema_with_nonsense_in_it_is_refused() -> None:
    for schema, part in (
        *(({"type": "text"}, "['type']"), ({"type": ["null", "text"]}, "['type']")),
        *(({"allOf": [7]}, "'allOf'"), ({"properties": {"a": 7}}, "'properties'")),
        *(({"$schema": D7, "items": [7]}, "'items'"), ({"$schema": D7, "items": 7}, "'items'")),
        ({"$schema": D7, "dependencies": {"a": 7}}, "'dependencies'"),
        ({"$schema": D7, "dependencies": {"a": [7]}}, "'dependencies'"),
        ({"$schema": D4, "exclusiveMinimum": "x"}, "'exclusiveMinimum'"),
        ({"$id": "https://x/", "$defs": {"a": {"$id": "b", "$schema": D7}}}, "two dialects"),
        # The target of a reference must be a schema.
        ({"$ref": "#/odd/one", "odd": {"one": {"minLength": "x"}}}, "'minLength'"),
    ):
        assert part in refusal(schema)


@pytest.mark.requirement("SCHM-05", "SCHM-06", "SCHM-07")
def test_a_reference_that_leads_out_of_the_schema_is_refused() -> None:
    for reference in (
        *("https://example.com/schema.json", "http://127.0.0.1:9/schema", "file:///etc/passwd"),
        *("other.json#/a", "//host/x", "urn:nowhere"),
    ):
        # Even if no value is checked with it: a missing part must not allow everything.
        assert "the client does not fetch it" in refusal({"properties": {"a": {"$ref": reference}}})


@pytest.mark.parametrize(
    ("reference", "part"),
    [
        *(("#/$defs/b", "leads nowhere"), ("#/$defs/a/0", "leads nowhere")),
        *(("#/allOf/1", "leads nowhere"), ("#/allOf/x", "leads nowhere"), ("#b", "leads nowhere")),
        *(("#/allOf", "a value that is not a schema"), ("#/allOf/0/0", "leads nowhere")),
        *(("#/$id/0", "a value that is not a schema"), ("#/required/0/x", "leads nowhere")),
        *(("http://[", "leads nowhere"), (f"#{'x' * 3000}", "2,000 characters")),
    ],
)
def test_a_reference_to_nothing_is_refused(reference: str, part: str) -> None:
    schema = {"$id": "https://example.com/", "required": ["a"], "allOf": [{}], "$defs": {"a": {}}}
    assert part in refusal({**schema, "not": {"$ref": reference}})


@pytest.mark.parametrize("order", [1, -1])
def test_a_part_that_is_reached_in_two_ways_is_no_way_out(order: int) -> None:
    # In the second way, the reference in the part is relative to an unknown URI.
    part = {"$id": "https://example.com/part", "properties": {"b": {"$ref": "#/known"}}}
    odd = {"properties": {"a": part}}
    ways = [{"$ref": "#/odd"}, {"$ref": "#/odd/properties/a"}][::order]
    with pytest.raises(UnsupportedSchema, match="#/known"):
        compile_schema({"known": {}, "odd": odd, "allOf": ways}).problem({"a": {"b": 1}, "b": 1})


def test_remarks_and_lists_that_generators_leave_empty_are_no_reason_to_refuse() -> None:
    for dialect in (D4, D7):
        compiled = compile_schema({"$schema": dialect, "items": [], "required": []})
        assert compiled.problem([1]) is None
        assert compiled.problem({}) is None
    part = {"title": 7, "required": [], "items": []}
    assert compile_schema({"$schema": D7, "items": part, "not": part}).problem(1) is not None


@pytest.mark.parametrize("other", [D7, "https://example.com/mine", 7, None])
def test_a_dialect_that_an_unnamed_part_names_is_not_the_one_it_is_read_in(other: Any) -> None:
    # Generators embed whole schemas in others, with the keywords of their roots.
    part = {"$schema": other, "prefixItems": [{"type": "integer"}], "pattern": "^(a+)+$"}
    compiled = compile_schema({"properties": {"a": part}})
    assert compiled.problem({"a": ["1"]}) is not None
    assert compiled.problem({"a": "a" * 5_000 + "!"}) is not None


def test_what_only_references_apply_may_lead_out_while_there_is_none() -> None:
    lost = {"$ref": "https://example.com/a", "pattern": "(?=a)"}
    assert compile_schema({"$defs": {"a": lost}}).problem(1) is None
    assert "the client does not fetch it" in refusal({"$ref": "#/$defs/a", "$defs": {"a": lost}})
    # A dynamic reference may apply any part.
    parts = {"a": {"$dynamicAnchor": "a"}, "b": {"$ref": "https://example.com/a"}}
    assert "the client does not fetch it" in refusal({"$dynamicRef": "#a", "$defs": parts})


def test_a_reference_to_a_part_that_was_not_examined_is_refused() -> None:
    schema = compile_schema({"$ref": "#/$defs/a", "$defs": {"a": {"type": "integer"}}})
    assert schema.problem(7) is None
    known = schema._knowledge.known
    assert isinstance(known, set)
    known.clear()
    assert refused(lambda: schema.problem(7)) == "a reference leads to a value that is not a schema"
    # A reference that is not a string is refused, too.
    assert refused(lambda: resolve("$ref", 7, None)) == "a reference is not a string"
