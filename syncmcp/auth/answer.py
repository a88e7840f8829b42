"""What an authorization server answers: JSON objects, and words that people may read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from syncmcp._base.text import redact

if TYPE_CHECKING:
    from syncmcp.auth.steps import Fetched

__all__ = ["content", "members", "readable"]

_LONGEST = 300


def members(fetched: Fetched) -> dict[str, Any]:
    """The members of the JSON object in an answer; none if it holds something else."""
    value = content(fetched)
    return value if isinstance(value, dict) else {}


def content(fetched: Fetched) -> Any:
    """The JSON in an answer; `None` if it holds none that is of use."""
    try:
        value: Any = json.loads(fetched.body)
        # Half of a pair of surrogates fits into no request.
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value


def readable(words: object, otherwise: str) -> str:
    """Foreign text for a message: of one line, on any terminal, and without secrets.

    Args:
        words: What the server said, if it did.
        otherwise: What to say if it said nothing.
    """
    text = words if isinstance(words, str) else ""
    shown = "".join(one if one.isprintable() else " " for one in text[:_LONGEST])
    return redact(shown).strip() or otherwise
