"""What the words about arrays demand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from syncmcp._protocol.schema.place import Maker, Place, anything
from syncmcp._protocol.schema.run import Check, Problem, Run, Seen
from syncmcp._protocol.schema.value import identity


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
