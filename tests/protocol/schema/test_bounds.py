"""Every check ends soon, with a clear error, whatever a server sends."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import Mock

import pytest

from syncmcp._protocol.patterns import Pattern
from syncmcp._protocol.schema import DIALECTS, compile_schema, place
from syncmcp._protocol.schema.place import MAX_NESTING, MAX_STEPS
from syncmcp.errors import UnsupportedSchema
from tests.protocol.schema.deep import boxed, within
from tests.protocol.schema.test_words import D2019

pytestmark = pytest.mark.requirement("SCHM-08")


def as_it_comes(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the schema without shared parts."""
    return json.loads(json.dumps(schema))  # type: ignore[no-any-return]


def ended(job: Callable[[], object], message: str, seconds: float = 1) -> None:
    """Run a job that must fail with this message within `seconds`."""
    began = process_time()
    with pytest.raises(UnsupportedSchema, match=message):
        job()
    assert process_time() - began < seconds


def fan_out(word: str, levels: int, last: dict[str, Any]) -> dict[str, Any]:
    """Return a chain of schemas, each of which refers twice to the next one."""
    schemas = {f"d{n}": {word: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return as_it_comes({"$ref": "#/$defs/d0", "$defs": {**schemas, f"d{levels}": last}})


def few_steps(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Limit every check to `steps` steps."""
    monkeypatch.setattr(place, "MAX_STEPS", steps)


def test_a_schema_that_is_deeper_than_the_stack_is_refused() -> None:
    with pytest.raises(UnsupportedSchema, match="levels deep"):
        compile_schema(within("not", 10_000))


def test_depth_and_size_that_people_need_are_allowed() -> None:
    assert compile_schema(within("items", 90)).problem(boxed(90)) is None
    names = [f"value {number}" for number in range(100_000)]
    choice = compile_schema({"enum": names})
    assert choice.problem(names[-1]) is None
    assert choice.problem("another") is not None
    assert choice.problem(names) is not None


LINKS: dict[str, Any] = {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(5_000)}


@pytest.mark.parametrize(
    "schema",
    [
        *({"$ref": "#"}, {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}),
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"$dynamicAnchor": "a", "anyOf": [{"$dynamicRef": "#a"}, {"$dynamicRef": "#a"}]},
        {"$schema": D2019, "$recursiveAnchor": True, "not": {"$recursiveRef": "#"}},
        {"unevaluatedProperties": False, "allOf": [{"$ref": "#"}]},
        # A chain may be long, but a check cannot follow it.
        {"$defs": {**LINKS, "5000": {}}, "properties": {"a": {"$ref": "#/$defs/0"}}},
    ],
)
def test_a_schema_that_refers_to_itself_for_ever_comes_to_an_end(schema: dict[str, Any]) -> None:
    compiled = compile_schema(schema)
    with pytest.raises(UnsupportedSchema, match=f"{MAX_NESTING} levels deep"):
        compiled.problem({"a": 1})
    if "properties" in schema:
        assert compiled.problem({"b": 1}) is None


def test_a_fan_of_references_runs_out_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    few_steps(monkeypatch, 50_000)
    seen = fan_out("anyOf", 60, {"properties": {"a": {}}})
    fans = [fan_out(word, 60, {"type": "string"}) for word in ("anyOf", "oneOf")]
    for schema in (fan_out("allOf", 60, {}), *fans, {**seen, "unevaluatedProperties": False}):
        with pytest.raises(UnsupportedSchema, match="steps"):
            compile_schema(schema).problem({"a": 1})


@pytest.mark.parametrize(
    "schema",
    [
        *({"items": {"$ref": "#"}}, {"const": [1]}, {"uniqueItems": True}),
        {"items": {"unevaluatedItems": False, "allOf": [{"items": {"$ref": "#"}}]}},
    ],
)
def test_a_value_that_is_too_deep_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedSchema, match="levels deep"):
        compile_schema(schema).problem(boxed(10_000))
    # A value almost as deep as a frame may be can be checked.
    assert compile_schema({"items": {"$ref": "#"}}).problem(boxed(190)) is None


def test_a_stack_that_is_nearly_full_is_an_error_like_any_other() -> None:
    schema, compiled = within("items", 90), compile_schema({"items": {"$ref": "#"}})

    def further(job: Callable[[], object]) -> None:
        try:
            further(job)
        except RecursionError:
            job()

    for job in (lambda: compiled.problem(boxed(190)), lambda: compile_schema(schema)):
        with pytest.raises(UnsupportedSchema, match="levels deep"):
            further(job)


@pytest.mark.parametrize(
    "items",
    [
        *([{"a": number} for number in range(20_000)], [[number] for number in range(20_000)]),
        # Python gives all of these numbers the same hash.
        [number * (2**61 - 1) for number in range(20_000)],
        [number / 7 for number in range(20_000)],
    ],
    ids=["objects", "lists", "same-hash", "floats"],
)
def test_many_items_are_told_apart_one_by_one(items: list[Any]) -> None:
    # A comparison of each pair would take two hundred million steps.
    unique = compile_schema({"uniqueItems": True})
    assert unique.problem(items) is None
    assert unique.problem([*items, items[10_000]]) is not None


def test_what_costs_much_elsewhere_costs_nothing_here() -> None:
    for schema, value in (
        ({"type": "string", "format": "email"}, "a@" * 100_000),
        *(({"format": "uri"}, "http://" + "%" * 100_000), ({"format": "regex"}, "(" * 100_000)),
        ({"contentMediaType": "application/json"}, "[" * 100_000),
        *(({"multipleOf": 1e-300}, 1e300), ({"multipleOf": 7}, 7 * 10**4_000)),
        ({"maximum": 1e308}, 10**300),
        ({"patternProperties": {"a": {}}, "additionalProperties": True}, {"a" * 10_000: 1}),
    ):
        assert compile_schema(schema).problem(value) is None


@pytest.mark.parametrize("uri", DIALECTS)
def test_a_list_of_types_has_no_more_names_than_there_are(uri: str) -> None:
    # Each type is checked for each value, and the message contains all of them.
    types = ["string", "number", "object", "array", "boolean", "null", "integer"]
    assert compile_schema({"$schema": uri, "type": types}).problem(1) is None
    with pytest.raises(UnsupportedSchema, match="repeats a type"):
        compile_schema({"$schema": uri, "type": ["string"] * 1_000})


def test_the_dependencies_of_names_are_not_looked_for_among_items() -> None:
    needs = {f"name {number}": True for number in range(40_000)}
    items = [f"item {number}" for number in range(40_000)]
    compiled = compile_schema({"dependentSchemas": needs, "unevaluatedItems": False})
    began = process_time()
    assert compiled.problem(items) is not None
    assert process_time() - began < 1
    # `dependentSchemas` does not apply to an array.
    wanted = {"dependentSchemas": {"x": {"items": True}}, "unevaluatedItems": False}
    assert compile_schema(wanted).problem(["x"]) is not None


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("[" + "".join(chr(0x4E00 + 2 * number) for number in range(1_970)) + "]{30}", 1),
        *(("(?:" + "|" * 1_000 + "){400}$", 1), ("(" * 900 + ")" * 900 + "{3}", 1), ("", 1_001)),
    ],
    ids=["wide class", "bars", "groups", "many"],
)
def test_what_takes_the_memory_of_the_engine_counts(pattern: str, count: int) -> None:
    names = [pattern + str(number) for number in range(count)]
    with pytest.raises(UnsupportedSchema, match="too large"):
        compile_schema({"patternProperties": dict.fromkeys(names, True)})


def test_compiling_patterns_and_patterns_on_long_texts_are_paid_for() -> None:
    letters = "".join(rf"\p{{{name}}}" for name in ("L", "N", "P", "S", "Z", "M")) * 10
    patterns = {f"[{letters}]{number}": True for number in range(300)}
    with pytest.raises(UnsupportedSchema, match="steps"):
        compile_schema({"patternProperties": patterns})
    choices = [{"pattern": f"(?:[a-z{n}]?){{200}}[0-9]"} for n in range(20)]
    with pytest.raises(UnsupportedSchema, match="steps"):
        compile_schema({"anyOf": choices}).problem("z" * 500_000)


def memory() -> int:
    """Return the resident memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux counts pages here")
def test_the_memory_of_the_engine_is_bounded_and_given_back() -> None:
    # For these patterns, the engine needs a new state at almost each character of the text.
    text = "".join(random.Random(1).choices("01", k=17_000))
    letters = "abcdefghij"
    patterns = [{"pattern": f"[0{a}]*1[01]{{20}}{b}"} for a in letters for b in letters]
    compiled = compile_schema({"anyOf": patterns})
    before = memory()
    looks: list[int] = []
    assert compiled.problem(text, lambda: looks.append(memory())) is not None
    assert max(looks) - before < 100 << 20  # 220 MiB, if all states stayed in memory
    assert memory() - before < 50 << 20


def test_patterns_are_compiled_once_for_a_check_while_there_is_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = compile_schema({"items": {"allOf": [{"pattern": "a"}, {"pattern": "^a"}]}})
    compiled: list[str] = []
    compile_one = Pattern.compiled

    def counted(pattern: Pattern) -> Callable[[str], bool]:
        compiled.append(pattern.text)
        return compile_one(pattern)

    monkeypatch.setattr(Pattern, "compiled", counted)
    assert schema.problem(["a"] * 100) is None
    assert compiled == ["a", "^a"]
    compiled.clear()
    assert schema.problem(["a" * 100_000] * 10) is None
    assert 2 < len(compiled) < 20


def test_a_text_of_thirty_mib_ends_a_fan_of_references_within_a_second() -> None:
    text = "x" * (30 << 20)
    for word, last in (
        *(("allOf", {"not": {"const": "a"}}), ("allOf", {"pattern": "x$"})),
        *(("anyOf", {"enum": ["a"]}), ("oneOf", {"pattern": "^y"})),
    ):
        schema = fan_out(word, 8, last)
        assert len(json.dumps(schema)) < 620
        ended(partial(compile_schema(schema).problem, text), f"{MAX_STEPS:,} steps")


def test_a_long_chain_into_what_is_no_schema_is_followed_within_a_second() -> None:
    deep: Any = {"type": "integer"}
    for _ in range(80):
        deep = {"x": {"not": deep}}
    pointers = ["#/odd" + "/x/not" * (number % 75) for number in range(1_200)]
    schema = {"odd": deep, "anyOf": [{"$ref": pointer} for pointer in pointers]}
    assert 280_000 < len(json.dumps(schema)) < 300_000
    began = process_time()
    compiled = compile_schema(schema)
    assert process_time() - began < 1
    assert compiled.problem(1) is None


def identified(levels: int, id: str) -> dict[str, Any]:
    """Return nested schemas; the identifier of each is relative to the next outer one."""
    made: dict[str, Any] = {"type": "integer"}
    for _ in range(levels):
        made = {"$id": id, "not": made}
    return made


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "http://x/" + "a/" * 1_000},
        {"$id": "http://x/", "items": identified(30, "a/" * 40)},
        {"$ref": "#/odd/x", "odd": {"x": identified(30, "a/" * 40)}},
    ],
    ids=["long", "grown", "grown-in-what-is-no-schema"],
)
def test_an_identifier_that_is_long_where_it_stands_is_refused(schema: dict[str, Any]) -> None:
    # Otherwise each inner schema would have as long a URI, and each reference would be slow.
    with pytest.raises(UnsupportedSchema, match="an identifier has more than 2,000 characters"):
        compile_schema(schema)


