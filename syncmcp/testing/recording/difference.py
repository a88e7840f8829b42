"""What a client asks, held against what was recorded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from syncmcp.testing.recording.mask import MASKED

# Their parameters say what the client is; another version of it must be able to play a recording.
_GREETINGS = frozenset(("initialize", "server/discover"))

# Members of `_meta` that a client sets by itself.
_OWN = "io.modelcontextprotocol/"
_PASSING = frozenset(("baggage", "progressToken", "traceparent", "tracestate"))

_LONGEST_VALUE = 80
_MISSING = object()


def essence(method: str, params: Any) -> Any:
    """What of its parameters makes a request the request it is."""
    if method in _GREETINGS or not params:
        return {}
    if not isinstance(params, dict):
        return params
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return params
    kept = {
        name: value
        for name, value in meta.items()
        if not name.startswith(_OWN) and name not in _PASSING
    }
    rest = {name: value for name, value in params.items() if name != "_meta"}
    return {**rest, "_meta": kept} if kept else rest


def differences(recorded: Any, asked: Any, path: str = "") -> Iterator[str]:
    """Say in what two JSON values differ, a line for each place.

    What is masked in the recorded one may be anything.
    """
    if isinstance(recorded, dict) and isinstance(asked, dict):
        for name in [*recorded, *(name for name in asked if name not in recorded)]:
            inside = f"{path}.{name}" if path else str(name)
            yield from differences(recorded.get(name, _MISSING), asked.get(name, _MISSING), inside)
    elif isinstance(recorded, list) and isinstance(asked, list) and len(recorded) == len(asked):
        for number, (one, other) in enumerate(zip(recorded, asked, strict=True)):
            yield from differences(one, other, f"{path}[{number}]")
    elif not _same(recorded, asked):
        yield f"{path or 'all of it'}: recorded {_shown(recorded)}, asked {_shown(asked)}"


def _same(recorded: Any, asked: Any) -> bool:
    if isinstance(recorded, str) and isinstance(asked, str):
        return recorded == asked or _fits(MASKED.split(recorded), asked)
    if isinstance(recorded, bool) or isinstance(asked, bool):
        return recorded is asked
    return bool(recorded == asked)


def _fits(parts: list[str], text: str) -> bool:
    """Whether `text` has these parts in their order, with something between any two of them."""
    first, *rest = parts
    if not rest or not text.startswith(first):
        return False
    *middle, last = rest
    place = len(first)
    for part in middle:
        found = text.find(part, place + 1)
        if found < 0:
            return False
        place = found + len(part)
    return len(text) - len(last) > place and text.endswith(last)


def _shown(value: Any) -> str:
    if value is _MISSING:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."


def plain(value: Any, *names: str) -> Any:
    """Follow `names` into nested objects; `None` where there is nothing."""
    found = value
    for name in names:
        if not isinstance(found, dict):
            return None
        found = found.get(name)
    return found
