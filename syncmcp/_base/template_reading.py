"""Matches a URI against a URI template: finds the values of its variables, if they are unambiguous.

The template becomes a nondeterministic automaton over the characters of a URI. Two paths through it
that accept the same URI are two different matches. The product of the automaton with itself finds
such paths: a pair of paths that start at the same state and always read the same characters.
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

# The most steps of the search for a second path; usual templates take a few hundred.
_MOST_STEPS: Final = 300_000

_Label: TypeAlias = Literal["plain", "raw"] | tuple[str]
"""What an edge accepts: unreserved characters and escapes, also reserved ones, or one token."""


class Variable(NamedTuple):
    """A variable of the template."""

    name: str
    explode: bool = False
    raw: bool = False
    """Its value may contain reserved characters."""


class Part(NamedTuple):
    """A literal, or an expression."""

    literal: Sequence[str] = ()
    """The tokens of a literal."""

    operator: str = ""
    variables: tuple[Variable, ...] = ()


class Capture(NamedTuple):
    """The value found for one variable."""

    variable: Variable
    texts: list[str]
    """One text; for an exploded variable, any number."""


class _Edge(NamedTuple):
    label: _Label
    target: int
    owner: int | None = None
    """The index of the variable that the token belongs to, or whose text begins after it."""

    opens: bool = False


class _Path(NamedTuple):
    """The path that led to a state, as a list linked from its end."""

    previous: _Path | None
    edge: _Edge
    token: str


def tokens(text: str) -> tuple[str, ...] | None:
    """Split a URI into characters and escapes (in upper case); `None` if an escape is invalid."""
    found = _TOKEN.findall(text)
    if sum(map(len, found)) != len(text):
        return None
    return tuple(token.upper() if len(token) > 1 else token for token in found)


class Automaton:
    """The automaton of one template."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._edges: list[list[_Edge]] = [[]]
        self._epsilon: list[list[int]] = [[]]
        self._variables: list[Variable] = []
        # The variables that are in each URI of the template, perhaps with an empty text.
        self._never_missing: list[int] = []
        self._end = 0
        for part in parts:
            if not part.variables:
                self._end = self._literal(self._end, part.literal)
            elif part.operator in {";", "?", "&"}:
                self._end = self._named(part)
            else:
                self._end = self._positional(part.operator, part.variables[0])
        self._edges_cache: dict[int, list[_Edge]] = {}

    # -- building the automaton -----------------------------------------------------------------

    def _literal(self, state: int, literal: Sequence[str]) -> int:
        for token in literal:
            target = self._state()
            self._edges[state].append(_Edge((token,), target))
            state = target
        return state

    def _positional(self, operator: str, variable: Variable) -> int:
        """Add ``{x}`` or ``{/x}``; with an operator, the variable may be missing."""
        start, value, end = self._end, self._state(), self._state()
        owner = self._owner(variable)
        if operator in {"", "+"}:
            self._never_missing.append(owner)
            self._epsilon[start].append(value)
        else:
            self._edges[start].append(_Edge((operator,), value, owner, opens=True))
            self._epsilon[start].append(end)
        self._text(value, owner)
        if variable.explode:
            separator = operator if operator in {".", "/"} else ","
            self._edges[value].append(_Edge((separator,), value, owner, opens=True))
        self._epsilon[value].append(end)
        return end

    def _named(self, part: Part) -> int:
        """Add ``?a=1&b=2``: each variable may be missing; the operator precedes the first one."""
        separator = "&" if part.operator == "?" else part.operator
        none, some = self._end, self._state()
        for variable in part.variables:
            owner = self._owner(variable)
            name, value, next_none, next_some = (self._state() for _ in range(4))
            self._edges[none].append(_Edge((part.operator,), name))
            self._edges[some].append(_Edge((separator,), name))
            written = tokens(variable.name)
            assert written is not None  # escapes in names are valid
            *letters, last = written
            named = self._state()
            self._edges[self._literal(name, letters)].append(
                _Edge((last,), named, owner, opens=True)
            )
            if separator == ";":  # an empty value has no "="
                first = self._state()
                self._edges[named].append(_Edge(("=",), first))
                self._edges[first].append(_Edge("plain", value, owner))
                self._epsilon[named].append(next_some)
            else:
                self._edges[named].append(_Edge(("=",), value))
            self._text(value, owner)
            self._epsilon[value].append(next_some)
            self._epsilon[none].append(next_none)
            self._epsilon[some].append(next_some)
            none, some = next_none, next_some
        end = self._state()
        self._epsilon[none].append(end)
        self._epsilon[some].append(end)
        return end

    def _owner(self, variable: Variable) -> int:
        self._variables.append(variable)
        return len(self._variables) - 1

    def _state(self) -> int:
        self._edges.append([])
        self._epsilon.append([])
        return len(self._edges) - 1

    def _text(self, state: int, owner: int) -> None:
        label: _Label = "raw" if self._variables[owner].raw else "plain"
        self._edges[state].append(_Edge(label, state, owner))

    # -- matching ---------------------------------------------------------------------------------

    def _epsilon_closure(self, state: int) -> Iterator[int]:
        """Yield the states reachable without reading a token."""
        waiting = [state]
        while waiting:
            current = waiting.pop()
            yield current
            waiting.extend(self._epsilon[current])

    def _edges_from(self, state: int) -> list[_Edge]:
        found = self._edges_cache.get(state)
        if found is None:
            closure = self._epsilon_closure(state)
            found = [edge for reached in closure for edge in self._edges[reached]]
            self._edges_cache[state] = found
        return found

    def _may_end(self, state: int) -> bool:
        return self._end in self._epsilon_closure(state)

    @cached_property
    def ambiguity(self) -> str | None:
        """Why a URI may have two matches; `None` if each URI has at most one."""
        together = [0]  # pairs of equal paths
        apart: list[tuple[int, int, str]] = []  # different paths, and the variable where they part
        seen: set[tuple[int, int]] = {(0, 0)}
        steps = 0
        while together or apart:
            one, other, name = apart.pop() if apart else (together[-1], together.pop(), "")
            if one != other and self._may_end(one) and self._may_end(other):
                return _ambiguous_end(name)
            second = self._edges_from(other)
            for index, edge in enumerate(self._edges_from(one)):
                for at, twin in enumerate(second[index:] if one == other else second):
                    steps += 1
                    if steps > _MOST_STEPS:
                        return "it is too long to be sure that there is one reading"
                    same = one == other and at == 0
                    if not same and not _overlap(edge.label, twin.label):
                        continue
                    owner = twin.owner if edge.owner is None else edge.owner
                    parted = name or ("" if owner is None else self._variables[owner].name)
                    pair = (edge.target, twin.target)
                    if not same and edge.target == twin.target:
                        return _ambiguous_end(parted)
                    if pair in seen:
                        continue
                    seen.add(pair)
                    if same:
                        together.append(edge.target)
                    else:
                        apart.append((*pair, parted))
        return None

    def read(self, word: Sequence[str]) -> list[Capture] | None:
        """Match a URI, given in tokens; `None` if it does not match.

        The automaton must not be ambiguous: only one path to each state is kept.
        """
        paths: dict[int, _Path | None] = {0: None}
        for token in word:
            paths = {
                edge.target: _Path(path, edge, token)
                for state, path in paths.items()
                for edge in self._edges_from(state)
                if _accepts(edge.label, token)
            }
        for state, path in paths.items():
            if self._may_end(state):
                return self._captures(path)
        return None

    def _captures(self, path: _Path | None) -> list[Capture]:
        texts: dict[int, list[str]] = {owner: [""] for owner in self._never_missing}
        steps = []
        while path is not None:
            steps.append(path)
            path = path.previous
        for step in reversed(steps):
            if step.edge.owner is None:
                continue
            if step.edge.opens:
                texts.setdefault(step.edge.owner, []).append("")
            else:
                texts[step.edge.owner][-1] += step.token
        return [Capture(self._variables[owner], found) for owner, found in texts.items()]


def _ambiguous_end(name: str) -> str:
    return f"where the value of {name!r} ends cannot be told"


def _accepts(label: _Label, token: str) -> bool:
    if isinstance(label, tuple):
        return label[0] == token
    return len(token) > 1 or token in UNRESERVED or (label == "raw" and token in RESERVED)


def _overlap(one: _Label, other: _Label) -> bool:
    """True if there is a token that both labels accept."""
    if isinstance(one, tuple):
        return _accepts(other, one[0])
    return not isinstance(other, tuple) or _accepts(one, other[0])
