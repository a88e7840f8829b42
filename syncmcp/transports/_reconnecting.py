"""When to try a broken event stream again, and when to give up."""

from __future__ import annotations

import random

__all__ = ["Attempts"]

# Attempts in a row that bring nothing new.
_FRUITLESS = 3

# Seconds: without a word from the server; at least, whatever it says; at most, unless it says so.
_DEFAULT = 1.0
_SHORTEST = 0.05
_LONGEST = 30.0


class Attempts:
    """Counts fruitless attempts and says how long to wait before the next one."""

    def __init__(self) -> None:
        self._fruitless = 0

    def progress(self) -> None:
        """Something new came: start counting anew."""
        self._fruitless = 0

    def stop(self) -> None:
        """Do not try again."""
        self._fruitless = _FRUITLESS

    def next_pause(self, retry: float | None) -> float | None:
        """Seconds to wait before the next attempt, `None` to give up.

        Never less than `retry`, the server's own wish (basic/transports, 2025-11-25: MUST).
        """
        if self._fruitless >= _FRUITLESS:
            return None
        base = max(_SHORTEST, _DEFAULT if retry is None else retry)
        pause = base
        if self._fruitless or retry is None:
            pause = max(base, min(_LONGEST, base * 2**self._fruitless))
            # Many clients that lost the same server should not all come back at once.
            pause *= 1 + random.random() / 4  # noqa: S311 - no secret depends on it
        self._fruitless += 1
        return pause
