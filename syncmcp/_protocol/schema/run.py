"""One check of one value: how much it may cost, and what it finds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from syncmcp.errors import UnsupportedSchema

MAX_STEPS: Final = 2_000_000
"""How many subschemas may be applied, and items looked at, in one check."""
MAX_NESTING: Final = 256
"""How many subschemas may be under way at one time, each within another."""
LONGEST_NAME: Final = 60
"""How much of a server's name is shown in a message, in characters."""


class Problem:
    """Why a value does not fit.

    Attributes:
        message: What is wrong with it, without the value: it may hold anything, secrets too.
        path: Where in the value, outermost name or index first.
        missing: The name of the member that is missing there, if that is what is wrong.
    """

    __slots__ = ("_inside_out", "message", "missing")

    def __init__(self, message: str, missing: str | None = None) -> None:
        self.message = message
        self.missing = missing
        self._inside_out: list[str | int] = []

    def under(self, name: str | int) -> Problem:
        """The same problem, seen from one level further out."""
        self._inside_out.append(name)
        return self

    @property
    def path(self) -> tuple[str | int, ...]:
        """Where in the value, outermost name or index first."""
        return tuple(reversed(self._inside_out))

    def __str__(self) -> str:
        place = "".join(f"[{shown(name)}]" for name in self.path)
        return f"{place} {self.message}" if place else self.message


class Seen:
    """Which parts of one object or array some subschema has looked at, for ``unevaluated...``."""

    __slots__ = ("indexes", "items", "names")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.items = 0
        """How many items, from the first on."""
        self.indexes: set[int] = set()
        """Items beyond those."""

    def add(self, other: Seen) -> None:
        """What another subschema has looked at counts, too."""
        self.names |= other.names
        self.items = max(self.items, other.items)
        self.indexes |= other.indexes


class Run:
    """The budget of one check, and the resources that it went through."""

    __slots__ = ("nesting", "scope", "steps")

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.nesting = 0
        self.scope: list[str] = []
        """The base URIs of the resources that are entered, outermost first."""

    def spend(self, steps: int) -> None:
        """Count steps before they are taken.

        Raises:
            UnsupportedSchema: They are too many.
        """
        self.steps -= steps
        if self.steps < 0:
            raise UnsupportedSchema(f"the check takes more than {MAX_STEPS:,} steps")

    def descend(self) -> None:
        """Go one level deeper; `nesting` is taken back by whoever called.

        Raises:
            UnsupportedSchema: It is too deep.
        """
        self.nesting += 1
        if self.nesting > MAX_NESTING:
            raise too_deep()


def too_deep() -> UnsupportedSchema:
    """The check went in too deep."""
    return UnsupportedSchema(f"the check is nested more than {MAX_NESTING} levels deep")


Check = Callable[[Any, Run, "Seen | None"], "Problem | None"]
"""Whether a value fits: `None` if it does. What was looked at is noted in `Seen`, if that is asked.

A check whose result is a problem may have noted something: then nobody looks at it.
"""


def quoted(name: str) -> str:
    """A name from a server, on one line and cut."""
    return repr(name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 3]}...")


def shown(name: str | int) -> str:
    """A name or an index in a message."""
    return str(name) if isinstance(name, int) else quoted(name)
