"""One check of one value: its budget, its problems, and the subschemas that it applies.

A `Place` has the role of a validator object of `jsonschema`. A validator of `jsonschema` would use
another table of keywords after an inner ``$schema``, and put the whole value into a message.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
from referencing.jsonschema import lookup_recursive_ref

from syncmcp._base.origin import LONGEST_HOST
from syncmcp._base.text import cut
from syncmcp._protocol.patterns import Pattern
from syncmcp.errors import UnsupportedSchema

if TYPE_CHECKING:
    from jsonschema import TypeChecker
    from referencing import Specification

MAX_STEPS: Final = 2_000_000
"""The most steps of one check; a step takes about half a microsecond."""
MAX_PATTERN_MEMORY: Final = 64 * 1024 * 1024
"""The most bytes of the compiled patterns of one check, which are discarded beyond this limit."""
MAX_NESTING: Final = 400
"""The deepest nesting of subschemas that are applied within each other."""
MAX_REFERENCE: Final = 2_000
"""The longest reference, and the longest identifier joined to enclosing ones, in characters."""
LOOK_EVERY: Final = 10_000
"""The steps between two calls of `look`, with which a check detects that its call has ended."""

# The characters that are read in one step, and the members that are looked up in one step.
_CHARACTERS: Final = 100
MEMBERS: Final = 16
# The steps of creating a place, and the least steps of resolving a reference. A dynamic reference
# adds steps for each reference before it.
_PLACE: Final = 10
_LOOK_UP: Final = 40
_GO_THROUGH: Final = 8
# Pairs of parts of a pointer in one step: for each part, `referencing` examines all before it.
_PAIRS: Final = 10
# Characters of an identifier that are joined to a base in one step.
_JOINED: Final = 16
# Pairs of characters of a host that is not ASCII, which are normalized in one step.
_NORMALIZED: Final = 64


class Problem:
    """A reason why a value does not fit its schema."""

    __slots__ = ("_inside_out", "message", "missing")

    def __init__(self, message: str, missing: str | None = None) -> None:
        self.message = message  # without the value, which may contain secrets
        self.missing = missing  # the name of a missing member, if that is the reason
        self._inside_out: list[str | int] = []

    def under(self, name: str | int) -> Problem:
        """Add the enclosing level to the path, and return the same problem."""
        self._inside_out.append(name)
        return self

    @property
    def path(self) -> tuple[str | int, ...]:
        """The path to the part of the value: names and indexes, the outermost first."""
        return tuple(reversed(self._inside_out))

    def __str__(self) -> str:
        names = [quoted(name) if isinstance(name, str) else name for name in self.path]
        place = "".join(f"[{name}]" for name in names)
        return f"{place} {self.message}" if place else self.message


def quoted(name: str) -> str:
    """Return a name from a server for a message: on one line, and cut."""
    return repr(cut(name))


def too_deep() -> UnsupportedSchema:
    """Return the error of a check that is nested too deeply."""
    return UnsupportedSchema(f"the check is nested more than {MAX_NESTING} levels deep")


class Run:
    """The budget of one check; `look` is called every `LOOK_EVERY` steps, and may end the check."""

    __slots__ = ("_compiled", "_left", "_look", "_look_at", "_memory")

    def __init__(self, look: Callable[[], object]) -> None:
        self._memory = 0  # of the compiled patterns
        self._compiled: dict[str, Callable[[str], bool]] = {}
        self._left: float = MAX_STEPS
        self._look_at: float = MAX_STEPS - LOOK_EVERY
        self._look = look

    def spend(self, steps: float) -> None:
        """Count steps before they are taken; `UnsupportedSchema` if the budget is used up."""
        self._left -= steps
        if self._left < self._look_at:
            if self._left < 0:
                raise UnsupportedSchema(f"the check takes more than {MAX_STEPS:,} steps")
            self._look_at = max(0, self._left - LOOK_EVERY)
            self._look()

    def matches(self, pattern: Pattern, text: str) -> bool:
        """Return True if a part of `text` matches a pattern; the compiled form is cached."""
        compiled = self._compiled.get(pattern.text)
        if compiled is None:
            self.spend(pattern.compiling)
            self._grow(pattern.memory)
            compiled = self._compiled[pattern.text] = pattern.compiled()
        self.spend(pattern.cost(text))
        self._grow(pattern.growth(text))
        return compiled(text)

    def _grow(self, memory: int) -> None:
        self._memory += memory
        if self._memory > MAX_PATTERN_MEMORY:
            self._compiled.clear()
            self._memory = memory


Word = Callable[["Place", Any, Any, Mapping[str, Any]], Iterable[Problem]]
"""Applies a keyword: given the place, the value of the keyword, the checked value, the schema."""


class Dialect(NamedTuple):
    """The keywords, types and rules for references of a dialect."""

    name: str
    words: Mapping[str, Word]
    types: TypeChecker
    specification: Specification[Any]

    @property
    def old(self) -> bool:
        """True if the dialect is older than 2019-09."""
        return "unevaluatedItems" not in self.words

    def applied(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the keywords that apply: old dialects ignore keywords next to ``$ref``."""
        return {"$ref": schema["$ref"]} if self.old and "$ref" in schema else schema


