"""Two sizes of each stress test: a small one for `make test`, the full one for `make stress`."""

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
    """Return a decorator: run a test with `size` few, and with `size` many within `seconds`."""
    full = (pytest.mark.stress, pytest.mark.timeout(seconds))
    cases = [pytest.param(few, id="few"), pytest.param(many, id="many", marks=full)]
    return pytest.mark.parametrize("size", cases)


def seeded() -> int:
    """Print and return the seed of this run: `SYNCMCP_STRESS_SEED`, or a random one."""
    seed = int(os.environ.get("SYNCMCP_STRESS_SEED") or random.randrange(10**6))
    print(f"\nseed {seed}")
    return seed


def explore(examples: st.SearchStrategy[T], examine: Callable[[T], object], count: int) -> None:
    """Examine `count` examples: if they are few, the same in each run; otherwise random ones."""
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
