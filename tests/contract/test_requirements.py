"""The manifest is complete, each row that needs a test has one, and each mark names a row."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from tests.contract.requirement_marks import TESTS, Carrier, read, scan
from tests.contract.requirement_rows.further import HAZARDS, REPORTS
from tests.contract.requirement_rows.row import ALL, EXTENSION
from tests.contract.requirements import (
    EXTENSIONS,
    GOALS,
    PAGE,
    PROTOCOL,
    ROWS,
    faults,
    main,
    missing,
    page,
)
from tests.support import plugin_requirements


def test_the_manifest_is_whole_and_its_ids_are_unique() -> None:
    assert len(PROTOCOL) == 284
    assert [row.id for row in EXTENSIONS] == [f"SKL-{number:02}" for number in range(1, 9)]
    assert [row.id for row in GOALS] == [f"M-{number:02}" for number in range(1, 37)]
    assert [row.id for row in REPORTS] == [str(number) for number in range(1, 34)]
    hazards = ["H1", "H1b", "H1c", *(f"H{number}" for number in range(2, 14))]
    assert [row.id for row in HAZARDS] == hazards
    assert len({row.id for row in ROWS}) == len(ROWS) == 284 + 8 + 36 + 33 + 15


def test_each_row_says_what_it_is_in_which_revisions_and_by_which_source() -> None:
    for row in ROWS:
        assert row.duty.endswith("."), row.id
        assert len(row.duty.split()) <= 12, row.id
        assert row.source, row.id
        assert row.revisions, row.id
        assert set(row.revisions) <= {*ALL, *EXTENSION}, row.id
    assert len({row.duty for row in ROWS}) == len(ROWS)


def test_no_row_is_open_but_those_about_what_the_client_does_not_do() -> None:
    moot = {row.id for row in ROWS if not row.shown}
    assert moot == {"ICN-01", "ICN-02", "TSK-01", "TSK-10"}


def test_what_people_would_use_has_an_example() -> None:
    there = {path.stem for path in TESTS.parent.glob("examples/*/*.py")}
    shown = {row.id: row.examples for row in GOALS}
    assert {name for names in shown.values() for name in names} <= there
    # M-08: the capabilities of a client follow from its handlers. M-36: the architecture page.
    assert {row_id for row_id, names in shown.items() if not names} == {"M-08", "M-36"}


def test_every_row_that_is_to_be_shown_has_a_test() -> None:
    lacking = missing(scan()[0])
    table = "\n".join(f"  {row.id:8} {row.duty}" for row in lacking)
    assert not lacking, f"{len(lacking)} rows have no test:\n{table}"


def test_every_mark_names_a_row_that_is_to_be_shown() -> None:
    carriers, problems = scan()
    wrong = list(problems)
    marks: dict[tuple[str, str], list[str]] = {}
    for carrier in carriers:
        marks.setdefault((carrier.place, carrier.kind), []).append(carrier.row_id)
    for (place, kind), ids in marks.items():
        # Each id is checked by itself: a place may be a table of cases, which exceeds the limit.
        wrong += [f"{place}: {fault}" for row_id in ids for fault in faults(kind, [row_id])]
    assert not wrong, "\n".join(wrong)


SEVEN = [f"RPC-{number:02}" for number in range(1, 8)]


def test_a_mark_may_not_name_what_is_unknown_or_moot_or_more_than_six() -> None:
    assert faults("requirement", ["RPC-01", "M-16"]) == []
    assert faults("pitfall", ["4", "H1b"]) == []
    assert faults("requirement", ["4"]) == ["requirement('4') names no row"]
    assert faults("pitfall", [4]) == ["pitfall(4) names no row"]
    (fault,) = faults("requirement", ["TSK-10"])
    assert fault.startswith("requirement('TSK-10') is about nothing: no tasks are run for servers")
    assert faults("requirement", SEVEN[:6] * 2) == []
    assert faults("requirement", SEVEN) == ["7 ids in requirement marks, at most 6 are allowed"]


def test_marks_are_found_on_functions_classes_modules_and_parameters() -> None:
    source = """
        pytestmark = [pytest.mark.pitfall("1"), pytest.mark.peer]
        CASES = [pytest.param(1, marks=pytest.mark.requirement("A"))]

        @pytest.mark.requirement("B", "C")
        @pytest.mark.parametrize("n", [*CASES, pytest.param(2, marks=pytest.mark.pitfall("H1"))])
        def test_one(n): ...

        if True:
            @mark.requirement("D")
            class TestTwo:
                @pytest.mark.requirement("E")
                def test_three(self): ...
    """
    carriers, problems = read(dedent(source), "t.py")
    assert problems == []
    assert carriers == [
        Carrier("pitfall", "1", "t.py"),
        Carrier("requirement", "A", "t.py (CASES)"),
        Carrier("requirement", "B", "t.py::test_one"),
        Carrier("requirement", "C", "t.py::test_one"),
        Carrier("pitfall", "H1", "t.py::test_one"),
        Carrier("requirement", "D", "t.py::TestTwo"),
        Carrier("requirement", "E", "t.py::TestTwo::test_three"),
    ]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("@pytest.mark.requirement('A')\ndef prepare(): ...", "mark on no test"),
        ("@pytest.mark.requirement('A')\nclass Server: ...", "mark on no test"),
        ("pytestmark = pytest.mark.pitfall('1')", "mark on no test"),
        ("unused = pytest.mark.pitfall('1')", "mark on no test"),
        ("def test_it(request):\n    request.add(pytest.mark.pitfall('1'))", "mark on no test"),
        ("@pytest.mark.pitfall\ndef test_it(): ...", "mark without ids"),
        ("@pytest.mark.pitfall()\ndef test_it(): ...", "takes ids, nothing else"),
        ("@pytest.mark.pitfall(4)\ndef test_it(): ...", "ids as plain strings"),
        ("@pytest.mark.requirement(*IDS)\ndef test_it(): ...", "ids as plain strings"),
    ],
)
def test_a_mark_that_shows_nothing_is_a_problem(source: str, problem: str) -> None:
    carriers, problems = read(source, "t.py")
    assert carriers == []
    assert len(problems) == 1
    assert problem in problems[0]


def test_the_page_is_as_the_marks_are() -> None:
    assert PAGE.read_text("utf-8") == page(scan()[0]), "run `make requirements`"


def test_the_page_names_the_test_that_shows_the_fewest_rows() -> None:
    marks = (("RPC-23", "a"), ("RPC-24", "a"), ("RPC-23", "b"), ("RPC-23", "c"))
    text = page([Carrier("requirement", row, f"tests/t.py::test_{name}") for row, name in marks])
    assert re.search(r"^\| RPC-23 \| .+ \| `tests/t.py::test_b` \|$", text, re.MULTILINE)
    assert re.search(r"^\| RPC-24 \| .+ \| `tests/t.py::test_a` \|$", text, re.MULTILINE)


def test_the_list_has_every_row(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::2]] == [row.id for row in ROWS]


class Collected:
    """A collected test, with the ids of its marks by kind."""

    def __init__(self, nodeid: str, **marks: Sequence[tuple[str, ...]]) -> None:
        self.nodeid, self._marks = nodeid, marks

    def iter_markers(self, kind: str) -> Iterator[Any]:
        return (SimpleNamespace(args=ids) for ids in self._marks.get(kind, ()))


def config(*shows: str) -> Any:
    """Return the configuration of a run with ``--shows``."""
    hook = SimpleNamespace(pytest_deselected=lambda items: None)
    return SimpleNamespace(getoption={"shows": [*shows]}.__getitem__, hook=hook)


def test_pytest_refuses_wrong_marks_before_it_runs_a_test(request: pytest.FixtureRequest) -> None:
    assert request.config.pluginmanager.has_plugin(plugin_requirements.__name__)
    several, more = tuple(SEVEN[:3]), tuple(SEVEN[3:])
    items: list[Any] = [
        Collected("test_too_much", requirement=[several, more]),
        Collected("test_odd", pitfall=[("99",)], requirement=[("TSK-10",)]),
        Collected("test_fine", requirement=[several]),
    ]
    with pytest.raises(pytest.UsageError) as caught:
        plugin_requirements.pytest_collection_modifyitems(config(), items)
    heading, *wrong = str(caught.value).splitlines()
    assert heading == "wrong requirement marks:"
    parts = ("7 ids in requirement marks", "'TSK-10') is about nothing", "'99') names no row")
    names = ("test_too_much", "test_odd", "test_odd")
    for line, name, part in zip(wrong, names, parts, strict=True):
        assert line.startswith(f"{name}: ")
        assert part in line


def test_pytest_can_run_only_what_shows_a_row(request: pytest.FixtureRequest) -> None:
    assert request.config.getoption("shows") == []
    hazard = Collected("test_hazard", pitfall=[("H1b",)])
    items: list[Any] = [Collected("test_four", requirement=[("RPC-04",)]), hazard, Collected("t")]
    plugin_requirements.pytest_collection_modifyitems(config("H1b"), items)
    assert items == [hazard]
    plugin_requirements.pytest_configure(config("H1b"))
    with pytest.raises(pytest.UsageError, match="no such row: XY-1"):
        plugin_requirements.pytest_configure(config("XY-1"))
