"""Values for the HTTP headers that repeat parts of a message (2026-07-28, "Value Encoding")."""

from __future__ import annotations

import base64
import re

_PLAIN = re.compile(r"[!-~](?:[ -~]*[!-~])?|")
_SENTINEL = re.compile(r"=\?base64\?.*\?=", re.DOTALL)


def encode_value(text: str) -> str:
    """Return `text` as a header value that no intermediary can misread.

    Plain if it is printable ASCII without blanks at its ends and does not look encoded itself;
    otherwise Base64 of its UTF-8 bytes between two markers. A line break can therefore never reach
    the HTTP layer.
    """
    if _PLAIN.fullmatch(text) and not _SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="
