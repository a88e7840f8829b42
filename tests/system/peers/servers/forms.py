"""The form of the Python peers, and what they say of the answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "polite": {"type": "boolean", "default": True},
    },
    "required": ["name"],
}


def in_words(content: Mapping[str, Any]) -> str:
    """The fields as text, in the order of their names."""
    return " ".join(f"{name}={json.dumps(value)}" for name, value in sorted(content.items()))
