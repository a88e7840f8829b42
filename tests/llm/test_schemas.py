"""Schemas that providers refuse are said in another way, which is undone in the arguments."""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncmcp.llm import AnthropicFormat, GeminiFormat, OpenAIChatFormat
from syncmcp.llm._tools import MAX_DEPTH, MAX_GROWTH, AdaptedSchema

ANTHROPIC, OPENAI, GEMINI = (
    AnthropicFormat._schemas,
    OpenAIChatFormat._schemas,
    GeminiFormat._schemas,
)


def adapted(schema: dict[str, Any], rules: Any = ANTHROPIC) -> dict[str, Any]:
    return AdaptedSchema(schema, rules).schema


@pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI, GEMINI])
def test_what_may_not_stand_at_the_root_stands_one_level_below(rules: Any) -> None:
    for nothing in ({}, {"type": "object"}, {"$schema": "x", "$id": "y"}):
        assert adapted(nothing, rules) == {"type": "object", "properties": {}}
    cat = {"type": "object", "properties": {"lives": {"type": "integer"}}}
    schema = {
        "type": "object",
        "anyOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/anyOf/0"}, {"$ref": "#"}],
        "$defs": {"cat": cat},
    }
    made = AdaptedSchema(schema, rules)
    places = ("$defs/cat", "properties/input/anyOf/0", "properties/input")
    below = {"type": "object", "anyOf": [{"$ref": f"#/{place}"} for place in places]}
    assert made.schema == {
        "type": "object",
        "properties": {"input": below},
        "required": ["input"],
        "$defs": {"cat": cat},
    }
    assert made.to_provider({"lives": 9}) == {"input": {"lives": 9}}
    assert made.from_provider({"input": {"lives": 9}}) == {"lives": 9}
    # A model that has not understood the wrapping is understood.
    assert made.from_provider({"lives": 9}) == {"lives": 9}


def test_properties_get_names_that_are_allowed_wherever_they_are() -> None:
    nested = {"type": "object", "properties": {"größe": {"type": "integer"}}}
    schema = {
        "type": "object",
        "properties": {
            "filter[id]": {"type": "string"},
            "list": {"type": "array", "items": nested},
            "same": {"$ref": "#/properties/filter[id]"},
        },
        "required": ["filter[id]"],
        "dependentRequired": {"filter[id]": ["list"]},
    }
    made = AdaptedSchema(schema, ANTHROPIC)
    key = made.schema["required"][0]
    assert ANTHROPIC.keys is not None
    assert key != "filter[id]"
    assert ANTHROPIC.keys.accepts(key)
    assert list(made.schema["properties"]) == [key, "list", "same"]
    assert made.schema["dependentRequired"] == {key: ["list"]}
    assert made.schema["properties"]["same"] == {"$ref": f"#/properties/{key}"}
    arguments = {"filter[id]": "1", "list": [{"größe": 3}]}
    assert made.from_provider(made.to_provider(arguments)) == arguments
    assert "größe" not in str(made.to_provider(arguments))
    # OpenAI takes any name.
    assert list(adapted(schema, OPENAI)["properties"]) == ["filter[id]", "list", "same"]


def test_keywords_that_gemini_does_not_know_are_told_in_words() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "Who", "pattern": "^[a-z]+$"},
            "kind": {"const": "cat"},
            "link": {"$ref": "#/definitions/it", "description": "gone"},
            "two": {"oneOf": [{"type": "string"}, {"type": "null"}]},
        },
        "definitions": {"it": {"type": "array", "uniqueItems": True}},
        "patternProperties": {"^x": True},
        "$defs": 5,
    }
    assert adapted(schema, GEMINI) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": 'Who {"pattern":"^[a-z]+$"}'},
            "kind": {"enum": ["cat"]},
            "link": {"$ref": "#/$defs/it"},
            "two": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
        "$defs": {"it": {"type": "array", "items": {}, "description": '{"uniqueItems":true}'}},
    }


def test_all_of_becomes_one_where_it_is_not_known() -> None:
    both = [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {}}, "required": ["b", "a"], "minProperties": 1},
    ]
    schema = {"type": "object", "properties": {"it": {"type": "object", "allOf": both}}}
    assert adapted(schema, OPENAI)["properties"]["it"] == {
        "type": "object",
        "properties": {"b": {}, "a": {"type": "string"}},
        "required": ["a", "b"],
        "minProperties": 1,
    }
    assert adapted(schema, ANTHROPIC)["properties"] == schema["properties"]


