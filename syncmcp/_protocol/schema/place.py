"""What is shared by all functions that make the check of a word."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from syncmcp._protocol.schema.pattern import Pattern
from syncmcp._protocol.schema.run import Check, Problem, Run, Seen


class Place(Protocol):
    """Where a word stands: what it can refer to."""

    def check(self, schema: Any) -> Check:
        """The check of a subschema."""
        ...

    def pattern(self, pattern: str) -> Pattern:
        """A pattern, which counts with all others of the schema."""
        ...

    @property
    def integers_are_written(self) -> bool:
        """Whether 1.0 is no integer."""
        ...

    @property
    def contains_counts(self) -> bool:
        """Whether what `contains` found counts as looked at."""
        ...


Maker = Callable[[Any, Mapping[str, Any], Place], "Check | None"]


def anything(_value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
    """Accept any value."""
    return None


def nothing(_value: Any, _run: Run, _seen: Seen | None) -> Problem | None:
    """Accept no value."""
    return Problem("must not be there")
