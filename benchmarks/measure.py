"""Takes the samples: in each round one of each side, in an order that rotates."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from importlib import metadata
from itertools import groupby
from typing import Any

from benchmarks import programs
from benchmarks.figures import Figures, Samples, figures
from benchmarks.rows import Row
from benchmarks.sides.base import ROOT, SideName, Target, Wire
from benchmarks.worker import Worker

Report = Callable[[Figures, Samples], object]


@contextmanager
def http_server() -> Iterator[int]:
    """Run the server for all sides; yield its port."""
    command = [sys.executable, "-m", "benchmarks.servers.http_server"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.stdin.close()
        process.wait(20)
        process.stdout.close()


def _in_turn(round_number: int, sides: Sequence[SideName]) -> list[SideName]:
    first = round_number % len(sides)
    return [*sides[first:], *sides[:first]]


def measure_rows(rows: Sequence[Row], revision: str, port: int, pairs: int, report: Report) -> None:
    """Measure rows of workloads, with one process for all rows of a wire, revision and side."""
    control = HTTPConnection("127.0.0.1", port)
    groups: dict[tuple[Wire, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.wire, row.revision or revision), []).append(row)
    for (wire, spoken), group in groups.items():
        with ExitStack() as stack:
            workers: dict[SideName, Worker] = {}
            sides: dict[SideName, None] = dict.fromkeys(side for row in group for side in row.sides)
            for side in sides:
                workers[side] = Worker(side, Target(wire, spoken, port))
                stack.callback(workers[side].close)
            for row in group:
                report(*_measure(row, workers, control, pairs))
    control.close()


def _measure(
    row: Row, workers: dict[SideName, Worker], control: HTTPConnection, pairs: int
) -> tuple[Figures, Samples]:
    for side in row.sides:  # not counted: this run does the work that is done once
        workers[side].sample(row.workload, row.parameters)
    samples: Samples = {side: [] for side in row.sides}
    units = dict.fromkeys(row.sides, 0)
    connections: dict[SideName, float] = dict.fromkeys(row.sides, 0.0)
    delivered: dict[SideName, float] = dict.fromkeys(row.sides, 1.0)
    for number in range(pairs):
        for side in _in_turn(number, row.sides):
            before = _connections(control)
            sample = workers[side].sample(row.workload, row.parameters)
            connections[side] += _connections(control) - before
            units[side] += sample.seen
            samples[side].append((sample.wall, sample.cpu))
            if "count" in row.parameters:
                share = sample.seen / row.parameters["count"]
                delivered[side] = min(delivered[side], share)
    per_call: dict[SideName, float] = {side: connections[side] / units[side] for side in row.sides}
    return (
        figures(
            row,
            samples,
            per_call if row.no_new_connection else None,
            delivered if "count" in row.parameters else None,
        ),
        samples,
    )


def _connections(control: HTTPConnection) -> int:
    control.request("GET", "/count")
    return int(control.getresponse().read())


def measure_programs(
    rows: Sequence[Row], revision: str, port: int, pairs: int, report: Report
) -> None:
    """Measure rows of whole programs."""
    for (program, wire), group in groupby(rows, lambda row: (row.workload, row.wire)):
        of_program = list(group)
        sides = of_program[0].sides
        target = Target(wire, revision, port)
        rounds = [
            programs.cost(program, _in_turn(number, sides), target) for number in range(pairs)
        ]
        for row in of_program:
            samples: Samples = {
                side: [_figure(row, costs[side]) for costs in rounds] for side in sides
            }
            report(figures(row, samples), samples)


def _figure(row: Row, cost: programs.Cost) -> tuple[float, float]:
    return (cost.memory, cost.memory) if row.unit == "MB" else (cost.wall, cost.cpu)


def machine() -> dict[str, Any]:
    """Describe the computer and the versions of the packages."""
    packages = ("syncmcp-client", "mcp", "anyio", "requests", "urllib3", "pydantic")
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "packages": {name: metadata.version(name) for name in packages},
    }
