"""Values as JSON Schema sees them: their types, and which of them are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final

from syncmcp._protocol.schema.run import Run


def is_number(value: object) -> bool:
    """Whether it is a number. `True` is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_integer(value: object) -> bool:
    """Whether it is a number without a fraction: 1.0 is an integer."""
    if isinstance(value, float):
        return value.is_integer()
    return isinstance(value, int) and not isinstance(value, bool)


def is_written_as_integer(value: object) -> bool:
    """Whether it is a number written without a point, as draft 4 wants it."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_of(kind: type, value: object) -> bool:
    return isinstance(value, kind)


CLASSES: Final[dict[str, type]] = {
    "array": list,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "string": str,
}
"""The types whose values are all those of one class."""

TYPES: Final[dict[str, Callable[[Any], bool]]] = {
    "integer": is_integer,
    "number": is_number,
    **{name: partial(_is_of, kind) for name, kind in CLASSES.items()},
}
"""The types, and which values are of them."""


def identity(value: Any, run: Run) -> Hashable:
    """What equal values share and others do not: 1 and 1.0 are equal, 1 and true are not.

    It is made of texts, whose hashes nobody can foresee: numbers with the same hash are easy to
    find, and a set of them is slow.
    """
    run.spend(1)
    if isinstance(value, str):
        return f"s{value}"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"f{value!r}"
    if isinstance(value, (int, float)):
        return f"i{int(value):x}"
    run.descend()
    made: Hashable
    if isinstance(value, list):
        made = tuple([identity(item, run) for item in value])
    else:
        made = frozenset([(name, identity(item, run)) for name, item in value.items()])
    run.nesting -= 1
    return made
