"""The tables of what works with which peer: ``docs/peers.md``, which a run may not make worse."""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Protocol

from tests.system.peers.oauth import sign_ins
from tests.system.peers.oauth.sign_ins import SIGN_INS
from tests.system.peers.peers import LIMITS_OF_REVISIONS, PEERS, ROOT, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.system.peers.peers import Limit

PAGE = ROOT / "docs" / "peers.md"
CELLS = ("list", "call", "error", "progress", "cancel", "sampling", "form", "url", "roots")
WORKS, HALF, FAILS, IMPOSSIBLE, UNTRIED = "yes", "yes\\*", "no", "-", "?"

_HEAD = """\
# Tested against real servers

The tests open each of these servers with `syncmcp` and list its tools. They call a tool, one that
fails, and one that reports progress, and cancel one. Then they call tools that ask for a model, a
form, consent to a URL, or roots. The tool's result must contain the answer of the handler.

The test run writes this page. It fails if a *yes* would become *no*. `mode="auto"` detected the
revisions marked *auto*.
"""
_TAIL = """\
*-*: the server, or the revision, does not support this. *yes\\**: the client did its part; the
server shows no effect.
"""
_SIGNING_IN = """\
## Signing in

The test acts as a person on the pages of the authorization server. The MCP server must accept the
token, and refuse it after logging out. The client renews an expired token. A tool that needs more
scope leads back to the pages. The client was registered, had a metadata *document* as its id, bound
its tokens to a key (*DPoP*), or signed in *as itself*, with a secret or a key.
"""


class Line(Protocol):
    """One line of a table."""

    @property
    def title(self) -> tuple[str, ...]:
        """What it begins with."""
        ...

    def limit(self, cell: str, /) -> Limit | None:
        """Returns what keeps this cell from being tried in full."""
        ...


@dataclass(frozen=True)
class Section:
    """A table of the page.

    Attributes:
        titles: The heads of the columns that say what a line is about.
        cells: Those of the others.
        lines: All lines.
    """

    titles: tuple[str, ...]
    cells: tuple[str, ...]
    lines: tuple[Line, ...]


_PEERS = Section(("Server", "Transport", "Revision"), CELLS, ROWS)
_LOGINS = Section(("Authorization server", "MCP server"), sign_ins.CELLS, SIGN_INS)


class Table:
    """What this run has seen; cells it did not try keep what the page says."""

    def __init__(self, page: str) -> None:
        self._before = _read(page)
        self._seen: dict[tuple[str, str], str] = {}

    @contextmanager
    def cell(self, row: Line, *names: str) -> Iterator[None]:
        """Notes whether the block, which tries cells, gets to its end, as all before it did."""
        keys = [(_title(row), name) for name in names]
        failed = {key for key in keys if self._seen.get(key) == FAILS}
        self._seen.update(dict.fromkeys(keys, FAILS))
        yield
        for key in keys:
            if key not in failed:
                self._seen[key] = HALF if row.limit(key[1]) else WORKS

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
        notes = _notes(
            [("every server", limit) for limit in LIMITS_OF_REVISIONS]
            + [(peer.name, limit) for peer in PEERS for limit in peer.limits]
        )
        page = [_HEAD, *self._lines(_PEERS), "", _TAIL, *notes, ""]
        notes = _notes([(one.name, limit) for one in SIGN_INS for limit in one.limits])
        return "\n".join([*page, _SIGNING_IN, *self._lines(_LOGINS), "", *notes, ""])

    def _lines(self, section: Section) -> Iterator[str]:
        heads = [*section.titles, *section.cells]
        yield _line(heads)
        yield _line(["---"] * len(heads))
        lines = [
            (row.title, tuple(self._value(row, name) for name in section.cells))
            for row in section.lines
        ]
        # Revisions of a server that do not differ share a line.
        for (title, values), same in groupby(lines, lambda line: (line[0][:-1], line[1])):
            last = ", ".join(whole[-1] for whole, _ in same)
            yield _line([*title, last, *values])

    def _value(self, row: Line, name: str) -> str:
        limit = row.limit(name)
        if limit and not limit.half:
            return IMPOSSIBLE
        key = (_title(row), name)
        return self._seen.get(key) or self._before.get(key, UNTRIED)


def _title(row: Line) -> str:
    return " | ".join(row.title)


def _notes(limits: Sequence[tuple[str, Limit]]) -> list[str]:
    """A line for each reason, with the servers and the cells that share it."""
    cells: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for server, limit in limits:
        where = ", ".join([*limit.transports, *limit.revisions])
        cells[server, where, limit.reason].append(limit.cell)
    servers: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (server, where, reason), found in cells.items():
        servers[", ".join(dict.fromkeys(found)), where, reason].append(server)
    return [
        f"* {', '.join(names)}: {found}{f' ({where})' if where else ''}: {reason}."
        for (found, where, reason), names in servers.items()
    ]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _read(page: str) -> dict[tuple[str, str], str]:
    cells: dict[tuple[str, str], str] = {}
    names: Sequence[str] = ()
    width = 0
    for line in page.splitlines():
        for section in (_PEERS, _LOGINS):
            if line.startswith(f"| {' | '.join(section.titles)} |"):
                width, names = len(section.titles), ()
        title, values = _split(line, width)
        if width and not names:
            names = values
        elif line.startswith("| ") and len(values) == len(names):
            before, _, last = title.rpartition(" | ")
            cells.update(
                ((f"{before} | {each}", name), value)
                for each in last.split(", ")
                for name, value in zip(names, values, strict=True)
            )
    return cells


def _split(line: str, width: int) -> tuple[str, Sequence[str]]:
    """What a line begins with, so many columns of it, and the others."""
    parts = [part.strip() for part in line.strip("| ").split("|")]
    return " | ".join(parts[:width]), parts[width:]
