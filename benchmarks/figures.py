"""From samples to ratios: medians of pairs, with their spread, and verdicts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.rows import Row
from benchmarks.sides.base import SideName

Samples = dict[SideName, list[tuple[float, float]]]
"""For each side its samples in order: seconds of wall and of processor time, or MB."""

SUMMARY_DIGITS = 4


@dataclass(frozen=True)
class Spread:
    """A list of values, summarized by five numbers."""

    low: float
    quarter: float
    median: float
    three_quarters: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        if len(values) == 1:
            return cls(*list(values) * 5)
        quarter, median, three_quarters = statistics.quantiles(values, n=4, method="inclusive")
        return cls(min(values), quarter, median, three_quarters, max(values))

    def rounded(self) -> list[float]:
        """Return the five numbers, rounded for the summary."""
        return [
            float(f"{value:.{SUMMARY_DIGITS}g}")
            for value in (self.low, self.quarter, self.median, self.three_quarters, self.high)
        ]


@dataclass(frozen=True)
class Figures:
    """The results of one row.

    Attributes:
        row: The row.
        pairs: The number of rounds.
        median: Median seconds of wall time per unit (or MB), by side.
        cpu: Median seconds of processor time per unit, by side.
        ratio: Wall times of syncmcp divided by those of `row.versus`; `None` if not measured.
        cpu_ratio: The same for processor times.
        connections: New TCP connections per unit, by side; empty for most rows.
        delivered: The lowest share of notifications that reached the callback, by side.
    """

    row: Row
    pairs: int
    median: dict[SideName, float]
    cpu: dict[SideName, float]
    ratio: Spread | None
    cpu_ratio: Spread | None
    connections: dict[SideName, float]
    delivered: dict[SideName, float]

    @property
    def met(self) -> bool | None:
        """Whether the median is within the target; `None` without one."""
        if self.row.target is None or self.ratio is None:
            return None
        reconnects = self.row.no_new_connection and self.connections.get("syncmcp", 0) > 0
        return self.ratio.median <= self.row.target and not reconnects

    @property
    def verdict(self) -> str:
        """Whether the target is met, and if not by how much it is missed."""
        if self.row.target is None or self.ratio is None:
            return ""
        if self.met:
            return "met"
        words: list[str] = []
        if self.ratio.median > self.row.target:
            words.append(f"missed by {self.ratio.median / self.row.target - 1:.0%}")
            if self.cpu_ratio and self.cpu_ratio.median <= self.row.target:
                words.append("met in CPU time")
        if self.row.no_new_connection and self.connections.get("syncmcp", 0) > 0:
            words.append(f"{self.connections['syncmcp']:.3g} new connections per call")
        return ", ".join(words)

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON values, as in ``docs/bench.json``."""
        digits = f".{SUMMARY_DIGITS}g"
        summary: dict[str, Any] = {
            "wire": self.row.wire,
            "title": self.row.title,
            "unit": self.row.unit,
            "versus": self.row.versus,
            "target": self.row.target,
            "verdict": self.verdict,
            "pairs": self.pairs,
            "median": {side: float(f"{value:{digits}}") for side, value in self.median.items()},
            "cpu": {side: float(f"{value:{digits}}") for side, value in self.cpu.items()},
            "ratio": self.ratio.rounded() if self.ratio else None,
            "cpu_ratio": self.cpu_ratio.rounded() if self.cpu_ratio else None,
        }
        if self.connections:
            summary["connections_per_call"] = {
                side: float(f"{value:{digits}}") for side, value in self.connections.items()
            }
        if self.delivered:
            summary["delivered"] = self.delivered
        return summary


def figures(
    row: Row,
    samples: Samples,
    connections: dict[SideName, float] | None = None,
    delivered: dict[SideName, float] | None = None,
) -> Figures:
    """Return the figures of a row, calculated from its samples."""
    ours = samples["syncmcp"]
    ratio = cpu_ratio = None
    if row.versus == "ideal":
        ratio = Spread.of([wall / row.ideal for wall, _ in ours])
    elif row.versus in samples:
        theirs = samples[row.versus]
        ratio = Spread.of([a[0] / b[0] for a, b in zip(ours, theirs, strict=True)])
        cpu_ratio = Spread.of([a[1] / b[1] for a, b in zip(ours, theirs, strict=True)])
    return Figures(
        row,
        len(ours),
        {side: statistics.median(wall for wall, _ in taken) for side, taken in samples.items()},
        {side: statistics.median(cpu for _, cpu in taken) for side, taken in samples.items()},
        ratio,
        cpu_ratio,
        connections or {},
        delivered or {},
    )