FOREIGN_HOST = "http://a" + "\u0f73" * 300


@pytest.mark.parametrize(
    "schema",
    [
        *({"$id": FOREIGN_HOST}, {"items": {"$id": f"//{FOREIGN_HOST}/x"}}),
        *({"$ref": f"{FOREIGN_HOST}/#/x"}, {"$ref": "#/odd", "odd": {"$id": FOREIGN_HOST}}),
        {"$ref": "#/odd", "odd": {"items": {"$id": FOREIGN_HOST + "\u0301\u0316" * 30_000}}},
    ],
    ids=["identifier", "below", "reference", "in-what-is-no-schema", "below-what-is-no-schema"],
)
def test_a_host_beyond_ascii_that_is_longer_than_hosts_can_be_is_refused(schema: Any) -> None:
    message = "more than 253 characters, not all of them ASCII"
    ended(lambda: compile_schema(schema), message, 0.5)  # the last one would take seconds


def test_identifiers_and_references_may_have_letters_beyond_ascii() -> None:
    id, name = "https://b\u00fccher.example/\u672c/", "\u672c" * 300
    schema = {"$id": id, "$defs": {name: {"$id": "\u672c.json", "type": "integer"}}}
    for reference in (f"#/$defs/{name}", "\u672c.json", f"{id}\u672c.json#"):
        compiled = compile_schema({**schema, "items": {"$ref": reference}})
        assert compiled.problem([1]) is None
        assert compiled.problem(["a"]) is not None
    # An identifier that is not a string is refused everywhere.
    with pytest.raises(UnsupportedSchema, match="not of type string"):
        compile_schema({"$ref": "#/odd", "odd": {"properties": {"a": {"$id": 5}}}})


