"""How calls of a tool that waits scale over the workers of a Dask cluster, against the ideal.

Each worker is a process with one thread and a server of its own over stdio. Opening the servers is
not timed: calls before the first round open them.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from distributed import Client as Dask
from distributed import LocalCluster

from benchmarks.measure import machine
from benchmarks.report import into_page
from benchmarks.servers.answers import STATELESS
from benchmarks.sides.base import ROOT
from syncmcp import Client, Stdio, fan_out

WORKERS = (1, 2, 4, 8)
CALLS, SECONDS, ROUNDS = 80, 0.05, 3

_PAGE = ROOT / "docs" / "beyond-one-machine.md"


@dataclass(frozen=True)
class Scale:
    """The time that a number of workers took.

    Attributes:
        workers: The number of workers.
        seconds: From the first call to the last outcome, median of the rounds.
        ideal: The same if only the tool took time.
    """

    workers: int
    seconds: float
    ideal: float

    @property
    def efficiency(self) -> float:
        """The part of the ideal that was reached."""
        return self.ideal / self.seconds

    def __str__(self) -> str:
        return f"{self.workers:8}{self.seconds:10.2f} s{self.ideal:10.2f} s{self.efficiency:8.0%}"


def heading() -> str:
    """Return the line above the table in the terminal."""
    return f"{'workers':>8}{'took':>12}{'ideal':>12}{'of it':>8}"


def measure(
    workers: Sequence[int] = WORKERS,
    calls: int = CALLS,
    seconds: float = SECONDS,
    rounds: int = ROUNDS,
) -> Iterator[Scale]:
    """Make `calls` calls that each wait `seconds`, on each number of workers."""
    server = ROOT / "benchmarks" / "servers" / "stdio_server.py"
    config = Client(Stdio(sys.executable, str(server), STATELESS, env={"PYTHONPATH": str(ROOT)}))
    waiting = [("sleep", {"seconds": seconds})] * calls
    for count in workers:
        with (
            LocalCluster(
                n_workers=count, threads_per_worker=1, processes=True, dashboard_address=":0"
            ) as cluster,
            Dask(cluster) as dask,
        ):
            dask.wait_for_workers(count)
            executor = dask.get_executor()
            opened: set[str] = set()
            while len(opened) < count:
                opened |= {
                    one.worker
                    for one in fan_out(config, waiting[: 4 * count], executor, idempotent=True)
                }
            samples = []
            for _ in range(rounds):
                began = time.perf_counter()
                outcomes = list(fan_out(config, waiting, executor, idempotent=True))
                samples.append(time.perf_counter() - began)
                wrong = [one for one in outcomes if one.error is not None]
                assert not wrong, wrong[0]
        yield Scale(count, statistics.median(samples), calls * seconds / count)


def markdown(scales: Sequence[Scale], rounds: int) -> str:
    """Return the table for the docs."""
    on = machine()
    rows = [
        f"| {one.workers} | {one.seconds:.2f} s | {one.ideal:.2f} s | {one.efficiency:.0%} |"
        for one in scales
    ]
    return "\n".join(
        [
            "| workers | took | ideal | of the ideal |",
            "| ---: | ---: | ---: | ---: |",
            *rows,
            "",
            (
                f"Measured with `python -m benchmarks.scaling --docs`: {CALLS} calls of"
                f" {SECONDS * 1e3:g} ms, median of {rounds} rounds, Python {on['python']} on"
                f" {on['system']} with {on['cores']} cores."
            ),
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds of each size")
    parser.add_argument("--docs", action="store_true", help="also write the table of the docs")
    options = parser.parse_args(arguments)
    print(heading())
    scales = []
    for one in measure(rounds=options.rounds):
        print(one, flush=True)
        scales.append(one)
    if options.docs:
        page = into_page(_PAGE.read_text(encoding="utf-8"), markdown(scales, options.rounds))
        _PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