def test_what_all_of_refers_to_is_written_out_where_nothing_may_stand_beside_a_reference() -> None:
    named = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    lives: dict[str, Any] = {"properties": {"lives": {}}}
    animal = {"$ref": "#/$defs/animal"}
    schema = {
        "type": "object",
        "properties": {
            "pet": {"allOf": [{"$ref": "#/$defs/cat"}, named]},
            "alone": {"description": "Any animal", "allOf": [animal]},
        },
        "$defs": {
            "animal": {"type": "object", "properties": {"legs": {"type": "integer"}}},
            "cat": {"allOf": [animal, lives], "required": ["lives"]},
        },
    }
    for rules in (OPENAI, GEMINI):
        made = adapted(schema, rules)
        pet = made["properties"]["pet"]
        assert set(pet["properties"]) == {"name", "legs", "lives"}
        assert (pet["type"], set(pet["required"])) == ("object", {"name", "lives"})
        assert made["properties"]["alone"] == {"$ref": "#/$defs/animal"}
        assert "allOf" not in str(made)
    assert adapted(schema, ANTHROPIC)["properties"] == schema["properties"]


def test_what_contains_itself_is_written_out_to_an_end() -> None:
    itself = {"$ref": "#/$defs/node"}
    node = {
        "type": "object",
        "allOf": [itself, {"$ref": "#/$defs/gone"}, {"properties": {}}],
        "properties": {side: {"allOf": [itself, {"title": side}]} for side in "lr"},
    }
    either = {"oneOf": [{"type": "string"}], "anyOf": [{"minLength": 1}]}
    schema = {
        "type": "object",
        "properties": {"root": node, "either": either, "a b": {"const": 1}},
        "$defs": {"node": node},
    }
    before = repr(schema)
    for rules in (OPENAI, GEMINI):
        made = adapted(schema, rules)
        assert "allOf" not in str(made)
        assert len(str(made)) < 100_000
        # Of two ways to say alternatives, one is left.
        assert list(made["properties"]["either"]) == ["anyOf"]
    adapted(schema, ANTHROPIC)
    assert repr(schema) == before, "the schema that was given stays as it is"


def test_what_is_written_out_grows_with_the_schema_alone() -> None:
    some = {f"p{n}": {"type": "string"} for n in range(200)}
    refers = {"allOf": [{"$ref": "#/$defs/it"}, {"minProperties": 1}]}
    schema = {
        "type": "object",
        "properties": {f"q{n}": refers for n in range(100)},
        "$defs": {"it": {"type": "object", "properties": some}},
    }
    for rules in (OPENAI, GEMINI):
        made = adapted(schema, rules)
        assert set(made["properties"]["q0"]["properties"]) == set(some)
        assert made["properties"]["q99"] == {"$ref": "#/$defs/it"}
        assert len(str(made)) < 2 * MAX_GROWTH * len(str(schema))
    # And the time is that of the branches.
    branches = [{"properties": {f"p{n}": {}}, "required": [f"p{n}"]} for n in range(12_000)]
    schema = {"type": "object", "properties": {"it": {"allOf": branches}}}
    begun = time.thread_time()  # not the time of other programs on the machine
    made = adapted(schema, OPENAI)
    assert time.thread_time() - begun < 5
    assert len(made["properties"]["it"]["properties"]) == 12_000
    assert len(made["properties"]["it"]["required"]) == 12_000


def test_tuples_of_old_drafts_are_said_in_the_new_way() -> None:
    old = {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}}
    new = adapted({"type": "object", "properties": {"it": old}})["properties"]["it"]
    words, nothing = {"type": "string"}, {"type": "null"}
    assert new == {"type": "array", "prefixItems": [words], "items": nothing}


def test_odd_schemas_do_no_harm() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(3 * MAX_DEPTH):
        deep = {"type": "object", "properties": {"in side": deep}}
    for rules in (ANTHROPIC, OPENAI, GEMINI):
        made = AdaptedSchema(deep, rules)
        depth, here = 0, made.schema
        while here.get("properties"):
            (here,) = here["properties"].values()
            depth += 1
        assert depth <= MAX_DEPTH + 1
        odd: dict[str, Any] = {
            "type": ["object", "null"],
            "properties": {"a": True, "b": False, "c": 3},
        }
        odd |= {"required": "a", "allOf": 7, "items": None, "$ref": 1}
        assert adapted({**odd, "additionalProperties": False}, rules)["type"] == "object"
