"""What the words about any value, about numbers and about texts demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from syncmcp._protocol.schema.place import Maker, Place
from syncmcp._protocol.schema.run import Check, Problem, Run, Seen, quoted
from syncmcp._protocol.schema.value import (
    CLASSES,
    TYPES,
    identity,
    is_number,
    is_written_as_integer,
)


def _type(names: str | list[str], _schema: Mapping[str, Any], place: Place) -> Check:
    wanted = [names] if isinstance(names, str) else names
    types = dict(TYPES)
    if place.integers_are_written:
        types["integer"] = is_written_as_integer
    message = f"is not of type {' or '.join(wanted)}"
    kind = CLASSES.get(wanted[0]) if len(wanted) == 1 else None
    if kind is not None:  # the commonest word, and the commonest of its values

        def check_class(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
            return None if isinstance(value, kind) else Problem(message)

        return check_class
    tests = [types[name] for name in wanted]

    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        return None if any(test(value) for test in tests) else Problem(message)

    return check


def _enum(values: list[Any], _schema: Mapping[str, Any], place: Place) -> Check:
    unbounded = Run(len(values) + _size(values))
    allowed = frozenset([identity(value, unbounded) for value in values])
    simple = not any(isinstance(value, (list, dict)) for value in values)

    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if simple and isinstance(value, (list, dict)):
            return Problem("is none of the values that it may be")
        if identity(value, run) in allowed:
            return None
        return Problem("is none of the values that it may be")

    return check


def _size(value: Any) -> int:
    """How many values there are in one whose depth is known to be small."""
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _const(value: Any, schema: Mapping[str, Any], place: Place) -> Check:
    return _enum([value], schema, place)


# -- numbers ---------------------------------------------------------------------------------------


def _number_check(fits: Callable[[Any], bool], message: str) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        return None if not is_number(value) or fits(value) else Problem(message)

    return check


def _maximum(limit: Any, schema: Mapping[str, Any], _place: Place) -> Check:
    if schema.get("exclusiveMaximum") is True:  # draft 4
        return _number_check(lambda value: value < limit, f"is not below {limit}")
    return _number_check(lambda value: value <= limit, f"is above {limit}")


def _minimum(limit: Any, schema: Mapping[str, Any], _place: Place) -> Check:
    if schema.get("exclusiveMinimum") is True:  # draft 4
        return _number_check(lambda value: value > limit, f"is not above {limit}")
    return _number_check(lambda value: value >= limit, f"is below {limit}")


def _exclusive_maximum(limit: Any, _schema: Mapping[str, Any], _place: Place) -> Check | None:
    if isinstance(limit, bool):
        return None  # draft 4: it says how `maximum` is meant
    return _number_check(lambda value: value < limit, f"is not below {limit}")


def _exclusive_minimum(limit: Any, _schema: Mapping[str, Any], _place: Place) -> Check | None:
    if isinstance(limit, bool):
        return None  # draft 4: it says how `minimum` is meant
    return _number_check(lambda value: value > limit, f"is not above {limit}")


def _multiple_of(divisor: Any, _schema: Mapping[str, Any], _place: Place) -> Check:
    exact = _fraction(divisor)

    def fits(value: Any) -> bool:
        if isinstance(value, int) and isinstance(divisor, int):
            return value % divisor == 0
        return math.isfinite(value) and _fraction(value) % exact == 0

    return _number_check(fits, f"is not a multiple of {divisor}")


def _fraction(number: int | float) -> Fraction:
    """A number as it is written, not as it is stored: a tenth is a tenth."""
    return Fraction(Decimal(repr(number)) if isinstance(number, float) else number)


# -- texts -----------------------------------------------------------------------------------------


def _max_length(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, str) and len(value) > limit:
            return Problem(f"has more than {limit} characters")
        return None

    return check


def _min_length(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, str) and len(value) < limit:
            return Problem(f"has fewer than {limit} characters")
        return None

    return check


def _pattern(pattern: str, _schema: Mapping[str, Any], place: Place) -> Check:
    compiled = place.pattern(pattern)
    message = f"does not match the pattern {quoted(pattern)}"

    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, str) and not compiled.is_in(value, run):
            return Problem(message)
        return None

    return check


SCALAR_MAKERS: Final[Mapping[str, Maker]] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "maximum": _maximum,
    "minimum": _minimum,
    "exclusiveMaximum": _exclusive_maximum,
    "exclusiveMinimum": _exclusive_minimum,
    "multipleOf": _multiple_of,
    "maxLength": _max_length,
    "minLength": _min_length,
    "pattern": _pattern,
}
"""By word, the cheap ones first."""
