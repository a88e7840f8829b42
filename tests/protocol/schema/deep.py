"""Deep schemas and values, and the messages of refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncmcp.errors import UnsupportedSchema


def refused(job: Callable[[], object]) -> str:
    """Return the message of the `UnsupportedSchema` that the job raises."""
    with pytest.raises(UnsupportedSchema) as caught:
        job()
    return str(caught.value)


def within(word: str, levels: int) -> Any:
    """Return nested objects, each the member `word` of the next one."""
    made: Any = {}
    for _ in range(levels):
        made = {word: made}
    return made


def boxed(levels: int) -> Any:
    """Return a value in nested lists."""
    made: Any = 1
    for _ in range(levels):
        made = [made]
    return made