def test_identifiers_are_read_and_joined_as_people_write_them() -> None:
    names = [f"{number}.json" for number in range(2_000)]
    schemas = {name: {"$id": name, "items": {"$ref": "1.json"}} for name in names[2:]}
    last = {"1.json": {"$id": "1.json", "type": "integer"}}
    schema = {"$id": "https://example.com/schemas/", "$defs": {**schemas, **last}}
    compiled = compile_schema({**schema, "items": {"$ref": "1999.json"}})
    assert compiled.problem([[1]]) is None
    assert compiled.problem([["a"]]) is not None
    odd = {"odd": {"x": identified(2, "https://example.com/a/")}, "items": {"$ref": "#/odd/x"}}
    assert compile_schema(odd).problem(["a"]) is not None


def in_turn() -> dict[str, Any]:
    """Return a chain of schemas: each refers to the previous one, and has a dynamic reference."""
    dynamic = {"$dynamicRef": "#a"}
    parts = {
        f"d{n}": {"$id": f"d{n}", "$dynamicAnchor": "a", "anyOf": [dynamic, {"$ref": f"d{n - 1}"}]}
        for n in range(1, 300)
    }
    return {"$id": "http://x/", "$defs": {"d0": {"$id": "d0"}, **parts}}


LONG_ID = {"$id": "http://x/" + "a/" * 900}


