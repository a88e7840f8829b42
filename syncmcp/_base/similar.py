"""Names that are spelled like another one, for the hints of errors."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

MOST_NAMES: Final = 500
"""How many names are compared: a server may list a hundred thousand, one more like it than the
other, and to compare two takes up to half a millisecond."""

LONGEST_NAME: Final = 64
"""Longer names are not compared, in characters: the time grows with more than their length."""


def comparable(names: Iterable[str]) -> list[str]:
    """Those of the names that `similar` compares."""
    return list(islice((name for name in names if len(name) <= LONGEST_NAME), MOST_NAMES))


def similar(word: str, names: Iterable[str], count: int, *, cutoff: float = 0.6) -> list[str]:
    """At most `count` of the names that are spelled like `word`, the most similar one first.

    `cutoff`: how similar they are at least, from 0 to 1; see `difflib`.
    """
    if len(word) > LONGEST_NAME:
        return []
    return difflib.get_close_matches(word, comparable(names), count, cutoff)
