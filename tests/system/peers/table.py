"""The page about the tested servers, with its tables: ``docs/peers.md``."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from tests.system.peers.oauth import sign_ins
from tests.system.peers.oauth.sign_ins import SIGN_INS
from tests.system.peers.peers import LIMITS_OF_REVISIONS, PEERS, ROOT, ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.system.peers.oauth.sign_ins import SignIn
    from tests.system.peers.peers import Limit, Row

PAGE = ROOT / "docs" / "peers.md"
CELLS = ("list", "call", "error", "progress", "cancel", "sampling", "form", "url", "roots")

_HEAD = """\
# Tested against real servers

The tests connect `syncmcp` to each of these servers and list its tools. They call a tool that
works, one that fails and one that reports progress, and they cancel a call. Then they call tools
that ask the client for a model's answer, a form, consent to a URL, or roots.

A test proves each ✓. `mode="auto"` detected the revisions marked *auto*.
"""
_TAIL = """\
*-*: the server, or the revision, does not support this. ✓\\*: the client did its part, but
the server shows no effect.
"""
_SIGNING_IN = """\
## Signing in

The tests act as a person on the pages of the authorization server. The MCP server must accept the
token, and refuse it after the logout. The client must renew an expired token, and return to the
pages if a tool needs more scope. Usually, the client is registered. In other tests, it has a
metadata *document* as its id, binds its tokens to a key (*DPoP*), or signs in *as itself*, with a
secret or a key.
"""


@dataclass(frozen=True)
class Section:
    """A table of the page.

    Attributes:
        titles: The heads of the columns that identify a row.
        cells: The heads of the other columns.
    """

    titles: tuple[str, ...]
    cells: tuple[str, ...]
    rows: tuple[Row | SignIn, ...]


_PEERS = Section(("Server", "Transport", "Revision"), CELLS, ROWS)
_LOGINS = Section(("Authorization server", "MCP server"), sign_ins.CELLS, SIGN_INS)


def render() -> str:
    """Return the page. A cell without a limit is a ✓, because its test must pass."""
    notes = _notes(
        [("every server", limit) for limit in LIMITS_OF_REVISIONS]
        + [(peer.name, limit) for peer in PEERS for limit in peer.limits]
    )
    page = [_HEAD, *_lines(_PEERS), "", _TAIL, *notes, ""]
    notes = _notes([(one.name, limit) for one in SIGN_INS for limit in one.limits])
    return "\n".join([*page, _SIGNING_IN, *_lines(_LOGINS), "", *notes, ""])


def _lines(section: Section) -> Iterator[str]:
    heads = [*section.titles, *section.cells]
    yield _line(heads)
    yield _line(["---"] * len(heads))
    lines = [
        (row.title, tuple(_value(row.limit(cell)) for cell in section.cells))
        for row in section.rows
    ]
    # Revisions of a server with the same cells share a line.
    for (title, values), same in groupby(lines, lambda line: (line[0][:-1], line[1])):
        last = ", ".join(whole[-1] for whole, _ in same)
        yield _line([*title, last, *values])


def _value(limit: Limit | None) -> str:
    if limit is None:
        return "✓"
    return "✓\\*" if limit.half else "-"


def _notes(limits: Sequence[tuple[str, Limit]]) -> list[str]:
    """Return a line for each reason, with its servers and cells."""
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
