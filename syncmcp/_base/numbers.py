"""A check of numbers from other programs, and the limit on questions of a server."""

from __future__ import annotations

import sys
from typing import TypeGuard

MAX_QUESTIONS = 64
"""The most questions that a server may ask at once: no person or model would answer more."""


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a finite number in the range of a float; booleans are not.

    JSON parsers read other numbers differently. A larger integer cannot be added to a float.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) <= sys.float_info.max  # false for NaN
