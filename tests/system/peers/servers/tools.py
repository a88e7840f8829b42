"""The tools of every Python peer, so that the same tests fit all of them.

Each server program registers these functions with the decorators of its SDK.
"""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

# Seconds after which a tool answers "no", long before the timeout of the test.
PATIENCE = 20.0

# Seconds after each report. If the result has its own stream, it must not overtake the first one.
STEP = 0.1

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "polite": {"type": "boolean", "default": True},
    },
    "required": ["name"],
}


def in_words(content: Mapping[str, Any]) -> str:
    """Return the fields of a form as text, sorted by name."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(content.items()))


_started: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)
_cancelled: defaultdict[str, anyio.Event] = defaultdict(anyio.Event)


def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def fail(reason: str) -> str:
    """Fail with this reason."""
    raise ValueError(reason)


async def count(steps: int, report: Callable[[float, float], Awaitable[None]]) -> str:
    """Report progress once for each step."""
    for step in range(1, steps + 1):
        await report(step, steps)
        await anyio.sleep(STEP)
    return f"counted to {steps}"


async def wait(nonce: str) -> str:
    """Wait for a cancellation, and record it."""
    _started[nonce].set()
    try:
        await anyio.sleep_forever()
    except anyio.get_cancelled_exc_class():
        _cancelled[nonce].set()
        raise
    return "never"


async def started(nonce: str) -> str:
    """Return "yes" as soon as ``wait`` is running with this nonce."""
    return await _say_when(_started[nonce])


async def cancelled(nonce: str) -> str:
    """Return "yes" as soon as ``wait`` with this nonce was cancelled."""
    return await _say_when(_cancelled[nonce])


async def _say_when(event: anyio.Event) -> str:
    with anyio.move_on_after(PATIENCE):
        await event.wait()
    return "yes" if event.is_set() else "no"


TOOLS = (add, wait, started, cancelled)
