"""One field of a form: what it takes, and what is wrong with an answer to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, TypeGuard, cast

from syncmcp.handlers.form_text import (
    Format,
    asks_for_a_secret,
    format_problem,
    local_date_time,
    read_boolean,
    read_number,
)

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

__all__ = [
    "ABSENT",
    "Absent",
    "Bounds",
    "Field",
    "Kind",
    "Option",
    "Value",
    "compile_pattern",
    "is_number",
    "is_unicode",
]

Kind = Literal["string", "number", "integer", "boolean", "choice", "choices"]
"""What a field takes; ``"choice"`` is one of its options, ``"choices"`` a list of them."""

Value: TypeAlias = "str | int | float | bool | list[str]"
"""An answer, as it is sent."""

MAX_MATCHED: Final = 2_000
"""The longest answer that is held against a pattern, in characters.

The engine takes time in proportion to the length, but a short pattern may make the factor huge.
"""


_LARGEST: Final = int(1.7976931348623157e308)
"""Beyond this, JSON readers do not agree on what a number is."""


class Absent(Enum):
    """The type of `ABSENT`."""

    ABSENT = "absent"

    def __repr__(self) -> str:
        return self.name


ABSENT: Final = Absent.ABSENT
"""The default of a field that has none."""


class Option(NamedTuple):
    """Something to choose."""

    value: str
    """What is sent."""

    title: str
    """What is shown; the value itself if the server gave no title."""


class Bounds(NamedTuple):
    """The least and the most that a field takes, both inclusive; `None` is no bound.

    Of a text it is the number of characters, of a number its value, of choices how many.
    """

    minimum: int | float | None = None
    maximum: int | float | None = None


_UNBOUNDED: Final = Bounds()


@dataclass(frozen=True, kw_only=True)
class Field:
    """One thing to fill in.

    Attributes:
        name: Its key in the content.
        label: What to call it before people: its title, or else its name.
        description: More words for people.
        required: Whether there must be an answer.
        kind: What it takes.
        format: What a text must be written as.
        pattern: A regular expression that a text must match, anywhere unless it has anchors.
        options: What there is to choose from, in the order to show it.
        default: What is sent if nothing else is given, or `ABSENT`. A default that is no answer
            to its own field counts as absent: it could not be sent.
        bounds: The least and the most it takes.
    """

    name: str
    label: str
    kind: Kind
    description: str | None = None
    required: bool = False
    format: Format | None = None
    pattern: str | None = None
    options: tuple[Option, ...] = ()
    default: Value | Absent = ABSENT
    bounds: Bounds = _UNBOUNDED

    @cached_property
    def secret(self) -> bool:
        """Whether it looks as if it asked for a password, a key, a card or the like.

        Servers must not ask for such things in a form, and a person is to be warned. It is a guess
        from the field's words, no protection. What is chosen or ticked is no secret.
        """
        typed = self.kind in ("string", "number", "integer")
        return typed and asks_for_a_secret(self.name, self.label, self.description or "")

    def problem(self, value: object) -> str | None:
        """Say in a sentence for a person what is wrong with an answer; `None` if nothing is."""
        match self.kind:
            case "string":
                return self._text_problem(value)
            case "number" | "integer":
                return self._number_problem(value)
            case "boolean":
                return None if isinstance(value, bool) else "Answer yes or no."
            case "choice":
                fits = isinstance(value, str) and value in self._values
                return None if fits else "Choose one of the options."
            case "choices":
                return self._choices_problem(value)

    def parse(self, text: str) -> Value:
        """Read an answer that a person typed.

        A choice is given by its value or its title; several are separated by lines or commas. A
        date and time without an offset is taken as one of this computer's time zone.

        Raises:
            ValueError: It is no answer to this field; the message is a sentence for a person.
        """
        value: Value | None
        match self.kind:
            case "string":
                value = text.strip() if self.format else text
                if self.format == "date-time":
                    value = local_date_time(value)
            case "number" | "integer":
                value = read_number(text)
            case "boolean":
                value = read_boolean(text)
            case "choice":
                value = self._choice(text)
            case "choices":
                value = self._choices(text)
        problem = self.problem(value)
        if problem is not None or value is None:
            raise ValueError(problem)
        return value

    @cached_property
    def _values(self) -> frozenset[str]:
        return frozenset(option.value for option in self.options)

    def _text_problem(self, value: object) -> str | None:
        if not isinstance(value, str):
            return "Give a text."
        least, most = self.bounds
        if least is not None and len(value) < least:
            return f"Give at least {least} characters, not {len(value)}."
        if most is not None and len(value) > most:
            return f"Give at most {most} characters, not {len(value)}."
        if not is_unicode(value):
            return "This text has characters that cannot be sent."
        if self.pattern is not None:
            if len(value) > MAX_MATCHED:
                return f"Give at most {MAX_MATCHED} characters, not {len(value)}."
            if not compile_pattern(self.pattern).isinstance_python(value):
                return f"Give a text that matches the pattern {self.pattern}"
        return None if self.format is None else format_problem(self.format, value)

    def _number_problem(self, value: object) -> str | None:
        whole = self.kind == "integer"
        if not is_number(value) or (whole and value != value // 1):
            return "Give a whole number." if whole else "Give a number."
        least, most = self.bounds
        if least is not None and value < least:
            return f"Give a number that is at least {least}."
        if most is not None and value > most:
            return f"Give a number that is at most {most}."
        return None

    def _choices_problem(self, value: object) -> str | None:
        if not isinstance(value, list):
            return "Choose from the options."
        chosen = cast("list[object]", value)
        if not all(isinstance(choice, str) and choice in self._values for choice in chosen):
            return "Choose from the options only."
        if len(set(chosen)) < len(chosen):
            return "Choose each option only once."
        least, most = self.bounds
        if least is not None and len(chosen) < least:
            return f"Choose at least {least}, not {len(chosen)}."
        if most is not None and len(chosen) > most:
            return f"Choose at most {most}, not {len(chosen)}."
        return None

    def _choice(self, text: str) -> str | None:
        for given in (text, text.strip()):
            if given in self._values:
                return given
            titled = [option.value for option in self.options if option.title == given]
            if len(titled) == 1:  # a title that several options bear names none of them
                return titled[0]
        return None

    def _choices(self, text: str) -> list[str] | None:
        alone = self._choice(text)
        if alone is not None:  # it may have a comma in it
            return [alone]
        parts = text.splitlines() if "\n" in text.strip() else text.split(",")
        chosen = [self._choice(part) for part in parts if part.strip()]
        return None if None in chosen else cast("list[str]", chosen)


def compile_pattern(pattern: str) -> SchemaValidator:
    """Compile a pattern for an engine that never backtracks: its time is linear in the text."""
    from pydantic_core import SchemaValidator, core_schema

    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))


def is_unicode(text: str) -> bool:
    """Whether it can be sent: a lone surrogate, as JSON may escape it, is no character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that JSON can carry. `True` is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _LARGEST
