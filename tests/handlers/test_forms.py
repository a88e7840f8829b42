"""Which schemas are read as forms, which are refused, and which answers are valid."""

from __future__ import annotations

import json
import pickle
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncmcp import UsageError
from syncmcp.handlers.forms import ABSENT, Bounds, Field, Form, Option, UnsupportedForm

Schema = dict[str, Any]


def schema_of(*required: str, **properties: Any) -> Schema:
    """Return the schema of a form with these fields."""
    return {"type": "object", "properties": properties, "required": list(required)}


def field_of(schema: Schema) -> Field:
    (field,) = Form.read(schema_of(it=schema)).fields
    return field


def refusal_of(schema: Any) -> UnsupportedForm:
    """Return the error for a field that is refused."""
    with pytest.raises(UnsupportedForm) as caught:
        Form.read(schema_of(it=schema))
    assert caught.value.field == "it"
    assert "'it'" in str(caught.value)
    return caught.value


def titled(*values: str) -> list[Schema]:
    return [{"const": value, "title": value.title()} for value in values]


CHOICE: Schema = {"type": "string", "enum": ["red", "green"]}
CHOICES: Schema = {"type": "array", "items": {"type": "string", "enum": ["red", "green", "blue"]}}

PATTERN: Schema = {"type": "string", "pattern": "a"}
COMMAS: Schema = {"type": "array", "items": {"type": "string", "enum": ["a,b", "c"]}}


def test_the_fields_come_in_their_order_with_their_words() -> None:
    form = Form.read(
        schema_of(
            "b",
            b={"type": "string", "title": "Your name", "description": "As on the badge"},
            a={"type": "integer"},
        )
    )
    first, second = form.fields
    assert (first.name, first.label, first.description) == ("b", "Your name", "As on the badge")
    assert (second.name, second.label, second.description) == ("a", "a", None)
    assert (first.required, second.required) == (True, False)


TEXT: Schema = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "kind", "bounds"),
    [
        (TEXT, "string", Bounds()),
        ({**TEXT, "minLength": 1, "maxLength": 5}, "string", Bounds(1, 5)),
        ({**TEXT, "minLength": 2.0}, "string", Bounds(2)),
        ({"type": "number", "minimum": -1.5, "maximum": 2}, "number", Bounds(-1.5, 2)),
        ({"type": "integer", "maximum": 10}, "integer", Bounds(None, 10)),
        ({"type": "boolean"}, "boolean", Bounds()),
        (CHOICE, "choice", Bounds()),
        ({**CHOICES, "minItems": 1, "maxItems": 2}, "choices", Bounds(1, 2)),
    ],
)
def test_every_kind_of_field_has_its_bounds(schema: Schema, kind: str, bounds: Bounds) -> None:
    field = field_of(schema)
    assert (field.kind, field.bounds, field.default) == (kind, bounds, ABSENT)
    assert repr(field.default) == "ABSENT"


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        ({**TEXT, "enum": ["a", "b"]}, {"a": "a", "b": "b"}),
        ({**TEXT, "enum": ["a", "b"], "enumNames": ["A!", "B!"]}, {"a": "A!", "b": "B!"}),
        ({**TEXT, "oneOf": titled("a", "b")}, {"a": "A", "b": "B"}),
        ({"type": "array", "items": {**TEXT, "enum": ["a"]}}, {"a": "a"}),
        ({"type": "array", "items": {"anyOf": titled("a")}}, {"a": "A"}),
        ({"type": "array", "items": {**TEXT, "anyOf": titled("a")}}, {"a": "A"}),
        ({**TEXT, "enum": [""]}, {"": ""}),
    ],
)
def test_options_are_read_in_every_shape(schema: Schema, options: dict[str, str]) -> None:
    assert field_of(schema).options == tuple(Option(*pair) for pair in options.items())


