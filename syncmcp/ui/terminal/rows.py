"""Rows on a terminal: text is wrapped to fit, however wide the terminal draws its characters."""

from __future__ import annotations

_HANGING = 4


def cells_of(text: str) -> int:
    """Return the most cells that a text takes on any terminal.

    Terminals disagree about marks, emoji, flags and East Asian letters. But no character takes more
    than two cells, and an ASCII character always takes one.
    """
    return sum(1 if character.isascii() else 2 for character in text)


def wrap(text: str, width: int, *, hanging: bool = False) -> list[str]:
    """Return the rows of a text, each of at most `width` cells on any terminal, broken at spaces.

    If `hanging`, the further rows of a line are indented more than the line.
    """
    rows = []
    for line in text.expandtabs(4).split("\n"):
        own = len(line) - len(line.lstrip(" "))
        indent = " " * min(own + _HANGING, width // 2) if hanging else ""
        start = end = cells = 0
        while end < len(line):
            cells += cells_of(line[end])
            if cells <= width or end == start:
                end += 1
                continue
            after = line.rfind(" ", start, end) + 1
            # Not within the indentation: a word that is too long stays in the row with it.
            if line[start:after].strip():
                end = after
            rows.append((indent if start else "") + line[start:end])
            start = end
            cells = len(indent)
        rows.append((indent if start else "") + line[start:])
    return rows
