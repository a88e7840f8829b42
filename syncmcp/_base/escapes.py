r"""Texts without their escapes, and the position of each character in the original text.

A server may write the same text in many ways: JSON may escape any character, JSON in JSON does so
twice, Python writes ``\xe9``, a URL ``%C3%A9``, and a URL in a URL ``%25C3%25A9``. Undoing the
escapes takes less time and memory than searching for each of these ways.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

# How many levels of escapes are undone: JSON in JSON, a URL in a URL, or one in the other.
_DEPTH = 2

_LETTERS = {r"\b": "\b", r"\f": "\f", r"\n": "\n", r"\r": "\r", r"\t": "\t"}
_UNKNOWN = "\ufffd"


def _decode_backslash(escape: re.Match[str]) -> str:
    text = escape[0]
    if len(text) == 2:
        return _LETTERS.get(text, text[1])
    codes = [int(code, 16) for code in text[2:].split(r"\u")]
    if len(codes) == 2:  # a surrogate pair
        return chr(0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF))
    return chr(codes[0]) if codes[0] <= 0x10FFFF else _UNKNOWN


def _decode_percent(escape: re.Match[str]) -> str:
    try:
        return bytes.fromhex(escape[0].replace("%", "")).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return _UNKNOWN


class _Escapes(NamedTuple):
    """A way to escape single characters.

    Attributes:
        mark: The first character of each escape.
        one: Matches the escape of one character.
        part: Matches an incomplete escape at the end of a text.
    """

    mark: str
    one: re.Pattern[str]
    part: re.Pattern[str]

    def undo(self, text: str) -> str:
        return self.one.sub(_decode_percent if self.mark == "%" else _decode_backslash, text)


_BACKSLASH = _Escapes(
    "\\",
    re.compile(
        r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
        r"|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}|.)",
        re.DOTALL,
    ),
    re.compile(r"\\(?:u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7}|x[0-9a-fA-F]?)?\Z"),
)
_PERCENT = _Escapes(
    "%",
    re.compile(
        r"%(?:[c-d][0-9a-f]%[89ab][0-9a-f]|e[0-9a-f](?:%[89ab][0-9a-f]){2}"
        r"|f[0-7](?:%[89ab][0-9a-f]){3}|[0-9a-f]{2})",
        re.IGNORECASE,
    ),
    re.compile(r"%[0-9a-fA-F]?\Z"),
)
_LONGEST_PART = 9


class Reading:
    """A text, either as it was given or with escapes undone.

    Attributes:
        text: The text in this form.
    """

    def __init__(self, text: str, of: Reading | None = None, escapes: _Escapes = _PERCENT) -> None:
        self.text = text
        self._of = of
        self._escapes = escapes
        # Positions in `text`, and how much further each later character is in `_of`. Computed when
        # first needed: few texts contain a secret.
        self._places: tuple[array[int], array[int]] | None = None

    def place(self, position: int) -> int:
        """Return where a position of `text` is in the original text."""
        if self._of is None:
            return position
        if self._places is None:
            self._places = array("q", (0,)), array("q", (0,))
            shift = 0
            for escape in self._escapes.one.finditer(self._of.text):
                shift += escape.end() - escape.start() - 1
                self._places[0].append(escape.end() - shift)
                self._places[1].append(shift)
        positions, shifts = self._places
        return self._of.place(position + shifts[bisect_right(positions, position) - 1])

    def undone(self, escapes: _Escapes, *, ends_cut: bool) -> Reading:
        """Return this text with its escapes undone; see `readings` for `ends_cut`."""
        text = self.text
        if ends_cut:
            part = escapes.part.search(text, max(0, len(text) - _LONGEST_PART))
            text = text if part is None else text[: part.start()]
        return Reading(escapes.undo(text), self, escapes)


def readings(text: str, *, ends_cut: bool = False) -> Iterator[Reading]:
    """Yield a text as it is and, if it has escapes, with each combination of them undone.

    Args:
        text: Any text.
        ends_cut: The text may end within an escape, which is then removed.
    """
    yield from _readings(Reading(text), _DEPTH, ends_cut=ends_cut)


def _readings(reading: Reading, depth: int, *, ends_cut: bool) -> Iterator[Reading]:
    yield reading
    for escapes in (_BACKSLASH, _PERCENT) if depth else ():
        if escapes.mark in reading.text:
            undone = reading.undone(escapes, ends_cut=ends_cut)
            if undone.text != reading.text:
                yield from _readings(undone, depth - 1, ends_cut=ends_cut)
