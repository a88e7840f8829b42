"""Every limit is exact: input at the limit is allowed, and beyond it, refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp._protocol import schema as compiling
from syncmcp._protocol.schema import compile_schema, place
from syncmcp._protocol.schema.place import LOOK_EVERY, MAX_STEPS, Run
from tests.protocol.schema.deep import boxed, refused, within

pytestmark = pytest.mark.requirement("SCHM-08")

NESTING = 6


def referring(name: str) -> dict[str, Any]:
    return {"$ref": f"#/{name}", name: {}}


THREE: dict[str, Any] = {"allOf": [{"pattern": f"{letter}{{2000}}"} for letter in "abc"]}
EMPTY: list[Any] = [{} for _ in range(1_001)]


def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limit every check to 500 steps."""
    monkeypatch.setattr(place, "MAX_STEPS", 500)
    monkeypatch.setattr(place, "LOOK_EVERY", 50)


@pytest.mark.parametrize(
    ("limit", "value", "largest", "larger", "message"),
    [
        (
            *("MAX_DEPTH", 200, within("not", 199), within("not", 200)),
            "it is nested more than 200 levels deep",
        ),
        (
            *("MAX_SIZE", 9_000, {"default": [0] * 8_998}, {"default": [0] * 8_999}),
            "it has more than 9,000 values",
        ),
        (
            *("MAX_SUBSCHEMAS", 1_001, {"anyOf": EMPTY[1:]}, {"anyOf": EMPTY}),
            "it consists of more than 1,001 schemas",
        ),
        (
            *("MAX_PATTERNS", 6_000, THREE, {"pattern": "d", **THREE}),
            "its patterns are too large in total",
        ),
        (
            *("MAX_REFERENCE", 2_000, referring("x" * 1_998), referring("x" * 1_999)),
            "a reference has more than 2,000 characters",
        ),
    ],
)
def test_a_schema_may_be_as_large_as_the_limit(
    limit: str, value: int, largest: Any, larger: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling if hasattr(compiling, limit) else place, limit, value)
    compile_schema(largest)
    assert refused(lambda: compile_schema(larger)) == message


@pytest.mark.parametrize(
    ("unit", "size"),
    [
        *(("a", 1), (r"\{", 1), ("[a-z]", 1), (r"\d", 1), (r"[\d_]", 1), ("(?:a{1})", 1)),
        *(("(?:a{0}b)", 2), ("(?:ab)", 2), ("(x{1,2})", 4), ("(?<name>x)", 2), ("(?:a*b+c?|d)", 8)),
        *(("\u00e9", 2), ("\U0001f40d", 4), (r"\xe9", 2), (r"\u00e9", 3), ("(?:(?:a?)?)", 3)),
        *(("(?:a{0,1})", 2), ("(?:|)", 1), ("[\u00e9]", 2), ("[\u4e00-\u9fff]", 3)),
        *((r"[\u4e00-\u9fff\xe9]", 6), ("(?:aaa(?:b))", 4), (".", 5), ("[]", 5), ("[^a]", 5)),
        *((word, 5) for word in (r"\D", r"\W", r"\S", r"[\S]")),
        *(("(?:aaaa[b])", 5), (".{2}", 10), (r"\p{L}", 20), (r"[\p{L}\p{N}]", 20)),
    ],
)
def test_a_pattern_is_as_large_as_its_repetitions_written_out(unit: str, size: int) -> None:
    most = 2_000 // size
    compile_schema({"pattern": f"{unit}{{{most}}}"})
    message = refused(lambda: compile_schema({"pattern": f"{unit}{{{most},{most + 1}}}"}))
    assert message == "a pattern is too large after its repetitions are expanded"


@pytest.mark.parametrize(
    "pattern", ["(a{50}){50}", "((a{20}b){20}){20}", f"a{{{'9' * 1000}}}"], ids=range(3)
)
def test_repetitions_of_repetitions_and_their_longest_numbers_count(pattern: str) -> None:
    assert "a pattern is too large" in refused(lambda: compile_schema({"pattern": pattern}))


def test_a_pattern_may_be_as_long_as_the_limit() -> None:
    compile_schema({"pattern": "a" * 2_000})
    too_long = refused(lambda: compile_schema({"pattern": "a" * 2_001}))
    assert too_long == "a pattern has more than 2,000 characters"


