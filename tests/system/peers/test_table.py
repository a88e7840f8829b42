"""The page about the tested servers agrees with the tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.system.peers import test_oauth
from tests.system.peers.oauth.sign_ins import CELLS, SIGN_INS
from tests.system.peers.table import PAGE, render


def test_the_page_about_peers_says_what_each_of_them_can_do(tmp_path: Path) -> None:
    """Compare the page with the rows and cells, which `test_peers.py` also uses."""
    now = render()
    written = tmp_path / PAGE.name
    written.write_text(now, "utf-8")
    assert now == PAGE.read_text("utf-8"), f"it is in {written}: copy it"


def signing_in() -> Iterator[tuple[object, str]]:
    """Yield each cell of the table of sign-ins that the mark of a test names."""
    marks: list[Any] = [
        mark for test in vars(test_oauth).values() for mark in getattr(test, "pytestmark", ())
    ]
    for mark in marks:
        if mark.name == "parametrize":
            marks += [one for case in mark.args[1] for one in getattr(case, "marks", ())]
        elif mark.name == "signs_in":
            row, *cells = mark.args
            yield from ((row, cell) for cell in cells)


def test_each_way_to_sign_in_that_works_has_a_test() -> None:
    works = {(row, cell) for row in SIGN_INS for cell in CELLS if row.limit(cell) is None}
    assert set(signing_in()) == works
