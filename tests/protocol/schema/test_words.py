"""The keywords of schemas; a second implementation has to agree on every verdict."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from jsonschema.protocols import Validator

from syncmcp._protocol.schema import compile_schema

D4, D6, D7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
D2019 = "https://json-schema.org/draft/2019-09/schema"
D2020 = "https://json-schema.org/draft/2020-12/schema"

REFERENCE: dict[str, type[Validator]] = {
    D4: jsonschema.Draft4Validator,
    D6: jsonschema.Draft6Validator,
    D7: jsonschema.Draft7Validator,
    D2019: jsonschema.Draft201909Validator,
    D2020: jsonschema.Draft202012Validator,
}

INTEGER: dict[str, Any] = {"type": "integer"}
NO_OTHERS: dict[str, Any] = {"unevaluatedProperties": False}
A_IS_1, B_IS_1 = ({"properties": {name: {"const": 1}}, "required": [name]} for name in "ab")
ONES: dict[str, Any] = {"contains": {"const": 1}}
SHORT_NAMES = {"propertyNames": {"maxLength": 1}}
WITH_PATTERN = {"patternProperties": {"^a": INTEGER}}
HAS_A: dict[str, Any] = {"properties": {"a": {}}}
HAS_B: dict[str, Any] = {"properties": {"b": {}}}


def trees(anchor: dict[str, Any], reference: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return a tree whose children refer to the anchor, and one without other members."""
    children = {"children": {"type": "array", "items": reference}}
    tree = {"$id": "https://example.com/tree", **anchor, "type": "object", "properties": children}
    strict = {"$id": "https://example.com/strict-tree", **anchor, "$ref": "tree"}
    return tree, {**strict, **NO_OTHERS, "$defs": {"tree": tree}}


TREE, STRICT_TREE = trees({"$dynamicAnchor": "node"}, {"$dynamicRef": "#node"})
OLD_TREE, OLD_STRICT_TREE = trees({"$recursiveAnchor": True}, {"$recursiveRef": "#"})
ROOT: dict[str, Any] = {"$id": "https://example.com/root", "$defs": {"t": TREE}}