def test_words_that_restrict_nothing_are_passed_over() -> None:
    nothing: Any = dict.fromkeys(("title", "description", "minLength", "pattern", "format"))
    icon: Schema = {"icon": {"anyOf": []}}
    words: Schema
    for words in (
        {"examples": ["x"]}, {"$comment": "x"}, {"readOnly": True}, {"deprecated": True},
        {"x-widget": "slider"}, icon, nothing,
    ):  # fmt: skip
        assert field_of({**TEXT, **words}) == field_of(TEXT)
    named = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "x"}
    form = Form.read({**named, **schema_of(), "additionalProperties": False})
    assert form.fields == ()
    assert form.problems({}) == {}


# Keywords that are refused for a type of field, with any value.
REFUSED_WORDS: Schema = {
    "string": {"$ref": "#", "anyOf": [], "allOf": [], "not": {}, "const": "a", "minimum": 1},
    "integer": {"multipleOf": 5, "pattern": "x"},
    "number": {"exclusiveMinimum": 0, "enum": [1, 2]},
    "boolean": {"enum": [True]},
}
# Values that are refused for a keyword that the type of field allows.
REFUSED_VALUES: dict[tuple[str, str], list[Any]] = {
    ("string", "minLength"): [-1, "3"],
    ("string", "maxLength"): [1.5, True, float("inf"), float("nan")],
    ("number", "minimum"): ["0", False],
    ("number", "maximum"): [float("nan"), 10**400],
    ("string", "title"): [5],
    ("string", "description"): [["x"]],
    ("string", "pattern"): ["(?=a)b", r"(a)\1", "(", 5, "((a{1000}){1000}){1000}"],
    ("string", "enum"): [None],
}


def test_words_and_values_outside_the_subset_are_refused_by_their_name() -> None:
    words = [(kind, *pair) for kind, some in REFUSED_WORDS.items() for pair in some.items()]
    for (kind, word), values in REFUSED_VALUES.items():
        words += [(kind, word, value) for value in values]
    for kind, word, value in words:
        assert f"'{word}'" in refusal_of({"type": kind, word: value}).reason, (word, value)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"$ref": "#/$defs/x"}, "'$ref'"),
        ({"type": "object", "properties": {}}, "flat"),
        ({"anyOf": [TEXT, {"type": "null"}]}, "'anyOf'"),
        ({**TEXT, "if": {}, "then": {}}, "'if', 'then'"),
        ({**CHOICE, "minLength": 1}, "'minLength'"),
        ({"type": "null"}, "'null'"),
        ({"type": ["string", "null"]}, "'list'"),
        ({"type": 5}, "'int'"),
        ({}, "no type"),
        ({"enum": ["a"]}, "no type but 'enum'"),
        (True, "not an object"),
        (None, "not an object"),
        ({**TEXT, "minLength": 5, "maxLength": 4}, "above"),
        ({**TEXT, "format": "uuid"}, "'uuid'"),
        ({**TEXT, "title": "x" * 10_001}, "10000"),
        ({**TEXT, "title": "\ud800"}, "a lone surrogate"),
        ({**TEXT, "pattern": "a" * 501}, "500"),
        ({**TEXT, "enum": []}, "no options"),
        ({**TEXT, "enum": "ab"}, "not a list"),
        ({**TEXT, "enum": [1, 2]}, "not a string"),
        ({**TEXT, "enum": ["a", "a"]}, "more than once"),
        ({**TEXT, "enum": ["a", "b"], "enumNames": ["A"]}, "1 names for 2"),
        ({**TEXT, "enum": ["a"], "enumNames": "A"}, "'enumNames'"),
        ({**TEXT, "enum": ["a"], "oneOf": titled("a")}, "either"),
        ({**TEXT, "oneOf": []}, "no options"),
        ({**TEXT, "oneOf": ["a"]}, "not an object"),
        ({**TEXT, "oneOf": [{"const": "a"}]}, "'title'"),
        ({**TEXT, "oneOf": [{"const": 1, "title": "A"}]}, "'const'"),
        ({**TEXT, "oneOf": titled("a", "a")}, "more than once"),
        ({**TEXT, "oneOf": [{"const": "a", "title": "A", "pattern": "x"}]}, "'pattern'"),
        ({"type": "array"}, "'items'"),
        *(
            ({"type": "array", "items": items}, word)
            for word, items in (
                ("options", TEXT),
                ("'properties'", {"type": "object", "properties": {}}),
                ("'string'", {"type": "integer", "enum": [1]}),
                ("'string'", {"enum": ["a"]}),
                ("'items'", {"type": "array", "items": {}}),
                ("'oneOf'", {"oneOf": titled("a")}),
            )
        ),
        ({**CHOICES, "contains": {}}, "'contains'"),
        ({**CHOICES, "minItems": -1}, "'minItems'"),
        ({**CHOICES, "minItems": 4}, "4 of 3"),
    ],
)
def test_what_is_outside_the_subset_is_refused_with_a_reason(schema: Any, word: str) -> None:
    assert word in refusal_of(schema).reason


