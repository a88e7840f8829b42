"""The figures of deadlines are taken in the phase that they are named after."""

from __future__ import annotations

import pytest

from tests.support.stage import PATIENCE
from tests.system.bench import overshoot

pytestmark = [pytest.mark.slow, pytest.mark.alone]


def test_a_call_that_runs_out_of_time_is_late_by_a_little_in_each_phase() -> None:
    figures = list(overshoot.measure(1, ("TLS", "JSON")))
    assert [(one.phase, one.tls) for one in figures] == [
        ("TLS", True),
        ("JSON", False),
        ("JSON", True),
    ]
    for one in figures:
        assert 0 < one.median == one.highest < PATIENCE


def test_a_missed_aim_is_said() -> None:
    line = str(overshoot.Overshoot("SSE", True, 0.25, 0.5))
    assert "SSE, TLS" in line
    assert "250.0 ms" in line
    assert line.endswith("missed")
