"""The benchmarks measure what they say; how fast anything is, they alone tell."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, get_args
from xml.etree import ElementTree

import pytest

from tests.system.bench import picture, programs, report
from tests.system.bench.figures import Figures, Samples, Spread, figures
from tests.system.bench.measure import http_server
from tests.system.bench.rows import PROGRAMS, ROWS, Row
from tests.system.bench.servers.answers import BATCHING, STATEFUL, STATELESS
from tests.system.bench.sides.base import ROOT, Side, SideName, Target, Wire
from tests.system.bench.sides.floor_side import FloorSide
from tests.system.bench.sides.syncmcp_side import SyncmcpSide
from tests.system.bench.workloads import WORKLOADS, run
from tests.transports.phases import PHASES

pytestmark = pytest.mark.slow

DOCS = ROOT / "docs"
SMALL: dict[str, Any] = {
    "calls": 3,
    "rounds": 2,
    "threads": 2,
    "times": 2,
    "questions": 3,
    "size": 100_000,
    "count": 3,
    "tools": 6,
    "pages": 2,
    "seconds": 0.01,
    "timeout": 0.05,
}


@contextmanager
def opened(side: Side, wire: Wire, revision: str) -> Iterator[Target]:
    with http_server() as port:
        target = Target(wire, revision, port)
        side.open(target)
        try:
            yield target
        finally:
            side.close()


def expected(row: Row) -> int:
    """How many units a small sample of the row has."""
    if row.workload == "connect":
        return int(SMALL["times"])
    if row.workload == "listing":
        return int(SMALL["tools"])
    if row.workload in ("batch", "payload", "structured", "sleeping", "timed_out"):
        return 1
    return math.prod(int(SMALL[name]) for name in row.parameters)


def parameters(row: Row) -> dict[str, Any]:
    return {name: SMALL[name] for name in row.parameters}


@pytest.mark.parametrize("revision", [STATELESS, STATEFUL, BATCHING])
@pytest.mark.parametrize("wire", get_args(Wire))
@pytest.mark.parametrize("name", ["syncmcp", "floor"])
def test_each_workload_runs_on_each_wire_in_both_eras(
    name: SideName, wire: Wire, revision: str
) -> None:
    side = SyncmcpSide() if name == "syncmcp" else FloorSide()
    rows = [
        row
        for row in ROWS
        if row.wire == wire and name in row.sides and row.revision in (None, revision)
    ]
    with opened(side, wire, revision) as target:
        for row in rows:
            sample = run(row.workload, side, target, parameters(row))
            assert sample.cpu >= 0
            assert sample.seen == expected(row)


def test_every_row_names_a_workload_and_has_a_key_of_its_own() -> None:
    rows = [*ROWS, *PROGRAMS]
    assert len({row.key for row in rows}) == len(rows)
    assert {row.workload for row in ROWS} <= WORKLOADS.keys()


def test_the_benchmark_tells_that_import_loads_no_http_no_schemas_and_no_interface() -> None:
    assert programs.loaded_by_import() == []


def made(ours: list[float], theirs: list[float], target: float) -> Figures:
    samples: Samples = {
        "syncmcp": [(wall, wall / 2) for wall in ours],
        "official": [(wall, wall) for wall in theirs],
    }
    return figures(Row("row", "a row", "sequential", target=target), samples)


def test_a_ratio_is_taken_within_each_pair_before_the_median() -> None:
    got = made([1.0, 20.0, 6.0], [4.0, 40.0, 8.0], 0.5)
    assert got.ratio == Spread(0.25, 0.375, 0.5, 0.625, 0.75)
    assert got.met
    assert got.verdict == "met"


def test_a_missed_row_says_by_how_much_and_what_cpu_time_says() -> None:
    got = made([3.0], [10.0], 0.2)
    assert got.met is False
    assert got.verdict == "missed by 50%, met in CPU time"


def test_a_new_connection_for_calls_misses_the_target_however_fast_they_are() -> None:
    row = Row("row", "a row", "sequential", "sse", target=1.0, no_new_connection=True)
    samples: Samples = {"syncmcp": [(1.0, 1.0)], "official": [(2.0, 2.0)]}
    assert figures(row, samples, {"syncmcp": 0.0}).met
    reconnecting = figures(row, samples, {"syncmcp": 0.5})
    assert not reconnecting.met
    assert "0.5 new connections per call" in reconnecting.verdict


def test_the_page_and_the_picture_show_the_run_that_is_kept() -> None:
    summary = json.loads((DOCS / "bench.json").read_text(encoding="utf-8"))
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert report.into_page(page, report.markdown(summary)) == page
    svg = (DOCS / "performance.svg").read_text(encoding="utf-8")
    assert picture.draw(summary) == svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert summary["pairs"] >= 15
    assert summary["rows"].keys() == {row.key for row in (*ROWS, *PROGRAMS)}
    assert {one["phase"] for one in summary["overshoot"]["phases"]} == PHASES.keys()


def test_the_page_says_which_phase_ends_too_late() -> None:
    summary = json.loads((DOCS / "bench.json").read_text(encoding="utf-8"))
    late = {"phase": "JSON", "tls": False, "median": 0.12, "highest": 1.5}
    summary["overshoot"] = {"aim": 0.1, "calls": 7, "phases": [late, {**late, "phase": "SSE"}]}
    summary["overshoot"]["phases"][1]["median"] = 0.01
    table = report.markdown(summary)
    assert "| JSON | 120.0 ms | 1.50 s | - | - | missed |" in table
    assert "| SSE | 10.0 ms | 1.50 s | - | - | met |" in table


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there, comprehensions are functions, too")
def test_a_tool_call_enters_no_more_functions_and_files_than_these() -> None:
    program = [sys.executable, "-m", "tests.system.bench.calls"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    counted = json.loads(ran.stdout.splitlines()[-1])
    ceilings = {
        "stdio": (62, 18),
        "stdio_futures": (77, 20),
        "json": (218, 21),
        "json_futures": (288, 27),
        "sse": (260, 22),
    }
    assert counted.keys() == ceilings.keys()
    more = {
        key: one
        for key, one in counted.items()
        if one["calls"] > ceilings[key][0] or one["files"] > ceilings[key][1]
    }
    assert more == {}
    # The functions of other packages count, too: there cannot be as few as none.
    assert all(one["calls"] > 20 for one in counted.values())
