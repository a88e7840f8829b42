"""What a command prints: tables and text for people, lines for pipes, JSON on demand.

Whatever a server wrote passes through `visible` before a terminal gets it. In JSON, the same
characters are written as escapes, which changes no value.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from syncmcp.ui.text import visible

# In fewer columns, those of a table would be too thin to be read, or would be left out.
_NARROW = 60

__all__ = ["Output", "as_json", "console_on"]


class Output:
    """The command's stdout, and its notes on stderr.

    Args:
        json: Whether results are printed as the protocol has them.
    """

    def __init__(self, *, json: bool) -> None:
        self.json = json
        self.terminal = sys.stdout.isatty()

    def result(self, wire: Any) -> None:
        """Print a result as JSON: one line, or for a person several."""
        print(as_json(wire, indent=2 if self.terminal else None), flush=True)

    def text(self, words: str) -> None:
        """Print text of a server: as it is into a pipe, made safe on a terminal."""
        print(visible(words, lines=True) if self.terminal else words, flush=True)

    def raw(self, data: bytes) -> None:
        """Write bytes of a server, which a terminal never gets."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print rows: below a heading on a terminal, else one a line with tabs between.

        On a narrow terminal, the cells of a row stand below each other.
        """
        if not self.terminal:
            for row in rows:
                print("\t".join(visible(cell) for cell in row))
            sys.stdout.flush()
            return
        console = console_on(sys.stdout)
        if console.width < _NARROW:
            for first, *others in rows:
                console.print(Text(visible(first), "bold"))
                for column, cell in zip(columns[1:], others, strict=True):
                    if cell:
                        named = f"{column}: " if column else ""
                        console.print(Text(f"  {named}{visible(cell)}"))
            return
        table = Table(box=None, pad_edge=False, header_style="bold")
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)
        for row in rows:
            table.add_row(*(Text(visible(cell)) for cell in row))
        console.print(table)

    def heading(self, words: str) -> None:
        """Print words of ours above a table; a pipe does not get them."""
        if self.terminal:
            console_on(sys.stdout).print(Text(words, "bold underline"))

    def note(self, words: str) -> None:
        """Tell the person something on stderr."""
        console_on(sys.stderr).print(Text(visible(words, lines=True)), soft_wrap=True)


def console_on(stream: TextIO) -> Console:
    """A console that has colours only on a terminal, and takes nothing for markup."""
    return Console(
        file=stream,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def as_json(value: Any, *, indent: int | None = None) -> str:
    """JSON in which nothing stands that a terminal obeys or hides."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    # Our own line breaks are the only controls outside of strings, and in strings there are none.
    if character == "\n" or visible(character) == character:
        return character
    if character == "\x7f":
        return "\\u007f"
    return json.dumps(character)[1:-1]
