"""Benchmarks: syncmcp, the official SDK and a bare floor, in turn, against the same server.

Prints a table of ratios and writes every sample to ``build/bench/``. A missed target appears in the
table; it is never a failure.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from benchmarks import calls, overshoot, picture, programs, report
from benchmarks.figures import Figures, Samples
from benchmarks.measure import http_server, machine, measure_programs, measure_rows
from benchmarks.rows import PROGRAMS, ROWS
from benchmarks.servers.answers import STATEFUL, STATELESS
from benchmarks.sides.base import ROOT

_OUTPUT = ROOT / "build" / "bench"
_DOCS = ROOT / "docs"
PAIRS, QUICK_PAIRS = 15, 3


class _Run:
    """Collects the figures of the rows, and prints each row as soon as it is measured."""

    def __init__(self) -> None:
        self.rows: dict[str, Any] = {}
        self.samples: dict[str, Samples] = {}

    def take(self, figures: Figures, samples: Samples) -> None:
        key = figures.row.key
        self.rows[key] = figures.summary()
        self.samples[key] = samples
        print(report.line(self.rows[key]), flush=True)


def _late(calls: int) -> list[dict[str, Any]]:
    """Measure how long after their deadlines calls end; print each phase once it is measured."""
    print(overshoot.heading())
    summaries = []
    for one in overshoot.measure(calls):
        print(one, flush=True)
        summaries.append(one.summary())
    return summaries


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help=f"{QUICK_PAIRS} pairs, without the slowest rows"
    )
    parser.add_argument("--pairs", type=int, help=f"rounds of each row (default {PAIRS})")
    parser.add_argument("--revision", choices=(STATELESS, STATEFUL), default=STATELESS)
    parser.add_argument(
        "--only", metavar="WORD", help="the rows with this word in their key; or: overshoot, calls"
    )
    parser.add_argument(
        "--docs", action="store_true", help="also write the table and the picture of the docs"
    )
    arguments = parser.parse_args()
    if arguments.docs and (arguments.quick or arguments.only):
        parser.error("the docs show whole runs: --docs goes with neither --quick nor --only")
    return arguments


def _main() -> None:
    arguments = _arguments()
    pairs = arguments.pairs or (QUICK_PAIRS if arguments.quick else PAIRS)
    began = time.monotonic()
    rows, whole_programs = (
        [
            row
            for row in table
            if (row.quick or not arguments.quick) and (arguments.only or "") in row.key
        ]
        for table in (ROWS, PROGRAMS)
    )
    run = _Run()
    print(report.heading())
    with http_server() as port:
        measure_rows(rows, arguments.revision, port, pairs, run.take)
        measure_programs(whole_programs, arguments.revision, port, pairs, run.take)
    number = overshoot.QUICK_CALLS if arguments.quick else overshoot.CALLS
    late = _late(number) if (arguments.only or "") in "overshoot" else []
    counted = calls.main() if (arguments.only or "") in "calls" else {}
    unwanted = programs.loaded_by_import()
    print(f"import syncmcp loads of what it should not: {', '.join(unwanted) or 'nothing'}")
    summary = {
        "command": "python -m benchmarks --docs" if arguments.docs else "python -m benchmarks",
        "revision": arguments.revision,
        "pairs": pairs,
        "seconds": round(time.monotonic() - began),
        "machine": machine(),
        "unwanted_imports": unwanted,
        "rows": run.rows,
        "overshoot": {"aim": overshoot.AIM, "calls": number, "phases": late},
        "calls": counted,
    }
    _write(summary, run.samples, arguments.docs)


def _write(summary: dict[str, Any], samples: dict[str, Samples], docs: bool) -> None:
    _OUTPUT.mkdir(parents=True, exist_ok=True)
    path = _OUTPUT / f"bench-{summary['revision']}.json"
    path.write_text(json.dumps({**summary, "samples": samples}) + "\n", encoding="utf-8")
    (_OUTPUT / "ratios.svg").write_text(picture.draw(summary), encoding="utf-8")
    print(f"{summary['seconds']} s; every sample: {path.relative_to(ROOT)}")
    if not docs:
        return
    (_DOCS / "bench.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    (_DOCS / "performance.svg").write_text(picture.draw(summary), encoding="utf-8")
    page = _DOCS / "performance.md"
    text = report.into_page(page.read_text(encoding="utf-8"), report.markdown(summary))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    _main()