def test_what_is_no_form_is_refused_with_the_reason() -> None:
    form: Schema = schema_of()
    schema: Any
    more: Schema = {"required": "a", "allOf": [], "$ref": "#", "minProperties": 1}
    more |= {"dependentRequired": {}, "patternProperties": {}}
    refused: list[tuple[Any, str]] = [
        *((None, "not an object"), ([], "not an object"), ("x", "not an object")),
        *(({}, "'object'"), (TEXT, "'object'")),
        *(({"type": "object"}, "'properties'"), ({**form, "properties": []}, "'properties'")),
        *(({**form, word: value}, f"'{word}'") for word, value in more.items()),
        ({**form, "required": [1]}, "'required'"),
    ]
    for schema, word in refused:
        with pytest.raises(UnsupportedForm) as caught:
            Form.read(schema)
        assert caught.value.field is None
        assert word in caught.value.reason


def test_names_that_cannot_be_shown_or_are_not_there_are_refused() -> None:
    for name in ("", "\ud800", "x" * 10_001):
        with pytest.raises(UnsupportedForm) as caught:
            Form.read(schema_of(**{name: {"type": "string"}}))
        assert caught.value.field == name
        assert len(str(caught.value)) < 300
    with pytest.raises(UnsupportedForm, match=r"'gone'.*required but missing"):
        Form.read(schema_of("gone", it={"type": "string"}))
    with pytest.raises(UnsupportedForm) as caught:
        Form.read(schema_of(**{"a\x1b[31m\u202e": {"type": "null"}}))
    assert str(caught.value).isprintable()
    assert isinstance(caught.value, UsageError)
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (copy.field, copy.reason) == (caught.value.field, caught.value.reason)
    assert str(copy) == str(caught.value)


@pytest.mark.parametrize(
    ("most", "words", "make"),
    [
        (200, "200 fields", lambda n: {f"f{one}": {"type": "boolean"} for one in range(n)}),
        (20, "20 patterns", lambda n: {f"f{one}": PATTERN for one in range(n)}),
        (1000, "1000", lambda n: {"it": {"type": "string", "enum": [*map(str, range(n))]}}),
    ],
    ids=["fields", "patterns", "options"],
)
def test_more_than_many_is_refused(most: int, words: str, make: Callable[[int], Schema]) -> None:
    with pytest.raises(UnsupportedForm, match=words):
        Form.read(schema_of(**make(most + 1)))
    fields = Form.read(schema_of(**make(most))).fields
    assert most in {len(fields), len(fields[0].options)}