# The dialect, a schema, valid values, invalid values.
CASES: list[tuple[str, dict[str, Any], list[Any], list[Any]]] = [
    (D2020, {}, [None, 1, "a", [], {}], []),
    # any value
    (D2020, {"type": "string"}, ["", "a"], [1, None, []]),
    (D2020, INTEGER, [1, 1.0, -3], [1.5, True, "1"]),
    (D2020, {"type": "number"}, [1, 1.5], [True, "1", None]),
    (D2020, {"type": ["null", "integer"]}, [None, 1], ["a", 1.5, False]),
    (D2020, {"type": ["boolean", "array", "object"]}, [True, [], {}], [1, "a", None]),
    (D4, INTEGER, [1], [1.0, True]),
    (D2020, {"enum": [1, "a", None]}, [1, 1.0, "a", None], [True, "b", [], {}]),
    (D2020, {"enum": [[1], {"a": 1.0}]}, [[1], [1.0], {"a": 1}], [[], {"a": True}, 1]),
    (D2020, {"enum": [False, 0.5]}, [False, 0.5], [0, True, 0.25]),
    (D2020, {"const": 2}, [2, 2.0], [3, "2"]),
    (D6, {"const": {"a": [1]}}, [{"a": [1]}], [{"a": 1}, {}]),
    # numbers
    (D2020, {"minimum": 1, "maximum": 3}, [1, 2.5, 3, "x"], [0, 3.1]),
    (D2020, {"exclusiveMinimum": 1, "exclusiveMaximum": 3}, [2, "x"], [1, 3]),
    (D4, {"minimum": 1, "exclusiveMinimum": True}, [1.1], [1]),
    (D4, {"maximum": 1, "exclusiveMaximum": True}, [0.9], [1]),
    (D4, {"minimum": 1, "exclusiveMinimum": False, "maximum": 1}, [1], [0, 2]),
    (D4, {"maximum": 1, "exclusiveMaximum": False}, [1], [2]),
    (D2020, {"multipleOf": 3}, [0, 9, 9.0, "x", 3 * 10**30], [10, 9.5]),
    (D2020, {"multipleOf": 0.5}, [1.5, 2], [1.6]),
    # texts
    (D2020, {"minLength": 2, "maxLength": 3}, ["ab", "abc", 1, "🐍🐍"], ["a", "abcd"]),
    (D2020, {"maxLength": 2.0}, ["ab"], ["abc"]),
    (D2020, {"pattern": "^a+$"}, ["aaa", 7], ["", "ab"]),
    # arrays
    (D2020, {"minItems": 1, "maxItems": 2}, [[1], [1, 2], "x"], [[], [1, 2, 3]]),
    (D2020, {"uniqueItems": True}, [[1, True, "1", 2], [[1], [2]], "x"], [[1, 1.0], [{}, {}]]),
    (D2020, {"uniqueItems": False}, [[1, 1]], []),
    (D2020, {"items": INTEGER}, [[], [1, 2], "x"], [[1, "a"]]),
    (D2020, {"items": False}, [[]], [[1]]),
    (D2020, {"prefixItems": [INTEGER, {}]}, [[1, "a", None], [], {}], [["a"]]),
    (D2020, {"prefixItems": [True], "items": {"type": "string"}}, [[1, "a"]], [[1, 2]]),
    (D7, {"items": [INTEGER]}, [[1, "a"]], [["a"]]),
    (D7, {"items": [True], "additionalItems": False}, [[1]], [[1, 2]]),
    (D7, {"items": INTEGER, "additionalItems": False}, [[1, 2]], [["a"]]),
    (D2020, {"contains": INTEGER}, [["a", 1], "x"], [[], ["a"]]),
    (D2020, {"contains": {"const": 1}, "minContains": 2}, [[1, 1]], [[1]]),
    (D2020, {"contains": {"const": 1}, "minContains": 0}, [[]], []),
    (D2020, {"contains": {"const": 1}, "maxContains": 1}, [[1, 2]], [[1, 1]]),
    (D7, {"contains": {"const": 1}, "minContains": 2}, [[1]], [[2]]),
    # objects
    (D2020, {"minProperties": 1, "maxProperties": 1}, [{"a": 1}, "x"], [{}, {"a": 1, "b": 2}]),
    (D2020, {"required": ["a"]}, [{"a": None}, []], [{}, {"b": 1}]),
    (D2020, {"properties": {"a": INTEGER}}, [{"a": 1}, {"b": ""}, 1], [{"a": ""}]),
    (D2020, WITH_PATTERN, [{"ab": 1}, 1], [{"ab": ""}]),
    (D2020, {"additionalProperties": False}, [{}, []], [{"a": 1}]),
    (
        D2020,
        {"properties": {"a": {}}, "patternProperties": {"^p": {}}, "additionalProperties": INTEGER},
        *([{"a": "", "p1": "", "b": 1}, {"a": ""}], [{"b": ""}]),
    ),
    (D2020, SHORT_NAMES, [{"a": 1}, []], [{"ab": 1}]),
    (D2020, {"dependentRequired": {"a": ["b"]}}, [{"b": 1}, {"a": 1, "b": 1}, 1], [{"a": 1}]),
    (D2020, {"dependentSchemas": {"a": {"required": ["b"]}}}, [{"c": 1}, 1], [{"a": 1}]),
    (
        *(D7, {"dependencies": {"a": ["b"], "c": {"required": ["d"]}}}),
        *([{"a": 1, "b": 1}, {"c": 1, "d": 1}], [{"a": 1}, {"c": 1}]),
    ),
    # combinations of schemas
    (D2020, {"allOf": [{"minimum": 1}, {"maximum": 3}]}, [2], [0, 4]),
    (D2020, {"anyOf": [{"type": "string"}, {"minimum": 3}]}, ["a", 4], [1]),
    (D2020, {"oneOf": [{"minimum": 1}, {"maximum": 3}]}, [0, 4], [2]),
    (D2020, {"oneOf": [{"minimum": 3}, {"maximum": 1}]}, [0, 4], [2]),
    (D2020, {"not": {"type": "string"}}, [1], ["a"]),
    (
        *(D2020, {"if": {"type": "string"}, "then": {"minLength": 2}, "else": {"minimum": 2}}),
        *(["ab", 2], ["a", 1]),
    ),
    (D2020, {"if": {"type": "string"}}, ["a", 1], []),
    (D6, {"if": {"type": "string"}, "then": False}, ["a"], []),
    # unevaluated members and items
    (D2020, {"allOf": [HAS_A], **NO_OTHERS}, [{"a": 1}, {}, 1], [{"b": 1}]),
    (
        *(D2020, {"anyOf": [A_IS_1, B_IS_1], "unevaluatedProperties": {"type": "string"}}),
        [{"a": 1}, {"a": 1, "b": 1}, {"b": 1, "c": ""}, {"a": 1, "b": "2"}],
        [{"a": 1, "b": 2}, {}],
    ),
    (
        D2020,
        {"oneOf": [A_IS_1, {"patternProperties": {"^b": {}}, "required": ["b"]}], **NO_OTHERS},
        *([{"a": 1}, {"b": 1, "b2": 2}], [{"a": 1, "c": 1}, {"a": 1, "b": 1}]),
    ),
    (
        *(D2020, {"if": A_IS_1, "then": HAS_B, "else": {"properties": {"c": {}}}, **NO_OTHERS}),
        *([{"a": 1, "b": 1}, {"c": 1}], [{"a": 1, "c": 1}, {"b": 1}]),
    ),
    (D2020, {"allOf": [{"additionalProperties": INTEGER}], **NO_OTHERS}, [{"a": 1}], [{"a": ""}]),
    (D2020, {"dependentSchemas": {"a": HAS_A}, **NO_OTHERS}, [{"a": 1}], [{"b": 1}]),
    (D2020, {"allOf": [{"unevaluatedProperties": True}], **NO_OTHERS}, [{"a": 1}], []),
    (
        D2020,
        {"allOf": [{"prefixItems": [{}]}, {"contains": {"const": 7}}], "unevaluatedItems": False},
        *([[1, 7], [7]], [[1, 7, 2], [1]]),
    ),
    (D2019, {"allOf": [{"items": [{}]}], "unevaluatedItems": False}, [[7]], [[1, 7]]),
    (D2020, {"allOf": [{"items": {}}], "unevaluatedItems": False}, [[1, 2], "x"], []),
    (D2020, {"unevaluatedItems": INTEGER}, [[1]], [[""]]),
    (D2020, {"allOf": [{"unevaluatedItems": True}], "unevaluatedItems": False}, [[1]], []),
    (D2020, {"if": HAS_A, **NO_OTHERS}, [{"a": 1}], [{"b": 1}]),
    # references
    (D2020, {"$ref": "#/$defs/a", "$defs": {"a": INTEGER}}, [1], ["a"]),
    (D2020, {"$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"minimum": 1}}}, [3], [2, 0]),
    (D2020, {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "type": "integer"}}}, [1], ["a"]),
    (D2020, {"$ref": "#/allOf/1", "allOf": [{}, {"minimum": 1}]}, [1], [0]),
    (D2020, {"$ref": "#/a~1b~0c%25", "a/b~c%": {"minimum": 1}}, [1], [0]),
    (D2020, {"$ref": "#/$defs/no", "$defs": {"no": False}}, [], [1]),
    (
        D2020,
        {
            "$id": "https://example.com/root",
            "$ref": "other",
            "$defs": {"o": {"$id": "other", "$ref": "#/$defs/n", "$defs": {"n": {"minimum": 1}}}},
        },
        *([1], [0]),
    ),
    (
        D2020,
        {"properties": {"a": {"$id": "urn:x", "$ref": "#/$defs/n", "$defs": {"n": {"const": 1}}}}},
        *([{"a": 1}], [{"a": 2}]),
    ),
    (D2020, {"properties": {"a": {"$ref": "#"}}, "required": ["b"]}, [{"b": 1}], [{"a": {}}]),
    (D7, {"$ref": "#/definitions/a", "minimum": 9, "definitions": {"a": {}}}, [1], []),
    (D7, {"allOf": [{"$ref": "#a"}], "definitions": {"x": {"$id": "#a", "minimum": 1}}}, [1], [0]),
    (D2020, {"$ref": D2020}, [{"type": "string"}], [{"type": "texts"}]),
    # dynamic references
    (D2020, TREE, [{"children": [{"other": 1}]}], [{"children": [1]}]),
    (D2020, STRICT_TREE, [{"children": [{}]}], [{"children": [{"other": 1}]}, {"other": 1}]),
    (D2020, {**ROOT, "$ref": "tree"}, [{"children": [{}]}], [{"children": [1]}]),
    (D2020, {**ROOT, "$dynamicRef": "tree#node"}, [{"children": [{}]}], [{"children": [1]}]),
    (D2020, {"$dynamicRef": "#/$defs/a", "$defs": {"a": {"minimum": 1}}}, [1], [0]),
    (D2019, OLD_TREE, [{"children": [{"other": 1}]}], [{"children": [1]}]),
    (D2019, OLD_STRICT_TREE, [{"children": [{}]}], [{"children": [{"other": 1}]}]),
    (
        *(D2019, {"properties": {"a": {"$recursiveRef": "#"}}, "required": ["b"]}, [{"b": 1}]),
        [{"a": {}, "b": 1}],
    ),
    # keywords without effect here
    (D2020, {"format": "email", "title": 7, "x-odd": [1]}, ["no address"], []),
    (D7, {"prefixItems": [{}], "items": INTEGER}, [[1]], [["a"]]),
    (D7, {"$defs": 7, "prefixItems": 7, "$anchor": 7, "minContains": "x"}, [1], []),
]


