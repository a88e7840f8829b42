"""The requirement manifest: every duty of the client, and the tests that prove it.

A row (`requirement_rows/`) is a duty of the protocol, a goal of the project, or a guard against a
known failure. The marks of a test have the ids of the rows that it proves::

    @pytest.mark.requirement("CAN-04", "CAN-05")
    @pytest.mark.pitfall("14", "H10")
    def test_a_late_answer_is_dropped() -> None: ...

`tests/support/plugin_requirements.py` rejects wrong marks. `test_requirements.py` checks that each
row has a test, and that each mark names a row. ``python -m tests.contract.requirements`` prints the
rows and their tests (``--missing``: only the rows without a test). ``make requirements`` writes
``docs/requirements.md``.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.contract.requirement_marks import REQUIREMENT_MARK, TESTS, Carrier, scan
from tests.contract.requirement_rows import further, protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.contract.requirement_rows.row import Row

PROTOCOL = protocol.ROWS + further.ROWS
EXTENSIONS = further.EXTENSIONS
"""Duties of clients that use an extension which is not part of the protocol."""
GOALS = further.GOALS
PITFALLS = further.REPORTS + further.HAZARDS
ROWS = PROTOCOL + EXTENSIONS + GOALS + PITFALLS

PAGE: Final = TESTS.parent / "docs" / "requirements.md"

MOST_IDS = 6
"""The most ids in the marks of one kind on one test: a test cannot prove more of them well."""


def rows_of(kind: str) -> dict[str, Row]:
    """Return the rows that a mark of this kind may name, by id."""
    duties = PROTOCOL + EXTENSIONS + GOALS
    return {row.id: row for row in (duties if kind == REQUIREMENT_MARK else PITFALLS)}


def faults(kind: str, ids: Iterable[object]) -> list[str]:
    """Return the mistakes in the ids that one test has in marks of one kind."""
    known = rows_of(kind)
    found = []
    distinct = list(dict.fromkeys(ids))
    for row_id in distinct:
        row = known.get(row_id) if isinstance(row_id, str) else None
        if row is None:
            found.append(f"{kind}({row_id!r}) names no row")
        elif not row.shown:
            found.append(f"{kind}({row_id!r}) is about nothing: {row.moot}")
    if len(distinct) > MOST_IDS:
        found.append(f"{len(distinct)} ids in {kind} marks, at most {MOST_IDS} are allowed")
    return found


def carriers_by_row(carriers: Iterable[Carrier]) -> dict[str, list[str]]:
    """Return the places of the marks of each row, also of rows without a mark."""
    places: dict[str, list[str]] = {row.id: [] for row in ROWS}
    for carrier in carriers:
        found = places.get(carrier.row_id)
        if found is not None and carrier.place not in found:
            found.append(carrier.place)
    return places


def missing(carriers: Iterable[Carrier]) -> list[Row]:
    """Return the rows that need a test and have none."""
    places = carriers_by_row(carriers)
    return [row for row in ROWS if row.shown and not places[row.id]]


def _state(row: Row, places: Sequence[str]) -> str:
    tests = ", ".join(places) if places else "no test"
    return tests if row.shown else f"({row.moot})"


def page(carriers: Sequence[Carrier]) -> str:
    """Return ``docs/requirements.md``: each row that needs a test, and one of its tests.

    If a row has several tests, the page names the one with the fewest rows.
    """
    places = carriers_by_row(carriers)
    rows = Counter(place for found in places.values() for place in found)
    lines = [
        "# Requirements",
        "",
        "The duties of the client, each with one of the tests and the examples that show it.",
        "`python -m tests.contract.requirements` prints all tests, levels and revisions, and the",
        "duties that do not apply.",
        "",
        "| Id | Duty | Shown by |",
        "|---|---|---|",
    ]
    for row in (row for row in ROWS if row.shown):
        shown = sorted(places[row.id], key=rows.__getitem__)[:1]
        shown += [
            path.relative_to(TESTS.parent).as_posix()
            for name in row.examples
            for path in TESTS.parent.glob(f"examples/*/{name}.py")
        ]
        named = " ".join(f"`{each}`" for each in shown)
        lines.append(f"| {row.id} | {row.duty} | {named} |")
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; the exit code is 1 if a row that needs a test has none."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.contract.requirements", description=main.__doc__
    )
    parser.add_argument("--page", action="store_true", help="write docs/requirements.md")
    parser.add_argument("--missing", action="store_true", help="only rows that lack a test")
    options = parser.parse_args(arguments)
    carriers, problems = scan()
    places = carriers_by_row(carriers)
    lacking = missing(carriers)
    if options.page:
        PAGE.write_text(page(carriers), encoding="utf-8")
    for row in lacking if options.missing or options.page else ROWS:
        print(
            f"{row.id:8} {row.level:10} {row.revisions_in_words:24} "
            f"{_state(row, places[row.id])}\n{'':20}{row.duty}"
        )
    shown = sum(row.shown for row in ROWS)
    print(
        f"{len(ROWS)} rows, {shown} to be shown, {len(lacking)} of them without a test",
        *problems,
        sep="\n",
        file=sys.stderr,
    )
    return 1 if lacking or problems else 0


if __name__ == "__main__":
    sys.exit(main())
