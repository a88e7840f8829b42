"""Schemas that providers refuse are adapted, and arguments are converted back."""

from __future__ import annotations

import time
from typing import Any

import pytest

from syncmcp.llm import AnthropicFormat, GeminiFormat, OpenAIChatFormat
from syncmcp.llm._tools import MAX_DEPTH, MAX_GROWTH, AdaptedSchema

ANTHROPIC, OPENAI = AnthropicFormat._schemas, OpenAIChatFormat._schemas
GEMINI = GeminiFormat._schemas


def of(properties: Any, **more: Any) -> dict[str, Any]:
    """Return the schema of an object."""
    return {"type": "object", "properties": properties, **more}


def adapted(schema: dict[str, Any], rules: Any = ANTHROPIC) -> dict[str, Any]:
    return AdaptedSchema(schema, rules).schema


@pytest.mark.parametrize("rules", [ANTHROPIC, OPENAI, GEMINI])
def test_what_may_not_stand_at_the_root_stands_one_level_below(rules: Any) -> None:
    for nothing in ({}, {"type": "object"}, {"$schema": "x", "$id": "y"}):
        assert adapted(nothing, rules) == {"type": "object", "properties": {}}
    cats = {"$defs": {"cat": of({"lives": {"type": "integer"}})}}
    either = [{"$ref": "#/$defs/cat"}, {"$ref": "#/anyOf/0"}, {"$ref": "#"}]
    made = AdaptedSchema({"type": "object", "anyOf": either, **cats}, rules)
    places = ("$defs/cat", "properties/input/anyOf/0", "properties/input")
    below = {"type": "object", "anyOf": [{"$ref": f"#/{place}"} for place in places]}
    assert made.schema == {**of({"input": below}, required=["input"]), **cats}
    assert made.to_provider({"lives": 9}) == {"input": {"lives": 9}}
    assert made.from_provider({"input": {"lives": 9}}) == {"lives": 9}
    # Arguments without the wrapping are accepted, too.
    assert made.from_provider({"lives": 9}) == {"lives": 9}


def test_properties_get_names_that_are_allowed_wherever_they_are() -> None:
    properties = {
        "filter[id]": {"type": "string"},
        "list": {"type": "array", "items": of({"größe": {"type": "integer"}})},
        "same": {"$ref": "#/properties/filter[id]"},
    }
    schema = of(properties, required=["filter[id]"], dependentRequired={"filter[id]": ["list"]})
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
    # OpenAI accepts any name.
    assert list(adapted(schema, OPENAI)["properties"]) == ["filter[id]", "list", "same"]


def test_keywords_that_gemini_does_not_know_are_told_in_words() -> None:
    told = {
        "name": {"type": "string", "description": "Who", "pattern": "^[a-z]+$"},
        "kind": {"const": "cat"},
        "link": {"$ref": "#/definitions/it", "description": "gone"},
        "two": {"oneOf": [{"type": "string"}, {"type": "null"}]},
    }
    its = {"it": {"type": "array", "uniqueItems": True}}
    schema = of(told, definitions=its, patternProperties={"^x": True}) | {"$defs": 5}
    known = {
        "name": {"type": "string", "description": 'Who {"pattern":"^[a-z]+$"}'},
        "kind": {"enum": ["cat"]},
        "link": {"$ref": "#/$defs/it"},
        "two": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    }
    it = {"type": "array", "items": {}, "description": '{"uniqueItems":true}'}
    assert adapted(schema, GEMINI) == {**of(known), "$defs": {"it": it}}


def test_all_of_becomes_one_where_it_is_not_known() -> None:
    both = [
        {"properties": {"a": {"type": "string"}}, "required": ["a"]},
        {"properties": {"b": {}}, "required": ["b", "a"], "minProperties": 1},
    ]
    schema = of({"it": {"type": "object", "allOf": both}})
    one = of({"b": {}, "a": {"type": "string"}}, required=["a", "b"], minProperties=1)
    assert adapted(schema, OPENAI)["properties"]["it"] == one
    assert adapted(schema, ANTHROPIC)["properties"] == schema["properties"]


def test_what_all_of_refers_to_is_written_out_where_nothing_may_stand_beside_a_reference() -> None:
    named = {"properties": {"name": {"type": "string"}}, "required": ["name"]}
    lives: dict[str, Any] = {"properties": {"lives": {}}}
    animal = {"$ref": "#/$defs/animal"}
    pets = {
        "pet": {"allOf": [{"$ref": "#/$defs/cat"}, named]},
        "alone": {"description": "Any animal", "allOf": [animal]},
    }
    cat = {"allOf": [animal, lives], "required": ["lives"]}
    schema = {**of(pets), "$defs": {"animal": of({"legs": {"type": "integer"}}), "cat": cat}}
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
    sides = {side: {"allOf": [itself, {"title": side}]} for side in "lr"}
    node = of(sides, allOf=[itself, {"$ref": "#/$defs/gone"}, {"properties": {}}])
    either = {"oneOf": [{"type": "string"}], "anyOf": [{"minLength": 1}]}
    schema = of({"root": node, "either": either, "a b": {"const": 1}}) | {"$defs": {"node": node}}
    before = repr(schema)
    for rules in (OPENAI, GEMINI):
        made = adapted(schema, rules)
        assert "allOf" not in str(made)
        assert len(str(made)) < 100_000
        # Of two keywords for alternatives, one remains.
        assert list(made["properties"]["either"]) == ["anyOf"]
    adapted(schema, ANTHROPIC)
    assert repr(schema) == before, "the schema that was given stays as it is"


def test_what_is_written_out_grows_with_the_schema_alone() -> None:
    some = {f"p{n}": {"type": "string"} for n in range(200)}
    refers = {"allOf": [{"$ref": "#/$defs/it"}, {"minProperties": 1}]}
    schema = {**of({f"q{n}": refers for n in range(100)}), "$defs": {"it": of(some)}}
    for rules in (OPENAI, GEMINI):
        made = adapted(schema, rules)
        assert set(made["properties"]["q0"]["properties"]) == set(some)
        assert made["properties"]["q99"] == {"$ref": "#/$defs/it"}
        assert len(str(made)) < 2 * MAX_GROWTH * len(str(schema))
    # The time is proportional to the number of branches.
    branches = [{"properties": {f"p{n}": {}}, "required": [f"p{n}"]} for n in range(12_000)]
    schema = of({"it": {"allOf": branches}})
    begun = time.thread_time()  # excludes the time of other programs
    made = adapted(schema, OPENAI)
    assert time.thread_time() - begun < 5
    assert len(made["properties"]["it"]["properties"]) == 12_000
    assert len(made["properties"]["it"]["required"]) == 12_000


def test_tuples_of_old_drafts_are_said_in_the_new_way() -> None:
    old = {"type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "null"}}
    new = adapted(of({"it": old}))["properties"]["it"]
    words, nothing = {"type": "string"}, {"type": "null"}
    assert new == {"type": "array", "prefixItems": [words], "items": nothing}


def test_odd_schemas_do_no_harm() -> None:
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(3 * MAX_DEPTH):
        deep = of({"in side": deep})
    for rules in (ANTHROPIC, OPENAI, GEMINI):
        made = AdaptedSchema(deep, rules)
        depth, here = 0, made.schema
        while here.get("properties"):
            (here,) = here["properties"].values()
            depth += 1
        assert depth <= MAX_DEPTH + 1
        odd = of({"a": True, "b": False, "c": 3}, required="a", allOf=7, items=None)
        odd |= {"type": ["object", "null"], "$ref": 1, "additionalProperties": False}
        assert adapted(odd, rules)["type"] == "object"