@pytest.mark.parametrize(("dialect", "schema", "fitting", "unfitting"), CASES)
@pytest.mark.requirement("SCHM-01", "SCHM-02")
def test_words_mean_what_their_dialect_says(
    dialect: str, schema: dict[str, Any], fitting: list[Any], unfitting: list[Any]
) -> None:
    whole = {"$schema": dialect, **schema}
    compiled, reference = compile_schema(whole), REFERENCE[dialect](whole)
    for value in fitting:
        assert compiled.problem(value) is None, value
        assert reference.is_valid(value), value
    for value in unfitting:
        assert compiled.problem(value) is not None, value
        assert not reference.is_valid(value), value


def test_before_2020_an_item_that_was_contained_is_not_looked_at() -> None:
    parts = [{"contains": {"const": 7}}]
    rest = {"allOf": parts, "unevaluatedItems": False}
    assert compile_schema(rest).problem([7]) is None
    assert compile_schema({"$schema": D2019, **rest}).problem([7]) is not None


def test_a_tenth_is_a_tenth() -> None:
    # In binary floating point, 0.3 is not a multiple of 0.1.
    tenths = compile_schema({"multipleOf": 0.1})
    assert tenths.problem(0.3) is None
    assert tenths.problem(1) is None
    assert tenths.problem(0.35) is not None
    assert tenths.problem(float("inf")) is not None


