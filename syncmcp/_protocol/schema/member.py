"""What the words about objects and their members demand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from syncmcp._protocol.schema.place import Maker, Place
from syncmcp._protocol.schema.run import Check, Problem, Run, Seen, quoted


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