@pytest.mark.parametrize(
    ("schema", "deepest", "deeper"),
    [
        ({"items": {"$ref": "#"}}, boxed(NESTING // 2), boxed(NESTING // 2 + 1)),
        ({"const": [1]}, boxed(NESTING), boxed(NESTING + 1)),
        ({"const": {}}, within("a", NESTING - 1), within("a", NESTING)),
    ],
)
def test_a_check_may_be_as_deep_as_the_limit(
    schema: Any, deepest: Any, deeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "MAX_NESTING", NESTING)
    compiled = compile_schema(schema)
    compiled.problem(deepest)
    message = refused(lambda: compiled.problem(deeper))
    assert message == "the check is nested more than 6 levels deep"


def test_a_check_looks_around_from_time_to_time_until_its_steps_are_used_up() -> None:
    looks: list[int] = []
    run = Run(lambda: looks.append(1))
    for steps, looked in ((LOOK_EVERY, 0), (1, 1), (LOOK_EVERY, 1)):
        run.spend(steps)
        assert len(looks) == looked
    run.spend(MAX_STEPS - 2 * LOOK_EVERY - 1)
    assert refused(lambda: run.spend(1)) == "the check takes more than 2,000,000 steps"


def members(count: int) -> dict[str, int]:
    """Return an object with `count` members."""
    return {str(number): 1 for number in range(count)}


# A schema and a value that grow together; a size that is allowed, and one that is not.
GROWING: dict[str, tuple[Callable[[int], tuple[Any, Any]], int, int]] = {
    "required": (lambda n: ({"required": [*members(n)]}, {}), 1_600, 16_000),
    "needs": (lambda n: ({"dependentRequired": {str(k): [] for k in range(n)}}, {}), 1_600, 16_000),
    "names": (lambda n: ({"properties": dict.fromkeys(members(n), True)}, {}), 1_600, 16_000),
    "schemas": (lambda n: ({"allOf": [True] * n}, 1), 100, 1_000),
    "items": (lambda n: ({"items": {"type": "integer"}}, [1] * n), 100, 1_000),
    "refs": (lambda n: ({"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {}}}, [1] * n), 100, 1_000),
    "choices": (lambda n: ({"items": {"enum": ["a", 1]}}, [1] * n), 100, 1_000),
    "a choice": (lambda n: ({"enum": [*range(n)]}, 1), 200, 1_000),
    "unique": (lambda n: ({"uniqueItems": True}, [*range(n)]), 200, 1_000),
    "members": (lambda n: ({"additionalProperties": {}}, members(n)), 200, 1_000),
    "unevaluated": (lambda n: ({"unevaluatedProperties": {}}, members(n)), 200, 1_000),
    "evaluated": (
        lambda n: ({"allOf": [{} for _ in range(20)], "unevaluatedProperties": {}}, members(n)),
        *(16, 320),
    ),
    "a text": (lambda n: ({"const": "x"}, "x" * n), 10_000, 100_000),
    "a name": (lambda n: ({"const": {}}, {"x" * n: 1}), 10_000, 100_000),
    "a pattern": (lambda n: ({"pattern": "^x$"}, "x" * n), 10_000, 100_000),
    "a large pattern": (lambda n: ({"pattern": "^x{20}$"}, "x" * n), 1_000, 10_000),
    "patterns": (
        lambda n: ({"patternProperties": dict.fromkeys(members(n), True)}, {"x": 1}),
        *(8, 80),
    ),
}


@pytest.mark.parametrize(("check", "some", "many"), GROWING.values(), ids=GROWING)
def test_a_check_takes_steps_in_proportion_to_what_it_reads(
    check: Callable[[int], tuple[Any, Any]], some: int, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [check(some), check(many)]
    (enough, small), (too_much, large) = ((compile_schema(schema), it) for schema, it in pairs)
    few_steps(monkeypatch)
    enough.problem(small)
    assert refused(lambda: too_much.problem(large)) == "the check takes more than 500 steps"


def test_what_a_keyword_demands_of_items_and_schemas_is_read_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = compile_schema({"items": {"enum": [*range(200)]}})
    few_steps(monkeypatch)
    assert compiled.problem([*range(50)]) is None
    assert compile_schema({"anyOf": [{"minimum": n} for n in range(50)]}).problem(1) is None