def test_a_problem_says_what_and_where_without_the_value() -> None:
    for schema, value, path, message in (
        (
            *({"properties": {"rows": {"items": {"required": ["id"]}}}}, {"rows": [{"id": 1}, {}]}),
            *(("rows", 1), "['rows'][1] lacks 'id'"),
        ),
        ({"type": ["string", "null"]}, 1, (), "is not of type string or null"),
        (WITH_PATTERN, {"ab": ""}, ("ab",), "['ab'] is not of type integer"),
        ({"prefixItems": [{}, False]}, [1, 2], (1,), "[1] is not allowed"),
        ({"unevaluatedProperties": INTEGER}, {"a": ""}, ("a",), "['a'] is not of type integer"),
        ({"uniqueItems": True}, ["a", "b", "a"], (2,), "[2] appears twice"),
        ({"maxLength": 3}, "a secret", (), "has more than 3 characters"),
        ({"minLength": 3}, "a", (), "has fewer than 3 characters"),
        ({"maxItems": 1}, [1, 2], (), "has more than 1 items"),
        ({"minItems": 2}, [1], (), "has fewer than 2 items"),
        ({"maxProperties": 1}, {"a": 1, "b": 2}, (), "has more than 1 members"),
        ({"minProperties": 2}, {"a": 1}, (), "has fewer than 2 members"),
        *(({"maximum": 1}, 2, (), "is above 1"), ({"minimum": 1}, 0, (), "is below 1")),
        ({"exclusiveMaximum": 1.5}, 2, (), "is not below 1.5"),
        ({"exclusiveMinimum": 1}, 1, (), "is not above 1"),
        ({"multipleOf": 3}, 7, (), "is not a multiple of 3"),
        ({"pattern": "^a"}, "b", (), "does not match the pattern '^a'"),
        ({"enum": [1, 2]}, 3, (), "is not one of the allowed values"),
        ({"const": 1}, 3, (), "is not the allowed value"),
        ({"anyOf": [False, False]}, 3, (), "matches none of the alternatives"),
        ({"oneOf": [False, False]}, 3, (), "matches none of the alternatives"),
        ({"oneOf": [True, True]}, 3, (), "matches more than one of the alternatives"),
        ({"not": {}}, 3, (), "matches a schema that it must not match"),
        ({**ONES, "minContains": 2}, [1], (), "has 1 matching item, needs at least 2"),
        ({**ONES, "maxContains": 1}, [1, 1], (), "has 2 matching items, may have 1"),
        ({"dependentRequired": {"a": ["b"]}}, {"a": 1}, (), "lacks 'b', required with 'a'"),
        (SHORT_NAMES, {"ab": 1}, ("ab",), "['ab'] has a name that is not allowed"),
        ({"additionalProperties": False}, {"x" * 99: 1}, ("x" * 99,), None),
    ):
        problem = compile_schema(schema).problem(value)
        assert problem is not None
        assert problem.path == path
        assert str(problem) == message or message is None
        assert len(str(problem)) < 200


def test_a_missing_member_is_named() -> None:
    for schema in ({"required": ["a", "b"]}, {"dependentRequired": {"a": ["b"]}}):
        problem = compile_schema(schema).problem({"a": 1})
        assert problem is not None
        assert problem.missing == "b"


def test_booleans_and_lists_of_schemas_count_as_schemas() -> None:
    for schema, value, fits in (
        *((True, 1, True), (False, 1, False), ({"if": True, "then": INTEGER}, "x", False)),
        ({"if": False, "else": INTEGER}, 1, True),
        ({"allOf": [True], **NO_OTHERS}, {"a": 1}, False),
        (
            {"$schema": D2019, "items": [{}], "additionalItems": {}, "unevaluatedItems": False},
            [1, 2],
            True,
        ),
        ({"$schema": D2019, "items": [{}], "unevaluatedItems": False}, [1, 2], False),
    ):
        assert (compile_schema(schema).problem(value) is None) is fits
