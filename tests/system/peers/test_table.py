"""The table of peers cannot get worse without a test saying so."""

from __future__ import annotations

import pytest

from tests.system.peers.oauth import sign_ins
from tests.system.peers.peers import FILESYSTEM, OFFICIAL, ROWS, STDIO, Row
from tests.system.peers.table import CELLS, Table

ROW = Row(OFFICIAL, STDIO, "auto")


def page_where_everything_works() -> str:
    table = Table("")
    for row in ROWS:
        for cell in CELLS:
            with table.cell(row, cell):
                pass
    for line in sign_ins.SIGN_INS:
        with table.cell(line, *sign_ins.CELLS):
            pass
    return table.render()


def test_a_run_that_tries_nothing_keeps_the_page_as_it_is() -> None:
    page = page_where_everything_works()
    table = Table(page)
    assert table.render() == page
    assert table.worse() == []


def test_a_cell_that_fails_is_worse_than_one_that_worked() -> None:
    table = Table(page_where_everything_works())
    with pytest.raises(ZeroDivisionError), table.cell(ROW, "call"):
        raise ZeroDivisionError
    assert table.worse() == ["mcp 2.3.0 | stdio | 2026-07-28 (auto): call"]


def test_a_way_to_sign_in_that_fails_is_worse_though_another_test_of_it_passes() -> None:
    table = Table(page_where_everything_works())
    with pytest.raises(ZeroDivisionError), table.cell(sign_ins.FASTMCP, "login", "renewal"):
        raise ZeroDivisionError
    with table.cell(sign_ins.FASTMCP, "login", "logout"):
        pass
    line = "fastmcp 4.1.2 | itself"
    assert table.worse() == [f"{line}: login", f"{line}: renewal"]


def test_a_way_to_sign_in_that_is_gone_is_worse() -> None:
    page = page_where_everything_works()
    gone = "| gone 1.0 | itself | yes | no | - | ? | yes | - | - |"
    table = Table(page.replace("| fastmcp 4.1.2 | itself |", f"{gone}\n| fastmcp 4.1.2 | itself |"))
    assert table.worse() == ["gone 1.0 | itself: document", "gone 1.0 | itself: login"]


def test_a_row_that_is_gone_is_worse() -> None:
    page = page_where_everything_works()
    gone = "| gone 1.0 | stdio | 2025-11-25 | yes | yes\\* | no | - | ? | - | - | - | - |"
    table = Table(page.replace("\n\n*-*", f"\n{gone}\n\n*-*"))
    assert table.worse() == [
        "gone 1.0 | stdio | 2025-11-25: call",
        "gone 1.0 | stdio | 2025-11-25: list",
    ]


def test_a_cell_never_tried_and_one_that_cannot_be_do_not_claim_to_work() -> None:
    lines = Table("").render().splitlines()
    [filesystem] = [line for line in lines if FILESYSTEM.name in line and "auto" in line]
    assert filesystem.endswith("| ? | ? | ? | - | - | - | - | - | ? |")


def test_a_page_from_before_a_column_was_added_is_read_all_the_same() -> None:
    head = "| Server | Transport | Revision | list | call |\n| --- | --- | --- | --- | --- |"
    table = Table(f"{head}\n| mcp 2.3.0 | stdio | 2026-07-28 | yes | no |\n")
    [row] = [
        line for line in table.render().splitlines() if "mcp 2.3.0 | stdio | 2026-07-28 |" in line
    ]
    assert row.endswith("| yes | no | ? | ? | ? | ? | ? | ? | ? |")
