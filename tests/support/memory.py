"""How much memory a job takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable


def peak(job: Callable[[], object]) -> int:
    """Run the job; return how much it had allocated at most, in bytes."""
    tracemalloc.start()
    try:
        job()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