def nested_list(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "make",
    [
        lambda: schema_of(it={**TEXT, "enum": [str(n) for n in range(100_000)]}),
        lambda: schema_of(it={"type": "array", "items": {"anyOf": titled("a") * 100_000}}),
        lambda: schema_of(it={**TEXT, "enum": ["a"], "enumNames": ["a"] * 100_000}),
        lambda: schema_of(**{f"f{n}": TEXT for n in range(100_000)}),
        lambda: schema_of(*(["it"] * 100_000), it=TEXT),
        *(
            lambda word=word: schema_of(it={**TEXT, word: "x" * 10_000_000})
            for word in ("title", "pattern", "format", "type")
        ),
        lambda: schema_of(it={**TEXT, "enum": ["x" * 10_000_000]}),
        lambda: schema_of(**{"x" * 10_000_000: TEXT}),
        lambda: schema_of("x" * 10_000_000),
        lambda: schema_of(it={**TEXT, "type": nested_list(20_000)}),
        lambda: schema_of(it={**TEXT, "enum": nested_list(20_000)}),
    ],
    ids=range(14),
)
def test_a_hostile_form_is_refused_at_once_and_in_few_words(make: Callable[[], Schema]) -> None:
    schema = make()
    started = time.thread_time()
    with pytest.raises(UnsupportedForm) as caught:
        Form.read(schema)
    assert time.thread_time() - started < 5
    assert len(str(caught.value)) < 300


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=4), st.just("a")
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "enum", "const", "title", "x"]), inner),
    ),
    max_leaves=6,
)
KINDS = ["string", "number", "integer", "boolean", "array", "object"]
FIELDS = st.fixed_dictionaries(
    {"type": st.sampled_from(KINDS)},
    optional={
        "title": st.text(max_size=4),
        "default": VALUES,
        "enum": st.lists(st.text(max_size=2), max_size=3) | VALUES,
        "enumNames": st.lists(st.text(max_size=2), max_size=3),
        "oneOf": st.just(titled("a", "b")) | VALUES,
        "items": st.sampled_from([CHOICES["items"], {"anyOf": titled("a", "b")}]) | VALUES,
        "minLength": st.integers(-1, 3) | VALUES,
        "maximum": st.integers(-1, 3) | VALUES,
        "maxItems": st.integers(-1, 3) | VALUES,
        "pattern": st.text("ab*+?()[]\\^$|{}1", max_size=8),
        "format": st.sampled_from(["email", "uri", "date", "date-time"]) | VALUES,
    },
)
WHATEVER = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@WHATEVER
@given(schema=FIELDS | VALUES, value=VALUES, text=st.text(max_size=12))
def test_whatever_comes_is_read_or_refused_in_words(schema: Any, value: Any, text: str) -> None:
    try:
        form = Form.read(schema_of(it=schema))
    except UnsupportedForm as refused:
        assert refused.field == "it"  # noqa: PT017 - not each schema is refused
        return
    assert form.problems(form.defaults()) == {}
    if not form.problems({"it": value}):
        json.dumps({"it": value}, allow_nan=False).encode()
    try:
        typed = form.fields[0].parse(text)
    except ValueError as error:
        assert str(error)[0].isupper()  # noqa: PT017 - not each text is refused
    else:
        assert form.problems({"it": typed}) == {}


DEFAULTS: Schema = {
    "text": {**TEXT, "default": "John Doe"},
    "empty": {**TEXT, "default": ""},
    "whole": {"type": "integer", "default": 30},
    "zero": {"type": "integer", "default": 0},
    "number": {"type": "number", "default": 95.5},
    "yes": {"type": "boolean", "default": True},
    "no": {"type": "boolean", "default": False},
    "choice": {**CHOICE, "default": "green"},
    "titled": {**TEXT, "oneOf": titled("a", "b"), "default": "b"},
    "legacy": {**TEXT, "enum": ["a"], "enumNames": ["A"], "default": "a"},
    "choices": {**CHOICES, "default": ["red", "blue"]},
    "none": {**CHOICES, "default": []},
    "titled_choices": {"type": "array", "items": {"anyOf": titled("a")}, "default": ["a"]},
    "bare": TEXT,
}


def test_defaults_of_every_kind_fill_what_was_left_out() -> None:
    form = Form.read(schema_of(**DEFAULTS))
    expected = {name: part["default"] for name, part in DEFAULTS.items() if "default" in part}
    content: dict[str, Any] = {}
    filled: Any = form.with_defaults(content)
    assert form.defaults() == filled == expected
    assert content == {}
    assert form.problems(filled) == {}
    assert form.with_defaults({"whole": 5, "bare": "x"}) == {**expected, "whole": 5, "bare": "x"}
    filled["choices"].append("green")  # the form does not change
    assert form.defaults() == expected


