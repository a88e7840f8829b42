"""Reads the values of a URI template's variables out of a URI, if only one reading is possible.

A template becomes an automaton over the characters of a URI. Two ways through it that read the
same URI are two readings; whether there are such, its square tells: two walkers that start together
and always read the same.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

__all__ = ["RESERVED", "UNRESERVED", "Automaton", "Capture", "Part", "Variable", "tokens"]

RESERVED: Final = ":/?#[]@!$&'()*+,;="
UNRESERVED: Final = string.ascii_letters + string.digits + "-._~"

_TOKEN = re.compile(r"%[0-9A-Fa-f]{2}|[^%]")

# Steps of the search for a second reading; templates that people write take a few hundred.
_MOST_STEPS: Final = 300_000

_Label: TypeAlias = Literal["plain", "raw"] | tuple[str]
"""What an edge reads: any unreserved character or escape, reserved ones too, or just one token."""


class Variable(NamedTuple):
    """A variable to be read."""

    name: str
    explode: bool = False
    raw: bool = False
    """Reserved characters may stand in it."""


class Part(NamedTuple):
    """A literal, or an expression whose variables can be told apart."""

    literal: Sequence[str] = ()
    """In tokens."""

    operator: str = ""
    variables: tuple[Variable, ...] = ()


class Capture(NamedTuple):
    """What was read for one variable."""

    variable: Variable
    texts: list[str]
    """One text; for an exploded variable any number."""


class _Edge(NamedTuple):
    label: _Label
    target: int
    owner: int | None = None
    """Whose text the token belongs to, or whose begins after it: a place in the template."""

    opens: bool = False


class _Way(NamedTuple):
    """The way that led to a state, from its end."""

    before: _Way | None
    edge: _Edge
    token: str


def tokens(text: str) -> tuple[str, ...] | None:
    """Split a URI into characters and escapes (in upper case); `None` if it is none."""
    found = _TOKEN.findall(text)
    if sum(map(len, found)) != len(text):
        return None
    return tuple(token.upper() if len(token) > 1 else token for token in found)


class Automaton:
    """Reads URIs of one template."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._edges: list[list[_Edge]] = [[]]
        self._skips: list[list[int]] = [[]]
        self._variables: list[Variable] = []
        # Those that each URI of the template has, perhaps as an empty text.
        self._always: list[int] = []
        self._end = 0
        for part in parts:
            if not part.variables:
                self._end = self._literal(self._end, part.literal)
            elif part.operator in {";", "?", "&"}:
                self._end = self._named(part)
            else:
                self._end = self._positional(part.operator, part.variables[0])
        self._ahead: dict[int, list[_Edge]] = {}

    # -- from parts to states ------------------------------------------------------------------

    def _literal(self, state: int, literal: Sequence[str]) -> int:
        for token in literal:
            target = self._state()
            self._edges[state].append(_Edge((token,), target))
            state = target
        return state

    def _positional(self, operator: str, variable: Variable) -> int:
        """``{x}``, ``{/x}``: with an operator, it may be missing."""
        start, value, end = self._end, self._state(), self._state()
        owner = self._owner(variable)
        if operator in {"", "+"}:
            self._always.append(owner)
            self._skips[start].append(value)
        else:
            self._edges[start].append(_Edge((operator,), value, owner, opens=True))
            self._skips[start].append(end)
        self._text(value, owner)
        if variable.explode:
            separator = operator if operator in {".", "/"} else ","
            self._edges[value].append(_Edge((separator,), value, owner, opens=True))
        self._skips[value].append(end)
        return end

    def _named(self, part: Part) -> int:
        """``?a=1&b=2``: each may be missing; the operator stands before the first that is there."""
        separator = "&" if part.operator == "?" else part.operator
        none, some = self._end, self._state()
        for variable in part.variables:
            owner = self._owner(variable)
            name, value, next_none, next_some = (self._state() for _ in range(4))
            self._edges[none].append(_Edge((part.operator,), name))
            self._edges[some].append(_Edge((separator,), name))
            written = tokens(variable.name)
            assert written is not None  # a name has only whole escapes
            *letters, last = written
            named = self._state()
            self._edges[self._literal(name, letters)].append(
                _Edge((last,), named, owner, opens=True)
            )
            if separator == ";":  # an empty value has no "="
                first = self._state()
                self._edges[named].append(_Edge(("=",), first))
                self._edges[first].append(_Edge("plain", value, owner))
                self._skips[named].append(next_some)
            else:
                self._edges[named].append(_Edge(("=",), value))
            self._text(value, owner)
            self._skips[value].append(next_some)
            self._skips[none].append(next_none)
            self._skips[some].append(next_some)
            none, some = next_none, next_some
        end = self._state()
        self._skips[none].append(end)
        self._skips[some].append(end)
        return end

    def _owner(self, variable: Variable) -> int:
        self._variables.append(variable)
        return len(self._variables) - 1

    def _state(self) -> int:
        self._edges.append([])
        self._skips.append([])
        return len(self._edges) - 1

    def _text(self, state: int, owner: int) -> None:
        label: _Label = "raw" if self._variables[owner].raw else "plain"
        self._edges[state].append(_Edge(label, state, owner))

    # -- from states to readings ---------------------------------------------------------------

    def _reached(self, state: int) -> Iterator[int]:
        """The states where one is without reading."""
        waiting = [state]
        while waiting:
            current = waiting.pop()
            yield current
            waiting.extend(self._skips[current])

    def _ways_on(self, state: int) -> list[_Edge]:
        found = self._ahead.get(state)
        if found is None:
            reached = self._reached(state)
            found = self._ahead[state] = [edge for here in reached for edge in self._edges[here]]
        return found

    def _may_end(self, state: int) -> bool:
        return self._end in self._reached(state)

    @cached_property
    def ambiguity(self) -> str | None:
        """Why there may be two readings of one URI; `None` if there never are."""
        together = [0]  # walkers that have gone the same way
        apart: list[tuple[int, int, str]] = []  # others, and the variable where they parted
        seen: set[tuple[int, int]] = {(0, 0)}
        steps = 0
        while together or apart:
            one, other, name = apart.pop() if apart else (together[-1], together.pop(), "")
            if one != other and self._may_end(one) and self._may_end(other):
                return _cannot_tell(name)
            second = self._ways_on(other)
            for index, edge in enumerate(self._ways_on(one)):
                for at, twin in enumerate(second[index:] if one == other else second):
                    steps += 1
                    if steps > _MOST_STEPS:
                        return "it is too long to be sure that there is one reading"
                    same = one == other and at == 0
                    if not same and not _share(edge.label, twin.label):
                        continue
                    owner = twin.owner if edge.owner is None else edge.owner
                    parted = name or ("" if owner is None else self._variables[owner].name)
                    pair = (edge.target, twin.target)
                    if not same and edge.target == twin.target:
                        return _cannot_tell(parted)
                    if pair in seen:
                        continue
                    seen.add(pair)
                    if same:
                        together.append(edge.target)
                    else:
                        apart.append((*pair, parted))
        return None

    def read(self, word: Sequence[str]) -> list[Capture] | None:
        """Read a URI; `None` if it is none of the template's.

        The automaton must not be ambiguous: it keeps one way to each state.
        """
        ways: dict[int, _Way | None] = {0: None}
        for token in word:
            ways = {
                edge.target: _Way(way, edge, token)
                for state, way in ways.items()
                for edge in self._ways_on(state)
                if _reads(edge.label, token)
            }
        for state, way in ways.items():
            if self._may_end(state):
                return self._captures(way)
        return None

    def _captures(self, way: _Way | None) -> list[Capture]:
        texts: dict[int, list[str]] = {owner: [""] for owner in self._always}
        steps = []
        while way is not None:
            steps.append(way)
            way = way.before
        for step in reversed(steps):
            if step.edge.owner is None:
                continue
            if step.edge.opens:
                texts.setdefault(step.edge.owner, []).append("")
            else:
                texts[step.edge.owner][-1] += step.token
        return [Capture(self._variables[owner], found) for owner, found in texts.items()]


def _cannot_tell(name: str) -> str:
    return f"where the value of {name!r} ends cannot be told"


def _reads(label: _Label, token: str) -> bool:
    if isinstance(label, tuple):
        return label[0] == token
    return len(token) > 1 or token in UNRESERVED or (label == "raw" and token in RESERVED)


def _share(one: _Label, other: _Label) -> bool:
    """Whether there is a token that both read."""
    if isinstance(one, tuple):
        return _reads(other, one[0])
    return not isinstance(other, tuple) or _reads(one, other[0])