def referring(part: Any, place: str, times: int) -> dict[str, Any]:
    """Return a schema that refers `times` times to a place in its part."""
    return {"$defs": {"d": part}, "anyOf": [{"$ref": f"#/$defs/d{place}"}] * times}


def foreign_hosts(count: int) -> dict[str, Any]:
    """Return schemas whose identifiers take long to normalize."""
    return {f"{n}": {"$id": f"http://{n}{'%' * 240}/".replace("%", "\u0f73")} for n in range(count)}


@pytest.mark.parametrize(
    "schema",
    [
        {**LONG_ID, "properties": {f"{n}": {"$id": f"{n}"} for n in range(1_900)}},
        referring(within("not", 190), "/not" * 190, 900),
        referring(within("not", 190), "%2Fnot" * 190, 900),
        referring({**LONG_ID, "items": identified(90, "b")}, "/items" + "/not" * 80, 200),
        *(in_turn(), {"properties": foreign_hosts(120)}),
    ],
)
def test_what_a_reference_takes_is_paid_for(
    schema: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    few_steps(monkeypatch, MAX_STEPS // 10)
    with pytest.raises(UnsupportedSchema, match="200,000 steps"):
        compile_schema(as_it_comes(schema))


@pytest.mark.parametrize(
    ("written", "value", "fits"),
    [
        *(("1e400", "0", None), ("1e308", f"1{'0' * 400}", True)),
        *(("1e-300", f"1{'0' * 400}", True), ("0.7", f"1{'0' * 400}", False)),
        *(("7", f"7{'0' * 400}", True), (f"1{'0' * 400}", f"1{'0' * 401}", True)),
        *((f"1{'0' * 400}", "1.5", False), ("3", "1e400", False)),
    ],
)
def test_numbers_beyond_any_float_have_a_verdict(
    written: str, value: str, fits: bool | None
) -> None:
    schema = json.loads(f'{{"multipleOf": {written}}}')
    if fits is None:
        with pytest.raises(UnsupportedSchema, match="too large"):
            compile_schema(schema)
        return
    problem = compile_schema(schema).problem(json.loads(value))
    assert (problem is None) is fits
    assert len(str(problem)) < 100


class Unwanted(Exception):
    """Raised by the callback of a check, to end the check."""


def test_a_check_finds_out_that_it_is_not_wanted_any_more() -> None:
    look = Mock(side_effect=Unwanted)
    with pytest.raises(Unwanted):
        compile_schema({"pattern": "a"}).problem("x" * (30 << 20), look)
    assert look.call_count == 1
    with pytest.raises(Unwanted):  # also while compiling
        compile_schema({"anyOf": [{"type": "integer", "minimum": n} for n in range(5_000)]}, look)


def test_a_large_result_is_within_the_steps() -> None:
    members = {"id": {"type": "integer"}, "name": {"maxLength": 9}}
    row = {"properties": members, "required": ["id", "name"], "additionalProperties": False}
    rows = [{"id": number, "name": f"{number}"} for number in range(50_000)]
    schema = {"properties": {"rows": {"items": row}}}
    assert compile_schema(schema).problem({"rows": rows}) is None
