"""Deep schemas and values."""

from __future__ import annotations

from typing import Any


def within(word: str, levels: int) -> Any:
    """A schema, or any object, within this word of another, and so on."""
    made: Any = {}
    for _ in range(levels):
        made = {word: made}
    return made


def boxed(levels: int) -> Any:
    """A list within a list within a list."""
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made
