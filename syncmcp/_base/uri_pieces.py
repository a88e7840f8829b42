"""URIs that are put together of literals and values, and which of these made the parts of a URI.

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

# Schemes whose authority is a host for many programs. In those that servers make up (`notes://`) it
# mostly is the first part of a path, and `notes://{+path}` asks for it.
_WITH_HOSTS: Final = frozenset(("", "file:", "ftp:", "http:", "https:", "ws:", "wss:"))

# Those that browsers find a host for in any case: if it is empty, in the first segment of the path.
_NEED_HOSTS: Final = _WITH_HOSTS - {"", "file:"}

# Operators that are written first, and end a segment of the path.
_DELIMITING: Final = frozenset("/?#")

_Place: TypeAlias = tuple[int, int | None]


class _Piece(NamedTuple):
    """A run of characters of a URI, from one literal or one value."""

    number: int
    start: int
    operator: str
    name: str | None


class PiecedUri:
    """A URI, and of each character where it comes from."""

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
        """Yield what values have made of this URI beyond the structure of its template.

        Scheme, user, host and port consist of the characters and expressions that they consist of
        in the template; the host is not empty if the path could pass for it; query and fragment do
        not begin within ``{+x}``; and all segments ``.`` and ``..`` are those of literals.

        `own` is the template itself, with something harmless in the place of each expression. What
        is yielded is the name of a variable, and what its value does, for an error message.
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
        """Where the scheme is, with its colon; empty if there is none."""
        found = _SCHEME.match(self.text)
        return range(0 if found is None else found.end())

    @property
    def authority(self) -> range:
        """Where the authority is, with the two slashes before it; empty if there is none."""
        found = _AUTHORITY.match(self.text, self.scheme.stop)
        return range(0) if found is None else range(*found.span())

    @property
    def path(self) -> range:
        """Where the path is."""
        found = _PATH.match(self.text, max(self.scheme.stop, self.authority.stop))
        return range(0) if found is None else range(*found.span())

    @property
    def _asked_for(self) -> set[_Place]:
        """The ``{+x}`` that is the whole authority, if the scheme is not one with hosts."""
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
        """What a character is: one of a literal, or any of an expression."""
        piece = self._pieces[at]
        return piece.number, at - piece.start if piece.name is None else None

    def _dots(self, start: int, end: int, own: PiecedUri) -> Iterator[tuple[str, str]]:
        """Why a segment of dots is none of a literal; nothing if it is."""
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
        """Whether a segment before this part of a template ends there, whatever the values are."""
        expressions = self._expressions
        return number not in expressions or expressions[number].operator in _DELIMITING

    @cached_property
    def _expressions(self) -> dict[int, _Piece]:
        return {piece.number: piece for piece in self._pieces if piece.name is not None}

    def _variable_at(self, at: int, own: PiecedUri) -> str:
        """The variable of a character; that of the nearest expression if it is of a literal."""
        piece, expressions = self._pieces[at], own._expressions
        before = [number for number in expressions if number < piece.number]
        nearest = max(before) if before else min(expressions)
        return piece.name or expressions[nearest].name or ""
