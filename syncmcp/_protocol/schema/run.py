"""One check of one value: how much it may cost, and what it finds."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from functools import partial
from typing import Any, Final, Protocol

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


# Patterns of JSON Schema (ECMA-262) for an engine that never backtracks.
#
# The engine's time is linear in the text, but its factor is the size of the pattern once all of
# its counted repetitions are written out. So that is counted before the engine sees it.


MAX_PATTERN: Final = 2_000
"""The longest pattern, in characters, and the largest, with its repetitions written out."""
MAX_PATTERNS: Final = 10_000
"""The largest that all patterns of a schema may be together."""

# Size times length that take the engine, in its slowest way to match, about as long as one step.
_PER_STEP: Final = 200

# What has a meaning of its own to the engine where ECMA-262 has none, or none beyond ASCII.
_ESCAPES: Final = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[0-9A-Za-z_]",
    "W": "[^0-9A-Za-z_]",
    "s": r"[\s\uFEFF]",
    "S": r"[^\s\uFEFF]",
    "0": r"\x00",
}
_ANY_CHARACTER: Final = r"[^\n\r\u2028\u2029]"
_REPETITION: Final = re.compile(r"\{([0-9]+)(,([0-9]*))?\}")
_PROPERTY: Final = re.compile(r"\\[pP]\{[A-Za-z0-9_=]+\}")
_CONTROL: Final = re.compile(r"\\c([A-Za-z])")
_GROUP: Final = re.compile(r"\((\?(:|<[A-Za-z_][A-Za-z0-9_]*>)?)?")

# Rough sizes of what a single character of text is matched with.
_PLAIN: Final = 1
_WIDE: Final = 5
_UNICODE: Final = 20


class Pattern:
    """A pattern, ready to be searched for in texts.

    Attributes:
        size: How large it is with its repetitions written out.

    Raises:
        UnsupportedSchema: It is too large, or needs an engine that backtracks.
    """

    def __init__(self, pattern: str) -> None:
        from pydantic_core import SchemaError, SchemaValidator, core_schema

        if len(pattern) > MAX_PATTERN:
            raise UnsupportedSchema(f"a pattern has more than {MAX_PATTERN:,} characters")
        reader = _Reader(pattern)
        reader.read()
        self.size = reader.size
        schema = core_schema.str_schema(pattern=reader.text, regex_engine="rust-regex")
        try:
            self._matches = SchemaValidator(schema).isinstance_python
        except SchemaError as error:
            if _is_pattern(pattern):
                raise UnsupportedSchema(
                    "a pattern cannot be matched without backtracking", backtracking=True
                ) from error
            raise UnsupportedSchema("a pattern is none") from error

    def is_in(self, text: str, run: Run) -> bool:
        """Whether some part of `text` matches."""
        run.spend(1 + self.size * len(text) // _PER_STEP)
        return self._matches(text)


def _is_pattern(pattern: str) -> bool:
    """Whether an engine that backtracks would take it; it is compiled, and never used."""
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


class _Reader:
    """Translates a pattern and takes its size, from left to right."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0
        self._parts: list[str] = []
        self.size = 0
        # The size of what a repetition would repeat, and of what stands before each open group.
        self._last = 0
        self._outside: list[int] = []

    @property
    def text(self) -> str:
        """The translation."""
        return "".join(self._parts)

    def read(self) -> None:
        """Read all of it.

        Raises:
            UnsupportedSchema: It is no pattern, or too large.
        """
        while self._at < len(self._pattern):
            self._piece(self._pattern[self._at])
            if self.size > MAX_PATTERN:
                raise UnsupportedSchema("a pattern is too large with its repetitions written out")

    def _piece(self, char: str) -> None:
        match char:
            case "\\":
                self._escape(inside=False)
            case "[":
                self._class()
            case "(":
                self._outside.append(self.size)
                self.size = 0
                found = _GROUP.match(self._pattern, self._at)
                assert found is not None  # it may be a bare parenthesis
                self._take(found[0], found[0])
            case ")":
                if not self._outside:
                    raise UnsupportedSchema("a pattern closes a group that it did not open")
                self._last = self.size
                self.size += self._outside.pop()
                self._take(char, char)
            case "{":
                self._brace()
            case ".":
                self._atom(char, _ANY_CHARACTER, _WIDE)
            case "}":
                self._atom(char, r"\}", _PLAIN)
            case "*" | "+" | "?" | "|":
                self._take(char, char)
            case _:
                self._atom(char, char, _PLAIN)

    def _take(self, original: str, translated: str) -> None:
        self._at += len(original)
        self._parts.append(translated)

    def _atom(self, original: str, translated: str, size: int) -> None:
        self._take(original, translated)
        self.size += size
        self._last = size

    def _brace(self) -> None:
        found = _REPETITION.match(self._pattern, self._at)
        if found is None:
            self._atom("{", r"\{", _PLAIN)
            return
        times = max(int(found[3] or 0), int(found[1]), 1)
        self.size += self._last * (times - 1)
        self._last *= times
        self._take(found[0], found[0])

    def _escape(self, *, inside: bool) -> None:
        """An escape; `inside` a class it is part of what the class counts as."""
        unicode = _PROPERTY.match(self._pattern, self._at)
        control = _CONTROL.match(self._pattern, self._at)
        whole = self._pattern[self._at : self._at + 2]
        translated, size = _ESCAPES.get(whole[1:], whole), _PLAIN
        if unicode is not None:
            whole = translated = unicode[0]
            size = _UNICODE
        elif control is not None:
            whole = control[0]
            translated = f"\\x{ord(control[1]) % 32:02x}"
        elif whole == r"\b":
            translated = r"\x08" if inside else r"(?-u:\b)"
        elif whole in {r"\D", r"\W", r"\S"}:
            size = _WIDE
        self._atom(whole, translated, size)

    def _class(self) -> None:
        opened = "[^" if self._pattern.startswith("[^", self._at) else "["
        if self._pattern.startswith("]", self._at + len(opened)):
            # Nothing at all, and anything at all.
            self._atom(f"{opened}]", r"[\s\S]" if opened == "[^" else r"[^\s\S]", _WIDE)
            return
        before = self.size
        self._take(opened, opened)
        while not self._pattern.startswith("]", self._at):
            char = self._pattern[self._at : self._at + 1]
            if char == "\\":
                self._escape(inside=True)
            elif not char:
                raise UnsupportedSchema("a pattern has a class that does not end")
            elif char in "[&~" or self._pattern.startswith("--", self._at):
                self._take(char, f"\\{char}")  # the engine has sets of sets
            else:
                self._take(char, char)
        self._take("]", "]")
        # A class is one state, however many characters it names.
        widest = _WIDE if opened == "[^" else _PLAIN
        self._last = max(widest, min(self.size - before, _UNICODE))
        self.size = before + self._last


# Values as JSON Schema sees them: their types, and which of them are equal.


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


# What is shared by all functions that make the check of a word.


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
