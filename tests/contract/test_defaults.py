"""docs/defaults.md tells the bounds and time limits that the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "defaults.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>[^|]+) \| `(?P<where>[^`]+)` \|$", re.MULTILINE)
UNITS = {"s": 1, "MiB": 1024 * 1024, "KiB": 1024, "bytes": 1}

ROWS = [
    pytest.param(row["value"], row["where"], id=row["what"].strip().replace(" ", "-"))
    for row in ROW.finditer(PAGE.read_text(encoding="utf-8"))
]


def documented(text: str) -> float | tuple[float, ...]:
    """`2 s + 2 s`, `64 MiB` or `256` as the code would say it."""
    values: list[float] = []
    for part in text.split("+"):
        number, _, unit = part.strip().partition(" ")
        values.append(float(number.replace(",", "")) * UNITS.get(unit, 1))
    return values[0] if len(values) == 1 else tuple(values)


def coded(where: str) -> object:
    """The value of `module.NAME`, or the default of a parameter: `module.Callable(parameter)`."""
    name, _, parameter = where.rstrip(")").partition("(")
    path, _, attribute = name.rpartition(".")
    try:
        owner: object = importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, cls = path.rpartition(".")
        owner = getattr(importlib.import_module(module), cls)
    value: object = getattr(owner, attribute)
    if not parameter:
        return value
    assert callable(value)
    return inspect.signature(value).parameters[parameter].default


def test_the_page_has_rows() -> None:
    assert len(ROWS) >= 10


@pytest.mark.parametrize(("value", "where"), ROWS)
def test_the_page_tells_what_the_code_does(value: str, where: str) -> None:
    assert coded(where) == documented(value)