@pytest.mark.parametrize(
    ("schema", "defaults"),
    [
        (TEXT, [5, None, "\ud800"]),
        ({**TEXT, "pattern": "^a$"}, ["b"]),
        ({"type": "number"}, [True, float("nan")]),
        (CHOICES, ["red", ["red", "red"], ["mauve"], [[]]]),
    ],
)
def test_a_default_that_does_not_fit_counts_as_absent(schema: Schema, defaults: list[Any]) -> None:
    for default in defaults:
        form = Form.read(schema_of("it", it={**schema, "default": default}))
        assert form.fields[0].default is ABSENT
        assert form.with_defaults({}) == {}
        assert form.problems({}) == {"it": "This field needs an answer."}


def formatted(name: str) -> Schema:
    return {**TEXT, "format": name}


FITTING: list[tuple[Schema, list[Any]]] = [
    (TEXT, ["", "x", "\U0001f600", "\0", "x" * 10_000_000]),
    ({**TEXT, "minLength": 1, "maxLength": 2}, ["a", "\U0001f600\U0001f600"]),
    (
        formatted("email"),
        ["a@b", "a.b+c@example.com", "j\u00fcrgen@m\u00fcnchen.de", "!#$@x-y.example"],
    ),
    (
        formatted("uri"),
        [
            "https://example.com/a?b#c", "mailto:a@b", "urn:x:y", "http://[::1]:80/%20", "x:y",
            "a:" + "x" * 8190,
        ],
    ),
    (formatted("date"), ["2026-01-31", "2024-02-29", "0001-01-01"]),
    (
        formatted("date-time"),
        [
            "2026-01-31T14:30:00Z", "2026-01-31t14:30:00.123456789z",
            "2026-01-31T23:59:60+23:59", "2026-01-31T00:00:00-00:00",
        ],
    ),
    ({**TEXT, "pattern": "^[a-z]+$"}, ["abc"]),
    ({**TEXT, "pattern": "b"}, ["abc"]),
    ({"type": "number"}, [0, -1, 1.5, 1e300, 10**308]),
    ({"type": "number", "minimum": 1, "maximum": 2.5}, [1, 1.0, 2.5]),
    ({"type": "integer"}, [0, -5, 1.0, -0.0, 10**20, 1e20]),
    ({"type": "boolean"}, [True, False]),
    (CHOICE, ["red", "green"]),
    (CHOICES, [[], ["red"], ["blue", "red", "green"]]),
    ({**CHOICES, "minItems": 1, "maxItems": 2}, [["red"], ["red", "blue"]]),
]  # fmt: skip

