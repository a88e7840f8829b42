"""The table of peers cannot get worse without a test saying so."""

from __future__ import annotations

import pytest

from tests.system.peers.oauth import sign_ins
from tests.system.peers.peers import FILESYSTEM, OFFICIAL, ROWS, STDIO, Row
from tests.system.peers.table import CELLS, Line, Table

ROW = Row(OFFICIAL, STDIO, "auto")


def page_where_everything_works() -> str:
    table = Table("")
    for row in ROWS:
        with table.cell(row, *CELLS):
            pass
    for line in sign_ins.SIGN_INS:
        with table.cell(line, *sign_ins.CELLS):
            pass
    return table.render()


PAGE = page_where_everything_works()


def failing(table: Table, row: Line, *cells: str) -> None:
    with pytest.raises(ZeroDivisionError), table.cell(row, *cells):
        raise ZeroDivisionError


def test_a_run_that_tries_nothing_keeps_the_page_as_it_is() -> None:
    table = Table(PAGE)
    assert table.render() == PAGE
    assert table.worse() == []


def test_a_cell_or_a_way_to_sign_in_that_fails_is_worse_though_another_test_of_it_passes() -> None:
    table = Table(PAGE)
    failing(table, ROW, "call")
    failing(table, sign_ins.FASTMCP, "login", "renewal")
    with table.cell(sign_ins.FASTMCP, "login", "logout"):
        pass
    assert table.worse() == [
        "fastmcp 4.1.2 | itself: login",
        "fastmcp 4.1.2 | itself: renewal",
        "mcp 2.3.0 | stdio | 2026-07-28 (auto): call",
    ]


@pytest.mark.parametrize(
    ("before", "gone", "cells"),
    [
        (
            "| fastmcp 4.1.2 | itself |",
            "| gone 1.0 | itself | yes | no | - | ? | yes | - | - |",
            ["gone 1.0 | itself: document", "gone 1.0 | itself: login"],
        ),
        (
            "\n*-*",
            "| gone 1.0 | stdio | 2025-11-25 | yes | yes\\* | no | - | ? | - | - | - | - |",
            ["gone 1.0 | stdio | 2025-11-25: call", "gone 1.0 | stdio | 2025-11-25: list"],
        ),
    ],
    ids=["way to sign in", "row"],
)
def test_what_is_gone_is_worse(before: str, gone: str, cells: list[str]) -> None:
    assert Table(PAGE.replace(before, f"{gone}\n{before}")).worse() == cells


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
