"""What the words about objects and their members demand."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from syncmcp._protocol.schema.run import (
    CLASSES,
    TYPES,
    Check,
    Maker,
    Place,
    Problem,
    Run,
    Seen,
    anything,
    identity,
    is_number,
    is_written_as_integer,
    quoted,
)


def _max_properties(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, dict) and len(value) > limit:
            return Problem(f"has more than {limit} members")
        return None

    return check


def _min_properties(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, dict) and len(value) < limit:
            return Problem(f"has fewer than {limit} members")
        return None

    return check


def _required(names: list[str], _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, dict):
            run.spend(len(names))
            for name in names:
                if name not in value:
                    return Problem(f"lacks {quoted(name)}", name)
        return None

    return check


def _properties(schemas: Mapping[str, Any], _schema: Mapping[str, Any], place: Place) -> Check:
    checks = {name: place.check(schema) for name, schema in schemas.items()}

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if isinstance(value, dict):
            run.spend(len(value))
            for name, member in value.items():
                check_member = checks.get(name)
                if check_member is not None:
                    problem = check_member(member, run, None)
                    if problem is not None:
                        return problem.under(name)
            if seen is not None:
                seen.names.update(checks.keys() & value.keys())
        return None

    return check


def _pattern_properties(
    schemas: Mapping[str, Any], _schema: Mapping[str, Any], place: Place
) -> Check:
    checks = [(place.pattern(pattern), place.check(schema)) for pattern, schema in schemas.items()]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if not isinstance(value, dict):
            return None
        for name, member in value.items():
            for pattern, check_member in checks:
                if not pattern.is_in(name, run):
                    continue
                problem = check_member(member, run, None)
                if problem is not None:
                    return problem.under(name)
                if seen is not None:
                    seen.names.add(name)
        return None

    return check


def _additional_properties(extra: Any, schema: Mapping[str, Any], place: Place) -> Check:
    check_member = place.check(extra)
    known = frozenset(schema.get("properties", ()))
    patterns = [place.pattern(pattern) for pattern in schema.get("patternProperties", ())]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if not isinstance(value, dict):
            return None
        run.spend(len(value))
        if known.issuperset(value):
            return None
        for name, member in value.items():
            if name in known or any(pattern.is_in(name, run) for pattern in patterns):
                continue
            problem = check_member(member, run, None)
            if problem is not None:
                return problem.under(name)
            if seen is not None:
                seen.names.add(name)
        return None

    return check


def _property_names(wanted: Any, _schema: Mapping[str, Any], place: Place) -> Check:
    check_name = place.check(wanted)

    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, dict):
            run.spend(len(value))
            for name in value:
                if check_name(name, run, None) is not None:
                    return Problem("has a name that it may not have").under(name)
        return None

    return check


def _dependent_required(
    needs: Mapping[str, list[str]], _schema: Mapping[str, Any], _place: Place
) -> Check:
    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, dict):
            run.spend(len(value))
            for name in value:
                needed = needs.get(name, ())
                run.spend(len(needed))
                for other in needed:
                    if other not in value:
                        message = f"lacks {quoted(other)}, wanted beside {quoted(name)}"
                        return Problem(message, other)
        return None

    return check


def _dependent_schemas(
    schemas: Mapping[str, Any], _schema: Mapping[str, Any], place: Place
) -> Check:
    checks = {name: place.check(schema) for name, schema in schemas.items()}

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if isinstance(value, dict):
            run.spend(len(value))
            for name in value:
                check_whole = checks.get(name)
                if check_whole is not None:
                    problem = check_whole(value, run, seen)
                    if problem is not None:
                        return problem
        return None

    return check


def _dependencies(needs: Mapping[str, Any], schema: Mapping[str, Any], place: Place) -> Check:
    names = {name: need for name, need in needs.items() if isinstance(need, list)}
    schemas = {name: need for name, need in needs.items() if name not in names}
    first = _dependent_required(names, schema, place)
    second = _dependent_schemas(schemas, schema, place)

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        problem = first(value, run, seen)
        return second(value, run, seen) if problem is None else problem

    return check


def unevaluated_properties(rest: Any, _schema: Mapping[str, Any], place: Place) -> Check:
    """Make the check of what nothing else in its schema has looked at."""
    check_member = place.check(rest)

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        assert seen is not None  # whoever has this word keeps count
        if isinstance(value, dict):
            run.spend(len(value))
            for name, member in value.items():
                if name not in seen.names:
                    problem = check_member(member, run, None)
                    if problem is not None:
                        return problem.under(name)
            seen.names.update(value)
        return None

    return check


MEMBER_MAKERS: Final[Mapping[str, Maker]] = {
    "maxProperties": _max_properties,
    "minProperties": _min_properties,
    "required": _required,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "propertyNames": _property_names,
    "dependentRequired": _dependent_required,
    "dependentSchemas": _dependent_schemas,
    "dependencies": _dependencies,
}
"""By word, the cheap ones first."""


# What the words about any value, about numbers and about texts demand.


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


# What the words about arrays demand.


def _max_items(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, list) and len(value) > limit:
            return Problem(f"has more than {limit} items")
        return None

    return check


def _min_items(limit: float, _schema: Mapping[str, Any], _place: Place) -> Check:
    def check(value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, list) and len(value) < limit:
            return Problem(f"has fewer than {limit} items")
        return None

    return check


def _unique_items(wanted: bool, _schema: Mapping[str, Any], _place: Place) -> Check | None:
    if not wanted:
        return None

    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        if isinstance(value, list):
            found = set()
            for index, item in enumerate(value):
                same = identity(item, run)
                if same in found:
                    return Problem("is there twice").under(index)
                found.add(same)
        return None

    return check


def _prefix_items(schemas: list[Any], _schema: Mapping[str, Any], place: Place) -> Check:
    checks = [place.check(schema) for schema in schemas]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if isinstance(value, list):
            run.spend(min(len(value), len(checks)))
            for index, (item, check_item) in enumerate(zip(value, checks, strict=False)):
                problem = check_item(item, run, None)
                if problem is not None:
                    return problem.under(index)
            if seen is not None:
                seen.items = max(seen.items, min(len(value), len(checks)))
        return None

    return check


def _items_after(count: int, schema: Any, place: Place) -> Check:
    check_item = place.check(schema)

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if isinstance(value, list):
            if check_item is not anything:
                run.spend(max(len(value) - count, 0))
                for index in range(count, len(value)):
                    problem = check_item(value[index], run, None)
                    if problem is not None:
                        return problem.under(index)
            if seen is not None:
                seen.items = len(value)
        return None

    return check


def _items(items: Any, schema: Mapping[str, Any], place: Place) -> Check | None:
    if not isinstance(items, list):
        return _items_after(len(schema.get("prefixItems", ())), items, place)
    return _prefix_items(items, schema, place)


def _additional_items(extra: Any, schema: Mapping[str, Any], place: Place) -> Check | None:
    items = schema.get("items")
    return _items_after(len(items), extra, place) if isinstance(items, list) else None


def _contains(wanted: Any, schema: Mapping[str, Any], place: Place) -> Check:
    fits = place.check(wanted)
    least = schema.get("minContains", 1)
    most = schema.get("maxContains", math.inf)
    counts = place.contains_counts

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        if not isinstance(value, list):
            return None
        run.spend(len(value))
        found = [index for index, item in enumerate(value) if fits(item, run, None) is None]
        if len(found) < least:
            return Problem(f"has {len(found)} of the items of which it wants at least {least}")
        if len(found) > most:
            return Problem(f"has {len(found)} of the items of which it wants at most {most}")
        if seen is not None and counts:
            seen.indexes.update(found)
        return None

    return check


def unevaluated_items(rest: Any, _schema: Mapping[str, Any], place: Place) -> Check:
    """Make the check of what nothing else in its schema has looked at."""
    check_item = place.check(rest)

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        assert seen is not None  # whoever has this word keeps count
        if isinstance(value, list):
            run.spend(len(value))
            for index in range(seen.items, len(value)):
                if index not in seen.indexes:
                    problem = check_item(value[index], run, None)
                    if problem is not None:
                        return problem.under(index)
            seen.items = len(value)
        return None

    return check


ARRAY_MAKERS: Final[Mapping[str, Maker]] = {
    "maxItems": _max_items,
    "minItems": _min_items,
    "uniqueItems": _unique_items,
    "prefixItems": _prefix_items,
    "items": _items,
    "additionalItems": _additional_items,
    "contains": _contains,
}
"""By word, the cheap ones first."""


# What the words demand that hold the whole value against other schemas.


def _all_of(schemas: list[Any], _schema: Mapping[str, Any], place: Place) -> Check:
    checks = [place.check(schema) for schema in schemas]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        run.spend(len(checks))
        for check_whole in checks:
            problem = check_whole(value, run, seen)
            if problem is not None:
                return problem
        return None

    return check


def _any_of(schemas: list[Any], _schema: Mapping[str, Any], place: Place) -> Check:
    checks = [place.check(schema) for schema in schemas]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        run.spend(len(checks))
        fits = False
        for check_whole in checks:
            branch = None if seen is None else Seen()
            if check_whole(value, run, branch) is not None:
                continue
            if seen is None or branch is None:
                return None
            fits = True  # the others may look at parts of it that this one does not
            seen.add(branch)
        return None if fits else Problem("fits none of the alternatives")

    return check


def _one_of(schemas: list[Any], _schema: Mapping[str, Any], place: Place) -> Check:
    checks = [place.check(schema) for schema in schemas]

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        run.spend(len(checks))
        fits = False
        for check_whole in checks:
            branch = None if seen is None else Seen()
            if check_whole(value, run, branch) is not None:
                continue
            if fits:
                return Problem("fits more than one of the alternatives")
            fits = True
            if seen is not None and branch is not None:
                seen.add(branch)
        return None if fits else Problem("fits none of the alternatives")

    return check


def _not(unwanted: Any, _schema: Mapping[str, Any], place: Place) -> Check:
    fits = place.check(unwanted)

    def check(value: Any, run: Run, _seen: Seen | None) -> Problem | None:
        run.spend(1)
        return Problem("is what it must not be") if fits(value, run, None) is None else None

    return check


def _if(condition: Any, schema: Mapping[str, Any], place: Place) -> Check:
    holds = place.check(condition)
    then = place.check(schema.get("then", True))
    otherwise = place.check(schema.get("else", True))

    def check(value: Any, run: Run, seen: Seen | None) -> Problem | None:
        run.spend(2)
        branch = None if seen is None else Seen()
        if holds(value, run, branch) is not None:
            return otherwise(value, run, seen)
        if seen is not None and branch is not None:
            seen.add(branch)
        return then(value, run, seen)

    return check


BRANCH_MAKERS: Final[Mapping[str, Maker]] = {
    "allOf": _all_of,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "if": _if,
}
"""By word."""


# What each word of a schema demands of a value.
#
# For each word there is a function that is given the word's value, the schema around it and its
# `Place`, and makes a `Check`. Words are known to be well-formed there.


MAKERS: Final[Mapping[str, Maker]] = {
    **SCALAR_MAKERS,
    **ARRAY_MAKERS,
    **MEMBER_MAKERS,
    **BRANCH_MAKERS,
}
"""What makes the check of a word, in the order in which they are made: the cheap ones first."""

LAST_MAKERS: Final[Mapping[str, Callable[[Any, Mapping[str, Any], Place], Check]]] = {
    "unevaluatedItems": unevaluated_items,
    "unevaluatedProperties": unevaluated_properties,
}
"""The words that need to know what all others of their schema have looked at."""
