"""One check of one value: its budget, what it finds, and the places in a schema that it comes to.

A `Place` stands where `jsonschema` has its validator classes. Those leave their table of words for
another one at any inner ``$schema``, and put the whole value into a message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
from referencing.jsonschema import lookup_recursive_ref

from syncmcp._protocol.schema.patterns import Pattern
from syncmcp.errors import UnsupportedSchema

if TYPE_CHECKING:
    from jsonschema import TypeChecker
    from referencing import Specification

MAX_STEPS: Final = 2_000_000
"""How many steps one check may take; a step is about half a microsecond."""
MAX_NESTING: Final = 400
"""How many subschemas may be under way at one time, each within another."""
MAX_REFERENCE: Final = 2_000
"""The longest reference, in characters."""
LOOK_EVERY: Final = 10_000
"""After how many steps a check finds out whether it is still wanted."""

# What takes one step: characters that are read, members that are looked up.
_CHARACTERS: Final = 100
MEMBERS: Final = 16
# The steps of making a place, and of finding what a reference leads to.
_PLACE: Final = 10
_LOOK_UP: Final = 40

_LONGEST_NAME: Final = 60


class Problem:
    """Why a value does not fit.

    Attributes:
        message: What is wrong with it, without the value: it may hold anything, secrets too.
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
        names = [quoted(name) if isinstance(name, str) else name for name in self.path]
        place = "".join(f"[{name}]" for name in names)
        return f"{place} {self.message}" if place else self.message


def cut(text: str) -> str:
    """A text from a server, short enough for a message."""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 3]}..."


def quoted(name: str) -> str:
    """A name from a server, on one line and cut."""
    return repr(cut(name))


def too_deep() -> UnsupportedSchema:
    """The check went in too deep."""
    return UnsupportedSchema(f"the check is nested more than {MAX_NESTING} levels deep")


class Run:
    """The budget of one check.

    Args:
        look: Called on the thread of the check every `LOOK_EVERY` steps; what it raises ends it.
    """

    __slots__ = ("_left", "_look", "_look_at")

    def __init__(self, look: Callable[[], object]) -> None:
        self._left: float = MAX_STEPS
        self._look_at: float = MAX_STEPS - LOOK_EVERY
        self._look = look

    def spend(self, steps: float) -> None:
        """Count steps before they are taken.

        Raises:
            UnsupportedSchema: They are too many.
        """
        self._left -= steps
        if self._left < self._look_at:
            if self._left < 0:
                raise UnsupportedSchema(f"the check takes more than {MAX_STEPS:,} steps")
            self._look_at = max(0, self._left - LOOK_EVERY)
            self._look()


Word = Callable[["Place", Any, Any, Mapping[str, Any]], Iterable[Problem]]
"""Applies a word: given the place, what the schema says there, the value and the schema."""


class Dialect(NamedTuple):
    """What a check needs to know of a dialect."""

    name: str
    words: Mapping[str, Word]
    types: TypeChecker
    specification: Specification[Any]

    @property
    def old(self) -> bool:
        """Whether it is older than 2019-09."""
        return "unevaluatedItems" not in self.words

    def applied(self, schema: dict[str, Any]) -> dict[str, Any]:
        """What counts of a schema: in old dialects there is nothing beside a ``$ref``."""
        return {"$ref": schema["$ref"]} if self.old and "$ref" in schema else schema


class Knowledge:
    """What all checks by one schema share.

    Args:
        dialect: Its dialect.
        known: The ids of the subschemas that were found to be well-formed; `None` for any.
    """

    def __init__(self, dialect: Dialect, known: set[int] | None) -> None:
        self.dialect = dialect
        self.known = known
        self.patterns: dict[str, Pattern] = {}
        self._choices: dict[int, tuple[bool, frozenset[Hashable]]] = {}

    def choices(self, values: list[Any], run: Run) -> tuple[bool, frozenset[Hashable]]:
        """Whether there are arrays or objects in an ``enum``, and what identifies its values."""
        found = self._choices.get(id(values))
        if found is None:
            nested = any(isinstance(value, (list, dict)) for value in values)
            found = nested, frozenset([identity(value, run) for value in values])
            self._choices[id(values)] = found
        return found


