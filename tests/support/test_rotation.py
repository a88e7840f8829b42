"""Tests that take turns with the wires see all of them."""

from __future__ import annotations

from collections import Counter
from types import FunctionType
from typing import Any

import pytest

from tests.support.stage import STATEFUL_WIRES, WIRES, Rotation


def a_test(number: int) -> Any:
    """A test of some file."""
    made = FunctionType((lambda wire: None).__code__, {}, f"test_{number}")
    made.__module__, made.__qualname__ = "tests.some.test_file", f"test_{number}"
    return made


def cases(test: Any) -> list[tuple[Any, ...]]:
    """The values of its only parametrization."""
    (mark,) = test.pytestmark
    return [getattr(case, "values", (case,)) for case in mark.args[1]]


@pytest.mark.parametrize(("wires", "each"), [(WIRES, 3), (STATEFUL_WIRES, 2)])
def test_over_a_file_each_wire_is_seen_as_often(wires: Any, each: int) -> None:
    rotation = Rotation(wires, each)
    of_tests = [[wire for (wire,) in cases(rotation(a_test(n)))] for n in range(len(wires))]
    assert [len(set(wires)) for wires in of_tests] == [each] * len(wires)
    assert Counter(wire for wires in of_tests for wire in wires) == dict.fromkeys(wires, each)
    again = [wire for (wire,) in cases(rotation(a_test(1)))]
    assert again == of_tests[1], "a file that is imported twice has other wires"


def test_each_row_has_a_wire_and_each_wire_a_row() -> None:
    rotation = Rotation(WIRES, 3)
    many = cases(rotation.with_rows("row", range(7))(a_test(0)))
    assert [row for _, row in many] == [*range(7)]
    assert {wire for wire, _ in many} == set(WIRES)
    few = cases(rotation.with_rows("left, right", [(1, "a"), (2, "b")])(a_test(1)))
    assert [row for _, *row in few] == [[1, "a"], [1, "a"], [2, "b"], [2, "b"]]
    assert len({wire for wire, *_ in few}) == 4


def test_rows_are_named_as_they_are_elsewhere() -> None:
    rows = [pytest.param(1, 2, id="own"), ("x", len), (object(), True)]
    test = Rotation(WIRES[:1], 1).with_rows("left, right", rows)(a_test(0))
    ids = [case.id for case in test.pytestmark[0].args[1]]
    assert ids == [
        "memory-2025-11-25-own",
        "memory-2025-11-25-x-len",
        "memory-2025-11-25-row2-True",
    ]
    by_key = Rotation(WIRES[:1], 1).with_rows("row", {"first": 1})(a_test(0))
    assert [case.id for case in by_key.pytestmark[0].args[1]] == ["memory-2025-11-25-first"]
