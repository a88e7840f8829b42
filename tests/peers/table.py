"""The table of what works with which peer: ``docs/peers.md``, which a run may not make worse."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.peers.peers import LIMITS_OF_REVISIONS, PEERS, ROOT, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.peers.peers import Limit, Row

PAGE = ROOT / "docs" / "peers.md"
CELLS = ("list", "call", "error", "progress", "cancel", "sampling", "form", "url", "roots")
WORKS, HALF, FAILS, IMPOSSIBLE, UNTRIED = "yes", "yes\\*", "no", "-", "?"

_TITLES = ("Server", "Transport", "Revision")
_HEAD = """\
# Tested against real servers

The tests open each of these servers with `syncmcp`, list its tools, call one, call one that fails,
follow one that reports progress and cancel one that runs. Then they call tools that ask back: for
what a model says, for a form, for consent to a URL, for the roots. The same handlers answer all of
them, and the answer has to be found in what the tool returns. The run that checks this page also
writes it: a cell that says *yes* must stay so. A revision marked *auto* is the one that
`mode="auto"` found by itself; the others were asked for by name.
"""
_TAIL = """\
*-*: the server, or the revision, cannot do this. *yes\\**: the client did its half; what the server
made of it cannot be seen.
"""


class Table:
    """What this run has seen; cells it did not try keep what the page says."""

    def __init__(self, page: str) -> None:
        self._before = _read(page)
        self._seen: dict[tuple[str, str], str] = {}

    @contextmanager
    def cell(self, row: Row, name: str) -> Iterator[None]:
        """Notes whether the block, which tries one cell, gets to its end."""
        key = (_title(row), name)
        self._seen[key] = FAILS
        yield
        self._seen[key] = HALF if row.limit(name) else WORKS

    def worse(self) -> list[str]:
        """The cells that worked once and do not work now, and those that are gone."""
        now = _read(self.render())
        return sorted(
            f"{title}: {name}"
            for (title, name), value in self._before.items()
            if value.startswith(WORKS) and not now.get((title, name), FAILS).startswith(WORKS)
        )

    def render(self) -> str:
        """The page."""
        lines = [_line([*_TITLES, *CELLS]), _line(["---"] * (len(_TITLES) + len(CELLS)))]
        lines += [_line([_title(row), *(self._value(row, name) for name in CELLS)]) for row in ROWS]
        notes = [f"* every server, {_note(limit)}" for limit in LIMITS_OF_REVISIONS]
        notes += [f"* {peer.name}, {_note(limit)}" for peer in PEERS for limit in peer.limits]
        notes = list(dict.fromkeys(notes))  # a server that is there over two transports
        return "\n".join([_HEAD, *lines, "", _TAIL, *notes, ""])

    def _value(self, row: Row, name: str) -> str:
        limit = row.limit(name)
        if limit and not limit.half:
            return IMPOSSIBLE
        key = (_title(row), name)
        return self._seen.get(key) or self._before.get(key, UNTRIED)


def _title(row: Row) -> str:
    revision = f"{row.revision} (auto)" if row.mode == "auto" else row.revision
    return f"{row.peer.name} | {row.transport} | {revision}"


def _note(limit: Limit) -> str:
    where = ", ".join([limit.cell, *limit.transports, *limit.revisions])
    return f"{where}: {limit.reason}."


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _read(page: str) -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    names: Sequence[str] = ()
    for line in page.splitlines():
        title, values = _split(line)
        if title == " | ".join(_TITLES):
            names = values
        elif line.startswith("| ") and len(values) == len(names):
            cells.update(((title, name), value) for name, value in zip(names, values, strict=True))
    return cells


def _split(line: str) -> tuple[str, Sequence[str]]:
    parts = [part.strip() for part in line.strip("| ").split("|")]
    return " | ".join(parts[: len(_TITLES)]), parts[len(_TITLES) :]