class Place:
    """A subschema, and how the check came to it; the validator that words are given.

    It keeps the places that it leads to, so that all items of an array are checked in one place.
    """

    __slots__ = ("_depth", "_inner", "_words", "knowledge", "resolver", "run", "schema")

    def __init__(
        self, schema: Any, resolver: Any, knowledge: Knowledge, run: Run, depth: int = 0
    ) -> None:
        if depth > MAX_NESTING:
            raise too_deep()
        self.schema = schema
        self.resolver = resolver
        self.knowledge = knowledge
        self.run = run
        self._depth = depth
        self._inner: dict[int | str, Place] = {}
        self._words: list[tuple[Word, Any]] = []
        if schema is False:
            self._words.append((nothing, None))
        elif schema is not True:
            words, applied = knowledge.dialect.words, knowledge.dialect.applied(schema)
            self._words = [(words[word], applied[word]) for word in words if word in applied]
        run.spend(_PLACE)

    def iter_errors(self, value: Any, path: str | int | None = None) -> Iterator[Problem]:
        """Find the problems of `value`, which is at `path` in the value around it."""
        self.run.spend(1 + len(self._words))
        for word, said in self._words:
            for problem in word(self, said, value, self.schema):
                yield problem if path is None else problem.under(path)

    def is_valid(self, value: Any) -> bool:
        """Whether `value` fits."""
        return next(self.iter_errors(value), None) is None

    def evolve(self, *, schema: Any) -> Place:
        """The place of a part of this schema."""
        place = self._inner.get(id(schema))
        if place is None:
            resolver = self.resolver
            if isinstance(schema, dict):
                specification = self.knowledge.dialect.specification
                resolver = resolver.in_subresource(specification.create_resource(schema))
            place = self._inner[id(schema)] = self._further(schema, resolver)
        return place

    def descend(
        self,
        instance: Any,
        schema: Any,
        path: str | int | None = None,
        schema_path: object = None,
    ) -> Iterator[Problem]:
        """Find the problems of `instance` with a part of this schema."""
        return self.evolve(schema=schema).iter_errors(instance, path)

    def refer(self, word: str, reference: str) -> Place:
        """The place that a reference leads to.

        Raises:
            UnsupportedSchema: It leads elsewhere than when the schema was compiled, and not well:
                that may depend on how the check came here.
        """
        key = f"{word} {reference}"
        place = self._inner.get(key)
        if place is None:
            self.run.spend(_LOOK_UP)
            found = resolve(word, reference, self.resolver)
            known, schema = self.knowledge.known, found.contents
            if known is not None and isinstance(schema, dict) and id(schema) not in known:
                raise UnsupportedSchema("a reference leads to what was no schema before")
            place = self._inner[key] = self._further(found.contents, found.resolver)
        return place

    def is_type(self, value: Any, name: str) -> bool:
        """Whether `value` is of a type."""
        return self.knowledge.dialect.types.is_type(value, name)

    def matches(self, pattern: str, text: str) -> bool:
        """Whether some part of `text` matches a pattern of the schema."""
        patterns = self.knowledge.patterns
        if pattern not in patterns:  # one of a metaschema: those of a schema were compiled with it
            patterns[pattern] = Pattern(pattern)
        self.run.spend(patterns[pattern].cost(text))
        return patterns[pattern].is_in(text)

    def _further(self, schema: Any, resolver: Any) -> Place:
        return Place(schema, resolver, self.knowledge, self.run, self._depth + 1)


def resolve(word: str, reference: Any, resolver: Any) -> Any:
    """Find what a reference leads to, in this schema or among the metaschemas.

    Raises:
        UnsupportedSchema: That is no schema, or not there.
    """
    if not isinstance(reference, str):
        raise UnsupportedSchema("a reference is no text")
    if len(reference) > MAX_REFERENCE:
        raise UnsupportedSchema(f"a reference has more than {MAX_REFERENCE:,} characters")
    where = f"the reference {quoted(reference)} leads"
    try:
        if word == "$recursiveRef":
            found = lookup_recursive_ref(resolver)
        else:
            found = resolver.lookup(reference)
    except (PointerToNowhere, NoSuchAnchor, InvalidAnchor):
        raise UnsupportedSchema(f"{where} nowhere") from None
    except Unresolvable:
        raise UnsupportedSchema(f"{where} out of the schema; nothing is fetched") from None
    except (AttributeError, LookupError, TypeError, ValueError):
        # What a pointer goes through need not be what `referencing` takes it for.
        raise UnsupportedSchema(f"{where} nowhere") from None
    if not isinstance(found.contents, (dict, bool)):
        raise UnsupportedSchema(f"{where} to no schema")
    return found


def identity(value: Any, run: Run, depth: int = 0) -> Hashable:
    """What equal values share and others do not: 1 and 1.0 are equal, 1 and true are not.

    It is made of texts, whose hashes nobody can foresee: numbers with the same hash are easy to
    find, and a set of them is slow.
    """
    run.spend(1)
    if isinstance(value, str):
        run.spend(len(value) / _CHARACTERS)
        return f"s{value}"
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and not value.is_integer():
        return f"f{value!r}"
    if isinstance(value, (int, float)):
        return f"i{int(value):x}"
    if depth == MAX_NESTING:
        raise too_deep()
    run.spend(1)
    if isinstance(value, list):
        return tuple([identity(item, run, depth + 1) for item in value])
    run.spend(sum(map(len, value)) / _CHARACTERS)
    return frozenset([(name, identity(item, run, depth + 1)) for name, item in value.items()])


def nothing(_place: Place, _said: Any, _value: Any, _schema: Any) -> Iterable[Problem]:
    """Accept no value."""
    return (Problem("must not be there"),)
