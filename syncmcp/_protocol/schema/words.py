"""The keywords of JSON Schema, in a form that is safe for schemas and values of servers.

`jsonschema` defines the dialects: their keywords, types and metaschemas. Its functions are used for
keywords that only apply subschemas. Its other functions would put the whole value into a message,
compare each item with each other item, or match patterns that backtrack.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from jsonschema import Draft202012Validator

from syncmcp._base.text import counted, cut
from syncmcp._protocol.schema.place import MEMBERS, Place, Problem, Word, identity, quoted

if TYPE_CHECKING:
    from jsonschema.protocols import Validator

# -- assertions ----------------------------------------------------------------------------------


def _limit(kind: type | tuple[type, ...], fits: Callable[[Any, Any], bool], text: str) -> Word:
    """Return a keyword that limits values of a kind; `text` is the problem of other values."""

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


def _bound(exclusive: str, beyond: Word, up_to: Word) -> Word:
    """Return a limit that is exclusive if the keyword `exclusive` is true, as in draft-04."""

    def word(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
        limit = beyond if schema.get(exclusive) is True else up_to
        return limit(place, said, value, schema)

    return word


def _is_multiple(value: Any, divisor: Any) -> bool:
    if isinstance(value, int) and isinstance(divisor, int):
        return value % divisor == 0
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return _exact(value) % _exact(divisor) == 0


def _exact(number: Any) -> Fraction:
    """Return the exact value of a number as written in JSON: 0.1 is exactly a tenth."""
    return Fraction(Decimal(repr(number)) if isinstance(number, float) else number)


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
    return (Problem("is not one of the allowed values"),)


def _const(place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    alike = isinstance(said, (list, dict)) == isinstance(value, (list, dict))
    if alike and identity(said, place.run) == identity(value, place.run):
        return ()
    return (Problem("is not the allowed value"),)


def _unique_items(place: Place, said: bool, value: Any, _schema: Any) -> Iterable[Problem]:
    found = set()
    for index, item in enumerate(value if said and isinstance(value, list) else ()):
        same = identity(item, place.run)
        if same in found:
            return (Problem("appears twice").under(index),)
        found.add(same)
    return ()


def _pattern(place: Place, pattern: str, value: Any, _schema: Any) -> Iterable[Problem]:
    if not isinstance(value, str) or place.matches(pattern, value):
        return ()
    return (Problem(f"does not match the pattern {quoted(pattern)}"),)


def _required(place: Place, names: list[str], value: Any, _schema: Any) -> Iterable[Problem]:
    if isinstance(value, dict):
        place.run.spend(len(names) / MEMBERS)
        for name in names:
            if name not in value:
                return (Problem(f"lacks {quoted(name)}", name),)
    return ()


# -- applicators ---------------------------------------------------------------------------------


def _borrowed(function: Any) -> Word:
    """Return a keyword that calls the function of `jsonschema`."""

    def word(place: Place, said: Any, value: Any, schema: Mapping[str, Any]) -> Iterable[Problem]:
        if isinstance(said, (dict, list)):
            place.run.spend(len(said) / MEMBERS)
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
    return (Problem("matches none of the alternatives"),)


def _one_of(place: Place, schemas: list[Any], value: Any, _schema: Any) -> Iterable[Problem]:
    fits = False
    for schema in schemas:
        if place.evolve(schema=schema).is_valid(value):
            if fits:
                return (Problem("matches more than one of the alternatives"),)
            fits = True
    return () if fits else (Problem("matches none of the alternatives"),)


def _not(place: Place, said: Any, value: Any, _schema: Any) -> Iterable[Problem]:
    if not place.evolve(schema=said).is_valid(value):
        return ()
    return (Problem("matches a schema that it must not match"),)


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
        return (
            Problem(f"has {counted(found, 'matching items')}, needs at least {cut(str(least))}"),
        )
    if found > (most := limits.get("maxContains", math.inf)):
        return (Problem(f"has {counted(found, 'matching items')}, may have {cut(str(most))}"),)
    return ()


def _matching(place: Place, items: list[Any]) -> list[int]:
    return [index for index, item in enumerate(items) if place.is_valid(item)]


def _dependent(
    place: Place, needs: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Problem]:
    place.run.spend(len(needs) / MEMBERS)
    for name in needs if isinstance(value, dict) else ():
        if name not in value:
            continue
        if isinstance(needs[name], list):
            for problem in _required(place, needs[name], value, _schema):
                yield Problem(f"{problem.message}, required with {quoted(name)}", problem.missing)
        else:
            yield from place.descend(value, needs[name])


def _pattern_properties(
    place: Place, schemas: Mapping[str, Any], value: Any, _schema: Any
) -> Iterator[Problem]:
    place.run.spend(len(schemas) / MEMBERS)
    for pattern, schema in schemas.items():
        for name in value if isinstance(value, dict) else ():
            if place.matches(pattern, name):
                yield from place.descend(value[name], schema, name)


def _additional_properties(
    place: Place, said: Any, value: Any, schema: Mapping[str, Any]
) -> Iterator[Problem]:
    known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
    for name in value if isinstance(value, dict) else ():
        place.run.spend(1 / MEMBERS)
        if name not in known and not any(place.matches(pattern, name) for pattern in patterns):
            yield from place.descend(value[name], said, name)


def _property_names(place: Place, said: Any, value: Any, _schema: Any) -> Iterator[Problem]:
    for name in value if isinstance(value, dict) else ():
        if not place.evolve(schema=said).is_valid(name):
            yield Problem("has a name that is not allowed").under(name)


# -- unevaluated members and items ---------------------------------------------------------------


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
    """Return the names or indexes in `value` that the schema, which it fits, has evaluated."""
    place.run.spend(1 + len(value) / MEMBERS)
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
    """Yield the places of the subschemas that are applied to the same value."""
    for word in REFERENCES & said.keys():
        yield place.refer(word, said[word])
    schemas = [schema for word in ("allOf", "anyOf", "oneOf") for schema in said.get(word, ())]
    needs = said.get("dependentSchemas", {}) if isinstance(value, dict) else {}
    place.run.spend(len(needs) / MEMBERS)
    schemas += [schema for name, schema in needs.items() if name in value]
    if "if" in said:
        schemas.append(said["if"])
        branch = "then" if place.evolve(schema=said["if"]).is_valid(value) else "else"
        if branch in place.schema:
            schemas.append(place.schema[branch])
    for schema in schemas:
        yield place.evolve(schema=schema)


REFERENCES: Final = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))

# In the order of their application: the cheap ones first.
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
    "maximum": _bound("exclusiveMaximum", _BELOW, _AT_MOST),
    "minimum": _bound("exclusiveMinimum", _ABOVE, _AT_LEAST),
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
    """Return the keywords of a dialect of `jsonschema`, each with a function that is safe here."""
    theirs = validator.VALIDATORS
    borrowed = {word: _borrowed(theirs[word]) for word in _BORROWED if word in theirs}
    return {**{word: own for word, own in _OWN.items() if word in theirs}, **borrowed}
