"""How long after its deadline a call ends, in each phase of its HTTP exchange, plain and over TLS.

No other side can be stopped in these phases, so these figures are not compared with others.
"""

from __future__ import annotations

import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncmcp.errors import RequestTimeout
from tests.transports.certificates import make
from tests.transports.phases import PHASES, Phase, Stage, answers, arguments, stage

AIM = 0.1
"""Seconds after the deadline that no phase should exceed."""

CALLS, QUICK_CALLS = 5, 1
"""Calls in each phase."""

# In seconds: enough to reach each phase on a busy machine. Before one phase, the client makes a
# request so long that sending it can be interrupted.
_TIMEOUT = 1.5


@dataclass(frozen=True)
class Overshoot:
    """The figures of one phase.

    Attributes:
        phase: The phase in which the deadline passed.
        tls: Whether the connection used TLS.
        median: Seconds from the deadline to the end of the call, over all samples.
        highest: The same for the slowest call.
    """

    phase: Phase
    tls: bool
    median: float
    highest: float

    def summary(self) -> dict[str, Any]:
        """Return the figures as JSON values, as in ``docs/bench.json``."""
        return {
            "phase": self.phase,
            "tls": self.tls,
            "median": round(self.median, 4),
            "highest": round(self.highest, 4),
        }

    def __str__(self) -> str:
        wire = "TLS" if self.tls else "plain"
        verdict = "met" if self.median <= AIM else "missed"
        return (
            f"{f'{self.phase}, {wire}':20}{self.median * 1e3:8.1f} ms{self.highest * 1e3:8.1f} ms"
            f"  {verdict}"
        )


def heading() -> str:
    """Return the line above the table in the terminal."""
    return f"{'deadline passed in':20}{'median':>11}{'highest':>11}  aim: {AIM * 1e3:g} ms"


def measure(calls: int = CALLS, phases: Sequence[Phase] = tuple(PHASES)) -> Iterator[Overshoot]:
    """Let `calls` calls time out in each phase; yield the figures of each."""
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unverified HTTPS request")
        certificates = make(Path(directory))
        for phase in phases:
            for tls in (False, True):
                if phase == "TLS" and not tls:
                    continue  # without TLS, there is no such phase
                context = certificates.server_context() if tls else None
                with stage("2026-07-28", answers(phase), context) as on:
                    on.client.call_tool("echo")  # the first call loads modules and fills caches
                    samples = [_late_by(on, phase) for _ in range(calls)]
                yield Overshoot(phase, tls, statistics.median(samples), max(samples))


def _late_by(on: Stage, phase: Phase) -> float:
    given = arguments(phase)
    with PHASES[phase](on) as reached:
        deadline = time.monotonic() + _TIMEOUT
        try:
            on.client.call_tool("echo", given, timeout=_TIMEOUT)
        except RequestTimeout:
            late = time.monotonic() - deadline
        else:
            raise AssertionError(f"the call was not held in the phase {phase}")
        reached()
    return late
