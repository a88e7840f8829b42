"""Measurement of the memory that a job allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak(job: Callable[[], object]) -> int:
    """Run `job`; return the peak size of its Python allocations, in bytes."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