WRONG: list[tuple[Schema, list[Any]]] = [
    ({"type": "string"}, [None, 5, True, b"x", ["x"], "\ud800", "a\udfffb"]),
    ({"type": "string", "minLength": 1, "maxLength": 2}, ["", "abc", "x" * 10_000_000]),
    (
        formatted("email"),
        [
            "", "a", "@b", "a@", "a@b@c", "a b@c", "a@b c", ".a@b", "a.@b", "a..b@c", "a@-b",
            "a@b-", "a@b..c", "a@b.", "a@b\n", "a\u00a0@b", "<a@b>", "x" * 65 + "@b",
            "a@" + "b." * 5_000_000, "a." * 5_000_000, "@" * 10_000_000,
        ],
    ),
    (
        formatted("uri"),
        [
            "", "example.com", "/a", "//a/b", "http:", "http://", "http://[::1", "http://a:99999",
            "https://a b", "https://\u00fc.de", "https://a/%zz", "https://a#b#c", "1x:y", ":x",
            "https://a\n", "a" * 10_000_000, "a:" + "%" * 10_000_000, "a:" + "x" * 8191,
        ],
    ),
    (
        formatted("date"),
        [
            "", "2026-02-29", "2026-13-01", "26-01-01", "2026-1-1", "20260131", "2026-01-31\n",
            "2026-01-31T00:00:00Z", "0000-01-01", "\u0662026-01-01", "2026-W01-1",
        ],
    ),
    (
        formatted("date-time"),
        [
            "", "2026-01-31", "2026-01-31T14:30:00", "2026-01-31 14:30:00Z", "2026-01-31T14:30Z",
            "2026-01-31T24:00:00Z", "2026-01-31T14:60:00Z", "2026-01-31T14:30:61Z",
            "2026-02-30T14:30:00Z", "2026-01-31T14:30:00+24:00", "2026-01-31T14:30:00+0100",
            "2026-01-31T14:30:00." + "1" * 10_000_000,
        ],
    ),
    ({"type": "string", "pattern": "^[a-z]+$"}, ["", "ABC", "abc1"]),
    ({"type": "string", "pattern": "(a|a)*$"}, ["a" * 10_000_000]),
    (
        {"type": "number"},
        [None, True, False, "1", [1], float("nan"), float("inf"), 10**400, 10**5_000, 1j],
    ),
    ({"type": "number", "minimum": 1, "maximum": 2.5}, [0, 0.999, 2.6, 10**300]),
    ({"type": "integer"}, [1.5, True, "1", None, float("inf"), float("nan"), 10**400]),
    ({"type": "boolean"}, [None, 0, 1, "true", "yes", []]),
    (CHOICE, [None, "", "Red", "mauve", ["red"], 5, []]),
    (CHOICES, [None, "red", {"red": 1}, ("red",), [None], ["mauve"], ["red", "red"], [["red"]]]),
    ({**CHOICES, "minItems": 1, "maxItems": 2}, [[], ["red", "green", "blue"]]),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "values"), FITTING, ids=range(len(FITTING)))
def test_an_answer_that_fits_has_no_problem(schema: Schema, values: list[Any]) -> None:
    form = Form.read(schema_of("it", it=schema))
    for value in values:
        assert form.problems({"it": value}) == {}


@pytest.mark.parametrize(("schema", "values"), WRONG, ids=range(len(WRONG)))
def test_an_unfit_answer_gets_a_sentence_without_quotes(schema: Schema, values: list[Any]) -> None:
    form = Form.read(schema_of(it=schema))
    for value in values:
        started = time.thread_time()
        problems = form.problems({"it": value})
        assert time.thread_time() - started < 5
        assert list(problems) == ["it"], ascii(value)[:100]
        assert problems["it"][0].isupper()
        assert len(problems["it"]) < 200


def test_the_pattern_of_a_server_cannot_keep_the_program_busy() -> None:
    form = Form.read(schema_of(it={"type": "string", "pattern": "^(?:a{40}){40}$"}))
    started = time.thread_time()
    assert form.problems({"it": "a" * 2_000})
    assert "at most 2000 characters" in form.problems({"it": "a" * 2_001})["it"]
    assert time.thread_time() - started < 1


def test_patterns_are_as_large_as_their_repetitions_written_out() -> None:
    for pattern in ("(?:a?b?){30000}[cd]", "(?x)#[\n(?:a?b?){400}c#]", r"[A-\d(?:a?b?){30000}]]["):
        assert "'pattern'" in refusal_of({"type": "string", "pattern": pattern}).reason
    large = [{"type": "string", "pattern": f"{letter}{{2000}}"} for letter in "abcdef"]
    Form.read(schema_of(**dict(zip("abcde", large, strict=False))))
    with pytest.raises(UnsupportedForm, match="too large in total") as caught:
        Form.read(schema_of(**dict(zip("abcdef", large, strict=True))))
    assert caught.value.field == "f"


def test_no_default_is_matched_before_all_patterns_are(monkeypatch: pytest.MonkeyPatch) -> None:
    matched: list[str] = []
    monkeypatch.setattr(Field, "problem", lambda _, value: matched.append(value))
    fields = {f"f{n}": {"type": "string", "pattern": "a{1000}", "default": "a"} for n in range(11)}
    with pytest.raises(UnsupportedForm, match="too large in total"):
        Form.read(schema_of(**fields))
    assert matched == []


