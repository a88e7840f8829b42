"""URIs that are composed of literals and values, and the origin of each part of such a URI.

The parts are those of RFC 3986, section 3: scheme, authority (user, host and port), path, query and
fragment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_AUTHORITY = re.compile(r"//[^/?#]*")
_PATH = re.compile(r"[^?#]*")
_SEGMENT = re.compile(r"[^/]+")
_DOTS = re.compile(r"(?:\.|%2[Ee]){1,2}")

# Operators whose expressions can be part of a host: `{x}`, `{.x}`, `{;x}`.
_OF_HOSTS: Final = frozenset(("", ".", ";"))

# Schemes whose authority many programs read as a host. In a scheme that a server defines
# (`notes://`), it usually is the first part of a path, and a value may be it: `notes://{+path}`.
_WITH_HOSTS: Final = frozenset(("", "file:", "ftp:", "http:", "https:", "ws:", "wss:"))

# Schemes for which browsers need a host: if it is empty, they read the first path segment as one.
_NEED_HOSTS: Final = _WITH_HOSTS - {"", "file:"}

# Operators whose expressions begin with the operator itself, which ends a segment of the path.
_DELIMITING: Final = frozenset("/?#")

_Place: TypeAlias = tuple[int, int | None]


class _Piece(NamedTuple):
    """A run of characters of a URI, from one literal or one value."""

    number: int
    start: int
    operator: str
    name: str | None


class PiecedUri:
    """A URI, and the piece from which each of its characters comes."""

    def __init__(self) -> None:
        self.text = ""
        self._pieces: list[_Piece] = []  # the piece of each character

    def add(self, text: str, number: int, operator: str = "", name: str | None = None) -> None:
        """Append the characters of literal or expression `number` of the template.

        An expression has an operator (RFC 6570, section 2.2); `name` is the variable that the
        characters are a value of, `None` for a literal.
        """
        self._pieces += [_Piece(number, len(self.text), operator, name)] * len(text)
        self.text += text

    def changes(self, own: PiecedUri) -> Iterator[tuple[str, str]]:
        """Yield how values change the URI's structure: the variable, and a text for an error.

        Without a change, scheme, user, host and port have the same characters and expressions as in
        the template. The host is not empty if the path could be read as a host. Query and fragment
        do not begin within ``{+x}``. Segments ``.`` and ``..`` are literals.

        `own` is the template itself, with a harmless value for each expression.
        """
        for ours, theirs, part in (
            (self.scheme, own.scheme, "the scheme"),
            (self.authority, own.authority, "user, host or port"),
        ):
            allowed = {own._place(at) for at in theirs if own._pieces[at].operator in _OF_HOSTS}
            allowed |= own._asked_for
            for at in ours:
                if self._place(at) not in allowed:
                    yield self._variable_at(at, own), f"would change {part}"
        if own._expressions and self._lacks_host:
            at = max(self.scheme.stop, self.authority.stop) - 1
            names = [own._pieces[each].name for each in own.authority]
            for name in dict.fromkeys(filter(None, names)) or (self._variable_at(at, own),):
                yield name, "would leave the URI without a host"
        query, fragment = self.text.partition("#")[0].find("?"), self.text.find("#")
        for at, problem in ((query, "a query"), (fragment, "a fragment")):
            if at >= 0 and self._pieces[at].operator == "+":
                yield self._variable_at(at, own), f"would begin {problem}"
        for segment in _SEGMENT.finditer(self.text, self.path.start, self.path.stop):
            if _DOTS.fullmatch(segment[0]):
                yield from self._dots(segment.start(), segment.end(), own)

    @property
    def scheme(self) -> range:
        """The position of the scheme, with its colon; empty without a scheme."""
        found = _SCHEME.match(self.text)
        return range(0 if found is None else found.end())

    @property
    def authority(self) -> range:
        """The position of the authority, with the slashes before it; empty without an authority."""
        found = _AUTHORITY.match(self.text, self.scheme.stop)
        return range(0) if found is None else range(*found.span())

    @property
    def path(self) -> range:
        """The position of the path."""
        found = _PATH.match(self.text, max(self.scheme.stop, self.authority.stop))
        return range(0) if found is None else range(*found.span())

    @property
    def _asked_for(self) -> set[_Place]:
        """The place of a ``{+x}`` directly after ``//``, if the scheme is not one with hosts."""
        after = self.authority.stop
        scheme = self.text[: self.scheme.stop].lower()
        whole = len(self.authority) == len("//") and scheme not in _WITH_HOSTS
        pieces = self._pieces[after : after + 1] if whole else ()
        return {self._place(after) for piece in pieces if piece.operator == "+"}

    @property
    def _lacks_host(self) -> bool:
        """Whether the host is empty, so that a program may look for it in the path."""
        scheme = self.text[: self.scheme.stop].lower()
        authority = self.text[self.authority.start : self.authority.stop].removeprefix("//")
        host = authority.rpartition("@")[2].partition(":")[0]
        return not host and (scheme in _NEED_HOSTS or (not scheme and len(self.authority) > 0))

    def _place(self, at: int) -> _Place:
        """Return the number of the part of a character, and its index if that is a literal."""
        piece = self._pieces[at]
        return piece.number, at - piece.start if piece.name is None else None

    def _dots(self, start: int, end: int, own: PiecedUri) -> Iterator[tuple[str, str]]:
        """Yield the problems of a segment of dots; none if it is a whole segment of a literal."""
        problem = "would create a segment '.' or '..'"
        pieces = dict.fromkeys(self._pieces[start:end])
        names = [piece.name for piece in pieces if piece.name is not None]
        first, last = self._pieces[start], self._pieces[end - 1]
        begins = start > first.start or first.number == 0
        ends = self._pieces[end : end + 1] == [last] or own._ends_before(last.number + 1)
        if names:
            yield from ((name, problem) for name in names)
        elif not (begins and ends and first == last):
            yield own._expressions[first.number + (1 if begins else -1)].name or "", problem

    def _ends_before(self, number: int) -> bool:
        """Return whether a segment always ends before this part of a template, for all values."""
        expressions = self._expressions
        return number not in expressions or expressions[number].operator in _DELIMITING

    @cached_property
    def _expressions(self) -> dict[int, _Piece]:
        return {piece.number: piece for piece in self._pieces if piece.name is not None}

    def _variable_at(self, at: int, own: PiecedUri) -> str:
        """Return the variable of a character; for a literal, that of the nearest expression."""
        piece, expressions = self._pieces[at], own._expressions
        before = [number for number in expressions if number < piece.number]
        nearest = max(before) if before else min(expressions)
        return piece.name or expressions[nearest].name or ""
