"""What the words demand that hold the whole value against other schemas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from syncmcp._protocol.schema.place import Maker, Place
from syncmcp._protocol.schema.run import Check, Problem, Run, Seen


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
