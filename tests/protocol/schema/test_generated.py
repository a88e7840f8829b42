"""Generated schemas of every dialect: ``jsonschema`` has to agree on every verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import ValidationError

from syncmcp._protocol.schema import compile_schema
from tests.protocol.schema.test_words import D4, D6, D7, D2019, D2020, REFERENCE

# With few names and numbers, most keywords apply to some value.
VALUES: list[Any] = [
    *(None, True, False, 0, 1, 1.0, 1.5, 2, 3, -1, "", "a", "b", "ab", "bca"),
    *([], [1], [1, 1], [1, "a"], ["a", "b", "ab"], [1, 2, 3], [True, 1], [[1], ["a"]], [None, {}]),
    *({}, {"a": 1}, {"a": "a"}, {"b": 2.5}, {"ab": [1]}, {"a": 1, "b": "b"}, {"b": {"a": 1}}),
    *({"a": [1, "a"], "ab": None}, {"a": {"b": 1, "c": 2}, "c": 3}, {"a": 0, "b": 1, "ab": 2}),
    *([{"a": 1}, {"b": 2}], [{"a": "a"}, 2, "b"], {"c": [{"a": 2}]}, {"b": [], "c": True}),
]
TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
# `jsonschema` reports these, and `False`, for the whole object or array.
WHOLE = {
    None,
    *("additionalItems", "additionalProperties", "items", "propertyNames", "uniqueItems"),
    *("unevaluatedItems", "unevaluatedProperties"),
}

names = st.sampled_from(["a", "b", "c", "ab"])
patterns = st.sampled_from(["a", "^b", "b$", "^a?$"])
few = st.integers(0, 3)
numbers = st.sampled_from([-1, 0, 1, 1.5, 2, 3])
ASSERTIONS: dict[str, st.SearchStrategy[Any]] = {
    "type": st.sampled_from(TYPES) | st.lists(st.sampled_from(TYPES), min_size=1, unique=True),
    "enum": st.lists(st.sampled_from(VALUES), min_size=1, max_size=4),
    "const": st.sampled_from(VALUES),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), numbers),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), few),
    **dict.fromkeys(("minProperties", "maxProperties", "minContains", "maxContains"), few),
    "multipleOf": st.sampled_from([1, 2, 0.5, 1.5]),
    "pattern": patterns,
    "uniqueItems": st.booleans(),
    "required": st.lists(names, unique=True, min_size=1, max_size=2),
    "dependentRequired": st.dictionaries(names, st.lists(names, unique=True), max_size=2),
}


def words_around(inner: st.SearchStrategy[Any], dialect: str) -> dict[str, st.SearchStrategy[Any]]:
    """Return the keywords of all dialects that contain schemas; a dialect ignores the others."""
    some = st.lists(inner, min_size=1, max_size=2)
    words = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), some),
        **dict.fromkeys(("not", "if", "then", "else", "contains", "propertyNames"), inner),
        **dict.fromkeys(("properties", "dependentSchemas"), st.dictionaries(names, inner)),
        "patternProperties": st.dictionaries(patterns, inner, max_size=2),
        "dependencies": st.dictionaries(names, inner | st.lists(names, min_size=1, unique=True)),
        **dict.fromkeys(("additionalProperties", "additionalItems"), inner | st.just(False)),
        "items": inner
        if dialect == D2020
        else inner.filter(lambda said: isinstance(said, dict)) | some,
        "$ref": st.sampled_from(["#/definitions/a", "#/definitions/b"]),
    }
    if dialect == D2020:  # in 2019-09, `jsonschema` has other rules
        words.update(dict.fromkeys(("unevaluatedItems", "unevaluatedProperties"), inner))
    return words


@st.composite
def schemas(draw: st.DrawFn, dialect: str, depth: int = 2) -> Any:
    """Draw a schema of up to four keywords, with up to `depth` levels of inner schemas."""
    if dialect != D4 and draw(st.integers(0, 9)) == 0:
        return draw(st.booleans())
    words = dict(ASSERTIONS)
    if dialect == D4:
        words.update(dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), st.booleans()))
    if depth:
        # About half of the keywords contain schemas, to get schemas that are not flat.
        words.update(words_around(schemas(dialect, depth - 1), dialect))
    chosen = draw(st.lists(st.sampled_from(sorted(words)), max_size=4, unique=True))
    return {word: draw(words[word]) for word in chosen}


def agrees(error: ValidationError, path: tuple[str | int, ...]) -> bool:
    """Whether an error of `jsonschema` is about this part of the value."""
    place, words = tuple(error.absolute_path), {error.validator, *error.absolute_schema_path}
    return place == path or (not WHOLE.isdisjoint(words) and place == path[: len(place)])


@pytest.mark.parametrize("dialect", [D4, D6, D7, D2019, D2020])
@pytest.mark.requirement("SCHM-01", "SCHM-02")
@settings(max_examples=60)
@given(data=st.data())
def test_a_second_implementation_agrees_on_generated_schemas(
    dialect: str, data: st.DataObject
) -> None:
    parts = {name: data.draw(schemas(dialect, 0)) for name in ("a", "b")}
    inner = data.draw(schemas(dialect).filter(lambda schema: isinstance(schema, dict)))
    whole = {"$schema": dialect, "definitions": parts, **inner}
    compiled, reference = compile_schema(whole), REFERENCE[dialect](whole)
    for value in VALUES:
        problem, errors = compiled.problem(value), list(reference.iter_errors(value))
        assert (problem is None) == (not errors), (value, str(problem), errors)
        if problem is not None:
            assert any(agrees(error, problem.path) for error in errors), (value, str(problem))
