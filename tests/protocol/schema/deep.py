"""Deep schemas and values, and what is said of those that are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.errors import UnsupportedSchema


def refused(job: Callable[[], object]) -> str:
    """What is said when the job meets a schema that cannot be used."""
    with pytest.raises(UnsupportedSchema) as caught:
        job()
    return str(caught.value)


def within(word: str, levels: int) -> Any:
    """A schema, or any object, within this word of another, and so on."""
    made: Any = {}
    for _ in range(levels):
        made = {word: made}
    return made


def boxed(levels: int) -> Any:
    """A list within a list within a list."""
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made
