"""One check of one value: the words of `jsonschema` on a budget.

`jsonschema` has the dialects: their words, types and metaschemas. Its functions are used for the
words that only lead to other schemas. The others would put the whole value into a message, compare
each item with each, or match patterns that backtrack. Its validator classes are replaced by
`Place`, because they leave their table of words for another one at any inner ``$schema``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jsonschema import Draft202012Validator
from referencing.exceptions import InvalidAnchor, NoSuchAnchor, PointerToNowhere, Unresolvable
from referencing.jsonschema import lookup_recursive_ref

from syncmcp._protocol.schema.patterns import Pattern
from syncmcp.errors import UnsupportedSchema

if TYPE_CHECKING:
    from jsonschema import TypeChecker
    from jsonschema.protocols import Validator
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
_MEMBERS: Final = 16
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
            self._words.append((_nothing, None))
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


# -- words that demand something themselves --------------------------------------------------------


def _limit(kind: type | tuple[type, ...], fits: Callable[[Any, Any], bool], text: str) -> Word:
    """A word that sets values of a kind a limit; `text` says what is wrong with one beyond it."""

    def word(_place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
        if not isinstance(value, kind) or isinstance(value, bool) or fits(value, said):
            return ()
        return (Problem(text.format(cut(str(said)))),)

    return word


_NUMBER: Final = (int, float)
_ABOVE: Final = _limit(_NUMBER, lambda value, limit: value > limit, "is not above {}")
_BELOW: Final = _limit(_NUMBER, lambda value, limit: value < limit, "is not below {}")
_AT_LEAST: Final = _limit(_NUMBER, lambda value, limit: value >= limit, "is below {}")
_AT_MOST: Final = _limit(_NUMBER, lambda value, limit: value <= limit, "is above {}")


def _minimum(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
    # In draft 4 another word says whether the limit itself is allowed.
    word = _ABOVE if schema.get("exclusiveMinimum") is True else _AT_LEAST
    return word(place, said, value, schema)


def _maximum(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
    word = _BELOW if schema.get("exclusiveMaximum") is True else _AT_MOST
    return word(place, said, value, schema)


def _is_multiple(value: Any, divisor: Any) -> bool:
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor == 0
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return _exact(value) % _exact(divisor) == 0


def _exact(number: Any) -> Fraction:
    """A number as it is written, not as it is stored: a tenth is a tenth."""
    return Fraction(Decimal(repr(number)) if isinstance(number, float) else number)


def _nothing(_place: Place, _said: Any, _value: Any, _schema: Any) -> Iterable[Problem]:
    return (Problem("must not be there"),)


def _type(place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    names, types = [said] if isinstance(said, str) else said, place.knowledge.dialect.types
    for name in names:
        if types.is_type(value, name):
            return ()
    return (Problem(f"is not of type {' or '.join(names)}"),)


def _enum(place: Place, values: list[Any], value: Any, _schema: Any) -> Iterable[Problem]:
    nested, choices = place.knowledge.choices(values, place.run)
    if (nested or not isinstance(value, (list, dict))) and identity(value, place.run) in choices:
        return ()
    return (Problem("is none of the values that it may be"),)


def _const(place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    alike = isinstance(said, (list, dict)) == isinstance(value, (list, dict))
    if alike and identity(said, place.run) == identity(value, place.run):
        return ()
    return (Problem("is none of the values that it may be"),)


def _unique_items(place: Place, said: bool, value: Any, _schema: Any) -> Iterable[Problem]:
    found = set()
    for index, item in enumerate(value if said and isinstance(value, list) else ()):
        same = identity(item, place.run)
        if same in found:
            return (Problem("is there twice").under(index),)
        found.add(same)
    return ()


def _pattern(place: Place, pattern: str, value: Any, _schema: Any) -> Iterable[Problem]:
    if not isinstance(value, str) or place.matches(pattern, value):
        return ()
    return (Problem(f"does not match the pattern {quoted(pattern)}"),)


def _required(place: Place, names: list[str], value: Any, _schema: Any) -> Iterable[Problem]:
    if isinstance(value, dict):
        place.run.spend(len(names) / _MEMBERS)
        for name in names:
            if name not in value:
                return (Problem(f"lacks {quoted(name)}", name),)
    return ()


# -- words that lead to other schemas --------------------------------------------------------------


def _borrowed(function: Any) -> Word:
    """A word as `jsonschema` applies it."""

    def word(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
        if isinstance(said, (dict, list)):
            place.run.spend(len(said) / _MEMBERS)
        problems: Iterable[Problem] = function(place, said, value, schema)
        return problems

    return word


_PREFIX_ITEMS: Final = _borrowed(Draft202012Validator.VALIDATORS["prefixItems"])


def _reference(word: str) -> Word:
    return lambda place, said, value, _schema: place.refer(word, said).iter_errors(value)


def _any_of(place: Place, schemas: list[Any], value: Any, _schema: Any) -> Iterable[Problem]:
    for schema in schemas:
        if place.evolve(schema=schema).is_valid(value):
            return ()
    return (Problem("fits none of the alternatives"),)


def _one_of(place: Place, schemas: list[Any], value: Any, _schema: Any) -> Iterable[Problem]:
    fits = False
    for schema in schemas:
        if place.evolve(schema=schema).is_valid(value):
            if fits:
                return (Problem("fits more than one of the alternatives"),)
            fits = True
    return () if fits else (Problem("fits none of the alternatives"),)


def _not(place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    return (Problem("is what it must not be"),) if place.evolve(schema=said).is_valid(value) else ()


def _items(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
    if isinstance(said, list):  # until 2019-09
        return _PREFIX_ITEMS(place, said, value, schema)
    has_prefix = "prefixItems" in place.knowledge.dialect.words
    return _items_after(place, said, value, schema.get("prefixItems", ()) if has_prefix else ())


def _additional_items(
    place: Place, said: Any, value: Any, schema: Mapping[str, Any]
) -> Iterable[Problem]:
    items = schema.get("items")
    return _items_after(place, said, value, items) if isinstance(items, list) else ()


def _items_after(place: Place, schema: Any, value: Any, before: Sequence[Any]) -> Iterator[Problem]:
    if isinstance(value, list):
        item = place.evolve(schema=schema)
        for index in range(len(before), len(value)):
            yield from item.iter_errors(value[index], index)


def _contains(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
    if not isinstance(value, list):
        return ()
    found = len(_matching(place.evolve(schema=said), value))
    limits = {} if place.knowledge.dialect.old else schema
    if found < (least := limits.get("minContains", 1)):
        return (Problem(f"has {found} of the items of which it wants at least {cut(str(least))}"),)
    if found > (most := limits.get("maxContains", math.inf)):
        return (Problem(f"has {found} of the items of which it wants at most {cut(str(most))}"),)
    return ()


def _matching(place: Place, items: list[Any]) -> list[int]:
    return [index for index, item in enumerate(items) if place.is_valid(item)]


def _dependent(
    place: Place, needs: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Problem]:
    place.run.spend(len(needs) / _MEMBERS)
    for name in needs if isinstance(value, dict) else ():
        if name not in value:
            continue
        if isinstance(needs[name], list):
            for problem in _required(place, needs[name], value, _schema):
                yield Problem(f"{problem.message}, wanted beside {quoted(name)}", problem.missing)
        else:
            yield from place.descend(value, needs[name])


def _pattern_properties(
    place: Place, schemas: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Problem]:
    for pattern, schema in schemas.items():
        for name in value if isinstance(value, dict) else ():
            if place.matches(pattern, name):
                yield from place.descend(value[name], schema, name)


def _additional_properties(
    place: Place, said: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Problem]:
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for name in value if isinstance(value, dict) else ():
        place.run.spend(1 / _MEMBERS)
        if name not in known and not any(place.matches(pattern, name) for pattern in patterns):
            yield from place.descend(value[name], said, name)


def _property_names(place: Place, said: Any, value: Any, _schema: Any) -> Iterator[Problem]:
    for name in value if isinstance(value, dict) else ():
        if not place.evolve(schema=said).is_valid(name):
            yield Problem("has a name that it may not have").under(name)


# -- words about what no other word has looked at --------------------------------------------------


def _unevaluated(word: str, kind: type[Any]) -> Word:
    def unevaluated(place: Place, said: Any, value: Any, _schema: Any) -> Iterator[Problem]:
        if isinstance(value, kind):
            seen = _evaluated(place, value, word)
            names: Iterable[Any] = value if isinstance(value, dict) else range(len(value))
            for name in names:
                if name not in seen:
                    yield from place.descend(value[name], said, name)

    return unevaluated


def _evaluated(place: Place, value: Any, besides: str | None = None) -> set[Any]:
    """The names or indexes that a schema has looked at in `value`, which fits it."""
    place.run.spend(1 + len(value) / _MEMBERS)
    if isinstance(place.schema, bool):
        return set()
    words = place.knowledge.dialect.words
    said = {word: place.schema[word] for word in words if word in place.schema if word != besides}
    seen: set[Any] = set()
    if isinstance(value, dict):
        if "additionalProperties" in said or "unevaluatedProperties" in said:
            return set(value)
        seen.update(said.get("properties", {}).keys() & value.keys())
        for pattern in said.get("patternProperties", ()):
            seen.update(name for name in value if place.matches(pattern, name))
    else:
        items = said.get("items", said.get("prefixItems", ()))
        if ("items" in said and not isinstance(items, list)) or "unevaluatedItems" in said:
            return set(range(len(value)))
        if "additionalItems" in said and "items" in said:
            return set(range(len(value)))
        seen.update(range(len(items)))
        if "contains" in said and "prefixItems" in words:  # not in 2019-09
            seen.update(_matching(place.evolve(schema=said["contains"]), value))
    for inner in _same_value(place, said, value):
        if inner.is_valid(value):
            seen |= _evaluated(inner, value)
    return seen


def _same_value(place: Place, said: Mapping[str, Any], value: Any) -> Iterator[Place]:
    """The places where a schema has the same value checked."""
    for word in REFERENCES & said.keys():
        yield place.refer(word, said[word])
    schemas = [schema for word in ("allOf", "anyOf", "oneOf") for schema in said.get(word, ())]
    needs = said.get("dependentSchemas", {})
    schemas += [schema for name, schema in needs.items() if name in value]
    if "if" in said:
        schemas.append(said["if"])
        branch = "then" if place.evolve(schema=said["if"]).is_valid(value) else "else"
        schemas.append(place.schema.get(branch, True))
    for schema in schemas:
        yield place.evolve(schema=schema)


REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

# In the order in which they are applied: the cheap ones first.
_OWN: Final[Mapping[str, Word]] = {
    "type": _type,
    "maxLength": _limit(str, lambda text, most: len(text) <= most, "has more than {} characters"),
    "minLength": _limit(str, lambda text, few: len(text) >= few, "has fewer than {} characters"),
    "maxItems": _limit(list, lambda items, most: len(items) <= most, "has more than {} items"),
    "minItems": _limit(list, lambda items, few: len(items) >= few, "has fewer than {} items"),
    "maxProperties": _limit(
        dict, lambda names, most: len(names) <= most, "has more than {} members"
    ),
    "minProperties": _limit(
        dict, lambda names, few: len(names) >= few, "has fewer than {} members"
    ),
    "maximum": _maximum,
    "minimum": _minimum,
    "exclusiveMaximum": _BELOW,
    "exclusiveMinimum": _ABOVE,
    "multipleOf": _limit(_NUMBER, _is_multiple, "is not a multiple of {}"),
    "required": _required,
    "const": _const,
    "enum": _enum,
    "pattern": _pattern,
    "uniqueItems": _unique_items,
    **{word: _reference(word) for word in REFERENCES},
    "items": _items,
    "additionalItems": _additional_items,
    "contains": _contains,
    "propertyNames": _property_names,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "dependencies": _dependent,
    "dependentRequired": _dependent,
    "dependentSchemas": _dependent,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
    "unevaluatedItems": _unevaluated("unevaluatedItems", list),
    "unevaluatedProperties": _unevaluated("unevaluatedProperties", dict),
}
_BORROWED: Final = ("properties", "prefixItems", "allOf", "if")


def words_of(validator: type[Validator]) -> dict[str, Word]:
    """The words of a dialect of `jsonschema`, each with the function that is safe to apply."""
    theirs = validator.VALIDATORS
    borrowed = {word: _borrowed(theirs[word]) for word in _BORROWED if word in theirs}
    return {**{word: own for word, own in _OWN.items() if word in theirs}, **borrowed}
