"""Two sizes of each test here: a small one among all tests, the full one for `make stress`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final, TypeVar

import hypothesis
import pytest
from hypothesis import HealthCheck as Health
from hypothesis import strategies as st

T = TypeVar("T")

FEW: Final = 25
MANY: Final = 10_000

PHASES: Final = (hypothesis.Phase.generate, hypothesis.Phase.shrink)


def sizes(few: int, many: int, seconds: float) -> pytest.MarkDecorator:
    """Run a test with `size` few, and with `size` many, which may take so many seconds."""
    full = (pytest.mark.stress, pytest.mark.timeout(seconds))
    cases = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=full)]
    return pytest.mark.parametrize("size", cases)


def seeded() -> int:
    """The seed of this run, printed: that of `SYNCMCP_STRESS_SEED`, if it is set."""
    seed = int(os.environ.get("SYNCMCP_STRESS_SEED") or random.randrange(10**6))
    print(f"\nseed {seed}")
    return seed


def explore(examples: st.SearchStrategy[T], examine: Callable[[T], object], count: int) -> None:
    """Examine so many examples: a few are the same each time, many are others."""
    few = count < MANY // 10

    @hypothesis.settings(
        max_examples=count,
        derandomize=few,
        database=None,
        deadline=None,
        phases=PHASES,
        report_multiple_bugs=False,
        suppress_health_check=[Health.data_too_large, Health.filter_too_much, Health.too_slow],
    )
    @hypothesis.given(examples)
    def examined(example: T) -> None:
        examine(example)

    if not few:
        examined = hypothesis.seed(seeded())(examined)
    examined()
