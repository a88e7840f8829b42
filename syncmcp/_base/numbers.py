"""Numbers that others wrote: which of them can be calculated with, and how many are too many."""

from __future__ import annotations

import sys
from typing import TypeGuard

MAX_QUESTIONS = 64
"""The most questions that a server asks at once: no person and no model answers more."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a number that all JSON parsers read alike; booleans are not.

    That is a finite one that a float can hold: others cannot be divided, nor be added to a float.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= sys.float_info.max  # not NaN, which is less than nothing