class Knowledge:
    """Data of all checks by one schema; `known` are the ids of valid subschemas, `None` for all.

    `longest` is the length of its longest identifier joined to the enclosing ones; 0 without any.
    `segment` is the length of the longest segment in them that is not ASCII.
    """

    def __init__(self, dialect: Dialect, known: set[int] | None) -> None:
        self.dialect = dialect
        self.known = known
        self.longest = 0
        self.segment = 0
        self.patterns: dict[str, Pattern] = {}
        self._choices: dict[int, tuple[bool, frozenset[Hashable]]] = {}

    @property
    def joining(self) -> float:
        """The steps of joining an identifier or a reference to a base."""
        return self.longest / _JOINED + self.segment**2 / _NORMALIZED

    def looking_up(self, word: str, reference: Any, before: int) -> float:
        """Return the steps of resolving a reference that follows `before` other references."""
        text = reference if isinstance(reference, str) else ""
        parts = sum(map(text.count, "/%"))
        steps = _LOOK_UP + parts * parts / _PAIRS + (1 + parts) * self.joining
        steps += segment_beyond_ascii(text) ** 2 / _NORMALIZED
        return steps if word == "$ref" else steps + before * (_GO_THROUGH + self.joining)

    def choices(self, values: list[Any], run: Run) -> tuple[bool, frozenset[Hashable]]:
        """Return whether an ``enum`` has arrays or objects, and the identities of its values."""
        found = self._choices.get(id(values))
        if found is None:
            nested = any(isinstance(value, (list, dict)) for value in values)
            found = nested, frozenset([identity(value, run) for value in values])
            self._choices[id(values)] = found
        return found


class Place:
    """A subschema in one check; the validator that is passed to the functions of keywords.

    It caches the places that it leads to, so that all items of an array are checked by one place.
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
        run.spend(_PLACE + knowledge.joining)

    def iter_errors(self, value: Any, path: str | int | None = None) -> Iterator[Problem]:
        """Yield the problems of `value`, which is at `path` in the enclosing value."""
        self.run.spend(1 + len(self._words))
        for word, said in self._words:
            for problem in word(self, said, value, self.schema):
                yield problem if path is None else problem.under(path)

    def is_valid(self, value: Any) -> bool:
        """Return True if `value` fits."""
        return next(self.iter_errors(value), None) is None

    def evolve(self, *, schema: Any) -> Place:
        """Return the place of a subschema of this schema."""
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
        """Yield the problems of `instance` with a subschema of this schema."""
        return self.evolve(schema=schema).iter_errors(instance, path)

    def refer(self, word: str, reference: str) -> Place:
        """Return the place that a reference leads to.

        `UnsupportedSchema` if it leads to a part that was not checked at compilation: the target of
        a dynamic reference depends on the schemas around it.
        """
        key = f"{word} {reference}"
        place = self._inner.get(key)
        if place is None:
            self.run.spend(self.knowledge.looking_up(word, reference, self._depth))
            found = resolve(word, reference, self.resolver)
            known, schema = self.knowledge.known, found.contents
            if known is not None and isinstance(schema, dict) and id(schema) not in known:
                raise UnsupportedSchema("a reference leads to a value that is not a schema")
            place = self._inner[key] = self._further(found.contents, found.resolver)
        return place

    def is_type(self, value: Any, name: str) -> bool:
        """Return True if `value` is of a type."""
        return self.knowledge.dialect.types.is_type(value, name)

    def matches(self, pattern: str, text: str) -> bool:
        """Return True if some part of `text` matches a pattern of the schema."""
        patterns = self.knowledge.patterns
        if pattern not in patterns:  # of a metaschema: compilation adds the patterns of a schema
            patterns[pattern] = Pattern(pattern)
        return self.run.matches(patterns[pattern], text)

    def _further(self, schema: Any, resolver: Any) -> Place:
        return Place(schema, resolver, self.knowledge, self.run, self._depth + 1)


def resolve(word: str, reference: Any, resolver: Any) -> Any:
    """Resolve a reference, in this schema or among the metaschemas, to a schema."""
    if not isinstance(reference, str):
        raise UnsupportedSchema("a reference is not a string")
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
        raise UnsupportedSchema(
            f"{where} outside the schema; the client does not fetch it"
        ) from None
    except (AttributeError, LookupError, TypeError, ValueError):
        # The values in the path of a pointer may have types that `referencing` does not expect.
        raise UnsupportedSchema(f"{where} nowhere") from None
    if not isinstance(found.contents, (dict, bool)):
        raise UnsupportedSchema(f"{where} to a value that is not a schema")
    return found


def segment_beyond_ascii(reference: str) -> int:
    """Return the length of the longest segment that is not ASCII, maybe a host; 0 without any.

    `UnsupportedSchema` if it is longer than hosts can be.
    """
    place = reference.partition("#")[0]
    if place.isascii():
        return 0
    longest = max(len(segment) for segment in place.split("/") if not segment.isascii())
    if longest > LONGEST_HOST:
        raise UnsupportedSchema(
            f"an identifier or a reference has a part with more than {LONGEST_HOST} characters,"
            " not all of them ASCII"
        )
    return longest


def identity(value: Any, run: Run, depth: int = 0) -> Hashable:
    """Return a key that only equal values share: 1 and 1.0 are equal, 1 and true are not.

    It consists of strings, whose hashes a server cannot predict. Numbers with equal hashes are easy
    to find, and make a set slow.
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
    return (Problem("is not allowed"),)