def test_a_problem_says_what_would_fit() -> None:
    cases: list[tuple[Schema, Any, str]] = [
        ({**TEXT, "minLength": 3}, "ab", "Enter at least 3 characters, not 2."),
        ({**TEXT, "maxLength": 1}, "ab", "Enter at most 1 character, not 2."),
        ({"type": "integer"}, 1.5, "Enter a whole number."),
        ({"type": "number", "maximum": 2.5}, 3, "Enter a number that is at most 2.5."),
        ({**CHOICES, "minItems": 2}, ["red"], "Choose at least 2, not 1."),
        (CHOICES, ["red", "red"], "Choose each option only once."),
    ]
    for schema, value, sentence in cases:
        assert field_of(schema).problem(value) == sentence


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"type": "string"}, ""),
        ({"type": "string", "pattern": "SECRET"}, ""),
        ({"type": "string", "minLength": 1}, "At least 1 character."),
        ({"type": "string", "maxLength": 40}, "At most 40 characters."),
        ({"type": "string", "minLength": 2, "maxLength": 40}, "From 2 to 40 characters."),
        ({"type": "string", "minLength": 4, "maxLength": 4}, "Exactly 4 characters."),
        ({"type": "string", "format": "date"}, "A date, like 2026-01-31."),
        (
            {"type": "string", "format": "email", "maxLength": 40},
            "An e-mail address, like name@example.com. At most 40 characters.",
        ),
        ({"type": "integer"}, "A whole number."),
        ({"type": "integer", "minimum": 1, "maximum": 10}, "A whole number from 1 to 10."),
        ({"type": "integer", "minimum": 0}, "A whole number, at least 0."),
        ({"type": "number", "maximum": 0.5}, "A number, at most 0.5."),
        ({"type": "number"}, "A number."),
        ({"type": "boolean"}, ""),
        ({"type": "string", "enum": ["a"]}, ""),
        ({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}, ""),
        (
            {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "minItems": 1},
            "At least 1 of the options.",
        ),
    ],
)
def test_a_hint_says_what_fits_before_an_answer(schema: Schema, hint: str) -> None:
    (field,) = Form.read({"type": "object", "properties": {"f": schema}}).fields
    assert field.hint == hint


def test_unknown_and_missing_fields_are_problems_and_optional_ones_may_be_left_out() -> None:
    form = Form.read(schema_of("name", "age", name=TEXT, age={"type": "integer"}, nick=CHOICE))
    problems = form.problems({"age": "five", "other": 1})
    assert problems.pop("age")
    missing, unknown = "This field needs an answer.", "The form has no such field."
    assert problems == {"name": missing, "other": unknown}
    assert form.problems({"name": "", "age": 5}) == {}


@pytest.mark.parametrize(
    ("schema", "typed"),
    [
        (TEXT, {" as it is ": " as it is ", "": ""}),
        (formatted("email"), {" a@b.example\n": "a@b.example"}),
        (formatted("date"), {" 2026-01-31 ": "2026-01-31"}),
        (formatted("date-time"), {"2026-01-31T14:30:00Z": "2026-01-31T14:30:00Z"}),
        ({"type": "number"}, {"3": 3, " -3.5 ": -3.5, "+.5": 0.5, "1e3": 1000}),
        ({"type": "integer"}, {"42": 42, "1.0": 1, "9" * 23: 10**23 - 1}),
        ({"type": "boolean"}, {"Yes": True, " n ": False, "on": True, "false": False}),
        (CHOICE, {"red": "red", " green ": "green"}),
        ({"type": "string", "oneOf": titled("a", "b")}, {"B": "b"}),
        ({"type": "string", "enum": [" a", "a"]}, {" a": " a"}),
        (CHOICES, {"red, blue": ["red", "blue"], "red\nblue\n": ["red", "blue"]}),
        (CHOICES, {"green": ["green"], " ": []}),
        (COMMAS, {"a,b": ["a,b"], "a,b\nc": ["a,b", "c"]}),
    ],
)
def test_what_a_person_types_is_read(schema: Schema, typed: dict[str, Any]) -> None:
    for text, value in typed.items():
        read = field_of(schema).parse(text)
        assert read == value
        assert type(read) is type(value)


