"""The benchmarks measure what they claim, and the docs show the stored run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any, get_args
from xml.etree import ElementTree

import pytest

from benchmarks import overshoot, picture, programs, report
from benchmarks.figures import Samples, Spread, figures
from benchmarks.measure import http_server
from benchmarks.rows import PROGRAMS, ROWS, Row
from benchmarks.servers.answers import STATELESS
from benchmarks.sides.base import ROOT, SideName, Target, Wire
from benchmarks.sides.floor_side import FloorSide
from benchmarks.sides.syncmcp_side import SyncmcpSide
from benchmarks.workloads import run
from tests.support.stage import PATIENCE
from tests.transports.phases import PHASES

DOCS = ROOT / "docs"
SMALL: dict[str, Any] = {
    "calls": 3, "rounds": 2, "threads": 2, "times": 2, "questions": 3, "size": 100_000,
    "count": 3, "tools": 6, "pages": 2, "seconds": 0.01, "timeout": 0.05,
}  # fmt: skip


def expected(row: Row) -> int:
    """Return the number of units in a small sample of the row."""
    if row.workload == "connect":
        return int(SMALL["times"])
    if row.workload == "listing":
        return int(SMALL["tools"])
    if row.workload in ("batch", "payload", "structured", "sleeping", "timed_out"):
        return 1
    return math.prod(int(SMALL[name]) for name in row.parameters)


@pytest.mark.slow
@pytest.mark.parametrize("wire", get_args(Wire))
@pytest.mark.parametrize("name", ["syncmcp", "floor"])
def test_each_row_runs(name: SideName, wire: Wire) -> None:
    by_revision: dict[str, list[Row]] = {}
    for row in ROWS:
        if row.wire == wire and name in row.sides:
            by_revision.setdefault(row.revision or STATELESS, []).append(row)
    assert by_revision
    with http_server() as port:
        for revision, rows in by_revision.items():
            side = SyncmcpSide() if name == "syncmcp" else FloorSide()
            target = Target(wire, revision, port)
            side.open(target)
            try:
                for row in rows:
                    small = {name: SMALL[name] for name in row.parameters}
                    assert run(row.workload, side, target, small).seen == expected(row)
            finally:
                side.close()


@pytest.mark.slow
def test_import_loads_no_http_no_schemas_and_no_interface() -> None:
    assert programs.loaded_by_import() == []


def test_a_ratio_is_taken_within_each_pair_before_the_median() -> None:
    samples: Samples = {
        "syncmcp": [(1.0, 1.0), (20.0, 4.0), (6.0, 1.0)],
        "official": [(4.0, 1.0), (40.0, 8.0), (8.0, 1.0)],
    }
    got = figures(Row("row", "a row", "sequential", target=0.5), samples)
    assert got.ratio == Spread(0.25, 0.375, 0.5, 0.625, 0.75)


@pytest.mark.parametrize(
    ("target", "connections", "verdict"),
    [
        (0.5, 0.0, "met"),
        (0.2, 0.0, "missed by 50%, met in CPU time"),
        (0.5, 0.5, "0.5 new connections per call"),
    ],
)
def test_a_verdict_says_what_was_missed(target: float, connections: float, verdict: str) -> None:
    row = Row("row", "a row", "sequential", "sse", target=target, no_new_connection=True)
    samples: Samples = {"syncmcp": [(3.0, 1.0)], "official": [(10.0, 10.0)]}
    got = figures(row, samples, {"syncmcp": connections})
    assert got.verdict == verdict
    assert got.met is (verdict == "met")


@pytest.mark.slow
def test_a_deadline_is_late_in_the_phase_that_the_figure_names() -> None:
    (figure,) = overshoot.measure(1, ("TLS",))
    assert (figure.phase, figure.tls) == ("TLS", True)
    assert 0 < figure.median == figure.highest < PATIENCE
    assert str(overshoot.Overshoot("SSE", True, 0.25, 0.5)).endswith("missed")


def test_the_page_and_the_picture_show_the_run_that_is_kept() -> None:
    summary = json.loads((DOCS / "bench.json").read_text(encoding="utf-8"))
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert report.into_page(page, report.markdown(summary)) == page
    svg = (DOCS / "performance.svg").read_text(encoding="utf-8")
    assert picture.draw(summary) == svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert summary["pairs"] >= 15
    rows = [row.key for row in (*ROWS, *PROGRAMS)]
    assert sorted(summary["rows"]) == sorted(rows)
    assert {one["phase"] for one in summary["overshoot"]["phases"]} == PHASES.keys()


# -- the cost of a tool call in Python, by counts that do not depend on the machine

# Limits for one call: entered functions, also of other packages, and files of the library.
# With many futures in flight, the number of answers in one read depends on the load.
CEILINGS = {
    "stdio": (62, 18),
    "stdio_futures": (80, 20),
    "json": (218, 21),
    "json_futures": (288, 27),
    "sse": (260, 22),
}


@pytest.mark.slow
@pytest.mark.skipif(sys.version_info < (3, 12), reason="there, comprehensions are functions, too")
def test_a_tool_call_enters_no_more_functions_and_files_than_these() -> None:
    program = [sys.executable, "-m", "benchmarks.calls"]
    ran = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True)
    counted = json.loads(ran.stdout.splitlines()[-1])
    assert counted.keys() == CEILINGS.keys()
    more = {
        key: one
        for key, one in counted.items()
        if one["calls"] > CEILINGS[key][0] or one["files"] > CEILINGS[key][1]
    }
    assert more == {}
    assert all(one["calls"] > 20 for one in counted.values())
