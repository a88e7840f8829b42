"""JSON as editors write their settings: with comments, and commas after the last item."""

from __future__ import annotations

import json
import re
from typing import Any

# A string is matched whole, so that what looks like a comment in it stays. What has no end is
# matched, too: else each character in it would be tried as a beginning.
_STRING = r'"(?:[^"\\\n]|\\.)*"?'
_TOKEN = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*)", re.DOTALL)
_LAST_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])")
_NO_BREAK = re.compile(r"[^\n]+")


def parse(text: str) -> Any:
    """Parse JSON with comments and trailing commas.

    Raises:
        ValueError: It is something else, has a key twice, or is nested too deeply.
    """
    # Blanks instead of nothing: line and column of an error are those of the file.
    bare = _TOKEN.sub(_without_comment, text)
    bare = _LAST_COMMA.sub(_without_comma, bare)
    try:
        return json.loads(bare, object_pairs_hook=_object, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _without_comment(match: re.Match[str]) -> str:
    found = match.group()
    return (
        found
        if found.startswith('"')
        else _NO_BREAK.sub(lambda line: " " * len(line.group()), found)
    )


def _without_comma(match: re.Match[str]) -> str:
    found = match.group()
    return found if found.startswith('"') else " "


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        # A reader sees the first, a parser takes the last.
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice!r} is there twice")
    return members


def _no_number(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
