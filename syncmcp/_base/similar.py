"""Names that are spelled like another one, for the hints of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

MOST_NAMES: Final = 500
"""The most names that are compared: a server may list a hundred thousand similar ones, and one
comparison takes up to half a millisecond."""

LONGEST_NAME: Final = 64
"""The most characters of a name that is compared: the time grows faster than the length."""


def comparable(names: Iterable[str]) -> list[str]:
    """Return the names that `similar` compares."""
    return list(islice((name for name in names if len(name) <= LONGEST_NAME), MOST_NAMES))


def similar(word: str, names: Iterable[str], count: int, *, cutoff: float = 0.6) -> list[str]:
    """Return at most `count` of the names that are spelled like `word`, the most similar first.

    `cutoff` is the least similarity, from 0 to 1; see `difflib`.
    """
    if len(word) > LONGEST_NAME:
        return []
    return difflib.get_close_matches(word, comparable(names), count, cutoff)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Ask whether a known word of similar spelling was meant; empty if there is none."""
    close = similar(word, known, 2)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""