@pytest.mark.parametrize("text", ["2026-01-31T14:30", "2026-01-31 14:30:00", " 2026-01-31t14:30 "])
def test_a_date_and_time_without_an_offset_is_one_of_this_computer(text: str) -> None:
    field = field_of(formatted("date-time"))
    read = field.parse(text)
    assert field.problem(read) is None
    assert isinstance(read, str)
    assert datetime.fromisoformat(read) == datetime(2026, 1, 31, 14, 30).astimezone()


@pytest.mark.parametrize(
    ("schema", "texts"),
    [
        ({"type": "number"}, ["", "five", "1,5", "1_000", "0x10", "nan", "Infinity", "1e999"]),
        ({"type": "number"}, ["9" * 10_000_000, "\u0663"]),
        ({"type": "integer"}, ["1.5"]),
        ({"type": "integer", "maximum": 3}, ["4"]),
        ({"type": "boolean"}, ["", "perhaps"]),
        ({"type": "string", "minLength": 1}, [""]),
        ({"type": "string", "format": "date"}, ["31.1.2026"]),
        ({"type": "string", "format": "date-time"}, ["2026-02-30T14:30", "2026-01-31"]),
        (CHOICE, ["mauve", ""]),
        ({"type": "string", "enum": ["a", "b"], "enumNames": ["same", "same"]}, ["same"]),
        (CHOICES, ["red, mauve", "red, red"]),
        ({**CHOICES, "minItems": 1}, [""]),
    ],
)
def test_what_cannot_be_read_gets_a_sentence(schema: Schema, texts: list[str]) -> None:
    for text in texts:
        with pytest.raises(ValueError, match=r"^[A-Z].{5,150}$") as caught:
            field_of(schema).parse(text)
        assert type(caught.value) is ValueError


SECRET = [
    *("Password", "Your API key", "API-Key", "apiKey", "userPassword", "GITHUB_TOKEN", "PIN"),
    *("clientSecret", "Credit card number", "One-time code", "CVV", "PASSWORT", "Pass\u200bword"),
    "\u043f\u0430\u0440\u043e\u043b\u044c",
    *("contrase\u00f1a", "contrasen\u0303a", "contrasen\u200b\u0303a"),
    "\ube44\ubc00\ubc88\ud638",
    "\u8bf7\u8f93\u5165\u5bc6\u7801",
    "\uff30\uff21\uff33\uff33\uff37\uff2f\uff32\uff24",
]


def test_a_field_that_looks_like_a_secret_is_marked_and_an_ordinary_one_is_not() -> None:
    for schema in (
        *({**TEXT, "title": title} for title in SECRET),
        {**TEXT, "description": "Paste the access token from your account."},
        {**TEXT, "description": "The recovery phrase of the wallet"},
        {"type": "integer", "title": "Card PIN"},
    ):
        assert field_of(schema).secret, ascii(schema)
    (by_name,) = Form.read(schema_of(db_passwd={**TEXT, "title": "Login"})).fields
    assert by_name.secret
    ordinary = ("Your name", "Secretary", "Spinach or pineapple", "Cardinal direction")
    for schema in (
        *({**TEXT, "title": title} for title in ordinary),
        {"type": "integer", "title": "max_tokens"},
        {"type": "boolean", "title": "Remember the password"},
        {**CHOICE, "title": "Token kind"},
    ):
        assert not field_of(schema).secret, schema


@pytest.mark.parametrize(
    "marks",
    ["\u0f73", "\u0301\u0316", "\uff9e\u0316", "\u302e\u0301", "\u200b\u0301\u0316"],
    ids=ascii,
)
def test_marks_that_take_long_to_normalize_hide_no_secret(marks: str) -> None:
    text = marks * (9_900 // len(marks))
    fields = {f"a{n}": {"type": "string", "title": f"{text} {n} PIN"} for n in range(10)}
    form = Form.read(schema_of(**fields))
    before = time.process_time()
    assert all(field.secret for field in form.fields)
    assert time.process_time() - before < 0.4
